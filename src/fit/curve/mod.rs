//! Many similar small problems of one model: the general optimiser. `passage.rs` is the way of whole fits, `passes.rs`
//! that of populations.
//!
//! Fits step in parameters divided by the power of two nearest their starts, so that scaling rounds nothing
//! (`units.rs`). The damping has a floor relative to the largest diagonal element, and steps have a largest length: a
//! parameter on which the model hardly depends at the start would otherwise be thrown far away. Results of
//! Levenberg–Marquardt are refined on the host in f64 (`polish.rs`, `factors.rs`), and covariances come from there.
//! What GPUs do not take whole the CPU does.

mod begin;
mod check;
mod columns;
mod data;
mod factors;
mod fitter;
mod interval;
mod objective;
mod passage;
mod passes;
mod plateau;
mod polish;
mod redo;
mod report;
mod result;
mod search;
mod settings;
mod sizes;
mod sums;
mod task;
mod tie;
mod twin;
mod units;
mod watch;
mod witness;

use std::cell::Cell;
use std::sync::Arc;

use rayon::prelude::*;

use self::data::{Curve, Grid, Prior, Settings};
use self::objective::Design;
use self::passes::Passes;
use self::polish::Problem;
use self::watch::Watch;
use super::Device;
use crate::curve_model::{CurveModel, Failures};
use crate::error::{Error, Result};
use crate::formula::Tie;
use crate::solver::{Estimator, LevenbergMarquardt, NelderMead, Outcome, Status};
use crate::suggest::hint;

pub use columns::CurveColumns;
pub use data::Curves;
pub use fitter::CurveFitter;
pub use interval::Interval;
pub use result::CurveFit;

/// Solver of curves: a [`Solver`](super::Solver) without the simplex after Levenberg–Marquardt, which is for spectra.
#[derive(Clone, Copy, Debug)]
enum CurveSolver {
    Lm(LevenbergMarquardt),
    NelderMead(NelderMead),
}

/// A fitter whose settings have been checked, with one entry per parameter.
#[derive(Clone, Debug)]
struct CurveRun {
    model: CurveModel,
    device: Device,
    solver: CurveSolver,
    lower: Vec<f64>,
    upper: Vec<f64>,
    held: Vec<bool>,
    priors: Vec<Option<Prior>>,
    ties: Vec<Tie>,
    estimator: Estimator,
    absolute_sigma: bool,
    polish: bool,
    covariance: bool,
    max_memory: Option<u64>,
    cpu_fallback: Option<bool>,
    /// Failures of the model, by fit.
    failures: Arc<Failures>,
}

impl CurveRun {
    /// Fits all curves, with another attempt if the device fails. Returns one result per curve, in their order.
    fn fit(&self, curves: &Curves, watch: &Watch) -> Result<Vec<CurveFit>> {
        self.with_attempts(watch, |run| run.fit_here(curves, watch))
    }

    /// Fits all curves on this device, in a single attempt.
    fn fit_here(&self, curves: &Curves, watch: &Watch) -> Result<Vec<CurveFit>> {
        if !self.ties.is_empty() {
            return self.fit_tied(curves, watch);
        }
        let settings = self.settings();
        let (total, points) = curves.shape(settings.predictors, settings.names)?;
        curves.check_estimator(self.estimator)?;
        let whole = self.fit_whole(curves, total, points, watch)?;
        let outcome = |index| whole.as_ref().and_then(|columns| columns.outcome(index));
        let first = |index| self.finish_whole(curves.curve(index, points, &settings), outcome(index), watch);
        let (mut fits, left): (Vec<CurveFit>, Vec<Option<Curve>>) = (0..total).into_par_iter().map(first).unzip();
        let ready: Vec<Curve> = left.into_iter().flatten().collect();
        self.fit_each(curves.grid, points, ready, watch, &mut |index, fit| {
            watch.end(&fit);
            fits[index] = fit;
        })?;
        Ok(fits)
    }

    /// Finishes a curve whose whole fit has the `outcome`, and returns its fit. Also returns the curve, with a blank
    /// fit, if a population has to fit it.
    fn finish_whole(
        &self,
        curve: Result<Curve, String>,
        outcome: Option<Outcome>,
        watch: &Watch,
    ) -> (CurveFit, Option<Curve>) {
        let blank = || CurveFit::blank(self.held.len());
        match (curve, outcome) {
            (Ok(curve), Some(outcome)) if watch.is_stopped() => (self.interrupted(&curve, &outcome), None),
            (Ok(curve), Some(outcome)) => {
                let fit = self.finish(&curve, &outcome);
                if !fit.status.is_success() {
                    return (blank(), Some(curve));
                }
                watch.end(&fit);
                (fit, None)
            }
            (Ok(curve), None) => (blank(), Some(curve)),
            (Err(cause), _) => {
                watch.add(1);
                (CurveFit { message: cause, ..blank() }, None)
            }
        }
    }

    /// Fits curves through populations, first on this device and then on the host. Calls `done` with the index and the
    /// fit of each.
    fn fit_each(
        &self,
        grid: Grid,
        points: usize,
        mut ready: Vec<Curve>,
        watch: &Watch,
        done: &mut dyn FnMut(usize, CurveFit),
    ) -> Result<()> {
        if ready.is_empty() {
            return Ok(());
        }
        if watch.is_stopped() {
            ready.iter().for_each(|curve| done(curve.index, self.not_begun(curve)));
            return Ok(());
        }
        ready.par_iter_mut().for_each(|curve| self.measure(curve));
        let in_range = |curve: &Curve| !self.device.inner.runs_wgsl() || begin::suits_f32(curve);
        let (ready, mut left): (Vec<Curve>, Vec<Curve>) = ready.into_iter().partition(in_range);
        // the host fits what f32 does not bring to a good end, and refines the others
        let is_refined = self.polish && self.device.inner.runs_wgsl() && !self.model.needs_gpu();
        if !is_refined {
            let message = "bad_scale: f32 does not hold y, y over sigma or x: other units, less an offset, or polish";
            let refused = || CurveFit { message: message.into(), ..CurveFit::blank(self.held.len()) };
            left.drain(..).for_each(|curve| done(curve.index, refused()));
        }
        ready.first().map_or(Ok(()), |first| self.check_twin(first))?;
        left.extend(self.pass(grid, points, ready, is_refined, watch, done)?);
        left.iter_mut().for_each(|curve| curve.restart(units::wide_scale));
        CurveRun { device: Device::cpu(), ..self.clone() }.fit_each(grid, points, left, watch, done)
    }

    /// Fits curves through this device's populations. Where the host `refines`, returns the curves without success.
    fn pass(
        &self,
        grid: Grid,
        points: usize,
        ready: Vec<Curve>,
        refines: bool,
        watch: &Watch,
        done: &mut dyn FnMut(usize, CurveFit),
    ) -> Result<Vec<Curve>> {
        if ready.is_empty() {
            return Ok(ready);
        }
        let mut failed = vec![false; ready.len()];
        let mut passes = Passes::new(self, grid, points, ready.len())?;
        for (some, failed) in ready.chunks(passes.capacity).zip(failed.chunks_mut(passes.capacity)) {
            if watch.is_stopped() {
                some.iter().for_each(|curve| done(curve.index, self.not_begun(curve)));
                continue;
            }
            let outcomes = passes.solve(some, watch)?;
            let fits: Vec<CurveFit> =
                some.par_iter().zip(&outcomes).map(|(curve, outcome)| self.finish(curve, outcome)).collect();
            for ((curve, fit), failed) in some.iter().zip(fits).zip(failed) {
                // f64 may find a minimum where f32 does not
                let is_open = !fit.status.is_success() || self.has_poorly_determined(curve, &fit);
                *failed = refines && is_open && fit.status != Status::Interrupted;
                if !*failed {
                    done(curve.index, fit);
                }
            }
        }
        Ok(ready.into_iter().zip(failed).filter_map(|(curve, failed)| failed.then_some(curve)).collect())
    }

    /// Sets the first point of a curve's fit, its units and the factor of its rows.
    fn measure(&self, curve: &mut Curve) {
        // data say nothing of the parameters of a cost
        if self.estimator == Estimator::Cost {
            return;
        }
        if let Some((begin, scale)) = begin::prepare(&self.problem(curve), self.round()) {
            (curve.begin, curve.scale) = (begin, scale);
        }
        if self.may_gain() {
            curve.gain = begin::gain(&self.problem(curve), self.device.inner.runs_wgsl());
        }
    }

    /// Returns whether the data seem not to determine a parameter: f32 may have lost what f64 sees.
    fn has_poorly_determined(&self, curve: &Curve, fit: &CurveFit) -> bool {
        let tells = !self.is_scaled() || fit.dof > 0;
        tells && !result::poorly_determined(fit, curve, &self.problem(curve).inside(&fit.parameters)).is_empty()
    }

    /// Returns the bound that stands for no bound, in units of the parameters.
    fn far(&self) -> f64 {
        if self.device.inner.runs_wgsl() { objective::FAR } else { objective::FARTHEST }
    }

    /// Returns the problem of a curve, for the steps on the host.
    fn problem<'a>(&'a self, curve: &'a Curve) -> Problem<'a> {
        Problem {
            model: &self.model,
            curve,
            priors: &self.priors,
            estimator: self.estimator,
            failures: &self.failures,
            costs: Cell::new(0),
        }
    }

    /// Returns the objective of populations.
    fn design(&self) -> Design {
        Design {
            model: self.model.clone(),
            estimator: self.estimator,
            is_scaled: self.is_scaled(),
            is_tagged: self.model.is_users_rust() && !self.device.inner.runs_wgsl(),
            failures: self.failures.clone(),
        }
    }

    /// Returns whether covariances are multiplied by χ²/dof. The scatter of counts is known, and a cost has none.
    fn is_scaled(&self) -> bool {
        !self.absolute_sigma && !matches!(self.estimator, Estimator::Poisson | Estimator::Cost)
    }

    /// Returns the priors of parameters that are not fixed.
    fn free_priors(&self) -> impl Iterator<Item = (usize, Prior)> + '_ {
        let all = self.priors.iter().enumerate().filter(|(p, _)| !self.held[*p]);
        all.filter_map(|(p, prior)| prior.map(|prior| (p, prior)))
    }

    /// Returns the sum of the squares of these priors' rows.
    fn penalty(&self, parameters: &[f64]) -> f64 {
        self.free_priors().map(|(p, prior)| ((prior.mean - parameters[p]) / prior.sigma).powi(2)).sum()
    }

    /// Returns the degrees of freedom of `points` and these priors, each of which is a row, less `free` parameters.
    fn dof(&self, points: usize, free: usize) -> i64 {
        (points + self.free_priors().count()) as i64 - free as i64
    }

    /// Returns the function that makes a parameter's unit from its start.
    fn round(&self) -> fn(f64) -> f64 {
        if self.device.inner.runs_wgsl() { units::scale } else { units::wide_scale }
    }

    /// Returns whether rows may be multiplied by a factor: costs mean nothing by themselves, and nothing else is added
    /// to them.
    fn may_gain(&self) -> bool {
        let relative = matches!(self.solver, CurveSolver::Lm(_)) || self.is_scaled();
        relative && self.estimator == Estimator::LeastSquares && self.priors.iter().all(Option::is_none)
    }

    /// Returns the settings with which curves are made ready.
    fn settings(&self) -> Settings<'_> {
        Settings {
            names: self.model.parameters(),
            lower: &self.lower,
            upper: &self.upper,
            held: &self.held,
            priors: &self.priors,
            predictors: self.model.predictors(),
            estimator: self.estimator,
            round: self.round(),
        }
    }

    /// Returns the index of the parameter of this name.
    fn index(&self, parameter: &str) -> Result<usize> {
        let names = self.model.parameters();
        names.iter().position(|name| name == parameter).ok_or_else(|| {
            let hint = hint(parameter, names.iter().map(String::as_str));
            Error::Usage(format!("no parameter `{parameter}`{hint}"))
        })
    }
}
