//! A run as a stream: the calling thread reads and writes, workers fit the batches between, each on its device.
//!
//! Two workers share a device, so that one prepares spectra while the other's are on it, and the stragglers of a batch leave
//! nothing idle. Rows do not depend on who fits them, and are written in the order of the input.

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use web_time::Instant;

use super::profile::Measured;
use super::rest::complete;
use super::row::FitRow;
use super::run::{Run, batch};
use super::stages::{Stage, Stages};
use super::{Control, Fitter, Journal, Sink, Summary};
use crate::error::{Error, Result};
use crate::spectra::{Spectra, SpectraReader};

/// Workers that share a device.
const SHARING: usize = 2;
/// Memory that is worth sharing.
const SHARED_MEMORY: u64 = 1 << 28;

/// Counts finished spectra over all workers, and tells the progress function.
pub struct Tally<'a> {
    control: &'a Control,
    total: u64,
    finished: Mutex<u64>,
}

impl<'a> Tally<'a> {
    fn new(control: &'a Control, total: u64) -> Tally<'a> {
        Tally { control, total, finished: Mutex::new(0) }
    }

    /// `more` spectra are finished.
    pub fn add(&self, more: u64) {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        *finished += more;
        if let Some(progress) = &self.control.progress {
            progress(*finished, self.total);
        }
    }

    pub fn cancel(&self) -> &AtomicBool {
        &self.control.cancel
    }
}

/// A batch, its place in the input, those of its rows that the journal knows, all of them when they are fitted, and the number of the
/// device that has done so.
struct Job {
    number: usize,
    spectra: Spectra,
    known: Vec<Option<FitRow>>,
    rows: Result<Vec<FitRow>>,
    device: Option<usize>,
}

/// Reads batches from `source`, has them fitted unless the journal knows them, appends their rows to `sink`.
pub fn stream(
    fitter: &Fitter,
    (source, sink): (&mut dyn SpectraReader, &mut dyn Sink),
    control: &Control,
    journal: Option<&mut Journal>,
) -> Result<Summary> {
    let tally = Tally::new(control, source.len());
    let devices = fitter.device.all();
    let shared = fitter.memory.is_none_or(|bytes| bytes >= SHARED_MEMORY);
    let sharing = if shared { SHARING } else { 1 };
    let begin = Instant::now();
    let measured = control.profile.then(|| Measured::new(&devices, begin));
    let mut runs = Vec::new();
    for number in 0..devices.len() * sharing {
        let device = number / sharing;
        let run = Run::new(fitter, devices[device].clone(), fitter.memory.map(|bytes| bytes / sharing as u64))?;
        let meter = measured.as_ref().map(|measured| measured.meter(device));
        runs.push(run.watched_by(&tally).measured_by(meter, begin));
    }
    let (jobs, waiting) = mpsc::channel();
    let waiting = Mutex::new(waiting);
    let (fitted, done) = mpsc::channel();
    thread::scope(|scope| {
        // one batch more is read than can be fitted at once
        let most = runs.len() + 1;
        let workers: Vec<_> = runs
            .into_iter()
            .enumerate()
            .map(|(number, run)| {
                let (waiting, fitted) = (&waiting, fitted.clone());
                scope.spawn(move || work((number / sharing, run), waiting, &fitted))
            })
            .collect();
        drop(fitted);
        let stages = Stages::since(measured.as_ref().map(|_| begin));
        let by_device = vec![0; devices.len()];
        let batch = batch(&*devices[0]);
        let mut ends = Ends { source, sink, journal, tally: &tally, stages, batch, fits: 0, by_device };
        let result = ends.run(jobs, &done, most);
        if result.is_err() {
            // nobody wants what still waits
            let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            while waiting.try_recv().is_ok() {}
        }
        let Ends { stages, fits, by_device, .. } = ends;
        let mut threads = vec![stages];
        for worker in workers {
            match worker.join() {
                Ok(stages) => threads.push(stages),
                Err(panic) => panic::resume_unwind(panic),
            }
        }
        let mut stages = Stages::default();
        threads.iter().for_each(|thread| stages.add(thread));
        let by_device = devices.iter().map(|device| device.name()).zip(by_device).collect();
        let profile = measured.map(|measured| measured.profile((fits, sharing), &threads));
        result.map(|()| Summary { fits, by_device, stages: stages.list(), profile })
    })
}

/// Fits batches until none waits.
fn work((device, mut run): (usize, Run), waiting: &Mutex<Receiver<Job>>, fitted: &Sender<Job>) -> Stages {
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut job) = job else { return run.stages };
        run.stages.batch = job.number;
        let known = std::mem::take(&mut job.known);
        let fit = || complete(&job.spectra, known, |some| run.batch(some, None));
        let batch = panic::catch_unwind(AssertUnwindSafe(fit));
        let (rows, panic) = match batch {
            Ok(rows) => (rows, None),
            // who waits for the rows must not wait for ever
            Err(panic) => (Err(Error::Usage("a worker panicked".into())), Some(panic)),
        };
        let failed = rows.is_err();
        (job.rows, job.device) = (rows, Some(device));
        let is_heard = fitted.send(job).is_ok();
        if let Some(panic) = panic {
            panic::resume_unwind(panic);
        }
        if failed || !is_heard {
            return run.stages;
        }
    }
}

/// Both ends of a run.
struct Ends<'a> {
    source: &'a mut dyn SpectraReader,
    sink: &'a mut dyn Sink,
    journal: Option<&'a mut Journal>,
    tally: &'a Tally<'a>,
    stages: Stages,
    /// Spectra of a batch.
    batch: usize,
    fits: u64,
    /// Those of batches that the journal did not know whole.
    by_device: Vec<u64>,
}

impl Ends<'_> {
    /// At most `most` batches are between the ends.
    fn run(&mut self, jobs: Sender<Job>, done: &Receiver<Job>, most: usize) -> Result<()> {
        let (mut read, mut written, mut more) = (0, 0, true);
        let mut held = BTreeMap::new();
        loop {
            while more && read - written < most {
                self.stages.batch = read;
                match self.stages.time(Stage::Read, || self.source.next_batch(self.batch))? {
                    Some(spectra) => {
                        self.send((read, spectra), &jobs, &mut held)?;
                        read += 1;
                    }
                    None => more = false,
                }
            }
            while let Some(job) = held.remove(&written) {
                self.write(job)?;
                written += 1;
            }
            if !more && read == written {
                return Ok(());
            }
            if read - written == most || !more {
                let job = done.recv().map_err(|_| Error::Usage("no worker is left".into()))?;
                held.insert(job.number, job);
            }
        }
    }

    /// Hands a batch to the workers, or takes its rows from the journal.
    fn send(
        &mut self,
        (number, spectra): (usize, Spectra),
        jobs: &Sender<Job>,
        held: &mut BTreeMap<usize, Job>,
    ) -> Result<()> {
        let known = self.journal.as_mut().map(|journal| journal.recall(number, &spectra)).transpose()?;
        let known = known.unwrap_or_default();
        let count = known.iter().flatten().count();
        if count > 0 {
            self.tally.add(count as u64);
        }
        let mut job = Job { number, spectra, known, rows: Ok(Vec::new()), device: None };
        if count > 0 && count == job.known.len() {
            job.rows = Ok(job.known.drain(..).flatten().collect());
            held.insert(number, job);
        } else {
            // a worker that failed takes no more: its error is on its way
            let _ = jobs.send(job);
        }
        Ok(())
    }

    fn write(&mut self, job: Job) -> Result<()> {
        let Job { number, spectra, rows, device, .. } = job;
        self.stages.batch = number;
        let rows = rows?;
        self.fits += rows.len() as u64;
        if let Some(device) = device {
            self.by_device[device] += rows.len() as u64;
            if let Some(journal) = &mut self.journal {
                self.stages.time(Stage::Write, || journal.keep(number, &spectra, &rows))?;
            }
        }
        self.stages.time(Stage::Write, || self.sink.append(&spectra, &rows))
    }
}
