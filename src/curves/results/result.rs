//! Result of one curve's fit, in the terms of scipy's users.

use crate::curves::ends::polish::CurveProblem;
use crate::curves::input::data::Curve;
use crate::curves::results::sound;
use crate::curves::{CurveRun, CurveSolver};
use crate::flag::Flags;
use crate::solver::{Estimator, Outcome, Status};

/// Ratio of an error to the parameter's size above which the parameter may have any value.
const MIN_POOR_ERROR: f64 = 1e6;

/// One curve's result. P is the number of parameters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CurveFit {
    /// scipy `least_squares`' codes, and popfit's own below 0.
    pub status: Status,
    /// The status in words, the cause of a bad input, the failure of a model, or where an interrupted fit stood.
    pub message: String,
    /// (P): NaN when the curve could not be fitted. An interrupted fit has the best point that it had found, or its
    /// start.
    pub parameters: Vec<f64>,
    /// (P): where the fit started.
    pub start: Vec<f64>,
    /// (P): square roots of the covariance's diagonal; 0 for fixed parameters, infinite for those that the data do not
    /// determine ([`Flags::UNDETERMINED`]), NaN for those at a bound.
    ///
    /// Unless [`absolute_sigma`](crate::CurveFitter::absolute_sigma) is set, sigma has relative meaning only: the
    /// covariance (JᵀJ)⁻¹ is multiplied by χ²/dof, so that a common factor of all sigmas changes no error. So do
    /// scipy's `curve_fit` (`absolute_sigma=False`) and lmfit (`scale_covar=True`) by default. With it the errors are
    /// those of (JᵀJ)⁻¹ alone. χ² counts as no less than the rounding of the data leaves of it, and without degrees of
    /// freedom the errors are NaN. Under a robust loss the errors follow the scatter of the residuals instead
    /// ([`sandwich_errors`](crate::CurveFitter::sandwich_errors)).
    pub errors: Vec<f64>,
    /// (P, P), row by row, at the solution. NaN beside parameters whose errors are not finite.
    pub covariance: Vec<f64>,
    /// [`Flags::UNDETERMINED`] and [`Flags::AT_BOUND`].
    pub flags: Flags,
    /// Σ ((y − model) / sigma)², or the estimator's cost, over the points that are not masked, without priors.
    pub chi2: f64,
    /// Points that are not masked.
    pub points: usize,
    /// Points that are not masked + priors − free parameters.
    pub dof: i64,
    /// Akaike's and the Bayesian information criterion, n ln(χ²/n) + 2k and + k ln n for n points and k free
    /// parameters, as lmfit has them; for counts χ² + 2k and + k ln n.
    pub aic: f64,
    /// The Bayesian criterion, as described for `aic`.
    pub bic: f64,
    /// Evaluations of the model, with or without derivatives (scipy's `nfev`).
    pub evaluations: u32,
    /// Number of evaluations that were linearisations (scipy's `njev`), in all attempts at the fit and in the polish;
    /// without the last one, of which the errors are made. At most the solver's
    /// [`max_rounds`](crate::LevenbergMarquardt::max_rounds).
    pub rounds: u32,
    /// Largest |Jᵀr| of a free parameter that is not at a bound: scipy's `optimality`.
    pub optimality: f64,
}

impl CurveFit {
    /// Returns the result of a curve that cannot be fitted, with the cause.
    pub(crate) fn refused(cause: impl Into<String>, parameters: usize) -> CurveFit {
        CurveFit {
            message: cause.into(),
            ..CurveFit::blank(parameters)
        }
    }

    /// Returns a fit that is all NaN, so that a value which nobody writes is seen.
    pub(crate) fn blank(parameters: usize) -> CurveFit {
        CurveFit {
            status: Status::BadInput,
            message: String::new(),
            parameters: vec![f64::NAN; parameters],
            start: vec![f64::NAN; parameters],
            errors: vec![f64::NAN; parameters],
            covariance: vec![f64::NAN; parameters * parameters],
            flags: Flags::empty(),
            chi2: f64::NAN,
            points: 0,
            dof: 0,
            aic: f64::NAN,
            bic: f64::NAN,
            evaluations: 0,
            rounds: 0,
            optimality: f64::NAN,
        }
    }

    /// Sets the status, and the message that explains it.
    pub(crate) fn set_status(&mut self, status: Status) {
        self.status = status;
        self.message = status_message(status).into();
    }

    /// Returns χ²/dof with a dof of at least 1, as lmfit's `redchi`.
    pub fn reduced_chi2(&self) -> f64 {
        self.chi2 / self.dof.max(1) as f64
    }

    /// Returns the correlations, (P, P) row by row: covariance over the product of the errors. NaN where one of these
    /// is 0 or unknown.
    pub fn correlation(&self) -> Vec<f64> {
        let count = self.errors.len();
        (0..count * count)
            .map(|k| self.covariance[k] / (self.errors[k / count] * self.errors[k % count]))
            .collect()
    }

    /// Sets AIC and BIC from χ², the number of points and the number of `free` parameters.
    pub(crate) fn set_criteria(&mut self, free: usize, estimator: Estimator) {
        (self.aic, self.bic) = information_criteria(self.chi2, self.points, free, estimator);
    }
}

/// Returns AIC and BIC from χ², the number of points and the number of `free` parameters.
pub(crate) fn information_criteria(
    chi2: f64,
    points: usize,
    free: usize,
    estimator: Estimator,
) -> (f64, f64) {
    let n = points as f64;
    let k = free as f64;
    // A χ² of 0 counts as in lmfit; a NaN stays.
    let chi2_per_point = if chi2 / n < 1e-250 { 1e-250 } else { chi2 / n };
    let minus_two_log_likelihood = if estimator.takes_counts() {
        chi2
    } else {
        n * chi2_per_point.ln()
    };
    let aic = minus_two_log_likelihood + 2.0 * k;
    let bic = minus_two_log_likelihood + k * n.ln();
    (aic, bic)
}

/// Returns those of the parameters `interior` whose error is NaN or far larger than the parameter, its start and its
/// unit.
pub(crate) fn poorly_determined(fit: &CurveFit, curve: &Curve, interior: &[usize]) -> Vec<usize> {
    interior
        .iter()
        .copied()
        .filter(|&p| {
            let size = fit.parameters[p]
                .abs()
                .max(fit.start[p].abs())
                .max(curve.scale[p]);
            fit.errors[p].is_nan() || fit.errors[p] > MIN_POOR_ERROR * size
        })
        .collect()
}

/// Makes the errors of `undetermined` parameters infinite, and sets the flag if there are any.
fn flag_undetermined(fit: &mut CurveFit, undetermined: &[usize]) {
    mark_undetermined_covariances(&mut fit.covariance, undetermined);
    for &p in undetermined {
        fit.errors[p] = f64::INFINITY;
        fit.flags |= Flags::UNDETERMINED;
    }
}

/// Makes the variances of undetermined parameters infinite and their covariances NaN in a matrix (P, P).
pub(crate) fn mark_undetermined_covariances(covariance: &mut [f64], undetermined: &[usize]) {
    let count = covariance.len().isqrt();
    for &p in undetermined {
        for q in 0..count {
            covariance[p * count + q] = f64::NAN;
            covariance[q * count + p] = f64::NAN;
        }
    }
    for &p in undetermined {
        covariance[p * count + p] = f64::INFINITY;
    }
}

/// Multiplies a covariance matrix by a factor, except its zeros: held parameters have no variance, whatever the factor.
fn scale_covariance(covariance: &mut [f64], factor: f64) {
    for element in covariance {
        if *element != 0.0 {
            *element *= factor;
        }
    }
}

/// Returns a message for users that explains a status.
pub(crate) fn status_message(status: Status) -> &'static str {
    match status {
        Status::MaxRounds => "the budget of rounds is spent",
        Status::Gtol => "converged: the gradient is small (gtol)",
        Status::Ftol => "converged: the objective no longer falls (ftol)",
        Status::Xtol => "converged: the step is small (xtol)",
        Status::FtolXtol => "converged: objective and step (ftol, xtol)",
        Status::BadInput => "the data cannot be fitted",
        Status::Interrupted => "interrupted",
        Status::Singular => "the normal matrix could not be solved at any damping",
        Status::NotFinite => "the model is not finite at the start",
        Status::Stalled => "no acceptable step after the allowed rejections",
    }
}

impl CurveRun {
    /// Turns a solver's outcome into a curve's result, refined and with errors from the rows in f64.
    pub(crate) fn finish_fit(&self, curve: &Curve, outcome: &Outcome) -> CurveFit {
        let fit = match outcome.status {
            None | Some(Status::Interrupted) => self.interrupted_fit(curve, outcome),
            Some(_) if self.estimator.is_cost() => self.finish_cost(curve, outcome),
            Some(_) => sound::require_finite(self.refine(curve, outcome)),
        };
        self.add_model_failure(curve, fit)
    }

    /// Makes the result, at its start, of a curve whose fit had not begun when the run was stopped.
    pub(crate) fn unbegun_fit(&self, curve: &Curve) -> CurveFit {
        let at_start = Outcome {
            parameters: curve.start.clone(),
            ..Outcome::default()
        };
        let mut fit = self.copy_outcome(curve, &at_start);
        fit.status = Status::Interrupted;
        fit.message = "interrupted before it began".into();
        fit
    }

    /// Makes the result, at the best point found, of a curve whose fit was stopped with the run. There are no errors:
    /// they would take an evaluation.
    pub(crate) fn interrupted_fit(&self, curve: &Curve, outcome: &Outcome) -> CurveFit {
        if outcome.rounds == 0 {
            return self.unbegun_fit(curve);
        }
        let mut fit = self.copy_outcome(curve, outcome);
        fit.status = Status::Interrupted;
        fit.chi2 = outcome.chi2;
        let rounds = if outcome.rounds == 1 {
            "round"
        } else {
            "rounds"
        };
        fit.message = format!(
            "interrupted after {} {rounds}, at chi-square {}",
            outcome.rounds, outcome.chi2
        );
        fit
    }

    /// Makes the result of a fit that minimised a cost, which has no points and no known curvature.
    fn finish_cost(&self, curve: &Curve, outcome: &Outcome) -> CurveFit {
        let mut fit = self.copy_outcome(curve, outcome);
        fit.points = 0;
        fit.dof = 0;
        fit.chi2 = outcome.chi2;
        if fit.status.is_success() && !fit.chi2.is_finite() {
            fit.set_status(Status::NotFinite);
        }
        let interior = self.problem(curve).interior_parameters(&fit.parameters);
        if interior.len() < curve.free_parameters().len() {
            fit.flags |= Flags::AT_BOUND;
        }
        // Held parameters have errors and covariances of 0, all others none.
        let count = curve.start.len();
        for p in (0..fit.errors.len()).filter(|&p| curve.lower[p] == curve.upper[p]) {
            fit.errors[p] = 0.0;
            for q in 0..count {
                fit.covariance[p * count + q] = 0.0;
                fit.covariance[q * count + p] = 0.0;
            }
        }
        fit
    }

    /// Returns a fit as not finite, with the failure as its message, if the curve's model has failed.
    fn add_model_failure(&self, curve: &Curve, mut fit: CurveFit) -> CurveFit {
        if let Some(failure) = self.failures.text(curve.index) {
            fit.status = Status::NotFinite;
            fit.message = failure;
            fit.errors.fill(f64::NAN);
            fit.covariance.fill(f64::NAN);
        }
        fit
    }

    /// Copies an outcome's status, counts and parameters into a result without χ² and errors.
    fn copy_outcome(&self, curve: &Curve, outcome: &Outcome) -> CurveFit {
        let mut fit = CurveFit::blank(curve.start.len());
        fit.set_status(outcome.status.unwrap_or(Status::Interrupted));
        fit.evaluations = outcome.evaluations;
        fit.rounds = if matches!(self.solver, CurveSolver::NelderMead(_)) {
            0
        } else {
            outcome.rounds
        };
        fit.parameters.clone_from(&outcome.parameters);
        fit.start.clone_from(&curve.start);
        fit.points = curve.unmasked_points;
        fit.dof = self.dof(curve.unmasked_points, curve.free_parameters().len());
        fit
    }

    /// Refines an outcome in f64, and computes χ², covariance, errors and flags.
    fn refine(&self, curve: &Curve, outcome: &Outcome) -> CurveFit {
        let count = curve.start.len();
        let mut fit = self.copy_outcome(curve, outcome);
        let problem = self.problem(curve);
        problem
            .linearisations_left
            .set(curve.budget.saturating_sub(fit.rounds));
        // 1. Without a linearisation on the host there is no more than the device's sums.
        if fit.status == Status::NotFinite {
            fit.message = self.explain_not_finite(&problem, &fit.parameters);
        }
        if self.model.needs_gpu() {
            self.finish_by_sums(curve, outcome, &problem, &mut fit);
            return fit;
        }
        let Some(mut linearisation) = problem.linearise(&fit.parameters) else {
            // A fit that ended at the edge of the model's range is no success without errors.
            if fit.status.is_success() {
                fit.set_status(Status::Stalled);
                fit.chi2 = outcome.chi2;
            }
            return fit;
        };
        // 2. Refine the end, and find out whether it is a minimum.
        let evaluations = self.refine_end(&problem, &mut fit, &mut linearisation);
        let mut undetermined = self.judge_end(&problem, &mut fit, &mut linearisation);
        // The first linearisation is that of the result, which is an evaluation but no round.
        fit.evaluations += 1 + evaluations + problem.cost_evaluations.get();
        fit.rounds += evaluations;
        fit.chi2 = linearisation.chi2;
        fit.set_criteria(curve.free_parameters().len(), self.estimator);
        let interior = problem.interior_parameters(&fit.parameters);
        fit.optimality = interior
            .iter()
            .map(|&p| linearisation.gradient[p].abs())
            .fold(0.0, f64::max);
        // 3. Compute covariance and errors.
        fit.covariance = problem.covariance(&linearisation, &fit.parameters);
        let variances: Vec<f64> = fit.covariance.iter().copied().step_by(count + 1).collect();
        let factor = self.variance_factor(self.cost(&fit), fit.dof, curve.rounding(f64::EPSILON));
        scale_covariance(&mut fit.covariance, factor);
        fit.errors = (0..count)
            .map(|p| fit.covariance[p * count + p].sqrt())
            .collect();
        // 4. Flag what the data do not determine, and refuse an end with a slope.
        undetermined.extend(problem.undetermined_parameters(
            &linearisation,
            &fit.parameters,
            &interior,
            &variances,
            factor,
        ));
        self.refuse_slope(&problem, &mut fit, &linearisation, &undetermined);
        self.set_flags(&mut fit, curve, &interior, undetermined);
        fit
    }

    /// Returns the covariance at an end, as [`refine`](Self::refine) computes it; `None` where the linearisation is not
    /// finite.
    pub(crate) fn covariance_at(&self, curve: &Curve, parameters: &[f64]) -> Option<Vec<f64>> {
        let problem = self.problem(curve);
        let linearisation = problem.linearise(parameters)?;
        let cost = linearisation.chi2 + self.penalty(parameters);
        let dof = self.dof(curve.unmasked_points, curve.free_parameters().len());
        let factor = self.variance_factor(cost, dof, curve.rounding(f64::EPSILON));
        let mut covariance = problem.covariance(&linearisation, parameters);
        scale_covariance(&mut covariance, factor);
        Some(covariance)
    }

    /// Flags a fit that has parameters at a bound, or undetermined ones: the given ones, and those of `interior` whose
    /// error is beyond f64's range.
    pub(crate) fn set_flags(
        &self,
        fit: &mut CurveFit,
        curve: &Curve,
        interior: &[usize],
        mut undetermined: Vec<usize>,
    ) {
        if interior.len() < curve.free_parameters().len() {
            fit.flags |= Flags::AT_BOUND;
        }
        undetermined.extend(
            interior
                .iter()
                .copied()
                .filter(|&p| fit.errors[p].is_infinite()),
        );
        undetermined.sort_unstable();
        undetermined.dedup();
        flag_undetermined(fit, &undetermined);
        if fit.status.is_success() && !undetermined.is_empty() {
            fit.message = self.undetermined_message(fit.status, &undetermined);
        }
    }

    /// Returns the message of a success whose data do not determine some parameters.
    pub(crate) fn undetermined_message(&self, status: Status, parameters: &[usize]) -> String {
        let names: Vec<&str> = parameters
            .iter()
            .map(|&p| self.model.parameters()[p].as_str())
            .collect();
        format!(
            "{}; the data do not determine {}",
            status_message(status),
            names.join(", ")
        )
    }

    /// Returns a message that says which value is not finite at a start, and at which point.
    fn explain_not_finite(&self, problem: &CurveProblem, parameters: &[f64]) -> String {
        let Curve {
            y, weight, scale, ..
        } = problem.curve;
        let Some(rows) = problem.evaluate_model(true, parameters, scale) else {
            return "the model, or a derivative, is not finite at the start".into();
        };
        let points = y.len();
        let unmasked = || (0..rows.len()).filter(|&i| weight[i % points] > 0.0);
        // 1. A value or a derivative is not finite.
        if let Some(i) = unmasked().find(|&i| !rows[i].is_finite()) {
            let quantity = match i / points {
                0 => "the model".into(),
                row => format!("the derivative by `{}`", self.model.parameters()[row - 1]),
            };
            return format!(
                "{quantity} is not finite at the start: {} at point {}",
                rows[i],
                i % points
            );
        }
        // 2. An expected count is not positive.
        if self.estimator.takes_counts()
            && let Some(j) = unmasked().find(|&i| i < points && rows[i] <= 0.0)
        {
            return format!(
                "the model is not positive at the start: {} at point {j}",
                rows[j]
            );
        }
        // 3. Otherwise a square overflows.
        let range = if self.device.inner.runs_wgsl() {
            "f32"
        } else {
            "f64"
        };
        format!(
            "at the start the model, a derivative or a square of theirs leaves the range of {range}"
        )
    }

    /// Returns the factor on covariances: 1, or `cost` / `dof` where sigma is relative (NaN without dof). The cost, χ²
    /// plus priors, counts as at least the data's `rounding`. The sandwich formula contains the scatter already.
    pub(crate) fn variance_factor(&self, cost: f64, dof: i64, rounding: f64) -> f64 {
        match dof {
            _ if !self.is_scaled() && !self.is_sandwich() => 1.0,
            // Nothing is left to measure the noise by.
            ..=0 => f64::NAN,
            // Priors do not measure the scatter of the data.
            dof if self.is_sandwich() && dof <= self.free_priors().count() as i64 => f64::NAN,
            _ if self.is_sandwich() => 1.0,
            dof => f64::max(cost, rounding) / dof as f64,
        }
    }
}
