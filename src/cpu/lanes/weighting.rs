//! Weighting of a block's rows by an estimator. Robust estimators turn values into residuals, and multiply derivatives
//! by slopes. Least squares, whose models leave residuals, multiply both by the points' weights.

use pulp::{Simd, WithSimd};

use crate::buffers::ResidualScatter;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, pick};
use crate::solver::Estimator;

/// Some points of a block whose rows are to be weighted, or reweighted by a robust estimator.
pub struct RowWeighting<'a, R> {
    pub estimator: Estimator,
    /// Whether derivatives are weighted for the covariance, by the expected slopes.
    pub expected: bool,
    /// Scatter of each lane's residuals, to which points are added if the covariance is that of the sandwich formula.
    /// Derivatives are then weighted as for least squares.
    pub scatter: Option<&'a mut [ResidualScatter; LANES]>,
    /// (points)
    pub y: &'a [Lanes<R>],
    /// (points), or empty where all are 1.
    pub weight: &'a [Lanes<R>],
    /// (points, 1 + P)
    pub rows: &'a mut [Lanes<R>],
    /// Cost to which the points are added; unused by least squares, whose cost is the sum of squared residuals.
    pub cost: &'a mut Lanes<R>,
}

impl<R: Real> RowWeighting<'_, R> {
    /// Weights the rows of values and derivatives, with the machine's widest vectors.
    pub fn weight_rows(self) {
        pulp::Arch::new().dispatch(self);
    }

    /// Multiplies the residual and the derivatives of each point by its weight, for least squares.
    #[inline(always)]
    fn weight_by_errors(self) {
        let stride = self.rows.len() / self.y.len();
        for (rows, weight) in self.rows.chunks_exact_mut(stride).zip(self.weight) {
            for row in rows {
                for l in 0..LANES {
                    let w = weight.0[l];
                    let x = row.0[l];
                    // The row of a masked point may be anything, NaN included.
                    row.0[l] = pick(w > R::ZERO, w * x, R::ZERO);
                }
            }
        }
    }

    /// Replaces model values by the estimator's residuals, scales derivatives by its slopes, and adds up the cost.
    #[inline(always)]
    fn weight_by_estimator(mut self) {
        let stride = self.rows.len() / self.y.len();
        for (j, (rows, y)) in self.rows.chunks_exact_mut(stride).zip(self.y).enumerate() {
            let Some((value, tangents)) = rows.split_first_mut() else {
                continue;
            };
            let mut slopes = Lanes::splat(R::ZERO);
            for l in 0..LANES {
                let weight = self
                    .weight
                    .get(j)
                    .map_or(1.0, |weight| weight.0[l].to_f64());
                let model = value.0[l].to_f64();
                value.0[l] = R::ZERO;
                if weight > 0.0 {
                    let weighted = self
                        .estimator
                        .share(weight * y.0[l].to_f64(), weight, model);
                    value.0[l] = R::of(weighted.residual);
                    slopes.0[l] = R::of(if self.expected {
                        weighted.expected_slope
                    } else {
                        weighted.slope
                    });
                    if let Some(scatter) = &mut self.scatter {
                        scatter[l].add(&weighted, weight);
                        slopes.0[l] = R::of(weight);
                    }
                    self.cost.0[l] += R::of(weighted.cost);
                }
            }
            for tangent in tangents {
                for l in 0..LANES {
                    let slope = slopes.0[l];
                    let x = tangent.0[l];
                    tangent.0[l] = pick(slope > R::ZERO, slope * x, R::ZERO);
                }
            }
        }
    }
}

impl<R: Real> WithSimd for RowWeighting<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        if self.estimator.is_least_squares() {
            self.weight_by_errors()
        } else {
            self.weight_by_estimator()
        }
    }
}
