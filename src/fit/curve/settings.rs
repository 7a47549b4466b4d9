//! The settings of a fitter, checked together when a fit begins.

use super::fitter::{CurveFitter, Named};
use super::{CurveRun, CurveSolver};
use crate::error::{Error, InvalidSetting, Result};
use crate::fit::{Device, Solver};
use crate::formula::Ties;
use crate::suggest::hint;

/// Most parameters that a step solves for.
const MOST_PARAMETERS: usize = 32;

/// Faults found so far.
struct Faults<'a> {
    names: &'a [String],
    found: Vec<InvalidSetting>,
}

impl Faults<'_> {
    fn add(&mut self, setting: &str, message: impl Into<String>) {
        self.found.push(InvalidSetting::new(setting, message));
    }

    /// Returns the number of a parameter, or notes that there is none of this name.
    fn parameter(&mut self, setting: &str, name: &str) -> Option<usize> {
        let number = self.names.iter().position(|known| known == name);
        if number.is_none() {
            let hint = hint(name, self.names.iter().map(String::as_str));
            self.add(setting, format!("there is no parameter `{name}`{hint}"));
        }
        number
    }
}

impl CurveFitter {
    /// Returns the fitter's settings with one entry per parameter, or [`Error::InvalidSettings`] with every fault.
    pub(super) fn checked(&self) -> Result<CurveRun> {
        let count = self.model.parameters().len();
        let mut faults = Faults { names: self.model.parameters(), found: Vec::new() };
        if count > MOST_PARAMETERS {
            let message = format!("it has {count} parameters, more than {MOST_PARAMETERS}: make constants of some");
            faults.add("model", message);
        }
        let mut run = CurveRun {
            model: self.model.clone(),
            device: self.usable_device(&mut faults),
            solver: self.checked_solver(&mut faults),
            lower: vec![f64::NEG_INFINITY; count],
            upper: vec![f64::INFINITY; count],
            held: vec![false; count],
            priors: vec![None; count],
            ties: Vec::new(),
            estimator: self.estimator,
            absolute_sigma: self.absolute_sigma,
            polish: self.polish,
            max_memory: self.max_memory,
            cpu_fallback: self.cpu_fallback,
        };
        faults.found.extend(self.estimator.fault());
        self.set_limits(&mut run, &mut faults);
        self.set_priors(&mut run, &mut faults);
        self.set_ties(&mut run, &mut faults);
        InvalidSetting::none_of(faults.found)?;
        Ok(run)
    }

    /// Returns the user's device, or the CPU where popfit chose a GPU that cannot run the model.
    fn usable_device(&self, faults: &mut Faults) -> Device {
        let fault = self.model.device_fault(self.device.inner.runs_wgsl());
        if fault.is_some() && self.device.is_chosen && self.model.device_fault(false).is_none() {
            return Device::cpu();
        }
        if let Some(message) = fault {
            faults.add("device", message);
        }
        self.device.clone()
    }

    fn checked_solver(&self, faults: &mut Faults) -> CurveSolver {
        match self.solver {
            Solver::LevenbergMarquardt(lm) => {
                faults.found.extend(lm.faults());
                CurveSolver::Lm(lm)
            }
            Solver::NelderMead(simplex) => {
                faults.found.extend(simplex.faults());
                CurveSolver::NelderMead(simplex)
            }
            Solver::LevenbergMarquardtThenNelderMead(lm, _) => {
                faults.add("solver", "lm+nelder-mead fits spectra only; for curves choose lm or nelder-mead");
                CurveSolver::Lm(lm)
            }
        }
    }

    /// Sets bounds and fixed parameters.
    fn set_limits(&self, run: &mut CurveRun, faults: &mut Faults) {
        for Named { parameter, value } in &self.bounds {
            let (lower, upper) = (value.lower, value.upper);
            let Some(p) = faults.parameter("bounds", parameter) else { continue };
            if lower.is_nan() || upper.is_nan() {
                let remedy = "a bound is a number, or infinite where there is none";
                faults.add("bounds", format!("`{parameter}` from {lower} to {upper}: {remedy}"));
            } else if lower > upper {
                faults.add("bounds", format!("`{parameter}` from {lower} to {upper}: exchange them"));
            }
            (run.lower[p], run.upper[p]) = (lower, upper);
        }
        for parameter in &self.fixed {
            if let Some(p) = faults.parameter("fix", parameter) {
                run.held[p] = true;
            }
        }
    }

    fn set_priors(&self, run: &mut CurveRun, faults: &mut Faults) {
        for Named { parameter, value } in &self.priors {
            let Some(p) = faults.parameter("prior", parameter) else { continue };
            let (mean, sigma) = (value.mean, value.sigma);
            if !(mean.is_finite() && sigma.is_finite() && sigma > 0.0) {
                let remedy = "both must be finite, and sigma positive";
                faults.add("prior", format!("`{parameter}` with mean {mean} and sigma {sigma}: {remedy}"));
            }
            run.priors[p] = Some(*value);
        }
    }

    /// Sets the ties. Each is looked at alone, then all together.
    fn set_ties(&self, run: &mut CurveRun, faults: &mut Faults) {
        let before = faults.found.len();
        for Named { parameter, value } in &self.ties {
            let Some(p) = faults.parameter("tie", parameter) else { continue };
            if let Some((_, first)) = run.ties.iter().find(|tie| tie.0 == p) {
                faults.add("tie", format!("`{parameter}` is tied twice: it is `{first}` already"));
                continue;
            }
            let bounded = run.lower[p] > f64::NEG_INFINITY || run.upper[p] < f64::INFINITY;
            if bounded || run.held[p] || run.priors[p].is_some() {
                faults.add("tie", format!("`{parameter}` has bounds, a prior or is fixed: it cannot be tied"));
            }
            let tie = (p, value.clone());
            if let Err(error) = run.substitute(std::slice::from_ref(&tie)) {
                faults.add("tie", error.to_string());
            }
            run.ties.push(tie);
        }
        if faults.found.len() == before
            && !run.ties.is_empty()
            && let Err(error) = run.substitute(&run.ties)
        {
            faults.add("tie", error.to_string());
        }
    }
}

impl CurveRun {
    /// Returns the formula without some tied parameters.
    pub(super) fn substitute(&self, ties: &[(usize, String)]) -> Result<Ties> {
        let missing = || Error::Usage("a tie is put into a formula: this model is none".into());
        Ties::new(self.model.formula().ok_or_else(missing)?, ties)
    }
}
