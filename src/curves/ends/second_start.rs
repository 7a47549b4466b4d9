//! Second starts of fits that ended above a minimum or far from the data: the solver begins again at a lower point
//! beside their end, or, without damping or with longer steps, at their start.

use rayon::prelude::*;

use crate::curves::ends::end::NOT_MOVED;
use crate::curves::ends::plateau::Neighbourhood;
use crate::curves::input::begin;
use crate::curves::input::data::{Curve, Grid};
use crate::curves::input::dominance::is_dominated;
use crate::curves::results::result::CurveFit;
use crate::curves::routes::passes::Passes;
use crate::curves::watch::Watch;
use crate::curves::{CurveRun, CurveSolver};
use crate::error::Result;
use crate::flag::Flags;
use crate::solver::{LevenbergMarquardt, Status};
use crate::threads;

/// Maximum number of times that a fit begins again, each time with the solver's budget of rounds.
const MOST: usize = 3;

/// Initial damping of a fit that damping would keep from its minimum.
const NO_DAMPING: f64 = 1e-15;

/// Largest step, in a parameter's sizes, of a fit that shorter ones have led away from the data: of 49 sines that ended
/// as a straight line, from frequencies that are 40 % off, 32 find their minimum with it.
const LONG_STEP: f64 = 10.0;

/// Ratio of a parameter to its size at the start beyond which it has run away.
const RUNAWAY: f64 = 10.0;

/// Result of the search for a lower point beside the end of a fit.
struct Search {
    /// The point; `None` if none was found.
    begin: Option<Vec<f64>>,
    /// Number of evaluations of the model, the first of them with derivatives.
    evaluations: u32,
}

/// The grid of the curves of a pass, and the watch over their run.
#[derive(Clone, Copy)]
struct CurveGrid<'a> {
    grid: Grid,
    points: usize,
    watch: &'a Watch<'a>,
}

impl CurveRun {
    /// Lets fits of Levenberg–Marquardt that stalled above a minimum begin again, as long as this lowers their costs.
    /// Without polish a fit stays where the solver has left it, and fits of a GPU are for the host to repeat.
    pub(crate) fn begin_again(
        &self,
        passes: &mut Passes,
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
        // wrong derivatives would be hidden, not mended
        let has_stalled =
            |fit: &CurveFit| fit.status == Status::Stalled && fit.message != NOT_MOVED;
        // a linearisation is for the search beside the end
        let is_open =
            |k: usize, fit: &CurveFit| has_stalled(fit) && fit.rounds + 1 < curves[k].budget;
        let mut open: Vec<usize> = (0..fits.len()).filter(|&k| is_open(k, &fits[k])).collect();
        for _ in 0..MOST {
            if open.is_empty() || watch.is_stopped() {
                return Ok(());
            }
            // 1. Look for lower points beside the ends.
            let search = |&k: &usize| self.search_beside(&curves[k], &fits[k]);
            let searches: Vec<Search> = threads::in_pool(|| open.par_iter().map(search).collect());
            let (mut places, mut again) = (Vec::new(), Vec::new());
            for (k, search) in open.drain(..).zip(searches) {
                fits[k].evaluations += search.evaluations;
                fits[k].rounds += 1;
                if let Some(begin) = search.begin {
                    places.push(k);
                    again.push(Curve {
                        begin,
                        budget: curves[k].budget - fits[k].rounds,
                        ..curves[k].clone()
                    });
                }
            }
            // 2. Fit from there.
            let outcomes = passes.solve(&again, watch)?;
            let finish = |(curve, outcome)| self.finish(curve, outcome);
            let found: Vec<CurveFit> =
                threads::in_pool(|| again.par_iter().zip(&outcomes).map(finish).collect());
            for (k, later) in places.into_iter().zip(found) {
                if self.replace(&curves[k], &mut fits[k], later) && is_open(k, &fits[k]) {
                    open.push(k);
                }
            }
        }
        Ok(())
    }

    /// Fits curves again, from their starts and in the way that suits what went wrong: beside their starts those where
    /// only derivatives are not finite; almost without damping those whose fits have failed because a few points
    /// outweigh all others (damping by the normal matrix's diagonal keeps them from their minima); with longer steps
    /// those of which a parameter has run away. Without polish a fit stays where the solver has left it.
    pub(crate) fn repeat_with_other_steps(
        &self,
        grid: Grid,
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
        let grid_of = CurveGrid {
            grid,
            points,
            watch,
        };
        // 1. Starts where only derivatives are not finite, that of a root at 0: beside them.
        let beside = |curve: &Curve, fit: &CurveFit| {
            let is_singular =
                fit.status == Status::NotFinite && self.failures.text(curve.index).is_none();
            let begin = is_singular
                .then(|| begin::beside_singularity(&self.problem(curve)))
                .flatten()?;
            Some(Curve {
                begin,
                ..curve.clone()
            })
        };
        self.repeat(settings, &beside, grid_of, curves, fits)?;
        // 2. Curves that a few points hold in one direction: undamped.
        let has_failed = |fit: &CurveFit| {
            matches!(
                fit.status,
                Status::Stalled | Status::MaxRounds | Status::Singular
            )
        };
        let is_held = |curve: &Curve, fit: &CurveFit| {
            has_failed(fit) && is_dominated(&curve.weight, curve.free().len())
        };
        let held = |curve: &Curve, fit: &CurveFit| is_held(curve, fit).then(|| curve.clone());
        let undamped = LevenbergMarquardt {
            initial_damping: NO_DAMPING,
            ..settings
        };
        self.repeat(undamped, &held, grid_of, curves, fits)?;
        if settings.has_largest_step() {
            return Ok(());
        }
        // 3. Parameters that ran away: with longer steps.
        let runaways = |curve: &Curve, fit: &CurveFit| {
            self.is_runaway(fit.flags, &fit.parameters, &curve.start)
                .then(|| curve.clone())
        };
        let longer = LevenbergMarquardt {
            largest_step: LONG_STEP,
            ..settings
        };
        self.repeat(longer, &runaways, grid_of, curves, fits)
    }

    /// Returns whether a fit with these flags is to be made again with longer steps: the data do not determine all
    /// parameters, and one has moved far beyond its size at the start.
    pub(crate) fn is_runaway(&self, flags: Flags, parameters: &[f64], start: &[f64]) -> bool {
        let round = self.round();
        let mut moves = parameters.iter().zip(start);
        let may_repeat = self.polish && flags.contains(Flags::UNDETERMINED);
        may_repeat && moves.any(|(x, start)| x.abs() > RUNAWAY * start.abs().max(round(*start)))
    }

    /// Fits curves again, by other settings, as `again` has them (`None`: not again), and keeps what is better.
    fn repeat(
        &self,
        settings: LevenbergMarquardt,
        again: &dyn Fn(&Curve, &CurveFit) -> Option<Curve>,
        CurveGrid {
            grid,
            points,
            watch,
        }: CurveGrid,
        curves: &[Curve],
        fits: &mut [CurveFit],
    ) -> Result<()> {
        if watch.is_stopped() {
            return Ok(());
        }
        let begun = |k: usize| {
            let curve =
                again(&curves[k], &fits[k]).filter(|curve| fits[k].rounds < curve.budget)?;
            Some((
                k,
                Curve {
                    budget: curve.budget - fits[k].rounds,
                    ..curve
                },
            ))
        };
        let (open, again): (Vec<usize>, Vec<Curve>) = (0..fits.len()).filter_map(begun).unzip();
        if open.is_empty() {
            return Ok(());
        }
        let run = CurveRun {
            solver: CurveSolver::Lm(settings),
            ..self.clone()
        };
        let mut passes = Passes::new(&run, grid, points, again.len())?;
        for (places, curves) in open
            .chunks(passes.capacity)
            .zip(again.chunks(passes.capacity))
        {
            let outcomes = passes.solve(curves, watch)?;
            for ((k, curve), outcome) in places.iter().zip(curves).zip(&outcomes) {
                self.replace(curve, &mut fits[*k], run.finish(curve, outcome));
            }
        }
        Ok(())
    }

    /// Looks for a point of lower cost beside the end of a fit.
    fn search_beside(&self, curve: &Curve, fit: &CurveFit) -> Search {
        let problem = self.problem(curve);
        let begin = problem.rows(&fit.parameters).and_then(|rows| {
            match problem.look_around(&rows, &fit.parameters) {
                Neighbourhood::Lower(begin) => Some(begin),
                Neighbourhood::Minimum(_) | Neighbourhood::Unknown => None,
            }
        });
        Search {
            begin,
            evaluations: 1 + problem.costs.get(),
        }
    }

    /// Replaces a curve's fit by a later one if that is the only success of the two, has a lower cost where both or
    /// none are, or if the model failed in it, and counts the evaluations of both; returns whether it did. If the later
    /// one was interrupted, so is the fit.
    fn replace(&self, curve: &Curve, fit: &mut CurveFit, later: CurveFit) -> bool {
        let (evaluations, rounds) = (
            fit.evaluations + later.evaluations,
            fit.rounds + later.rounds,
        );
        // a start that is not finite has none
        let cost = |fit: &CurveFit| {
            Some(fit.chi2 + self.penalty(&fit.parameters)).filter(|cost| cost.is_finite())
        };
        let cost = |fit: &CurveFit| cost(fit).unwrap_or(f64::INFINITY);
        let is_interrupted = later.status == Status::Interrupted && !fit.status.is_success();
        let has_failed = self.failures.text(curve.index).is_some();
        let is_better = match (later.status.is_success(), fit.status.is_success()) {
            (true, false) => true,
            (false, true) => false,
            _ => cost(&later) < cost(fit) || has_failed,
        };
        if is_better {
            *fit = later;
        } else if is_interrupted {
            (fit.status, fit.message) = (later.status, "interrupted in another start".into());
            fit.errors.fill(f64::NAN);
            fit.covariance.fill(f64::NAN);
        }
        (fit.evaluations, fit.rounds) = (evaluations, rounds);
        is_better
    }
}
