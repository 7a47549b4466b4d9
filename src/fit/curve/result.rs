//! How one curve's fit ended, as scipy's users know it.

use super::CurveFitter;
use super::data::Curve;
use super::polish::{Factors, Problem};
use crate::fit::Solver;
use crate::solver::{Outcome, Status};

/// One curve's result. P is the number of parameters.
#[derive(Clone, Debug)]
pub struct CurveFit {
    /// scipy `least_squares`' codes, and popfit's own below 0.
    pub status: Status,
    /// The status in words, or the cause of a bad input.
    pub message: String,
    /// (P): NaN when the fit could not start.
    pub parameters: Vec<f64>,
    /// (P): square roots of the covariance's diagonal; 0 for held parameters, NaN for undetermined ones and those at a bound.
    pub errors: Vec<f64>,
    /// (P, P), row by row, at the solution.
    pub covariance: Vec<f64>,
    /// Σ ((y − model) / sigma)² over the points that are not masked, without priors.
    pub chi2: f64,
    /// Points that are not masked − free parameters.
    pub dof: i64,
    /// Evaluations of the model, and how many of them had derivatives.
    pub nfev: u32,
    pub njev: u32,
    /// Largest |Jᵀr| of a free parameter that is not at a bound: scipy's `optimality`.
    pub optimality: f64,
}

impl CurveFit {
    /// Poisoned: what is not written is seen.
    pub(super) fn blank(parameters: usize) -> CurveFit {
        CurveFit {
            status: Status::BadInput,
            message: String::new(),
            parameters: vec![f64::NAN; parameters],
            errors: vec![f64::NAN; parameters],
            covariance: vec![f64::NAN; parameters * parameters],
            chi2: f64::NAN,
            dof: 0,
            nfev: 0,
            njev: 0,
            optimality: f64::NAN,
        }
    }
}

fn message(status: Status) -> &'static str {
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

impl CurveFitter {
    /// Refines an outcome and takes its errors from the rows in f64.
    pub(super) fn finish(&self, curve: &Curve, outcome: &Outcome) -> CurveFit {
        let count = curve.start.len();
        let mut fit = CurveFit::blank(count);
        fit.status = outcome.status.unwrap_or(Status::Interrupted);
        fit.message = message(fit.status).into();
        fit.nfev = outcome.evaluations;
        fit.njev = if matches!(self.solver, Solver::NelderMead(_)) { 0 } else { outcome.rounds };
        fit.parameters.clone_from(&outcome.parameters);
        fit.dof = curve.used as i64 - curve.free().len() as i64;
        let problem = Problem { model: &self.model, curve, priors: &self.priors };
        if self.model.needs_gpu() {
            self.finish_by_sums(curve, outcome, &problem, &mut fit);
            return fit;
        }
        let Some(mut rows) = problem.rows(&fit.parameters) else { return fit };
        let mut evaluations = 1;
        if self.polish && fit.status.is_success() && !matches!(self.solver, Solver::NelderMead(_)) {
            evaluations += problem.refine(&mut fit.parameters, &mut rows);
        }
        fit.nfev += evaluations;
        fit.njev += evaluations;
        fit.chi2 = rows.chi2;
        let inside = problem.inside(&fit.parameters);
        fit.optimality = inside.iter().map(|&p| rows.gradient[p].abs()).fold(0.0, f64::max);
        let at_bound: Vec<usize> = curve.free().into_iter().filter(|p| !inside.contains(p)).collect();
        fit.covariance = match Factors::new(&rows, &inside) {
            Some(factors) => factors.covariance(count),
            None => vec![0.0; count * count],
        };
        let factor = self.variance_factor(&fit);
        for p in at_bound {
            (0..count)
                .for_each(|q| (fit.covariance[p * count + q], fit.covariance[q * count + p]) = (f64::NAN, f64::NAN));
        }
        // held parameters have none, whatever the factor
        fit.covariance.iter_mut().filter(|c| **c != 0.0).for_each(|c| *c *= factor);
        fit.errors = (0..count).map(|p| fit.covariance[p * count + p].sqrt()).collect();
        fit
    }

    /// By what covariances are multiplied: 1, or χ²/dof where sigma is not known.
    pub(super) fn variance_factor(&self, fit: &CurveFit) -> f64 {
        match (self.absolute_sigma, fit.dof) {
            (true, _) => 1.0,
            // nothing is left to tell the noise from
            (false, ..=0) => f64::NAN,
            (false, dof) => fit.chi2 / dof as f64,
        }
    }
}
