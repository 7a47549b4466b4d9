//! Products of rows with each other, added up over points, for every lane.

use pulp::{Simd, WithSimd};

use crate::math::Real;
use crate::math::lanes::{LANES, Lanes};
use crate::math::triangle::{packed_index, packed_length};

/// Maximum number of sums that stay in registers while we go through the points.
const SUMS_IN_REGISTERS: usize = 8;

/// Adds Σ over points row_i row_j, i ≥ j, of `rows` (points, stride) to `sums`, packed by rows, or
/// overwrites these.
pub struct GramSum<'a, R> {
    pub rows: &'a [Lanes<R>],
    pub stride: usize,
    pub sums: &'a mut [Lanes<R>],
    /// Whether the sums are overwritten, because these are the first points.
    pub fresh: bool,
    /// Whether the last row is 1 at every point, so that its products are sums of the other rows.
    pub ones: bool,
}

impl<R: Real> GramSum<'_, R> {
    /// Adds the products of all pairs of rows over some points to the sums, with the widest vectors that the machine
    /// has.
    pub fn add_products(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> WithSimd for GramSum<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        match (self.stride, self.ones) {
            (3, _) => return self.add_rows_in_registers::<S, 3, 0, 3, false>(simd),
            (4, _) => return self.add_rows_in_registers::<S, 4, 0, 4, false>(simd),
            // As many sums as fit into the registers, beside the rows that are multiplied.
            (5, _) if S::REGISTER_COUNT >= 32 => {
                return self.add_rows_in_registers::<S, 5, 0, 5, false>(simd);
            }
            (6, false) if S::REGISTER_COUNT >= 32 => {
                return self.add_rows_in_registers::<S, 6, 0, 6, false>(simd);
            }
            (6, true) if S::REGISTER_COUNT >= 32 => {
                return self.add_rows_in_registers::<S, 6, 0, 6, true>(simd);
            }
            (5, _) => {
                self.add_rows_in_registers::<S, 5, 0, 4, false>(simd);
                return self.add_rows_in_registers::<S, 5, 4, 5, false>(simd);
            }
            (6, false) => {
                self.add_rows_in_registers::<S, 6, 0, 4, false>(simd);
                return self.add_rows_in_registers::<S, 6, 4, 6, false>(simd);
            }
            (6, true) => {
                self.add_rows_in_registers::<S, 6, 0, 4, true>(simd);
                return self.add_rows_in_registers::<S, 6, 4, 6, true>(simd);
            }
            _ => {}
        }
        for i in 0..self.stride {
            for first in (0..=i).step_by(SUMS_IN_REGISTERS) {
                match (i + 1 - first).min(SUMS_IN_REGISTERS) {
                    1 => self.add_part_of_row::<S, 1>(simd, i, first),
                    2 => self.add_part_of_row::<S, 2>(simd, i, first),
                    3 => self.add_part_of_row::<S, 3>(simd, i, first),
                    4 => self.add_part_of_row::<S, 4>(simd, i, first),
                    5 => self.add_part_of_row::<S, 5>(simd, i, first),
                    6 => self.add_part_of_row::<S, 6>(simd, i, first),
                    7 => self.add_part_of_row::<S, 7>(simd, i, first),
                    _ => self.add_part_of_row::<S, SUMS_IN_REGISTERS>(simd, i, first),
                }
            }
        }
    }
}

impl<R: Real> GramSum<'_, R> {
    /// Adds the products of rows `FROM..TO` of N with all rows up to their own to the sums, or overwrites these if
    /// `fresh`; with `ONES` the last row is 1.
    #[inline(always)]
    fn add_rows_in_registers<
        S: Simd,
        const N: usize,
        const FROM: usize,
        const TO: usize,
        const ONES: bool,
    >(
        &mut self,
        simd: S,
    ) {
        let sums = &mut self.sums[..packed_length(N)];
        for v in 0..LANES / R::lanes::<S>() {
            let mut totals = [[R::splat(simd, R::ZERO); N]; N];
            for i in (FROM..TO).filter(|_| !self.fresh) {
                for j in 0..=i {
                    totals[i][j] = R::vectors::<S>(&sums[packed_index(i, j)].0)[v];
                }
            }
            for point in self.rows.as_chunks::<N>().0 {
                let mut row = [R::splat(simd, R::ZERO); N];
                for i in 0..N {
                    row[i] = R::vectors::<S>(&point[i].0)[v];
                }
                for i in FROM..TO {
                    for j in 0..=i {
                        totals[i][j] = match ONES && i + 1 == N {
                            true => R::plus(simd, row[j], totals[i][j]),
                            false => R::multiply_add(simd, row[i], row[j], totals[i][j]),
                        };
                    }
                }
            }
            for i in FROM..TO {
                for j in 0..=i {
                    R::vectors_mut::<S>(&mut sums[packed_index(i, j)].0)[v] = totals[i][j];
                }
            }
        }
    }

    /// Adds the products of row i with the N rows from `first` on, over all points, to the sums.
    #[inline(always)]
    fn add_part_of_row<S: Simd, const N: usize>(&mut self, simd: S, i: usize, first: usize) {
        let lanes = R::lanes::<S>();
        let sums = &mut self.sums[packed_index(i, first)..][..N];
        for v in 0..LANES / lanes {
            let mut totals = [R::splat(simd, R::ZERO); N];
            for j in (0..N).filter(|_| !self.fresh) {
                totals[j] = R::vectors::<S>(&sums[j].0)[v];
            }
            for point in self.rows.chunks_exact(self.stride) {
                // This is an array, so that the loop below unrolls and the totals stay in registers.
                let Some(partners) = point[first..].first_chunk::<N>() else {
                    continue;
                };
                let a = R::vectors::<S>(&point[i].0)[v];
                for j in 0..N {
                    totals[j] =
                        R::multiply_add(simd, a, R::vectors::<S>(&partners[j].0)[v], totals[j]);
                }
            }
            for (j, total) in R::elements::<S>(&totals).chunks_exact(lanes).enumerate() {
                sums[j].0[v * lanes..][..lanes].copy_from_slice(total);
            }
        }
    }
}
