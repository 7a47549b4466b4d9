//! Choice of a spectrum's continuum basis, orthonormal under its weights (see `docs/src/equations.md`).
//!
//! Each wavelength grid has one continuum basis, orthonormal over its pixels, which its spectra share. Under a mask at
//! one end, or under weights that differ by decades, the shared basis is nearly dependent and its sums cancel. This is
//! seen by the condition number of the Gram matrix's factor, which may be at most 10 times that of an orthonormal
//! basis. Otherwise the spectrum uses the basis of the part of the grid that it has (`window.rs`), and if that is no
//! better, one of its own (`determined.rs`).

use pulp::{Simd, WithSimd};

use super::ModelArm;
use super::continuum::invert_lower;
use super::determined::{SMALLEST_SINGULAR_VALUE, find_determined_basis};
use super::fault::{Cause, SpectrumFault, describe_place};
use super::prepare::{PreparedArm, RawArm};
use super::sampling::Sampling;
use crate::math::gram::{Gram, PIXELS_PER_BLOCK};
use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// Maximum condition number of a shared basis under a spectrum's weights, relative to that of an orthonormal one. Its
/// sums are made in f32, and their rounding error grows with the square of the condition number.
const MAX_RELATIVE_CONDITION: f64 = 10.0;

/// Sets the basis, the transform and the rank of an arm that has weights and data, and its continuum without lines.
/// Returns ln det C of the raw basis under ivar, less that of the device's basis under weight.
pub fn set_basis(
    arm: &ModelArm,
    raw: &RawArm,
    grid: &Sampling,
    out: &mut PreparedArm,
) -> Result<f64, SpectrumFault> {
    let terms = arm.continuum.terms;
    let raw_ln_det = |basis: &WeightedBasis, sampling: &Sampling, scale: f64| {
        2.0 * (basis.ln_diagonal + terms as f64 * scale.ln() + sampling.ln_det)
    };
    // 1. Most spectra use the basis of the whole grid.
    if let Some(basis) = transform_shared_basis(grid, terms, out) {
        out.rank = terms;
        return Ok(raw_ln_det(&basis, grid, out.scale));
    }
    // 2. Spectra that lack an end of the grid use the basis of a window.
    if let Some(window) = grid.find_window(arm, &raw.wavelength, &out.weight)
        && let Some(basis) = transform_shared_basis(&window, terms, out)
    {
        out.rank = terms;
        let ln_det = raw_ln_det(&basis, &window, out.scale);
        out.window = Some(window);
        return Ok(ln_det);
    }
    // 3. The others have a basis of their own.
    set_own_basis(arm, raw, grid, out)
}

/// Sets the transform and the continuum of an arm for a shared basis; `None` if the arm's weights leave that basis ill
/// conditioned.
fn transform_shared_basis(
    sampling: &Sampling,
    terms: usize,
    arm: &mut PreparedArm,
) -> Option<WeightedBasis> {
    let basis = pulp::Arch::new().dispatch(OrthonormaliseUnderWeights {
        sampling,
        terms,
        arm,
    })?;
    let condition = (terms as f64).sqrt() * basis.condition * sampling.condition;
    let is_well_conditioned = basis.condition <= MAX_RELATIVE_CONDITION * terms as f64
        && condition * SMALLEST_SINGULAR_VALUE < 1.0;
    is_well_conditioned.then_some(basis)
}

/// Replaces the grid's continuum basis in `out` by one from this spectrum's weights; returns the term that corrects ln
/// det C for it.
fn set_own_basis(
    arm: &ModelArm,
    raw: &RawArm,
    sampling: &Sampling,
    out: &mut PreparedArm,
) -> Result<f64, SpectrumFault> {
    let rows = sampling.raw_basis(arm, &raw.wavelength);
    let Some(determined) = find_determined_basis(&rows, sampling.pixels, &out.weight, out.scale)
    else {
        let detail = format!(
            "{}no pixel has a weight that an f32 can hold",
            describe_place(arm)
        );
        return Err(SpectrumFault {
            cause: Cause::BadWeight,
            detail,
        });
    };
    let terms = arm.continuum.terms;
    // The basis is already orthonormal under the weights, so its transform is the identity.
    out.basis = determined.basis.into();
    out.rank = determined.rank;
    out.transform.fill(0.0);
    (0..determined.rank).for_each(|c| out.transform[c * terms + c] = 1.0);
    let rows = out.basis.chunks_exact(out.weight.len());
    for (target, row) in out.continuum.iter_mut().zip(rows) {
        let products = row
            .iter()
            .zip(&*out.weight)
            .zip(&*out.cleaned)
            .map(|((q, w), d)| f64::from(q * w) * f64::from(*d));
        *target = products.sum::<f64>() as f32;
    }
    Ok(2.0 * determined.ln_diagonal)
}

/// Computes the transform to a basis that is orthonormal under the weights, and the continuum fitted to the data alone.
struct OrthonormaliseUnderWeights<'a> {
    sampling: &'a Sampling,
    terms: usize,
    arm: &'a mut PreparedArm,
}

/// Determinant and condition of a shared basis under a spectrum's weights.
struct WeightedBasis {
    /// Σ ln diagonal of the Cholesky factor L of Σ weight² q qᵀ.
    ln_diagonal: f64,
    /// Upper limit of L's condition number; equal to the number of terms if these are orthogonal.
    condition: f64,
}

impl WithSimd for OrthonormaliseUnderWeights<'_> {
    /// `None` when the Gram matrix is singular.
    type Output = Option<WeightedBasis>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Option<WeightedBasis> {
        let terms = self.terms;
        let pixels = self.arm.weighted_flux.len();
        if self.sampling.basis.is_empty() {
            return None;
        }
        // 1. Sum the Gram matrix of the weighted terms and the cleaned data, block by block.
        let mut gram = Gram::<f32>::new(terms + 1, 0);
        for start in (0..pixels).step_by(PIXELS_PER_BLOCK) {
            let count = PIXELS_PER_BLOCK.min(pixels - start);
            let weight = &self.arm.weight[start..start + count];
            for c in 0..terms {
                let basis = &self.sampling.basis[c * pixels + start..][..count];
                for ((s, q), w) in gram.row(c).iter_mut().zip(basis).zip(weight) {
                    *s = w * q;
                }
            }
            gram.row(terms)[..count].copy_from_slice(&self.arm.cleaned[start..start + count]);
            gram.add(simd, count);
        }
        // 2. Factorise the terms' part, L Lᵀ, and solve for the coefficients of the data.
        let mut factor = vec![0.0; packed_length(terms)];
        let mut coefficients = vec![0.0; terms];
        for i in 0..terms {
            for j in 0..=i {
                factor[packed_index(i, j)] = gram.sum(i, j);
            }
            coefficients[i] = gram.sum(terms, i);
        }
        if !cholesky(&mut factor, terms) {
            return None;
        }
        solve_lower(&factor, &mut coefficients);
        solve_upper(&factor, &mut coefficients);
        // 3. Store L⁻¹, which is the transform, and the coefficients.
        let inverse = invert_lower(&factor, terms);
        for (target, value) in self.arm.transform.iter_mut().zip(&inverse) {
            *target = *value as f32;
        }
        for (target, value) in self.arm.continuum.iter_mut().zip(&coefficients) {
            *target = *value as f32;
        }
        let frobenius_norm = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
        let ln_diagonal = (0..terms).map(|i| factor[packed_index(i, i)].ln()).sum();
        Some(WeightedBasis {
            ln_diagonal,
            condition: frobenius_norm(&factor) * frobenius_norm(&inverse),
        })
    }
}
