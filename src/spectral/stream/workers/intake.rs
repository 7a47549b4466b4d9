//! The reader of a stream, which has a thread of its own.
//!
//! Files of few spectra (one in SDSS and APOGEE) are fitted together (`spectral/run/pieces.rs`): the reader collects
//! half a batch, or the share of every worker if that is less. Batches that are written return to the reader, which
//! reuses their memory. Memory that one thread allocates and another frees becomes fragmented, and new pages take as
//! much time as reading the numbers.

use std::sync::mpsc::{Receiver, Sender};

use super::ends::Job;
use crate::error::{Error, Result};
use crate::spectra::{Spectra, SpectraReader};
use crate::spectral::stream::stages::{Stage, Stages};

/// An event that the writer receives.
pub enum Event {
    /// Batches that are fitted together, and whether more may follow.
    Read(Result<(Vec<Spectra<'static>>, bool)>),
    /// A job with its rows.
    Fitted(Job),
}

/// The reader of a stream.
pub struct Intake<'a> {
    pub source: &'a mut dyn SpectraReader,
    /// Maximum number of spectra of a batch.
    pub batch: usize,
    /// Number of spectra of small files that are fitted together: half a batch, or the share of every worker.
    pub enough: usize,
    pub stages: Stages,
    /// Error that ended the reading. It is sent after the batches that were read before it.
    pub failure: Option<Error>,
}

impl Intake<'_> {
    /// Reads the batches of one job for each permit and sends them to the writer, until there are no more or reading
    /// fails. A permit returns spectra that were written.
    pub fn run(&mut self, permits: &Receiver<Vec<Spectra<'static>>>, events: &Sender<Event>) {
        for number in 0.. {
            let Ok(used) = permits.recv() else { return };
            used.into_iter()
                .for_each(|spectra| self.source.recycle(spectra));
            self.stages.batch = number;
            let batches = self.read();
            let is_last = !matches!(batches, Ok((_, true)));
            if events.send(Event::Read(batches)).is_err() || is_last {
                return;
            }
        }
    }

    /// Returns the next batch, or several small ones, and whether more may follow.
    fn read(&mut self) -> Result<(Vec<Spectra<'static>>, bool)> {
        let (mut batches, mut spectra) = (Vec::new(), 0);
        while spectra < self.enough && self.failure.is_none() {
            match self
                .stages
                .time(Stage::Read, || self.source.next_batch(self.batch))
            {
                Ok(None) => return Ok((batches, false)),
                Ok(Some(next)) => {
                    self.stages.moved(next.bytes());
                    spectra += next.len();
                    batches.push(next);
                }
                Err(error) => self.failure = Some(error),
            }
        }
        match self.failure.take_if(|_| batches.is_empty()) {
            Some(error) => Err(error),
            None => Ok((batches, true)),
        }
    }
}
