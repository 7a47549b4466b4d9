//! A run as a stream: one thread reads, workers fit the batches on their devices, and the calling thread writes.
//!
//! Several workers share a device ([`Backend::workers`]). While the spectra of one worker are on it, the others prepare
//! their own, and the slowest fits of one batch run beside most fits of another. With `--device all` each GPU has
//! workers of its own, and all workers take jobs from one queue. The reader waits for a permit for each batch. It and
//! the workers send events to the writer through one channel. At most one batch more than there are workers is in
//! memory, so that memory does not grow with the length of the input. If there is a journal, the workers hash their
//! spectra to save the writer's time.
//!
//! Rows are written in the order of the input, and no bit of them depends on the worker.

mod batch_reader;
mod row_writer;

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
use crate::solver::Backend;
use crate::spectra::{Spectra, SpectraReader};
use crate::spectral::input::clusters::{ClusterFiles, FileCluster};
use crate::spectral::input::rest::{PartialBatch, fit_unknown_rows};
use crate::spectral::results::row::FitRow;
use crate::spectral::run::SpectralRun;
use crate::spectral::stream::profile::{RowCounts, RunMeters};
use crate::spectral::stream::stages::{BatchStage, StageTimes};
use crate::spectral::{DeviceRows, Journal, Sink, SpectralFitter, Summary};
use crate::threads;
use batch_reader::{BatchReader, StreamEvent};
use row_writer::{FitJob, JobBatch, Maker, RowWriter};

/// Interval at which the watching thread checks the timeout.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Memory per worker, in bytes, that is needed for several workers to share a device.
const MIN_SHARING_MEMORY: u64 = 1 << 27;

/// Counts the finished spectra of all workers, and calls the user's progress function.
pub struct RunProgress<'a> {
    control: &'a Control,
    /// Replaces the control's flag if there is a timeout.
    stop: Option<AtomicBool>,
    /// Number of all spectra.
    total: u64,
    finished: Mutex<u64>,
    /// Warnings: batches that are fitted again, because a device failed or their spectra have changed, and clusters in
    /// several files.
    warnings: Mutex<Vec<String>>,
    /// Files of the clusters whose spectra share labels.
    cluster_files: Mutex<ClusterFiles>,
}

impl<'a> RunProgress<'a> {
    /// Returns a counter for a run of `total` spectra. `control` has the progress function, the cancel flag and the
    /// timeout.
    pub fn new(control: &'a Control, total: u64) -> RunProgress<'a> {
        let stop = control.timeout.map(|_| AtomicBool::new(false));
        RunProgress {
            control,
            stop,
            total,
            finished: Mutex::new(0),
            warnings: Mutex::default(),
            cluster_files: Mutex::default(),
        }
    }

    /// Records the clusters of a batch, and warns if one of them has spectra in several files.
    pub fn note_clusters(&self, clusters: &[FileCluster]) {
        let warning = self
            .cluster_files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(clusters);
        if let Some(warning) = warning {
            self.warn(warning);
        }
    }

    /// Records a warning.
    pub fn warn(&self, message: String) {
        self.warnings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(message);
    }

    /// Adds newly finished spectra to their number, and reports it to the user's function unless the run is stopped.
    pub fn add_finished(&self, count: u64) {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        *finished += count;
        if let Some(report) = &self.control.progress
            && !self.cancel().load(Ordering::Relaxed)
        {
            report(*finished, self.total);
        }
    }

    /// Returns the flag that stops the run when it is set.
    pub fn cancel(&self) -> &AtomicBool {
        self.stop.as_ref().unwrap_or(&self.control.cancel)
    }

    /// Waits until the run has ended; sets the flag that stops it if it is cancelled, or has taken too long since
    /// `begin`.
    pub fn watch_for_stop(&self, begin: Instant, ended: &Receiver<()>) {
        while !self.control.is_stopped(begin) {
            if ended.recv_timeout(STOP_CHECK_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
        self.cancel().store(true, Ordering::Relaxed);
    }
}

/// The workers of a stream: their devices, and the meters of their times.
pub struct Workers<'a> {
    fitter: &'a SpectralFitter,
    devices: Vec<Arc<dyn Backend>>,
    /// Number of workers per device.
    pub per_device: usize,
    pub begin: Instant,
    /// Present if the user asks for a profile.
    meters: Option<RunMeters>,
}

impl<'a> Workers<'a> {
    /// Sets up the workers of a run that begins now: devices, workers per device, and meters if a profile is wanted. A
    /// device has fewer workers if the user limits the memory.
    pub fn new(fitter: &'a SpectralFitter) -> Workers<'a> {
        let devices = fitter.device.all_devices();
        let begin = Instant::now();
        let meters = fitter
            .control
            .profile
            .then(|| RunMeters::new(&devices, begin));
        let per_device = workers_per_device(&devices, fitter.max_memory);
        Workers {
            fitter,
            devices,
            per_device,
            begin,
            meters,
        }
    }

    /// Returns the number of spectra per batch, at least 1.
    pub fn batch_size(&self) -> usize {
        self.fitter.batch_on(&*self.devices[0]).max(1)
    }

    /// Returns these workers, but no more per device than there are batches to fit.
    pub fn limit_to_batches(self, batches: usize) -> Workers<'a> {
        Workers {
            per_device: self.per_device.min(batches.max(1)),
            ..self
        }
    }

    /// Returns empty stage times for a thread, which record spans if the user asks for a profile.
    fn start_stage_times(&self) -> StageTimes {
        StageTimes::recording_since(self.meters.as_ref().map(|_| self.begin))
    }

    /// Creates the run of each worker thread, device by device.
    pub fn create_runs(&self, progress: &'a RunProgress<'a>) -> Result<Vec<SpectralRun<'a>>> {
        let mut runs = Vec::new();
        for (number, device) in self.devices.iter().enumerate() {
            let borrowed = self.fitter.shared.idle.borrow(device);
            for _ in 0..self.per_device {
                let run = SpectralRun::new(
                    self.fitter,
                    device.clone(),
                    borrowed.clone(),
                    self.fitter.max_memory,
                )?;
                let meter = self.meters.as_ref().map(|meters| meters.meter(number));
                runs.push(
                    run.sharing_with(self.per_device)
                        .watched_by(progress)
                        .measured_by(meter, self.begin),
                );
            }
        }
        Ok(runs)
    }

    /// Returns a counter of rows for each device, and for the CPU that replaces a failed one.
    fn row_counters(&self) -> Vec<DeviceRows> {
        let names = self
            .devices
            .iter()
            .map(|device| device.name())
            .chain([CpuDevice.name()]);
        names.map(|device| DeviceRows { device, rows: 0 }).collect()
    }

    /// Returns the name in the result table of each device that [`row_counters`](Workers::row_counters) counts for.
    fn makers(&self) -> Vec<String> {
        let makers = self.devices.iter().map(|device| device.maker());
        makers.chain([CpuDevice.maker()]).collect()
    }

    /// Returns the summary of a stream that has ended: counts by device, failures, times and profile. `threads` are the
    /// stages of the reader, followed by those of the workers.
    fn summarise(self, writer: RowWriter, mut threads: Vec<StageTimes>) -> Summary {
        // 1. Rows by device. The CPU is listed only if it replaced a device.
        let mut by_device = writer.by_device;
        if by_device.last().is_some_and(|last| last.rows == 0) {
            by_device.pop();
        }
        let fitted: u64 = by_device.iter().map(|device| device.rows).sum();
        let counts = RowCounts {
            fits: fitted.saturating_sub(writer.interrupted),
            recalled: writer.fits.saturating_sub(fitted),
            interrupted: writer.interrupted,
        };
        // 2. Times of all threads: the reader, the writer and the workers.
        threads.insert(1, writer.stages);
        let mut stages = StageTimes::default();
        for thread in &threads {
            stages.add_times_of(thread);
        }
        let profile = self
            .meters
            .map(|meters| meters.profile(counts, self.per_device, &threads));
        let mut warnings = writer
            .progress
            .warnings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Summary {
            fits: writer.fits,
            interrupted: writer.interrupted,
            by_device,
            by_rows: writer.by_rows,
            failures: std::mem::take(&mut *warnings),
            stages: stages.list(),
            profile,
        }
    }
}

/// Returns the number of workers per device whose populations together take at most `memory` bytes.
pub fn workers_per_device(devices: &[Arc<dyn Backend>], memory: Option<u64>) -> usize {
    let wanted = devices
        .iter()
        .map(|device| device.workers())
        .max()
        .unwrap_or(1);
    let affordable = memory.map_or(u64::MAX, |bytes| bytes / MIN_SHARING_MEMORY);
    wanted
        .min(usize::try_from(affordable).unwrap_or(wanted))
        .max(1)
}

/// Reads batches from `source`, fits those whose rows the journal lacks, and appends all rows to `sink`.
///
/// # Errors
/// Returns the errors of a fit, of `source`, of `sink` and of the journal.
pub fn run_stream(
    fitter: &SpectralFitter,
    source: &mut dyn SpectraReader,
    sink: &mut dyn Sink,
    journal: Option<&mut Journal>,
) -> Result<Summary> {
    fitter.control.scope(|| {
        let pool = threads::pool_to_wait_for()?;
        threads::with_pool(pool, || {
            run_stream_in_current_pool(fitter, source, sink, journal)
        })
    })?
}

/// Runs a stream whose workers compute in the current pool of this thread.
fn run_stream_in_current_pool(
    fitter: &SpectralFitter,
    source: &mut dyn SpectraReader,
    sink: &mut dyn Sink,
    journal: Option<&mut Journal>,
) -> Result<Summary> {
    let control = &fitter.control;
    // 1. Set up the workers, the reader and the writer. They read one job more than the workers can fit at once.
    let progress = &RunProgress::new(control, source.len());
    let workers = Workers::new(fitter);
    let run_begin = workers.begin;
    let runs = workers.create_runs(progress)?;
    let runs: Vec<SpectralRun> = runs
        .into_iter()
        .map(SpectralRun::freed_at_its_end)
        .collect();
    let max_jobs = runs.len() + 1;
    let batch_size = workers.batch_size();
    let read_size = if fitter.needs_whole_files() {
        usize::MAX
    } else {
        batch_size
    };
    let spectra_per_worker = usize::try_from(source.len())
        .unwrap_or(usize::MAX)
        .div_ceil(runs.len());
    let reader = BatchReader {
        source,
        batch_size: read_size,
        min_job_size: spectra_per_worker.min(batch_size / 2).max(1),
        stages: workers.start_stage_times(),
        failure: None,
    };
    let has_journal = journal.is_some();
    let mut writer = RowWriter {
        sink,
        journal,
        progress,
        stages: workers.start_stage_times(),
        needs_whole_batches: fitter.needs_whole_files(),
        batches_read: 0,
        fits: 0,
        interrupted: 0,
        by_device: workers.row_counters(),
        makers: workers.makers(),
        by_rows: Vec::new(),
    };
    let (jobs, waiting_jobs) = mpsc::channel();
    let waiting_jobs = Mutex::new(waiting_jobs);
    let (event_sender, events) = mpsc::channel();
    let (permits, received_permits) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let (result, stages) = thread::scope(|scope| {
        // 2. Start the threads.
        if control.timeout.is_some() {
            scope.spawn(move || progress.watch_for_stop(run_begin, &ended));
        }
        let mut threads = Vec::new();
        for (number, run) in runs.into_iter().enumerate() {
            let makers = [number / workers.per_device, workers.devices.len()];
            let waiting_jobs = &waiting_jobs;
            let event_sender = event_sender.clone();
            let pool = threads::current_pool();
            let name = format!("popfit worker {}", number + 1);
            threads.push(threads::spawn(scope, &name, move || {
                threads::with_pool(pool, move || {
                    fit_jobs(run, makers, waiting_jobs, &event_sender, has_journal)
                })
            }));
        }
        let pool = threads::current_pool();
        let reader_thread = threads::spawn(scope, "popfit reader", move || {
            threads::with_pool(pool, move || {
                read_jobs(reader, &received_permits, &event_sender)
            })
        });
        threads.insert(0, reader_thread);
        // 3. Write the rows. After an error the jobs that still wait are dropped.
        let result = writer.write_all(jobs, &events, permits, max_jobs);
        if result.is_err() {
            let waiting_jobs = waiting_jobs.lock().unwrap_or_else(PoisonError::into_inner);
            while waiting_jobs.try_recv().is_ok() {}
        }
        // 4. Wait for the threads.
        let mut stages = Vec::with_capacity(threads.len());
        for thread in threads {
            stages.push(
                thread
                    .join()
                    .unwrap_or_else(|panic| panic::resume_unwind(panic)),
            );
        }
        drop(end);
        (result, stages)
    });
    result.map(|()| workers.summarise(writer, stages))
}

/// Reads all batches on the reader's thread, and returns its times. A panic is first sent to the writer as an error,
/// because the writer would otherwise wait for ever.
fn read_jobs(
    mut reader: BatchReader,
    permits: &Receiver<Vec<Spectra<'static>>>,
    events: &Sender<StreamEvent>,
) -> StageTimes {
    let result = panic::catch_unwind(AssertUnwindSafe(|| reader.read_jobs(permits, events)));
    if let Err(panic) = result {
        let _ = events.send(StreamEvent::Read(Err(Error::Internal(
            "the reader panicked".into(),
        ))));
        panic::resume_unwind(panic);
    }
    reader.stages
}

/// Fits jobs until there are no more, or until one fails. `makers` are the indices of the run's device and of the CPU
/// that may replace it. If there is a journal, the worker also hashes the spectra.
fn fit_jobs(
    mut run: SpectralRun,
    makers: [usize; 2],
    waiting_jobs: &Mutex<Receiver<FitJob>>,
    events: &Sender<StreamEvent>,
    has_journal: bool,
) -> StageTimes {
    loop {
        let job = waiting_jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(mut job) = job else { return run.stages };
        run.stages.batch = job.number;
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            fit_job(&mut run, &mut job, has_journal)
        }));
        let (rows, panic) = match result {
            Ok(rows) => (rows, None),
            // The writer would wait for these rows for ever.
            Err(panic) => (
                Err(Error::Internal("a worker panicked".into())),
                Some(panic),
            ),
        };
        let has_failed = rows.is_err();
        job.rows = rows;
        job.maker = Maker::Device(makers[usize::from(run.is_replaced)]);
        let is_received = events.send(StreamEvent::Fitted(job)).is_ok();
        if let Some(panic) = panic {
            panic::resume_unwind(panic);
        }
        if has_failed || !is_received {
            return run.stages;
        }
    }
}

/// Fits the spectra of a job whose rows the journal lacks, and returns the rows of all of its batches. If there is a
/// journal, the spectra are hashed for it.
fn fit_job(run: &mut SpectralRun, job: &mut FitJob, has_journal: bool) -> Result<Vec<Vec<FitRow>>> {
    let mut batches = Vec::with_capacity(job.batches.len());
    for batch in &mut job.batches {
        batches.push(PartialBatch {
            known: std::mem::take(&mut batch.known),
            spectra: &batch.spectra,
        });
    }
    let rows = fit_unknown_rows(batches, |spectra| run.fit_batch(spectra, None))?;
    if has_journal {
        let bytes = run.stages.time(BatchStage::Hash, || {
            job.batches.iter_mut().map(JobBatch::hash_spectra).sum()
        });
        run.stages.add_bytes(bytes);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_limit_reduces_the_workers_per_device() {
        let devices: [Arc<dyn Backend>; 1] = [Arc::new(CpuDevice)];
        let workers = |memory| workers_per_device(&devices, memory);
        assert_eq!([None, Some(1 << 30), Some(1 << 28)].map(workers), [2; 3]);
        assert_eq!(
            [Some((1 << 28) - 1), Some(1 << 27), Some(0)].map(workers),
            [1; 3]
        );
    }
}
