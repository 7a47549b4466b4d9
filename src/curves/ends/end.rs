//! The judgement of the end of a curve's fit: f64 on the host refines it, continues from it, or says why it is no
//! minimum.

use crate::curves::ends::plateau::{MIN_RELATIVE_REDUCTION, Neighbourhood};
use crate::curves::ends::polish::{CurveLinearisation, CurveProblem};
use crate::curves::results::result::CurveFit;
use crate::curves::{CurveRun, CurveSolver};
use crate::solver::{LevenbergMarquardt, Status};

/// Maximum number of descents from a point where a fit did not converge.
const MAX_DESCENTS: usize = 20;
/// Message of a fit whose model is stationary and yet not at a minimum.
const SADDLE: &str =
    "the cost falls beside the end if parameters without effect, or alike, move: start elsewhere";
/// Message of a fit none of whose steps was accepted.
pub(crate) const NOT_MOVED: &str =
    "no step from the start lowered the cost: do the derivatives fit the model (check_jacobian)?";
/// Message of a fit from which descents have not arrived at a minimum.
const DESCENDING: &str =
    "the cost still falls after Gauss-Newton steps from where the fit ended: start elsewhere";
/// Message of a fit that ended where the cost still has a slope.
const SLOPE: &str =
    "the cost has a slope where the fit ended, though no step lowers it: start elsewhere";
/// Largest cosine between the residual and a column of the Jacobian at a minimum.
const MAX_SLOPE_COSINE: f64 = 1e-4;
/// The same where the fit ended in f32.
const MAX_SLOPE_COSINE_IN_F32: f64 = 0.01;
/// Message of a simplex that ended above a minimum.
const ABOVE: &str = "the simplex ended where a Gauss-Newton step lowers the cost: start elsewhere, or let polish go on";

impl CurveRun {
    /// Refines a success of Levenberg–Marquardt, or marks it as stalled; returns the number of evaluations.
    pub(crate) fn refine_end(
        &self,
        problem: &CurveProblem,
        fit: &mut CurveFit,
        linearisation: &mut CurveLinearisation,
    ) -> u32 {
        let in_f32 = self.device.inner.runs_wgsl();
        let is_simplex = matches!(self.solver, CurveSolver::NelderMead(_));
        if is_simplex || !fit.status.is_success() || !(self.polish || in_f32) {
            return 0;
        }
        let (evaluations, is_near_minimum) = if self.polish {
            problem.refine_by_gauss_newton(&mut fit.parameters, linearisation)
        } else {
            (0, true)
        };
        // If f64 moved far, f32 had ended elsewhere, and the host must repeat the fit.
        let ended_elsewhere = !is_near_minimum && in_f32 && self.estimator.is_least_squares();
        if ended_elsewhere || !problem.is_stationary(linearisation, &fit.parameters, !self.polish) {
            fit.set_status(Status::Stalled);
        }
        evaluations
    }

    /// Continues a fit that did not converge or ended at a saddle, and makes it a success where it ends at a minimum;
    /// returns the parameters that the data do not determine there. `linearisation` is the one at its parameters.
    pub(crate) fn judge_end(
        &self,
        problem: &CurveProblem,
        fit: &mut CurveFit,
        linearisation: &mut CurveLinearisation,
    ) -> Vec<usize> {
        // 1. With polish the host repeats the fits that a GPU has not brought to an end.
        if self.polish && self.device.inner.runs_wgsl() {
            if let Some(cause) = self.explain_missing_minimum(problem, fit, linearisation) {
                fit.status = Status::Stalled;
                fit.message = cause.into();
            }
            return Vec::new();
        }
        // 2. A success stays one unless its end is no minimum.
        if fit.status.is_success() {
            let Some(cause) = self.explain_missing_minimum(problem, fit, linearisation) else {
                return Vec::new();
            };
            fit.status = Status::Stalled;
            fit.message = cause.into();
        }
        // 3. Choose the fits that may continue.
        if !matches!(
            fit.status,
            Status::Stalled | Status::MaxRounds | Status::Singular
        ) {
            return Vec::new();
        }
        if fit.status == Status::MaxRounds && problem.linearisations_left.get() == 0 {
            return Vec::new();
        }
        let is_at_start = fit.status == Status::Stalled && fit.parameters == problem.curve.start;
        if is_at_start && self.model.formula().is_none() {
            fit.message = NOT_MOVED.into();
        }
        // 4. Move to lower points beside the end, and refine there, until the end is a minimum.
        for _ in 0..MAX_DESCENTS {
            // Differences of costs at rounding level mean nothing.
            let neighbourhood = match problem.is_rounding(linearisation, !self.polish) {
                true => Neighbourhood::Minimum(Vec::new()),
                false => problem.search_neighbourhood(linearisation, &fit.parameters),
            };
            match neighbourhood {
                Neighbourhood::Minimum(undetermined) => {
                    fit.set_status(Status::Ftol);
                    return undetermined;
                }
                // Without polish a fit stays where the device has left it.
                Neighbourhood::Lower(_) if !self.polish => break,
                Neighbourhood::Lower(point) => {
                    let (lower, evaluations) =
                        problem.linearise_lower_point(&point, linearisation, &fit.parameters);
                    fit.evaluations += evaluations;
                    fit.rounds += evaluations;
                    let Some(lower) = lower else { break };
                    (fit.parameters, *linearisation) = lower;
                    let (evaluations, _) =
                        problem.refine_by_gauss_newton(&mut fit.parameters, linearisation);
                    fit.evaluations += evaluations;
                    fit.rounds += evaluations;
                }
                Neighbourhood::Unknown => break,
            }
        }
        // 5. Say why the fit failed.
        if self.polish && fit.message == ABOVE {
            fit.message = DESCENDING.into();
        }
        if problem.linearisations_left.get() == 0 {
            fit.set_status(Status::MaxRounds);
        }
        Vec::new()
    }

    /// Marks a success as stalled if the cost has a slope by a parameter that the data determine, unless the residuals
    /// are rounding, or a count is at the end of its likelihood's range.
    pub(crate) fn refuse_slope(
        &self,
        problem: &CurveProblem,
        fit: &mut CurveFit,
        linearisation: &CurveLinearisation,
        undetermined: &[usize],
    ) {
        let CurveSolver::Lm(settings) = self.solver else {
            return;
        };
        let ended_in_f32 = !self.polish && self.device.inner.runs_wgsl();
        let max_cosine = if ended_in_f32 {
            MAX_SLOPE_COSINE_IN_F32
        } else {
            MAX_SLOPE_COSINE
        };
        let max_cosine = max_cosine.max(settings.ftol.sqrt()).max(settings.gtol);
        // A last step that is short enough for the user's `xtol` may leave a slope.
        let ended_by_users_xtol =
            fit.status == Status::Xtol && settings.xtol > LevenbergMarquardt::OF_CURVES.xtol;
        if fit.status.is_success()
            && problem
                .interior_parameters(&fit.parameters)
                .iter()
                .any(|p| !undetermined.contains(p) && linearisation.cosine(*p) > max_cosine)
            && !linearisation.touches_zero
            && !ended_by_users_xtol
            && !problem.is_rounding_of_terms(linearisation, &fit.parameters, !self.polish)
        {
            fit.status = Status::Stalled;
            fit.message = SLOPE.into();
        }
    }

    /// Returns the message of a success that is no minimum; `None` if it may be one. It is none where moving parameters
    /// that have no effect or the same effect, or a step from a simplex's end, gains more than the solver's tolerance.
    fn explain_missing_minimum(
        &self,
        problem: &CurveProblem,
        fit: &CurveFit,
        linearisation: &CurveLinearisation,
    ) -> Option<&'static str> {
        if !fit.status.is_success() {
            return None;
        }
        let gain = self.tolerated_gain(problem, fit, linearisation);
        let is_rounding = || problem.is_rounding(linearisation, !self.polish);
        let is_simplex = matches!(self.solver, CurveSolver::NelderMead(_));
        if problem
            .find_lower_beside(gain, linearisation, &fit.parameters)
            .is_some()
            && !is_rounding()
        {
            return Some(SADDLE);
        }
        (is_simplex
            && problem.can_descend_by(gain, linearisation, &fit.parameters)
            && !is_rounding())
        .then_some(ABOVE)
    }

    /// Returns how far above a minimum a success may end by the solver's tolerances.
    fn tolerated_gain(
        &self,
        problem: &CurveProblem,
        fit: &CurveFit,
        linearisation: &CurveLinearisation,
    ) -> f64 {
        let simplex = match self.solver {
            CurveSolver::Lm(settings) => {
                return settings.ftol.max(MIN_RELATIVE_REDUCTION) * linearisation.cost();
            }
            CurveSolver::NelderMead(simplex) => simplex,
        };
        // The search counts all points and parameters, the fit only those that matter. The looser tolerance holds.
        let dof_of_search = problem.curve.y.len().saturating_sub(fit.parameters.len());
        let dof = self
            .is_scaled()
            .then(|| (fit.dof.max(1) as f64).min(dof_of_search.max(1) as f64));
        let noise = self.objective_noise().max(MIN_RELATIVE_REDUCTION);
        let (absolute, relative) = simplex.tolerances(dof, noise);
        absolute.max(relative * linearisation.cost())
    }
}
