//! The sums that a recording fills for each member.

use crate::math::triangle::packed_length;

/// Sums over the pixels of a spectrum under a robust loss with ψ half of its derivative; all 0 without a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossSums {
    /// Σ ψ′, which outliers may make negative.
    pub curvature: f64,
    /// Σ ψ′ as used in the normal matrix: at least a share of Σ ψ/r, so that it is positive.
    pub matrix_curvature: f64,
    /// Σ ψ².
    pub scatter: f64,
    /// Number of pixels whose weight ψ/r is below half of that of a small residual.
    pub downweighted: f64,
}

impl LossSums {
    /// Returns sums that are all NaN.
    fn poisoned() -> LossSums {
        let nan = f64::NAN;
        LossSums {
            curvature: nan,
            matrix_curvature: nan,
            scatter: nan,
            downweighted: nan,
        }
    }
}

/// Sums over a member's rows at one point.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums {
    pub chi2: f64,
    pub penalty: f64,
    pub ln_det: f64,
    pub loss: LossSums,
    pub gradient: Vec<f64>,
    /// Packed lower triangle.
    pub normal_matrix: Vec<f64>,
}

impl Sums {
    /// Returns sums that are all NaN, so that sums that were never written are noticed.
    pub fn poisoned(parameters: usize) -> Sums {
        Sums {
            chi2: f64::NAN,
            penalty: f64::NAN,
            ln_det: f64::NAN,
            loss: LossSums::poisoned(),
            gradient: vec![f64::NAN; parameters],
            normal_matrix: vec![f64::NAN; packed_length(parameters)],
        }
    }

    /// Returns χ² + penalty, the cost that the steps reduce.
    pub fn cost(&self) -> f64 {
        self.chi2 + self.penalty
    }

    /// Returns whether cost, ln det, gradient and normal matrix are all finite.
    pub fn is_finite(&self) -> bool {
        let arrays = self.gradient.iter().chain(&self.normal_matrix);
        self.cost().is_finite() && self.ln_det.is_finite() && arrays.copied().all(f64::is_finite)
    }
}
