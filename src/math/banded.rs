//! Cholesky factors of banded matrices, and their solutions for many right-hand sides at once. f64.

use pulp::NullaryFnOnce;

/// Number of right-hand sides that are processed together.
const LANES: usize = 8;

/// Cholesky factor L of a symmetric banded matrix R = L Lᵀ with a unit diagonal.
#[derive(Clone, Debug, PartialEq)]
pub struct BandedFactor {
    /// Number K of diagonals below the main one.
    band: usize,
    /// (n, K + 1) Row i has L(i, i − K), …, L(i, i − 1), and then 1 / L(i, i). Elements before the first column are 0.
    rows: Vec<f64>,
}

impl BandedFactor {
    /// Factorises a matrix of `count` rows with a unit diagonal and `band` diagonals below it (Golub & Van Loan 2013,
    /// §4.3.5). `element(i, d)` is R(i, i − d) for d = 1 … `band` and i ≥ d.
    ///
    /// # Errors
    /// Returns the first row whose pivot is not above `min_pivot`, or not finite: the matrix is not positive definite.
    pub fn new(
        count: usize,
        band: usize,
        min_pivot: f64,
        element: impl Fn(usize, usize) -> f64,
    ) -> Result<BandedFactor, usize> {
        let width = band + 1;
        let mut rows = vec![0.0; count * width];
        for i in 0..count {
            let mut pivot = 1.0;
            for d in (1..=band.min(i)).rev() {
                // L(i, j) L(j, j) = R(i, j) − Σ_k L(i, k) L(j, k) over the columns k < j that both rows have.
                let j = i - d;
                let mut sum = element(i, d);
                for k in i.saturating_sub(band)..j {
                    sum -= rows[i * width + band + k - i] * rows[j * width + band + k - j];
                }
                let value = sum * rows[j * width + band];
                rows[i * width + band - d] = value;
                pivot -= value * value;
            }
            if !(pivot > min_pivot && pivot.is_finite()) {
                return Err(i);
            }
            rows[i * width + band] = pivot.sqrt().recip();
        }
        Ok(BandedFactor { band, rows })
    }

    /// Returns ln det R = 2 Σ ln L(i, i).
    pub fn ln_det(&self) -> f64 {
        let reciprocals = self.rows.iter().skip(self.band).step_by(self.band + 1);
        -2.0 * reciprocals.map(|reciprocal| reciprocal.ln()).sum::<f64>()
    }

    /// Replaces each right-hand side b by L⁻¹ b. The elements of row i of all of them are in row i of `sides`.
    pub fn solve_lower(&self, sides: &mut RightHandSides) {
        pulp::Arch::new().dispatch(SolveLower {
            factor: self,
            sides,
        });
    }
}

/// Right-hand sides of a linear system, as a matrix with one row per equation.
#[derive(Clone, Debug)]
pub struct RightHandSides {
    count: usize,
    /// Number of columns: `count` rounded up to whole lanes. Those that are added hold zeros.
    stride: usize,
    values: Vec<f64>,
}

impl RightHandSides {
    /// Makes `count` right-hand sides of `rows` zeros.
    pub fn zeros(rows: usize, count: usize) -> RightHandSides {
        let stride = count.next_multiple_of(LANES).max(LANES);
        RightHandSides {
            count,
            stride,
            values: vec![0.0; rows * stride],
        }
    }

    /// Returns the elements of row i.
    pub fn row_mut(&mut self, i: usize) -> &mut [f64] {
        &mut self.values[i * self.stride..][..self.count]
    }

    /// Returns the elements of all rows, row by row.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values
            .chunks_exact(self.stride)
            .map(|row| &row[..self.count])
    }

    /// Returns the products of all pairs of columns of `self` and `other`, (self, other) row by row.
    pub fn products(&self, other: &RightHandSides) -> Vec<f64> {
        let mut sums = vec![0.0; self.count * other.stride];
        pulp::Arch::new().dispatch(AddProducts {
            sides: self,
            others: other,
            sums: &mut sums,
        });
        sums.chunks_exact(other.stride)
            .flat_map(|row| row[..other.count].iter().copied())
            .collect()
    }
}

/// Forward substitution, row by row for all right-hand sides.
struct SolveLower<'a> {
    factor: &'a BandedFactor,
    sides: &'a mut RightHandSides,
}

impl NullaryFnOnce for SolveLower<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let SolveLower { factor, sides } = self;
        let band = factor.band;
        let stride = sides.stride;
        for (i, elements) in factor.rows.chunks_exact(band + 1).enumerate() {
            let (earlier, rest) = sides.values.split_at_mut(i * stride);
            let row = &mut rest[..stride];
            let first = i.saturating_sub(band);
            for (j, earlier_row) in (first..i).zip(earlier[first * stride..].chunks_exact(stride)) {
                let element = elements[band + j - i];
                for (x, earlier) in row.iter_mut().zip(earlier_row) {
                    *x -= element * earlier;
                }
            }
            row.iter_mut().for_each(|x| *x *= elements[band]);
        }
    }
}

/// Sums of products of columns.
struct AddProducts<'a> {
    sides: &'a RightHandSides,
    others: &'a RightHandSides,
    sums: &'a mut [f64],
}

impl NullaryFnOnce for AddProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let AddProducts {
            sides,
            others,
            sums,
        } = self;
        let rows = sides.values.chunks_exact(sides.stride);
        let other_rows = others.values.chunks_exact(others.stride);
        for (row, other_row) in rows.zip(other_rows) {
            for (x, sums) in row.iter().zip(sums.chunks_exact_mut(others.stride)) {
                for (sum, other) in sums.iter_mut().zip(other_row) {
                    *sum += x * other;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Correlation of two elements that are `d` apart, in a matrix that is not Toeplitz.
    fn correlation(i: usize, d: usize) -> f64 {
        0.5 * 0.6f64.powi(d as i32) * (1.0 + 0.3 * (i as f64).sin())
    }

    #[test]
    fn factors_of_awkward_sizes_give_back_their_matrix() {
        for (count, band) in [(0, 2), (1, 0), (1, 3), (7, 2), (64, 5), (65, 1)] {
            let factor = BandedFactor::new(count, band, 1e-12, correlation).unwrap();
            // The columns of the matrix, whitened, are the rows of L: their products are the matrix again.
            let element = |i: usize, j: usize| match i.abs_diff(j) {
                0 => 1.0,
                d if d <= band => correlation(i.max(j), d),
                _ => 0.0,
            };
            let mut sides = RightHandSides::zeros(count, count);
            for i in 0..count {
                for j in 0..count {
                    sides.row_mut(i)[j] = element(i, j);
                }
            }
            factor.solve_lower(&mut sides);
            let products = sides.products(&sides);
            let mut ln_det = 0.0;
            for (i, row) in sides.rows().enumerate() {
                ln_det += 2.0 * row[i].ln();
                for j in 0..count {
                    let difference = products[i * count + j] - element(i, j);
                    assert!(
                        difference.abs() < 1e-13,
                        "{count} {band} {i} {j}: {difference}"
                    );
                }
            }
            assert!((factor.ln_det() - ln_det).abs() < 1e-12 * count.max(1) as f64);
        }
    }

    #[test]
    fn the_first_row_without_a_positive_pivot_is_named() {
        let not_definite = |i: usize, _: usize| if i == 3 { 1.5 } else { 0.2 };
        assert_eq!(BandedFactor::new(6, 1, 1e-7, not_definite), Err(3));
        let not_a_number = |i: usize, _: usize| if i == 2 { f64::NAN } else { 0.2 };
        assert_eq!(BandedFactor::new(6, 1, 1e-7, not_a_number), Err(2));
    }
}
