//! Rows of residuals under a robust loss, in vector code: weights, curvatures and costs, and their means over normal
//! residuals.

use super::estimator::{Estimator, arctan, cauchy, huber, soft_l1};
use crate::math::Real;
use crate::math::gram::PIXELS_PER_BLOCK;
use crate::math::logarithms::sum_of_logarithms;

/// Number of values that are multiplied before their logarithm is taken. Such a product is finite for residuals up to
/// 10¹⁹ times the loss's scale.
const FACTORS_PER_PRODUCT: usize = 8;

/// Means over residuals of a standard normal distribution under a robust loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NormalMeans {
    /// ⟨ψ(r)/r⟩.
    pub weight: f64,
    /// ⟨ψ′⟩.
    pub curvature: f64,
    /// ⟨ψ²⟩.
    pub scatter: f64,
    /// ⟨(ψ²/⟨ψ²⟩ − ψ′/⟨ψ′⟩)²⟩: 2 of least squares.
    pub variance: f64,
}

impl NormalMeans {
    /// Returns ⟨ψ′⟩/⟨ψ/r⟩.
    pub fn ratio(&self) -> f64 {
        self.curvature / self.weight
    }
}

impl Estimator {
    /// Writes the weights ω = ψ(r)/r and the curvatures ψ′(r) of residuals r under a robust loss.
    #[inline(always)]
    pub(crate) fn weigh<R: Real>(self, residuals: &[R], weights: &mut [R], curvatures: &mut [R]) {
        let Some(scale) = self.scale() else { return };
        let inverse_scale = R::of(1.0 / scale);
        let factor = R::of(self.central_weight());
        let rows = residuals.iter().zip(weights).zip(curvatures);
        match self {
            Estimator::Huber(_) => {
                for ((r, weight), curvature) in rows {
                    let z = *r * inverse_scale * (*r * inverse_scale);
                    *weight = if z <= R::ONE {
                        R::ONE
                    } else {
                        R::ONE / z.root()
                    };
                    *curvature = if z <= R::ONE { R::ONE } else { R::ZERO };
                }
            }
            Estimator::Cauchy(_) | Estimator::Student(_) => {
                for ((r, weight), curvature) in rows {
                    let z = *r * inverse_scale * (*r * inverse_scale);
                    let t = R::ONE / (R::ONE + z);
                    *weight = factor * t;
                    // (1 − z) / (1 + z)², without overflow
                    *curvature = factor * t * (t + t - R::ONE);
                }
            }
            _ => {
                for ((r, weight), curvature) in rows {
                    let share = self.share(r.to_f64(), 1.0, 0.0);
                    *weight = R::of(share.slope * share.slope);
                    *curvature = R::of(self.curvature(r.to_f64()));
                }
            }
        }
    }

    /// Returns means over normal residuals, by sums at equal steps up to 8 standard deviations: to 1e-3 with Huber's
    /// loss, whose ψ′ jumps, and to rounding with those that are smooth.
    pub(crate) fn normal_means(self) -> NormalMeans {
        let residuals: [f64; PIXELS_PER_BLOCK] =
            std::array::from_fn(|k| 16.0 * (k as f64 + 0.5) / PIXELS_PER_BLOCK as f64 - 8.0);
        let mut weights = [0.0; PIXELS_PER_BLOCK];
        let mut curvatures = [0.0; PIXELS_PER_BLOCK];
        self.weigh(&residuals, &mut weights, &mut curvatures);
        let density = residuals.map(|r| (-0.5 * r * r).exp());
        let total_density = density.iter().sum::<f64>();
        let mean = |value: &dyn Fn(usize) -> f64| {
            density
                .iter()
                .enumerate()
                .map(|(k, p)| p * value(k))
                .sum::<f64>()
                / total_density
        };
        let square = |k: usize| (weights[k] * residuals[k]).powi(2);
        let weight = mean(&|k| weights[k]);
        let curvature = mean(&|k| curvatures[k]);
        let scatter = mean(&square);
        let variance = mean(&|k| (square(k) / scatter - curvatures[k] / curvature).powi(2));
        NormalMeans {
            weight,
            curvature,
            scatter,
            variance,
        }
    }

    /// Returns Σ cost of a block of residuals one by one, for blocks whose products overflow.
    #[cold]
    fn cost_one_by_one<R: Real>(self, residuals: &[R; PIXELS_PER_BLOCK]) -> f64 {
        residuals
            .iter()
            .map(|r| self.share(r.to_f64(), 1.0, 0.0).cost)
            .sum()
    }

    /// Returns ψ′ of a residual under a robust loss, which may be negative.
    fn curvature(self, residual: f64) -> f64 {
        let z = self.scale().map_or(0.0, |scale| (residual / scale).powi(2));
        match self {
            Estimator::LeastSquares | Estimator::Poisson | Estimator::Cost => 1.0,
            Estimator::Huber(_) => huber(z)[2],
            Estimator::SoftL1(_) => soft_l1(z)[2],
            Estimator::Cauchy(_) | Estimator::Student(_) => self.central_weight() * cauchy(z)[2],
            Estimator::Arctan(_) => arctan(z)[2],
        }
    }

    /// Returns Σ cost of a block of residuals under a robust loss, in f64. The logarithms of Cauchy's and Student's are
    /// those of products, first of [`FACTORS_PER_PRODUCT`] values each.
    #[inline(always)]
    pub(crate) fn cost<R: Real>(self, residuals: &[R; PIXELS_PER_BLOCK]) -> f64 {
        let Some(scale) = self.scale() else {
            return f64::NAN;
        };
        let inverse_scale = 1.0 / scale;
        let factor = self.central_weight() * scale * scale;
        match self {
            Estimator::Huber(_) => {
                let mut values = [0.0; PIXELS_PER_BLOCK];
                for (value, r) in values.iter_mut().zip(residuals) {
                    let u = (r.to_f64() * inverse_scale).abs();
                    *value = if u <= 1.0 { u * u } else { 2.0 * u - 1.0 };
                }
                factor * sum_in_lanes(&values)
            }
            Estimator::Cauchy(_) | Estimator::Student(_) => {
                let mut products = [1.0; PIXELS_PER_BLOCK / FACTORS_PER_PRODUCT];
                for part in residuals.chunks_exact(PIXELS_PER_BLOCK / FACTORS_PER_PRODUCT) {
                    for (product, r) in products.iter_mut().zip(part) {
                        let u = r.to_f64() * inverse_scale;
                        *product *= 1.0 + u * u;
                    }
                }
                if sum_in_lanes(&products).is_finite() {
                    factor * sum_of_logarithms(&products)
                } else {
                    self.cost_one_by_one(residuals)
                }
            }
            // The arctangent of infinity is finite, but the cost must not be.
            _ => {
                let cost = |r: f64| {
                    if r.is_finite() {
                        self.share(r, 1.0, 0.0).cost
                    } else {
                        f64::INFINITY
                    }
                };
                residuals.iter().map(|r| cost(r.to_f64())).sum()
            }
        }
    }
}

/// Returns the sum of values, in eight partial sums.
#[inline(always)]
fn sum_in_lanes(values: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    for part in values.chunks_exact(8) {
        lanes.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights and curvatures are ψ/r and ψ′, and the cost of many residuals is the sum of theirs.
    #[test]
    fn blocks_of_residuals_agree_with_single_residuals() {
        let residuals: [f64; PIXELS_PER_BLOCK] =
            std::array::from_fn(|k| 0.006 * k as f64 * (-1.1f64).powi(k as i32 % 90));
        let losses = [
            Estimator::Huber(1.3),
            Estimator::SoftL1(0.7),
            Estimator::Cauchy(2.0),
            Estimator::Arctan(3.0),
        ];
        for estimator in losses
            .into_iter()
            .chain([Estimator::Student(4.0), Estimator::Student(1.0)])
        {
            let mut weights = vec![f64::NAN; PIXELS_PER_BLOCK];
            let mut curvatures = vec![f64::NAN; PIXELS_PER_BLOCK];
            estimator.weigh(&residuals, &mut weights, &mut curvatures);
            let psi = |r: f64| {
                let share = estimator.share(r, 1.0, 0.0);
                share.residual * share.slope
            };
            for ((r, weight), curvature) in residuals.iter().zip(&weights).zip(&curvatures) {
                assert!(
                    (weight * r - psi(*r)).abs() <= 1e-12 * r.abs(),
                    "{estimator:?} at {r}"
                );
                let is_at_kink = (r.abs() / 1.3 - 1.0).abs() < 1e-3;
                let step = 1e-5;
                let difference = (psi(r + step) - psi(r - step)) / (2.0 * step);
                assert!(
                    is_at_kink || (curvature - difference).abs() < 1e-6,
                    "{estimator:?} at {r}: {curvature} {difference}"
                );
            }
            let mut with_outliers = residuals;
            for k in 0..FACTORS_PER_PRODUCT {
                with_outliers[20 + k * (PIXELS_PER_BLOCK / FACTORS_PER_PRODUCT)] = 1e25;
            }
            let sum: f64 = with_outliers
                .iter()
                .map(|r| estimator.share(*r, 1.0, 0.0).cost)
                .sum();
            assert!(
                (estimator.cost(&with_outliers) / sum - 1.0).abs() < 1e-12,
                "{estimator:?}"
            );
            let sum: f64 = residuals
                .iter()
                .map(|r| estimator.share(*r, 1.0, 0.0).cost)
                .sum();
            assert!(
                (estimator.cost(&residuals) / sum - 1.0).abs() < 1e-12,
                "{estimator:?}"
            );
            for bad in [f64::NAN, f64::INFINITY] {
                let mut residuals = residuals;
                residuals[77] = bad;
                assert!(!estimator.cost(&residuals).is_finite(), "{estimator:?}");
            }
        }
    }
}
