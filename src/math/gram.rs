//! Products of rows with each other, X Xᵀ, by blocks of pixels. Sums are in vector lanes of the rows' precision inside
//! of a block and in f64 between blocks. The order of the sums depends only on the number of pixels.

use pulp::Simd;

use super::Real;
use super::aligned::Aligned;
use crate::math::triangle::{packed_index, packed_length};

/// Maximum number of pixels in a block.
pub const PIXELS_PER_BLOCK: usize = 512;
/// Number of rows on either side of a register tile.
const GRAM_TILE_ROWS: usize = 4;

/// Sums over pixels of row_i row_j, i ≥ j.
pub struct Gram<R> {
    rows: usize,
    /// Products among the first `skip` rows are not computed.
    skip: usize,
    /// Packed lower triangle of the padded rows.
    sums: Vec<f64>,
    /// Rows of a block, [`PIXELS_PER_BLOCK`] elements each.
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
        let padded = rows.next_multiple_of(GRAM_TILE_ROWS);
        block.resize(padded * PIXELS_PER_BLOCK, R::ZERO);
        block[rows * PIXELS_PER_BLOCK..].fill(R::ZERO);
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
        &mut self.block[i * PIXELS_PER_BLOCK..][..PIXELS_PER_BLOCK]
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
        for row in self
            .block
            .chunks_exact_mut(PIXELS_PER_BLOCK)
            .take(self.rows)
        {
            row[count..vectors * R::lanes::<S>()].fill(R::ZERO);
        }
        for i in (0..self.rows).step_by(GRAM_TILE_ROWS) {
            for j in (0..=i).step_by(GRAM_TILE_ROWS) {
                if i + GRAM_TILE_ROWS <= self.skip {
                    continue;
                }
                let [a, b] = [i, j].map(|first| {
                    &self.block[first * PIXELS_PER_BLOCK..][..GRAM_TILE_ROWS * PIXELS_PER_BLOCK]
                });
                let skips_half = self.skip >= i + GRAM_TILE_ROWS / 2;
                let sums = match (skips_half, i == j) {
                    (false, false) => multiply_tile::<R, S, 0, false>(simd, a, b, vectors),
                    (false, true) => multiply_tile::<R, S, 0, true>(simd, a, b, vectors),
                    (true, false) => multiply_tile::<R, S, 2, false>(simd, a, b, vectors),
                    (true, true) => multiply_tile::<R, S, 2, true>(simd, a, b, vectors),
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

/// Returns the products of four rows with four rows over the first `vectors` vectors of a block. Those of rows of `a`
/// before `FIRST_ROW` are 0, and so are those above the diagonal if both are the same rows.
#[inline(always)]
fn multiply_tile<R: Real, S: Simd, const FIRST_ROW: usize, const IS_DIAGONAL: bool>(
    simd: S,
    a: &[R],
    b: &[R],
    vectors: usize,
) -> [[f64; GRAM_TILE_ROWS]; GRAM_TILE_ROWS] {
    let mut sums = [[0.0; GRAM_TILE_ROWS]; GRAM_TILE_ROWS];
    // As many accumulators as the registers hold, besides the factors. The sums are the same either way.
    if S::REGISTER_COUNT >= 32 {
        multiply_strip::<R, S, GRAM_TILE_ROWS, 0, FIRST_ROW, IS_DIAGONAL>(
            simd, a, b, vectors, &mut sums,
        );
    } else {
        multiply_strip::<R, S, 2, 0, FIRST_ROW, IS_DIAGONAL>(simd, a, b, vectors, &mut sums);
        multiply_strip::<R, S, 2, 2, FIRST_ROW, IS_DIAGONAL>(simd, a, b, vectors, &mut sums);
    }
    sums
}

/// Sets the products of [`multiply_tile`] with `N` of the four rows of `b`, from its row `FIRST` on.
#[inline(always)]
fn multiply_strip<
    R: Real,
    S: Simd,
    const N: usize,
    const FIRST: usize,
    const FIRST_ROW: usize,
    const IS_DIAGONAL: bool,
>(
    simd: S,
    a: &[R],
    b: &[R],
    vectors: usize,
    sums: &mut [[f64; GRAM_TILE_ROWS]; GRAM_TILE_ROWS],
) {
    let stride = PIXELS_PER_BLOCK / R::lanes::<S>();
    let left_vectors = R::vectors::<S>(a);
    let right_vectors = R::vectors::<S>(b);
    let left_rows: [_; GRAM_TILE_ROWS] =
        std::array::from_fn(|p| &left_vectors[p * stride..][..vectors]);
    let right_rows: [_; N] =
        std::array::from_fn(|q| &right_vectors[(FIRST + q) * stride..][..vectors]);
    let mut sums_in_lanes = [[R::splat(simd, R::ZERO); N]; GRAM_TILE_ROWS];
    // These are loops, because a closure would leave the scope of the vector instructions, each of which would become a
    // call.
    for k in 0..vectors {
        for p in FIRST_ROW..GRAM_TILE_ROWS {
            let x = left_rows[p][k];
            for q in 0..N {
                if !IS_DIAGONAL || FIRST + q <= p {
                    sums_in_lanes[p][q] =
                        R::multiply_add(simd, x, right_rows[q][k], sums_in_lanes[p][q]);
                }
            }
        }
    }
    for p in FIRST_ROW..GRAM_TILE_ROWS {
        for q in 0..N {
            if !IS_DIAGONAL || FIRST + q <= p {
                sums[p][FIRST + q] = R::total(simd, sums_in_lanes[p][q]).to_f64();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_awkward_sizes_agree_with_plain_sums() {
        for pixels in [0usize, 1, 63, 64, 65, 511, 512, 513, 1200] {
            let value =
                |i: usize, j: usize| ((i * 7919 + j * 104_729) % 1000) as f32 / 1000.0 - 0.5;
            let mut gram = Gram::<f32>::new(6, 4);
            for start in (0..pixels).step_by(PIXELS_PER_BLOCK) {
                let count = PIXELS_PER_BLOCK.min(pixels - start);
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
