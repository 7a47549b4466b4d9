//! One run: prepares batches of spectra, finds their starts, drives the population, finishes rows.

mod pieces;
mod populations;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use web_time::Instant;

use super::blank::{blank, place_at_start, refuse, strict};
use super::canary::Canary;
use super::flag::Flags;
use super::given::physical;
use super::ready::{Grids, Ready};
use super::redo::{Attempts, half};
use super::row::FitRow;
use super::solve::Passes;
use super::sound;
use super::stages::{Stage, Stages};
use super::workers::Tally;
use super::{Solver, SpectralFitter};
use crate::error::{Error, Result};
use crate::model::{Fault, Limits, Prepared, Sampling, Start};
use crate::recording::{Precision, Velocity};
use crate::solver::Device;
use crate::solver::profile::Meter;
use crate::spectra::{ArmSpectra, Spectra};
use pieces::{Group, groups};

/// A wavelength grid, the diagonals of its spectra's resolution, and how it samples its arm's template.
type SharedGrid = (Arc<[f64]>, usize, Arc<Sampling>);

/// A prepared spectrum, what is known of its parameters, its starts, and the flags that it has before its fit.
type Started = std::result::Result<(Prepared, Vec<Limits>, Vec<Start>, Flags), Fault>;

pub struct Run<'a> {
    pub fitter: &'a SpectralFitter,
    device: Arc<dyn Device>,
    memory: Option<u64>,
    /// Members that may be in flight: fewer once a device ran out of memory.
    most: usize,
    resident: Option<Passes>,
    /// Canary of the last batch, on GPUs.
    canary: Option<Canary>,
    /// The device has failed, and the CPU has taken its place.
    pub is_replaced: bool,
    /// Shared grids of the last batch, by arm.
    shared: Vec<Vec<SharedGrid>>,
    pub stages: Stages,
    meter: Option<Arc<Meter>>,
    tally: Option<&'a Tally<'a>>,
    /// Spectra of this batch that the tally knows of.
    told: usize,
}

impl<'a> Run<'a> {
    /// A run on a device, of whose memory its population takes so many bytes.
    pub fn new(fitter: &'a SpectralFitter, device: Arc<dyn Device>, memory: Option<u64>) -> Result<Run<'a>> {
        if fitter.scans_velocity() && matches!(fitter.model.velocity, Velocity::Fixed(_)) {
            return Err(Error::Usage("a scan of the velocity, which is fixed: give it a range".into()));
        }
        fitter.validate()?;
        if fitter.precision == Precision::Mixed && matches!(fitter.solver, Solver::NelderMead(_)) {
            return Err(Error::Usage(
                "mixed precision is for Levenberg–Marquardt: Nelder–Mead sees every rounding".into(),
            ));
        }
        let (stages, shared) = (Stages::default(), vec![Vec::new(); fitter.model.arms.len()]);
        let (resident, canary, meter, tally) = (None, None, None, None);
        let most = usize::MAX;
        Ok(Run {
            fitter,
            device,
            memory,
            most,
            resident,
            canary,
            is_replaced: false,
            shared,
            stages,
            meter,
            tally,
            told: 0,
        })
    }

    /// Tells `tally` how far it is, and stops when that says so.
    pub fn watched_by(self, tally: &'a Tally<'a>) -> Run<'a> {
        Run { tally: Some(tally), ..self }
    }

    /// Keeps spans since `begin`, and measures its populations; without a meter neither.
    pub fn measured_by(self, meter: Option<Arc<Meter>>, begin: Instant) -> Run<'a> {
        Run { stages: Stages::since(meter.as_ref().map(|_| begin)), meter, ..self }
    }

    fn is_cancelled(&self) -> bool {
        self.tally.is_some_and(|tally| tally.cancel().load(Ordering::Relaxed))
    }

    /// Runs `work` and adds its time to a stage.
    fn time<T>(&mut self, stage: Stage, work: impl FnOnce(&mut Self) -> T) -> T {
        let begin = Instant::now();
        let out = work(self);
        self.stages.spent(stage, begin);
        out
    }

    /// Rows of all spectra, in their order. `user_starts` (spectra, parameters), physical, replace the first guess;
    /// then there is one piece. What a device could not fit is fitted again.
    pub fn batch(&mut self, files: &[&Spectra], user_starts: Option<&[f64]>) -> Result<Vec<FitRow>> {
        self.told = 0;
        let count = files.iter().map(|spectra| spectra.len()).sum();
        let mut attempts = Attempts::default();
        let rows = loop {
            match self.rows(files, user_starts) {
                Ok(rows) => break rows,
                Err(failure) if self.halves(&failure, count) => {}
                Err(failure) => self.turn_to(&mut attempts, failure)?,
            }
        };
        if let Some(tally) = self.tally {
            tally.add((rows.len() - self.told) as u64);
        }
        Ok(rows)
    }

    /// Returns whether a batch of so many spectra can be done again with fewer members, where a device had memory for
    /// its buffers and none for its work.
    fn halves(&mut self, failure: &Error, spectra: usize) -> bool {
        let resident = self.resident.take_if(|_| matches!(failure, Error::OutOfMemory { .. }));
        let half = resident.and_then(|r| half(r.capacity, spectra, self.fitter.most_starts()));
        // one that has failed once fails at once
        let half = half.filter(|_| matches!(self.device.renew(failure), Ok(true)));
        if let (Some(half), Some(tally)) = (half, self.tally) {
            tally.failed(format!("{failure}; fitted again with {half} starts at once"));
        }
        self.most = half.unwrap_or(self.most);
        half.is_some()
    }

    /// Gets ready to do a batch again: on the device made anew, or on the CPU, where the run then stays.
    fn turn_to(&mut self, attempts: &mut Attempts, failure: Error) -> Result<()> {
        self.resident = None;
        let message = failure.to_string();
        let next = attempts.next(&self.device, failure, self.fitter.may_use_cpu())?;
        if let Some(tally) = self.tally {
            tally.failed(format!("{message}; fitted again on {}", next.name()));
        }
        if !Arc::ptr_eq(&next, &self.device) {
            (self.is_replaced, self.meter) = (true, None);
        }
        self.device = next;
        Ok(())
    }

    fn rows(&mut self, files: &[&Spectra], user_starts: Option<&[f64]>) -> Result<Vec<FitRow>> {
        let model = &self.fitter.model;
        let blanks = |spectra: &&Spectra| (0..spectra.len()).map(|k| blank(model, spectra, k)).collect::<Vec<_>>();
        let mut rows: Vec<FitRow> = files.iter().flat_map(blanks).collect();
        let width = model.parameters.len();
        let given = |place: usize| user_starts.map(|all| &all[place * width..(place + 1) * width]);
        if self.is_cancelled() {
            rows.iter_mut().enumerate().for_each(|(place, row)| place_at_start(model, row, given(place)));
            return Ok(rows);
        }
        let mut pieces = self.time(Stage::Prepare, |run| run.pieces(files))?;
        let started = self.time(Stage::FirstGuess, |run| run.all_starts(&mut pieces, user_starts))?;
        let may_look = user_starts.is_none() && self.fitter.looks_past_folds();
        let mut ready = Vec::new();
        for (place, one) in started.into_iter().enumerate() {
            match one {
                Ok((prepared, limits, starts, flags)) => {
                    rows[place].flags |= flags;
                    ready.push(Ready { place, prepared, limits, starts, may_look });
                }
                Err(fault) if self.fitter.strict => return Err(strict(&rows[place], &fault)),
                Err(fault) => refuse(&mut rows[place], fault),
            }
        }
        let counts = files.iter().map(|spectra| spectra.len()).collect();
        let mut finished = rows.len() - ready.len();
        for group in groups(pieces, counts, ready) {
            let count = group.ready.len();
            self.fit(group, (&mut rows, finished))?;
            finished += count;
        }
        let scanned = model.free_velocity().filter(|_| self.fitter.scans_velocity());
        rows.iter_mut().for_each(|row| sound::row(row, scanned));
        Ok(rows)
    }

    /// The grids of each arm; a shared one is kept for the next batch.
    pub fn grids(&mut self, arms: &[Cow<ArmSpectra>], spectra: &Spectra) -> Result<Vec<Grids>> {
        Ok(self.all_grids(&[arms.to_vec()], &[spectra])?.swap_remove(0))
    }

    /// Fits what is ready, in populations of at most the device's capacity. So many spectra of the batch have a row
    /// already.
    fn fit(&mut self, Group { layout, grids, ready }: Group, (rows, finished): (&mut [FitRow], usize)) -> Result<()> {
        if ready.is_empty() {
            return Ok(());
        }
        let (fitter, grids) = (self.fitter, &*grids);
        self.time(Stage::Fit, |run| run.make_resident(&layout))?;
        let capacity = self.resident.as_ref().map_or(1, |r| r.capacity);
        let most = ready.iter().map(|r| r.starts.len()).max().unwrap_or(1);
        if capacity < most {
            let message = format!("room for {capacity} members, a spectrum's {most} starts enter together");
            return Err(Error::OutOfMemory { device: self.device.name(), message });
        }
        self.time(Stage::Prepare, |run| run.make_canary(&layout, grids, ready[0].place))?;
        let (ready, outcomes) =
            self.time(Stage::Fit, |run| run.outcomes(grids, ready, (finished, capacity / most.max(1))))?;
        self.time(Stage::Finish, |_| {
            let finish = fitter.finish();
            for (one, own) in ready.iter().zip(&outcomes) {
                let row = &mut rows[one.place];
                if own.is_empty() {
                    let start = one.starts.first().map(|start| physical(&fitter.model, start));
                    place_at_start(&fitter.model, row, start.as_deref());
                } else {
                    finish.fill(row, own, one);
                }
            }
        });
        if fitter.scans_velocity() {
            self.time(Stage::Posterior, |run| run.scan(grids, (&ready, rows)))?;
        }
        Ok(())
    }
}
