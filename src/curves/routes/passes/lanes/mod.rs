//! Searches by simplices over curves of a formula on the CPU: the points of 64 simplices are evaluated side by side,
//! one lane each, in f64, and `solver/round/simplex.rs` moves each of them. For plain least squares without priors;
//! other fits take the populations.

mod seats;

use rayon::prelude::*;

use self::seats::Seats;
use super::simplices::{fits, not_begun};
use crate::curves::CurveRun;
use crate::curves::input::data::{Curve, Grid};
use crate::curves::routes::objective::CurveObjective;
use crate::curves::watch::Watch;
use crate::error::Result;
use crate::math::lanes::LANES;
use crate::solver::round::simplex::{
    ObjectiveSettings, TrialPoint, choose_second_lane, count_first_lanes, move_simplex,
};
use crate::solver::search::{Begin, FitPoints, Machine, SearchFit, SearchSettings, search};
use crate::solver::simplex::{Simplex, TRIALS_PER_SIMPLEX as TRIALS};
use crate::solver::small::{LaneModel, MOST_PARAMETERS, MOST_POINTS};
use crate::solver::{Outcome, Status};
use crate::threads;

/// Number of fits that one thread takes at a time.
const TASK: usize = 256;

/// Settings and model that all threads share.
pub(super) struct LaneSearches {
    model: LaneModel<f64>,
    /// The model without derivatives, where that is quicker.
    values: Option<LaneModel<f64>>,
    /// True if the model's values at a point do not depend on the points that are evaluated with it.
    is_pointwise: bool,
    predictors: usize,
    grid: Grid,
    points: usize,
    settings: SearchSettings,
}

impl LaneSearches {
    /// Maximum number of curves that enter together.
    pub const CAPACITY: usize = 1 << 13;

    /// Sets up Nelder–Mead searches with one curve per vector lane; `None` on a GPU, for large curves, or if the fit is
    /// not plain least squares.
    pub fn new(
        fitter: &CurveRun,
        grid: Grid,
        points: usize,
        settings: SearchSettings,
    ) -> Option<LaneSearches> {
        let formula = fitter
            .model
            .formula()
            .filter(|_| !fitter.device.inner.runs_wgsl())?;
        let is_tiny = fitter.held.len() <= MOST_PARAMETERS && points <= MOST_POINTS;
        let is_plain =
            fitter.estimator.is_least_squares() && fitter.priors.iter().all(Option::is_none);
        let suits = is_tiny && is_plain;
        suits.then(|| LaneSearches {
            model: formula.lanes(),
            values: formula.lane_values(),
            is_pointwise: formula.is_pointwise(),
            predictors: formula.predictors().len(),
            grid,
            points,
            settings,
        })
    }

    /// Searches by Nelder–Mead on all threads and returns one outcome per curve.
    pub fn run(
        &self,
        fitter: &CurveRun,
        objective: &CurveObjective,
        curves: &[Curve],
        watch: &Watch,
    ) -> Result<Vec<Outcome>> {
        let search = |curves| self.run_task(fitter, objective, curves, watch);
        let all: Result<Vec<Vec<Outcome>>> =
            threads::in_pool(|| curves.par_chunks(TASK).map(search).collect());
        Ok(all?.concat())
    }

    /// Searches by Nelder–Mead on one thread and returns one outcome per curve.
    fn run_task(
        &self,
        fitter: &CurveRun,
        objective: &CurveObjective,
        curves: &[Curve],
        watch: &Watch,
    ) -> Result<Vec<Outcome>> {
        let batch = objective.batch(curves, &fitter.priors, fitter.far());
        let fits = fits(fitter, curves, &batch);
        let mut machine = LaneSearch {
            shared: self,
            seats: Seats::new(self, fitter, curves),
            fits: &fits,
            watch,
        };
        let found = search(&mut machine, &fits, &self.settings, watch.flag())?
            .into_iter()
            .enumerate();
        Ok(found
            .map(|(fit, outcome)| outcome.unwrap_or_else(|| not_begun(&batch, fit)))
            .collect())
    }
}

/// Searches of some fits on one thread.
struct LaneSearch<'a> {
    shared: &'a LaneSearches,
    seats: Seats<'a>,
    fits: &'a [SearchFit],
    watch: &'a Watch<'a>,
}

impl Machine for LaneSearch<'_> {
    fn linearise(&mut self) -> Result<Vec<Outcome>> {
        let all: Vec<usize> = (0..self.fits.len()).collect();
        let mut outcomes = Vec::with_capacity(all.len());
        for some in all.chunks(LANES) {
            for (lane, &fit) in some.iter().enumerate() {
                self.seats.put(lane, fit, &self.fits[fit].start);
            }
            self.seats.evaluate(seats(some.len()), true);
            outcomes.extend(
                some.iter()
                    .enumerate()
                    .map(|(lane, &fit)| self.seats.outcome(lane, fit)),
            );
        }
        Ok(outcomes)
    }

    fn search(&mut self, begins: Vec<Begin>) -> Result<Vec<Option<Outcome>>> {
        let mut found: Vec<Option<Outcome>> = vec![None; begins.len()];
        let mut waiting = begins.iter().enumerate();
        let mut lanes: Vec<Option<Lane>> = (0..LANES).map(|_| None).collect();
        loop {
            let is_stopped = self.watch.is_stopped();
            for (lane, seat) in lanes.iter_mut().enumerate() {
                if seat.is_none() && !is_stopped {
                    *seat = waiting
                        .next()
                        .map(|(index, begin)| self.begin(index, begin));
                }
                if let Some(seat) = seat {
                    self.seats
                        .put(lane, seat.fit, &seat.trials[seat.asked].point);
                }
            }
            if lanes.iter().all(Option::is_none) {
                return Ok(found);
            }
            let taken = lanes
                .iter()
                .enumerate()
                .fold(0, |all, (lane, own)| all | u64::from(own.is_some()) << lane);
            self.seats.evaluate(taken, false);
            for (lane, seat) in lanes.iter_mut().enumerate() {
                let Some(own) = seat else { continue };
                let value = self.seats.cost.0[lane];
                let status = self.advance(
                    own,
                    if value.is_finite() {
                        value
                    } else {
                        f64::INFINITY
                    },
                );
                if let Some(status) = status.or(is_stopped.then_some(Status::Interrupted)) {
                    found[own.index] = Some(own.simplex.outcome(Some(status)));
                    *seat = None;
                }
            }
        }
    }

    fn evaluate(&mut self, points: Vec<FitPoints>) -> Result<Vec<Vec<f64>>> {
        let each = points.iter().enumerate();
        let all: Vec<(usize, &[f64])> = each
            .flat_map(|(k, asked)| {
                let width = self.fits[asked.fit].start.len().max(1);
                asked
                    .points
                    .chunks_exact(width)
                    .map(move |point| (k, point))
            })
            .collect();
        let mut values: Vec<Vec<f64>> = vec![Vec::new(); points.len()];
        for some in all.chunks(LANES) {
            for (lane, (k, point)) in some.iter().enumerate() {
                self.seats.put(lane, points[*k].fit, point);
            }
            self.seats.evaluate(seats(some.len()), false);
            for (lane, (k, _)) in some.iter().enumerate() {
                let value = self.seats.cost.0[lane];
                values[*k].push(if value.is_finite() {
                    value
                } else {
                    f64::INFINITY
                });
            }
        }
        Ok(values)
    }
}

/// A trial point and the value of the objective there.
#[derive(Clone, Debug, Default)]
struct Trial {
    point: Vec<f64>,
    value: f64,
}

impl TrialPoint for Trial {
    fn point(&self) -> &[f64] {
        &self.point
    }

    fn point_mut(&mut self) -> &mut [f64] {
        &mut self.point
    }

    fn objective(&self, _marginalise: bool) -> f64 {
        self.value
    }
}

/// A simplex in a lane.
struct Lane {
    /// Index among the simplices that begin.
    index: usize,
    fit: usize,
    simplex: Simplex,
    trials: [Trial; TRIALS],
    /// Index of the trial point that is evaluated next.
    asked: usize,
    /// Number of trial points that are evaluated before the simplex can choose.
    first: usize,
}

impl LaneSearch<'_> {
    /// Makes a lane with a new simplex around a fit's start and with the points to evaluate first.
    fn begin(&self, index: usize, begin: &Begin) -> Lane {
        let fit = &self.fits[begin.fit];
        let size = self.shared.settings.settings.size;
        let simplex =
            Simplex::new(index, &begin.start, fit.bounds(), size).shaped(begin.simplex.as_ref());
        let mut trials: [Trial; TRIALS] = Default::default();
        let points = simplex.first_trials();
        for (trial, point) in trials
            .iter_mut()
            .zip(points.chunks_exact(begin.start.len().max(1)))
        {
            trial.point = point.to_vec();
        }
        let first = count_first_lanes(&simplex);
        Lane {
            index,
            fit: begin.fit,
            simplex,
            trials,
            asked: 0,
            first,
        }
    }

    /// Stores the objective at the point that a lane asked for and chooses its next point; returns a status if the
    /// search has ended.
    fn advance(&self, lane: &mut Lane, value: f64) -> Option<Status> {
        lane.trials[lane.asked].value = value;
        if lane.asked + 1 < lane.first {
            lane.asked += 1;
            return None;
        }
        // the reflection asks for one more, which then is behind the first
        if lane.asked + 1 == lane.first
            && let Some(second) = choose_second_lane(&lane.simplex, lane.trials[0].value)
        {
            lane.asked = second;
            return None;
        }
        let fit = &self.fits[lane.fit];
        let SearchSettings {
            settings,
            dof,
            noise,
        } = &self.shared.settings;
        let worth = ObjectiveSettings {
            marginalise: false,
            dof: *dof,
            noise: *noise,
        };
        let status = move_simplex(
            &mut lane.simplex,
            &mut lane.trials,
            fit.bounds(),
            settings,
            worth,
        );
        (lane.asked, lane.first) = (0, count_first_lanes(&lane.simplex));
        status
    }
}

/// Returns the bits of the first lanes, one per fit.
fn seats(fits: usize) -> u64 {
    if fits < LANES {
        (1 << fits) - 1
    } else {
        u64::MAX
    }
}
