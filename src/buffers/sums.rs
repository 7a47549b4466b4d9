//! The sums that a recording fills for each member.

use crate::math::triangle::packed_length;

/// Sums over a member's rows at one point.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums {
    pub chi2: f64,
    pub penalty: f64,
    pub ln_det: f64,
    pub gradient: Vec<f64>,
    /// Packed lower triangle.
    pub normal_matrix: Vec<f64>,
}

impl Sums {
    /// Returns sums that are all NaN, so that those that nobody writes are seen.
    pub fn poisoned(parameters: usize) -> Sums {
        Sums {
            chi2: f64::NAN,
            penalty: f64::NAN,
            ln_det: f64::NAN,
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
