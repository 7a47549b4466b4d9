//! A population for spectra of one shape, and the objective that it was made for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Result;
use crate::math::Real;
use crate::model::SpectralObjective;
use crate::recording::Precision;
use crate::solver::{LevenbergMarquardt, NelderMead, Outcome, Population, Queue, Solver, linearise, stream};
use crate::spectral::input::ready::{Monitor, ReadySpectra, Starts};
use crate::spectral::search::verify::Verifier;
use crate::spectral::search::waiting::{MemberCount, PassOutcomes, Waiting};

/// Size of a simplex that polishes a fit, relative to the size that the user set.
const POLISH: f64 = 0.1;

/// Settings of the passes.
#[derive(Clone, Copy, PartialEq)]
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
    /// Checks the results of a GPU; `None` on the CPU, and for the rough first rounds, from whose ends others continue.
    pub verifier: Option<Verifier>,
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
    pub fn run(&mut self, spectra: ReadySpectra, starts: Vec<Starts>, monitor: Monitor) -> Result<Vec<Vec<Outcome>>> {
        let lanes = self.population.lanes();
        let members = starts.iter().map(Vec::len).sum::<usize>() * lanes;
        let objective = self.objective.clone();
        let mut queue = Waiting::new(&objective, spectra, starts);
        let mut report = |left: usize| (monitor.progress)(1.0 - left as f64 / members.max(1) as f64);
        queue.remaining = Some(MemberCount { lanes, report: &mut report });
        self.run_queue(queue, spectra, monitor.cancel)
    }

    /// Runs the population's solver on the spectra of a queue, checks a GPU's results, and returns the outcomes of each
    /// spectrum.
    pub fn run_queue(
        &mut self,
        mut queue: Waiting,
        spectra: ReadySpectra,
        cancel: &AtomicBool,
    ) -> Result<Vec<Vec<Outcome>>> {
        pollster::block_on(stream(self.population.as_mut(), &mut queue, cancel))?;
        let found = queue.finished;
        if !cancel.load(Ordering::Relaxed) {
            self.check_objectives(spectra, &found)?;
        }
        Ok(found.outcomes)
    }

    /// Evaluates the objective at each spectrum's starts, and returns one outcome per start, with derivatives if the
    /// pass has them.
    pub fn evaluate(&mut self, spectra: ReadySpectra, starts: Vec<Starts>) -> Result<Vec<Vec<Outcome>>> {
        let capacity = self.population.capacity();
        let mut queue = Waiting::new(&self.objective, spectra, starts);
        let mut number = 0;
        while let Some(batch) = queue.next(capacity, capacity) {
            let mut outcomes = pollster::block_on(linearise(self.population.as_mut(), &batch))?.into_iter();
            queue.watch(0);
            for own in batch.group.chunk_by(|a, b| a == b) {
                queue.end(number, outcomes.by_ref().take(own.len()).collect());
                number += 1;
            }
        }
        self.population.clear();
        let found = queue.finished;
        self.check_objectives(spectra, &found)?;
        Ok(found.outcomes)
    }

    /// Compares some of a GPU's objectives with the CPU's. Does nothing on the CPU.
    fn check_objectives(&mut self, spectra: ReadySpectra, found: &PassOutcomes) -> Result<()> {
        self.verifier.as_mut().map_or(Ok(()), |verifier| verifier.check_objectives(spectra, found))
    }

    /// Checks that some of a GPU's successes are at minima. Does nothing on the CPU, or once the run is cancelled.
    pub fn check_minima(
        &mut self,
        spectra: ReadySpectra,
        outcomes: &[Vec<Outcome>],
        cancel: &AtomicBool,
    ) -> Result<()> {
        match &mut self.verifier {
            Some(verifier) if !cancel.load(Ordering::Relaxed) => verifier.check_minima(spectra, outcomes),
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
