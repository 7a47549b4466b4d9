//! Populations for spectra of one shape, and the passes of a solver through them.
//!
//! Levenberg–Marquardt is one pass, or two in mixed precision (`spectral/search/rough.rs`). Nelder–Mead is a simplex
//! search, then one linearisation at each best vertex, which gives the fit its errors. `lm+nelder-mead` does both. The
//! scan of the velocity's posterior and the check for folds are passes without derivatives. Levenberg–Marquardt may be
//! followed by fits from further starts (`spectral/search/poor.rs`, `spectral/search/fold.rs`). For the check for folds
//! alone, a GPU, and a run whose memory is limited, use the pass with derivatives, because their memory is not shared
//! for so few points.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::device::retry::lower_until_it_fits;
use crate::error::{Error, Result};
use crate::model::{ArmLayout, SpectralModel, SpectralObjective};
use crate::recording::Precision;
use crate::solver::profile::Meter;
use crate::solver::search::{SearchSettings, search};
use crate::solver::{Device, Method, Outcome, Status};
use crate::spectral::Solver;
use crate::spectral::input::ready::{Monitor, ReadySpectra, Starts};
use crate::spectral::search::pass::{Pass, PassSettings, objective_noise};
use crate::spectral::search::rough;
use crate::spectral::search::shared::Shared;
use crate::spectral::search::shared_population::SharedPopulation;
use crate::spectral::search::shared_populations::{Memory, SharedPopulations};
use crate::spectral::search::simplices::SpectralSearch;
use crate::spectral::search::verify::Verifier;

/// Share of the time that the first rounds of a fit in mixed precision take.
const FIRST: f64 = 0.7;
/// Share of the time before spectra have further starts.
const BEFORE_FOLDS: f64 = 0.95;

/// The passes of a solver for spectra of one shape.
pub struct Passes {
    layout: Vec<ArmLayout>,
    settings: PassSettings,
    /// Maximum number of starts in flight.
    pub capacity: usize,
    solver: Solver,
    /// Levenberg–Marquardt, or the linearisation that gives a simplex's best vertex its errors.
    linearise: Pass,
    /// First rounds of Levenberg–Marquardt in mixed precision.
    rough: Option<Pass>,
    simplex: Option<Pass>,
    /// Evaluates without derivatives: for scans, for checks for folds, and for the surfaces at the ends of simplices.
    evaluate: Option<Pass>,
    /// Settings of simplex searches: degrees of freedom that scale their tolerance, and the relative error of an
    /// objective.
    search: SearchSettings,
}

/// The objective and the method of a pass whose population is not made yet.
struct Plan {
    objective: Arc<SpectralObjective>,
    method: Method,
    /// False for rough first rounds: others continue from their ends.
    is_kept: bool,
}

impl Passes {
    /// Makes the populations of all passes that fit spectra of one layout on a device, and divides the memory among
    /// them.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`] if not even populations of one start fit into the
    /// memory, and the device's errors.
    pub fn new(
        model: &SpectralModel,
        shared: &Shared,
        layout: &[ArmLayout],
        device: &dyn Device,
        made: &SharedPopulations,
        settings: PassSettings,
    ) -> Result<Passes> {
        let PassSettings {
            solver,
            precision,
            memory,
            workers,
            max_starts,
            ..
        } = settings;
        // 1. Plan the passes in the order in which their populations are made.
        let (first, second) = (settings.least_squares(), settings.simplex());
        let is_mixed = precision == Precision::Mixed && !matches!(solver, Solver::NelderMead(_));
        let split = if is_mixed {
            rough::settings(first)
        } else {
            None
        };
        let last = split.map_or(first, |[_, last]| last);
        let has_evaluation = settings.has_evaluation || second.is_some();
        let results = precision.of_results();
        let plan = |objective, method| Plan {
            objective,
            method,
            is_kept: true,
        };
        let objective =
            |precision, values_only| shared.objective(model, layout, precision, values_only);
        let mut plans = vec![plan(
            objective(results, false),
            Method::LevenbergMarquardt(last),
        )];
        plans.extend(
            second.map(|settings| plan(objective(results, true), Method::NelderMead(settings))),
        );
        plans.extend(
            has_evaluation
                .then(|| plan(objective(results, true), Method::LevenbergMarquardt(first))),
        );
        plans.extend(split.map(|[rough, _]| Plan {
            is_kept: false,
            ..plan(
                objective(precision, false),
                Method::LevenbergMarquardt(rough),
            )
        }));
        // 2. Divide the memory among them, unless another worker has done so, and make the populations.
        let make = |memory: Option<u64>| {
            let mut capacity = max_starts;
            for Plan {
                objective, method, ..
            } in &plans
            {
                let members = device.capacity(objective.recording(), memory)?;
                capacity = capacity.min((members / method.lanes() / plans.len()).max(1));
            }
            lower_until_it_fits(&mut capacity, |capacity| {
                populations(device, &plans, capacity)
            })
        };
        let populations = match device.shares_populations() {
            true => {
                let wanted: Vec<_> = plans
                    .iter()
                    .map(|plan| (plan.objective.clone(), plan.method))
                    .collect();
                made.get_or_make(
                    &wanted,
                    Memory {
                        bytes: memory,
                        workers,
                    },
                    make,
                )?
            }
            false => make(memory)?,
        };
        let capacity = populations
            .iter()
            .map(|population| population.capacity)
            .min()
            .unwrap_or(1);
        // 3. Make the passes. The last planned one is taken first.
        let mut passes: Vec<Pass> = Vec::with_capacity(plans.len());
        for (
            Plan {
                objective, is_kept, ..
            },
            population,
        ) in plans.into_iter().zip(populations)
        {
            let is_verified = device.is_verified() && is_kept;
            let verifier = is_verified
                .then(|| Verifier::new(device.name(), objective.clone(), last, second))
                .transpose()?;
            passes.push(Pass {
                objective,
                population,
                verifier,
                has_failed_elsewhere: false,
            });
        }
        let rough = if split.is_some() { passes.pop() } else { None };
        let evaluate = if has_evaluation { passes.pop() } else { None };
        let simplex = if second.is_some() { passes.pop() } else { None };
        let linearise = passes.remove(0);
        let search = SearchSettings {
            settings: second.unwrap_or_default(),
            dof: linearise.objective.recording().dof,
            noise: objective_noise(device.runs_wgsl(), precision),
        };
        let layout = layout.to_vec();
        Ok(Passes {
            layout,
            settings,
            capacity,
            solver,
            linearise,
            rough,
            simplex,
            evaluate,
            search,
        })
    }

    /// Returns whether the populations are for spectra of this layout, were made with these settings, and work.
    pub fn is_for(&self, layout: &[ArmLayout], settings: PassSettings) -> bool {
        self.layout == layout && self.settings == settings && !self.have_failed()
    }

    /// Returns all passes.
    fn all(&self) -> impl Iterator<Item = &Pass> {
        let Passes {
            linearise,
            rough,
            simplex,
            evaluate,
            ..
        } = self;
        std::iter::once(linearise)
            .chain(rough)
            .chain(simplex)
            .chain(evaluate)
    }

    /// Returns whether a population failed in the hands of another worker, in the middle of this one's work.
    pub fn have_failed_elsewhere(&self) -> bool {
        self.all().any(|pass| pass.has_failed_elsewhere)
    }

    /// Makes all populations add their times to a meter.
    pub fn measure(&self, meter: &Arc<Meter>) {
        self.all().for_each(|pass| pass.population.measure(meter));
    }

    /// Ends all populations after a failure: those of other workers that share them, too.
    pub fn fail(&self, failure: &Error) {
        self.all().for_each(|pass| pass.population.fail(failure));
    }

    /// Returns whether some population has failed.
    pub fn have_failed(&self) -> bool {
        self.all().any(|pass| pass.population.has_failed())
    }

    /// Fits spectra by the solver that is set, and returns the outcomes of each spectrum's starts. There are none if
    /// the run was cancelled before the spectrum entered.
    pub fn solve(&mut self, spectra: ReadySpectra, monitor: Monitor) -> Result<Vec<Vec<Outcome>>> {
        let cancel = monitor.cancel;
        let outcomes = match self.solver {
            Solver::LevenbergMarquardt(_) => self.descend(spectra, monitor)?,
            Solver::NelderMead(_) => self.search_simplices(spectra, spectra.starts(), monitor)?,
            Solver::LevenbergMarquardtThenNelderMead(..) => {
                // The simplices take nearly all of the time.
                let silent = Monitor {
                    cancel: monitor.cancel,
                    progress: &mut |_| {},
                };
                let outcomes = self.descend(spectra, silent)?;
                self.polish(spectra, outcomes, monitor)?
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
        let outcomes =
            self.linearise
                .run(spectra, spectra.starts(), Monitor { cancel, progress })?;
        self.linearise.check_minima(spectra, &outcomes, cancel)?;
        Ok(outcomes.concat())
    }

    /// Fits spectra by Levenberg–Marquardt, those that are fitted poorly from more starts, searches for second minima
    /// beyond folds, and returns each spectrum's outcomes.
    fn descend(&mut self, spectra: ReadySpectra, monitor: Monitor) -> Result<Vec<Vec<Outcome>>> {
        let Monitor { cancel, progress } = monitor;
        let mut first = |share| progress(BEFORE_FOLDS * share);
        let mut found = self.rounds(
            spectra,
            spectra.starts(),
            Monitor {
                cancel,
                progress: &mut first,
            },
        )?;
        let mut more = |_| progress(BEFORE_FOLDS);
        self.try_more_starts(
            spectra,
            &mut found,
            Monitor {
                cancel,
                progress: &mut more,
            },
        )?;
        let mut last = |share| progress(BEFORE_FOLDS + (1.0 - BEFORE_FOLDS) * share);
        self.search_beyond_folds(
            spectra,
            &mut found,
            Monitor {
                cancel,
                progress: &mut last,
            },
        )?;
        Ok(found)
    }

    /// Runs Levenberg–Marquardt on spectra from these starts, in mixed precision with rough rounds first.
    pub fn rounds(
        &mut self,
        spectra: ReadySpectra,
        starts: Vec<Starts>,
        monitor: Monitor,
    ) -> Result<Vec<Vec<Outcome>>> {
        let Some(rough) = &mut self.rough else {
            return self.linearise.run(spectra, starts, monitor);
        };
        let Monitor { cancel, progress } = monitor;
        let mut first = |share| progress(FIRST * share);
        let before = rough.run(
            spectra,
            starts.clone(),
            Monitor {
                cancel,
                progress: &mut first,
            },
        )?;
        let ends = rough::ends(&before, &starts);
        let mut last = |share| progress(FIRST + (1.0 - FIRST) * share);
        let after = self.linearise.run(
            spectra,
            ends,
            Monitor {
                cancel,
                progress: &mut last,
            },
        )?;
        Ok(rough::joined(before, after))
    }

    /// Continues the lowest outcome of each spectrum by Nelder–Mead with a small simplex, and keeps the better of the
    /// two.
    fn polish(
        &mut self,
        spectra: ReadySpectra,
        mut outcomes: Vec<Vec<Outcome>>,
        monitor: Monitor,
    ) -> Result<Vec<Vec<Outcome>>> {
        let marginalise = spectra.model.marginalise;
        let winners: Vec<Option<usize>> = outcomes
            .iter()
            .map(|group| winner(group, marginalise))
            .collect();
        let best = |(group, winner): (&Vec<Outcome>, &Option<usize>)| {
            winner
                .iter()
                .map(|&k| group[k].parameters.clone())
                .collect()
        };
        let starts = outcomes.iter().zip(&winners).map(best).collect();
        let polished = self.search_simplices(spectra, starts, monitor)?;
        for ((group, winner), polished) in outcomes.iter_mut().zip(winners).zip(polished) {
            let Some(winner) = winner else { continue };
            match polished.into_iter().next() {
                Some(polished) => take_better(&mut group[winner], polished, marginalise),
                // the run was cancelled before it entered
                None => group[winner].status = Some(Status::Interrupted),
            }
        }
        Ok(outcomes)
    }

    /// Fits spectra by Nelder–Mead from these starts, and evaluates the derivatives at each end.
    fn search_simplices(
        &mut self,
        spectra: ReadySpectra,
        starts: Vec<Starts>,
        monitor: Monitor,
    ) -> Result<Vec<Vec<Outcome>>> {
        let Passes {
            linearise,
            simplex: Some(simplex),
            evaluate: Some(evaluate),
            ..
        } = self
        else {
            return Ok(Vec::new());
        };
        let Monitor { cancel, progress } = monitor;
        // 1. Search for as many spectra together as there is room for. If the run is cancelled, the first are finished.
        let each = starts.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let (together, total) = (
            (simplex.population.capacity / each).max(1),
            starts.len().max(1),
        );
        let mut outcomes: Vec<Vec<Outcome>> = Vec::with_capacity(starts.len());
        for (some, starts) in spectra
            .spectra
            .chunks(together)
            .zip(starts.chunks(together))
        {
            let (before, part) = (
                outcomes.len() as f64 / total as f64,
                some.len() as f64 / total as f64,
            );
            let mut report = |share: f64| progress(before + share * part);
            let monitor = Monitor {
                cancel,
                progress: &mut report,
            };
            let passes = [&mut *linearise, &mut *simplex, &mut *evaluate];
            let some = spectra.with_spectra(some);
            let mut machine = SpectralSearch::new(passes, some, starts.to_vec(), monitor);
            let fits = machine.fits();
            let mut found = search(&mut machine, &fits, &self.search, cancel)?.into_iter();
            outcomes.extend(
                starts
                    .iter()
                    .map(|own| found.by_ref().take(own.len()).flatten().collect()),
            );
            if !cancel.load(Ordering::Relaxed) {
                report(1.0);
            }
        }
        // 2. Linearise all best vertices, also those of a cancelled run.
        self.linearise_ends(spectra, &mut outcomes)?;
        Ok(outcomes)
    }

    /// Replaces the outcomes of Nelder–Mead by evaluations with derivatives at their ends; a GPU's objectives must
    /// agree there.
    fn linearise_ends(
        &mut self,
        spectra: ReadySpectra,
        outcomes: &mut [Vec<Outcome>],
    ) -> Result<()> {
        let best = |group: &Vec<Outcome>| {
            group
                .iter()
                .map(|outcome| outcome.parameters.clone())
                .collect()
        };
        let ends: Vec<Starts> = outcomes.iter().map(best).collect();
        let linearised = self.linearise.evaluate(spectra, &ends)?;
        for ((outcomes, linearised), one) in
            outcomes.iter_mut().zip(linearised).zip(spectra.spectra)
        {
            for (outcome, end) in outcomes.iter_mut().zip(linearised) {
                if let Some(verifier) = &self.linearise.verifier {
                    verifier.compare(outcome, &end, &one.prepared, spectra.model.marginalise)?;
                }
                let Outcome {
                    status,
                    rounds,
                    evaluations,
                    ..
                } = *outcome;
                *outcome = Outcome {
                    status,
                    rounds,
                    evaluations: evaluations + 1,
                    ..end
                };
            }
        }
        Ok(())
    }
}

/// Makes one population of this capacity on the device for each planned pass.
fn populations(
    device: &dyn Device,
    plans: &[Plan],
    capacity: usize,
) -> Result<Vec<Arc<SharedPopulation>>> {
    let make = |Plan {
                    objective, method, ..
                }: &Plan| {
        device
            .population(objective.recording().clone(), method, capacity)
            .map(SharedPopulation::new)
            .map(Arc::new)
    };
    plans.iter().map(make).collect()
}

/// Returns the index of the start with the lowest objective, except those that gave way; `None` if no objective is
/// finite. Starts that failed or were stopped early are left out.
pub fn winner(group: &[Outcome], marginalise: bool) -> Option<usize> {
    let value = |k: &usize| group[*k].objective(marginalise);
    let candidates =
        (0..group.len()).filter(|k| group[*k].gave_way.is_none() && value(k) < f64::INFINITY);
    candidates.min_by(|a, b| value(a).total_cmp(&value(b)))
}

/// Replaces an outcome by the polished one if that has a lower objective, and adds up the rounds and evaluations of
/// both. If the polish was interrupted, so is the fit, because it might have become better.
fn take_better(outcome: &mut Outcome, polished: Outcome, marginalise: bool) {
    let evaluations = outcome.evaluations + polished.evaluations;
    let rounds = outcome.rounds + polished.rounds;
    let is_interrupted = polished.status == Some(Status::Interrupted);
    if polished.objective(marginalise) < outcome.objective(marginalise) {
        *outcome = polished;
    }
    if is_interrupted {
        outcome.status = Some(Status::Interrupted);
    }
    (outcome.evaluations, outcome.rounds) = (evaluations, rounds);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuDevice;
    use crate::device::Device as Chosen;
    use crate::recording::Recording;
    use crate::solver::Population;
    use crate::spectral::SpectralFitter;
    use crate::{Continuum, Emulator, Spectra};

    /// A device that reports a larger capacity than it has.
    struct Tight(usize);

    impl Device for Tight {
        fn name(&self) -> String {
            "tight".into()
        }

        fn capacity(&self, _: &Recording, _: Option<u64>) -> Result<usize> {
            Ok(1 << 12)
        }

        fn population(
            &self,
            recording: Arc<Recording>,
            method: &Method,
            capacity: usize,
        ) -> Result<Box<dyn Population>> {
            if capacity > self.0 {
                return Err(Error::OutOfMemory {
                    device: self.name(),
                    message: format!("{capacity} members"),
                });
            }
            CpuDevice.population(recording, method, capacity)
        }
    }

    #[test]
    fn out_of_memory_lowers_the_population_and_keeps_the_bits() {
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
        let fit = |room: usize| {
            let device = Chosen::from_single(Tight(room));
            SpectralFitter::new(model.clone(), device)
                .batch_size(192)
                .fit(&spectra)
        };
        let (whole, lowered) = (fit(1 << 12).unwrap(), fit(5).unwrap());
        for (a, b) in whole.rows().zip(lowered.rows()) {
            assert!(a.parameters().eq(b.parameters()));
            assert_eq!(a.chi2().to_bits(), b.chi2().to_bits());
        }
        // The two starts of a spectrum enter together, so that a population of one start is too small.
        assert!(matches!(fit(1), Err(Error::OutOfMemory { .. })));
    }
}
