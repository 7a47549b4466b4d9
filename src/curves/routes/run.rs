//! A run of fits of curves: its checked settings, and what follows from them.

use std::cell::Cell;
use std::sync::Arc;

use crate::curve_model::{CurveModel, Failures};
use crate::curves::ends::polish::CurveProblem;
use crate::curves::input::data::{Curve, ParameterPrior, ParameterSettings};
use crate::curves::input::units;
use crate::curves::routes::objective::{self, Design};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::formula::ParameterTie;
use crate::solver::{Estimator, LevenbergMarquardt, NelderMead};
use crate::suggest::hint;

/// Maximum number of linearisations of an attempt at a fit, unless the user has set that of the fit.
const ROUNDS_PER_ATTEMPT: u32 = 500;

/// Solver of curves: a [`Solver`](crate::Solver) without the simplex after Levenberg–Marquardt, which is for spectra.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CurveSolver {
    Lm(LevenbergMarquardt),
    NelderMead(NelderMead),
}

/// A fitter whose settings have been checked, with one entry per parameter.
#[derive(Clone, Debug)]
pub(crate) struct CurveRun {
    pub(crate) model: CurveModel,
    pub(crate) device: Device,
    pub(crate) solver: CurveSolver,
    pub(crate) lower: Vec<f64>,
    pub(crate) upper: Vec<f64>,
    pub(crate) held: Vec<bool>,
    pub(crate) priors: Vec<Option<ParameterPrior>>,
    pub(crate) ties: Vec<ParameterTie>,
    /// Number of starts of each curve.
    pub(crate) starts: u32,
    pub(crate) estimator: Estimator,
    pub(crate) absolute_sigma: bool,
    pub(crate) sandwich_errors: bool,
    pub(crate) polish: bool,
    /// True if columns are fitted to the solver's tolerances, too.
    pub(crate) exact: bool,
    pub(crate) covariance: bool,
    pub(crate) max_memory: Option<u64>,
    pub(crate) cpu_fallback: Option<bool>,
    /// Failures of the model, by fit.
    pub(crate) failures: Arc<Failures>,
}

impl CurveRun {
    /// Returns the finite number, in the solver's units, that stands for an infinite bound on this device.
    pub(crate) fn infinite_bound(&self) -> f64 {
        if self.device.inner.runs_wgsl() {
            objective::INFINITE_BOUND_IN_F32
        } else {
            objective::INFINITE_BOUND_IN_F64
        }
    }

    /// Returns the maximum number of linearisations of all attempts at a curve's fit together. Simplices have limits of
    /// their own.
    pub(crate) fn budget(&self) -> u32 {
        match self.solver {
            CurveSolver::Lm(settings) => settings.max_rounds,
            CurveSolver::NelderMead(_) => u32::MAX,
        }
    }

    /// Returns the maximum number of linearisations of one attempt: all of them, if the user has set the maximum.
    pub(crate) fn rounds_per_attempt(&self) -> u32 {
        match self.solver {
            CurveSolver::Lm(settings) if !settings.has_max_rounds() => {
                self.budget().min(ROUNDS_PER_ATTEMPT)
            }
            _ => self.budget(),
        }
    }

    /// Joins a curve with the run's model, priors and estimator, to compute its cost and derivatives on the host.
    pub(crate) fn problem<'a>(&'a self, curve: &'a Curve) -> CurveProblem<'a> {
        CurveProblem {
            model: &self.model,
            curve,
            priors: &self.priors,
            estimator: self.estimator,
            failures: &self.failures,
            is_sandwich: self.is_sandwich(),
            cost_evaluations: Cell::new(0),
            linearisations_left: Cell::new(curve.budget),
        }
    }

    /// Returns the model, estimator and options from which the objectives of populations are made.
    pub(crate) fn design(&self) -> Design {
        Design {
            model: self.model.clone(),
            estimator: self.estimator,
            is_scaled: self.is_scaled(),
            is_tagged: self.model.is_users_rust() && !self.device.inner.runs_wgsl(),
            failures: self.failures.clone(),
        }
    }

    /// Returns whether covariances are multiplied by χ²/dof: unless sigma is absolute, or the estimator's errors are.
    pub(crate) fn is_scaled(&self) -> bool {
        !self.absolute_sigma && !self.estimator.has_absolute_errors()
    }

    /// Returns whether errors are those of the sandwich formula, which the scatter of the residuals scales by itself.
    /// Models of WGSL alone have no residuals on the host.
    pub(crate) fn is_sandwich(&self) -> bool {
        self.sandwich_errors && self.estimator.is_robust() && !self.model.needs_gpu()
    }

    /// Returns index and prior of each parameter that has a prior and is not fixed.
    pub(crate) fn free_priors(&self) -> impl Iterator<Item = (usize, ParameterPrior)> + '_ {
        self.priors
            .iter()
            .enumerate()
            .filter(|(p, _)| !self.held[*p])
            .filter_map(|(p, prior)| prior.map(|prior| (p, prior)))
    }

    /// Returns Σ ((mean − parameter) / sigma)² over the priors of parameters that are not fixed.
    pub(crate) fn penalty(&self, parameters: &[f64]) -> f64 {
        self.free_priors()
            .map(|(p, prior)| ((prior.mean - parameters[p]) / prior.sigma).powi(2))
            .sum()
    }

    /// Returns the degrees of freedom: `points` and the priors of parameters that are not fixed, less `free`
    /// parameters.
    pub(crate) fn dof(&self, points: usize, free: usize) -> i64 {
        (points + self.free_priors().count()) as i64 - free as i64
    }

    /// Returns the function that makes a parameter's unit, a power of two, from its start.
    pub(crate) fn unit_rounding(&self) -> fn(f64) -> f64 {
        if self.device.inner.runs_wgsl() {
            units::unit_in_f32
        } else {
            units::unit_in_f64
        }
    }

    /// Returns whether all weighted residuals may be multiplied by one factor: costs are only compared with each other,
    /// and nothing is added to them.
    pub(crate) fn may_scale_rows(&self) -> bool {
        let tolerances_are_relative = matches!(self.solver, CurveSolver::Lm(_)) || self.is_scaled();
        tolerances_are_relative
            && self.estimator.is_least_squares()
            && self.priors.iter().all(Option::is_none)
    }

    /// Returns the settings with which each curve's data are checked and prepared: names, bounds, priors, estimator.
    pub(crate) fn settings(&self) -> ParameterSettings<'_> {
        ParameterSettings {
            names: self.model.parameters(),
            lower: &self.lower,
            upper: &self.upper,
            held: &self.held,
            priors: &self.priors,
            predictors: self.model.predictors(),
            estimator: self.estimator,
            budget: self.budget(),
            round: self.unit_rounding(),
        }
    }

    /// Returns the index of the parameter of this name, or a usage error if there is none.
    pub(crate) fn parameter_index(&self, parameter: &str) -> Result<usize> {
        let names = self.model.parameters();
        names
            .iter()
            .position(|name| name == parameter)
            .ok_or_else(|| {
                let hint = hint(parameter, names.iter().map(String::as_str));
                Error::Usage(format!("no parameter `{parameter}`{hint}"))
            })
    }
}
