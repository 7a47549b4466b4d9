//! Continuum bases, f64 on the host (see `docs/src/equations.md`).

use pulp::NullaryFnOnce;

use super::settings::{Continuum, ContinuumKind};
use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower};

/// Evaluates each continuum term at `wavelength` (Å): (terms, pixels), with `low` to `high` mapped to x = −1 to 1.
pub fn basis(continuum: Continuum, wavelength: &[f64], low: f64, high: f64) -> Vec<f64> {
    let x: Vec<f64> = wavelength
        .iter()
        .map(|w| {
            if high > low {
                (w - low) / (high - low) * 2.0 - 1.0
            } else {
                0.0
            }
        })
        .collect();
    let mut rows = Vec::with_capacity(continuum.terms * x.len());
    for term in 0..continuum.terms {
        match continuum.kind {
            ContinuumKind::Chebyshev => rows.extend(x.iter().map(|&x| chebyshev(term, x))),
            ContinuumKind::Rbf => rows.extend(x.iter().map(|&x| rbf(term, continuum.terms, x))),
            ContinuumKind::None => {}
        }
    }
    rows
}

/// Returns the Chebyshev polynomial of degree `term` at x.
fn chebyshev(term: usize, x: f64) -> f64 {
    let (mut previous, mut value) = (1.0, x);
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
fn rbf(term: usize, terms: usize, x: f64) -> f64 {
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
pub struct Orthonormal {
    /// ln |det| of what was divided out: det(raw) = det(orthonormal) · e^that.
    pub ln_det: f64,
    /// Upper limit of the condition number of what was divided out, the raw rows scaled to unit length.
    pub condition: f64,
}

impl Orthonormal {
    /// Value for rows that cannot be made orthonormal.
    pub const NONE: Orthonormal = Orthonormal {
        ln_det: f64::NAN,
        condition: f64::INFINITY,
    };
}

/// Makes the rows (terms, pixels) orthonormal in place over the pixels where `used`; `None` if they are linearly
/// dependent.
pub fn orthonormalise(rows: &mut [f64], pixels: usize, used: &[bool]) -> Option<Orthonormal> {
    let mut found = Orthonormal {
        ln_det: 0.0,
        condition: 1.0,
    };
    // a second pass removes what rounding left of an ill-conditioned first one
    for pass in 0..2 {
        let (factor, ln_det) = gram_factor(rows, pixels, used)?;
        found.ln_det += ln_det;
        if pass == 0 {
            found.condition = condition(&factor, rows.len() / pixels.max(1));
        }
        pulp::Arch::new().dispatch(Solve {
            factor: &factor,
            rows,
            pixels,
        });
    }
    Some(found)
}

/// Returns an upper limit of the condition number of a packed lower-triangular factor whose rows are scaled to unit
/// length: the product of its Frobenius norm, √terms, and that of its inverse.
pub fn condition(factor: &[f64], terms: usize) -> f64 {
    let length = |i: usize| {
        (0..=i)
            .map(|j| factor[packed_index(i, j)].powi(2))
            .sum::<f64>()
    };
    let inverse = inverse_lower(factor, terms);
    // the inverse of D⁻¹ L is L⁻¹ D
    let squares = (0..terms).map(|i| {
        length(i)
            * (0..terms)
                .map(|k| inverse[k * terms + i].powi(2))
                .sum::<f64>()
    });
    (terms as f64 * squares.sum::<f64>()).sqrt()
}

/// rows ← L⁻¹ rows, L a packed lower-triangular factor: forward substitution, a row at a time.
struct Solve<'a> {
    factor: &'a [f64],
    rows: &'a mut [f64],
    pixels: usize,
}

impl NullaryFnOnce for Solve<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Solve {
            factor,
            rows,
            pixels,
        } = self;
        for i in 0..rows.len() / pixels.max(1) {
            let (before, rest) = rows.split_at_mut(i * pixels);
            let own = &mut rest[..pixels];
            for (j, other) in before.chunks_exact(pixels).enumerate() {
                let l = factor[packed_index(i, j)];
                own.iter_mut().zip(other).for_each(|(x, y)| *x -= l * y);
            }
            let diagonal = factor[packed_index(i, i)];
            own.iter_mut().for_each(|x| *x /= diagonal);
        }
    }
}

/// Returns the inner product Σ a b in f64, summed in lanes: equal numbers give the same bits, wherever they lie in
/// memory.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    pulp::Arch::new().dispatch(Dot(a, b))
}

struct Dot<'a>(&'a [f64], &'a [f64]);

impl NullaryFnOnce for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn call(self) -> f64 {
        let ((a, a_rest), (b, b_rest)) = (self.0.as_chunks::<16>(), self.1.as_chunks::<16>());
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
fn gram_factor(rows: &[f64], pixels: usize, used: &[bool]) -> Option<(Vec<f64>, f64)> {
    let terms = rows.len() / pixels.max(1);
    let counted: Vec<f64> = rows
        .iter()
        .zip(used.iter().cycle())
        .map(|(x, used)| if *used { *x } else { 0.0 })
        .collect();
    let mut gram = vec![0.0; packed_length(terms)];
    for i in 0..terms {
        for j in 0..=i {
            let (a, b) = (
                &counted[i * pixels..][..pixels],
                &counted[j * pixels..][..pixels],
            );
            gram[packed_index(i, j)] = dot(a, b);
        }
    }
    if !cholesky(&mut gram, terms) {
        return None;
    }
    let ln_det = (0..terms).map(|i| gram[packed_index(i, i)].ln()).sum();
    Some((gram, ln_det))
}

/// Returns the inverse of a packed lower-triangular factor, as full rows (terms, terms).
pub fn inverse_lower(factor: &[f64], terms: usize) -> Vec<f64> {
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
    fn orthonormal_rows_and_their_determinant() {
        let wavelength: Vec<f64> = (0..200).map(|k| 4000.0 + k as f64).collect();
        for continuum in [
            Continuum::chebyshev(6),
            Continuum::rbf(10),
            Continuum::rbf(4),
        ] {
            let raw = basis(continuum, &wavelength, 4000.0, 4199.0);
            let used = vec![true; 200];
            let mut rows = raw.clone();
            let found = orthonormalise(&mut rows, 200, &used).unwrap();
            let (_, expected) = gram_factor(&raw, 200, &used).unwrap();
            assert!((found.ln_det - expected).abs() < 1e-9);
            let dot: f64 = (0..200).map(|j| rows[j] * rows[200 + j]).sum();
            let norm: f64 = (0..200).map(|j| rows[3 * 200 + j].powi(2)).sum();
            assert!(dot.abs() < 1e-12 && (norm - 1.0).abs() < 1e-12);
        }
    }
}
