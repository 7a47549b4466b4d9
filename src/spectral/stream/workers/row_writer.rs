//! The writer of a stream, which sends batches to the workers, and writes their rows in the order of the input.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender};

use super::RunProgress;
use super::batch_reader::StreamEvent;
use crate::error::{Error, Result};
use crate::solver::Status;
use crate::spectra::Spectra;
use crate::spectral::input::rest::KnownRows;
use crate::spectral::results::row::FitRow;
use crate::spectral::stream::journal::{Hash, fingerprint};
use crate::spectral::stream::stages::{BatchStage, StageTimes};
use crate::spectral::{DeviceRows, Journal, Sink};

/// Batches that are fitted together: one, or several of small files.
pub struct FitJob {
    /// Index of the job in the order of the input.
    pub number: usize,
    pub batches: Vec<JobBatch>,
    /// Rows of each batch, once they are fitted.
    pub rows: Result<Vec<Vec<FitRow>>>,
    pub maker: Maker,
}

/// A batch as the reader returned it, with its rows that the journal has.
pub struct JobBatch {
    /// Index of the batch in the input.
    number: usize,
    pub spectra: Spectra<'static>,
    pub known: KnownRows,
    /// Names of the devices that made the known rows.
    known_makers: String,
    /// Number of known rows.
    known_count: u64,
    /// Hash of the spectra, if the journal keeps their rows.
    hash: Option<Hash>,
}

impl JobBatch {
    /// Hashes the batch's spectra, unless the journal has all their rows. Returns the number of hashed bytes.
    pub fn hash_spectra(&mut self) -> usize {
        if self.is_recalled() {
            return 0;
        }
        self.hash = Some(fingerprint(&self.spectra));
        self.spectra.bytes()
    }

    /// Returns whether the journal has the rows of all spectra of the batch.
    fn is_recalled(&self) -> bool {
        self.known_count > 0 && self.known_count == self.spectra.len() as u64
    }
}

/// The device that made the rows which are not from the journal.
pub enum Maker {
    /// No device has fitted the batch.
    Nobody,
    /// Index of a device of this run. The CPU that replaces a failed one comes last.
    Device(usize),
}

/// The writer of a stream.
pub struct RowWriter<'a> {
    pub sink: &'a mut dyn Sink,
    pub journal: Option<&'a mut Journal>,
    pub progress: &'a RunProgress<'a>,
    pub stages: StageTimes,
    /// A batch of which the journal lacks any row is fitted again as a whole, because its spectra may share labels.
    pub needs_whole_batches: bool,
    /// Number of batches that were read.
    pub batches_read: usize,
    /// Number of rows that were written.
    pub fits: u64,
    /// Number of written rows whose fits were interrupted because the run was cancelled.
    pub interrupted: u64,
    /// Number of rows that each device made, without those from the journal.
    pub by_device: Vec<DeviceRows>,
    /// Name in the result table of each device of `by_device`.
    pub makers: Vec<String>,
    /// Makers of the rows in the order of the rows, each with the number of its rows.
    pub by_rows: Vec<DeviceRows>,
}

impl RowWriter<'_> {
    /// Sends jobs to the workers and writes the rows in order until all batches are written; then returns the reader's
    /// error, if any. The reader has a permit for each job that is read and not yet written, at most `max_jobs`.
    pub fn write_all(
        &mut self,
        jobs: Sender<FitJob>,
        events: &Receiver<StreamEvent>,
        permits: Sender<Vec<Spectra<'static>>>,
        max_jobs: usize,
    ) -> Result<()> {
        // 1. Permit the reader to read the first jobs. Sending fails only if the reader has ended.
        let send_permit = |written_spectra| {
            let _ = permits.send(written_spectra);
        };
        (0..max_jobs).for_each(|_| send_permit(Vec::new()));
        let mut jobs_read = 0;
        let mut jobs_written = 0;
        let mut more_may_follow = true;
        // The reader's error is returned after all earlier batches are written.
        let mut read_error = None;
        let mut fitted_jobs = BTreeMap::new();
        loop {
            // 2. Write the fitted jobs that are next in order.
            while let Some(job) = fitted_jobs.remove(&jobs_written) {
                send_permit(self.write_job(job)?);
                jobs_written += 1;
            }
            if !more_may_follow && jobs_read == jobs_written {
                return read_error.map_or(Ok(()), Err);
            }
            // 3. Wait for the reader or a worker.
            match events
                .recv()
                .map_err(|_| Error::Internal("no worker is left".into()))?
            {
                StreamEvent::Read(Err(error)) => {
                    read_error = Some(error);
                    more_may_follow = false;
                }
                StreamEvent::Read(Ok((spectra, more))) => {
                    more_may_follow = more;
                    if !spectra.is_empty() {
                        self.stages.batch = jobs_read;
                        let batches = spectra
                            .into_iter()
                            .map(|spectra| self.recall_batch(spectra))
                            .collect::<Result<_>>()?;
                        self.send_job(jobs_read, batches, &jobs, &mut fitted_jobs);
                        jobs_read += 1;
                    }
                }
                StreamEvent::Fitted(job) => {
                    fitted_jobs.insert(job.number, job);
                }
            }
        }
    }

    /// Returns a batch of spectra with those of its rows that the journal has from an earlier run.
    fn recall_batch(&mut self, spectra: Spectra<'static>) -> Result<JobBatch> {
        let number = self.batches_read;
        self.batches_read += 1;
        // 1. Recall the rows of this batch, unless its spectra have changed.
        let mut known = KnownRows::default();
        let mut known_makers = String::new();
        if let Some(journal) = &mut self.journal
            && journal.has_rows_of(number)
        {
            let recalled = self
                .stages
                .time(BatchStage::Hash, || journal.recall_rows(number, &spectra))?;
            self.stages.add_bytes(spectra.bytes());
            match recalled {
                Some((rows, makers)) => {
                    known = rows;
                    known_makers = makers;
                }
                None => self.progress.warn(format!(
                    "{}: its spectra have changed since they were fitted; they are fitted again",
                    spectra.name()
                )),
            }
        }
        // 2. A cluster is fitted whole.
        if self.needs_whole_batches && known.contains(&None) {
            known = KnownRows::default();
            known_makers = String::new();
        }
        // 3. Report them as finished.
        let known_count = known.iter().flatten().count() as u64;
        if known_count > 0 {
            self.progress.add_finished(known_count);
        }
        Ok(JobBatch {
            number,
            spectra,
            known,
            known_makers,
            known_count,
            hash: None,
        })
    }

    /// Sends a job of some batches to the workers, or adds it to `fitted_jobs` if the journal has all of its rows.
    fn send_job(
        &mut self,
        number: usize,
        mut batches: Vec<JobBatch>,
        jobs: &Sender<FitJob>,
        fitted_jobs: &mut BTreeMap<usize, FitJob>,
    ) {
        if batches.iter().all(JobBatch::is_recalled) {
            let rows = batches
                .iter_mut()
                .map(|batch| batch.known.drain(..).flatten().collect())
                .collect();
            fitted_jobs.insert(
                number,
                FitJob {
                    number,
                    batches,
                    rows: Ok(rows),
                    maker: Maker::Nobody,
                },
            );
        } else {
            // A worker that failed receives no job. Its error arrives as an event.
            let _ = jobs.send(FitJob {
                number,
                batches,
                rows: Ok(Vec::new()),
                maker: Maker::Nobody,
            });
        }
    }

    /// Writes the rows of a job to the journal and to the sink, and returns its spectra.
    fn write_job(&mut self, job: FitJob) -> Result<Vec<Spectra<'static>>> {
        // 1. Count the rows by device.
        self.stages.batch = job.number;
        let rows = job.rows?;
        let devices: Vec<String> = job
            .batches
            .iter()
            .map(|batch| self.count_device_rows(batch, &job.maker))
            .collect();
        // 2. Keep newly fitted rows in the journal.
        if let (Some(journal), Maker::Device(_)) = (&mut self.journal, job.maker) {
            self.stages.time(BatchStage::Write, || {
                keep_in_journal(journal, &job.batches, &rows, &devices)
            })?;
        }
        // 3. Append all rows to the sink.
        for ((batch, rows), device) in job.batches.iter().zip(&rows).zip(devices) {
            let count = rows.len() as u64;
            self.fits += count;
            self.interrupted += rows
                .iter()
                .filter(|row| row.status == Status::Interrupted)
                .count() as u64;
            self.stages.time(BatchStage::Write, || {
                self.sink.append_made_by(&batch.spectra, rows, &device)
            })?;
            match self.by_rows.last_mut() {
                Some(last) if last.device == device => last.rows += count,
                _ => self.by_rows.push(DeviceRows {
                    device,
                    rows: count,
                }),
            }
        }
        Ok(job.batches.into_iter().map(|batch| batch.spectra).collect())
    }

    /// Adds a batch's newly fitted rows to the counter of their device, and returns the names of all devices that made
    /// the batch's rows.
    fn count_device_rows(&mut self, batch: &JobBatch, maker: &Maker) -> String {
        let known_makers = batch.known_makers.clone();
        match maker {
            Maker::Device(device) if !batch.is_recalled() => {
                let counter = &mut self.by_device[*device];
                counter.rows += batch.spectra.len() as u64 - batch.known_count;
                join_device_names(known_makers, &self.makers[*device])
            }
            _ => known_makers,
        }
    }
}

/// Writes the rows of hashed batches into the journal, and waits until they are on the disk.
fn keep_in_journal(
    journal: &mut Journal,
    batches: &[JobBatch],
    rows: &[Vec<FitRow>],
    devices: &[String],
) -> Result<()> {
    for ((batch, rows), device) in batches.iter().zip(rows).zip(devices) {
        if let Some(hash) = batch.hash {
            journal.keep_rows(batch.number, hash, rows, device)?;
        }
    }
    journal.sync()
}

/// Joins the names of the devices that made a batch's rows in an earlier run and now.
fn join_device_names(earlier: String, now: &str) -> String {
    if earlier.is_empty() || earlier == now {
        now.into()
    } else {
        format!("{earlier} + {now}")
    }
}
