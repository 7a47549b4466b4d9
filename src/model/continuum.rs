//! Continuum bases, f64 on the host (see `docs/src/equations.md`).

use pulp::NullaryFnOnce;

use super::settings::{Continuum, ContinuumKind};
use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower};

/// Evaluates each continuum term at `wavelength` (Å): (terms, pixels), with `low` to `high` mapped to x = −1 to 1.
pub fn evaluate_basis(continuum: Continuum, wavelength: &[f64], low: f64, high: f64) -> Vec<f64> {
    let scale_wavelength = |w: &f64| {
        if high > low {
            (w - low) / (high - low) * 2.0 - 1.0
        } else {
            0.0
        }
    };
    let x: Vec<f64> = wavelength.iter().map(scale_wavelength).collect();
    let mut rows = Vec::with_capacity(continuum.terms * x.len());
    for term in 0..continuum.terms {
        match continuum.kind {
            ContinuumKind::Chebyshev => {
                rows.extend(x.iter().map(|&x| chebyshev_polynomial(term, x)))
            }
            ContinuumKind::Rbf => {
                rows.extend(x.iter().map(|&x| rbf_term(term, continuum.terms, x)))
            }
            ContinuumKind::None => {}
        }
    }
    rows
}

/// Returns the Chebyshev polynomial of degree `term` at x.
fn chebyshev_polynomial(term: usize, x: f64) -> f64 {
    let mut previous = 1.0;
    let mut value = x;
    if term == 0 {
        return 1.0;
    }
    for _ in 1..term {
        (previous, value) = (value, 2.0 * x * value - previous);
    }
    value
}

/// Evaluates term number `term` of rvspecfit's basis at x: 1, x, x², then n = terms − 3 Gaussians at linspace(−1, 1,
/// n), σ = 1/n.
fn rbf_term(term: usize, terms: usize, x: f64) -> f64 {
    if term < 3 {
        return x.powi(term as i32);
    }
    let n = (terms - 3) as f64;
    let centre = if terms > 4 {
        -1.0 + 2.0 * (term - 3) as f64 / (n - 1.0)
    } else {
        -1.0
    };
    (-0.5 * ((x - centre) * n).powi(2)).exp()
}

/// Relation of rows that were made orthonormal to the original rows.
pub struct Orthonormalisation {
    /// ln |det| of the transform from the orthonormal rows to the original ones.
    pub ln_det: f64,
    /// Upper limit of that transform's condition number, the original rows being scaled to unit length.
    pub condition: f64,
}

impl Orthonormalisation {
    /// Value for rows that cannot be made orthonormal.
    pub const IMPOSSIBLE: Orthonormalisation = Orthonormalisation {
        ln_det: f64::NAN,
        condition: f64::INFINITY,
    };
}

/// Makes the rows (terms, pixels) orthonormal in place over the pixels where `used`; `None` if they are linearly
/// dependent.
pub fn orthonormalise(
    rows: &mut [f64],
    pixels: usize,
    used: &[bool],
) -> Option<Orthonormalisation> {
    let mut orthonormalisation = Orthonormalisation {
        ln_det: 0.0,
        condition: 1.0,
    };
    // A second pass removes the errors that rounding leaves in an ill-conditioned first one.
    for pass in 0..2 {
        let (factor, ln_det) = factor_gram_matrix(rows, pixels, used)?;
        orthonormalisation.ln_det += ln_det;
        if pass == 0 {
            orthonormalisation.condition = condition_limit(&factor, rows.len() / pixels.max(1));
        }
        pulp::Arch::new().dispatch(SubstituteForward {
            factor: &factor,
            rows,
            pixels,
        });
    }
    Some(orthonormalisation)
}

/// Returns an upper limit of the condition number of a packed lower-triangular factor whose rows are scaled to unit
/// length: the product of its Frobenius norm, √terms, and that of its inverse.
pub fn condition_limit(factor: &[f64], terms: usize) -> f64 {
    let inverse = invert_lower(factor, terms);
    // With D the lengths of L's rows, the inverse of D⁻¹ L is L⁻¹ D: column i of L⁻¹ times the length of row i.
    let squared_norms = (0..terms).map(|i| {
        let row_of_factor = (0..=i).map(|j| factor[packed_index(i, j)].powi(2));
        let column_of_inverse = (0..terms).map(|k| inverse[k * terms + i].powi(2));
        row_of_factor.sum::<f64>() * column_of_inverse.sum::<f64>()
    });
    (terms as f64 * squared_norms.sum::<f64>()).sqrt()
}

/// Forward substitution, row by row: rows ← L⁻¹ rows, where L is a packed lower-triangular factor.
struct SubstituteForward<'a> {
    factor: &'a [f64],
    rows: &'a mut [f64],
    pixels: usize,
}

impl NullaryFnOnce for SubstituteForward<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let SubstituteForward {
            factor,
            rows,
            pixels,
        } = self;
        for i in 0..rows.len() / pixels.max(1) {
            let (solved_rows, rest) = rows.split_at_mut(i * pixels);
            let row = &mut rest[..pixels];
            for (j, solved_row) in solved_rows.chunks_exact(pixels).enumerate() {
                let l = factor[packed_index(i, j)];
                row.iter_mut()
                    .zip(solved_row)
                    .for_each(|(x, y)| *x -= l * y);
            }
            let diagonal = factor[packed_index(i, i)];
            row.iter_mut().for_each(|x| *x /= diagonal);
        }
    }
}

/// Returns the inner product Σ a b in f64, summed in lanes. Its bits do not depend on where the numbers lie in
/// memory.
pub fn inner_product(a: &[f64], b: &[f64]) -> f64 {
    pulp::Arch::new().dispatch(InnerProduct(a, b))
}

struct InnerProduct<'a>(&'a [f64], &'a [f64]);

impl NullaryFnOnce for InnerProduct<'_> {
    type Output = f64;

    #[inline(always)]
    fn call(self) -> f64 {
        let (a, a_rest) = self.0.as_chunks::<16>();
        let (b, b_rest) = self.1.as_chunks::<16>();
        let mut sums = [0.0; 16];
        for (a, b) in a.iter().zip(b) {
            for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
                *sum += a * b;
            }
        }
        sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
    }
}

/// Returns the Cholesky factor of the rows' Gram matrix over used pixels, and the sum of the logarithms of its
/// diagonal.
fn factor_gram_matrix(rows: &[f64], pixels: usize, used: &[bool]) -> Option<(Vec<f64>, f64)> {
    let terms = rows.len() / pixels.max(1);
    let masked_rows: Vec<f64> = rows
        .iter()
        .zip(used.iter().cycle())
        .map(|(x, used)| if *used { *x } else { 0.0 })
        .collect();
    let mut gram = vec![0.0; packed_length(terms)];
    for i in 0..terms {
        for j in 0..=i {
            let row_i = &masked_rows[i * pixels..][..pixels];
            let row_j = &masked_rows[j * pixels..][..pixels];
            gram[packed_index(i, j)] = inner_product(row_i, row_j);
        }
    }
    if !cholesky(&mut gram, terms) {
        return None;
    }
    let ln_det = (0..terms).map(|i| gram[packed_index(i, i)].ln()).sum();
    Some((gram, ln_det))
}

/// Returns the inverse of a packed lower-triangular factor, as full rows (terms, terms).
pub fn invert_lower(factor: &[f64], terms: usize) -> Vec<f64> {
    let mut inverse = vec![0.0; terms * terms];
    let mut column = vec![0.0; terms];
    for j in 0..terms {
        column.fill(0.0);
        column[j] = 1.0;
        solve_lower(factor, &mut column);
        for i in 0..terms {
            inverse[i * terms + j] = column[i];
        }
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orthonormalisation_gives_orthonormal_rows_and_the_determinant() {
        let wavelength: Vec<f64> = (0..200).map(|k| 4000.0 + k as f64).collect();
        for continuum in [
            Continuum::chebyshev(6),
            Continuum::rbf(10),
            Continuum::rbf(4),
        ] {
            let raw = evaluate_basis(continuum, &wavelength, 4000.0, 4199.0);
            let used = vec![true; 200];
            let mut rows = raw.clone();
            let orthonormalisation = orthonormalise(&mut rows, 200, &used).unwrap();
            let (_, expected) = factor_gram_matrix(&raw, 200, &used).unwrap();
            assert!((orthonormalisation.ln_det - expected).abs() < 1e-9);
            let inner_product: f64 = (0..200).map(|j| rows[j] * rows[200 + j]).sum();
            let norm: f64 = (0..200).map(|j| rows[3 * 200 + j].powi(2)).sum();
            assert!(inner_product.abs() < 1e-12 && (norm - 1.0).abs() < 1e-12);
        }
    }
}
