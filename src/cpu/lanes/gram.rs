//! Products of rows with each other, added up over points, for every lane.

use pulp::{Simd, WithSimd};

use crate::math::Real;
use crate::math::lanes::{LANES, Lanes};
use crate::math::triangle::{packed_index, packed_length};

/// Sums that stay in registers while the points go by.
const SIDE: usize = 8;

/// Adds Σ over points row_i row_j, i ≥ j, of `rows` (points, stride) to `sums`, packed by rows; or puts it there.
pub struct Gram<'a, R> {
    pub rows: &'a [Lanes<R>],
    pub stride: usize,
    pub sums: &'a mut [Lanes<R>],
    /// True if nothing is there yet.
    pub fresh: bool,
    /// True if the last row is 1 at every point: its products are sums.
    pub ones: bool,
}

impl<R: Real> Gram<'_, R> {
    /// Adds the products of all pairs of rows over some points to the sums, with the widest vectors that the machine
    /// has.
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> WithSimd for Gram<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        match (self.stride, self.ones) {
            (3, _) => return self.few::<S, 3, 0, 3, false>(simd),
            (4, _) => return self.few::<S, 4, 0, 4, false>(simd),
            // as many sums as there are registers for, besides what they multiply
            (5, _) if S::REGISTER_COUNT >= 32 => return self.few::<S, 5, 0, 5, false>(simd),
            (6, false) if S::REGISTER_COUNT >= 32 => return self.few::<S, 6, 0, 6, false>(simd),
            (6, true) if S::REGISTER_COUNT >= 32 => return self.few::<S, 6, 0, 6, true>(simd),
            (5, _) => {
                self.few::<S, 5, 0, 4, false>(simd);
                return self.few::<S, 5, 4, 5, false>(simd);
            }
            (6, false) => {
                self.few::<S, 6, 0, 4, false>(simd);
                return self.few::<S, 6, 4, 6, false>(simd);
            }
            (6, true) => {
                self.few::<S, 6, 0, 4, true>(simd);
                return self.few::<S, 6, 4, 6, true>(simd);
            }
            _ => {}
        }
        for i in 0..self.stride {
            for first in (0..=i).step_by(SIDE) {
                match (i + 1 - first).min(SIDE) {
                    1 => self.some::<S, 1>(simd, i, first),
                    2 => self.some::<S, 2>(simd, i, first),
                    3 => self.some::<S, 3>(simd, i, first),
                    4 => self.some::<S, 4>(simd, i, first),
                    5 => self.some::<S, 5>(simd, i, first),
                    6 => self.some::<S, 6>(simd, i, first),
                    7 => self.some::<S, 7>(simd, i, first),
                    _ => self.some::<S, SIDE>(simd, i, first),
                }
            }
        }
    }
}

impl<R: Real> Gram<'_, R> {
    /// Adds the products of rows `FROM..TO` of N with all rows up to their own to the sums, or overwrites these if
    /// `fresh`; with `ONES` the last row is 1.
    #[inline(always)]
    fn few<S: Simd, const N: usize, const FROM: usize, const TO: usize, const ONES: bool>(
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
                let mut own = [R::splat(simd, R::ZERO); N];
                for i in 0..N {
                    own[i] = R::vectors::<S>(&point[i].0)[v];
                }
                for i in FROM..TO {
                    for j in 0..=i {
                        totals[i][j] = match ONES && i + 1 == N {
                            true => R::plus(simd, own[j], totals[i][j]),
                            false => R::multiply_add(simd, own[i], own[j], totals[i][j]),
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
    fn some<S: Simd, const N: usize>(&mut self, simd: S, i: usize, first: usize) {
        let lanes = R::lanes::<S>();
        let sums = &mut self.sums[packed_index(i, first)..][..N];
        for v in 0..LANES / lanes {
            let mut totals = [R::splat(simd, R::ZERO); N];
            for j in (0..N).filter(|_| !self.fresh) {
                totals[j] = R::vectors::<S>(&sums[j].0)[v];
            }
            for point in self.rows.chunks_exact(self.stride) {
                // an array, so that the loop below unrolls and the totals are registers
                let Some(others) = point[first..].first_chunk::<N>() else {
                    continue;
                };
                let a = R::vectors::<S>(&point[i].0)[v];
                for j in 0..N {
                    totals[j] =
                        R::multiply_add(simd, a, R::vectors::<S>(&others[j].0)[v], totals[j]);
                }
            }
            for (j, total) in R::elements::<S>(&totals).chunks_exact(lanes).enumerate() {
                sums[j].0[v * lanes..][..lanes].copy_from_slice(total);
            }
        }
    }
}
