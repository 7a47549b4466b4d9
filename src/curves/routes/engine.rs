//! The way of curves through a run: whole fits first, then populations on the device, then the host.

use rayon::prelude::*;

use crate::curves::input::begin;
use crate::curves::input::data::{Curve, Curves, Grid};
use crate::curves::input::units;
use crate::curves::results::result::{self, CurveFit};
use crate::curves::routes::passes::Passes;
use crate::curves::routes::run::CurveRun;
use crate::curves::watch::Watch;
use crate::device::Device;
use crate::error::Result;
use crate::solver::{Outcome, Status};

impl CurveRun {
    /// Fits all curves and returns one result per curve, with another attempt if the device fails.
    pub(crate) fn fit(&self, curves: &Curves, watch: &Watch) -> Result<Vec<CurveFit>> {
        self.with_attempts(watch, |run| run.fit_here(curves, watch))
    }

    /// Fits all curves on this device, in a single attempt, and returns one result per curve.
    pub(crate) fn fit_here(&self, curves: &Curves, watch: &Watch) -> Result<Vec<CurveFit>> {
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

    /// Turns the outcome of a curve's fast fit into its result, or returns the curve, too, if it must be fitted through
    /// a population. In the second case the fit is blank.
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

    /// Fits curves in batches, on this device and, if that is a GPU whose results are refined, on the CPU where it
    /// fails; gives results to `done`. `done` receives the index and the fit of each.
    pub(crate) fn fit_each(
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

    /// Fits curves in batches on this device, gives the results to `done`, and returns the curves that the CPU is to
    /// fit again. These are the curves without success, if the host `refines`.
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
            let mut fits: Vec<CurveFit> =
                some.par_iter().zip(&outcomes).map(|(curve, outcome)| self.finish(curve, outcome)).collect();
            self.begin_again(&mut passes, some, &mut fits, watch)?;
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

    /// Sets the point where a curve's fit begins, the units of its parameters and the factor on its weighted residuals.
    fn measure(&self, curve: &mut Curve) {
        // data say nothing of the parameters of a cost
        if self.estimator.is_cost() {
            return;
        }
        if let Some((begin, scale)) = begin::prepare(&self.problem(curve), self.round()) {
            (curve.begin, curve.scale) = (begin, scale);
        }
        if self.may_gain() {
            curve.gain = begin::gain(&self.problem(curve), self.device.inner.runs_wgsl());
        }
    }

    /// Returns whether the data seem not to determine a parameter of a fit, so that f64 should look again at what f32
    /// may have lost.
    fn has_poorly_determined(&self, curve: &Curve, fit: &CurveFit) -> bool {
        let tells = !self.is_scaled() || fit.dof > 0;
        tells && !result::poorly_determined(fit, curve, &self.problem(curve).inside(&fit.parameters)).is_empty()
    }
}
