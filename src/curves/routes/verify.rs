//! Spot checks of fits on a GPU: of those that end together, some have their cost computed again.
//!
//! Models are the user's, and in f32 two correct devices may end in different minima. So the check compares costs at
//! the parameters that the device itself returns: with the host's, or, for models that are WGSL alone, with those of
//! another readback.
//!
//! The check does not find devices that end fits too early. After Levenberg–Marquardt the host continues in f64 from
//! there (`polish`, `prepare_second_fits`), which costs time but no accuracy, and the ends of simplices are judged by a
//! Gauss–Newton step in f64 (`ends/end.rs`). Models of WGSL alone have no such test, and there is no reliable bound:
//! the distance between f32's end and the minimum grows with the square of the Jacobian's condition, which in NIST's
//! problems exceeds the precision of f32.

use crate::curves::input::data::Curve;
use crate::curves::{CurveRun, CurveSolver};
use crate::device::verify;
use crate::error::Result;
use crate::math::triangle::packed_index;
use crate::solver::Outcome;
use crate::solver::search::Readbacks;

/// Allowed relative difference of a cost: the rounding of the sums.
const MAX_RELATIVE_COST_DIFFERENCE: f64 = 1e-3;
/// Allowed relative difference in units of `ftol`: the predicted reduction of a last step that is not evaluated
/// (`BEST_CONTRACTION` of the step).
const MAX_COST_DIFFERENCE_PER_FTOL: f64 = 1e3;
/// Cost below which differences cannot be measured, because f32 has a smallest number.
const MIN_MEASURABLE_COST: f64 = 1e-30;
/// Relative rounding of the terms of a point: 1700 units of f32's last place, with popfit's own functions.
const POINT_ROUNDING: f64 = 1e-4;
/// The same with the functions of WGSL, whose precision depends on the driver.
pub(crate) const POINT_ROUNDING_OF_WGSL: f64 = 2e-3;
/// Relative difference of a point between two kernels of one device.
const POINT_ROUNDING_BETWEEN_KERNELS: f64 = 2e-6;
/// Relative rounding of a predictor: four units of f32's last place.
pub(crate) const PREDICTOR_ROUNDING: f64 = 1.0 / 4_194_304.0;

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
        let Some(linearisation) = problem.linearise(parameters) else {
            return Ok(());
        };
        let cost = linearisation.cost();
        // 1. As a rule the costs agree, and the rest takes as long again. The device's rows are in other units.
        let unit = curve.row_factor * curve.row_factor;
        if (reported - unit * cost).abs() <= MAX_RELATIVE_COST_DIFFERENCE * unit * cost {
            return Ok(());
        }
        // 2. Otherwise allow for the rounding of the points.
        let squared_terms: f64 = parameters
            .iter()
            .zip(linearisation.squares())
            .map(|(x, square)| x * x * square)
            .sum();
        let rounding = if self.model.formula().is_some() {
            POINT_ROUNDING
        } else {
            POINT_ROUNDING_OF_WGSL
        };
        let squared_rounding = rounding.powi(2) * self.squared_data_and_terms(curve, squared_terms)
            + self.squared_rounding_by_predictors(curve, parameters);
        self.check_difference(reported, unit * cost, unit * squared_rounding)
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
            self.squared_rounding_between_kernels(curve, now),
        )
    }

    /// Compares the two objectives that a device has reported of one point.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if they differ by more than rounding.
    pub(crate) fn compare_objectives(
        &self,
        curve: &Curve,
        reported: Readbacks,
        start: &Outcome,
    ) -> Result<()> {
        let squared_rounding = self.squared_rounding_between_kernels(curve, start);
        if reported.before.is_finite() && reported.now.is_finite() {
            self.check_difference(reported.before, reported.now, squared_rounding)?;
        }
        Ok(())
    }

    /// Returns the squared change of a fit's residuals that rounding may make between two kernels of one device.
    fn squared_rounding_between_kernels(&self, curve: &Curve, sums: &Outcome) -> f64 {
        let unit = curve.row_factor * curve.row_factor;
        let squared_terms = sums
            .parameters
            .iter()
            .enumerate()
            .map(|(p, u)| u * u * sums.normal_matrix[packed_index(p, p)])
            .sum::<f64>()
            / unit;
        unit * POINT_ROUNDING_BETWEEN_KERNELS.powi(2)
            * self.squared_data_and_terms(curve, squared_terms)
    }

    /// Returns the sum of squares of which the squared rounding of points is a share: of the data, and of the model's
    /// terms, parameters times derivatives, which is `squared_terms`.
    fn squared_data_and_terms(&self, curve: &Curve, squared_terms: f64) -> f64 {
        // The error of a count is its root, so that the squared weighted count is the count.
        let takes_counts = self.estimator.takes_counts();
        let squared_data: f64 = curve
            .y
            .iter()
            .zip(&curve.weight)
            .map(|(y, weight)| {
                if takes_counts {
                    weight * y
                } else {
                    (weight * y).powi(2)
                }
            })
            .sum();
        (1 + curve.start.len()) as f64 * (squared_data + squared_terms)
    }

    /// Returns the squared change of the weighted model if all predictors change by their rounding, up or down: where
    /// the model jumps, one of the two may change it.
    fn squared_rounding_by_predictors(&self, curve: &Curve, parameters: &[f64]) -> f64 {
        let model_at = |relative_shift: f64| {
            let shifted = Curve {
                x: curve.x.iter().map(|x| x * (1.0 + relative_shift)).collect(),
                ..curve.clone()
            };
            self.problem(&shifted)
                .evaluate_model(false, parameters, &curve.scale)
        };
        let (Some(model), Some(below), Some(above)) = (
            model_at(0.0),
            model_at(-PREDICTOR_ROUNDING),
            model_at(PREDICTOR_ROUNDING),
        ) else {
            return 0.0;
        };
        let unmasked = curve
            .weight
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight > 0.0);
        unmasked
            .map(|(j, weight)| {
                let change = (below[j] - model[j]).abs().max((above[j] - model[j]).abs());
                (weight * change).powi(2)
            })
            .sum()
    }

    /// Compares the cost that a device `reported` with `cost`. Rounding may change it by Σ 2 |residual| · rounding,
    /// which is bounded by Cauchy and Schwarz, and by Σ rounding², which is `squared_rounding`.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if they differ by more.
    fn check_difference(&self, reported: f64, cost: f64, squared_rounding: f64) -> Result<()> {
        let unevaluated_reduction = match self.solver {
            CurveSolver::Lm(settings) => MAX_COST_DIFFERENCE_PER_FTOL * settings.ftol,
            CurveSolver::NelderMead(_) => 0.0,
        };
        let allowed = (MAX_RELATIVE_COST_DIFFERENCE + unevaluated_reduction) * cost
            + 2.0 * (cost * squared_rounding).sqrt()
            + squared_rounding
            + MIN_MEASURABLE_COST;
        // Nothing else shows which of the two is wrong.
        let has_twin = self.model.twin_agreement().is_some();
        let remark = if has_twin {
            ", or its twin in Rust is another model (`check_jacobian`)"
        } else {
            ""
        };
        verify::compare_objectives(&self.device.inner.name(), reported, cost, allowed, remark)
    }
}
