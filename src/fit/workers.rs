//! A run as a stream: one thread reads, workers fit the batches, each on its device, and the calling thread writes.
//!
//! Two workers share a device. While one worker's spectra are on it, the other prepares its own, and the stragglers of
//! one batch run beside the bulk of another. With `--device all` each GPU has two workers, and all workers pull from
//! one queue. The reader waits for a permit for each batch; it and the workers report to the writer through one
//! channel. At most one batch more than there are workers is in memory, so memory does not grow with the length of the
//! input. If there is a journal, the workers compute the hash of their spectra, to save the writer's time.
//!
//! Rows are written in the order of the input, and no bit of them depends on who fitted them.

mod ends;
mod intake;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use web_time::Instant;

use super::profile::{Counted, Measured};
use super::rest::{KnownRows, complete};
use super::row::FitRow;
use super::run::Run;
use super::stages::{Stage, Stages};
use super::{Control, Journal, Sink, SpectralFitter, Summary};
use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::solver::Device;
use crate::spectra::SpectraReader;
use ends::{Ends, Job, Maker, Piece};
use intake::{Event, Intake};

/// Workers that share a device.
const SHARING: usize = 2;
/// Time between two looks at a timeout.
const WATCH: Duration = Duration::from_millis(10);
/// Memory that is worth sharing.
const SHARED_MEMORY: u64 = 1 << 28;

/// Counts finished spectra over all workers, and tells the progress function.
pub struct Tally<'a> {
    control: &'a Control,
    /// Takes the place of the control's flag where there is a timeout, too.
    stop: Option<AtomicBool>,
    total: u64,
    finished: Mutex<u64>,
    /// Failures of devices, in words.
    failures: Mutex<Vec<String>>,
}

impl<'a> Tally<'a> {
    fn new(control: &'a Control, total: u64) -> Tally<'a> {
        let stop = control.timeout.map(|_| AtomicBool::new(false));
        Tally { control, stop, total, finished: Mutex::new(0), failures: Mutex::default() }
    }

    /// A batch has failed on a device, and is fitted again.
    pub fn failed(&self, message: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    }

    /// Counts `more` finished spectra, and tells the progress, which stands still once the run is stopped.
    pub fn add(&self, more: u64) {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        *finished += more;
        if let Some(progress) = &self.control.progress
            && !self.cancel().load(Ordering::Relaxed)
        {
            progress(*finished, self.total);
        }
    }

    /// Returns the flag that is set once the run is to stop.
    pub fn cancel(&self) -> &AtomicBool {
        self.stop.as_ref().unwrap_or(&self.control.cancel)
    }

    /// Sets the flag when the run that began at `begin` is cancelled or has taken too long; returns when it has ended.
    fn watch(&self, begin: Instant, ended: &Receiver<()>) {
        while !self.control.is_stopped(begin) {
            if ended.recv_timeout(WATCH) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
        self.cancel().store(true, Ordering::Relaxed);
    }
}

/// Reads batches from `source`, has them fitted unless the journal knows them, appends their rows to `sink`.
pub fn stream(
    fitter: &SpectralFitter,
    (source, sink): (&mut dyn SpectraReader, &mut dyn Sink),
    control: &Control,
    journal: Option<&mut Journal>,
) -> Result<Summary> {
    let tally = Tally::new(control, source.len());
    let devices = fitter.device.all();
    let shared = fitter.max_memory.is_none_or(|bytes| bytes >= SHARED_MEMORY);
    let sharing = if shared { SHARING } else { 1 };
    let begin = Instant::now();
    let measured = control.profile.then(|| Measured::new(&devices, begin));
    let mut runs = Vec::new();
    for number in 0..devices.len() * sharing {
        let device = number / sharing;
        let run = Run::new(fitter, devices[device].clone(), fitter.max_memory.map(|bytes| bytes / sharing as u64))?;
        let meter = measured.as_ref().map(|measured| measured.meter(device));
        runs.push(run.watched_by(&tally).measured_by(meter, begin));
    }
    let (jobs, waiting) = mpsc::channel();
    let waiting = Mutex::new(waiting);
    let (tells, events) = mpsc::channel();
    let (permits, permitted) = mpsc::channel();
    // one job more is read than can be fitted at once
    let most = runs.len() + 1;
    let stages = || Stages::since(measured.as_ref().map(|_| begin));
    let batch = fitter.batch_on(&*devices[0]);
    let share = usize::try_from(source.len()).unwrap_or(usize::MAX).div_ceil(runs.len());
    let mut intake = Intake { source, batch, enough: share.min(batch / 2).max(1), stages: stages(), failure: None };
    let names = devices.iter().map(|device| device.name()).chain([CpuDevice.name()]);
    let by_device = names.map(|name| (name, 0)).collect();
    let keeps = journal.is_some();
    let (tally, stages, by_rows) = (&tally, stages(), Vec::new());
    let mut ends = Ends { sink, journal, tally, stages, pieces: 0, fits: 0, interrupted: 0, by_device, by_rows };
    let (end, ended) = mpsc::channel();
    thread::scope(|scope| {
        if control.timeout.is_some() {
            scope.spawn(move || tally.watch(begin, &ended));
        }
        let workers: Vec<_> = runs
            .into_iter()
            .enumerate()
            .map(|(number, run)| {
                let (waiting, tells, makers) = (&waiting, tells.clone(), [number / sharing, devices.len()]);
                scope.spawn(move || work((makers, run), waiting, (&tells, keeps)))
            })
            .collect();
        let reader = scope.spawn(move || {
            let read = panic::catch_unwind(AssertUnwindSafe(|| intake.run(&permitted, &tells)));
            if let Err(panic) = read {
                // who waits for spectra must not wait for ever
                let _ = tells.send(Event::Read(Err(Error::Usage("the reader panicked".into()))));
                panic::resume_unwind(panic);
            }
            intake.stages
        });
        let result = ends.run(jobs, &events, (permits, most));
        if result.is_err() {
            // nobody wants what still waits
            let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            while waiting.try_recv().is_ok() {}
        }
        let Ends { stages, fits, interrupted, mut by_device, by_rows, .. } = ends;
        if by_device.last().is_some_and(|(_, rows)| *rows == 0) {
            by_device.pop();
        }
        let mut threads = Vec::new();
        for thread in [reader].into_iter().chain(workers) {
            match thread.join() {
                Ok(stages) => threads.push(stages),
                Err(panic) => panic::resume_unwind(panic),
            }
        }
        drop(end);
        threads.insert(1, stages);
        let mut stages = Stages::default();
        threads.iter().for_each(|thread| stages.add(thread));
        let done: u64 = by_device.iter().map(|(_, rows)| rows).sum();
        let counts =
            Counted { fits: done.saturating_sub(interrupted), recalled: fits.saturating_sub(done), interrupted };
        let profile = measured.map(|measured| measured.profile((counts, sharing), &threads));
        let failures = std::mem::take(&mut *tally.failures.lock().unwrap_or_else(PoisonError::into_inner));
        let stages = stages.list();
        result.map(|()| Summary { fits, interrupted, by_device, by_rows, failures, stages, profile })
    })
}

/// Fits batches until none waits, as the first of the makers, or as the second when the run's device has been replaced.
/// Hashes their spectra if there is a journal that keeps the rows.
fn work(
    (makers, mut run): ([usize; 2], Run),
    waiting: &Mutex<Receiver<Job>>,
    (tells, keeps): (&Sender<Event>, bool),
) -> Stages {
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut job) = job else { return run.stages };
        run.stages.batch = job.number;
        let fit = || -> Result<Vec<Vec<FitRow>>> {
            let known: Vec<KnownRows> = job.pieces.iter_mut().map(|piece| std::mem::take(&mut piece.known.0)).collect();
            let pieces = job.pieces.iter().map(|piece| &piece.spectra).zip(known).collect();
            let rows = complete(pieces, |some| run.batch(some, None))?;
            if keeps {
                let bytes = run.stages.time(Stage::Hash, || job.pieces.iter_mut().map(Piece::hash).sum());
                run.stages.moved(bytes);
            }
            Ok(rows)
        };
        let batch = panic::catch_unwind(AssertUnwindSafe(fit));
        let (rows, panic) = match batch {
            Ok(rows) => (rows, None),
            // who waits for the rows must not wait for ever
            Err(panic) => (Err(Error::Usage("a worker panicked".into())), Some(panic)),
        };
        let failed = rows.is_err();
        (job.rows, job.maker) = (rows, Maker::Device(makers[usize::from(run.is_replaced)]));
        let is_heard = tells.send(Event::Fitted(job)).is_ok();
        if let Some(panic) = panic {
            panic::resume_unwind(panic);
        }
        if failed || !is_heard {
            return run.stages;
        }
    }
}
