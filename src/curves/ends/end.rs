//! Whether the end of a curve's fit is a minimum: f64 on the host refines it, goes on from it, or says why it is none.

use crate::curves::ends::plateau::{LEAST_GAIN, Neighbourhood};
use crate::curves::ends::polish::{Problem, Rows};
use crate::curves::results::result::{CurveFit, message};
use crate::curves::{CurveRun, CurveSolver};
use crate::solver::{LevenbergMarquardt, Status};

/// Most descents from a point where a fit did not converge.
const DESCENTS: usize = 20;
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
/// Largest cosine between the residual and a column of the Jacobian at a minimum, and where rows are in f32.
const STEEPEST: f64 = 1e-4;
const STEEPEST_IN_F32: f64 = 0.01;
/// Message of a simplex that ended above a minimum.
const ABOVE: &str = "the simplex ended where a Gauss-Newton step lowers the cost: start elsewhere, or let polish go on";

impl CurveRun {
    /// Refines a success of Levenberg–Marquardt, or marks it as stalled; returns the number of evaluations.
    pub(crate) fn refine_end(&self, problem: &Problem, fit: &mut CurveFit, rows: &mut Rows) -> u32 {
        let in_f32 = self.device.inner.runs_wgsl();
        let is_simplex = matches!(self.solver, CurveSolver::NelderMead(_));
        if is_simplex || !fit.status.is_success() || !(self.polish || in_f32) {
            return 0;
        }
        let (evaluations, near) = if self.polish {
            problem.refine(&mut fit.parameters, rows)
        } else {
            (0, true)
        };
        // f32 ended elsewhere: for the host to fit again
        let elsewhere = !near && in_f32 && self.estimator.is_least_squares();
        if elsewhere || !problem.is_stationary(rows, &fit.parameters, !self.polish) {
            fit.status = Status::Stalled;
            fit.message = message(fit.status).into();
        }
        evaluations
    }

    /// Continues a fit that did not converge or ended at a saddle, and makes it a success where it ends at a minimum;
    /// returns the parameters that the data do not determine there. `rows` are its residuals and derivatives.
    pub(crate) fn judge_end(
        &self,
        problem: &Problem,
        fit: &mut CurveFit,
        rows: &mut Rows,
    ) -> Vec<usize> {
        // with polish the host fits again what a GPU has not brought to an end
        if self.polish && self.device.inner.runs_wgsl() {
            if let Some(why) = self.why_no_minimum(problem, fit, rows) {
                (fit.status, fit.message) = (Status::Stalled, why.into());
            }
            return Vec::new();
        }
        if fit.status.is_success() {
            let Some(why) = self.why_no_minimum(problem, fit, rows) else {
                return Vec::new();
            };
            (fit.status, fit.message) = (Status::Stalled, why.into());
        }
        if !matches!(
            fit.status,
            Status::Stalled | Status::MaxRounds | Status::Singular
        ) {
            return Vec::new();
        }
        if fit.status == Status::MaxRounds && problem.left.get() == 0 {
            return Vec::new();
        }
        let is_start = fit.status == Status::Stalled && fit.parameters == problem.curve.start;
        if is_start && self.model.formula().is_none() {
            fit.message = NOT_MOVED.into();
        }
        for _ in 0..DESCENTS {
            // differences of costs at rounding level mean nothing
            let around = match problem.is_rounding(rows, !self.polish) {
                true => Neighbourhood::Minimum(Vec::new()),
                false => problem.look_around(rows, &fit.parameters),
            };
            match around {
                Neighbourhood::Minimum(undetermined) => {
                    fit.status = Status::Ftol;
                    fit.message = message(fit.status).into();
                    return undetermined;
                }
                // without polish a fit stays where the device has left it
                Neighbourhood::Lower(_) if !self.polish => break,
                Neighbourhood::Lower(point) => {
                    let (lower, spent) = problem.nearest_with_rows(&point, rows, &fit.parameters);
                    (fit.evaluations, fit.rounds) = (fit.evaluations + spent, fit.rounds + spent);
                    let Some(lower) = lower else { break };
                    (fit.parameters, *rows) = lower;
                    let (evaluations, _) = problem.refine(&mut fit.parameters, rows);
                    (fit.evaluations, fit.rounds) =
                        (fit.evaluations + evaluations, fit.rounds + evaluations);
                }
                Neighbourhood::Unknown => break,
            }
        }
        if self.polish && fit.message == ABOVE {
            fit.message = DESCENDING.into();
        }
        if problem.left.get() == 0 {
            fit.status = Status::MaxRounds;
            fit.message = message(fit.status).into();
        }
        Vec::new()
    }

    /// Marks a success as stalled if the cost has a slope by a parameter that the data determine, unless residuals are
    /// rounding, or the likelihood of counts ends there.
    pub(crate) fn refuse_slope(
        &self,
        problem: &Problem,
        fit: &mut CurveFit,
        rows: &Rows,
        undetermined: &[usize],
    ) {
        let CurveSolver::Lm(settings) = self.solver else {
            return;
        };
        let is_in_f32 = !self.polish && self.device.inner.runs_wgsl();
        let least = if is_in_f32 { STEEPEST_IN_F32 } else { STEEPEST };
        let steepest = least.max(settings.ftol.sqrt()).max(settings.gtol);
        // a step that is short enough for the user may leave a slope
        let is_short =
            fit.status == Status::Xtol && settings.xtol > LevenbergMarquardt::OF_CURVES.xtol;
        let is_steep = |p: &usize| !undetermined.contains(p) && rows.cosine(*p) > steepest;
        if fit.status.is_success()
            && problem.inside(&fit.parameters).iter().any(is_steep)
            && !rows.touches_zero
            && !is_short
            && !problem.is_rounding_of_terms(rows, &fit.parameters, !self.polish)
        {
            (fit.status, fit.message) = (Status::Stalled, SLOPE.into());
        }
    }

    /// Returns the message of a success that is no minimum; `None` if it may be one: where moving parameters that have
    /// no effect or act alike, or a step from a simplex's end, gains more than the solver's tolerance.
    fn why_no_minimum(
        &self,
        problem: &Problem,
        fit: &CurveFit,
        rows: &Rows,
    ) -> Option<&'static str> {
        if !fit.status.is_success() {
            return None;
        }
        let gain = self.tolerated_gain(problem, fit, rows);
        let is_rounding = || problem.is_rounding(rows, !self.polish);
        let is_simplex = matches!(self.solver, CurveSolver::NelderMead(_));
        if problem.lower_beside(gain, rows, &fit.parameters).is_some() && !is_rounding() {
            return Some(SADDLE);
        }
        (is_simplex && problem.falls_by(gain, rows, &fit.parameters) && !is_rounding())
            .then_some(ABOVE)
    }

    /// Returns how far above a minimum a success may end by the solver's tolerances.
    fn tolerated_gain(&self, problem: &Problem, fit: &CurveFit, rows: &Rows) -> f64 {
        let simplex = match self.solver {
            CurveSolver::Lm(settings) => return settings.ftol.max(LEAST_GAIN) * rows.cost(),
            CurveSolver::NelderMead(simplex) => simplex,
        };
        // the search counts all points and parameters, the fit those that matter: the looser tolerance holds
        let all = problem.curve.y.len().saturating_sub(fit.parameters.len());
        let dof = self
            .is_scaled()
            .then(|| (fit.dof.max(1) as f64).min(all.max(1) as f64));
        let (absolute, relative) = simplex.tolerances(dof, self.objective_noise().max(LEAST_GAIN));
        absolute.max(relative * rows.cost())
    }
}
