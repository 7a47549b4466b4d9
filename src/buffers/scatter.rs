//! Scatter of the residuals of a robust fit, by which its errors are those of the sandwich formula.

use super::estimator::Share;

/// Sums over the points of a fit under a robust loss, with ψ the derivative of half the cost by the residual.
///
/// The covariance is H⁻¹ (Σ ψ² j jᵀ) H⁻¹, H = Σ ψ′ j jᵀ, with ψ² and ψ′ replaced by their means, because outliers do
/// not choose points by their rows j of the Jacobian (Huber 1981, Robust Statistics, section 7.6).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResidualScatter {
    points: f64,
    /// Σ ψ²
    squares: f64,
    /// Σ ψ′
    curvature: f64,
    /// Σ ψ′²
    squared_curvature: f64,
}

impl ResidualScatter {
    /// Adds a point with the `weight` 1/σ.
    #[inline(always)]
    pub fn add(&mut self, share: &Share, weight: f64) {
        self.points += 1.0;
        self.squares += (share.residual * share.slope / weight).powi(2);
        self.curvature += share.curvature;
        self.squared_curvature += share.curvature * share.curvature;
    }

    /// Returns a and b of the covariance b/a² (JᵀJ)⁻¹ of so many `free` parameters, J being that of least squares: a is
    /// the mean of ψ′, reduced for few points, and b = Σ ψ² / dof. `None` without degrees of freedom; a is NaN where
    /// the cost is concave.
    pub fn covariance_factors(&self, free: usize) -> Option<(f64, f64)> {
        let dof = self.points - free as f64;
        if dof <= 0.0 {
            return None;
        }
        let mean_curvature = self.curvature / self.points;
        let variance = self.squared_curvature / self.points - mean_curvature * mean_curvature;
        let excess = free as f64 / self.points * variance / (mean_curvature * mean_curvature);
        let corrected_curvature = if mean_curvature > 0.0 {
            mean_curvature / (1.0 + excess)
        } else {
            f64::NAN
        };
        Some((corrected_curvature, self.squares / dof))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Estimator;

    /// Two residuals inside Huber's scale, 0.5 and −1, and one beyond it, 4: ψ = 0.5, −1, 2 and ψ′ = 1, 1, 0.
    #[test]
    fn covariance_factors_are_as_computed_by_hand() {
        let mut scatter = ResidualScatter::default();
        for (data, weight) in [(0.5, 1.0), (-1.0, 2.0), (4.0, 0.5)] {
            scatter.add(&Estimator::Huber(2.0).share(data, weight, 0.0), weight);
        }
        let (a, b) = scatter.covariance_factors(1).unwrap();
        let excess = 1.0 / 3.0 * (2.0 / 3.0 - 4.0 / 9.0) / (4.0 / 9.0);
        assert!(
            (a - 2.0 / 3.0 / (1.0 + excess)).abs() < 1e-15 && (b - 5.25 / 2.0).abs() < 1e-15,
            "{a} {b}"
        );
        assert_eq!(scatter.covariance_factors(3), None);
        // Outliers have negative curvatures.
        let outlier = Estimator::Cauchy(1.0).share(9.0, 1.0, 0.0);
        (0..3).for_each(|_| scatter.add(&outlier, 1.0));
        let mut concave = ResidualScatter::default();
        (0..3).for_each(|_| concave.add(&outlier, 1.0));
        assert!(scatter.covariance_factors(1).unwrap().0 > 0.0);
        assert!(concave.covariance_factors(1).unwrap().0.is_nan());
    }
}
