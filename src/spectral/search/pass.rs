//! A population for spectra of one shape, and the objective that it was made for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Result;
use crate::math::Real;
use crate::model::SpectralObjective;
use crate::recording::Precision;
use crate::solver::{LevenbergMarquardt, NelderMead, Outcome, Solver};
use crate::spectral::input::ready::{Monitor, NEVER_CANCELLED, ReadySpectra, StartPoints};
use crate::spectral::search::shared_population::{RequestFailure, SharedPopulation};
use crate::spectral::search::verify::PassVerifier;
use crate::spectral::search::waiting::{PassOutcomes, WaitingSpectra};

/// Size of a simplex that polishes a fit, relative to the size that the user set.
const POLISHING_SIZE: f64 = 0.1;

/// Settings of the passes.
#[derive(Clone, Copy, PartialEq)]
pub struct PassSettings {
    pub solver: Solver,
    pub precision: Precision,
    /// There is a pass without derivatives even if the solver needs none.
    pub has_evaluation: bool,
    /// Maximum memory of all populations in bytes; `None` for the memory of the device.
    pub memory: Option<u64>,
    /// Number of workers that share populations and this memory.
    pub workers: usize,
    /// Maximum number of starts in flight.
    pub max_starts: usize,
}

/// A population and the objective that it was made for.
pub struct SpectralPass {
    pub objective: Arc<SpectralObjective>,
    pub population: Arc<SharedPopulation>,
    /// Checks the results of a GPU. `None` on the CPU.
    pub verifier: Option<PassVerifier>,
    /// The population failed in rounds that another worker ran.
    pub has_failed_elsewhere: bool,
}

impl PassSettings {
    /// Returns the settings of the rounds of Levenberg–Marquardt; the default ones for Nelder–Mead.
    pub fn least_squares(&self) -> LevenbergMarquardt {
        match self.solver {
            Solver::LevenbergMarquardt(settings)
            | Solver::LevenbergMarquardtThenNelderMead(settings, _) => settings,
            Solver::NelderMead(_) => LevenbergMarquardt::default(),
        }
    }

    /// Returns the settings of Nelder–Mead, with a smaller simplex if it follows Levenberg–Marquardt; `None` without
    /// Nelder–Mead.
    pub fn simplex(&self) -> Option<NelderMead> {
        match self.solver {
            Solver::LevenbergMarquardt(_) => None,
            Solver::NelderMead(settings) => Some(settings),
            Solver::LevenbergMarquardtThenNelderMead(_, settings) => Some(NelderMead {
                size: POLISHING_SIZE * settings.size,
                ..settings
            }),
        }
    }
}

impl SpectralPass {
    /// Runs the population's solver on each spectrum from its starts and returns the outcomes of each.
    pub fn fit_from_starts(
        &mut self,
        spectra: ReadySpectra,
        starts: Vec<StartPoints>,
        monitor: Monitor,
    ) -> Result<Vec<Vec<Outcome>>> {
        let members = starts.iter().map(Vec::len).sum::<usize>();
        let waiting = WaitingSpectra::new(self.objective.clone(), spectra, starts);
        let finished = self.run_waiting(waiting, spectra, monitor.cancel, &mut |remaining| {
            (monitor.progress)(1.0 - remaining as f64 / members.max(1) as f64);
        })?;
        Ok(finished.outcomes)
    }

    /// Runs the population's solver on waiting spectra, checks a GPU's results, and returns them. `report` receives the
    /// number of members that have not ended, after each submission.
    pub fn run_waiting(
        &mut self,
        waiting: WaitingSpectra,
        spectra: ReadySpectra,
        cancel: &AtomicBool,
        report: &mut dyn FnMut(usize),
    ) -> Result<PassOutcomes> {
        let finished = match self.population.complete_request(waiting, cancel, report) {
            Ok(finished) => finished,
            Err(RequestFailure { error, is_own }) => {
                self.has_failed_elsewhere = !is_own;
                return Err(error);
            }
        };
        if !cancel.load(Ordering::Relaxed) {
            self.check_objectives(spectra, &finished)?;
        }
        Ok(finished)
    }

    /// Evaluates the objective at each spectrum's starts, and returns one outcome per start, with derivatives if the
    /// pass has them.
    pub fn evaluate(
        &mut self,
        spectra: ReadySpectra,
        starts: &[StartPoints],
    ) -> Result<Vec<Vec<Outcome>>> {
        // 1. A spectrum with more starts than there is room for enters several times.
        let mut spectrum_of_entry = Vec::new();
        let mut entering_spectra = Vec::new();
        let mut entering_starts = Vec::new();
        for (spectrum, points) in starts.iter().enumerate() {
            for chunk in points.chunks(self.population.capacity) {
                spectrum_of_entry.push(spectrum);
                entering_spectra.push(spectra.spectra[spectrum].clone());
                entering_starts.push(chunk.to_vec());
            }
        }
        // 2. Evaluate the objective at all starts.
        let entering_spectra = spectra.with_spectra(&entering_spectra);
        let mut waiting =
            WaitingSpectra::new(self.objective.clone(), entering_spectra, entering_starts);
        waiting.is_evaluation = true;
        let finished =
            self.run_waiting(waiting, entering_spectra, &NEVER_CANCELLED, &mut |_| {})?;
        // 3. Join the outcomes of each spectrum.
        let mut outcomes = vec![Vec::new(); starts.len()];
        for (spectrum, entry) in spectrum_of_entry.into_iter().zip(finished.outcomes) {
            outcomes[spectrum].extend(entry);
        }
        Ok(outcomes)
    }

    /// Compares some of a GPU's objectives with the CPU's. Does nothing on the CPU.
    fn check_objectives(&mut self, spectra: ReadySpectra, finished: &PassOutcomes) -> Result<()> {
        self.verifier.as_mut().map_or(Ok(()), |verifier| {
            verifier.check_objectives(spectra, finished)
        })
    }

    /// Checks that some of a GPU's successes are at minima. Does nothing on the CPU, or once the run is cancelled.
    pub fn check_minima(
        &mut self,
        spectra: ReadySpectra,
        outcomes: &[Vec<Outcome>],
        cancel: &AtomicBool,
    ) -> Result<()> {
        match &mut self.verifier {
            Some(verifier) if !cancel.load(Ordering::Relaxed) => {
                verifier.check_minima(spectra, outcomes)
            }
            _ => Ok(()),
        }
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
