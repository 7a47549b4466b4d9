//! The way of curves through a run: small fits side by side in lanes or populations on the device, and then, for those
//! that fail, populations on the host. After a GPU, `fit` repeats on the host only what it polishes.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::curves::CurveColumns;
use crate::curves::ends::plateau::LEAST_GAIN;
use crate::curves::input::begin;
use crate::curves::input::data::{Curve, Curves, Grid};
use crate::curves::input::units;
use crate::curves::results::result::{self, CurveFit};
use crate::curves::routes::passage::Passage;
use crate::curves::routes::passes::Passes;
use crate::curves::routes::route::{CurveRoute, SmallFits};
use crate::curves::routes::run::CurveRun;
use crate::curves::routes::sink::FitSink;
use crate::curves::watch::Watch;
use crate::device::Device;
use crate::error::Result;
use crate::solver::{Outcome, Status};
use crate::threads;

/// Number of curves that are finished together.
const FINISHED: usize = 8192;

impl CurveRun {
    /// Fits all curves on this device, in a single attempt, and returns one result per curve.
    pub(crate) fn fit_here(&self, curves: &Curves, watch: &Watch) -> Result<Vec<CurveFit>> {
        if !self.ties.is_empty() {
            return self.fit_tied(curves, watch);
        }
        let settings = self.settings();
        let (total, points) = curves.shape(settings.predictors, settings.names)?;
        curves.check_estimator(self.estimator)?;
        if let Some(whitened) = self.whiten(curves)? {
            let mut fits = whitened.run.fit_here(&whitened.curves, watch)?;
            whitened
                .refusals()
                .for_each(|(k, refusal)| fits[k] = refusal);
            return Ok(fits);
        }
        match self.route(points) {
            CurveRoute::Lanes(small) => {
                let mut fits = Vec::with_capacity(total);
                self.fit_in_lanes(curves, (total, points), small, &mut fits, watch)?;
                Ok(fits)
            }
            _ => self.fit_in_populations(curves, total, points, watch),
        }
    }

    /// Fits small curves on the CPU, side by side in lanes, in f64 and to the solver's tolerances, and gives the
    /// results to `sink`.
    pub(crate) fn fit_in_lanes(
        &self,
        curves: &Curves,
        (total, points): (usize, usize),
        small: SmallFits,
        sink: &mut impl FitSink,
        watch: &Watch,
    ) -> Result<()> {
        let mut ends = CurveColumns::default();
        ends.reset(total, &self.model, false);
        Passage::new(self, curves, points, small, true).run(&mut ends, watch)?;
        let settings = self.settings();
        let finish =
            |k| self.finish_in_lane(curves.curve(k, points, &settings), &ends.outcome(k), watch);
        let mut left = Vec::new();
        for first in (0..total).step_by(FINISHED) {
            let some = first..total.min(first + FINISHED);
            if watch.is_stopped() && sink.put_interrupted(some.clone(), &ends) {
                continue;
            }
            let finished: Vec<_> =
                threads::in_pool(|| some.clone().into_par_iter().map(finish).collect());
            for (k, (fit, curve)) in some.zip(finished) {
                sink.put(k, fit);
                left.extend(curve);
            }
        }
        let put = &mut |k: usize, later: CurveFit| match replaces(sink.end(k), &later) {
            true => sink.put(k, later),
            false => sink.set_counts(k, later.rounds, later.evaluations),
        };
        self.fall_back(curves.grid, points, left, watch, put)
    }

    /// Turns the outcome of a curve's fit in lanes into its result, and returns the curve, too, if it is to be fitted
    /// again: the fit has failed, or ended far from the data.
    fn finish_in_lane(
        &self,
        curve: Result<Curve, String>,
        outcome: &Outcome,
        watch: &Watch,
    ) -> (CurveFit, Option<Curve>) {
        let blank = || CurveFit::blank(self.held.len());
        let mut curve = match curve {
            Ok(curve) => curve,
            Err(cause) => {
                watch.add(1);
                return (
                    CurveFit {
                        message: cause,
                        ..blank()
                    },
                    None,
                );
            }
        };
        let has_arrived = outcome.status.is_some_and(Status::is_success);
        if has_arrived && watch.is_stopped() {
            return (self.interrupted(&curve, outcome), None);
        }
        // populations begin where lanes did
        if !has_arrived && outcome.rounds < curve.budget {
            curve.budget -= outcome.rounds;
            return (blank(), Some(curve));
        }
        let fit = self.finish(&curve, outcome);
        let is_open =
            !fit.status.is_success() || self.is_runaway(fit.flags, &fit.parameters, &curve.start);
        if is_open && fit.rounds < curve.budget {
            curve.budget -= fit.rounds;
            return (fit, Some(curve));
        }
        watch.end(&fit);
        (fit, None)
    }

    /// Fits curves in populations on this device, and with polish, where the model has Rust, those that f32 does not
    /// hold or bring to a good end on the host; returns one result per curve.
    fn fit_in_populations(
        &self,
        curves: &Curves,
        total: usize,
        points: usize,
        watch: &Watch,
    ) -> Result<Vec<CurveFit>> {
        let mut fits = vec![CurveFit::blank(self.held.len()); total];
        let settings = self.settings();
        let check = |k| curves.curve(k, points, &settings);
        let checked: Vec<_> = threads::in_pool(|| (0..total).into_par_iter().map(check).collect());
        let mut ready = Vec::with_capacity(total);
        for (curve, fit) in checked.into_iter().zip(&mut fits) {
            match curve {
                Ok(curve) => ready.push(curve),
                Err(cause) => {
                    fit.message = cause;
                    watch.add(1);
                }
            }
        }
        let mut put = |index: usize, fit: CurveFit| fits[index] = fit;
        let left = self.fit_ready(curves.grid, points, ready, watch, &mut put)?;
        self.fall_back(curves.grid, points, left, watch, &mut put)?;
        Ok(fits)
    }

    /// Fits the curves whose fits have failed on their route from their starts in populations on the host, with the
    /// linearisations that they have left, and gives results to `done`, which receives the index and the fit of each.
    pub(crate) fn fall_back(
        &self,
        grid: Grid,
        points: usize,
        mut left: Vec<Curve>,
        watch: &Watch,
        done: &mut dyn FnMut(usize, CurveFit),
    ) -> Result<()> {
        left.iter_mut()
            .for_each(|curve| curve.restart(units::wide_scale));
        let spent: HashMap<usize, u32> = left
            .iter()
            .map(|curve| (curve.index, self.budget() - curve.budget))
            .collect();
        let done = &mut |index: usize, mut fit: CurveFit| {
            let before = spent.get(&index).copied().unwrap_or(0);
            (fit.rounds, fit.evaluations) = (fit.rounds + before, fit.evaluations + before);
            done(index, fit);
        };
        let host = CurveRun {
            device: Device::cpu(),
            ..self.clone()
        };
        host.fit_ready(grid, points, left, watch, done).map(|_| ())
    }

    /// Fits curves in populations on this device, gives results to `done` and counts them, and returns the curves that
    /// are left for the host: none on the CPU. `done` receives the index and the fit of each.
    fn fit_ready(
        &self,
        grid: Grid,
        points: usize,
        mut ready: Vec<Curve>,
        watch: &Watch,
        done: &mut dyn FnMut(usize, CurveFit),
    ) -> Result<Vec<Curve>> {
        if ready.is_empty() {
            return Ok(ready);
        }
        let done = &mut |index: usize, fit: CurveFit| {
            watch.end(&fit);
            done(index, fit);
        };
        if watch.is_stopped() {
            ready
                .iter()
                .for_each(|curve| done(curve.index, self.not_begun(curve)));
            return Ok(Vec::new());
        }
        threads::in_pool(|| ready.par_iter_mut().for_each(|curve| self.measure(curve)));
        let in_range = |curve: &Curve| !self.device.inner.runs_wgsl() || begin::suits_f32(curve);
        let (ready, mut left): (Vec<Curve>, Vec<Curve>) = ready.into_iter().partition(in_range);
        // the host fits what f32 does not bring to a good end, and refines the others
        let is_refined = self.polish && self.device.inner.runs_wgsl() && !self.model.needs_gpu();
        if !is_refined {
            let message = "bad_scale: f32 does not hold y, y over sigma or x: other units, less an offset, or polish";
            let refused = || CurveFit {
                message: message.into(),
                ..CurveFit::blank(self.held.len())
            };
            left.drain(..)
                .for_each(|curve| done(curve.index, refused()));
        }
        ready
            .first()
            .map_or(Ok(()), |first| self.check_twin(first))?;
        left.extend(self.pass(grid, points, ready, is_refined, watch, done)?);
        Ok(left)
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
        // linearisations that curves have used which are to be fitted again
        let mut failed = vec![None; ready.len()];
        let mut passes = Passes::new(self, grid, points, ready.len())?;
        for (some, failed) in ready
            .chunks(passes.capacity)
            .zip(failed.chunks_mut(passes.capacity))
        {
            if watch.is_stopped() {
                some.iter()
                    .for_each(|curve| done(curve.index, self.not_begun(curve)));
                continue;
            }
            let outcomes = passes.solve(some, watch)?;
            let finish = |(curve, outcome)| self.finish(curve, outcome);
            let mut fits: Vec<CurveFit> =
                threads::in_pool(|| some.par_iter().zip(&outcomes).map(finish).collect());
            self.begin_again(&mut passes, some, &mut fits, watch)?;
            self.repeat_with_other_steps(grid, points, some, &mut fits, watch)?;
            for ((curve, fit), failed) in some.iter().zip(fits).zip(failed) {
                // f64 may find a minimum where f32 does not
                let is_open = !fit.status.is_success() || self.has_poorly_determined(curve, &fit);
                let is_left =
                    is_open && fit.status != Status::Interrupted && fit.rounds < curve.budget;
                match refines && is_left {
                    true => *failed = Some(fit.rounds),
                    false => done(curve.index, fit),
                }
            }
        }
        let left = |(curve, spent): (Curve, Option<u32>)| {
            spent.map(|spent| Curve {
                budget: curve.budget - spent,
                ..curve
            })
        };
        Ok(ready.into_iter().zip(failed).filter_map(left).collect())
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
        tells
            && !result::poorly_determined(fit, curve, &self.problem(curve).inside(&fit.parameters))
                .is_empty()
    }
}

/// Returns whether the `later` fit of a curve takes the place of an earlier one with this status and χ²: if only the
/// later one is a success, or has no higher χ² where both or none are. Earlier failures do not outlive an interruption.
pub(crate) fn replaces((status, chi2): (Status, f64), later: &CurveFit) -> bool {
    let is_higher = later.chi2 > chi2 * (1.0 + LEAST_GAIN);
    match (status.is_success(), later.status.is_success()) {
        (false, true) => true,
        (true, false) => false,
        (true, true) => !is_higher,
        (false, false) => !is_higher || later.status == Status::Interrupted,
    }
}
