//! Cost of residuals: least squares, Poisson's likelihood, Student's, and scipy's robust losses.

use crate::error::InvalidSetting;

/// Smallest curvature of a robust loss in the covariance, f64's ε, as in scipy's `scale_for_robust_loss_function`.
const LEAST_LOSS_CURVATURE: f64 = f64::EPSILON;
/// Expected count below which an empty bin bounds the model and says nothing about the curvature of its cost.
const NEARLY_ZERO_COUNT: f64 = 1e-2;
/// Smallest count in the normal matrix, as a share of its mean: with 0 the gradient would have no curvature, and steps
/// would lead far beyond m = 0.
const LEAST_COUNT_SHARE: f64 = 0.1;

/// Estimator: the cost that a fit minimises over its data, χ² = Σ cost. Robust losses are scipy `least_squares`': cost
/// = C² ρ(z), z = ((y − m) / (σ C))², with C scipy's `f_scale`, in units of sigma.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[non_exhaustive]
pub enum Estimator {
    /// ρ = z.
    #[default]
    LeastSquares,
    /// Maximum likelihood of counts (Laurence & Chromy 2010, doi:10.1038/nmeth0510-338): cost = 2 (m − y + y ln(y/m)),
    /// 2 m at y = 0, infinite where m ≤ 0. Data are counts, not rates, and sigma has no say; covariances are absolute.
    Poisson,
    /// ρ = z, beyond z = 1 2√z − 1.
    Huber(f64),
    /// ρ = 2 (√(1 + z) − 1).
    SoftL1(f64),
    /// ρ = ln(1 + z).
    Cauchy(f64),
    /// ρ = atan z.
    Arctan(f64),
    /// −2 ln of Student's t distribution with ν degrees of freedom and the scale sigma (Lange, Little & Taylor 1989,
    /// doi:10.2307/2290063): cost = (ν + 1) ln(1 + r²/ν), r = (y − m) / σ. That is Cauchy's of the scale √ν, times
    /// (ν + 1)/ν.
    Student(f64),
    /// A model whose value is the cost itself ([`Closure::cost`](crate::Closure::cost)), which says so by itself.
    #[doc(hidden)]
    Cost,
}

/// One point's share of the sums: χ² += cost, g += slope · residual · ∂m, A += slope² ∂m ∂mᵀ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub cost: f64,
    pub residual: f64,
    pub slope: f64,
    /// Factor that takes the place of the slope in the covariance: with Poisson the expected curvature, Σ ∂m ∂mᵀ / m
    /// (where m is near 0, that of the data), with robust losses their own.
    pub expected_slope: f64,
    /// ψ′, the curvature of half the cost by the residual in units of sigma, of a robust loss; 1 of others.
    pub curvature: f64,
}

impl Estimator {
    /// Returns the fault of a robust loss's number; `None` if it is valid, or if there is none.
    pub(crate) fn fault(self) -> Option<InvalidSetting> {
        let (quantity, number) = match self {
            Estimator::LeastSquares | Estimator::Poisson | Estimator::Cost => return None,
            Estimator::Huber(c)
            | Estimator::SoftL1(c)
            | Estimator::Cauchy(c)
            | Estimator::Arctan(c) => ("scale", c),
            Estimator::Student(dof) => ("number of degrees of freedom", dof),
        };
        let is_bad = !(number.is_finite() && number > 0.0);
        is_bad.then(|| {
            InvalidSetting::new(
                "estimator",
                format!("a loss with the {quantity} {number}: it must be positive"),
            )
        })
    }

    /// Returns the scale of a robust loss, scipy's `f_scale`; `None` for an estimator without one.
    pub(crate) fn scale(self) -> Option<f64> {
        match self {
            Estimator::LeastSquares | Estimator::Poisson | Estimator::Cost => None,
            Estimator::Huber(c)
            | Estimator::SoftL1(c)
            | Estimator::Cauchy(c)
            | Estimator::Arctan(c) => Some(c),
            Estimator::Student(dof) => Some(dof.sqrt()),
        }
    }

    /// Returns the same robust loss with another scale, or other degrees of freedom.
    #[cfg(feature = "files")]
    pub(crate) fn with_number(self, number: f64) -> Estimator {
        match self {
            Estimator::LeastSquares | Estimator::Poisson | Estimator::Cost => self,
            Estimator::Huber(_) => Estimator::Huber(number),
            Estimator::SoftL1(_) => Estimator::SoftL1(number),
            Estimator::Cauchy(_) => Estimator::Cauchy(number),
            Estimator::Arctan(_) => Estimator::Arctan(number),
            Estimator::Student(_) => Estimator::Student(number),
        }
    }

    /// Returns the weight ψ(r)/r of a residual near 0: 1, and with Student's loss (ν + 1)/ν.
    pub(crate) fn central_weight(self) -> f64 {
        if let Estimator::Student(dof) = self {
            (dof + 1.0) / dof
        } else {
            1.0
        }
    }

    /// Returns whether the loss is robust: outliers count less than by their squares.
    pub(crate) fn is_robust(self) -> bool {
        self.scale().is_some()
    }

    /// Returns whether the cost is the plain sum of squared residuals, which allows for shorter computations.
    pub(crate) const fn is_least_squares(self) -> bool {
        matches!(self, Estimator::LeastSquares)
    }

    /// Returns whether the model's value is the cost itself, so that there are no residuals.
    pub(crate) const fn is_cost(self) -> bool {
        matches!(self, Estimator::Cost)
    }

    /// Returns whether covariances are absolute: the scatter of counts is known, and a cost has none.
    pub(crate) const fn has_absolute_errors(self) -> bool {
        self.takes_counts() || self.is_cost()
    }

    /// Returns whether a last step may be taken without evaluating its end. Poisson's likelihood may have no value
    /// there.
    pub(crate) const fn trusts_last_step(self) -> bool {
        !self.takes_counts()
    }

    /// Returns whether the expected count is so near 0 that only the end of the likelihood at 0 bounds the model.
    pub(crate) fn touches_zero(self, mean: f64) -> bool {
        self.takes_counts() && mean < NEARLY_ZERO_COUNT
    }

    /// Returns whether the data must be counts, as Poisson's likelihood asks.
    pub(crate) const fn takes_counts(self) -> bool {
        matches!(self, Estimator::Poisson)
    }

    /// Returns the WGSL expression of a point's cost, residual and slope, of data `d`, weight `w` and model `m`.
    #[cfg(feature = "gpu")]
    pub(crate) fn wgsl_share(self) -> String {
        match self {
            Estimator::LeastSquares => {
                "vec3<f32>((d - w * m) * (d - w * m), d - w * m, w)".to_owned()
            }
            Estimator::Poisson => "poisson(d, w, m)".to_owned(),
            Estimator::Cost => "vec3<f32>(m, -0.5, 1.0)".to_owned(),
            _ => format!(
                "robust(d - w * m, w, {}.xy)",
                self.wgsl_loss("loss_argument(d - w * m)")
            ),
        }
    }

    /// Returns the WGSL expression of ρ, ρ′ and ρ′ + 2 z ρ″ of a robust loss at `argument`, the expression of z.
    #[cfg(feature = "gpu")]
    pub(crate) fn wgsl_loss(self, argument: &str) -> String {
        match self {
            Estimator::LeastSquares | Estimator::Poisson | Estimator::Cost => {
                format!("vec3<f32>({argument}, 1.0, 1.0)")
            }
            Estimator::Huber(_) => format!("huber({argument})"),
            Estimator::SoftL1(_) => format!("soft_l1({argument})"),
            Estimator::Cauchy(_) => format!("cauchy({argument})"),
            Estimator::Arctan(_) => format!("arctan({argument})"),
            Estimator::Student(_) => {
                format!("({:?} * cauchy({argument}))", self.central_weight() as f32)
            }
        }
    }

    /// Returns the share of a point with data y/σ, weight 1/σ and model m: its cost, residual and slope. With Poisson
    /// the data are counts of the mean weight · m.
    pub(crate) fn share(self, data: f64, weight: f64, model: f64) -> Share {
        let residual = data - weight * model;
        match self {
            Estimator::LeastSquares => Share {
                cost: residual * residual,
                residual,
                slope: weight,
                expected_slope: weight,
                curvature: 1.0,
            },
            Estimator::Poisson => poisson_share(data, weight, weight * model),
            // The gradient is that of the value itself: −2 Jᵀr is its derivative.
            Estimator::Cost => Share {
                cost: model,
                residual: -0.5,
                slope: 1.0,
                expected_slope: 1.0,
                curvature: 1.0,
            },
            Estimator::Huber(c) => robust_share(residual, weight, c, huber),
            Estimator::SoftL1(c) => robust_share(residual, weight, c, soft_l1),
            Estimator::Cauchy(c) => robust_share(residual, weight, c, cauchy),
            Estimator::Arctan(c) => robust_share(residual, weight, c, arctan),
            Estimator::Student(dof) => robust_share(residual, weight, dof.sqrt(), |z| {
                cauchy(z).map(|x| self.central_weight() * x)
            }),
        }
    }
}

/// Returns the share of a point with this residual under a robust loss of scale `c`.
#[inline]
fn robust_share(residual: f64, weight: f64, c: f64, loss: impl Fn(f64) -> [f64; 3]) -> Share {
    let [rho, slope, curvature] = loss((residual / c).powi(2));
    // Steps of iteratively reweighted least squares lower the cost from anywhere. With the loss's own curvature, which
    // may be negative, outliers would keep their gradient without any weight.
    let root = slope.sqrt();
    let expected_slope = curvature.max(LEAST_LOSS_CURVATURE).sqrt() * weight;
    Share {
        cost: c * c * rho,
        residual: root * residual,
        slope: root * weight,
        expected_slope,
        curvature,
    }
}

/// Returns the cost, residual and slope that make Poisson's likelihood look like least squares: g = (y/m − 1) ∂m, A =
/// y/m² ∂m ∂mᵀ.
fn poisson_share(count: f64, weight: f64, mean: f64) -> Share {
    if mean.is_nan() || mean <= 0.0 {
        return Share {
            cost: f64::INFINITY,
            residual: 0.0,
            slope: 0.0,
            expected_slope: 0.0,
            curvature: 1.0,
        };
    }
    // Where the model is nearly 0, the expected curvature 1/m says that an empty bin determines the model to √m. It
    // does not: its cost 2 m is linear, and only the bound m > 0 holds the fit. There the curvature is that of the
    // data.
    let expected = if mean < NEARLY_ZERO_COUNT {
        count.sqrt() / mean
    } else {
        mean.sqrt().recip()
    };
    let root = count.max(LEAST_COUNT_SHARE * mean).sqrt();
    let cost = if count > 0.0 {
        2.0 * count * excess_over_logarithm((mean - count) / count, mean / count)
    } else {
        2.0 * mean
    };
    Share {
        cost,
        residual: (count - mean) / root,
        slope: root / mean * weight,
        expected_slope: weight * expected,
        curvature: 1.0,
    }
}

/// Returns t − ln(1 + t), from t and 1 + t; near 0 by ln(1 + t) = 2 atanh s, s = t / (2 + t), so that nothing cancels.
fn excess_over_logarithm(t: f64, one_plus_t: f64) -> f64 {
    let s = t / (2.0 + t);
    if s.abs() > 0.1 {
        return t - one_plus_t.ln();
    }
    let s_squared = s * s;
    let series = (0..8)
        .rev()
        .fold(0.0, |sum, k| sum * s_squared + 1.0 / f64::from(2 * k + 3));
    2.0 * s_squared * (1.0 / (1.0 - s) - s * series)
}

/// Returns ρ, ρ′ and ρ′ + 2 z ρ″ of Huber's loss.
pub(super) fn huber(z: f64) -> [f64; 3] {
    if z <= 1.0 {
        [z, 1.0, 1.0]
    } else {
        [2.0 * z.sqrt() - 1.0, 1.0 / z.sqrt(), 0.0]
    }
}

/// Returns ρ, ρ′ and ρ′ + 2 z ρ″ of the loss `soft_l1`, 2 (√(1 + z) − 1).
pub(super) fn soft_l1(z: f64) -> [f64; 3] {
    let root = (1.0 + z).sqrt();
    [2.0 * z / (root + 1.0), 1.0 / root, 1.0 / (root * (1.0 + z))]
}

/// Returns ρ, ρ′ and ρ′ + 2 z ρ″ of Cauchy's loss, ln(1 + z).
pub(super) fn cauchy(z: f64) -> [f64; 3] {
    let t = 1.0 + z;
    [z.ln_1p(), 1.0 / t, (1.0 - z) / (t * t)]
}

/// Returns ρ, ρ′ and ρ′ + 2 z ρ″ of the loss arctan z.
pub(super) fn arctan(z: f64) -> [f64; 3] {
    let t = 1.0 + z * z;
    [z.atan(), 1.0 / t, (1.0 - 3.0 * z * z) / (t * t)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// slope · residual is −½ dcost/dm.
    #[test]
    fn gradients_equal_differences_of_the_cost() {
        let losses = [
            Estimator::LeastSquares,
            Estimator::Poisson,
            Estimator::Huber(0.7),
            Estimator::SoftL1(0.7),
        ];
        for estimator in losses.into_iter().chain([
            Estimator::Cauchy(0.7),
            Estimator::Arctan(1.5),
            Estimator::Student(3.0),
        ]) {
            for (data, weight, model) in [
                (3.0, 1.0, 2.5),
                (7.0, 2.0, 1.0),
                (0.0, 1.0, 0.4),
                (5.0, 1.0, 5.01),
            ] {
                let cost = |m: f64| estimator.share(data, weight, m).cost;
                let step = 1e-6 * model;
                let difference = (cost(model - step) - cost(model + step)) / (4.0 * step);
                let share = estimator.share(data, weight, model);
                let slope = share.residual * share.slope;
                assert!(
                    (slope - difference).abs() < 1e-6 * slope.abs().max(1.0),
                    "{estimator:?}: {slope} {difference}"
                );
            }
        }
    }

    #[test]
    fn poisson_costs_are_accurate_and_invalid_losses_are_rejected() {
        // y = 4, m = 5 by hand: 2 (1 + 4 ln 0.8).
        let cost = |y, m| Estimator::Poisson.share(y, 1.0, m).cost;
        assert!((cost(4.0, 5.0) - 2.0 * (1.0 + 4.0 * 0.8f64.ln())).abs() < 1e-14);
        assert_eq!(
            (cost(0.0, 3.0), cost(2.0, 0.0), cost(2.0, -1.0)),
            (6.0, f64::INFINITY, f64::INFINITY)
        );
        // (m − y)² / y to first order.
        assert!((cost(1e6, 1e6 + 1e-3) / 1e-12 - 1.0).abs() < 1e-6);
        for t in [0.2, 0.25, -0.15, -0.2, 0.222_222, -0.181_818] {
            let excess = excess_over_logarithm(t, 1.0 + t);
            let direct = t - t.ln_1p();
            assert!(
                (excess / direct - 1.0).abs() < 1e-13,
                "{t}: {excess} {direct}"
            );
        }
        for invalid in [
            Estimator::Huber(0.0),
            Estimator::Cauchy(f64::NAN),
            Estimator::Student(-1.0),
        ] {
            assert!(invalid.fault().is_some(), "{invalid:?}");
        }
    }
}
