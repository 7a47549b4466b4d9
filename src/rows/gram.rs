//! Products of rows with each other, X Xᵀ, block of pixels by block: lanes of the rows' precision inside a block, f64
//! between blocks. The order of the sums depends on nothing but the number of pixels.

use pulp::Simd;

use super::Real;
use crate::rows::triangle::{packed_index, packed_length};

/// Most pixels in a block.
pub const BLOCK: usize = 512;
/// Rows in a register tile.
const SIDE: usize = 4;

/// Sums over pixels of row_i row_j, i ≥ j.
pub struct Gram<R> {
    rows: usize,
    /// Products among the first `skip` rows are not wanted.
    skip: usize,
    /// Packed lower triangle of the padded rows.
    sums: Vec<f64>,
    /// Pixels in a block: few where there are no more.
    width: usize,
    block: Vec<R>,
}

impl<R: Real> Gram<R> {
    /// Over `pixels` in all.
    pub fn new(rows: usize, skip: usize, pixels: usize) -> Gram<R> {
        let padded = rows.next_multiple_of(SIDE);
        let width = if pixels <= BLOCK / 8 { BLOCK / 8 } else { BLOCK };
        Gram { rows, skip, sums: vec![0.0; packed_length(padded)], width, block: vec![R::ZERO; padded * width] }
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Row `i` of the block to be added next.
    #[inline(always)]
    pub fn row(&mut self, i: usize) -> &mut [R] {
        &mut self.block[i * self.width..(i + 1) * self.width]
    }

    /// Σ row_i row_j.
    pub fn sum(&self, i: usize, j: usize) -> f64 {
        self.sums[packed_index(i, j)]
    }

    /// Adds the first `count` pixels of the block; the others are set to zero.
    #[inline(always)]
    pub fn add<S: Simd>(&mut self, simd: S, count: usize) {
        let width = self.width;
        if count < width {
            for row in self.block.chunks_exact_mut(width) {
                row[count..].fill(R::ZERO);
            }
        }
        for i in (0..self.rows).step_by(SIDE) {
            for j in (0..=i).step_by(SIDE) {
                if i + SIDE <= self.skip {
                    continue;
                }
                let a = &self.block[i * width..(i + SIDE) * width];
                let b = &self.block[j * width..(j + SIDE) * width];
                // lengths that the compiler knows
                let sums = if width == BLOCK {
                    tile::<R, S, BLOCK>(simd, a, b)
                } else {
                    tile::<R, S, { BLOCK / 8 }>(simd, a, b)
                };
                for (p, row) in sums.iter().enumerate() {
                    for (q, sum) in row.iter().enumerate() {
                        if i + p >= j + q {
                            self.sums[packed_index(i + p, j + q)] += sum;
                        }
                    }
                }
            }
        }
    }
}

/// Products of four rows with four rows over a block.
#[inline(always)]
fn tile<R: Real, S: Simd, const WIDTH: usize>(simd: S, a: &[R], b: &[R]) -> [[f64; SIDE]; SIDE] {
    let mut sums = [[0.0; SIDE]; SIDE];
    // as many accumulators as the registers hold, besides what they multiply: the same sums either way
    if S::REGISTER_COUNT >= 32 {
        strip::<R, S, WIDTH, SIDE>(simd, a, (b, 0), &mut sums);
    } else {
        for first in (0..SIDE).step_by(2) {
            strip::<R, S, WIDTH, 2>(simd, a, (b, first), &mut sums);
        }
    }
    sums
}

/// Products of four rows with `N` of the other four, from the `first` one.
#[inline(always)]
fn strip<R: Real, S: Simd, const WIDTH: usize, const N: usize>(
    simd: S,
    a: &[R],
    (b, first): (&[R], usize),
    sums: &mut [[f64; SIDE]; SIDE],
) {
    let count = WIDTH / R::lanes::<S>();
    let (left, right) = (R::vectors::<S>(a), R::vectors::<S>(b));
    let (left, right) = (&left[..SIDE * count], &right[first * count..][..N * count]);
    let mut lanes = [[R::splat(simd, R::ZERO); N]; SIDE];
    // plain loops: a closure would leave the vector instructions' scope, and every one of them would become a call
    for k in 0..count {
        for p in 0..SIDE {
            let x = left[p * count + k];
            for q in 0..N {
                lanes[p][q] = R::multiply_add(simd, x, right[q * count + k], lanes[p][q]);
            }
        }
    }
    for p in 0..SIDE {
        for q in 0..N {
            sums[p][first + q] = R::total(simd, lanes[p][q]).to_f64();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meets_plain_sums_on_awkward_sizes() {
        for pixels in [0usize, 1, 63, 64, 65, 511, 512, 513, 1200] {
            let value = |i: usize, j: usize| ((i * 7919 + j * 104_729) % 1000) as f32 / 1000.0 - 0.5;
            let mut gram = Gram::<f32>::new(6, 4, pixels);
            for start in (0..pixels).step_by(BLOCK) {
                let count = BLOCK.min(pixels - start);
                for i in 0..6 {
                    for (k, x) in gram.row(i)[..count].iter_mut().enumerate() {
                        *x = value(i, start + k);
                    }
                }
                gram.add(pulp::Scalar128b, count);
            }
            for i in 4..6 {
                for j in 0..=i {
                    let exact: f64 = (0..pixels).map(|k| f64::from(value(i, k)) * f64::from(value(j, k))).sum();
                    assert!((gram.sum(i, j) - exact).abs() < 1e-4, "{pixels} {i} {j}");
                }
            }
        }
    }
}
