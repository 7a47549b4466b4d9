//! One run: prepares batches of spectra, finds their starts, drives the population, finishes rows.

mod populations;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rayon::prelude::*;
use web_time::Instant;

use super::assemble::{Starts, matched, prepare_all};
use super::blank::{blank, place_at_start, refuse, strict};
use super::canary::Canary;
use super::finish::Finish;
use super::given::{given, physical};
use super::layout::{diagonals, layout};
use super::limits::Tables;
use super::redo::{Attempts, half};
use super::row::{FitRow, flag};
use super::solve::Passes;
use super::sound;
use super::stages::{Stage, Stages};
use super::workers::Tally;
use super::{Fitter, Solver};
use crate::error::{Error, Result};
use crate::model::{Fault, Limits, Prepared, Sampling, Start};
use crate::solver::profile::Meter;
use crate::solver::recording::{Precision, Velocity};
use crate::solver::{Device, MOST_STARTS};
use crate::spectra::{ArmSpectra, Spectra, Wavelength};

/// Spectra that are read at once: a GPU wants many, on the CPU smaller batches overlap better with reading.
pub fn batch(device: &dyn Device) -> usize {
    if device.runs_wgsl() { 2048 } else { 512 }
}

/// A spectrum that can be fitted: its place in the batch of spectra and where it starts.
#[derive(Clone)]
pub struct Ready {
    pub place: usize,
    pub prepared: Prepared,
    /// One a parameter.
    pub limits: Vec<Limits>,
    pub starts: Vec<Start>,
}

/// How an arm samples the spectra of a batch: one grid for all, or one each.
pub enum Grids {
    Shared(Arc<Sampling>),
    Own(Vec<std::result::Result<Arc<Sampling>, Fault>>),
}

impl Grids {
    pub fn of(&self, spectrum: usize) -> std::result::Result<&Arc<Sampling>, &Fault> {
        match self {
            Grids::Shared(sampling) => Ok(sampling),
            Grids::Own(all) => all[spectrum].as_ref(),
        }
    }
}

/// A wavelength grid, the diagonals of its spectra's resolution, and how it samples its arm's template.
type SharedGrid = (Arc<[f64]>, usize, Arc<Sampling>);

/// A prepared spectrum, what is known of its parameters, its starts, and whether one was clipped.
type Started = std::result::Result<(Prepared, Vec<Limits>, Vec<Start>, bool), Fault>;

pub struct Run<'a> {
    pub fitter: &'a Fitter,
    device: Arc<dyn Device>,
    memory: Option<u64>,
    /// Members that may be in flight: fewer once a device ran out of memory.
    most: usize,
    resident: Option<Passes>,
    /// That of the last batch, on GPUs.
    canary: Option<Canary>,
    /// The device has failed, and the CPU has taken its place.
    pub is_replaced: bool,
    /// The shared grids of the last batch.
    shared: Vec<Option<SharedGrid>>,
    pub stages: Stages,
    meter: Option<Arc<Meter>>,
    tally: Option<&'a Tally<'a>>,
    /// Spectra of this batch that the tally knows of.
    told: usize,
}

impl Ready {
    pub fn starts(&self) -> Starts {
        self.starts.iter().map(|start| start.u.clone()).collect()
    }
}

impl<'a> Run<'a> {
    /// A run on a device, of whose memory its population takes so many bytes.
    pub fn new(fitter: &'a Fitter, device: Arc<dyn Device>, memory: Option<u64>) -> Result<Run<'a>> {
        if fitter.scans_velocity() && matches!(fitter.model.velocity, Velocity::Fixed(_)) {
            return Err(Error::Usage("a scan of the velocity, which is fixed: give it a range".into()));
        }
        let starts = fitter.start_count();
        if !(1..=MOST_STARTS).contains(&starts) {
            return Err(Error::Usage(format!("{starts} starts: a spectrum has 1 to {MOST_STARTS}")));
        }
        if fitter.precision == Precision::Mixed && matches!(fitter.solver, Solver::NelderMead(_)) {
            return Err(Error::Usage(
                "mixed precision is for Levenberg–Marquardt: Nelder–Mead sees every rounding".into(),
            ));
        }
        let (stages, shared) = (Stages::default(), vec![None; fitter.model.arms.len()]);
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

    /// Rows of all spectra, in their order. `user_starts` (spectra, parameters), physical, replace the first guess. What a device
    /// could not fit is fitted again.
    pub fn batch(&mut self, spectra: &Spectra, user_starts: Option<&[f64]>) -> Result<Vec<FitRow>> {
        self.told = 0;
        let mut attempts = Attempts::default();
        let rows = loop {
            match self.rows(spectra, user_starts) {
                Ok(rows) => break rows,
                Err(failure) if self.halves(&failure, spectra.len()) => {}
                Err(failure) => self.turn_to(&mut attempts, failure)?,
            }
        };
        if let Some(tally) = self.tally {
            tally.add((rows.len() - self.told) as u64);
        }
        Ok(rows)
    }

    /// Whether a batch of so many spectra can be done again with fewer members, where a device had memory for its buffers and none
    /// for its work.
    fn halves(&mut self, failure: &Error, spectra: usize) -> bool {
        let resident = self.resident.take_if(|_| matches!(failure, Error::OutOfMemory { .. }));
        let half = resident.and_then(|r| half(r.capacity, spectra, self.fitter.start_count()));
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

    fn rows(&mut self, spectra: &Spectra, user_starts: Option<&[f64]>) -> Result<Vec<FitRow>> {
        let model = &self.fitter.model;
        let arms = matched(model, spectra)?;
        let mut rows: Vec<FitRow> = (0..spectra.len()).map(|k| blank(model, spectra, k)).collect();
        let width = model.parameters.len();
        let given = |place: usize| user_starts.map(|all| &all[place * width..(place + 1) * width]);
        if self.is_cancelled() {
            rows.iter_mut().enumerate().for_each(|(place, row)| place_at_start(model, row, given(place)));
            return Ok(rows);
        }
        let grids = self.time(Stage::Prepare, |run| run.grids(&arms, spectra))?;
        let prepared = self.time(Stage::Prepare, |_| prepare_all(model, &arms, &grids, spectra.len()));
        let tables = Tables::new(model, spectra)?;
        let started = self.time(Stage::FirstGuess, |run| run.starts(prepared, &grids, &tables, user_starts))?;
        let mut ready = Vec::new();
        for (place, one) in started.into_iter().enumerate() {
            match one {
                Ok((prepared, limits, starts, clipped)) => {
                    rows[place].flags |= if clipped { flag::START_CLIPPED } else { 0 };
                    ready.push(Ready { place, prepared, limits, starts });
                }
                Err(fault) if self.fitter.strict => return Err(strict(&rows[place], &fault)),
                Err(fault) => refuse(model, &mut rows[place], fault, given(place)),
            }
        }
        self.fit(&arms, &grids, ready, &mut rows)?;
        let scanned = model.free_velocity().filter(|_| self.fitter.scans_velocity());
        rows.iter_mut().for_each(|row| sound::row(row, scanned));
        Ok(rows)
    }

    /// The grids of each arm; a shared one is kept for the next batch.
    pub fn grids(&mut self, arms: &[Cow<ArmSpectra>], spectra: &Spectra) -> Result<Vec<Grids>> {
        let model = &self.fitter.model;
        let masks = &model.spectra.mask;
        let mut out = Vec::with_capacity(arms.len());
        for (a, (arm, data)) in model.arms.iter().zip(arms).enumerate() {
            let diagonals = diagonals(arm, data);
            out.push(match &data.wavelength {
                Wavelength::Shared(wavelength) => {
                    let same = |w: &Arc<[f64]>| Arc::ptr_eq(w, wavelength) || w == wavelength;
                    let known = self.shared[a].as_ref().filter(|(w, d, _)| *d == diagonals && same(w));
                    let sampling = match known {
                        Some((_, _, sampling)) => sampling.clone(),
                        None => Arc::new(Sampling::of_file(arm, wavelength, masks, diagonals, &spectra.file)?),
                    };
                    self.shared[a] = Some((wavelength.clone(), diagonals, sampling.clone()));
                    Grids::Shared(sampling)
                }
                Wavelength::Own(all) => {
                    let rows: Vec<&[f64]> = all.chunks_exact(data.pixels.max(1)).collect();
                    let make = |w: &&[f64]| match Sampling::new(arm, w, masks, diagonals) {
                        Ok(sampling) => Ok(Arc::new(sampling)),
                        Err(fault) => Err(Fault::of_grid(arm, &fault)),
                    };
                    Grids::Own(rows.par_iter().map(make).collect())
                }
            });
        }
        Ok(out)
    }

    /// Starts of every spectrum, in u, inside the bounds; whether one was clipped.
    fn starts(
        &mut self,
        prepared: Vec<std::result::Result<Prepared, Fault>>,
        grids: &[Grids],
        tables: &Tables,
        user: Option<&[f64]>,
    ) -> Result<Vec<Started>> {
        let (model, count) = (&self.fitter.model, self.fitter.start_count());
        if let Some(user) = user {
            let place = prepared.into_iter().zip(user.chunks_exact(model.parameters.len().max(1))).enumerate();
            let one = |(k, (prepared, x))| -> Started {
                let (prepared, limits) = (prepared?, tables.of(k)?);
                let (start, clipped) = given(model, &limits, x)?;
                Ok((prepared, limits, vec![start], clipped))
            };
            return Ok(place.map(one).collect());
        }
        let needed = prepared.iter().any(|p| p.is_ok());
        let guess = needed.then(|| self.fitter.first_guess()).transpose()?;
        let outside = |l: &Limits| l.start.is_some_and(|x| x < l.lower || x > l.upper);
        let tally = self.tally;
        let cancelled = || tally.is_some_and(|tally| tally.cancel().load(Ordering::Relaxed));
        let one = |(k, prepared): (usize, std::result::Result<Prepared, Fault>)| {
            let (prepared, limits) = (prepared?, tables.of(k)?);
            let clipped = limits.iter().any(outside);
            if cancelled() {
                return Ok((prepared, limits, Vec::new(), clipped)); // without a start it is not fitted
            }
            let samplings: Vec<&Sampling> = grids.iter().filter_map(|g| g.of(k).ok()).map(|s| &**s).collect();
            let starts = guess.map(|g| g.starts(&prepared, &samplings, &limits, count)).unwrap_or_default();
            Ok((prepared, limits, starts, clipped))
        };
        Ok(prepared.into_par_iter().enumerate().map(one).collect())
    }

    /// Fits what is ready, in populations of at most the device's capacity.
    fn fit(&mut self, arms: &[Cow<ArmSpectra>], grids: &[Grids], ready: Vec<Ready>, rows: &mut [FitRow]) -> Result<()> {
        if ready.is_empty() {
            return Ok(());
        }
        let fitter = self.fitter;
        let layout = layout(&fitter.model, arms, grids);
        self.time(Stage::Fit, |run| run.make_resident(&layout))?;
        let capacity = self.resident.as_ref().map_or(1, |r| r.capacity);
        let most = ready.iter().map(|r| r.starts.len()).max().unwrap_or(1);
        if capacity < most {
            let message = format!("room for {capacity} members, a spectrum's {most} starts enter together");
            return Err(Error::OutOfMemory { device: self.device.name(), message });
        }
        self.time(Stage::Prepare, |run| run.make_canary(&layout, grids, ready[0].place))?;
        let (ready, outcomes) =
            self.time(Stage::Fit, |run| run.outcomes(grids, ready, (rows.len(), capacity / most.max(1))))?;
        self.time(Stage::Finish, |_| {
            let finish = Finish { model: &fitter.model, precision: fitter.precision };
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
