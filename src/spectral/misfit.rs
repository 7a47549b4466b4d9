//! Size of a spectrum's residuals relative to their errors: χ², and its replacement under a robust loss.
//!
//! Under a robust loss the cost has no known distribution, because it also counts pixels that do not belong to the
//! spectrum. The covariance of the parameters is then s H⁻¹ with H = Σ ψ′ J Jᵀ (Huber 1981, eq. 6.5 of chapter 7) and
//!
//! ```text
//! s = (Σ ψ² / dof) / (Σ ψ′ / N).
//! ```
//!
//! This is the sandwich H⁻¹ (Σ ψ² J Jᵀ) H⁻¹ for residuals, outliers among them, that do not depend on J. The normal
//! matrix A of the steps has a curvature of its own, τ Σ ω, in place of Σ ψ′, so that H⁻¹ = (τ Σ ω / Σ ψ′) A⁻¹. In
//! units of its expectation for normal residuals, s takes the place of χ²/dof.

use crate::buffers::{Estimator, LossSums, NormalMeans};
use crate::model::{ModelParameter, ParameterLimits};
use crate::solver::Outcome;

/// Smallest Σ ψ′ in a covariance, as a share of that of the normal matrix. Normal residuals leave more, unless they are
/// more than ten times as large as their errors. Outliers, whose ψ′ is negative, may leave nothing.
const MIN_CURVATURE_SHARE: f64 = 0.1;

/// Measure of residuals for one model.
#[derive(Clone, Copy, Debug)]
pub struct Misfit {
    /// Expectations under the loss; `None` without one.
    expected: Option<NormalMeans>,
}

/// A χ² and its degrees of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChiSquare {
    pub value: f64,
    pub dof: f64,
}

impl Misfit {
    /// Prepares the measure for a model with this loss.
    pub fn new(loss: Option<Estimator>) -> Misfit {
        Misfit {
            expected: loss.map(Estimator::normal_means),
        }
    }

    /// Returns χ² with its degrees of freedom or, under a loss, numbers with the mean and the scatter of s.
    pub fn chi_square(&self, outcome: &Outcome, pixels: usize, dof: f64) -> ChiSquare {
        match self.expected {
            None => ChiSquare {
                value: outcome.chi2,
                dof,
            },
            Some(NormalMeans {
                curvature,
                scatter,
                variance,
                ..
            }) => {
                let effective_dof = 2.0 * dof / variance;
                let relative_spread = spread(outcome.loss, pixels, dof) * curvature / scatter;
                ChiSquare {
                    value: relative_spread * effective_dof,
                    dof: effective_dof,
                }
            }
        }
    }

    /// Returns the matrix whose inverse is the covariance: the normal matrix, of which under a loss the part of the
    /// data is divided by s.
    pub fn information(
        &self,
        outcome: &Outcome,
        [pixels, dof]: [f64; 2],
        parameters: &[ModelParameter],
        limits: &[ParameterLimits],
    ) -> Vec<f64> {
        let mut matrix = outcome.normal_matrix.clone();
        if self.expected.is_none() {
            return matrix;
        }
        let factor = covariance_factor(outcome.loss, pixels as usize, dof);
        for element in &mut matrix {
            *element /= factor;
        }
        // The part of the priors is not divided. It is on the diagonal of the packed matrix.
        for (p, (parameter, limits)) in parameters.iter().zip(limits).enumerate() {
            let prior_weight = limits
                .prior
                .map_or(0.0, |(_, sigma)| (parameter.solver.scale / sigma).powi(2));
            matrix[p * (p + 3) / 2] += prior_weight * (1.0 - 1.0 / factor);
        }
        matrix
    }
}

/// Returns Σ ψ′, or its smallest allowed value, which is positive.
fn positive_curvature(sums: LossSums) -> f64 {
    sums.curvature
        .max(MIN_CURVATURE_SHARE * sums.matrix_curvature)
}

/// Returns s, or 1 if it is not a positive number.
fn spread(sums: LossSums, pixels: usize, dof: f64) -> f64 {
    let spread = sums.scatter * pixels as f64 / (positive_curvature(sums) * dof);
    if spread.is_finite() && spread > 0.0 {
        spread
    } else {
        1.0
    }
}

/// Returns s τ Σ ω / Σ ψ′, by which the inverse of the normal matrix is multiplied.
pub fn covariance_factor(sums: LossSums, pixels: usize, dof: f64) -> f64 {
    let curvature_ratio = sums.matrix_curvature / positive_curvature(sums);
    let is_positive = curvature_ratio.is_finite() && curvature_ratio > 0.0;
    spread(sums, pixels, dof) * if is_positive { curvature_ratio } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Huber's ⟨ψ²⟩ and ⟨ψ′⟩ have closed forms, and a loss of a large scale is least squares.
    #[test]
    fn expectations_meet_closed_forms() {
        let c: f64 = 1.345;
        let share_inside = libm::erf(c / 2f64.sqrt());
        let density = (-0.5 * c * c).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let scatter = share_inside - 2.0 * c * density + c * c * (1.0 - share_inside);
        let huber = Estimator::Huber(c).normal_means();
        assert!(
            (huber.scatter - scatter).abs() < 2e-3 && (huber.curvature - share_inside).abs() < 2e-3,
            "{huber:?}"
        );
        for loss in [
            Estimator::Huber(50.0),
            Estimator::Cauchy(1e4),
            Estimator::Student(1e8),
        ] {
            let NormalMeans {
                curvature,
                scatter,
                variance,
                ..
            } = loss.normal_means();
            assert!(
                (scatter / curvature - 1.0).abs() < 1e-6 && (variance - 2.0).abs() < 1e-5,
                "{loss:?}: {variance}"
            );
        }
    }
}
