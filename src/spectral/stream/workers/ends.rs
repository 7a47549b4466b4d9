//! The writer of a stream, which sends batches to the workers, and writes their rows in the order of the input.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender};

use super::Tally;
use super::intake::Event;
use crate::error::{Error, Result};
use crate::solver::Status;
use crate::spectra::Spectra;
use crate::spectral::input::rest::KnownRows;
use crate::spectral::results::row::FitRow;
use crate::spectral::stream::journal::{Hash, fingerprint};
use crate::spectral::stream::stages::{Stage, Stages};
use crate::spectral::{DeviceRows, Journal, Sink};

/// Batches that are fitted together: one, or several of small files.
pub struct Job {
    /// Index of the job in the order of the input.
    pub number: usize,
    pub pieces: Vec<Piece>,
    /// Rows of each piece, once they are fitted.
    pub rows: Result<Vec<Vec<FitRow>>>,
    pub maker: Maker,
}

/// A batch as the reader returned it, and its rows that the journal knows.
pub struct Piece {
    /// Index of the batch in the input.
    number: usize,
    pub spectra: Spectra<'static>,
    pub known: KnownRows,
    /// Names of the devices that made the known rows.
    known_makers: String,
    /// Number of known rows.
    recalled: u64,
    /// Hash of the spectra, if the journal keeps their rows.
    hash: Option<Hash>,
}

impl Piece {
    /// Hashes the batch's spectra for the journal, unless that has all their rows; returns the number of bytes hashed.
    pub fn hash(&mut self) -> usize {
        if self.is_known() {
            return 0;
        }
        self.hash = Some(fingerprint(&self.spectra));
        self.spectra.bytes()
    }

    /// Returns whether the journal has the rows of all spectra of the batch.
    fn is_known(&self) -> bool {
        self.recalled > 0 && self.recalled == self.spectra.len() as u64
    }
}

/// The device that made the rows which the journal does not know.
pub enum Maker {
    /// No device has fitted the batch.
    Nobody,
    /// Index of a device of this run. The CPU that replaces a failed one comes last.
    Device(usize),
}

/// The writer of a stream.
pub struct Ends<'a> {
    pub sink: &'a mut dyn Sink,
    pub journal: Option<&'a mut Journal>,
    pub tally: &'a Tally<'a>,
    pub stages: Stages,
    /// Number of batches that were read.
    pub pieces: usize,
    /// Number of rows that were written.
    pub fits: u64,
    /// Number of those whose fits were interrupted because the run was cancelled.
    pub interrupted: u64,
    /// Number of rows that each device made, without those that the journal knew.
    pub by_device: Vec<DeviceRows>,
    /// Name in the result table of each device of `by_device`.
    pub makers: Vec<String>,
    /// Makers of the rows in the order of the rows, each with the number of its rows.
    pub by_rows: Vec<DeviceRows>,
}

impl Ends<'_> {
    /// Sends jobs to the workers and writes the rows in order until all batches are written; then returns the reader's
    /// error, if any. The reader has a permit for each job that is read and not yet written, at most `most`.
    pub fn run(
        &mut self,
        jobs: Sender<Job>,
        events: &Receiver<Event>,
        permits: Sender<Vec<Spectra<'static>>>,
        most: usize,
    ) -> Result<()> {
        // A reader that has ended receives no permit.
        let permit = |used| {
            let _ = permits.send(used);
        };
        (0..most).for_each(|_| permit(Vec::new()));
        let (mut read, mut written, mut more) = (0, 0, true);
        // The reader's error is returned after all earlier batches are written.
        let mut failure = None;
        let mut held = BTreeMap::new();
        loop {
            while let Some(job) = held.remove(&written) {
                permit(self.write(job)?);
                written += 1;
            }
            if !more && read == written {
                return failure.map_or(Ok(()), Err);
            }
            match events
                .recv()
                .map_err(|_| Error::Usage("no worker is left".into()))?
            {
                Event::Read(Err(error)) => (failure, more) = (Some(error), false),
                Event::Read(Ok((some, may_follow))) => {
                    more = may_follow;
                    if !some.is_empty() {
                        self.stages.batch = read;
                        let pieces = some
                            .into_iter()
                            .map(|spectra| self.recall(spectra))
                            .collect::<Result<_>>()?;
                        self.send(read, pieces, &jobs, &mut held);
                        read += 1;
                    }
                }
                Event::Fitted(job) => drop(held.insert(job.number, job)),
            }
        }
    }

    /// Returns a batch of spectra with those of its rows that the journal has from an earlier run.
    fn recall(&mut self, spectra: Spectra<'static>) -> Result<Piece> {
        let number = self.pieces;
        self.pieces += 1;
        let (known, known_makers) = match &mut self.journal {
            Some(journal) if journal.knows(number) => {
                let known = self
                    .stages
                    .time(Stage::Hash, || journal.recall(number, &spectra))?;
                self.stages.moved(spectra.bytes());
                if known.is_none() {
                    self.tally.warn(format!(
                        "{}: its spectra have changed since they were fitted; they are fitted again",
                        spectra.name()
                    ));
                }
                known.unwrap_or_default()
            }
            _ => Default::default(),
        };
        let recalled = known.iter().flatten().count() as u64;
        if recalled > 0 {
            self.tally.add(recalled);
        }
        Ok(Piece {
            number,
            spectra,
            known,
            known_makers,
            recalled,
            hash: None,
        })
    }

    /// Sends a job of some batches to the workers, or puts it into `held` if the journal has all of its rows.
    fn send(
        &mut self,
        number: usize,
        mut pieces: Vec<Piece>,
        jobs: &Sender<Job>,
        held: &mut BTreeMap<usize, Job>,
    ) {
        if pieces.iter().all(Piece::is_known) {
            let rows = pieces
                .iter_mut()
                .map(|piece| piece.known.drain(..).flatten().collect())
                .collect();
            held.insert(
                number,
                Job {
                    number,
                    pieces,
                    rows: Ok(rows),
                    maker: Maker::Nobody,
                },
            );
        } else {
            // A worker that failed receives no job. Its error arrives as an event.
            let _ = jobs.send(Job {
                number,
                pieces,
                rows: Ok(Vec::new()),
                maker: Maker::Nobody,
            });
        }
    }

    /// Writes the rows of a job to the journal and to the sink, and returns its spectra.
    fn write(&mut self, job: Job) -> Result<Vec<Spectra<'static>>> {
        let Job {
            number,
            pieces,
            rows,
            maker,
        } = job;
        self.stages.batch = number;
        let rows = rows?;
        let names: Vec<String> = pieces
            .iter()
            .map(|piece| self.maker(piece, &maker))
            .collect();
        if let (Some(journal), Maker::Device(_)) = (&mut self.journal, maker) {
            self.stages
                .time(Stage::Write, || keep(journal, &pieces, &rows, &names))?;
        }
        for ((piece, rows), name) in pieces.iter().zip(&rows).zip(names) {
            let count = rows.len() as u64;
            self.fits += count;
            self.interrupted += rows
                .iter()
                .filter(|row| row.status == Status::Interrupted)
                .count() as u64;
            match self.by_rows.last_mut() {
                Some(last) if last.device == name => last.rows += count,
                _ => self.by_rows.push(DeviceRows {
                    device: name,
                    rows: count,
                }),
            }
            self.stages
                .time(Stage::Write, || self.sink.append(&piece.spectra, rows))?;
        }
        Ok(pieces.into_iter().map(|piece| piece.spectra).collect())
    }

    /// Adds the rows that a device has fitted of a batch to its counter, and returns the names of all devices that made
    /// the batch's rows.
    fn maker(&mut self, piece: &Piece, maker: &Maker) -> String {
        let earlier = piece.known_makers.clone();
        match maker {
            Maker::Device(device) if !piece.is_known() => {
                self.by_device[*device].rows += piece.spectra.len() as u64 - piece.recalled;
                joined(earlier, &self.makers[*device])
            }
            _ => earlier,
        }
    }
}

/// Writes the rows of hashed batches into the journal, and waits until they are on the disk.
fn keep(
    journal: &mut Journal,
    pieces: &[Piece],
    rows: &[Vec<FitRow>],
    names: &[String],
) -> Result<()> {
    for ((piece, rows), name) in pieces.iter().zip(rows).zip(names) {
        if let Some(hash) = piece.hash {
            journal.keep(piece.number, hash, rows, name)?;
        }
    }
    journal.sync()
}

/// Joins the names of the devices that made a batch's rows in an earlier run and now.
fn joined(earlier: String, now: &str) -> String {
    if earlier.is_empty() || earlier == now {
        now.into()
    } else {
        format!("{earlier} + {now}")
    }
}
