//! The populations of a fitter and the passes of its solver through them.

mod lanes;
mod simplices;

use std::sync::Arc;

use self::lanes::LaneSearches;
use self::simplices::{CurveSearch, SimplexPasses, not_begun};
use super::data::{Curve, Grid};
use super::objective::CurveObjective;
use super::watch::Watch;
use super::witness::few;
use super::{CurveFitter, CurveRun, CurveSolver};
use crate::error::Result;
use crate::fit::solve::halving;
use crate::recording::Recording;
use crate::solver::search::SearchSettings;
use crate::solver::{Batch, Method, Objective, Outcome, Population, Status, linearise, optimise};

pub(super) struct Passes<'a> {
    fitter: &'a CurveRun,
    /// Curves that enter together.
    pub capacity: usize,
    objective: CurveObjective,
    linearise: Option<Box<dyn Population>>,
    simplex: Option<SimplexPasses>,
    /// Instead of populations, where a formula's lanes do.
    lanes: Option<LaneSearches>,
}

impl Passes<'_> {
    /// At most `most` curves are asked for at once.
    pub fn new<'a>(fitter: &'a CurveRun, grid: Grid, points: usize, most: usize) -> Result<Passes<'a>> {
        let (lm, simplex) = match fitter.solver {
            CurveSolver::Lm(lm) => (Some(lm), None),
            CurveSolver::NelderMead(simplex) => (None, Some(simplex)),
        };
        let objective = |values_only| CurveObjective::new(fitter.design(), points, grid, values_only);
        let linearisation = |lm| (Arc::new(objective(false).record()), Method::LevenbergMarquardt(lm));
        let evaluation = |method| (Arc::new(objective(true).record()), method);
        let settings =
            |settings| SearchSettings { settings, dof: objective(true).record().dof, noise: fitter.objective_noise() };
        if let Some(lanes) = simplex.and_then(|nm| LaneSearches::new(fitter, (grid, points), settings(nm))) {
            let capacity = most.min(LaneSearches::CAPACITY);
            let (objective, lanes) = (objective(false), Some(lanes));
            return Ok(Passes { fitter, capacity, objective, linearise: None, simplex: None, lanes });
        }
        let once = CurveFitter::LEVENBERG_MARQUARDT;
        let mut wanted = vec![linearisation(lm.unwrap_or(once))];
        wanted.extend(simplex.map(|nm| evaluation(Method::NelderMead(nm))));
        wanted.extend(simplex.map(|_| evaluation(Method::LevenbergMarquardt(once))));
        let device = &*fitter.device.inner;
        let mut capacity = most;
        let share = wanted.len();
        for (recording, method) in &wanted {
            let members = device.capacity(recording, fitter.max_memory)?;
            capacity = capacity.min((members / method.lanes() / share).max(1));
        }
        let mut made = halving(&mut capacity, |capacity| {
            let population =
                |(recording, method): &(Arc<Recording>, Method)| device.population(recording.clone(), method, capacity);
            wanted.iter().map(population).collect::<Result<Vec<_>>>()
        })?;
        let first = made.remove(0);
        let (linearise, simplex) = match (simplex.map(settings), made.pop(), made.pop()) {
            (Some(settings), Some(evaluate), Some(simplex)) => {
                (None, Some(SimplexPasses { linearise: first, simplex, evaluate, settings }))
            }
            _ => (Some(first), None),
        };
        Ok(Passes { fitter, capacity, objective: objective(false), linearise, simplex, lanes: None })
    }

    /// One outcome a curve; its parameters are physical.
    pub fn solve(&mut self, curves: &[Curve], watch: &Watch) -> Result<Vec<Outcome>> {
        let mut outcomes = match &self.lanes {
            Some(lanes) => lanes.run((self.fitter, &self.objective), curves, watch)?,
            None => self.solve_by_populations(curves, watch)?,
        };
        for (outcome, curve) in outcomes.iter_mut().zip(curves) {
            outcome.parameters = physical(&outcome.parameters, curve);
            let sums = [&mut outcome.chi2, &mut outcome.penalty].into_iter();
            let sums = sums.chain(&mut outcome.gradient).chain(&mut outcome.normal_matrix);
            sums.for_each(|sum| *sum /= curve.gain * curve.gain);
        }
        Ok(outcomes)
    }

    /// One outcome a curve, in `u`.
    fn solve_by_populations(&mut self, curves: &[Curve], watch: &Watch) -> Result<Vec<Outcome>> {
        let mut batch = self.objective.batch(curves, &self.fitter.priors, self.fitter.far());
        let mut outcomes = Vec::new();
        if let Some(population) = &mut self.linearise {
            outcomes = run(population.as_mut(), &batch, watch)?;
            self.hear(curves, &outcomes)?;
        }
        if let Some(passes) = &mut self.simplex {
            outcomes = CurveSearch::new(passes, (self.fitter, &self.objective), (curves, &batch), watch).run()?;
            // what the host cannot compute the sums below tell
            if !self.fitter.model.needs_gpu() {
                self.hear(curves, &outcomes)?;
            }
        }
        let sums = self.simplex.as_mut().filter(|_| self.fitter.model.needs_gpu());
        if let Some(SimplexPasses { linearise: population, .. }) = sums {
            batch.starts = outcomes.iter().flat_map(|outcome| outcome.parameters.clone()).collect();
            let sums = pollster::block_on(linearise(population.as_mut(), &batch))?;
            for ((outcome, sums), curve) in outcomes.iter_mut().zip(sums).zip(curves) {
                if outcome.status.is_some_and(Status::is_success) {
                    self.fitter.hear_again(curve, outcome, &sums)?;
                }
                (outcome.gradient, outcome.normal_matrix) = (sums.gradient, sums.normal_matrix);
            }
        }
        Ok(outcomes)
    }

    /// Looks at some of the fits of a pass on a GPU; where the host has no model the device is asked for them again.
    fn hear(&mut self, curves: &[Curve], outcomes: &[Outcome]) -> Result<()> {
        let fitter = self.fitter;
        if !fitter.device.inner.runs_wgsl() {
            return Ok(());
        }
        let some = few(0..outcomes.len(), |k| outcomes[k].status);
        if !fitter.model.needs_gpu() {
            return some.into_iter().try_for_each(|k| {
                let Outcome { parameters, chi2, penalty, .. } = &outcomes[k];
                fitter.hear(&curves[k], &physical(parameters, &curves[k]), chi2 + penalty)
            });
        }
        let Some(population) = self.linearise.as_mut().filter(|_| !some.is_empty()) else { return Ok(()) };
        let picked: Vec<&Curve> = some.iter().map(|&k| &curves[k]).collect();
        let mut batch = self.objective.batch(&picked, &fitter.priors, fitter.far());
        batch.starts = some.iter().flat_map(|&k| outcomes[k].parameters.clone()).collect();
        let again = pollster::block_on(linearise(population.as_mut(), &batch))?;
        some.into_iter().zip(&again).try_for_each(|(k, now)| fitter.hear_again(&curves[k], &outcomes[k], now))
    }
}

/// Share of a bound within which a parameter is at it: what scaling there and back may do.
const AT_BOUND: f64 = 1e-14;

/// The values of `u`: at a bound, which a device may have rounded to f32, they are the bound.
fn physical(u: &[f64], curve: &Curve) -> Vec<f64> {
    let one = |(p, &u): (usize, &f64)| {
        let (scale, lower, upper) = (curve.scale[p], curve.lower[p], curve.upper[p]);
        let is_at = |bound: &f64| {
            let place = bound / scale;
            u == f64::from(place as f32) || place.is_finite() && (u - place).abs() <= AT_BOUND * place.abs()
        };
        match [lower, upper].into_iter().find(is_at) {
            Some(bound) => bound,
            None if u.is_nan() => u,
            None => (u * scale).clamp(lower, upper),
        }
    };
    u.iter().enumerate().map(one).collect()
}

/// One outcome per curve, without rounds where the run was stopped before a curve entered.
fn run(population: &mut dyn Population, batch: &Batch, watch: &Watch) -> Result<Vec<Outcome>> {
    let lanes = population.lanes();
    let mut look = |active: usize| {
        if !watch.is_stopped() {
            watch.show_in_flight(batch.spectra - active.div_ceil(lanes).min(batch.spectra));
        }
    };
    let mut outcomes = pollster::block_on(optimise(population, batch, watch.flag(), &mut look))?;
    (outcomes.len()..batch.spectra).for_each(|fit| outcomes.push(not_begun(batch, fit)));
    Ok(outcomes)
}
