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
    /// Σ ψ′ and Σ ψ′²
    curvature: f64,
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

    /// Returns a and b of the covariance b/a² (JᵀJ)⁻¹ of so many `free` parameters, J being that of least squares: the
    /// mean of ψ′, less what few points make of it, and Σ ψ² / dof. `None` without degrees of freedom; NaN where the
    /// cost is curved the other way.
    pub fn factors(&self, free: usize) -> Option<(f64, f64)> {
        let dof = self.points - free as f64;
        if dof <= 0.0 {
            return None;
        }
        let mean = self.curvature / self.points;
        let variance = self.squared_curvature / self.points - mean * mean;
        let excess = free as f64 / self.points * variance / (mean * mean);
        Some((
            if mean > 0.0 {
                mean / (1.0 + excess)
            } else {
                f64::NAN
            },
            self.squares / dof,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Estimator;

    /// Two residuals inside Huber's scale, 0.5 and −1, and one beyond it, 4: ψ = 0.5, −1, 2 and ψ′ = 1, 1, 0.
    #[test]
    fn factors_are_as_by_hand() {
        let mut scatter = ResidualScatter::default();
        for (data, weight) in [(0.5, 1.0), (-1.0, 2.0), (4.0, 0.5)] {
            scatter.add(&Estimator::Huber(2.0).share(data, weight, 0.0), weight);
        }
        let (a, b) = scatter.factors(1).unwrap();
        let excess = 1.0 / 3.0 * (2.0 / 3.0 - 4.0 / 9.0) / (4.0 / 9.0);
        assert!(
            (a - 2.0 / 3.0 / (1.0 + excess)).abs() < 1e-15 && (b - 5.25 / 2.0).abs() < 1e-15,
            "{a} {b}"
        );
        assert_eq!(scatter.factors(3), None);
        let far = Estimator::Cauchy(1.0).share(9.0, 1.0, 0.0);
        (0..3).for_each(|_| scatter.add(&far, 1.0));
        let mut inverted = ResidualScatter::default();
        (0..3).for_each(|_| inverted.add(&far, 1.0));
        assert!(scatter.factors(1).unwrap().0 > 0.0 && inverted.factors(1).unwrap().0.is_nan());
    }
}
