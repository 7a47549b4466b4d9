//! Searches by simplices over curves of a formula on the CPU: the points of 64 simplices are evaluated side by side,
//! one lane each, in f64, and `solver/round/simplex.rs` moves each of them. For plain least squares without priors;
//! other fits take the populations.

mod seats;

use rayon::prelude::*;

use self::seats::Seats;
use super::simplices::{describe_fits, not_begun};
use crate::curves::CurveRun;
use crate::curves::input::data::{Curve, GridKind};
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
const FITS_PER_TASK: usize = 256;

/// Settings and model that all threads share.
pub(super) struct LaneSearches {
    model: LaneModel<f64>,
    /// The model without derivatives, where that is quicker.
    values: Option<LaneModel<f64>>,
    /// True if the model's values at a point do not depend on the points that are evaluated with it.
    is_pointwise: bool,
    predictors: usize,
    grid: GridKind,
    points: usize,
    settings: SearchSettings,
}

impl LaneSearches {
    /// Maximum number of curves that enter together.
    pub const MAX_CURVES: usize = 1 << 13;

    /// Sets up Nelder–Mead searches with one curve per vector lane; `None` on a GPU, for large curves, or if the fit is
    /// not plain least squares.
    pub fn new(
        fitter: &CurveRun,
        grid: GridKind,
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
        let is_supported = is_tiny && is_plain;
        is_supported.then(|| LaneSearches {
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
    pub fn search_all(
        &self,
        fitter: &CurveRun,
        objective: &CurveObjective,
        curves: &[Curve],
        watch: &Watch,
    ) -> Result<Vec<Outcome>> {
        let outcomes: Result<Vec<Vec<Outcome>>> = threads::in_pool(|| {
            curves
                .par_chunks(FITS_PER_TASK)
                .map(|curves| self.search_on_thread(fitter, objective, curves, watch))
                .collect()
        });
        Ok(outcomes?.concat())
    }

    /// Searches by Nelder–Mead on one thread and returns one outcome per curve.
    fn search_on_thread(
        &self,
        fitter: &CurveRun,
        objective: &CurveObjective,
        curves: &[Curve],
        watch: &Watch,
    ) -> Result<Vec<Outcome>> {
        let batch = objective.batch(curves, &fitter.priors, fitter.infinite_bound());
        let fits = describe_fits(fitter, curves, &batch);
        let mut machine = LaneSearch {
            shared: self,
            seats: Seats::new(self, fitter, curves),
            fits: &fits,
            watch,
        };
        let outcomes = search(&mut machine, &fits, &self.settings, watch.stop_flag())?;
        Ok(outcomes
            .into_iter()
            .enumerate()
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
        let all_fits: Vec<usize> = (0..self.fits.len()).collect();
        let mut outcomes = Vec::with_capacity(all_fits.len());
        for fits in all_fits.chunks(LANES) {
            for (lane, &fit) in fits.iter().enumerate() {
                self.seats.seat(lane, fit, &self.fits[fit].start);
            }
            self.seats.evaluate(first_lane_bits(fits.len()), true);
            for (lane, &fit) in fits.iter().enumerate() {
                outcomes.push(self.seats.outcome(lane, fit));
            }
        }
        Ok(outcomes)
    }

    fn search(&mut self, begins: Vec<Begin>) -> Result<Vec<Option<Outcome>>> {
        let mut outcomes: Vec<Option<Outcome>> = vec![None; begins.len()];
        let mut waiting = begins.iter().enumerate();
        let mut lanes: Vec<Option<SimplexLane>> = (0..LANES).map(|_| None).collect();
        loop {
            // 1. Fill empty lanes with simplices that wait, and write each lane's trial point.
            let is_stopped = self.watch.is_stopped();
            for (lane, occupant) in lanes.iter_mut().enumerate() {
                if occupant.is_none() && !is_stopped {
                    *occupant = waiting
                        .next()
                        .map(|(index, begin)| self.begin_simplex(index, begin));
                }
                if let Some(simplex) = occupant {
                    let trial_point = &simplex.trials[simplex.asked].point;
                    self.seats.seat(lane, simplex.fit, trial_point);
                }
            }
            if lanes.iter().all(Option::is_none) {
                return Ok(outcomes);
            }
            // 2. Evaluate all of them side by side.
            let mut lane_bits = 0;
            for (lane, occupant) in lanes.iter().enumerate() {
                lane_bits |= u64::from(occupant.is_some()) << lane;
            }
            self.seats.evaluate(lane_bits, false);
            // 3. Move each simplex, and empty the lanes of those that have ended.
            for (lane, occupant) in lanes.iter_mut().enumerate() {
                let Some(simplex) = occupant else { continue };
                let status = self.advance_simplex(simplex, self.seats.finite_cost(lane));
                if let Some(status) = status.or(is_stopped.then_some(Status::Interrupted)) {
                    outcomes[simplex.index] = Some(simplex.simplex.outcome(Some(status)));
                    *occupant = None;
                }
            }
        }
    }

    fn evaluate(&mut self, points: Vec<FitPoints>) -> Result<Vec<Vec<f64>>> {
        // 1. List all points with the index of their request.
        let all_points: Vec<(usize, &[f64])> = points
            .iter()
            .enumerate()
            .flat_map(|(request, asked)| {
                let width = self.fits[asked.fit].start.len().max(1);
                asked
                    .points
                    .chunks_exact(width)
                    .map(move |point| (request, point))
            })
            .collect();
        // 2. Evaluate as many at a time as there are lanes, and sort the costs by request.
        let mut values: Vec<Vec<f64>> = vec![Vec::new(); points.len()];
        for chunk in all_points.chunks(LANES) {
            for (lane, (request, point)) in chunk.iter().enumerate() {
                self.seats.seat(lane, points[*request].fit, point);
            }
            self.seats.evaluate(first_lane_bits(chunk.len()), false);
            for (lane, (request, _)) in chunk.iter().enumerate() {
                values[*request].push(self.seats.finite_cost(lane));
            }
        }
        Ok(values)
    }
}

/// A trial point and the value of the objective there.
#[derive(Clone, Debug, Default)]
struct LaneTrial {
    point: Vec<f64>,
    value: f64,
}

impl TrialPoint for LaneTrial {
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
struct SimplexLane {
    /// Index among the simplices that begin.
    index: usize,
    fit: usize,
    simplex: Simplex,
    trials: [LaneTrial; TRIALS],
    /// Index of the trial point that is evaluated next.
    asked: usize,
    /// Number of trial points that are evaluated before the simplex can choose.
    first: usize,
}

impl LaneSearch<'_> {
    /// Makes a lane with a new simplex around a fit's start and with the points to evaluate first.
    fn begin_simplex(&self, index: usize, begin: &Begin) -> SimplexLane {
        let fit = &self.fits[begin.fit];
        let size = self.shared.settings.settings.size;
        let simplex =
            Simplex::new(index, &begin.start, fit.bounds(), size).shaped(begin.simplex.as_ref());
        let mut trials: [LaneTrial; TRIALS] = Default::default();
        let points = simplex.first_trials();
        for (trial, point) in trials
            .iter_mut()
            .zip(points.chunks_exact(begin.start.len().max(1)))
        {
            trial.point = point.to_vec();
        }
        let first = count_first_lanes(&simplex);
        SimplexLane {
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
    fn advance_simplex(&self, lane: &mut SimplexLane, value: f64) -> Option<Status> {
        // 1. Evaluate all first trial points before the simplex chooses.
        lane.trials[lane.asked].value = value;
        if lane.asked + 1 < lane.first {
            lane.asked += 1;
            return None;
        }
        // 2. The reflection may ask for one more point, whose index lies behind the first ones.
        if lane.asked + 1 == lane.first
            && let Some(second) = choose_second_lane(&lane.simplex, lane.trials[0].value)
        {
            lane.asked = second;
            return None;
        }
        // 3. Move the simplex.
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
        lane.asked = 0;
        lane.first = count_first_lanes(&lane.simplex);
        status
    }
}

/// Returns the bits of the first lanes, one per fit.
fn first_lane_bits(fits: usize) -> u64 {
    if fits < LANES {
        (1 << fits) - 1
    } else {
        u64::MAX
    }
}
