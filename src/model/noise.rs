//! Noise that is correlated between pixels: the banded covariance C of a spectrum's noise, as a factor by which its
//! residuals are whitened (Aitken 1936).
//!
//! With the weights w of the pixels that count, the matrix of their correlations is R_ij = C_ij √(w_i w_j), and
//! R = L Lᵀ. Residuals ρ in units of their errors then have χ² = ρᵀ R⁻¹ ρ, the sum of the squares of L⁻¹ ρ. Scaled like
//! this, no unit of the flux can overflow. The weights may contain a jitter or an error floor, which are thus added to
//! the diagonal of C. Rows and columns of other pixels are left out, which marginalises over their noise.

use std::borrow::Cow;

use super::fault::{Cause, SpectrumFault, describe_place};
use super::{ModelArm, NonFinite, SpectralModel};
use crate::math::banded::{BandedFactor, RightHandSides};

/// Maximum relative difference between an ivar and the inverse of the variance in the covariance matrix.
const MAX_IVAR_DIFFERENCE: f64 = 1e-3;
/// Smallest pivot of a matrix of correlations that counts as positive definite: elements in f32 are no more accurate.
const MIN_PIVOT: f64 = 1e-7;

/// The banded covariance matrix of one spectrum in one arm: (diagonals, pixels), element \[d\]\[j\] that of the pixels
/// j + d and j.
#[derive(Clone, Debug)]
pub struct RawCovariance<'a> {
    pub values: Cow<'a, [f64]>,
    pub pixels: usize,
}

impl RawCovariance<'_> {
    /// Returns the number of diagonals.
    fn diagonals(&self) -> usize {
        self.values.len() / self.pixels.max(1)
    }

    /// Returns the inverse variance of each pixel: 0 where `ivar` is 0, else that of the matrix. A variance that is NaN
    /// gives NaN where the settings mask such pixels, or where all are NaN: the arm was not observed then.
    ///
    /// # Errors
    /// Returns the fault of an unmasked pixel whose variance is NaN, not positive, or not that of its ivar.
    pub fn resolve_ivar(
        &self,
        model: &SpectralModel,
        arm: &ModelArm,
        ivar: &[f64],
        mask: &[bool],
    ) -> Result<Vec<f64>, SpectrumFault> {
        let variances = &self.values[..self.pixels];
        let may_be_nan =
            model.spectra.nonfinite == NonFinite::Mask || variances.iter().all(|v| v.is_nan());
        let mut resolved = ivar.to_vec();
        for (j, (w, variance)) in resolved.iter_mut().zip(variances).enumerate() {
            let is_masked = *w == 0.0 || mask.get(j).copied().unwrap_or(false);
            if is_masked {
                continue;
            }
            let is_valid = *variance > 0.0 || (variance.is_nan() && may_be_nan);
            let place = || format!("{}pixel {j}: ", describe_place(arm));
            if !is_valid {
                return Err(SpectrumFault {
                    cause: Cause::BadWeight,
                    detail: format!(
                        "{}the variance in `covariance` is {variance}; covariance[k, d, j] is that of the pixels j + d \
                         and j, with the variances at d = 0",
                        place()
                    ),
                });
            }
            // An ivar that is not a number is a fault of its own, which the check of weights reports.
            if w.is_finite() && (*w * variance - 1.0).abs() > MAX_IVAR_DIFFERENCE {
                return Err(SpectrumFault {
                    cause: Cause::BadWeight,
                    detail: format!(
                        "{}ivar is {w}, but the variance in `covariance` is {variance}, whose inverse is {}; mask the \
                         pixel, or leave out the one that is not meant",
                        place(),
                        variance.recip()
                    ),
                });
            }
            if w.is_finite() || variance.is_nan() {
                *w = variance.recip();
            }
        }
        Ok(resolved)
    }

    /// Factorises the matrix of correlations of the pixels with weight; `None` if no two of them are correlated.
    ///
    /// # Errors
    /// Returns the fault of a covariance of two such pixels that is not finite, and of a matrix that is not positive
    /// definite.
    pub fn factorise(
        &self,
        arm: &ModelArm,
        ivar: &[f64],
    ) -> Result<Option<NoiseFactor>, SpectrumFault> {
        // 1. Find the pixels that count, and check the covariances between them.
        let pixels: Vec<usize> = (0..ivar.len()).filter(|&j| ivar[j] > 0.0).collect();
        let mut is_correlated = false;
        for d in 1..self.diagonals() {
            for &j in &pixels {
                let counts = ivar.get(j + d).is_some_and(|w| *w > 0.0);
                let covariance = self.values[d * self.pixels + j];
                if counts && !covariance.is_finite() {
                    let detail = format!(
                        "{}pixel {j}: its covariance with pixel {} is {covariance}",
                        describe_place(arm),
                        j + d
                    );
                    return Err(SpectrumFault {
                        cause: Cause::BadWeight,
                        detail,
                    });
                }
                is_correlated |= counts && covariance != 0.0;
            }
        }
        if !is_correlated {
            return Ok(None);
        }
        // 2. Factorise. Pixels between which others are left out are nearer to each other in the matrix.
        let roots: Vec<f64> = pixels.iter().map(|&j| ivar[j].sqrt()).collect();
        let correlation = |i: usize, d: usize| {
            let distance = pixels[i] - pixels[i - d];
            if distance < self.diagonals() {
                let covariance = self.values[distance * self.pixels + pixels[i - d]];
                covariance * roots[i] * roots[i - d]
            } else {
                0.0
            }
        };
        let band = self.diagonals() - 1;
        match BandedFactor::new(pixels.len(), band, MIN_PIVOT, correlation) {
            Ok(factor) => Ok(Some(NoiseFactor { pixels, factor })),
            Err(row) => Err(SpectrumFault {
                cause: Cause::BadWeight,
                detail: format!(
                    "{}pixel {}: the covariance of the pixels that count is not positive definite (one that is nearly \
                     singular has to be saved as float64)",
                    describe_place(arm),
                    pixels[row]
                ),
            }),
        }
    }
}

/// Cholesky factor L of the correlations between the noise of the pixels that count in one arm of a spectrum.
#[derive(Clone, Debug)]
pub struct NoiseFactor {
    /// Indices of these pixels, ascending.
    pub pixels: Vec<usize>,
    factor: BandedFactor,
}

impl NoiseFactor {
    /// Returns ln det R.
    pub fn ln_det(&self) -> f64 {
        self.factor.ln_det()
    }

    /// Replaces vectors, which have one row for each pixel that counts and are in units of its error, by L⁻¹ times
    /// these.
    pub fn whiten(&self, vectors: &mut RightHandSides) {
        self.factor.solve_lower(vectors);
    }

    /// Returns the χ² of residuals, which `residual` gives for each pixel, in units of its error.
    pub fn chi2(&self, residual: impl Fn(usize) -> f64) -> f64 {
        let mut residuals = RightHandSides::zeros(self.pixels.len(), 1);
        for (i, &j) in self.pixels.iter().enumerate() {
            residuals.row_mut(i)[0] = residual(j);
        }
        self.whiten(&mut residuals);
        residuals.rows().map(|row| row[0] * row[0]).sum()
    }
}
