//! The populations of a fitter and the passes of its solver through them.

mod lanes;
mod simplices;

use std::sync::Arc;

use self::lanes::LaneSearches;
use self::simplices::{CurveSearch, SimplexPasses, not_begun};
use crate::curves::input::data::{Curve, Grid};
use crate::curves::routes::objective::CurveObjective;
use crate::curves::watch::Watch;
use crate::curves::{CurveRun, CurveSolver};
use crate::device::retry::lower_until_it_fits;
use crate::device::verify::{MAX_CHECKED_FITS, sample_successes};
use crate::error::Result;
use crate::recording::Recording;
use crate::solver::search::SearchSettings;
use crate::solver::{
    Batch, LevenbergMarquardt, Method, Objective, Outcome, Population, Status, linearise, optimise,
};

/// Populations of a fitter, or the lanes of its formula, which curves go through.
pub(crate) struct Passes<'a> {
    fitter: &'a CurveRun,
    grid: Grid,
    points: usize,
    /// Maximum number of rounds of a fit.
    rounds: u32,
    /// Maximum number of curves that enter together.
    pub capacity: usize,
    objective: CurveObjective,
    linearise: Option<Box<dyn Population>>,
    simplex: Option<SimplexPasses>,
    /// Searches in lanes, which take the place of the populations where the model is a formula.
    lanes: Option<LaneSearches>,
}

impl<'a> Passes<'a> {
    /// Makes what fits curves of so many points on the device, at most `most` of them at once, by one attempt each.
    pub fn new(fitter: &'a CurveRun, grid: Grid, points: usize, most: usize) -> Result<Passes<'a>> {
        Passes::with_rounds(fitter, grid, points, most, fitter.rounds_per_attempt())
    }

    /// Makes the same for attempts of at most so many rounds.
    fn with_rounds(
        fitter: &'a CurveRun,
        grid: Grid,
        points: usize,
        most: usize,
        rounds: u32,
    ) -> Result<Passes<'a>> {
        let (lm, simplex) = match fitter.solver {
            CurveSolver::Lm(lm) => (
                Some(LevenbergMarquardt {
                    max_rounds: rounds,
                    ..lm
                }),
                None,
            ),
            CurveSolver::NelderMead(simplex) => (None, Some(simplex)),
        };
        let objective =
            |values_only| CurveObjective::new(fitter.design(), points, grid, values_only);
        let linearisation = |lm| {
            (
                Arc::new(objective(false).record()),
                Method::LevenbergMarquardt(lm),
            )
        };
        let evaluation = |method| (Arc::new(objective(true).record()), method);
        let settings = |settings| SearchSettings {
            settings,
            dof: objective(true).record().dof,
            noise: fitter.objective_noise(),
        };
        if let Some(lanes) =
            simplex.and_then(|nm| LaneSearches::new(fitter, grid, points, settings(nm)))
        {
            let capacity = most.min(LaneSearches::CAPACITY);
            let (objective, lanes) = (objective(false), Some(lanes));
            return Ok(Passes {
                fitter,
                grid,
                points,
                rounds,
                capacity,
                objective,
                linearise: None,
                simplex: None,
                lanes,
            });
        }
        let once = LevenbergMarquardt::OF_CURVES;
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
        let mut made = lower_until_it_fits(&mut capacity, |capacity| {
            let population = |(recording, method): &(Arc<Recording>, Method)| {
                device.population(recording.clone(), method, capacity)
            };
            wanted.iter().map(population).collect::<Result<Vec<_>>>()
        })?;
        let first = made.remove(0);
        let (linearise, simplex) = match (simplex.map(settings), made.pop(), made.pop()) {
            (Some(settings), Some(evaluate), Some(simplex)) => (
                None,
                Some(SimplexPasses {
                    linearise: first,
                    simplex,
                    evaluate,
                    settings,
                }),
            ),
            _ => (Some(first), None),
        };
        let objective = objective(false);
        Ok(Passes {
            fitter,
            grid,
            points,
            rounds,
            capacity,
            objective,
            linearise,
            simplex,
            lanes: None,
        })
    }

    /// Fits some curves and returns one outcome per curve, with physical parameters. Its parameters are in the model's
    /// own units, and χ² and the other sums are free of the rows' factor. Curves that have fewer linearisations left
    /// than an attempt may use enter passes of their own.
    pub fn solve(&mut self, curves: &[Curve], watch: &Watch) -> Result<Vec<Outcome>> {
        if curves.iter().all(|curve| curve.budget >= self.rounds) {
            return self.solve_alike(curves, watch);
        }
        let rounds = |k: &usize| curves[*k].budget.clamp(1, self.rounds);
        let mut order: Vec<usize> = (0..curves.len()).collect();
        order.sort_by_key(rounds);
        let mut outcomes = vec![Outcome::default(); curves.len()];
        for alike in order.chunk_by(|a, b| rounds(a) == rounds(b)) {
            let some: Vec<Curve> = alike.iter().map(|&k| curves[k].clone()).collect();
            let mut passes = Passes::with_rounds(
                self.fitter,
                self.grid,
                self.points,
                some.len(),
                rounds(&alike[0]),
            )?;
            for (places, some) in alike
                .chunks(passes.capacity)
                .zip(some.chunks(passes.capacity))
            {
                let found = passes.solve_alike(some, watch)?;
                places
                    .iter()
                    .zip(found)
                    .for_each(|(&k, outcome)| outcomes[k] = outcome);
            }
        }
        Ok(outcomes)
    }

    /// Fits curves by attempts of the same length, as [`solve`](Self::solve) does.
    fn solve_alike(&mut self, curves: &[Curve], watch: &Watch) -> Result<Vec<Outcome>> {
        let mut outcomes = match &self.lanes {
            Some(lanes) => lanes.run(self.fitter, &self.objective, curves, watch)?,
            None => self.solve_by_populations(curves, watch)?,
        };
        for (outcome, curve) in outcomes.iter_mut().zip(curves) {
            outcome.parameters = physical(&outcome.parameters, curve);
            let sums = [&mut outcome.chi2, &mut outcome.penalty].into_iter();
            let sums = sums
                .chain(&mut outcome.gradient)
                .chain(&mut outcome.normal_matrix);
            sums.for_each(|sum| *sum /= curve.gain * curve.gain);
        }
        Ok(outcomes)
    }

    /// Fits some curves by populations and returns one outcome per curve, in the solver's parameters `u`.
    fn solve_by_populations(&mut self, curves: &[Curve], watch: &Watch) -> Result<Vec<Outcome>> {
        let mut batch = self
            .objective
            .batch(curves, &self.fitter.priors, self.fitter.far());
        let mut outcomes = Vec::new();
        if let Some(population) = &mut self.linearise {
            outcomes = run(population.as_mut(), &batch, watch)?;
            self.spot_check(curves, &outcomes)?;
        }
        if let Some(passes) = &mut self.simplex {
            let (fitter, objective) = (self.fitter, &self.objective);
            outcomes = CurveSearch {
                passes,
                fitter,
                objective,
                curves,
                batch: &batch,
                watch,
            }
            .run()?;
            // without a model on the host the sums below are compared
            if !self.fitter.model.needs_gpu() {
                self.spot_check(curves, &outcomes)?;
            }
        }
        let sums = self
            .simplex
            .as_mut()
            .filter(|_| self.fitter.model.needs_gpu());
        if let Some(SimplexPasses {
            linearise: population,
            ..
        }) = sums
        {
            batch.starts = outcomes
                .iter()
                .flat_map(|outcome| outcome.parameters.clone())
                .collect();
            let sums = pollster::block_on(linearise(population.as_mut(), &batch))?;
            for ((outcome, sums), curve) in outcomes.iter_mut().zip(sums).zip(curves) {
                if outcome.status.is_some_and(Status::is_success) {
                    self.fitter.compare_readbacks(curve, outcome, &sums)?;
                }
                (outcome.gradient, outcome.normal_matrix) = (sums.gradient, sums.normal_matrix);
            }
        }
        Ok(outcomes)
    }

    /// Checks a sample of a GPU's successful fits against the host or, where that has no model, against a second
    /// evaluation by the device.
    fn spot_check(&mut self, curves: &[Curve], outcomes: &[Outcome]) -> Result<()> {
        let fitter = self.fitter;
        if !fitter.device.inner.runs_wgsl() {
            return Ok(());
        }
        let some = sample_successes(0..outcomes.len(), |k| outcomes[k].status, MAX_CHECKED_FITS);
        if !fitter.model.needs_gpu() {
            return some.into_iter().try_for_each(|k| {
                let Outcome {
                    parameters,
                    chi2,
                    penalty,
                    ..
                } = &outcomes[k];
                fitter.check_cost(
                    &curves[k],
                    &physical(parameters, &curves[k]),
                    chi2 + penalty,
                )
            });
        }
        let Some(population) = self.linearise.as_mut().filter(|_| !some.is_empty()) else {
            return Ok(());
        };
        let picked: Vec<&Curve> = some.iter().map(|&k| &curves[k]).collect();
        let mut batch = self.objective.batch(&picked, &fitter.priors, fitter.far());
        batch.starts = some
            .iter()
            .flat_map(|&k| outcomes[k].parameters.clone())
            .collect();
        let again = pollster::block_on(linearise(population.as_mut(), &batch))?;
        some.into_iter()
            .zip(&again)
            .try_for_each(|(k, now)| fitter.compare_readbacks(&curves[k], &outcomes[k], now))
    }
}

/// Relative distance within which a parameter is at a bound: the rounding of scaling there and back.
const AT_BOUND: f64 = 1e-14;

/// Converts a curve's parameters from the solver's units to physical ones, clamped to the bounds. At a bound, which a
/// device may have rounded to f32, they are the bound itself.
fn physical(u: &[f64], curve: &Curve) -> Vec<f64> {
    let bounds = curve.lower.iter().zip(&curve.upper);
    let each = u.iter().zip(&curve.scale).zip(bounds);
    each.map(|((&u, &scale), (&lower, &upper))| physical_parameter(u, scale, lower, upper))
        .collect()
}

/// Converts one parameter from the solver's units to physical ones; what is at a bound but for rounding becomes the
/// bound.
fn physical_parameter(u: f64, scale: f64, lower: f64, upper: f64) -> f64 {
    let is_at = |bound: &f64| {
        let place = bound / scale;
        u == f64::from(place as f32)
            || place.is_finite() && (u - place).abs() <= AT_BOUND * place.abs()
    };
    match [lower, upper].into_iter().find(is_at) {
        Some(bound) => bound,
        None if u.is_nan() => u,
        None => (u * scale).clamp(lower, upper),
    }
}

/// Runs a population's solver on a batch and returns one outcome per curve, interrupted where the run stopped before it
/// entered.
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
