//! One run on one device: prepares batches of spectra, finds their starts, fits them, and makes their rows.

mod groups;
mod pieces;
mod populations;
mod repeat;
pub mod workspace;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use web_time::Instant;

use crate::device::retry::{Attempts, half};
use crate::error::{Error, Result};
use crate::first_guess::Start;
use crate::flag::Flags;
use crate::model::{Limits, Prepared};
use crate::recording::{Precision, Velocity};
use crate::solver::Device;
use crate::solver::profile::Meter;
use crate::spectra::{ArmSpectra, Spectra};
use crate::spectral::input::given::physical;
use crate::spectral::input::ready::{Grids, ReadySpectrum};
use crate::spectral::results::blank::{
    bad_spectrum_error, blank_row, mark_bad_input, mark_interrupted_before_fit,
};
use crate::spectral::results::row::FitRow;
use crate::spectral::results::sound;
use crate::spectral::search::poor::TOGETHER;
use crate::spectral::stream::stages::{BatchStage, StageTimes};
use crate::spectral::stream::workers::RunProgress;
use crate::spectral::{Solver, SpectralFitter};
use groups::{Group, groups};
use pieces::Piece;
use repeat::{MOST_FITS, RepeatedFit};
use workspace::{Borrowed, Evaluation, Seat, lock};

/// A prepared spectrum with its starts.
struct Started {
    prepared: Prepared,
    limits: Vec<Limits>,
    starts: Vec<Start>,
    /// Flags that are known before the fit.
    flags: Flags,
}

/// A run on one device.
pub struct Run<'a> {
    pub fitter: &'a SpectralFitter,
    device: Arc<dyn Device>,
    /// Maximum memory of the populations of all workers of the device in bytes.
    memory: Option<u64>,
    /// Populations of the last spectra, and samplings of the last grids.
    seat: Seat<'a>,
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
}

impl<'a> Run<'a> {
    /// Makes a run of the fitter on a device, with a workspace that all workers of the device share. Its populations
    /// take at most `memory` bytes.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSettings`], and [`Error::Usage`] for settings that exclude each other.
    pub fn new(
        fitter: &'a SpectralFitter,
        device: Arc<dyn Device>,
        borrowed: Arc<Borrowed<'a>>,
        memory: Option<u64>,
    ) -> Result<Run<'a>> {
        if fitter.scans_velocity() && matches!(fitter.model.velocity, Velocity::Fixed(_)) {
            return Err(Error::invalid(
                "velocity_scan",
                "a scan of the velocity, which is fixed: give it a range",
            ));
        }
        fitter.validate()?;
        if fitter.precision == Precision::Mixed && matches!(fitter.solver, Solver::NelderMead(_)) {
            let message =
                "mixed precision is for Levenberg–Marquardt: Nelder–Mead sees every rounding";
            return Err(Error::invalid("precision", message));
        }
        lock(&borrowed.workspace.grids).resize_with(fitter.model.arms.len(), Vec::new);
        Ok(Run {
            fitter,
            device,
            memory,
            seat: Seat::new(borrowed),
            is_replaced: false,
            stages: StageTimes::default(),
            meter: None,
            tally: None,
            sharing: 1,
            usual_starts: fitter.usual_starts(),
            reported: 0,
        })
    }

    /// Makes the run one of `sharing` workers that share the device.
    pub fn sharing_with(self, sharing: usize) -> Run<'a> {
        Run { sharing, ..self }
    }

    /// Makes the run plan its populations for one start per spectrum, which the user gives.
    pub fn planned_for_single_starts(self) -> Run<'a> {
        Run {
            usual_starts: 1,
            ..self
        }
    }

    /// Makes the run free its populations when it ends: the rows of a stream are still being written then, and the
    /// memory of both would be held at once.
    pub fn freed_at_its_end(mut self) -> Run<'a> {
        self.seat.keeps_passes = false;
        self
    }

    /// Makes the run report its progress to a tally, and stop when the tally is cancelled.
    pub fn watched_by(self, tally: &'a RunProgress<'a>) -> Run<'a> {
        Run {
            tally: Some(tally),
            ..self
        }
    }

    /// Makes the run record the times of its stages since `begin` and of its populations, if there is a meter.
    pub fn measured_by(mut self, meter: Option<Arc<Meter>>, begin: Instant) -> Run<'a> {
        self.seat.keeps_passes &= meter.is_none();
        Run {
            stages: StageTimes::recording_since(meter.as_ref().map(|_| begin)),
            meter,
            ..self
        }
    }

    /// Takes the population that evaluates the objective at given points, if there is one.
    pub fn take_evaluation(&self) -> Option<Evaluation> {
        lock(&self.seat.borrowed.workspace.evaluation).take()
    }

    /// Keeps a population that evaluates the objective at given points.
    pub fn keep_evaluation(&self, evaluation: Evaluation) {
        *lock(&self.seat.borrowed.workspace.evaluation) = Some(evaluation);
    }

    /// Returns whether the tally that watches the run, if any, is cancelled.
    fn is_cancelled(&self) -> bool {
        self.tally
            .is_some_and(|tally| tally.cancel().load(Ordering::Relaxed))
    }

    /// Runs `work`, adds the time that it took to a stage, and returns its result.
    fn time<T>(&mut self, stage: BatchStage, work: impl FnOnce(&mut Self) -> T) -> T {
        let begin = Instant::now();
        let out = work(self);
        self.stages.add_time_since(stage, begin);
        out
    }

    /// Fits the spectra of some files together, again where a device fails, and returns their rows in order.
    /// `user_starts` (spectra, parameters) in physical units replace the first guess of a single file.
    pub fn batch(
        &mut self,
        files: &[&Spectra],
        user_starts: Option<&[f64]>,
    ) -> Result<Vec<FitRow>> {
        self.reported = 0;
        let count = files.iter().map(|spectra| spectra.len()).sum();
        let mut attempts = Attempts::default();
        let rows = loop {
            match self.rows(files, user_starts) {
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
        let Some(passes) = self
            .seat
            .passes
            .take_if(|_| matches!(failure, Error::OutOfMemory { .. }))
        else {
            return false;
        };
        passes.fail(failure);
        // other workers' spectra are in shared populations, too
        let spectra = if self.device.shares_populations() {
            usize::MAX
        } else {
            spectra
        };
        let half = half(passes.capacity, spectra, self.fitter.most_starts());
        drop(passes);
        // A device that has failed refuses all work until it is renewed.
        let half = half.filter(|_| matches!(self.device.renew(failure), Ok(true)));
        if let (Some(half), Some(tally)) = (half, self.tally) {
            tally.warn(format!(
                "{failure}; fitted again with {half} starts at once"
            ));
        }
        self.seat
            .borrowed
            .workspace
            .most
            .fetch_min(half.unwrap_or(usize::MAX), Ordering::Relaxed);
        half.is_some()
    }

    /// Replaces a failed device by itself, renewed, or by the CPU, so that the batch can be fitted again; else returns
    /// the failure.
    fn renew_device(&mut self, attempts: &mut Attempts, failure: Error) -> Result<()> {
        let passes = self.seat.passes.take();
        let (message, may_use_cpu) = (failure.to_string(), self.fitter.may_use_cpu());
        if failure.is_of_device() {
            passes.iter().for_each(|passes| passes.fail(&failure));
        }
        let next = match passes.is_some_and(|passes| passes.have_failed_elsewhere()) {
            true => attempts.next_after_other(&self.device, failure, may_use_cpu)?,
            false => attempts.next(&self.device, failure, may_use_cpu)?,
        };
        if let Some(tally) = self.tally {
            tally.warn(format!("{message}; fitted again on {}", next.name()));
        }
        if !Arc::ptr_eq(&next, &self.device) {
            (self.is_replaced, self.meter, self.seat.keeps_passes) = (true, None, false);
        }
        self.device = next;
        Ok(())
    }

    /// Fits the spectra of some files, in a single attempt, and returns the rows of all, also of bad or cancelled ones.
    fn rows(&mut self, files: &[&Spectra], user_starts: Option<&[f64]>) -> Result<Vec<FitRow>> {
        let model = &self.fitter.model;
        let blanks = |spectra: &&Spectra| {
            (0..spectra.len())
                .map(|k| blank_row(model, spectra, k))
                .collect::<Vec<_>>()
        };
        let mut rows: Vec<FitRow> = files.iter().flat_map(blanks).collect();
        let width = model.parameters.len();
        let given = |place: usize| user_starts.map(|all| &all[place * width..(place + 1) * width]);
        if self.is_cancelled() {
            rows.iter_mut()
                .enumerate()
                .for_each(|(place, row)| mark_interrupted_before_fit(model, row, given(place)));
            return Ok(rows);
        }
        let mut pieces = self.time(BatchStage::Prepare, |run| run.pieces(files))?;
        let started = self.time(BatchStage::FirstGuess, |run| {
            run.all_starts(&mut pieces, user_starts)
        })?;
        let may_add_starts = user_starts.is_none() && self.fitter.adds_starts();
        let mut ready = Vec::new();
        for (place, one) in started.into_iter().enumerate() {
            match one {
                Ok(Started {
                    prepared,
                    limits,
                    starts,
                    flags,
                }) => {
                    rows[place].flags |= flags;
                    ready.push(ReadySpectrum {
                        place,
                        prepared: Arc::new(prepared),
                        limits,
                        starts,
                        may_add_starts,
                    });
                }
                Err(fault) if self.fitter.strict => {
                    return Err(bad_spectrum_error(&rows[place], &fault));
                }
                Err(fault) => mark_bad_input(&mut rows[place], fault),
            }
        }
        let counts: Vec<usize> = files.iter().map(|spectra| spectra.len()).collect();
        self.fit_all(&pieces, &counts, ready, &mut rows)?;
        let scanned = model
            .free_velocity()
            .filter(|_| self.fitter.scans_velocity());
        rows.iter_mut()
            .for_each(|row| sound::check_row(row, scanned));
        Ok(rows)
    }

    /// Fits the prepared spectra of all pieces and fills their rows. Fits at whose end other pixels count are repeated.
    /// `counts` are the numbers of spectra of each piece.
    fn fit_all(
        &mut self,
        pieces: &[Piece],
        counts: &[usize],
        mut ready: Vec<ReadySpectrum>,
        rows: &mut [FitRow],
    ) -> Result<()> {
        let mut earlier_evaluations = vec![0; rows.len()];
        let first_of = |piece: usize| counts[..piece].iter().sum::<usize>();
        for fit in 1..=MOST_FITS {
            // 1. Fit what is ready, group by group.
            let mut finished = rows.len() - ready.len();
            let mut repeats = Vec::new();
            for group in groups(pieces, counts, ready) {
                let count = group.ready.len();
                repeats.append(&mut self.fit(group, rows, finished, fit)?);
                finished += count;
            }
            // 2. Prepare the spectra whose fits are repeated with the pixels of their next fit.
            ready = Vec::with_capacity(repeats.len());
            for RepeatedFit {
                spectrum,
                motion,
                evaluations,
            } in repeats
            {
                let place = spectrum.place;
                earlier_evaluations[place] += evaluations;
                let piece = (0..counts.len())
                    .rfind(|piece| first_of(*piece) <= place)
                    .unwrap_or(0);
                match pieces[piece].prepared_at(&self.fitter.model, place - first_of(piece), motion)
                {
                    Ok(prepared) => ready.push(ReadySpectrum {
                        prepared: Arc::new(prepared),
                        ..spectrum
                    }),
                    Err(fault) if self.fitter.strict => {
                        return Err(bad_spectrum_error(&rows[place], &fault));
                    }
                    Err(fault) => mark_bad_input(&mut rows[place], fault),
                }
            }
        }
        rows.iter_mut()
            .zip(earlier_evaluations)
            .for_each(|(row, earlier)| row.evaluations += earlier);
        Ok(())
    }

    /// Returns the wavelength samplings of a file's spectra in each arm. Those of shared grids are kept for the next
    /// batch.
    pub fn grids(&mut self, arms: &[Cow<ArmSpectra>], spectra: &Spectra) -> Result<Vec<Grids>> {
        Ok(self.all_grids(&[arms.to_vec()], &[spectra])?.swap_remove(0))
    }

    /// Fits a group of spectra of one layout for the `fit`th time, and fills their rows. `finished` spectra of the
    /// batch already have their rows. Returns the fits that are to be repeated, whose rows are not filled.
    fn fit(
        &mut self,
        Group {
            layout,
            grids,
            ready,
        }: Group,
        rows: &mut [FitRow],
        finished: usize,
        fit: usize,
    ) -> Result<Vec<RepeatedFit>> {
        if ready.is_empty() {
            return Ok(Vec::new());
        }
        let (fitter, grids) = (self.fitter, &*grids);
        self.time(BatchStage::Fit, |run| run.make_passes(&layout))?;
        let capacity = self
            .seat
            .passes
            .as_ref()
            .map_or(1, |passes| passes.capacity);
        let together = |one: &ReadySpectrum| {
            one.starts
                .len()
                .max(if one.may_add_starts { TOGETHER } else { 1 })
        };
        let most = ready.iter().map(together).max().unwrap_or(1);
        if capacity < most {
            let message =
                format!("room for {capacity} members, a spectrum's {most} starts enter together");
            return Err(Error::OutOfMemory {
                device: self.device.name(),
                message,
            });
        }
        let outcomes = self.time(BatchStage::Fit, |run| run.outcomes(grids, &ready, finished))?;
        let may_repeat = !self.is_cancelled();
        let (mut repeats, mut finished_here) = (Vec::new(), Vec::with_capacity(ready.len()));
        self.time(BatchStage::Finish, |_| {
            let finish = fitter.finish();
            for (spectrum, outcomes) in ready.into_iter().zip(&outcomes) {
                let repeat = || RepeatedFit::new(&fitter.model, grids, &spectrum, outcomes, fit);
                if let Some(repeat) = may_repeat.then(repeat).flatten() {
                    repeats.push(repeat);
                    continue;
                }
                let row = &mut rows[spectrum.place];
                if outcomes.is_empty() {
                    let start = spectrum
                        .starts
                        .first()
                        .map(|start| physical(&fitter.model, start));
                    mark_interrupted_before_fit(&fitter.model, row, start.as_deref());
                } else {
                    finish.fill_row(row, outcomes, &spectrum);
                }
                finished_here.push(spectrum);
            }
        });
        if fitter.scans_velocity() {
            self.time(BatchStage::Posterior, |run| {
                run.scan(grids, &finished_here, rows)
            })?;
        }
        Ok(repeats)
    }
}
