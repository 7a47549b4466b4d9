//! Searches by simplices over curves of a formula on the CPU: the points of 64 simplices are evaluated side by side,
//! one lane each, in f64, and `solver/round/simplex.rs` moves each of them. For plain least squares without priors;
//! other fits take the populations.

use rayon::prelude::*;

use super::simplices::{fits, not_begun};
use crate::curves::CurveRun;
use crate::curves::input::data::{Curve, Grid};
use crate::curves::routes::objective::CurveObjective;
use crate::curves::watch::Watch;
use crate::error::Result;
use crate::math::lanes::{LANES, Lanes};
use crate::math::triangle::{packed_index, packed_length};
use crate::solver::round::simplex::{TrialPoint, Worth, first_lanes, second_lane, simplex};
use crate::solver::search::{Begin, Machine, Points, SearchFit, SearchSettings, search};
use crate::solver::simplex::{LANES as TRIALS, Simplex};
use crate::solver::small::{LaneBlock, LaneGrid, LaneModel, MOST_PARAMETERS, MOST_POINTS};
use crate::solver::{Outcome, Status};
use crate::threads;

/// Number of fits that one thread takes at a time.
const TASK: usize = 256;
/// Maximum number of points whose rows are in the cache at a time.
const POINTS: usize = 9;

/// Settings and model that all threads share.
pub(super) struct LaneSearches {
    model: LaneModel<f64>,
    grid: Grid,
    points: usize,
    settings: SearchSettings,
}

impl LaneSearches {
    /// Maximum number of curves that enter together.
    pub const CAPACITY: usize = 1 << 13;

    /// Sets up Nelder–Mead searches with one curve per vector lane; `None` on a GPU, for large curves, or if the fit is
    /// not plain least squares.
    pub fn new(fitter: &CurveRun, grid: Grid, points: usize, settings: SearchSettings) -> Option<LaneSearches> {
        let formula = fitter.model.formula().filter(|_| !fitter.device.inner.runs_wgsl())?;
        let is_tiny = fitter.held.len() <= MOST_PARAMETERS && points <= MOST_POINTS;
        let is_plain = fitter.estimator.is_least_squares() && fitter.priors.iter().all(Option::is_none);
        let suits = is_tiny && is_plain;
        suits.then(|| LaneSearches { model: formula.lanes(), grid, points, settings })
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
        let all: Result<Vec<Vec<Outcome>>> = threads::in_pool(|| curves.par_chunks(TASK).map(search).collect());
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
        let mut machine = LaneSearch { shared: self, seats: Seats::new(self, fitter, curves), fits: &fits, watch };
        let found = search(&mut machine, &fits, &self.settings, watch.flag())?.into_iter().enumerate();
        Ok(found.map(|(fit, outcome)| outcome.unwrap_or_else(|| not_begun(&batch, fit))).collect())
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
            self.seats.evaluate(true);
            outcomes.extend(some.iter().enumerate().map(|(lane, &fit)| self.seats.outcome(lane, fit)));
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
                    *seat = waiting.next().map(|(index, begin)| self.begin(index, begin));
                }
                if let Some(seat) = seat {
                    self.seats.put(lane, seat.fit, &seat.trials[seat.asked].point);
                }
            }
            if lanes.iter().all(Option::is_none) {
                return Ok(found);
            }
            self.seats.evaluate(false);
            for (lane, seat) in lanes.iter_mut().enumerate() {
                let Some(own) = seat else { continue };
                let value = self.seats.cost.0[lane];
                let status = self.advance(own, if value.is_finite() { value } else { f64::INFINITY });
                if let Some(status) = status.or(is_stopped.then_some(Status::Interrupted)) {
                    found[own.index] = Some(own.simplex.outcome(Some(status)));
                    *seat = None;
                }
            }
        }
    }

    fn evaluate(&mut self, points: Vec<Points>) -> Result<Vec<Vec<f64>>> {
        let each = points.iter().enumerate();
        let all: Vec<(usize, &[f64])> = each
            .flat_map(|(k, asked)| {
                let width = self.fits[asked.fit].start.len().max(1);
                asked.points.chunks_exact(width).map(move |point| (k, point))
            })
            .collect();
        let mut values: Vec<Vec<f64>> = vec![Vec::new(); points.len()];
        for some in all.chunks(LANES) {
            for (lane, (k, point)) in some.iter().enumerate() {
                self.seats.put(lane, points[*k].fit, point);
            }
            self.seats.evaluate(false);
            for (lane, (k, _)) in some.iter().enumerate() {
                let value = self.seats.cost.0[lane];
                values[*k].push(if value.is_finite() { value } else { f64::INFINITY });
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
        let simplex = Simplex::new(index, &begin.start, fit.bounds(), size).shaped(begin.simplex.as_ref());
        let mut trials: [Trial; TRIALS] = Default::default();
        let points = simplex.first_trials();
        for (trial, point) in trials.iter_mut().zip(points.chunks_exact(begin.start.len().max(1))) {
            trial.point = point.to_vec();
        }
        let first = first_lanes(&simplex);
        Lane { index, fit: begin.fit, simplex, trials, asked: 0, first }
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
            && let Some(second) = second_lane(&lane.simplex, lane.trials[0].value)
        {
            lane.asked = second;
            return None;
        }
        let fit = &self.fits[lane.fit];
        let SearchSettings { settings, dof, noise } = &self.shared.settings;
        let worth = Worth { marginalise: false, dof: *dof, noise: *noise };
        let status = simplex(&mut lane.simplex, &mut lane.trials, fit.bounds(), settings, worth);
        (lane.asked, lane.first) = (0, first_lanes(&lane.simplex));
        status
    }
}

/// Points of fits, one lane each. P is the number of parameters.
struct Seats<'a> {
    shared: &'a LaneSearches,
    curves: &'a [Curve],
    /// The fit whose data each lane has.
    fits: [usize; LANES],
    /// (P), in the model's own units.
    parameters: Vec<Lanes<f64>>,
    /// (points): the data.
    y: Vec<Lanes<f64>>,
    /// (points): the weights.
    weight: Vec<Lanes<f64>>,
    /// (predictors, points), empty where all fits share one grid.
    x: Vec<Lanes<f64>>,
    registers: Vec<Lanes<f64>>,
    rows: Vec<Lanes<f64>>,
    /// Σ r², Jᵀr (P) and JᵀJ (P (P + 1) / 2).
    cost: Lanes<f64>,
    gradient: Vec<Lanes<f64>>,
    normal_matrix: Vec<Lanes<f64>>,
}

impl<'a> Seats<'a> {
    /// Returns the arrays in which all vector lanes are evaluated, with no fit in any lane yet.
    fn new(shared: &'a LaneSearches, fitter: &'a CurveRun, curves: &'a [Curve]) -> Seats<'a> {
        let zeros = |count: usize| vec![Lanes::splat(0.0); count];
        let count = fitter.held.len();
        let predictors = if shared.grid == Grid::Own { curves.first().map_or(0, |curve| curve.x.len()) } else { 0 };
        Seats {
            shared,
            curves,
            fits: [usize::MAX; LANES],
            parameters: vec![Lanes::splat(1.0); count],
            y: zeros(shared.points),
            weight: zeros(shared.points),
            x: zeros(predictors),
            registers: Vec::new(),
            rows: zeros(POINTS * (1 + count)),
            cost: Lanes::splat(0.0),
            gradient: zeros(count),
            normal_matrix: zeros(packed_length(count)),
        }
    }

    /// Writes a fit's data, unless they are there already, and its point, converted from the solver's units `u`, into a
    /// lane.
    fn put(&mut self, lane: usize, fit: usize, u: &[f64]) {
        let curve = &self.curves[fit];
        if self.fits[lane] != fit {
            self.fits[lane] = fit;
            let fill = |rows: &mut [Lanes<f64>], values: &[f64]| {
                rows.iter_mut().zip(values).for_each(|(row, x)| row.0[lane] = *x);
            };
            fill(&mut self.y, &curve.y);
            fill(&mut self.x, &curve.x);
            self.weight.iter_mut().zip(&curve.weight).for_each(|(row, w)| row.0[lane] = curve.gain * w);
        }
        for (p, parameter) in self.parameters.iter_mut().enumerate() {
            parameter.0[lane] = (u[p] * curve.scale[p]).clamp(curve.lower[p], curve.upper[p]);
        }
    }

    /// Evaluates the model in all lanes, and sums up each one's cost and, with `linearise`, gradient and normal matrix.
    fn evaluate(&mut self, linearise: bool) {
        self.cost = Lanes::splat(0.0);
        self.gradient.iter_mut().chain(&mut self.normal_matrix).for_each(|sum| *sum = Lanes::splat(0.0));
        let (all, stride) = (self.shared.points, 1 + self.parameters.len());
        let some = all.div_ceil(all.div_ceil(POINTS).max(1)).max(1);
        for first in (0..all).step_by(some) {
            let points = first..all.min(first + some);
            let grid = if self.x.is_empty() { LaneGrid::Shared(&self.curves[0].x) } else { LaneGrid::Own(&self.x) };
            (self.shared.model)(LaneBlock {
                points: points.clone(),
                of_points: all,
                grid,
                parameters: &self.parameters,
                registers: &mut self.registers,
                y: &self.y,
                rows: &mut self.rows[..points.len() * stride],
                stride,
            });
            pulp::Arch::new().dispatch(|| self.add(points.clone(), linearise));
        }
    }

    /// Adds the weighted residuals of some points to each lane's cost and, with `linearise`, to its gradient and normal
    /// matrix.
    #[inline(always)]
    fn add(&mut self, points: std::ops::Range<usize>, linearise: bool) {
        let stride = 1 + self.parameters.len();
        for (rows, weight) in self.rows.chunks_exact_mut(stride).zip(&self.weight[points]) {
            let (residual, tangents) = rows.split_at_mut(1);
            let residual = &mut residual[0];
            for l in 0..LANES {
                // a masked point's value may be anything
                let r = if weight.0[l] > 0.0 { weight.0[l] * residual.0[l] } else { 0.0 };
                residual.0[l] = r;
                self.cost.0[l] += r * r;
            }
            if !linearise {
                continue;
            }
            for p in 0..tangents.len() {
                for l in 0..LANES {
                    let j = if weight.0[l] > 0.0 { weight.0[l] * tangents[p].0[l] } else { 0.0 };
                    tangents[p].0[l] = j;
                    self.gradient[p].0[l] += j * residual.0[l];
                }
                for q in 0..=p {
                    let sum = &mut self.normal_matrix[packed_index(p, q)];
                    for l in 0..LANES {
                        sum.0[l] += tangents[p].0[l] * tangents[q].0[l];
                    }
                }
            }
        }
    }

    /// Returns the χ², gradient and normal matrix of the fit in a lane, by the solver's parameters `u`.
    fn outcome(&self, lane: usize, fit: usize) -> Outcome {
        let (curve, count) = (&self.curves[fit], self.parameters.len());
        let mut outcome = Outcome {
            chi2: self.cost.0[lane],
            gradient: (0..count).map(|p| curve.scale[p] * self.gradient[p].0[lane]).collect(),
            normal_matrix: vec![0.0; packed_length(count)],
            ..Outcome::default()
        };
        for p in 0..count {
            for q in 0..=p {
                let k = packed_index(p, q);
                outcome.normal_matrix[k] = curve.scale[p] * curve.scale[q] * self.normal_matrix[k].0[lane];
            }
        }
        outcome
    }
}
