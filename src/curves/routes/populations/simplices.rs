//! Evaluations by a device for searches by simplices over curves.

use crate::curves::CurveRun;
use crate::curves::input::data::Curve;
use crate::curves::watch::Watch;
use crate::error::Result;
use crate::math::Real;
use crate::math::triangle::packed_length;
use crate::solver::search::{
    FitSearch, Machine, Readbacks, SearchFit, SearchSettings, search, take_objectives,
};
use crate::solver::{Batch, Outcome, Population, Queue, Status, linearise, stream};

/// Number of points that each search has evaluated before a stop is seen: an interrupted fit is then better than its
/// start.
const POINTS_BEFORE_STOP: u32 = 8;

/// The populations of searches by simplices.
pub(super) struct SimplexPopulations {
    /// Linearisations at starts, and at ends where the host has no model.
    pub linearise: Box<dyn Population>,
    /// Objectives without derivatives.
    pub evaluate: Box<dyn Population>,
    pub settings: SearchSettings,
}

/// Searches over some curves by the populations of a device.
pub(super) struct CurveSearch<'a> {
    pub populations: &'a mut SimplexPopulations,
    pub fitter: &'a CurveRun,
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
        let outcomes = search(&mut self, fits, &settings, stop_flag)?;
        Ok(outcomes
            .into_iter()
            .enumerate()
            .map(|(fit, outcome)| outcome.unwrap_or_else(|| not_begun(batch, fit)))
            .collect())
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

    fn evaluate(&mut self, searches: Vec<FitSearch>) -> Result<Vec<FitSearch>> {
        let mut queue = SearchQueue {
            batch: Some(self.batch),
            searches,
            watch: self.watch,
            submissions: 0,
        };
        let population = self.populations.evaluate.as_mut();
        let stop_flag = self.watch.stop_flag();
        pollster::block_on(stream(population, &mut queue, stop_flag))?;
        Ok(queue.searches)
    }

    fn is_checked(&self) -> bool {
        self.fitter.device.inner.runs_wgsl()
    }

    fn agree(&self, fit: usize, told: Readbacks, scale: &Outcome) -> Result<()> {
        self.fitter
            .compare_objectives(&self.curves[fit], told, scale)
    }
}

/// Searches whose curves enter a population together, and stay until they have ended.
struct SearchQueue<'a> {
    /// Batch of all curves; `None` once they have entered.
    batch: Option<&'a Batch>,
    searches: Vec<FitSearch>,
    watch: &'a Watch<'a>,
    /// Number of submissions so far, one point of each search.
    submissions: u32,
}

impl Queue for SearchQueue<'_> {
    fn next(&mut self, _spectra: usize, _starts: usize) -> Option<Batch> {
        let mut batch = self.batch.take()?.clone();
        batch.is_evaluation = true;
        // A search that has ended before is evaluated at its start, and not asked again.
        let count = batch.starts.len() / batch.spectra.max(1);
        for (search, point) in self
            .searches
            .iter()
            .zip(batch.starts.chunks_mut(count.max(1)))
        {
            if !search.has_ended() {
                point.copy_from_slice(search.point());
            }
        }
        Some(batch)
    }

    fn is_empty(&self) -> bool {
        self.batch.is_none()
    }

    fn end(&mut self, number: usize, outcomes: Vec<Outcome>) -> Vec<Vec<f64>> {
        let searches = &mut self.searches[number..=number];
        take_objectives(searches.iter_mut(), &outcomes, false)
    }

    fn watch(&mut self, _active: usize) {
        self.submissions += 1;
        if self.submissions > POINTS_BEFORE_STOP && !self.watch.is_stopped() {
            let ended = self.searches.iter().filter(|search| search.has_ended());
            self.watch.report_in_flight(ended.count());
        }
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
