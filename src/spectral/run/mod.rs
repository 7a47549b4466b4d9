//! One run on one device: prepares batches of spectra, finds their starts, fits them, and makes their rows.

mod clusters;
pub mod evaluation;
mod exposures;
mod groups;
mod jitter;
mod populations;
mod prepared_files;
mod repeat;
pub mod workspace;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use web_time::Instant;

use crate::device::retry::{Attempts, halve_capacity};
use crate::error::{Error, Result};
use crate::first_guess::Start;
use crate::flag::Flags;
use crate::model::{Jitter, ParameterLimits, Prepared};
use crate::recording::Velocity;
use crate::solver::Backend;
use crate::solver::profile::Meter;
use crate::spectra::{ArmSpectra, Spectra};
use crate::spectral::input::clusters::find_clusters;
use crate::spectral::input::given::to_physical;
use crate::spectral::input::ready::{Grids, ReadySpectrum};
use crate::spectral::results::blank::{
    bad_spectrum_error, blank_row, mark_bad_input, mark_interrupted_before_fit,
    mark_interrupted_before_repetition,
};
use crate::spectral::results::row::FitRow;
use crate::spectral::results::sound;
use crate::spectral::search::poor::STARTS_TOGETHER;
use crate::spectral::search::shared::SharedResources;
use crate::spectral::stream::stages::{BatchStage, StageTimes};
use crate::spectral::stream::workers::RunProgress;
use crate::spectral::{Solver, SpectralFitter};
use clusters::{FittedGroup, FittedSpectrum};
use groups::{SpectrumGroup, group_spectra};
use prepared_files::PreparedFile;
use repeat::{MAX_FITS_PER_SPECTRUM, RepeatedFit};
use workspace::{BorrowedWorkspace, EvaluationPopulation, WorkerWorkspace, lock};

/// A prepared spectrum with its starts.
struct StartedSpectrum {
    prepared: Prepared,
    limits: Vec<ParameterLimits>,
    starts: Vec<Start>,
    /// Flags that are known before the fit.
    flags: Flags,
}

/// The fits of a group of spectra.
#[derive(Default)]
struct GroupFits {
    /// Fits that are to be repeated.
    repeats: Vec<RepeatedFit>,
    /// Spectra whose rows are filled, if they may share labels.
    spectra: Vec<FittedSpectrum>,
}

/// A run on one device.
pub struct SpectralRun<'a> {
    pub fitter: &'a SpectralFitter,
    device: Arc<dyn Backend>,
    /// Maximum memory of the populations of all workers of the device in bytes.
    memory: Option<u64>,
    /// Populations of the last spectra, and samplings of the last grids.
    worker: WorkerWorkspace<'a>,
    /// The device has failed, and the CPU has replaced it.
    pub is_replaced: bool,
    pub stages: StageTimes,
    meter: Option<Arc<Meter>>,
    tally: Option<&'a RunProgress<'a>>,
    /// Number of workers that share the device and its memory.
    sharing: usize,
    /// Number of starts per spectrum by which the populations are planned.
    usual_starts: usize,
    /// Number of spectra of this batch that were reported to the tally.
    reported: usize,
    /// Resources for objects with several exposures, by their number and whether each has its velocity, which are kept
    /// from batch to batch.
    exposure_resources: BTreeMap<(usize, bool), Arc<SharedResources>>,
    /// Fitter of objects whose exposures have a common velocity, once the velocities of some were tested.
    common_fitter: Option<Arc<SpectralFitter>>,
}

impl<'a> SpectralRun<'a> {
    /// Makes a run of the fitter on a device, with a workspace that all workers of the device share. Its populations
    /// take at most `memory` bytes.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSettings`], and [`Error::Usage`] for settings that exclude each other.
    pub fn new(
        fitter: &'a SpectralFitter,
        device: Arc<dyn Backend>,
        borrowed: Arc<BorrowedWorkspace<'a>>,
        memory: Option<u64>,
    ) -> Result<SpectralRun<'a>> {
        if fitter.scans_velocity() && matches!(fitter.model.velocity(), Velocity::Fixed(_)) {
            return Err(Error::invalid(
                "velocity_scan",
                "a scan of the velocity, which is fixed: give it a range",
            ));
        }
        if fitter.scans_velocity() && fitter.model.has_exposure_velocities() {
            return Err(Error::invalid(
                "velocity_scan",
                "a scan of the velocity, of which each exposure has its own: turn the scan off",
            ));
        }
        refuse_with_shared_labels(fitter)?;
        fitter.validate()?;
        lock(&borrowed.workspace.grids).resize_with(fitter.model.arms.len(), Vec::new);
        Ok(SpectralRun {
            fitter,
            device,
            memory,
            worker: WorkerWorkspace::new(borrowed),
            is_replaced: false,
            stages: StageTimes::default(),
            meter: None,
            tally: None,
            sharing: 1,
            usual_starts: fitter.usual_starts(),
            reported: 0,
            exposure_resources: BTreeMap::new(),
            common_fitter: None,
        })
    }

    /// Makes the run one of `sharing` workers that share the device.
    pub fn sharing_with(self, sharing: usize) -> SpectralRun<'a> {
        SpectralRun { sharing, ..self }
    }

    /// Makes the run plan its populations for one start per spectrum, which the user gives.
    pub fn planned_for_single_starts(self) -> SpectralRun<'a> {
        SpectralRun {
            usual_starts: 1,
            ..self
        }
    }

    /// Makes the run free its populations when it ends. The rows of a stream are still being written then, and the
    /// memory of both would be held at once.
    pub fn freed_at_its_end(mut self) -> SpectralRun<'a> {
        self.worker.keeps_passes = false;
        self
    }

    /// Makes the run report its progress to a tally, and stop when the tally is cancelled.
    pub fn watched_by(self, tally: &'a RunProgress<'a>) -> SpectralRun<'a> {
        SpectralRun {
            tally: Some(tally),
            ..self
        }
    }

    /// Makes the run record the times of its stages since `begin` and of its populations, if there is a meter.
    pub fn measured_by(mut self, meter: Option<Arc<Meter>>, begin: Instant) -> SpectralRun<'a> {
        self.worker.keeps_passes &= meter.is_none();
        SpectralRun {
            stages: StageTimes::recording_since(meter.as_ref().map(|_| begin)),
            meter,
            ..self
        }
    }

    /// Takes the population that evaluates the objective at given points, if there is one.
    fn take_evaluation(&self) -> Option<EvaluationPopulation> {
        lock(&self.worker.borrowed.workspace.evaluation).take()
    }

    /// Keeps a population that evaluates the objective at given points.
    fn keep_evaluation(&self, evaluation: EvaluationPopulation) {
        *lock(&self.worker.borrowed.workspace.evaluation) = Some(evaluation);
    }

    /// Returns whether the tally that watches the run, if any, is cancelled.
    fn is_cancelled(&self) -> bool {
        self.tally
            .is_some_and(|tally| tally.cancel().load(Ordering::Relaxed))
    }

    /// Runs `work`, adds the time that it took to a stage, and returns its result.
    fn measure_stage<T>(&mut self, stage: BatchStage, work: impl FnOnce(&mut Self) -> T) -> T {
        let begin = Instant::now();
        let result = work(self);
        self.stages.add_time_since(stage, begin);
        result
    }

    /// Fits the spectra of some files together, again if the device fails, and returns their rows in order.
    /// `user_starts` (spectra, parameters) in physical units replace the first guess of a single file.
    pub fn fit_batch(
        &mut self,
        files: &[&Spectra],
        user_starts: Option<&[f64]>,
    ) -> Result<Vec<FitRow>> {
        self.reported = 0;
        if files.iter().any(|spectra| spectra.exposures.is_some()) {
            return self.fit_objects(files, user_starts);
        }
        let count = files.iter().map(|spectra| spectra.len()).sum();
        let mut attempts = Attempts::default();
        let rows = loop {
            match self.fit_once(files, user_starts) {
                Ok(rows) => break rows,
                Err(failure) if self.halve_capacity(&failure, count) => {}
                Err(failure) => self.renew_device(&mut attempts, failure)?,
            }
        };
        if let Some(tally) = self.tally {
            tally.add_finished((rows.len() - self.reported) as u64);
        }
        Ok(rows)
    }

    /// Halves the starts in flight after a device ran out of memory at work. Returns whether a batch of `spectra`
    /// spectra can be fitted again.
    fn halve_capacity(&mut self, failure: &Error, spectra: usize) -> bool {
        let is_out_of_memory = matches!(failure, Error::OutOfMemory { .. });
        let Some(passes) = self.worker.passes.take_if(|_| is_out_of_memory) else {
            return false;
        };
        // 1. Free the populations. Those that workers share hold the spectra of other batches, too.
        passes.fail(failure);
        let spectra = if self.device.shares_populations() {
            usize::MAX
        } else {
            spectra
        };
        let half_capacity = halve_capacity(passes.capacity, spectra, self.fitter.most_starts());
        drop(passes);
        // 2. A device that has failed refuses all work until it is renewed.
        let is_renewed = half_capacity.is_some() && matches!(self.device.renew(failure), Ok(true));
        let Some(half_capacity) = half_capacity.filter(|_| is_renewed) else {
            return false;
        };
        // 3. All workers make smaller populations from now on.
        if let Some(tally) = self.tally {
            tally.warn(format!(
                "{failure}; fitted again with {half_capacity} starts at once"
            ));
        }
        self.worker
            .borrowed
            .workspace
            .max_starts_in_flight
            .fetch_min(half_capacity, Ordering::Relaxed);
        true
    }

    /// Renews a failed device, or replaces it by the CPU, so that the batch can be fitted again. Returns the failure if
    /// neither is possible.
    fn renew_device(&mut self, attempts: &mut Attempts, failure: Error) -> Result<()> {
        // 1. End the populations, also for the other workers that share them.
        let passes = self.worker.passes.take();
        if failure.is_of_device()
            && let Some(passes) = &passes
        {
            passes.fail(&failure);
        }
        // 2. Choose the device for the next attempt.
        let message = failure.to_string();
        let may_use_cpu = self.fitter.may_use_cpu();
        let has_failed_elsewhere = passes.is_some_and(|passes| passes.have_failed_elsewhere());
        let next_device = if has_failed_elsewhere {
            attempts.next_device_after_other(&self.device, failure, may_use_cpu)?
        } else {
            attempts.next_device(&self.device, failure, may_use_cpu)?
        };
        if let Some(tally) = self.tally {
            tally.warn(format!("{message}; fitted again on {}", next_device.name()));
        }
        if !Arc::ptr_eq(&next_device, &self.device) {
            self.is_replaced = true;
            self.meter = None;
            self.worker.keeps_passes = false;
        }
        self.device = next_device;
        Ok(())
    }

    /// Fits the spectra of some files, in a single attempt, and returns the rows of all, also of bad or cancelled ones.
    fn fit_once(&mut self, files: &[&Spectra], user_starts: Option<&[f64]>) -> Result<Vec<FitRow>> {
        let model = &self.fitter.model;
        // 1. Make rows without numbers. If the run is cancelled, they are the result.
        let mut rows: Vec<FitRow> = Vec::new();
        for spectra in files {
            rows.extend((0..spectra.len()).map(|k| blank_row(model, spectra, k)));
        }
        if self.is_cancelled() {
            let width = model.parameters.len();
            for (place, row) in rows.iter_mut().enumerate() {
                let user_start =
                    user_starts.map(|starts| &starts[place * width..(place + 1) * width]);
                mark_interrupted_before_fit(model, row, user_start);
            }
            return Ok(rows);
        }
        // 2. Find the clusters. Prepare the spectra, and find their starts.
        let clusters = find_clusters(model, files)?;
        if let Some(tally) = self.tally {
            tally.note_clusters(&clusters);
        }
        let mut prepared_files =
            self.measure_stage(BatchStage::Prepare, |run| run.prepare_files(files))?;
        let started_spectra = self.measure_stage(BatchStage::FirstGuess, |run| {
            run.find_starts(&mut prepared_files, user_starts)
        })?;
        // 3. Separate the spectra that can be fitted from those that cannot.
        let may_add_starts = user_starts.is_none() && self.fitter.adds_starts();
        let mut ready = Vec::new();
        for (place, started) in started_spectra.into_iter().enumerate() {
            match started {
                Ok(started) => {
                    rows[place].flags |= started.flags;
                    ready.push(ReadySpectrum {
                        place,
                        prepared: Arc::new(started.prepared),
                        limits: started.limits,
                        starts: started.starts,
                        may_add_starts,
                    });
                }
                Err(fault) if self.fitter.strict => {
                    return Err(bad_spectrum_error(&rows[place], &fault));
                }
                Err(fault) => mark_bad_input(&mut rows[place], fault),
            }
        }
        // 4. Fit, and check the numbers in the rows.
        let counts: Vec<usize> = files.iter().map(|spectra| spectra.len()).collect();
        let fitted_groups = self.fit_prepared_files(&prepared_files, &counts, ready, &mut rows)?;
        drop(prepared_files);
        if !clusters.is_empty() {
            self.measure_stage(BatchStage::Fit, |run| {
                run.fit_clusters(&clusters, fitted_groups, &mut rows)
            })?;
        }
        let scanned_velocity = model
            .free_velocity()
            .filter(|_| self.fitter.scans_velocity());
        for row in &mut rows {
            sound::check_row(row, scanned_velocity);
        }
        Ok(rows)
    }

    /// Fits the prepared spectra of all files and fills their rows. Fits that end where other pixels count, or with
    /// residuals of another jitter, are repeated. `counts` are the numbers of spectra of each file. Returns the fitted
    /// spectra, if they may share labels.
    fn fit_prepared_files(
        &mut self,
        prepared_files: &[PreparedFile],
        counts: &[usize],
        mut ready: Vec<ReadySpectrum>,
        rows: &mut [FitRow],
    ) -> Result<Vec<FittedGroup>> {
        let mut fitted_groups = Vec::new();
        let mut earlier_evaluations = vec![0; rows.len()];
        let first_place = |file: usize| counts[..file].iter().sum::<usize>();
        for fit_number in 1..=MAX_FITS_PER_SPECTRUM {
            // 1. Fit all spectra that are ready, group by group.
            let mut finished = rows.len() - ready.len();
            let mut repeats = Vec::new();
            for group in group_spectra(prepared_files, counts, ready) {
                let count = group.ready.len();
                let (layout, grids) = (group.layout.clone(), group.grids.clone());
                let mut fitted = self.fit_group(group, rows, finished, fit_number)?;
                repeats.append(&mut fitted.repeats);
                if !fitted.spectra.is_empty() {
                    fitted_groups.push(FittedGroup {
                        layout,
                        grids,
                        spectra: fitted.spectra,
                    });
                }
                finished += count;
            }
            // 2. Prepare the spectra whose fits are repeated with the pixels and the jitter of their next fit.
            ready = Vec::with_capacity(repeats.len());
            for repeat in repeats {
                let place = repeat.spectrum.place;
                earlier_evaluations[place] += repeat.evaluations;
                let file = (0..counts.len())
                    .rfind(|file| first_place(*file) <= place)
                    .unwrap_or(0);
                let k = place - first_place(file);
                let prepared = prepared_files[file].prepare_again(
                    &self.fitter.model,
                    k,
                    &repeat.motion,
                    &repeat.jitters,
                );
                match prepared {
                    Ok(prepared) => ready.push(ReadySpectrum {
                        prepared: Arc::new(prepared),
                        ..repeat.spectrum
                    }),
                    Err(fault) if self.fitter.strict => {
                        return Err(bad_spectrum_error(&rows[place], &fault));
                    }
                    Err(fault) => mark_bad_input(&mut rows[place], fault),
                }
            }
        }
        for (row, evaluations) in rows.iter_mut().zip(earlier_evaluations) {
            row.evaluations += evaluations;
        }
        Ok(fitted_groups)
    }

    /// Returns the wavelength samplings of a file's spectra in each arm. Those of shared grids are kept for the next
    /// batch.
    pub fn sample_grids(
        &mut self,
        arms: &[Cow<ArmSpectra>],
        spectra: &Spectra,
    ) -> Result<Vec<Grids>> {
        let mut grids_of_files = self.sample_grids_of_files(&[arms.to_vec()], &[spectra])?;
        Ok(grids_of_files.swap_remove(0))
    }

    /// Fits a group of spectra of one layout for the `fit_number`th time, and fills their rows. `finished` spectra of
    /// the batch already have their rows. Returns the fits that are to be repeated, whose rows are not filled, and, if
    /// they may share labels, the spectra whose rows are filled.
    fn fit_group(
        &mut self,
        group: SpectrumGroup,
        rows: &mut [FitRow],
        finished: usize,
        fit_number: usize,
    ) -> Result<GroupFits> {
        let SpectrumGroup {
            layout,
            grids,
            ready,
        } = group;
        if ready.is_empty() {
            return Ok(GroupFits::default());
        }
        // 1. Make the populations. The starts of a spectrum enter together, so there must be room for all of them.
        self.measure_stage(BatchStage::Fit, |run| run.make_passes(&layout))?;
        self.check_room(&ready)?;
        // 2. Fit.
        let fitter = self.fitter;
        let grids = &*grids;
        let outcomes = self.measure_stage(BatchStage::Fit, |run| {
            let mut outcomes = run.solve_ready_spectra(grids, &ready, finished)?;
            run.correlate_outcomes(&layout, grids, &ready, &mut outcomes)?;
            Ok(outcomes)
        })?;
        // 3. Find the jitter, where it is fitted.
        let jitters = if fitter.model.spectra.jitter == Jitter::Fitted {
            self.measure_stage(BatchStage::Finish, |run| {
                run.fit_jitters(&layout, grids, &ready, &outcomes)
            })?
        } else {
            ready.iter().map(|_| Vec::new()).collect()
        };
        // 4. Fill the rows, except those of fits that are repeated with other pixels or another jitter. If the run is
        //    cancelled, these are interrupted.
        let is_cancelled = self.is_cancelled();
        let mut repeats = Vec::new();
        let mut finished_spectra = Vec::with_capacity(ready.len());
        let mut spectra = Vec::new();
        self.measure_stage(BatchStage::Finish, |_| {
            let row_builder = fitter.row_builder();
            for ((spectrum, mut outcomes), jitters) in ready.into_iter().zip(outcomes).zip(jitters)
            {
                let repeat = RepeatedFit::new(
                    &fitter.model,
                    grids,
                    &spectrum,
                    &outcomes,
                    jitters,
                    fit_number,
                );
                let is_unfinished = repeat.is_some();
                if let Some(repeat) = repeat.filter(|_| !is_cancelled) {
                    repeats.push(repeat);
                    continue;
                }
                let row = &mut rows[spectrum.place];
                if outcomes.is_empty() {
                    let start = spectrum.starts.first();
                    let start = start.map(|start| to_physical(&fitter.model, start));
                    mark_interrupted_before_fit(&fitter.model, row, start.as_deref());
                } else {
                    row_builder.fill_row(row, &outcomes, &spectrum);
                }
                if is_unfinished {
                    mark_interrupted_before_repetition(row);
                }
                if let Some(best) = row.start.filter(|_| fitter.model.shared.is_some()) {
                    spectra.push(FittedSpectrum {
                        ready: spectrum.clone(),
                        outcome: outcomes.swap_remove(best as usize),
                    });
                }
                finished_spectra.push(spectrum);
            }
        });
        // 5. Scan the velocities.
        if fitter.scans_velocity() {
            self.measure_stage(BatchStage::Posterior, |run| {
                run.scan_velocities(grids, &finished_spectra, rows)
            })?;
        }
        Ok(GroupFits { repeats, spectra })
    }

    /// Fails unless the populations have room for the starts of each spectrum, which enter together.
    fn check_room(&self, ready: &[ReadySpectrum]) -> Result<()> {
        let passes = self.worker.passes.as_ref();
        let capacity = passes.map_or(1, |passes| passes.capacity);
        let mut max_starts = 1;
        for spectrum in ready {
            let further_starts = if spectrum.may_add_starts {
                STARTS_TOGETHER
            } else {
                1
            };
            max_starts = max_starts.max(spectrum.starts.len()).max(further_starts);
        }
        if capacity >= max_starts {
            return Ok(());
        }
        let message =
            format!("room for {capacity} members, a spectrum's {max_starts} starts enter together");
        Err(Error::OutOfMemory {
            device: self.device.name(),
            message,
        })
    }
}

/// Fails for settings of a fitter that do not go together with labels that spectra share.
fn refuse_with_shared_labels(fitter: &SpectralFitter) -> Result<()> {
    if fitter.model.shared.is_none() {
        return Ok(());
    }
    let (setting, message) = if fitter.model.exposures.is_some() {
        (
            "exposures",
            "objects with several exposures cannot share labels: fit each exposure by itself, or leave out `shared`",
        )
    } else if fitter.scans_velocity() {
        (
            "velocity_scan",
            "the scan of the velocity is one of single fits, and spectra share labels: turn it off, or leave out `shared`",
        )
    } else if !matches!(fitter.solver, Solver::LevenbergMarquardt(_)) {
        (
            "solver",
            "Nelder–Mead does not fit spectra that share labels: choose `lm`, or leave out `shared`",
        )
    } else {
        return Ok(());
    };
    Err(Error::invalid(setting, message))
}
