//! Products of rows with each other, X Xᵀ, block of pixels by block: lanes of the rows' precision inside a block, f64
//! between blocks. The order of the sums depends on nothing but the number of pixels.

use pulp::Simd;

use super::Real;
use super::aligned::Aligned;
use crate::math::triangle::{packed_index, packed_length};

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
    /// Rows of a block, [`BLOCK`] elements each.
    block: Aligned<R>,
}

impl<R: Real> Gram<R> {
    /// Makes sums, all zero, of the products of `rows` rows with one another. Products of two of the first `skip` rows
    /// are not needed.
    pub fn new(rows: usize, skip: usize) -> Gram<R> {
        Gram::in_memory(Aligned::default(), rows, skip)
    }

    /// Makes zero sums in the memory of earlier ones. Allocating and clearing it costs as much as a tenth of the
    /// products.
    pub fn in_memory(mut block: Aligned<R>, rows: usize, skip: usize) -> Gram<R> {
        let padded = rows.next_multiple_of(SIDE);
        block.resize(padded * BLOCK, R::ZERO);
        block[rows * BLOCK..].fill(R::ZERO);
        Gram {
            rows,
            skip,
            sums: vec![0.0; packed_length(padded)],
            block,
        }
    }

    /// Returns the memory of the block, for [`in_memory`](Gram::in_memory).
    pub fn into_memory(self) -> Aligned<R> {
        self.block
    }

    /// Returns row `i` of the block of pixels, to be filled before [`add`](Gram::add).
    #[inline(always)]
    pub fn row(&mut self, i: usize) -> &mut [R] {
        &mut self.block[i * BLOCK..][..BLOCK]
    }

    /// Returns Σ row_i row_j over all pixels that have been added.
    pub fn sum(&self, i: usize, j: usize) -> f64 {
        self.sums[packed_index(i, j)]
    }

    /// Adds the products of the rows at the first `count` pixels of the block to the sums. Some pixels after them are
    /// set to zero.
    #[inline(always)]
    pub fn add<S: Simd>(&mut self, simd: S, count: usize) {
        let vectors = count.div_ceil(R::lanes::<S>());
        for row in self.block.chunks_exact_mut(BLOCK).take(self.rows) {
            row[count..vectors * R::lanes::<S>()].fill(R::ZERO);
        }
        for i in (0..self.rows).step_by(SIDE) {
            for j in (0..=i).step_by(SIDE) {
                if i + SIDE <= self.skip {
                    continue;
                }
                let [a, b] = [i, j].map(|first| &self.block[first * BLOCK..][..SIDE * BLOCK]);
                let sums = tile::<R, S>(simd, a, b, vectors);
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

/// Returns the products of four rows with four rows over the first `vectors` vectors of a block.
#[inline(always)]
fn tile<R: Real, S: Simd>(simd: S, a: &[R], b: &[R], vectors: usize) -> [[f64; SIDE]; SIDE] {
    let mut sums = [[0.0; SIDE]; SIDE];
    // as many accumulators as the registers hold, besides what they multiply: the same sums either way
    if S::REGISTER_COUNT >= 32 {
        strip::<R, S, SIDE>(simd, a, b, 0, vectors, &mut sums);
    } else {
        for first in (0..SIDE).step_by(2) {
            strip::<R, S, 2>(simd, a, b, first, vectors, &mut sums);
        }
    }
    sums
}

/// Sets the products of the four rows of `a` with `N` of the four rows of `b`, from its row `first` on.
#[inline(always)]
fn strip<R: Real, S: Simd, const N: usize>(
    simd: S,
    a: &[R],
    b: &[R],
    first: usize,
    vectors: usize,
    sums: &mut [[f64; SIDE]; SIDE],
) {
    let stride = BLOCK / R::lanes::<S>();
    let (left, right) = (R::vectors::<S>(a), R::vectors::<S>(b));
    let left: [_; SIDE] = std::array::from_fn(|p| &left[p * stride..][..vectors]);
    let right: [_; N] = std::array::from_fn(|q| &right[(first + q) * stride..][..vectors]);
    let mut lanes = [[R::splat(simd, R::ZERO); N]; SIDE];
    // plain loops: a closure would leave the vector instructions' scope, and every one of them would become a call
    for k in 0..vectors {
        for p in 0..SIDE {
            let x = left[p][k];
            for q in 0..N {
                lanes[p][q] = R::multiply_add(simd, x, right[q][k], lanes[p][q]);
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
            let value =
                |i: usize, j: usize| ((i * 7919 + j * 104_729) % 1000) as f32 / 1000.0 - 0.5;
            let mut gram = Gram::<f32>::new(6, 4);
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
                    let exact: f64 = (0..pixels)
                        .map(|k| f64::from(value(i, k)) * f64::from(value(j, k)))
                        .sum();
                    assert!((gram.sum(i, j) - exact).abs() < 1e-4, "{pixels} {i} {j}");
                }
            }
        }
    }
}
