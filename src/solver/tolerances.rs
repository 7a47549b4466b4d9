//! Tolerances at which the fits of a pass end, on either device. They are made once per pass, from the settings and
//! from the rounding error of a cost in the precision of the device.

use super::LevenbergMarquardt;
use super::thresholds::LARGE_COST;

/// Square of the largest distance from the minimum at which a fit may end, in errors, over `ftol` and the largest cost:
/// (0.01)² with 10⁻⁹ and 10⁴. Where that cost is infinite, its unit need not be the noise, and there is no such limit.
/// The ratio of two reductions mostly overestimates the convergence, so half of the 0.02 errors that we aim for keeps
/// fits within them.
const SQUARED_DISTANCE_OF_FTOL: f64 = 10.0;
/// Smallest `ftol` that this limit allows for. With a smaller one, steps made of rounding would exceed it.
const LEAST_FTOL_OF_DISTANCE: f64 = 1e-9;

/// Tolerances at which a fit has converged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    /// Maximum predicted reduction, as a share of the cost: `ftol`, or the value used in its place.
    pub reduction: f64,
    /// Cost at which a higher one is capped where a reduction is a share of it.
    pub largest_cost: f64,
    /// Ratio of the scaled step to the scaled parameters that it moves: `xtol`.
    pub step: f64,
    /// Cosine between the residual and a column of the Jacobian: `gtol`.
    pub cosine: f64,
    /// Relative error of a cost in the precision of the rows.
    pub cost_error: f64,
    /// Square of the largest distance from the minimum, in errors.
    pub squared_distance: f64,
}

impl Tolerances {
    /// Returns the tolerances of a population's members. With `caps_cost` the unit of the cost is the noise, and a
    /// large cost says nothing about how well a minimum is to be met.
    pub fn of_members(
        settings: &LevenbergMarquardt,
        caps_cost: bool,
        cost_error: f64,
    ) -> Tolerances {
        let largest_cost = if caps_cost { LARGE_COST } else { f64::INFINITY };
        Tolerances::with_reduction(settings, settings.ftol, largest_cost, cost_error)
    }

    /// Returns tolerances with `reduction` in the place of `ftol`, and the cost capped at `largest_cost`.
    pub fn with_reduction(
        settings: &LevenbergMarquardt,
        reduction: f64,
        largest_cost: f64,
        cost_error: f64,
    ) -> Tolerances {
        Tolerances {
            reduction,
            largest_cost,
            step: settings.xtol,
            cosine: settings.gtol,
            cost_error,
            squared_distance: SQUARED_DISTANCE_OF_FTOL
                * reduction.max(LEAST_FTOL_OF_DISTANCE)
                * largest_cost,
        }
    }

    /// Returns the predicted reduction at which a fit of this cost has converged.
    pub fn least_reduction(&self, cost: f64) -> f64 {
        self.reduction * cost.min(self.largest_cost)
    }
}
