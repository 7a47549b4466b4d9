//! Populations of curves on a device, and the fits that go through them.

mod lanes;
mod simplices;

use std::sync::Arc;

use self::lanes::LaneSearches;
use self::simplices::{CurveSearch, SimplexPopulations, not_begun};
use crate::curves::input::data::{Curve, GridKind};
use crate::curves::routes::objective::CurveObjective;
use crate::curves::watch::Watch;
use crate::curves::{CurveRun, CurveSolver};
use crate::device::retry::lower_until_it_fits;
use crate::device::verify::{MAX_CHECKED_FITS, sample_successes};
use crate::error::Result;
use crate::solver::search::SearchSettings;
use crate::solver::{
    Batch, LevenbergMarquardt, Objective, Outcome, Population, Status, linearise, optimise,
};

/// Populations of a run, or the lanes of its formula, in which curves are fitted batch by batch.
pub(crate) struct CurvePopulations<'a> {
    fitter: &'a CurveRun,
    grid: GridKind,
    points: usize,
    /// Maximum number of rounds of a fit.
    max_rounds: u32,
    /// Maximum number of curves that enter together.
    pub capacity: usize,
    objective: CurveObjective,
    linearise: Option<Box<dyn Population>>,
    simplex: Option<SimplexPopulations>,
    /// Searches in lanes, which replace the populations where the model is a formula.
    lanes: Option<LaneSearches>,
}

impl<'a> CurvePopulations<'a> {
    /// Makes what fits curves of so many points on the device, at most `max_curves` of them at once, by one attempt
    /// each.
    pub fn new(
        fitter: &'a CurveRun,
        grid: GridKind,
        points: usize,
        max_curves: usize,
    ) -> Result<CurvePopulations<'a>> {
        let max_rounds = fitter.rounds_per_attempt();
        CurvePopulations::with_max_rounds(fitter, grid, points, max_curves, max_rounds)
    }

    /// Makes the same for attempts of at most `max_rounds` rounds.
    fn with_max_rounds(
        fitter: &'a CurveRun,
        grid: GridKind,
        points: usize,
        max_curves: usize,
        max_rounds: u32,
    ) -> Result<CurvePopulations<'a>> {
        let (lm, nelder_mead) = match fitter.solver {
            CurveSolver::Lm(lm) => (Some(LevenbergMarquardt { max_rounds, ..lm }), None),
            CurveSolver::NelderMead(nelder_mead) => (None, Some(nelder_mead)),
        };
        let objective =
            |values_only| CurveObjective::new(fitter.design(), points, grid, values_only);
        // 1. Simplices of small formulas search in lanes.
        let search_settings = |settings| SearchSettings {
            settings,
            dof: objective(true).record().dof,
            noise: fitter.objective_noise(),
        };
        if let Some(lanes) = nelder_mead
            .and_then(|settings| LaneSearches::new(fitter, grid, points, search_settings(settings)))
        {
            return Ok(CurvePopulations {
                fitter,
                grid,
                points,
                max_rounds,
                capacity: max_curves.min(LaneSearches::MAX_CURVES),
                objective: objective(false),
                linearise: None,
                simplex: None,
                lanes: Some(lanes),
            });
        }
        // 2. All other fits need populations: simplices two, for linearisations and for objectives.
        let single_linearisation = LevenbergMarquardt::OF_CURVES;
        let with_derivatives = Arc::new(objective(false).record());
        let mut designs = vec![(with_derivatives, lm.unwrap_or(single_linearisation))];
        if nelder_mead.is_some() {
            designs.push((Arc::new(objective(true).record()), single_linearisation));
        }
        // 3. They share the device's memory.
        let device = &*fitter.device.inner;
        let mut capacity = max_curves;
        for (recording, _) in &designs {
            let members = device.capacity(recording, fitter.max_memory)?;
            capacity = capacity.min((members / designs.len()).max(1));
        }
        let mut populations = lower_until_it_fits(&mut capacity, |capacity| {
            designs
                .iter()
                .map(|(recording, lm)| device.population(recording.clone(), lm, capacity))
                .collect::<Result<Vec<_>>>()
        })?;
        let first = populations.remove(0);
        let (linearise, simplex) = match nelder_mead.map(search_settings).zip(populations.pop()) {
            Some((settings, evaluate)) => (
                None,
                Some(SimplexPopulations {
                    linearise: first,
                    evaluate,
                    settings,
                }),
            ),
            None => (Some(first), None),
        };
        Ok(CurvePopulations {
            fitter,
            grid,
            points,
            max_rounds,
            capacity,
            objective: objective(false),
            linearise,
            simplex,
            lanes: None,
        })
    }

    /// Fits a batch of curves and returns one outcome per curve, with physical parameters. Its parameters are in the
    /// model's own units, and χ² and the other sums are free of the rows' factor. Curves that have fewer linearisations
    /// left than an attempt may use enter populations of their own.
    pub fn solve(&mut self, curves: &[Curve], watch: &Watch) -> Result<Vec<Outcome>> {
        if curves.iter().all(|curve| curve.budget >= self.max_rounds) {
            return self.solve_attempts(curves, watch);
        }
        // 1. Group the curves by the number of rounds that they may use.
        let rounds_of = |k: &usize| curves[*k].budget.clamp(1, self.max_rounds);
        let mut order: Vec<usize> = (0..curves.len()).collect();
        order.sort_by_key(rounds_of);
        let mut outcomes = vec![Outcome::default(); curves.len()];
        for group in order.chunk_by(|a, b| rounds_of(a) == rounds_of(b)) {
            // 2. Fit each group with this number of rounds.
            let group_curves: Vec<Curve> = group.iter().map(|&k| curves[k].clone()).collect();
            let mut populations = CurvePopulations::with_max_rounds(
                self.fitter,
                self.grid,
                self.points,
                group_curves.len(),
                rounds_of(&group[0]),
            )?;
            for (indices, batch) in group
                .chunks(populations.capacity)
                .zip(group_curves.chunks(populations.capacity))
            {
                let batch_outcomes = populations.solve_attempts(batch, watch)?;
                for (&k, outcome) in indices.iter().zip(batch_outcomes) {
                    outcomes[k] = outcome;
                }
            }
        }
        Ok(outcomes)
    }

    /// Fits curves by attempts of the same length, as [`solve`](Self::solve) does.
    fn solve_attempts(&mut self, curves: &[Curve], watch: &Watch) -> Result<Vec<Outcome>> {
        let mut outcomes = match &self.lanes {
            Some(lanes) => lanes.search_all(self.fitter, &self.objective, curves, watch)?,
            None => self.solve_by_populations(curves, watch)?,
        };
        for (outcome, curve) in outcomes.iter_mut().zip(curves) {
            outcome.parameters = to_physical(&outcome.parameters, curve);
            let sums = [&mut outcome.chi2, &mut outcome.penalty]
                .into_iter()
                .chain(&mut outcome.gradient)
                .chain(&mut outcome.normal_matrix);
            for sum in sums {
                *sum /= curve.row_factor * curve.row_factor;
            }
        }
        Ok(outcomes)
    }

    /// Fits a batch of curves by populations and returns one outcome per curve, in the solver's parameters `u`.
    fn solve_by_populations(&mut self, curves: &[Curve], watch: &Watch) -> Result<Vec<Outcome>> {
        let fitter = self.fitter;
        let mut batch = self
            .objective
            .batch(curves, &fitter.priors, fitter.infinite_bound());
        // 1. Fit by Levenberg–Marquardt or search by simplices, and check a sample.
        let mut outcomes = Vec::new();
        if let Some(population) = &mut self.linearise {
            outcomes = optimise_population(population.as_mut(), &batch, watch)?;
            self.spot_check(curves, &outcomes)?;
        }
        if let Some(populations) = &mut self.simplex {
            let search = CurveSearch {
                populations,
                fitter,
                curves,
                batch: &batch,
                watch,
            };
            outcomes = search.search_all()?;
            // Without a model on the host the sums below are compared instead.
            if !fitter.model.needs_gpu() {
                self.spot_check(curves, &outcomes)?;
            }
        }
        // 2. Where the host has no model, the device linearises at the ends of simplices.
        if let Some(populations) = &mut self.simplex
            && fitter.model.needs_gpu()
        {
            batch.starts = outcomes
                .iter()
                .flat_map(|outcome| outcome.parameters.clone())
                .collect();
            let sums = pollster::block_on(linearise(populations.linearise.as_mut(), &batch))?;
            for ((outcome, sums), curve) in outcomes.iter_mut().zip(sums).zip(curves) {
                if outcome.status.is_some_and(Status::is_success) {
                    fitter.compare_readbacks(curve, outcome, &sums)?;
                }
                outcome.gradient = sums.gradient;
                outcome.normal_matrix = sums.normal_matrix;
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
        let sample = sample_successes(0..outcomes.len(), |k| outcomes[k].status, MAX_CHECKED_FITS);
        // 1. Compare with the host's costs.
        if !fitter.model.needs_gpu() {
            for k in sample {
                let Outcome {
                    parameters,
                    chi2,
                    penalty,
                    ..
                } = &outcomes[k];
                let parameters = to_physical(parameters, &curves[k]);
                fitter.check_cost(&curves[k], &parameters, chi2 + penalty)?;
            }
            return Ok(());
        }
        // 2. Or compare with the device's costs in another readback.
        let Some(population) = self.linearise.as_mut().filter(|_| !sample.is_empty()) else {
            return Ok(());
        };
        let sample_curves: Vec<&Curve> = sample.iter().map(|&k| &curves[k]).collect();
        let mut batch =
            self.objective
                .batch(&sample_curves, &fitter.priors, fitter.infinite_bound());
        batch.starts = sample
            .iter()
            .flat_map(|&k| outcomes[k].parameters.clone())
            .collect();
        let second_readback = pollster::block_on(linearise(population.as_mut(), &batch))?;
        for (k, now) in sample.into_iter().zip(&second_readback) {
            fitter.compare_readbacks(&curves[k], &outcomes[k], now)?;
        }
        Ok(())
    }
}

/// Relative distance within which a parameter is at a bound: the rounding of scaling there and back.
const MAX_RELATIVE_DISTANCE_AT_BOUND: f64 = 1e-14;

/// Converts a curve's parameters from the solver's units to physical ones, clamped to the bounds. A parameter at a
/// bound, which a device may have rounded to f32, becomes the bound itself.
fn to_physical(u: &[f64], curve: &Curve) -> Vec<f64> {
    (0..u.len().min(curve.scale.len()))
        .map(|p| to_physical_parameter(u[p], curve.scale[p], curve.lower[p], curve.upper[p]))
        .collect()
}

/// Converts one parameter from the solver's units to physical ones; a parameter that is at a bound but for rounding
/// becomes the bound.
fn to_physical_parameter(u: f64, scale: f64, lower: f64, upper: f64) -> f64 {
    for bound in [lower, upper] {
        let u_of_bound = bound / scale;
        let is_at_bound = u == f64::from(u_of_bound as f32)
            || u_of_bound.is_finite()
                && (u - u_of_bound).abs() <= MAX_RELATIVE_DISTANCE_AT_BOUND * u_of_bound.abs();
        if is_at_bound {
            return bound;
        }
    }
    if u.is_nan() {
        u
    } else {
        (u * scale).clamp(lower, upper)
    }
}

/// Runs a population's solver on a batch and returns one outcome per curve, interrupted where the run stopped before
/// the curve entered the population.
fn optimise_population(
    population: &mut dyn Population,
    batch: &Batch,
    watch: &Watch,
) -> Result<Vec<Outcome>> {
    let mut show_progress = |active: usize| {
        if !watch.is_stopped() {
            watch.report_in_flight(batch.spectra - active.min(batch.spectra));
        }
    };
    let mut outcomes = pollster::block_on(optimise(
        population,
        batch,
        watch.stop_flag(),
        &mut show_progress,
    ))?;
    for fit in outcomes.len()..batch.spectra {
        outcomes.push(not_begun(batch, fit));
    }
    Ok(outcomes)
}
