//! Evaluations by a device for searches by simplices over curves.

use crate::curves::CurveRun;
use crate::curves::input::data::Curve;
use crate::curves::routes::objective::CurveObjective;
use crate::curves::watch::Watch;
use crate::error::Result;
use crate::math::Real;
use crate::math::triangle::packed_length;
use crate::solver::search::{
    Begin, FitPoints, Machine, Readbacks, SearchFit, SearchSettings, search,
};
use crate::solver::{Batch, Outcome, Population, Status, linearise, optimise};

/// The populations of searches by simplices.
pub(super) struct SimplexPopulations {
    /// Linearisations at starts, and at ends where the host has no model.
    pub linearise: Box<dyn Population>,
    pub simplex: Box<dyn Population>,
    /// Objectives without derivatives.
    pub evaluate: Box<dyn Population>,
    pub settings: SearchSettings,
}

/// Searches over some curves by the populations of a device.
pub(super) struct CurveSearch<'a> {
    pub populations: &'a mut SimplexPopulations,
    pub fitter: &'a CurveRun,
    pub objective: &'a CurveObjective,
    pub curves: &'a [Curve],
    /// Batch of all curves, at their starts.
    pub batch: &'a Batch,
    pub watch: &'a Watch<'a>,
}

impl CurveSearch<'_> {
    /// Searches by Nelder–Mead through the device's populations and returns one outcome per curve.
    pub fn search_all(mut self) -> Result<Vec<Outcome>> {
        let batch = self.batch;
        let stop_flag = self.watch.stop_flag();
        let settings = self.populations.settings;
        let fits = describe_fits(self.fitter, self.curves, batch);
        let outcomes = search(&mut self, &fits, &settings, stop_flag)?;
        Ok(outcomes
            .into_iter()
            .enumerate()
            .map(|(fit, outcome)| outcome.unwrap_or_else(|| not_begun(batch, fit)))
            .collect())
    }

    /// Returns the solver's input for the curves with these indices.
    fn batch_of(&self, fits: impl Iterator<Item = usize>) -> Batch {
        let curves: Vec<&Curve> = fits.map(|fit| &self.curves[fit]).collect();
        self.objective
            .batch(&curves, &self.fitter.priors, self.fitter.infinite_bound())
    }
}

impl Machine for CurveSearch<'_> {
    fn linearise(&mut self) -> Result<Vec<Outcome>> {
        // A user's cost has no normal matrix.
        if self.fitter.estimator.is_cost() {
            return Ok(vec![Outcome::default(); self.curves.len()]);
        }
        let population = self.populations.linearise.as_mut();
        let mut outcomes = pollster::block_on(linearise(population, self.batch))?;
        for outcome in &mut outcomes {
            outcome.ln_det = 0.0;
        }
        Ok(outcomes)
    }

    fn search(&mut self, begins: Vec<Begin>) -> Result<Vec<Option<Outcome>>> {
        // 1. Gather the fits, their starts and the shapes of their simplices.
        let mut batch = self.batch_of(begins.iter().map(|begin| begin.fit));
        batch.starts = begins
            .iter()
            .flat_map(|begin| begin.start.iter().copied())
            .collect();
        batch.simplices = begins.into_iter().map(|begin| begin.simplex).collect();
        // 2. Let the population search.
        let population = self.populations.simplex.as_mut();
        let lanes = population.lanes();
        let watch = self.watch;
        let total = self.curves.len();
        let mut show_progress = |active: usize| {
            if !watch.is_stopped() {
                watch.report_in_flight(total - active.div_ceil(lanes).min(total));
            }
        };
        let outcomes = pollster::block_on(optimise(
            population,
            &batch,
            watch.stop_flag(),
            &mut show_progress,
        ))?;
        // 3. Fits that have not begun have no outcome.
        let mut outcomes: Vec<_> = outcomes.into_iter().map(Some).collect();
        outcomes.resize(batch.spectra, None);
        Ok(outcomes)
    }

    fn is_checked(&self) -> bool {
        self.fitter.device.inner.runs_wgsl()
    }

    fn agree(&self, fit: usize, told: Readbacks, scale: &Outcome) -> Result<()> {
        self.fitter
            .compare_objectives(&self.curves[fit], told, scale)
    }

    fn evaluate(&mut self, points: Vec<FitPoints>) -> Result<Vec<Vec<f64>>> {
        let width = self.fitter.priors.len().max(1);
        let mut values: Vec<Vec<f64>> = vec![Vec::new(); points.len()];
        // 1. List all points with the index of their request, and take as many at a time as there is room for.
        let all_points: Vec<(usize, &[f64])> = points
            .iter()
            .enumerate()
            .flat_map(|(request, asked)| {
                asked
                    .points
                    .chunks_exact(width)
                    .map(move |point| (request, point))
            })
            .collect();
        for chunk in all_points.chunks(self.populations.evaluate.capacity()) {
            // 2. The points of a request form a group, which shares the data of its fit.
            let groups = || chunk.chunk_by(|a, b| a.0 == b.0);
            let mut batch = self.batch_of(groups().map(|group| points[group[0].0].fit));
            batch.group = groups()
                .zip(0u32..)
                .flat_map(|(group, number)| vec![number; group.len()])
                .collect();
            batch.starts = chunk
                .iter()
                .flat_map(|(_, point)| point.iter().copied())
                .collect();
            // 3. Evaluate them, and sort the objectives by request.
            let outcomes =
                pollster::block_on(linearise(self.populations.evaluate.as_mut(), &batch))?;
            for ((request, _), outcome) in chunk.iter().zip(outcomes) {
                values[*request].push(outcome.objective(false));
            }
        }
        Ok(values)
    }
}

/// Returns the input of a search for each curve: start and bounds in the solver's units, rounding of χ² and number of
/// points.
pub(super) fn describe_fits(fitter: &CurveRun, curves: &[Curve], batch: &Batch) -> Vec<SearchFit> {
    let count = fitter.priors.len();
    let epsilon = fitter.epsilon();
    let row = |values: &[f64], k: usize| values[k * count..(k + 1) * count].to_vec();
    curves
        .iter()
        .enumerate()
        .map(|(k, curve)| SearchFit {
            start: row(&batch.starts, k),
            lower: row(&batch.lower, k),
            upper: row(&batch.upper, k),
            rounding: curve.row_factor * curve.row_factor * curve.rounding(epsilon),
            points: curve.unmasked_points,
        })
        .collect()
}

impl CurveRun {
    /// Returns the relative error with which the device sums up an objective: larger on GPUs, which add in f32.
    pub(crate) fn objective_noise(&self) -> f64 {
        if self.device.inner.runs_wgsl() {
            f32::COST_NOISE
        } else {
            f64::SIMPLEX_NOISE
        }
    }

    /// Returns the machine epsilon of the numbers in which the device computes: of f32 on GPUs, else of f64.
    fn epsilon(&self) -> f64 {
        if self.device.inner.runs_wgsl() {
            f32::EPSILON.into()
        } else {
            f64::EPSILON
        }
    }
}

/// Returns an interrupted outcome at its start, with sums of NaN, for a fit that was stopped before it entered a
/// population.
pub(super) fn not_begun(batch: &Batch, fit: usize) -> Outcome {
    let count = batch.starts.len() / batch.spectra.max(1);
    Outcome {
        status: Some(Status::Interrupted),
        parameters: batch.starts[fit * count..(fit + 1) * count].to_vec(),
        gradient: vec![f64::NAN; count],
        normal_matrix: vec![f64::NAN; packed_length(count)],
        ..Outcome::default()
    }
}
