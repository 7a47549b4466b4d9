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
pub(super) struct SimplexPasses {
    /// Linearisations at starts, and at ends where the host has no model.
    pub linearise: Box<dyn Population>,
    pub simplex: Box<dyn Population>,
    /// Objectives without derivatives.
    pub evaluate: Box<dyn Population>,
    pub settings: SearchSettings,
}

/// Searches over some curves by the populations of a device.
pub(super) struct CurveSearch<'a> {
    pub passes: &'a mut SimplexPasses,
    pub fitter: &'a CurveRun,
    pub objective: &'a CurveObjective,
    pub curves: &'a [Curve],
    /// Batch of all curves, at their starts.
    pub batch: &'a Batch,
    pub watch: &'a Watch<'a>,
}

impl CurveSearch<'_> {
    /// Searches by Nelder–Mead through the device's populations and returns one outcome per curve.
    pub fn run(mut self) -> Result<Vec<Outcome>> {
        let (batch, flag, settings) = (self.batch, self.watch.flag(), self.passes.settings);
        let fits = fits(self.fitter, self.curves, batch);
        let found = search(&mut self, &fits, &settings, flag)?
            .into_iter()
            .enumerate();
        Ok(found
            .map(|(fit, outcome)| outcome.unwrap_or_else(|| not_begun(batch, fit)))
            .collect())
    }

    /// Returns the solver's input for the curves with these indices.
    fn some(&self, fits: impl Iterator<Item = usize>) -> Batch {
        let curves: Vec<&Curve> = fits.map(|fit| &self.curves[fit]).collect();
        self.objective
            .batch(&curves, &self.fitter.priors, self.fitter.far())
    }
}

impl Machine for CurveSearch<'_> {
    fn linearise(&mut self) -> Result<Vec<Outcome>> {
        // a cost has no normal matrix
        if self.fitter.estimator.is_cost() {
            return Ok(vec![Outcome::default(); self.curves.len()]);
        }
        let mut all = pollster::block_on(linearise(self.passes.linearise.as_mut(), self.batch))?;
        all.iter_mut().for_each(|outcome| outcome.ln_det = 0.0);
        Ok(all)
    }

    fn search(&mut self, begins: Vec<Begin>) -> Result<Vec<Option<Outcome>>> {
        let mut batch = self.some(begins.iter().map(|begin| begin.fit));
        batch.starts = begins
            .iter()
            .flat_map(|begin| begin.start.iter().copied())
            .collect();
        batch.simplices = begins.into_iter().map(|begin| begin.simplex).collect();
        let population = self.passes.simplex.as_mut();
        let lanes = population.lanes();
        let (watch, total) = (self.watch, self.curves.len());
        let mut look = |active: usize| {
            if !watch.is_stopped() {
                watch.show_in_flight(total - active.div_ceil(lanes).min(total));
            }
        };
        let outcomes = pollster::block_on(optimise(population, &batch, watch.flag(), &mut look))?;
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
        // (index among `points`, point), as many at a time as there is room for
        let each = points.iter().enumerate();
        let all: Vec<(usize, &[f64])> = each
            .flat_map(|(k, asked)| {
                asked
                    .points
                    .chunks_exact(width)
                    .map(move |point| (k, point))
            })
            .collect();
        for some in all.chunks(self.passes.evaluate.capacity()) {
            let groups: Vec<usize> = some
                .chunk_by(|a, b| a.0 == b.0)
                .map(|group| group[0].0)
                .collect();
            let mut batch = self.some(groups.iter().map(|&k| points[k].fit));
            let group = some.chunk_by(|a, b| a.0 == b.0).zip(0u32..);
            batch.group = group
                .flat_map(|(group, number)| vec![number; group.len()])
                .collect();
            batch.starts = some
                .iter()
                .flat_map(|(_, point)| point.iter().copied())
                .collect();
            let outcomes = pollster::block_on(linearise(self.passes.evaluate.as_mut(), &batch))?;
            for ((k, _), outcome) in some.iter().zip(outcomes) {
                values[*k].push(outcome.objective(false));
            }
        }
        Ok(values)
    }
}

/// Returns what a search needs of each curve: start and bounds in the solver's units, rounding of χ² and number of
/// points.
pub(super) fn fits(fitter: &CurveRun, curves: &[Curve], batch: &Batch) -> Vec<SearchFit> {
    let (count, epsilon) = (fitter.priors.len(), fitter.epsilon());
    let own = |values: &[f64], k: usize| values[k * count..(k + 1) * count].to_vec();
    let fits = curves.iter().enumerate().map(|(k, curve)| SearchFit {
        start: own(&batch.starts, k),
        lower: own(&batch.lower, k),
        upper: own(&batch.upper, k),
        rounding: curve.gain * curve.gain * curve.rounding(epsilon),
        points: curve.used,
    });
    fits.collect()
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
