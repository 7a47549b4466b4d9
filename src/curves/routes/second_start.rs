//! Second starts of fits that ended above a minimum or far from the data: the solver begins again at a lower point
//! beside their end, or, without damping or with longer steps, at their start.

use rayon::prelude::*;

use crate::curves::ends::end::NOT_MOVED;
use crate::curves::ends::plateau::Neighbourhood;
use crate::curves::input::begin;
use crate::curves::input::data::{Curve, GridKind};
use crate::curves::input::dominance::is_dominated;
use crate::curves::results::result::CurveFit;
use crate::curves::routes::populations::CurvePopulations;
use crate::curves::watch::Watch;
use crate::curves::{CurveRun, CurveSolver};
use crate::error::Result;
use crate::flag::Flags;
use crate::solver::{LevenbergMarquardt, Status};
use crate::threads;

/// Maximum number of times that a fit begins again, each time with the solver's budget of rounds.
const MAX_SECOND_STARTS: usize = 3;

/// Initial damping of a fit that damping would keep from its minimum.
const NEGLIGIBLE_DAMPING: f64 = 1e-15;

/// Largest step, in a parameter's sizes, of a fit that shorter steps have led away from the data: of 49 sines that
/// ended as a straight line, from frequencies that are 40 % off, 32 find their minimum with it.
const LONG_STEP: f64 = 10.0;

/// Ratio of a parameter to its size at the start beyond which it has run away.
const MIN_RUNAWAY_RATIO: f64 = 10.0;

/// Result of the search for a lower point beside the end of a fit.
struct LowerPointSearch {
    /// The lower point; `None` if none was found.
    lower_point: Option<Vec<f64>>,
    /// Number of evaluations of the model, the first of them with derivatives.
    evaluations: u32,
}

/// The grid of some curves, and the watch over their run.
#[derive(Clone, Copy)]
struct RunSetting<'a> {
    grid: GridKind,
    points: usize,
    watch: &'a Watch<'a>,
}

impl CurveRun {
    /// Lets fits of Levenberg–Marquardt that stalled above a minimum begin again, as long as this lowers their costs.
    /// Without polish a fit stays where the solver has left it, and fits of a GPU are for the host to repeat.
    pub(crate) fn begin_again(
        &self,
        populations: &mut CurvePopulations,
        curves: &[Curve],
        fits: &mut [CurveFit],
        watch: &Watch,
    ) -> Result<()> {
        if !self.polish
            || self.device.inner.runs_wgsl()
            || matches!(self.solver, CurveSolver::NelderMead(_))
        {
            return Ok(());
        }
        // Wrong derivatives, after which a fit has not moved, would be hidden and not mended. One linearisation is for
        // the search beside the end.
        let may_begin_again = |curve: &Curve, fit: &CurveFit| {
            fit.status == Status::Stalled
                && fit.message != NOT_MOVED
                && fit.rounds + 1 < curve.budget
        };
        let mut open: Vec<usize> = (0..fits.len())
            .filter(|&k| may_begin_again(&curves[k], &fits[k]))
            .collect();
        for _ in 0..MAX_SECOND_STARTS {
            if open.is_empty() || watch.is_stopped() {
                return Ok(());
            }
            // 1. Look for lower points beside the ends.
            let searches: Vec<LowerPointSearch> = threads::in_pool(|| {
                open.par_iter()
                    .map(|&k| self.search_lower_point(&curves[k], &fits[k]))
                    .collect()
            });
            let mut indices = Vec::new();
            let mut restarted_curves = Vec::new();
            for (k, search) in open.drain(..).zip(searches) {
                fits[k].evaluations += search.evaluations;
                fits[k].rounds += 1;
                if let Some(first_point) = search.lower_point {
                    indices.push(k);
                    restarted_curves.push(Curve {
                        first_point,
                        budget: curves[k].budget - fits[k].rounds,
                        ..curves[k].clone()
                    });
                }
            }
            // 2. Fit from there, and keep what is better.
            let outcomes = populations.solve(&restarted_curves, watch)?;
            let later_fits: Vec<CurveFit> = threads::in_pool(|| {
                restarted_curves
                    .par_iter()
                    .zip(&outcomes)
                    .map(|(curve, outcome)| self.finish_fit(curve, outcome))
                    .collect()
            });
            for (k, later) in indices.into_iter().zip(later_fits) {
                let is_replaced = self.replace_if_better(&curves[k], &mut fits[k], later);
                if is_replaced && may_begin_again(&curves[k], &fits[k]) {
                    open.push(k);
                }
            }
        }
        Ok(())
    }

    /// Repeats fits from their starts in the way that suits what went wrong.
    ///
    /// Fits where only derivatives are not finite begin beside their starts. Fits that have failed because a few points
    /// outweigh all others begin almost without damping, as damping by the normal matrix's diagonal keeps them from
    /// their minima. Fits of which a parameter has run away take longer steps. Without polish a fit stays where the
    /// solver has left it.
    pub(crate) fn repeat_with_other_steps(
        &self,
        grid: GridKind,
        points: usize,
        curves: &[Curve],
        fits: &mut [CurveFit],
        watch: &Watch,
    ) -> Result<()> {
        let CurveSolver::Lm(settings) = self.solver else {
            return Ok(());
        };
        if !self.polish || self.device.inner.runs_wgsl() {
            return Ok(());
        }
        let setting = RunSetting {
            grid,
            points,
            watch,
        };
        // 1. Starts where only derivatives are not finite, such as that of a root at 0: begin beside them.
        let beside_singular_start = |curve: &Curve, fit: &CurveFit| {
            if fit.status != Status::NotFinite || self.failures.text(curve.index).is_some() {
                return None;
            }
            let first_point = begin::beside_singularity(&self.problem(curve))?;
            Some(Curve {
                first_point,
                ..curve.clone()
            })
        };
        self.repeat_fits(settings, &beside_singular_start, setting, curves, fits)?;
        // 2. Curves that a few points hold in one direction: begin undamped.
        let dominated_failure = |curve: &Curve, fit: &CurveFit| {
            let has_failed = matches!(
                fit.status,
                Status::Stalled | Status::MaxRounds | Status::Singular
            );
            let is_repeated =
                has_failed && is_dominated(&curve.weight, curve.free_parameters().len());
            is_repeated.then(|| curve.clone())
        };
        let undamped = LevenbergMarquardt {
            initial_damping: NEGLIGIBLE_DAMPING,
            ..settings
        };
        self.repeat_fits(undamped, &dominated_failure, setting, curves, fits)?;
        if settings.has_largest_step() {
            return Ok(());
        }
        // 3. Parameters that ran away: take longer steps.
        let runaway = |curve: &Curve, fit: &CurveFit| {
            self.is_runaway(fit.flags, &fit.parameters, &curve.start)
                .then(|| curve.clone())
        };
        let long_steps = LevenbergMarquardt {
            largest_step: LONG_STEP,
            ..settings
        };
        self.repeat_fits(long_steps, &runaway, setting, curves, fits)
    }

    /// Returns whether a fit with these flags is to be repeated with longer steps: the data do not determine all
    /// parameters, and one has moved far beyond its size at the start.
    pub(crate) fn is_runaway(&self, flags: Flags, parameters: &[f64], start: &[f64]) -> bool {
        let unit_of = self.unit_rounding();
        let may_repeat = self.polish && flags.contains(Flags::UNDETERMINED);
        may_repeat
            && parameters
                .iter()
                .zip(start)
                .any(|(x, start)| x.abs() > MIN_RUNAWAY_RATIO * start.abs().max(unit_of(*start)))
    }

    /// Repeats fits by other settings from the curve that `restarted` returns (`None`: not to be repeated), and keeps
    /// what is better.
    fn repeat_fits(
        &self,
        settings: LevenbergMarquardt,
        restarted: &dyn Fn(&Curve, &CurveFit) -> Option<Curve>,
        RunSetting {
            grid,
            points,
            watch,
        }: RunSetting,
        curves: &[Curve],
        fits: &mut [CurveFit],
    ) -> Result<()> {
        if watch.is_stopped() {
            return Ok(());
        }
        // 1. Choose the fits, which have only the rest of their budget.
        let mut indices = Vec::new();
        let mut restarted_curves = Vec::new();
        for (k, fit) in fits.iter().enumerate() {
            if let Some(curve) = restarted(&curves[k], fit)
                && fit.rounds < curve.budget
            {
                indices.push(k);
                restarted_curves.push(Curve {
                    budget: curve.budget - fit.rounds,
                    ..curve
                });
            }
        }
        if indices.is_empty() {
            return Ok(());
        }
        // 2. Fit as many at a time as there is room for.
        let run = CurveRun {
            solver: CurveSolver::Lm(settings),
            ..self.clone()
        };
        let mut populations = CurvePopulations::new(&run, grid, points, restarted_curves.len())?;
        for (indices, curves) in indices
            .chunks(populations.capacity)
            .zip(restarted_curves.chunks(populations.capacity))
        {
            let outcomes = populations.solve(curves, watch)?;
            for ((k, curve), outcome) in indices.iter().zip(curves).zip(&outcomes) {
                self.replace_if_better(curve, &mut fits[*k], run.finish_fit(curve, outcome));
            }
        }
        Ok(())
    }

    /// Searches for a point of lower cost beside the end of a fit.
    fn search_lower_point(&self, curve: &Curve, fit: &CurveFit) -> LowerPointSearch {
        let problem = self.problem(curve);
        let lower_point =
            problem
                .linearise(&fit.parameters)
                .and_then(|linearisation| {
                    match problem.search_neighbourhood(&linearisation, &fit.parameters) {
                        Neighbourhood::Lower(point) => Some(point),
                        Neighbourhood::Minimum(_) | Neighbourhood::Unknown => None,
                    }
                });
        LowerPointSearch {
            lower_point,
            evaluations: 1 + problem.cost_evaluations.get(),
        }
    }

    /// Replaces a curve's fit by a later one if that is better, and counts the evaluations of both; returns whether it
    /// did. The later one is better if it is the only success of the two, or, where both or none are, if its cost is
    /// lower or the model failed in it. If the later one was interrupted, so is a fit without success.
    fn replace_if_better(&self, curve: &Curve, fit: &mut CurveFit, later: CurveFit) -> bool {
        let evaluations = fit.evaluations + later.evaluations;
        let rounds = fit.rounds + later.rounds;
        let later_is_interrupted = later.status == Status::Interrupted && !fit.status.is_success();
        let model_has_failed = self.failures.text(curve.index).is_some();
        let is_better = match (later.status.is_success(), fit.status.is_success()) {
            (true, false) => true,
            (false, true) => false,
            _ => self.cost_or_infinity(&later) < self.cost_or_infinity(fit) || model_has_failed,
        };
        if is_better {
            *fit = later;
        } else if later_is_interrupted {
            fit.status = later.status;
            fit.message = "interrupted in another start".into();
            fit.errors.fill(f64::NAN);
            fit.covariance.fill(f64::NAN);
        }
        fit.evaluations = evaluations;
        fit.rounds = rounds;
        is_better
    }

    /// Returns the cost of a fit, χ² plus the penalty of the priors; infinity where it is not finite.
    fn cost_or_infinity(&self, fit: &CurveFit) -> f64 {
        let cost = self.cost(fit);
        if cost.is_finite() {
            cost
        } else {
            f64::INFINITY
        }
    }
}
