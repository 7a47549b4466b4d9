//! The reader of a stream, which has a thread of its own.
//!
//! Files of few spectra (one in SDSS and APOGEE) are fitted together (`spectral/run/prepared_files.rs`): the reader
//! collects half a batch, or the share of every worker if that is less. Batches that are written return to the reader,
//! which reuses their memory. Memory that one thread allocates and another frees becomes fragmented, and new pages take
//! as much time as reading the numbers.

use std::sync::mpsc::{Receiver, Sender};

use super::row_writer::FitJob;
use crate::error::{Error, Result};
use crate::spectra::{Spectra, SpectraReader};
use crate::spectral::stream::stages::{BatchStage, StageTimes};

/// An event that the writer receives.
pub enum StreamEvent {
    /// Batches that are fitted together, and true if more may follow.
    Read(Result<(Vec<Spectra<'static>>, bool)>),
    /// A job with its rows.
    Fitted(FitJob),
}

/// The reader of a stream.
pub struct BatchReader<'a> {
    pub source: &'a mut dyn SpectraReader,
    /// Maximum number of spectra per batch.
    pub batch_size: usize,
    /// Smallest number of spectra of small files that are fitted together: half a batch, or the share of every worker.
    pub min_job_size: usize,
    pub stages: StageTimes,
    /// Error that ended the reading. It is sent after the batches that were read before it.
    pub failure: Option<Error>,
}

impl BatchReader<'_> {
    /// Reads the batches of one job for each permit and sends them to the writer, until there are no more or reading
    /// fails. A permit returns spectra that were written.
    pub fn read_jobs(
        &mut self,
        permits: &Receiver<Vec<Spectra<'static>>>,
        events: &Sender<StreamEvent>,
    ) {
        for number in 0.. {
            let Ok(written_spectra) = permits.recv() else {
                return;
            };
            for spectra in written_spectra {
                self.source.recycle(spectra);
            }
            self.stages.batch = number;
            let batches = self.read_job();
            let is_last = !matches!(batches, Ok((_, true)));
            if events.send(StreamEvent::Read(batches)).is_err() || is_last {
                return;
            }
        }
    }

    /// Returns the next batch, or several small ones, and true if more may follow.
    fn read_job(&mut self) -> Result<(Vec<Spectra<'static>>, bool)> {
        let mut batches = Vec::new();
        let mut job_size = 0;
        while job_size < self.min_job_size && self.failure.is_none() {
            match self
                .stages
                .time(BatchStage::Read, || self.source.next_batch(self.batch_size))
            {
                Ok(None) => return Ok((batches, false)),
                Ok(Some(batch)) => {
                    self.stages.add_bytes(batch.bytes());
                    job_size += batch.len();
                    batches.push(batch);
                }
                Err(error) => self.failure = Some(error),
            }
        }
        // An error is returned after the batches that were read before it.
        match self.failure.take_if(|_| batches.is_empty()) {
            Some(error) => Err(error),
            None => Ok((batches, true)),
        }
    }
}
