//! The end of a run that reads, in a thread of its own.
//!
//! Files of few spectra (SDSS, APOGEE: one) are read until half a batch is together, or the share of every worker, and
//! are fitted together (`fit/run/pieces.rs`). Batches that are written go back to the reader, which fills their memory
//! again: memory that one thread allocates and another frees would leave holes, and new pages cost the reader as much
//! time as their numbers.

use std::sync::mpsc::{Receiver, Sender};

use super::ends::Job;
use crate::error::{Error, Result};
use crate::fit::stages::{Stage, Stages};
use crate::spectra::{Spectra, SpectraReader};

/// Event of which the end that writes is told.
pub enum Event {
    /// Batches that are fitted together, and whether more may come.
    Read(Result<(Vec<Spectra<'static>>, bool)>),
    Fitted(Job),
}

/// The reader's end.
pub struct Intake<'a> {
    pub source: &'a mut dyn SpectraReader,
    /// Spectra of a batch.
    pub batch: usize,
    /// Spectra of small files that are fitted together: half a batch, unless some worker had none then.
    pub enough: usize,
    pub stages: Stages,
    /// Error that ended the reading. It is reported after what was read before.
    pub failure: Option<Error>,
}

impl Intake<'_> {
    /// Reads what is fitted together, once for every permit, which comes with what has been written.
    pub fn run(&mut self, permits: &Receiver<Vec<Spectra<'static>>>, events: &Sender<Event>) {
        for number in 0.. {
            let Ok(used) = permits.recv() else { return };
            used.into_iter().for_each(|spectra| self.source.recycle(spectra));
            self.stages.batch = number;
            let batches = self.read();
            let is_last = !matches!(batches, Ok((_, true)));
            if events.send(Event::Read(batches)).is_err() || is_last {
                return;
            }
        }
    }

    /// The next batch; where files are small some of them.
    fn read(&mut self) -> Result<(Vec<Spectra<'static>>, bool)> {
        let (mut batches, mut spectra) = (Vec::new(), 0);
        while spectra < self.enough && self.failure.is_none() {
            match self.stages.time(Stage::Read, || self.source.next_batch(self.batch)) {
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
