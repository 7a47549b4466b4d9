//! Populations for spectra of one shape, and the passes of a solver through them.
//!
//! Levenberg–Marquardt is one pass. Nelder–Mead is a simplex search, then one linearisation at each best vertex, which
//! gives the fit its errors. `lm+nelder-mead` does both. The scan of the velocity's posterior and the check for folds
//! are passes without derivatives. Levenberg–Marquardt may be followed by fits from further starts
//! (`spectral/search/poor.rs`, `spectral/search/fold.rs`). For the check for folds alone, a GPU and a run with limited
//! memory use the pass with derivatives, because the memory is not divided for so few points.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::device::retry::lower_until_it_fits;
use crate::error::{Error, Result};
use crate::model::{ArmLayout, SpectralModel, SpectralObjective};
use crate::solver::profile::Meter;
use crate::solver::search::{SearchSettings, search};
use crate::solver::{Backend, LevenbergMarquardt, Outcome, Status};
use crate::spectral::Solver;
use crate::spectral::input::ready::{Monitor, ReadySpectra, StartPoints};
use crate::spectral::search::pass::{PassSettings, SpectralPass, objective_noise};
use crate::spectral::search::shared::SharedResources;
use crate::spectral::search::shared_population::SharedPopulation;
use crate::spectral::search::shared_populations::{MemoryBudget, SharedPopulations};
use crate::spectral::search::simplices::SpectralSearch;
use crate::spectral::search::verify::PassVerifier;

/// Share of the progress that fits from the first starts make.
const PROGRESS_OF_FIRST_STARTS: f64 = 0.95;

/// The passes of a solver for spectra of one shape.
pub struct SpectralPasses {
    layout: Vec<ArmLayout>,
    settings: PassSettings,
    /// Maximum number of starts in flight.
    pub capacity: usize,
    solver: Solver,
    /// Levenberg–Marquardt, or the linearisation that gives a simplex's best vertex its errors.
    pub linearise: SpectralPass,
    /// Evaluates without derivatives: for scans, for checks for folds, and for searches by simplices.
    evaluate: Option<SpectralPass>,
    /// Settings of simplex searches: degrees of freedom that scale their tolerance, and the relative error of an
    /// objective.
    search_settings: SearchSettings,
}

/// The objective and the method of a pass whose population is not made yet.
struct PassPlan {
    objective: Arc<SpectralObjective>,
    settings: LevenbergMarquardt,
}

impl SpectralPasses {
    /// Makes the populations of all passes that fit spectra of one layout on a device, and divides the memory among
    /// them.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`] if not even populations of one start fit into the memory, and the device's
    /// errors.
    pub fn new(
        model: &SpectralModel,
        shared: &SharedResources,
        layout: &[ArmLayout],
        device: &dyn Backend,
        shared_populations: &SharedPopulations,
        settings: PassSettings,
    ) -> Result<SpectralPasses> {
        // 1. Plan the passes in the order in which their populations are made.
        let least_squares = settings.least_squares();
        let simplex_settings = settings.simplex();
        let has_evaluation = settings.has_evaluation || simplex_settings.is_some();
        let make_objective = |values_only| {
            shared.get_or_make_objective(model, layout, settings.precision, values_only)
        };
        let mut plans = vec![PassPlan {
            objective: make_objective(false),
            settings: least_squares,
        }];
        if has_evaluation {
            plans.push(PassPlan {
                objective: make_objective(true),
                settings: least_squares,
            });
        }
        // 2. Divide the memory among the populations and make them, or use those of another worker.
        let max_starts = settings.max_starts;
        let budget = MemoryBudget {
            bytes: settings.memory,
            workers: settings.workers,
        };
        let populations = if device.shares_populations() {
            let keys: Vec<_> = plans
                .iter()
                .map(|plan| (plan.objective.clone(), plan.settings))
                .collect();
            shared_populations.get_or_make(&keys, budget, |memory| {
                make_fitting_populations(device, &plans, max_starts, memory)
            })?
        } else {
            make_fitting_populations(device, &plans, max_starts, settings.memory)?
        };
        let capacity = populations
            .iter()
            .map(|population| population.capacity)
            .min()
            .unwrap_or(1);
        // 3. Make the passes, and take them from the list in the reverse order of the plans.
        let mut passes: Vec<SpectralPass> = Vec::with_capacity(plans.len());
        for (plan, population) in plans.into_iter().zip(populations) {
            let verifier = device
                .is_verified()
                .then(|| {
                    let objective = plan.objective.clone();
                    PassVerifier::new(device.name(), objective, least_squares, simplex_settings)
                })
                .transpose()?;
            passes.push(SpectralPass {
                objective: plan.objective,
                population,
                verifier,
                has_failed_elsewhere: false,
            });
        }
        let evaluate = if has_evaluation { passes.pop() } else { None };
        let linearise = passes.remove(0);
        let search_settings = SearchSettings {
            settings: simplex_settings.unwrap_or_default(),
            dof: linearise.objective.recording().dof,
            noise: objective_noise(device.runs_wgsl(), settings.precision),
        };
        Ok(SpectralPasses {
            layout: layout.to_vec(),
            settings,
            capacity,
            solver: settings.solver,
            linearise,
            evaluate,
            search_settings,
        })
    }

    /// Returns whether the populations are for spectra of this layout, were made with these settings, and work.
    pub fn is_for(&self, layout: &[ArmLayout], settings: PassSettings) -> bool {
        self.layout == layout && self.settings == settings && !self.have_failed()
    }

    /// Returns all passes.
    fn iter_passes(&self) -> impl Iterator<Item = &SpectralPass> {
        let SpectralPasses {
            linearise,
            evaluate,
            ..
        } = self;
        std::iter::once(linearise).chain(evaluate)
    }

    /// Returns whether a population failed in rounds that another worker ran.
    pub fn have_failed_elsewhere(&self) -> bool {
        self.iter_passes().any(|pass| pass.has_failed_elsewhere)
    }

    /// Makes all populations add their times to a meter.
    pub fn measure(&self, meter: &Arc<Meter>) {
        self.iter_passes()
            .for_each(|pass| pass.population.measure(meter));
    }

    /// Ends all populations after a failure, also for the other workers that share them.
    pub fn fail(&self, failure: &Error) {
        self.iter_passes()
            .for_each(|pass| pass.population.fail(failure));
    }

    /// Returns whether some population has failed.
    pub fn have_failed(&self) -> bool {
        self.iter_passes().any(|pass| pass.population.has_failed())
    }

    /// Fits spectra by the solver that is set, and returns the outcomes of each spectrum's starts. There are none if
    /// the run was cancelled before the spectrum entered.
    pub fn solve(&mut self, spectra: ReadySpectra, monitor: Monitor) -> Result<Vec<Vec<Outcome>>> {
        let cancel = monitor.cancel;
        let outcomes = match self.solver {
            Solver::LevenbergMarquardt(_) => self.fit_with_further_starts(spectra, monitor)?,
            Solver::NelderMead(_) => self.search_simplices(spectra, spectra.starts(), monitor)?,
            Solver::LevenbergMarquardtThenNelderMead(..) => {
                // The simplices take nearly all of the time.
                let silent = Monitor {
                    cancel: monitor.cancel,
                    progress: &mut |_| {},
                };
                let outcomes = self.fit_with_further_starts(spectra, silent)?;
                self.polish_by_simplex(spectra, outcomes, monitor)?
            }
        };
        self.linearise.check_minima(spectra, &outcomes, cancel)?;
        Ok(outcomes)
    }

    /// Evaluates the objective at the starts of spectra, which do not move, and returns one outcome per start.
    pub fn evaluate(&mut self, spectra: ReadySpectra) -> Result<Vec<Outcome>> {
        let pass = self.evaluate.as_mut().unwrap_or(&mut self.linearise);
        Ok(pass.evaluate(spectra, &spectra.starts())?.concat())
    }

    /// Fits spectra by Levenberg–Marquardt from their starts, without a search beyond folds, and returns one outcome
    /// per start. A cancelled run may return fewer.
    pub fn refit(&mut self, spectra: ReadySpectra, monitor: Monitor) -> Result<Vec<Outcome>> {
        let Monitor { cancel, progress } = monitor;
        let outcomes = self.linearise.fit_from_starts(
            spectra,
            spectra.starts(),
            Monitor { cancel, progress },
        )?;
        self.linearise.check_minima(spectra, &outcomes, cancel)?;
        Ok(outcomes.concat())
    }

    /// Fits spectra by Levenberg–Marquardt, fits those with a poor fit again from more starts, searches for second
    /// minima beyond folds, and returns the outcomes of each spectrum.
    fn fit_with_further_starts(
        &mut self,
        spectra: ReadySpectra,
        monitor: Monitor,
    ) -> Result<Vec<Vec<Outcome>>> {
        let Monitor { cancel, progress } = monitor;
        // 1. Fit from the first starts.
        let first_starts = Monitor {
            cancel,
            progress: &mut |share| progress(PROGRESS_OF_FIRST_STARTS * share),
        };
        let mut outcomes =
            self.linearise
                .fit_from_starts(spectra, spectra.starts(), first_starts)?;
        // 2. Fit spectra with a large χ²/dof again. Their number is not known before, so the progress stands still.
        let further_starts = Monitor {
            cancel,
            progress: &mut |_| progress(PROGRESS_OF_FIRST_STARTS),
        };
        self.try_more_starts(spectra, &mut outcomes, further_starts)?;
        // 3. Search beyond folds of the cost.
        let beyond_folds = Monitor {
            cancel,
            progress: &mut |share| {
                progress(PROGRESS_OF_FIRST_STARTS + (1.0 - PROGRESS_OF_FIRST_STARTS) * share);
            },
        };
        self.search_beyond_folds(spectra, &mut outcomes, beyond_folds)?;
        Ok(outcomes)
    }

    /// Continues the lowest outcome of each spectrum by Nelder–Mead with a small simplex, and keeps the lower of the
    /// two ends.
    fn polish_by_simplex(
        &mut self,
        spectra: ReadySpectra,
        mut outcomes: Vec<Vec<Outcome>>,
        monitor: Monitor,
    ) -> Result<Vec<Vec<Outcome>>> {
        // 1. Start one simplex at each spectrum's lowest outcome, if it has one.
        let marginalise = spectra.model.marginalise;
        let winners: Vec<Option<usize>> = outcomes
            .iter()
            .map(|group| find_winner(group, marginalise))
            .collect();
        let mut starts: Vec<StartPoints> = Vec::with_capacity(outcomes.len());
        for (group, winner) in outcomes.iter().zip(&winners) {
            let start = winner.map(|k| group[k].parameters.clone());
            starts.push(start.into_iter().collect());
        }
        let polished_outcomes = self.search_simplices(spectra, starts, monitor)?;
        // 2. Replace the lowest outcome where the simplex found a lower one.
        for ((group, winner), polished) in outcomes.iter_mut().zip(winners).zip(polished_outcomes) {
            let Some(winner) = winner else { continue };
            match polished.into_iter().next() {
                Some(polished) => merge_polished(&mut group[winner], polished, marginalise),
                // The run was cancelled before the spectrum entered.
                None => group[winner].status = Some(Status::Interrupted),
            }
        }
        Ok(outcomes)
    }

    /// Fits spectra by Nelder–Mead from these starts, and evaluates the derivatives at each end.
    fn search_simplices(
        &mut self,
        spectra: ReadySpectra,
        starts: Vec<StartPoints>,
        monitor: Monitor,
    ) -> Result<Vec<Vec<Outcome>>> {
        let SpectralPasses {
            linearise,
            evaluate: Some(evaluate),
            ..
        } = self
        else {
            return Ok(Vec::new());
        };
        let Monitor { cancel, progress } = monitor;
        // 1. Search for as many spectra together as there is room for. If the run is cancelled, the first are finished.
        let max_starts = starts.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let spectra_together = (evaluate.population.capacity / max_starts).max(1);
        let total = starts.len().max(1);
        let mut outcomes: Vec<Vec<Outcome>> = Vec::with_capacity(starts.len());
        let spectrum_chunks = spectra.spectra.chunks(spectra_together);
        for (chunk, starts) in spectrum_chunks.zip(starts.chunks(spectra_together)) {
            let share_before = outcomes.len() as f64 / total as f64;
            let share_of_chunk = chunk.len() as f64 / total as f64;
            let mut report = |share: f64| progress(share_before + share * share_of_chunk);
            let monitor = Monitor {
                cancel,
                progress: &mut report,
            };
            let mut machine = SpectralSearch {
                linearise,
                evaluate,
                spectra: spectra.with_spectra(chunk),
                starts: starts.to_vec(),
                monitor,
            };
            let fits = machine.list_fits();
            let ends = search(&mut machine, fits, &self.search_settings, cancel)?;
            let mut ends = ends.into_iter();
            for starts_of_spectrum in starts {
                let ends_of_spectrum = ends.by_ref().take(starts_of_spectrum.len());
                outcomes.push(ends_of_spectrum.flatten().collect());
            }
            if !cancel.load(Ordering::Relaxed) {
                report(1.0);
            }
        }
        // 2. Linearise at all best vertices, also those of a cancelled run.
        self.linearise_ends(spectra, &mut outcomes)?;
        Ok(outcomes)
    }

    /// Replaces the outcomes of Nelder–Mead by evaluations with derivatives at their ends. On a GPU, the objectives of
    /// both passes must agree there.
    fn linearise_ends(
        &mut self,
        spectra: ReadySpectra,
        outcomes: &mut [Vec<Outcome>],
    ) -> Result<()> {
        let marginalise = spectra.model.marginalise;
        let ends: Vec<StartPoints> = outcomes
            .iter()
            .map(|group| group.iter().map(|end| end.parameters.clone()).collect())
            .collect();
        let linearised = self.linearise.evaluate(spectra, &ends)?;
        for ((group, linearised), spectrum) in
            outcomes.iter_mut().zip(linearised).zip(spectra.spectra)
        {
            for (outcome, linearised) in group.iter_mut().zip(linearised) {
                if let Some(verifier) = &self.linearise.verifier {
                    verifier.compare(outcome, &linearised, &spectrum.prepared, marginalise)?;
                }
                *outcome = Outcome {
                    status: outcome.status,
                    rounds: outcome.rounds,
                    evaluations: outcome.evaluations + 1,
                    ..linearised
                };
            }
        }
        Ok(())
    }
}

/// Makes one population for each planned pass, for as many starts as fit into the memory, `max_starts` at most. All of
/// them are made smaller as long as the device runs out of memory.
fn make_fitting_populations(
    device: &dyn Backend,
    plans: &[PassPlan],
    max_starts: usize,
    memory: Option<u64>,
) -> Result<Vec<Arc<SharedPopulation>>> {
    let mut capacity = max_starts;
    for plan in plans {
        let members = device.capacity(plan.objective.recording(), memory)?;
        let starts = members / plans.len();
        capacity = capacity.min(starts.max(1));
    }
    lower_until_it_fits(&mut capacity, |capacity| {
        make_populations(device, plans, capacity)
    })
}

/// Makes one population of this capacity on the device for each planned pass.
fn make_populations(
    device: &dyn Backend,
    plans: &[PassPlan],
    capacity: usize,
) -> Result<Vec<Arc<SharedPopulation>>> {
    let mut populations = Vec::with_capacity(plans.len());
    for plan in plans {
        let recording = plan.objective.recording().clone();
        let population = device.population(recording, &plan.settings, capacity)?;
        populations.push(Arc::new(SharedPopulation::new(population)));
    }
    Ok(populations)
}

/// Returns the index of the start with the lowest objective, except those that gave way; `None` if no objective is
/// finite. Starts that failed or were stopped early are left out.
pub fn find_winner(group: &[Outcome], marginalise: bool) -> Option<usize> {
    let objective = |k: &usize| group[*k].objective(marginalise);
    let candidates =
        (0..group.len()).filter(|k| group[*k].gave_way.is_none() && objective(k) < f64::INFINITY);
    candidates.min_by(|a, b| objective(a).total_cmp(&objective(b)))
}

/// Replaces an outcome by the polished one if that has a lower objective, and adds up the rounds and evaluations of
/// both. If the polish was interrupted, so is the fit, because it might have become better.
fn merge_polished(outcome: &mut Outcome, polished: Outcome, marginalise: bool) {
    let evaluations = outcome.evaluations + polished.evaluations;
    let rounds = outcome.rounds + polished.rounds;
    let is_interrupted = polished.status == Some(Status::Interrupted);
    if polished.objective(marginalise) < outcome.objective(marginalise) {
        *outcome = polished;
    }
    if is_interrupted {
        outcome.status = Some(Status::Interrupted);
    }
    outcome.evaluations = evaluations;
    outcome.rounds = rounds;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuDevice;
    use crate::device::Device as DeviceChoice;
    use crate::recording::Recording;
    use crate::solver::Population;
    use crate::spectral::SpectralFitter;
    use crate::{Continuum, Emulator, Spectra};

    /// A device that reports a larger capacity than it has.
    struct TightDevice(usize);

    impl Backend for TightDevice {
        fn name(&self) -> String {
            "tight".into()
        }

        fn capacity(&self, _: &Recording, _: Option<u64>) -> Result<usize> {
            Ok(1 << 12)
        }

        fn population(
            &self,
            recording: Arc<Recording>,
            settings: &LevenbergMarquardt,
            capacity: usize,
        ) -> Result<Box<dyn Population>> {
            if capacity > self.0 {
                return Err(Error::OutOfMemory {
                    device: self.name(),
                    message: format!("{capacity} members"),
                });
            }
            CpuDevice.population(recording, settings, capacity)
        }
    }

    #[test]
    fn out_of_memory_shrinks_the_population_and_keeps_the_bits() {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
        let emulator = Emulator::open(format!("{data}/emulator.safetensors")).unwrap();
        let model = SpectralModel::builder()
            .arm("", emulator)
            .velocity(-1000.0..=1000.0)
            .continuum(Continuum::rbf(10))
            .build()
            .unwrap();
        let spectra = Spectra::open(format!("{data}/spectra.npz"))
            .unwrap()
            .slice(0..9);
        let fit_with_room = |starts: usize| {
            let device = DeviceChoice::from_single(TightDevice(starts));
            SpectralFitter::new(model.clone(), device)
                .batch_size(192)
                .fit(&spectra)
        };
        let whole = fit_with_room(1 << 12).unwrap();
        let lowered = fit_with_room(5).unwrap();
        for (a, b) in whole.to_rows().iter().zip(lowered.to_rows()) {
            assert_eq!(a.parameters, b.parameters);
            assert_eq!(a.chi2.to_bits(), b.chi2.to_bits());
        }
        // The two starts of a spectrum enter together, so that a population of one start is too small.
        assert!(matches!(fit_with_room(1), Err(Error::OutOfMemory { .. })));
    }
}
