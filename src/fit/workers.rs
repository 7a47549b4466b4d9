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

use super::row::FitRow;
use super::run::{BATCH, Run};
use super::stages::{Stage, Stages};
use super::{Control, Fitter, Sink, Summary};
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

/// A batch, its place in the input, its rows when it is fitted, and the number of the device that fitted it.
struct Job {
    number: usize,
    spectra: Spectra,
    rows: Result<Vec<FitRow>>,
    device: usize,
}

/// Reads batches from `source`, has them fitted, appends their rows to `sink`.
pub fn stream(
    fitter: &Fitter,
    source: &mut dyn SpectraReader,
    sink: &mut dyn Sink,
    control: &Control,
) -> Result<Summary> {
    let tally = Tally::new(control, source.len());
    let devices = fitter.device.all();
    let shared = fitter.memory.is_none_or(|bytes| bytes >= SHARED_MEMORY);
    let sharing = if shared { SHARING } else { 1 };
    let mut runs = Vec::new();
    for device in devices.iter().flat_map(|device| std::iter::repeat_n(device, sharing)) {
        runs.push(
            Run::new(fitter, device.clone(), fitter.memory.map(|bytes| bytes / sharing as u64))?.watched_by(&tally),
        );
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
        let mut ends = Ends { source, sink, stages: Stages::default(), fits: vec![0; devices.len()] };
        let result = ends.run(jobs, &done, most);
        let Ends { mut stages, fits, .. } = ends;
        for worker in workers {
            match worker.join() {
                Ok(times) => stages.add(&times),
                Err(panic) => panic::resume_unwind(panic),
            }
        }
        let by_device = devices.iter().map(|device| device.name()).zip(fits.iter().copied()).collect();
        result.map(|()| Summary { fits: fits.iter().sum(), by_device, stages: stages.list() })
    })
}

/// Fits batches until none waits.
fn work((device, mut run): (usize, Run), waiting: &Mutex<Receiver<Job>>, fitted: &Sender<Job>) -> Stages {
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut job) = job else { return run.stages };
        let batch = panic::catch_unwind(AssertUnwindSafe(|| run.batch(&job.spectra, None)));
        let (rows, panic) = match batch {
            Ok(rows) => (rows, None),
            // who waits for the rows must not wait for ever
            Err(panic) => (Err(Error::Usage("a worker panicked".into())), Some(panic)),
        };
        let failed = rows.is_err();
        (job.rows, job.device) = (rows, device);
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
    stages: Stages,
    /// By device.
    fits: Vec<u64>,
}

impl Ends<'_> {
    /// At most `most` batches are between the ends.
    fn run(&mut self, jobs: Sender<Job>, done: &Receiver<Job>, most: usize) -> Result<()> {
        let (mut read, mut written, mut more) = (0, 0, true);
        let mut held = BTreeMap::new();
        loop {
            while more && read - written < most {
                match self.stages.time(Stage::Read, || self.source.next_batch(BATCH))? {
                    Some(spectra) => {
                        // a worker that failed takes no more: its error is on its way
                        let _ = jobs.send(Job { number: read, spectra, rows: Ok(Vec::new()), device: 0 });
                        read += 1;
                    }
                    None => more = false,
                }
            }
            if read == written {
                return Ok(());
            }
            let job = done.recv().map_err(|_| Error::Usage("no worker is left".into()))?;
            held.insert(job.number, job);
            while let Some(Job { spectra, rows, device, .. }) = held.remove(&written) {
                let rows = rows?;
                self.stages.time(Stage::Write, || self.sink.append(&spectra, &rows))?;
                self.fits[device] += rows.len() as u64;
                written += 1;
            }
        }
    }
}
