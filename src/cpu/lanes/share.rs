//! A block's rows as an estimator counts them: values become residuals, derivatives are multiplied by slopes; of least
//! squares, whose models leave residuals, both by weights.

use pulp::{Simd, WithSimd};

use crate::buffers::ResidualScatter;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, pick};
use crate::solver::Estimator;

/// Some points of a block whose rows are to be weighted, or reweighted by a robust estimator.
pub struct Shares<'a, R> {
    pub estimator: Estimator,
    /// True if derivatives are those of the covariance.
    pub expected: bool,
    /// Scatter of each lane's residuals, added to where the covariance is that of the sandwich formula: derivatives are
    /// then those of least squares.
    pub scatter: Option<&'a mut [ResidualScatter; LANES]>,
    /// (points)
    pub y: &'a [Lanes<R>],
    /// (points), or empty where all are 1.
    pub weight: &'a [Lanes<R>],
    /// (points, 1 + P)
    pub rows: &'a mut [Lanes<R>],
    /// Added to, unless by least squares, where it is the residuals' square.
    pub cost: &'a mut Lanes<R>,
}

impl<R: Real> Shares<'_, R> {
    /// Turns rows of values and derivatives into the estimator's weighted ones, with the machine's widest vectors.
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }

    /// Multiplies the residual and the derivatives of each point by its weight, for least squares.
    #[inline(always)]
    fn least_squares(self) {
        let stride = self.rows.len() / self.y.len();
        for (rows, weight) in self.rows.chunks_exact_mut(stride).zip(self.weight) {
            for row in rows {
                for l in 0..LANES {
                    let (w, x) = (weight.0[l], row.0[l]);
                    // a masked row may be anything, NaN included
                    row.0[l] = pick(w > R::ZERO, w * x, R::ZERO);
                }
            }
        }
    }

    /// Replaces model values by the estimator's residuals, scales derivatives by its slopes, and adds up the cost.
    #[inline(always)]
    fn others(mut self) {
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
                    let share = self
                        .estimator
                        .share(weight * y.0[l].to_f64(), weight, model);
                    value.0[l] = R::of(share.residual);
                    slopes.0[l] = R::of(if self.expected {
                        share.expected_slope
                    } else {
                        share.slope
                    });
                    if let Some(scatter) = &mut self.scatter {
                        scatter[l].add(&share, weight);
                        slopes.0[l] = R::of(weight);
                    }
                    self.cost.0[l] += R::of(share.cost);
                }
            }
            for tangent in tangents {
                for l in 0..LANES {
                    let (slope, x) = (slopes.0[l], tangent.0[l]);
                    tangent.0[l] = pick(slope > R::ZERO, slope * x, R::ZERO);
                }
            }
        }
    }
}

impl<R: Real> WithSimd for Shares<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        if self.estimator.is_least_squares() {
            self.least_squares()
        } else {
            self.others()
        }
    }
}
