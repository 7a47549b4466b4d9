//! The settings of a fitter, checked together when a fit begins.

use std::sync::Arc;

use crate::curves::fitter::{CurveFitter, Named};
use crate::curves::input::data::{ParameterBounds, ParameterPrior};
use crate::curves::{CurveRun, CurveSolver};
use crate::device::{Choice, Device};
use crate::error::{Error, InvalidSetting, Result};
use crate::formula::{ParameterTie, Ties};
use crate::solver::{Estimator, LevenbergMarquardt, MOST_STARTS, NelderMead, Solver};
use crate::suggest::hint;

/// Maximum number of parameters of a curve's fit.
const MAX_CURVE_PARAMETERS: usize = 32;

/// Faults of settings that have been found.
struct SettingFaults<'a> {
    names: &'a [String],
    found: Vec<InvalidSetting>,
}

impl SettingFaults<'_> {
    /// Adds a fault of this setting, with a message, to the faults found.
    fn add(&mut self, setting: &str, message: impl Into<String>) {
        self.found.push(InvalidSetting::new(setting, message));
    }

    /// Returns the index of a parameter, or adds the fault that there is none of this name.
    fn parameter(&mut self, setting: &str, name: &str) -> Option<usize> {
        let index = self
            .names
            .iter()
            .position(|parameter_name| parameter_name == name);
        if index.is_none() {
            let hint = hint(name, self.names.iter().map(String::as_str));
            self.add(setting, format!("there is no parameter `{name}`{hint}"));
        }
        index
    }
}

impl CurveFitter {
    /// Returns the fitter's settings with one entry per parameter, or [`Error::InvalidSettings`] with every fault.
    pub(crate) fn make_run(&self) -> Result<CurveRun> {
        self.make_run_for(true)
    }

    /// Returns the same settings for an optimiser other than popfit's, so that the solver need not suit the model.
    pub(crate) fn make_run_without_solver(&self) -> Result<CurveRun> {
        self.make_run_for(false)
    }

    /// Returns the settings with one entry per parameter, or every fault; only with `own_solver` must the solver suit
    /// the model.
    fn make_run_for(&self, own_solver: bool) -> Result<CurveRun> {
        let count = self.model.parameters().len();
        let mut faults = SettingFaults {
            names: self.model.parameters(),
            found: Vec::new(),
        };
        if count > MAX_CURVE_PARAMETERS {
            let message = format!(
                "it has {count} parameters, more than {MAX_CURVE_PARAMETERS}: make constants of some"
            );
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
            starts: self.checked_starts(&mut faults),
            estimator: self.estimator,
            absolute_sigma: self.absolute_sigma,
            sandwich_errors: self.sandwich_errors,
            polish: self.polish,
            exact: self.exact,
            covariance: self.covariance,
            max_memory: self.max_memory,
            cpu_fallback: self.cpu_fallback,
            failures: Arc::default(),
        };
        faults.found.extend(self.estimator.fault());
        let threads = self.control.threads;
        faults
            .found
            .extend(threads.and_then(crate::threads::thread_fault));
        self.set_cost(&mut run, &mut faults, own_solver);
        self.set_limits(&mut run, &mut faults);
        self.set_priors(&mut run, &mut faults);
        self.set_ties(&mut run, &mut faults);
        InvalidSetting::none_of(faults.found)?;
        Ok(run)
    }

    /// Returns the user's device; the CPU, if the model runs there, where popfit chose a GPU that cannot run the model,
    /// or chose between the two: for curves the CPU is faster.
    fn usable_device(&self, faults: &mut SettingFaults) -> Device {
        let fault = self.model.device_fault(self.device.inner.runs_wgsl());
        let may_use_cpu =
            self.device.choice == Choice::Auto || self.device.is_chosen() && fault.is_some();
        if may_use_cpu && self.model.device_fault(false).is_none() {
            return Device::cpu();
        }
        if let Some(message) = fault {
            faults.add("device", message);
        }
        self.device.clone()
    }

    /// Returns the number of starts of each curve; one that is out of range becomes a fault.
    fn checked_starts(&self, faults: &mut SettingFaults) -> u32 {
        if !(1..=MOST_STARTS).contains(&self.starts) {
            faults.add(
                "starts",
                format!("{} are not between 1 and {MOST_STARTS}", self.starts),
            );
        }
        self.starts as u32
    }

    /// Returns the solver as curves use it, and adds the faults of its settings to `faults`.
    fn checked_solver(&self, faults: &mut SettingFaults) -> CurveSolver {
        match self.solver {
            Solver::LevenbergMarquardt(lm) => {
                faults.found.extend(lm.faults());
                CurveSolver::Lm(lm.or(LevenbergMarquardt::OF_CURVES))
            }
            Solver::NelderMead(simplex) => {
                faults.found.extend(simplex.faults());
                CurveSolver::NelderMead(simplex.or(NelderMead::OF_CURVES))
            }
            Solver::LevenbergMarquardtThenNelderMead(lm, _) => {
                faults.add(
                    "solver",
                    "lm+nelder-mead fits spectra only; for curves choose lm or nelder-mead",
                );
                CurveSolver::Lm(lm)
            }
        }
    }

    /// Sets the run's estimator if the model is a cost, and adds faults where model, estimator and solver do not agree.
    fn set_cost(&self, run: &mut CurveRun, faults: &mut SettingFaults, own_solver: bool) {
        if !self.model.is_cost() {
            if self.estimator.is_cost() {
                faults.add(
                    "estimator",
                    "the model is no cost: make one with Closure::cost",
                );
            }
            return;
        }
        if !self.estimator.is_least_squares() {
            faults.add(
                "estimator",
                "a cost is minimised as it is: leave the estimator out",
            );
        }
        if own_solver && matches!(run.solver, CurveSolver::Lm(_)) {
            let message = "a cost has no residuals for Levenberg-Marquardt: take NelderMead (CurveFitter::NELDER_MEAD)";
            faults.add("solver", message);
        }
        run.estimator = Estimator::Cost;
    }

    /// Copies the fitter's bounds and fixed parameters into the run, and adds faults for bad bounds and unknown names.
    fn set_limits(&self, run: &mut CurveRun, faults: &mut SettingFaults) {
        for Named { parameter, value } in &self.bounds {
            let ParameterBounds { lower, upper } = *value;
            let Some(p) = faults.parameter("bounds", parameter) else {
                continue;
            };
            if lower.is_nan() || upper.is_nan() {
                let remedy = "a bound is a number, or infinite where there is none";
                faults.add(
                    "bounds",
                    format!("`{parameter}` from {lower} to {upper}: {remedy}"),
                );
            } else if lower > upper {
                faults.add(
                    "bounds",
                    format!("`{parameter}` from {lower} to {upper}: exchange them"),
                );
            }
            run.lower[p] = lower;
            run.upper[p] = upper;
        }
        for parameter in &self.fixed {
            if let Some(p) = faults.parameter("fix", parameter) {
                run.held[p] = true;
            }
        }
    }

    /// Checks the fitter's priors and puts them into the run; bad ones become faults.
    fn set_priors(&self, run: &mut CurveRun, faults: &mut SettingFaults) {
        for Named { parameter, value } in &self.priors {
            let Some(p) = faults.parameter("prior", parameter) else {
                continue;
            };
            let ParameterPrior { mean, sigma } = *value;
            if !(mean.is_finite() && sigma.is_finite() && sigma > 0.0) {
                let remedy = "both must be finite, and sigma positive";
                faults.add(
                    "prior",
                    format!("`{parameter}` with mean {mean} and sigma {sigma}: {remedy}"),
                );
            }
            run.priors[p] = Some(*value);
        }
    }

    /// Copies the fitter's ties into the run, and adds faults for bad expressions and for parameters that cannot be
    /// tied. Each is checked by itself, then all together.
    fn set_ties(&self, run: &mut CurveRun, faults: &mut SettingFaults) {
        let faults_before = faults.found.len();
        // 1. Check each tie by itself.
        for Named { parameter, value } in &self.ties {
            let Some(p) = faults.parameter("tie", parameter) else {
                continue;
            };
            if let Some(first) = run.ties.iter().find(|tie| tie.parameter == p) {
                faults.add(
                    "tie",
                    format!(
                        "`{parameter}` is tied twice: it is `{}` already",
                        first.expression
                    ),
                );
                continue;
            }
            let is_bounded = run.lower[p] > f64::NEG_INFINITY || run.upper[p] < f64::INFINITY;
            if is_bounded || run.held[p] || run.priors[p].is_some() {
                faults.add(
                    "tie",
                    format!("`{parameter}` has bounds, a prior or is fixed: it cannot be tied"),
                );
            }
            let tie = ParameterTie {
                parameter: p,
                expression: value.clone(),
            };
            if let Err(error) = run.substitute(std::slice::from_ref(&tie)) {
                faults.add("tie", error.to_string());
            }
            run.ties.push(tie);
        }
        // 2. Check all of them together.
        if faults.found.len() == faults_before
            && !run.ties.is_empty()
            && let Err(error) = run.substitute(&run.ties)
        {
            faults.add("tie", error.to_string());
        }
    }
}

impl CurveRun {
    /// Returns the model's formula with some tied parameters replaced by their expressions.
    pub(crate) fn substitute(&self, ties: &[ParameterTie]) -> Result<Ties> {
        let Some(formula) = self.model.formula() else {
            return Err(Error::Usage(
                "a tie is put into a formula: this model is none".into(),
            ));
        };
        Ties::new(formula, ties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve_model::{Closure, CurveModel};
    use crate::recording::Recording;
    use crate::solver::{self, Population};

    /// A GPU that is never asked for a fit.
    struct Gpu;

    impl solver::Backend for Gpu {
        fn name(&self) -> String {
            "gpu".into()
        }

        fn runs_wgsl(&self) -> bool {
            true
        }

        fn capacity(&self, _: &Recording, _: Option<u64>) -> Result<usize> {
            Ok(1)
        }

        fn population(
            &self,
            _: Arc<Recording>,
            _: &LevenbergMarquardt,
            _: usize,
        ) -> Result<Box<dyn Population>> {
            Err(Error::Usage("no fit is made here".into()))
        }
    }

    /// A closure runs on the CPU where popfit chose the GPU, and is refused where the user did; a formula runs on the
    /// CPU for `auto`, and on the GPUs for `all`.
    #[test]
    fn a_chosen_gpu_gives_way_to_the_cpu() {
        let closure = || Closure::new(&["x"], &["a"], |_, p, y| y.fill(p[0])).unwrap();
        let [named, auto, all] = [Choice::Named, Choice::Auto, Choice::All].map(|choice| {
            let mut device = Device::from_single(Gpu);
            device.choice = choice;
            device
        });
        let Err(Error::InvalidSettings { faults }) =
            CurveFitter::new(closure(), named.clone()).validate()
        else {
            panic!("a closure on a GPU")
        };
        assert!(
            faults[0].name == "device" && faults[0].message.contains("Device::cpu()"),
            "{faults:?}"
        );
        let name = |model: CurveModel, device: &Device| {
            CurveFitter::new(model, device.clone())
                .make_run()
                .unwrap()
                .device
                .name()
        };
        let formula = || crate::Formula::parse("a*x").unwrap();
        for (model, device, expected) in [
            (closure().into(), &auto, Device::cpu().name()),
            (closure().into(), &all, Device::cpu().name()),
            (formula().into(), &auto, Device::cpu().name()),
            (formula().into(), &all, "gpu".into()),
            (formula().into(), &named, "gpu".into()),
        ] {
            assert_eq!(name(model, device), expected);
        }
    }
}
