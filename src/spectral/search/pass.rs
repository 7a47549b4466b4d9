//! A population for spectra of one shape, and the objective that it was made for.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::math::Real;
use crate::model::{Prepared, SpectralObjective};
use crate::recording::Precision;
use crate::solver::{LevenbergMarquardt, NelderMead, Outcome, Population, Queue, Solver, linearise, stream};
use crate::spectral::input::ready::{Monitor, ReadySpectra, Starts};
use crate::spectral::search::waiting::{MemberCount, PassOutcomes, Waiting};

/// Size of a simplex that polishes a fit, relative to the size that the user set.
const POLISH: f64 = 0.1;
/// Largest difference between two evaluations in f32 of the same objective, in units of χ².
const MAX_DIFFERENCE: f64 = 0.01;
/// Largest difference as a share of χ², in addition to the above.
const MAX_RELATIVE_DIFFERENCE: f64 = 1e-3;
/// Relative rounding error of the model of one pixel in f32.
const ROUNDING: f64 = 1e-5;

/// Settings of the passes.
#[derive(Clone, Copy)]
pub struct PassSettings {
    pub solver: Solver,
    pub precision: Precision,
    /// There is a pass without derivatives even if the solver needs none.
    pub has_evaluation: bool,
    /// Maximum memory of all populations in bytes; `None` for what the device has.
    pub memory: Option<u64>,
    /// Maximum number of starts in flight.
    pub max_starts: usize,
}

/// A population and the objective that it was made for.
pub struct Pass {
    pub objective: Arc<SpectralObjective>,
    pub population: Box<dyn Population>,
}

impl PassSettings {
    /// Returns the settings of the rounds of Levenberg–Marquardt; the default ones for Nelder–Mead.
    pub fn least_squares(&self) -> LevenbergMarquardt {
        match self.solver {
            Solver::LevenbergMarquardt(settings) | Solver::LevenbergMarquardtThenNelderMead(settings, _) => settings,
            Solver::NelderMead(_) => LevenbergMarquardt::default(),
        }
    }

    /// Returns the settings of Nelder–Mead, with a smaller simplex if it follows Levenberg–Marquardt; `None` without
    /// Nelder–Mead.
    pub fn simplex(&self) -> Option<NelderMead> {
        match self.solver {
            Solver::LevenbergMarquardt(_) => None,
            Solver::NelderMead(settings) => Some(settings),
            Solver::LevenbergMarquardtThenNelderMead(_, settings) => {
                Some(NelderMead { size: POLISH * settings.size, ..settings })
            }
        }
    }
}

impl Pass {
    /// Runs the population's solver on each spectrum from its starts and returns the outcomes of each.
    pub fn run(&mut self, spectra: ReadySpectra, starts: Vec<Starts>, monitor: Monitor) -> Result<PassOutcomes> {
        let lanes = self.population.lanes();
        let members = starts.iter().map(Vec::len).sum::<usize>() * lanes;
        let mut queue = Waiting::new(&self.objective, spectra, starts);
        let mut report = |left: usize| (monitor.progress)(1.0 - left as f64 / members.max(1) as f64);
        queue.remaining = Some(MemberCount { lanes, report: &mut report });
        pollster::block_on(stream(self.population.as_mut(), &mut queue, monitor.cancel))?;
        Ok(queue.finished)
    }

    /// Evaluates the objective at each spectrum's starts, and returns one outcome per start, with derivatives if the
    /// pass has them.
    pub fn evaluate(&mut self, spectra: ReadySpectra, starts: Vec<Starts>) -> Result<Vec<Vec<Outcome>>> {
        let capacity = self.population.capacity();
        let mut queue = Waiting::new(&self.objective, spectra, starts);
        let mut all = Vec::new();
        while let Some(batch) = queue.next(capacity, capacity) {
            all.extend(pollster::block_on(linearise(self.population.as_mut(), &batch))?);
        }
        self.population.clear();
        let mut rest = all.into_iter();
        Ok(queue.starts.iter().map(|own| rest.by_ref().take(own.len()).collect()).collect())
    }
}

/// Returns the relative error of an objective as a GPU, or the CPU in this precision, computes it. GPUs add in f32.
pub fn objective_noise(on_gpu: bool, precision: Precision) -> f64 {
    match precision {
        _ if on_gpu => f32::COST_NOISE,
        Precision::F64 => f64::SIMPLEX_NOISE,
        Precision::F32 | Precision::Mixed => f32::SIMPLEX_NOISE,
    }
}

/// Returns the largest difference that two evaluations of one objective may have: rounding, and `share` of χ².
pub fn largest_difference(at: &Outcome, prepared: &Prepared, share: f64) -> f64 {
    // spectra without noise leave nothing but the rounding of their pixels
    let rounding = prepared.unmasked as f64 * (ROUNDING * prepared.signal_to_noise).powi(2);
    MAX_DIFFERENCE + (MAX_RELATIVE_DIFFERENCE + share) * (at.chi2 + at.penalty) + rounding
}

/// Returns [`Error::DeviceUntrusted`] if two finite values of one objective differ by more than is `allowed`.
///
/// # Errors
/// Returns [`Error::DeviceUntrusted`] if they differ by more than `allowed`: one of them is wrong.
pub fn compare_objectives(device: &str, before: f64, now: f64, allowed: f64) -> Result<()> {
    if before.is_finite() && now.is_finite() && (before - now).abs() > allowed {
        let message = format!("a fit ends at an objective of {before}, which is {now} when asked again");
        return Err(Error::DeviceUntrusted { device: device.into(), message });
    }
    Ok(())
}
