//! Products of rows with each other, added up over points, for every lane.

use pulp::{Simd, WithSimd};

use crate::rows::Real;
use crate::rows::lanes::{LANES, Lanes};
use crate::solver::triangle::packed_index;

/// Adds Σ over points row_i row_j, i ≥ j, of `rows` (points, stride ≤ 9) to `sums`, packed by rows.
pub struct Gram<'a, R> {
    pub rows: &'a [Lanes<R>],
    pub stride: usize,
    pub sums: &'a mut [Lanes<R>],
}

impl<R: Real> Gram<'_, R> {
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> WithSimd for Gram<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Gram { rows, stride, sums } = self;
        for i in 0..stride {
            match i {
                0 => row::<S, R, 1>(simd, rows, stride, sums),
                1 => row::<S, R, 2>(simd, rows, stride, sums),
                2 => row::<S, R, 3>(simd, rows, stride, sums),
                3 => row::<S, R, 4>(simd, rows, stride, sums),
                4 => row::<S, R, 5>(simd, rows, stride, sums),
                5 => row::<S, R, 6>(simd, rows, stride, sums),
                6 => row::<S, R, 7>(simd, rows, stride, sums),
                7 => row::<S, R, 8>(simd, rows, stride, sums),
                _ => row::<S, R, 9>(simd, rows, stride, sums),
            }
        }
    }
}

/// Row N − 1 of the triangle: its sums stay in registers while the points go by.
#[inline(always)]
fn row<S: Simd, R: Real, const N: usize>(simd: S, rows: &[Lanes<R>], stride: usize, sums: &mut [Lanes<R>]) {
    let lanes = R::lanes::<S>();
    for v in 0..LANES / lanes {
        let mut totals = [R::splat(simd, R::ZERO); N];
        for j in 0..N {
            totals[j] = R::vectors::<S>(&sums[packed_index(N - 1, j)].0)[v];
        }
        for point in rows.chunks_exact(stride) {
            // an array, so that the loop below unrolls and the totals are registers
            let Some(point) = point.first_chunk::<N>() else { continue };
            let a = R::vectors::<S>(&point[N - 1].0)[v];
            for j in 0..N {
                totals[j] = R::multiply_add(simd, a, R::vectors::<S>(&point[j].0)[v], totals[j]);
            }
        }
        for (j, total) in R::elements::<S>(&totals).chunks_exact(lanes).enumerate() {
            sums[packed_index(N - 1, j)].0[v * lanes..][..lanes].copy_from_slice(total);
        }
    }
}
