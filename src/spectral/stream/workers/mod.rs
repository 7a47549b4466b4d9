//! A run as a stream: one thread reads, workers fit the batches on their devices, and the calling thread writes.
//!
//! Several workers share a device ([`Device::workers`]). While the spectra of one worker are on it, the others prepare
//! their own, and the slowest fits of one batch run beside most fits of another. With `--device all` each GPU has
//! workers of its own, and all workers take jobs from one queue. The reader waits for a permit for each batch. It and
//! the workers send events to the writer through one channel. At most one batch more than there are workers is in
//! memory, so that memory does not grow with the length of the input. If there is a journal, the workers hash their
//! spectra to save the writer's time.
//!
//! Rows are written in the order of the input, and no bit of them depends on the worker.

mod ends;
mod intake;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use web_time::Instant;

use crate::control::Control;
use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::solver::Device;
use crate::spectra::{Spectra, SpectraReader};
use crate::spectral::input::rest::{PartialBatch, fit_unknown_rows};
use crate::spectral::results::row::FitRow;
use crate::spectral::run::Run;
use crate::spectral::stream::profile::{Counted, Measured};
use crate::spectral::stream::stages::{Stage, Stages};
use crate::spectral::{DeviceRows, Journal, Sink, SpectralFitter, Summary};
use crate::threads;
use ends::{Ends, Job, Maker, Piece};
use intake::{Event, Intake};

/// Interval at which a timeout is checked.
const WATCH: Duration = Duration::from_millis(10);
/// Smallest limit of a worker's memory in bytes with which several share a device.
const WORKERS_MEMORY: u64 = 1 << 27;

/// Counts the finished spectra of all workers, and calls the user's progress function.
pub struct Tally<'a> {
    control: &'a Control,
    /// Replaces the control's flag if there is a timeout.
    stop: Option<AtomicBool>,
    /// Number of all spectra.
    total: u64,
    finished: Mutex<u64>,
    /// Warnings: batches that are fitted again, because a device failed or their spectra have changed.
    failures: Mutex<Vec<String>>,
}

impl<'a> Tally<'a> {
    /// Makes a counter of the finished spectra of a run of `total`, with progress, cancel and timeout by `control`.
    pub fn new(control: &'a Control, total: u64) -> Tally<'a> {
        let stop = control.timeout.map(|_| AtomicBool::new(false));
        Tally {
            control,
            stop,
            total,
            finished: Mutex::new(0),
            failures: Mutex::default(),
        }
    }

    /// Records the warning that a batch is fitted again.
    pub fn warn(&self, message: String) {
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(message);
    }

    /// Adds `more` to the number of finished spectra, and reports it to the user's function unless the run is stopped.
    pub fn add(&self, more: u64) {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        *finished += more;
        if let Some(progress) = &self.control.progress
            && !self.cancel().load(Ordering::Relaxed)
        {
            progress(*finished, self.total);
        }
    }

    /// Returns the flag that stops the run when it is set.
    pub fn cancel(&self) -> &AtomicBool {
        self.stop.as_ref().unwrap_or(&self.control.cancel)
    }

    /// Waits until the run has ended; sets the flag that stops it if it is cancelled, or has taken too long since
    /// `begin`.
    pub fn watch(&self, begin: Instant, ended: &Receiver<()>) {
        while !self.control.is_stopped(begin) {
            if ended.recv_timeout(WATCH) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
        self.cancel().store(true, Ordering::Relaxed);
    }
}

/// The workers of a stream: their devices, and how their times are measured.
pub struct Workers<'a> {
    fitter: &'a SpectralFitter,
    devices: Vec<Arc<dyn Device>>,
    /// Number of workers per device.
    pub sharing: usize,
    pub begin: Instant,
    /// Present if the user asks for a profile.
    measured: Option<Measured>,
}

impl<'a> Workers<'a> {
    /// Sets up the workers of a run that begins now: devices, number of threads per device, and meters if a profile is
    /// wanted. A device has fewer of them where the user limits the memory.
    pub fn new(fitter: &'a SpectralFitter, control: &Control) -> Workers<'a> {
        let devices = fitter.device.all_devices();
        let begin = Instant::now();
        let measured = control.profile.then(|| Measured::new(&devices, begin));
        let sharing = sharing(&devices, fitter.max_memory);
        Workers {
            fitter,
            devices,
            sharing,
            begin,
            measured,
        }
    }

    /// Returns the number of spectra per batch, at least 1.
    pub fn batch(&self) -> usize {
        self.fitter.batch_on(&*self.devices[0]).max(1)
    }

    /// Returns these workers, but no more per device than there are batches to fit.
    pub fn at_most(self, batches: usize) -> Workers<'a> {
        Workers {
            sharing: self.sharing.min(batches.max(1)),
            ..self
        }
    }

    /// Makes a thread's record of times, with spans if the user asks for a profile.
    fn stages(&self) -> Stages {
        Stages::since(self.measured.as_ref().map(|_| self.begin))
    }

    /// Makes the run of each worker thread, device by device.
    pub fn runs(&self, tally: &'a Tally<'a>) -> Result<Vec<Run<'a>>> {
        let mut runs = Vec::new();
        for (number, device) in self.devices.iter().enumerate() {
            let borrowed = self.fitter.shared.idle.borrow(device);
            for _ in 0..self.sharing {
                let run = Run::new(
                    self.fitter,
                    device.clone(),
                    borrowed.clone(),
                    self.fitter.max_memory,
                )?;
                let meter = self
                    .measured
                    .as_ref()
                    .map(|measured| measured.meter(number));
                runs.push(
                    run.sharing_with(self.sharing)
                        .watched_by(tally)
                        .measured_by(meter, self.begin),
                );
            }
        }
        Ok(runs)
    }

    /// Returns a counter of rows for each device, and for the CPU that replaces a failed one.
    fn counters(&self) -> Vec<DeviceRows> {
        let names = self
            .devices
            .iter()
            .map(|device| device.name())
            .chain([CpuDevice.name()]);
        names.map(|device| DeviceRows { device, rows: 0 }).collect()
    }

    /// Returns the name in the result table of each device that [`counters`](Workers::counters) counts for.
    fn makers(&self) -> Vec<String> {
        let makers = self.devices.iter().map(|device| device.maker());
        makers.chain([CpuDevice.maker()]).collect()
    }

    /// Returns the summary of a stream that has ended: counts by device, failures, times and profile. `threads` are the
    /// stages of the reader, followed by those of the workers.
    fn summary(self, writer: Ends, mut threads: Vec<Stages>) -> Summary {
        let Ends {
            tally,
            stages,
            fits,
            interrupted,
            mut by_device,
            by_rows,
            ..
        } = writer;
        // The CPU is listed only if it replaced a device.
        if by_device.last().is_some_and(|last| last.rows == 0) {
            by_device.pop();
        }
        threads.insert(1, stages);
        let mut stages = Stages::default();
        threads.iter().for_each(|thread| stages.add(thread));
        let done: u64 = by_device.iter().map(|one| one.rows).sum();
        let counts = Counted {
            fits: done.saturating_sub(interrupted),
            recalled: fits.saturating_sub(done),
            interrupted,
        };
        let profile = self
            .measured
            .map(|measured| measured.profile(counts, self.sharing, &threads));
        let failures = std::mem::take(
            &mut *tally
                .failures
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        Summary {
            fits,
            interrupted,
            by_device,
            by_rows,
            failures,
            stages: stages.list(),
            profile,
        }
    }
}

/// Returns the number of workers per device whose populations together take at most `memory` bytes.
pub fn sharing(devices: &[Arc<dyn Device>], memory: Option<u64>) -> usize {
    let most = devices
        .iter()
        .map(|device| device.workers())
        .max()
        .unwrap_or(1);
    let room = memory.map_or(u64::MAX, |bytes| bytes / WORKERS_MEMORY);
    most.min(usize::try_from(room).unwrap_or(most)).max(1)
}

/// Reads batches from `source`, fits those whose rows the journal lacks, and appends all rows to `sink`.
///
/// # Errors
/// Returns the errors of a fit, of `source`, of `sink` and of the journal.
pub fn stream(
    fitter: &SpectralFitter,
    source: &mut dyn SpectraReader,
    sink: &mut dyn Sink,
    control: &Control,
    journal: Option<&mut Journal>,
) -> Result<Summary> {
    control.scope(|| {
        let pool = threads::pool_to_wait_for()?;
        threads::with_pool(pool, || stream_here(fitter, source, sink, control, journal))
    })?
}

/// Runs a stream whose workers compute in the current pool of this thread.
fn stream_here(
    fitter: &SpectralFitter,
    source: &mut dyn SpectraReader,
    sink: &mut dyn Sink,
    control: &Control,
    journal: Option<&mut Journal>,
) -> Result<Summary> {
    // 1. Set up the workers, the reader and the writer. They read one job more than the workers can fit at once.
    let tally = &Tally::new(control, source.len());
    let workers = Workers::new(fitter, control);
    let (runs, begin) = (workers.runs(tally)?, workers.begin);
    let runs: Vec<Run> = runs.into_iter().map(Run::freed_at_its_end).collect();
    let most = runs.len() + 1;
    let batch = workers.batch();
    let share = usize::try_from(source.len())
        .unwrap_or(usize::MAX)
        .div_ceil(runs.len());
    let enough = share.min(batch / 2).max(1);
    let intake = Intake {
        source,
        batch,
        enough,
        stages: workers.stages(),
        failure: None,
    };
    let keeps_rows = journal.is_some();
    let (stages, by_device) = (workers.stages(), workers.counters());
    let mut writer = Ends {
        sink,
        journal,
        tally,
        stages,
        pieces: 0,
        fits: 0,
        interrupted: 0,
        by_device,
        makers: workers.makers(),
        by_rows: Vec::new(),
    };
    let (jobs, waiting) = mpsc::channel();
    let waiting = Mutex::new(waiting);
    let (events, written) = mpsc::channel();
    let (permits, permitted) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let (result, stages) = thread::scope(|scope| {
        // 2. Start the threads.
        if control.timeout.is_some() {
            scope.spawn(move || tally.watch(begin, &ended));
        }
        let mut spawned = Vec::new();
        for (number, run) in runs.into_iter().enumerate() {
            let makers = [number / workers.sharing, workers.devices.len()];
            let (waiting, events) = (&waiting, events.clone());
            let pool = threads::current_pool();
            let work = move || work(run, makers, waiting, &events, keeps_rows);
            let name = format!("popfit worker {}", number + 1);
            spawned.push(threads::spawn(scope, &name, move || {
                threads::with_pool(pool, work)
            }));
        }
        let pool = threads::current_pool();
        let read = move || read(intake, &permitted, &events);
        let read = move || threads::with_pool(pool, read);
        spawned.insert(0, threads::spawn(scope, "popfit reader", read));
        // 3. Write the rows. After an error the jobs that still wait are dropped.
        let result = writer.run(jobs, &written, permits, most);
        if result.is_err() {
            let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            while waiting.try_recv().is_ok() {}
        }
        // 4. Wait for the threads.
        let mut stages = Vec::with_capacity(spawned.len());
        for thread in spawned {
            stages.push(
                thread
                    .join()
                    .unwrap_or_else(|panic| panic::resume_unwind(panic)),
            );
        }
        drop(end);
        (result, stages)
    });
    result.map(|()| workers.summary(writer, stages))
}

/// Reads all batches on the reader's thread and returns its times; a panic is sent to the writer first. The writer
/// would wait for ever without.
fn read(
    mut intake: Intake,
    permits: &Receiver<Vec<Spectra<'static>>>,
    events: &Sender<Event>,
) -> Stages {
    if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| intake.run(permits, events))) {
        let _ = events.send(Event::Read(Err(Error::Usage("the reader panicked".into()))));
        panic::resume_unwind(panic);
    }
    intake.stages
}

/// Fits jobs until none waits, or until one fails. `makers` are the indices of the run's device and of the CPU that may
/// replace it. If a journal keeps the rows, the worker also hashes the spectra.
fn work(
    mut run: Run,
    makers: [usize; 2],
    waiting: &Mutex<Receiver<Job>>,
    events: &Sender<Event>,
    keeps_rows: bool,
) -> Stages {
    loop {
        let job = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(mut job) = job else { return run.stages };
        run.stages.batch = job.number;
        let fitted = panic::catch_unwind(AssertUnwindSafe(|| fit(&mut run, &mut job, keeps_rows)));
        let (rows, panic) = match fitted {
            Ok(rows) => (rows, None),
            // The writer would wait for these rows for ever.
            Err(panic) => (Err(Error::Usage("a worker panicked".into())), Some(panic)),
        };
        let failed = rows.is_err();
        (job.rows, job.maker) = (rows, Maker::Device(makers[usize::from(run.is_replaced)]));
        let is_received = events.send(Event::Fitted(job)).is_ok();
        if let Some(panic) = panic {
            panic::resume_unwind(panic);
        }
        if failed || !is_received {
            return run.stages;
        }
    }
}

/// Fits the spectra of a job whose rows the journal lacks, and returns the rows of all of its batches. Where there is a
/// journal, rows and hashes of the spectra are kept for it.
fn fit(run: &mut Run, job: &mut Job, keeps_rows: bool) -> Result<Vec<Vec<FitRow>>> {
    let mut batches = Vec::with_capacity(job.pieces.len());
    for piece in &mut job.pieces {
        batches.push(PartialBatch {
            known: std::mem::take(&mut piece.known),
            spectra: &piece.spectra,
        });
    }
    let rows = fit_unknown_rows(batches, |spectra| run.fit_batch(spectra, None))?;
    if keeps_rows {
        let bytes = run
            .stages
            .time(Stage::Hash, || job.pieces.iter_mut().map(Piece::hash).sum());
        run.stages.moved(bytes);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_memory_has_fewer_workers() {
        let devices: [Arc<dyn Device>; 1] = [Arc::new(CpuDevice)];
        let of = |memory| sharing(&devices, memory);
        assert_eq!([None, Some(1 << 30), Some(1 << 28)].map(of), [2; 3]);
        assert_eq!(
            [Some((1 << 28) - 1), Some(1 << 27), Some(0)].map(of),
            [1; 3]
        );
    }
}
