//! The fits of a run's curves: small fits side by side in lanes, or populations on the device, and then, for those that
//! fail, populations on the host. After a GPU, `fit` repeats on the host only what it polishes.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::curves::CurveColumns;
use crate::curves::ends::plateau::MIN_RELATIVE_REDUCTION;
use crate::curves::input::begin;
use crate::curves::input::data::{Curve, Curves, GridKind};
use crate::curves::input::units;
use crate::curves::results::result::{self, CurveFit};
use crate::curves::routes::populations::CurvePopulations;
use crate::curves::routes::route::{CurveRoute, SmallFits};
use crate::curves::routes::run::CurveRun;
use crate::curves::routes::sink::FitSink;
use crate::curves::routes::small_fits::{Ending, SmallFitRun};
use crate::curves::watch::Watch;
use crate::device::Device;
use crate::error::Result;
use crate::solver::{Outcome, Status};
use crate::threads;

/// Number of curves that are finished together.
const CURVES_PER_FINISH: usize = 8192;

impl CurveRun {
    /// Fits all curves on this device, in a single attempt, and returns one result per curve.
    pub(crate) fn fit_from_one_start(
        &self,
        curves: &Curves,
        watch: &Watch,
    ) -> Result<Vec<CurveFit>> {
        if !self.ties.is_empty() {
            return self.fit_tied(curves, watch);
        }
        let (total, points) = curves.shape(&self.model)?;
        curves.check_estimator(self.estimator)?;
        if let Some(whitened) = self.whiten_curves(curves)? {
            let mut fits = whitened.run.fit_from_one_start(&whitened.curves, watch)?;
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
        // 1. Fit all curves in lanes.
        let mut lane_results = CurveColumns::default();
        lane_results.reset(total, &self.model, false);
        SmallFitRun::new(self, curves, points, small, Ending::AtTolerance)
            .fit_columns(&mut lane_results, watch)?;
        // 2. Finish the fits one by one, and collect the curves whose fits have failed.
        let settings = self.settings();
        let mut failed = Vec::new();
        for first in (0..total).step_by(CURVES_PER_FINISH) {
            let range = first..total.min(first + CURVES_PER_FINISH);
            if watch.is_stopped() && sink.put_interrupted(range.clone(), &lane_results) {
                continue;
            }
            let finished: Vec<_> = threads::in_pool(|| {
                range
                    .clone()
                    .into_par_iter()
                    .map(|k| {
                        let curve = curves.curve(k, points, &settings);
                        self.finish_lane_fit(curve, &lane_results.outcome(k), watch)
                    })
                    .collect()
            });
            for (k, (fit, failed_curve)) in range.zip(finished) {
                sink.put_fit(k, fit);
                failed.extend(failed_curve);
            }
        }
        // 3. Repeat these in populations, and keep the better fit of each.
        let mut put_if_better =
            |k: usize, later: CurveFit| match replaces(sink.status_and_chi2(k), &later) {
                true => sink.put_fit(k, later),
                false => sink.set_counts(k, later.rounds, later.evaluations),
            };
        self.fall_back(curves.grid, points, failed, watch, &mut put_if_better)
    }

    /// Turns the outcome of a curve's fit in lanes into its result. Also returns the curve if its fit is to be repeated
    /// because it has failed or ended far from the data.
    fn finish_lane_fit(
        &self,
        curve: Result<Curve, String>,
        outcome: &Outcome,
        watch: &Watch,
    ) -> (CurveFit, Option<Curve>) {
        let mut curve = match curve {
            Ok(curve) => curve,
            Err(cause) => {
                watch.add_ended(1);
                return (CurveFit::refused(cause, self.held.len()), None);
            }
        };
        let has_converged = outcome.status.is_some_and(Status::is_success);
        if has_converged && watch.is_stopped() {
            return (self.interrupted_fit(&curve, outcome), None);
        }
        // Populations begin at the same starts as lanes, with the rest of the budget.
        if !has_converged && outcome.rounds < curve.budget {
            curve.budget -= outcome.rounds;
            return (CurveFit::blank(self.held.len()), Some(curve));
        }
        let fit = self.finish_fit(&curve, outcome);
        let is_repeated =
            !fit.status.is_success() || self.is_runaway(fit.flags, &fit.parameters, &curve.start);
        if is_repeated && fit.rounds < curve.budget {
            curve.budget -= fit.rounds;
            return (fit, Some(curve));
        }
        watch.count_fit(&fit);
        (fit, None)
    }

    /// Fits curves in populations on this device and returns one result per curve. With polish, where the model has
    /// Rust, the host repeats the fits that f32 cannot represent or bring to a good end.
    fn fit_in_populations(
        &self,
        curves: &Curves,
        total: usize,
        points: usize,
        watch: &Watch,
    ) -> Result<Vec<CurveFit>> {
        let mut fits = vec![CurveFit::blank(self.held.len()); total];
        // 1. Check the curves.
        let settings = self.settings();
        let checked: Vec<_> = threads::in_pool(|| {
            (0..total)
                .into_par_iter()
                .map(|k| curves.curve(k, points, &settings))
                .collect()
        });
        let mut ready = Vec::with_capacity(total);
        for (curve, fit) in checked.into_iter().zip(&mut fits) {
            match curve {
                Ok(curve) => ready.push(curve),
                Err(cause) => {
                    fit.message = cause;
                    watch.add_ended(1);
                }
            }
        }
        // 2. Fit them on this device, and on the host those that have failed.
        let mut put = |index: usize, fit: CurveFit| fits[index] = fit;
        let failed = self.fit_checked(curves.grid, points, ready, watch, &mut put)?;
        self.fall_back(curves.grid, points, failed, watch, &mut put)?;
        Ok(fits)
    }

    /// Repeats failed fits from their starts in populations on the host, with the rest of their budgets of
    /// linearisations, and gives the index and the fit of each curve to `put`.
    pub(crate) fn fall_back(
        &self,
        grid: GridKind,
        points: usize,
        mut failed: Vec<Curve>,
        watch: &Watch,
        put: &mut dyn FnMut(usize, CurveFit),
    ) -> Result<()> {
        for curve in &mut failed {
            curve.reset_to_start(units::unit_in_f64);
        }
        let rounds_before: HashMap<usize, u32> = failed
            .iter()
            .map(|curve| (curve.index, self.budget() - curve.budget))
            .collect();
        let put_with_all_rounds = &mut |index: usize, mut fit: CurveFit| {
            let before = rounds_before.get(&index).copied().unwrap_or(0);
            fit.rounds += before;
            fit.evaluations += before;
            put(index, fit);
        };
        let host = CurveRun {
            device: Device::cpu(),
            ..self.clone()
        };
        host.fit_checked(grid, points, failed, watch, put_with_all_rounds)
            .map(|_| ())
    }

    /// Fits curves in populations on this device, gives the index and the fit of each to `put` and counts them, and
    /// returns the curves that remain for the host: none on the CPU.
    fn fit_checked(
        &self,
        grid: GridKind,
        points: usize,
        mut ready: Vec<Curve>,
        watch: &Watch,
        put: &mut dyn FnMut(usize, CurveFit),
    ) -> Result<Vec<Curve>> {
        if ready.is_empty() {
            return Ok(ready);
        }
        let put_and_count = &mut |index: usize, fit: CurveFit| {
            watch.count_fit(&fit);
            put(index, fit);
        };
        if watch.is_stopped() {
            for curve in &ready {
                put_and_count(curve.index, self.unbegun_fit(curve));
            }
            return Ok(Vec::new());
        }
        // 1. Choose first points and units.
        threads::in_pool(|| {
            ready
                .par_iter_mut()
                .for_each(|curve| self.set_first_point(curve))
        });
        // 2. Separate the curves that f32 cannot represent. The host fits them, if it refines the others, too.
        let (ready, mut for_host): (Vec<Curve>, Vec<Curve>) = ready
            .into_iter()
            .partition(|curve| !self.device.inner.runs_wgsl() || begin::suits_f32(curve));
        let host_refines = self.polish && self.device.inner.runs_wgsl() && !self.model.needs_gpu();
        if !host_refines {
            let message = "bad_scale: f32 does not hold y, y over sigma or x: other units, less an offset, or polish";
            for curve in for_host.drain(..) {
                put_and_count(curve.index, CurveFit::refused(message, self.held.len()));
            }
        }
        // 3. Fit the others, after a check of the model's twin.
        if let Some(first) = ready.first() {
            self.check_twin(first)?;
        }
        for_host.extend(self.fit_in_batches(
            grid,
            points,
            ready,
            host_refines,
            watch,
            put_and_count,
        )?);
        Ok(for_host)
    }

    /// Fits curves in batches on this device, gives the results to `put`, and returns the curves that the host is to
    /// fit again. These are the curves without success, if `host_refines`.
    fn fit_in_batches(
        &self,
        grid: GridKind,
        points: usize,
        ready: Vec<Curve>,
        host_refines: bool,
        watch: &Watch,
        put: &mut dyn FnMut(usize, CurveFit),
    ) -> Result<Vec<Curve>> {
        if ready.is_empty() {
            return Ok(ready);
        }
        // The rounds that each curve has used whose fit is to be repeated.
        let mut failed_after = vec![None; ready.len()];
        let mut populations = CurvePopulations::new(self, grid, points, ready.len())?;
        for (batch, failed_after) in ready
            .chunks(populations.capacity)
            .zip(failed_after.chunks_mut(populations.capacity))
        {
            if watch.is_stopped() {
                for curve in batch {
                    put(curve.index, self.unbegun_fit(curve));
                }
                continue;
            }
            // 1. Fit the batch, and begin again where that may help.
            let outcomes = populations.solve(batch, watch)?;
            let mut fits: Vec<CurveFit> = threads::in_pool(|| {
                batch
                    .par_iter()
                    .zip(&outcomes)
                    .map(|(curve, outcome)| self.finish_fit(curve, outcome))
                    .collect()
            });
            self.begin_again(&mut populations, batch, &mut fits, watch)?;
            self.repeat_with_other_steps(grid, points, batch, &mut fits, watch)?;
            // 2. Keep the results, except those that the host is to repeat: f64 may find a minimum where f32 does not.
            for ((curve, fit), failed_after) in batch.iter().zip(fits).zip(failed_after) {
                let is_unsure = !fit.status.is_success() || self.has_poorly_determined(curve, &fit);
                let may_repeat =
                    is_unsure && fit.status != Status::Interrupted && fit.rounds < curve.budget;
                match host_refines && may_repeat {
                    true => *failed_after = Some(fit.rounds),
                    false => put(curve.index, fit),
                }
            }
        }
        // 3. Return the others with the rest of their budgets.
        let mut for_host = Vec::new();
        for (curve, failed_after) in ready.into_iter().zip(failed_after) {
            if let Some(rounds) = failed_after {
                for_host.push(Curve {
                    budget: curve.budget - rounds,
                    ..curve
                });
            }
        }
        Ok(for_host)
    }

    /// Sets the point where a curve's fit begins, the units of its parameters and the factor on its weighted residuals.
    fn set_first_point(&self, curve: &mut Curve) {
        // The data contain nothing about the parameters of a user's cost.
        if self.estimator.is_cost() {
            return;
        }
        if let Some((first_point, scale)) =
            begin::choose_first_point(&self.problem(curve), self.unit_rounding())
        {
            curve.first_point = first_point;
            curve.scale = scale;
        }
        if self.may_scale_rows() {
            curve.row_factor =
                begin::row_factor(&self.problem(curve), self.device.inner.runs_wgsl());
        }
    }

    /// Returns whether the data seem not to determine a parameter of a fit, so that f64 should look again at what f32
    /// may have lost.
    fn has_poorly_determined(&self, curve: &Curve, fit: &CurveFit) -> bool {
        let errors_are_known = !self.is_scaled() || fit.dof > 0;
        if !errors_are_known {
            return false;
        }
        let interior = self.problem(curve).interior_parameters(&fit.parameters);
        !result::poorly_determined(fit, curve, &interior).is_empty()
    }
}

/// Returns whether the `later` fit of a curve takes the place of an earlier one with this status and χ²: if only the
/// later one is a success, or has no higher χ² where both or none are. Earlier failures do not outlive an interruption.
pub(crate) fn replaces((status, chi2): (Status, f64), later: &CurveFit) -> bool {
    let is_higher = later.chi2 > chi2 * (1.0 + MIN_RELATIVE_REDUCTION);
    match (status.is_success(), later.status.is_success()) {
        (false, true) => true,
        (true, false) => false,
        (true, true) => !is_higher,
        (false, false) => !is_higher || later.status == Status::Interrupted,
    }
}
