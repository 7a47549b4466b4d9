//! Spot checks of fits on a GPU: of those that end together, some have their cost computed again.
//!
//! Models are the user's, and in f32 two sound devices may end in different minima. So the check compares costs at the
//! parameters that the device itself returns: with the host's, or, for models that are WGSL alone, with those of
//! another readback.
//!
//! The check does not find devices that end fits too early. After Levenberg–Marquardt the host goes on in f64 from
//! there (`polish`, `resume`), which costs time and no digit, and the ends of simplices are judged by a Gauss–Newton
//! step in f64 (`ends/end.rs`). For models of WGSL alone nothing does so, and there is no sound bound: the distance
//! between f32's end and the minimum grows with the square of the Jacobian's condition, which in NIST's problems
//! exceeds what f32 holds.

use crate::curves::input::data::Curve;
use crate::curves::{CurveRun, CurveSolver};
use crate::device::verify;
use crate::error::Result;
use crate::math::triangle::packed_index;
use crate::solver::Outcome;
use crate::solver::search::Readbacks;

/// Allowed relative difference of a cost: the rounding of the sums.
const SHARE: f64 = 1e-3;
/// Allowed relative difference in units of `ftol`: the predicted reduction of a last step that is taken on trust
/// (`BEST_CONTRACTION` of the step).
const TRUST: f64 = 1e3;
/// Cost below which differences cannot be told, because f32 has a least number.
const FLOOR: f64 = 1e-30;
/// Relative rounding of the terms of a point: 1700 units of f32's last place, with popfit's own functions.
const ROUNDING: f64 = 1e-4;
/// The same with the functions of WGSL, whose precision is the driver's.
pub(crate) const ROUNDING_OF_WGSL: f64 = 2e-3;
/// Relative difference of a point between two kernels of one device.
const ROUNDING_AGAIN: f64 = 2e-6;
/// Relative rounding of a predictor: four units of f32's last place.
pub(crate) const ROUNDING_OF_X: f64 = 1.0 / 4_194_304.0;

impl CurveRun {
    /// Compares the cost that a GPU `reported` of a fit with the host's at its `parameters`. The cost may still fall
    /// there: f32 may be at its end where f64 is not.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if they differ by more than rounding.
    pub(crate) fn check_cost(
        &self,
        curve: &Curve,
        parameters: &[f64],
        reported: f64,
    ) -> Result<()> {
        let problem = self.problem(curve);
        let Some(rows) = problem.rows(parameters) else {
            return Ok(());
        };
        let (cost, squares): (f64, Vec<f64>) = (rows.cost(), rows.squares().collect());
        // the device's rows are in other units
        let unit = curve.gain * curve.gain;
        // as a rule; the rest takes as long again
        if (reported - unit * cost).abs() <= SHARE * unit * cost {
            return Ok(());
        }
        let conditioned: f64 = parameters
            .iter()
            .zip(&squares)
            .map(|(x, a)| x * x * a)
            .sum();
        let rounding = if self.model.formula().is_some() {
            ROUNDING
        } else {
            ROUNDING_OF_WGSL
        };
        let point = rounding.powi(2) * self.squared_terms(curve, conditioned)
            + self.squares_by_x(curve, parameters);
        self.check_difference(reported, unit * cost, unit * point)
    }

    /// Compares the cost that a device `reported` of a fit with the one that it computes `now`, in another readback.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if they differ by more than rounding.
    pub(crate) fn compare_readbacks(
        &self,
        curve: &Curve,
        reported: &Outcome,
        now: &Outcome,
    ) -> Result<()> {
        self.check_difference(
            reported.chi2 + reported.penalty,
            now.chi2 + now.penalty,
            self.point_again(curve, now),
        )
    }

    /// Compares the two objectives that a device has `told` of one point.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if they differ by more than rounding.
    pub(crate) fn compare_objectives(
        &self,
        curve: &Curve,
        told: Readbacks,
        start: &Outcome,
    ) -> Result<()> {
        let point = self.point_again(curve, start);
        if told.before.is_finite() && told.now.is_finite() {
            self.check_difference(told.before, told.now, point)?;
        }
        Ok(())
    }

    /// Returns the squared change of a fit's residuals that rounding may make between two kernels of one device.
    fn point_again(&self, curve: &Curve, sums: &Outcome) -> f64 {
        let square = |(p, u): (usize, &f64)| u * u * sums.normal_matrix[packed_index(p, p)];
        let unit = curve.gain * curve.gain;
        let conditioned = sums.parameters.iter().enumerate().map(square).sum::<f64>() / unit;
        unit * ROUNDING_AGAIN.powi(2) * self.squared_terms(curve, conditioned)
    }

    /// Returns the sum of the squares of which the rounding of points is a share: of the data, and of the parameters
    /// times their derivatives, which is `conditioned`.
    fn squared_terms(&self, curve: &Curve, conditioned: f64) -> f64 {
        // the error of a count is its root
        let is_counted = self.estimator.takes_counts();
        let square = |weighted: f64| {
            if is_counted {
                weighted
            } else {
                weighted.powi(2)
            }
        };
        let data: f64 = curve
            .y
            .iter()
            .zip(&curve.weight)
            .map(|(y, weight)| square(weight * y))
            .sum();
        (1 + curve.start.len()) as f64 * (data + conditioned)
    }

    /// Returns the squared change of the weighted model if all predictors change by their rounding, up or down: where
    /// the model jumps, one of the two may change it.
    fn squares_by_x(&self, curve: &Curve, parameters: &[f64]) -> f64 {
        let rows = |share: f64| {
            let moved = Curve {
                x: curve.x.iter().map(|x| x * (1.0 + share)).collect(),
                ..curve.clone()
            };
            self.problem(&moved)
                .model_rows(false, parameters, &curve.scale)
        };
        let (Some(here), Some(below), Some(above)) =
            (rows(0.0), rows(-ROUNDING_OF_X), rows(ROUNDING_OF_X))
        else {
            return 0.0;
        };
        let points = curve
            .weight
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight > 0.0);
        let change = |j: usize| (below[j] - here[j]).abs().max((above[j] - here[j]).abs());
        points.map(|(j, weight)| (weight * change(j)).powi(2)).sum()
    }

    /// Compares the cost that a device `reported` with `cost`. Rounding may change it by Σ 2 |residual| · rounding,
    /// which is bounded by Cauchy and Schwarz, and by Σ rounding², which is `point`.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if they differ by more.
    fn check_difference(&self, reported: f64, cost: f64, point: f64) -> Result<()> {
        let trusted = match self.solver {
            CurveSolver::Lm(settings) => TRUST * settings.ftol,
            CurveSolver::NelderMead(_) => 0.0,
        };
        let allowed = (SHARE + trusted) * cost + 2.0 * (cost * point).sqrt() + point + FLOOR;
        // Nothing else tells which of the two is wrong.
        let has_twin = self.model.alike().is_some();
        let remark = if has_twin {
            ", or its twin in Rust is another model (`check_jacobian`)"
        } else {
            ""
        };
        verify::compare_objectives(&self.device.inner.name(), reported, cost, allowed, remark)
    }
}
