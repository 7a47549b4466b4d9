//! The end of a run that writes: hands batches to the workers as they are read, and writes their rows in the order of
//! the input.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender};

use super::Tally;
use super::intake::Event;
use crate::error::{Error, Result};
use crate::fit::journal::{Hash, fingerprint};
use crate::fit::rest::KnownRows;
use crate::fit::row::FitRow;
use crate::fit::stages::{Stage, Stages};
use crate::fit::{Journal, Sink};
use crate::solver::Status;
use crate::spectra::Spectra;

/// Batches that are fitted together: one, or several of small files; the rows of each when they are fitted, and who has
/// fitted them.
pub struct Job {
    pub number: usize,
    pub pieces: Vec<Piece>,
    pub rows: Result<Vec<Vec<FitRow>>>,
    pub maker: Maker,
}

/// A batch, its place in the input, those of its rows that the journal knows and who made them.
pub struct Piece {
    number: usize,
    pub spectra: Spectra<'static>,
    pub known: (KnownRows, String),
    /// Number of those that it knows.
    recalled: u64,
    /// Hash of its spectra, once there are rows for the journal.
    hash: Option<Hash>,
}

impl Piece {
    /// Hashes its spectra, if there are rows to be kept: that takes the worker's time, not the writer's. Returns the
    /// bytes of what it hashed.
    pub fn hash(&mut self) -> usize {
        if self.is_known() {
            return 0;
        }
        self.hash = Some(fingerprint(&self.spectra));
        self.spectra.bytes()
    }

    fn is_known(&self) -> bool {
        self.recalled > 0 && self.recalled == self.spectra.len() as u64
    }
}

/// The maker of the rows of a batch that the journal does not know.
pub enum Maker {
    Nobody,
    /// A device of this run, by number; the CPU in the place of one that failed comes last.
    Device(usize),
}

/// The end that writes.
pub struct Ends<'a> {
    pub sink: &'a mut dyn Sink,
    pub journal: Option<&'a mut Journal>,
    pub tally: &'a Tally<'a>,
    pub stages: Stages,
    /// Batches that have come.
    pub pieces: usize,
    pub fits: u64,
    /// Number of `fits` that were not fitted to their ends, as the run was cancelled.
    pub interrupted: u64,
    /// Number of rows that each device made, without those that the journal knew.
    pub by_device: Vec<(String, u64)>,
    pub by_rows: Vec<(String, u64)>,
}

impl Ends<'_> {
    /// At most `most` jobs are read and not yet written: the reader has a permit for each.
    pub fn run(
        &mut self,
        jobs: Sender<Job>,
        events: &Receiver<Event>,
        (permits, most): (Sender<Vec<Spectra<'static>>>, usize),
    ) -> Result<()> {
        // a reader that has come to its end takes no more
        let permit = |used| {
            let _ = permits.send(used);
        };
        (0..most).for_each(|_| permit(Vec::new()));
        let (mut read, mut written, mut more) = (0, 0, true);
        // why reading ended, once all is written that was read before
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
            match events.recv().map_err(|_| Error::Usage("no worker is left".into()))? {
                Event::Read(Err(error)) => (failure, more) = (Some(error), false),
                Event::Read(Ok((some, may_follow))) => {
                    more = may_follow;
                    if !some.is_empty() {
                        self.stages.batch = read;
                        let pieces = some.into_iter().map(|spectra| self.recall(spectra)).collect::<Result<_>>()?;
                        self.send((read, pieces), &jobs, &mut held);
                        read += 1;
                    }
                }
                Event::Fitted(job) => drop(held.insert(job.number, job)),
            }
        }
    }

    /// The next batch, with what the journal knows of it.
    fn recall(&mut self, spectra: Spectra<'static>) -> Result<Piece> {
        let number = self.pieces;
        self.pieces += 1;
        let known = match &mut self.journal {
            Some(journal) if journal.knows(number) => {
                let known = self.stages.time(Stage::Hash, || journal.recall(number, &spectra))?;
                self.stages.moved(spectra.bytes());
                known
            }
            _ => Default::default(),
        };
        let recalled = known.0.iter().flatten().count() as u64;
        if recalled > 0 {
            self.tally.add(recalled);
        }
        Ok(Piece { number, spectra, known, recalled, hash: None })
    }

    /// Hands batches to the workers, or takes their rows from the journal.
    fn send(&mut self, (number, mut pieces): (usize, Vec<Piece>), jobs: &Sender<Job>, held: &mut BTreeMap<usize, Job>) {
        if pieces.iter().all(Piece::is_known) {
            let rows = pieces.iter_mut().map(|piece| piece.known.0.drain(..).flatten().collect()).collect();
            held.insert(number, Job { number, pieces, rows: Ok(rows), maker: Maker::Nobody });
        } else {
            // a worker that failed takes no more: its error is on its way
            let _ = jobs.send(Job { number, pieces, rows: Ok(Vec::new()), maker: Maker::Nobody });
        }
    }

    /// Writes its rows, and leaves its spectra.
    fn write(&mut self, job: Job) -> Result<Vec<Spectra<'static>>> {
        let Job { number, pieces, rows, maker } = job;
        self.stages.batch = number;
        let rows = rows?;
        let names: Vec<String> = pieces.iter().map(|piece| self.maker(piece, &maker)).collect();
        if let (Some(journal), Maker::Device(_)) = (&mut self.journal, maker) {
            let keep = || -> Result<()> {
                for ((piece, rows), name) in pieces.iter().zip(&rows).zip(&names) {
                    if let Some(hash) = piece.hash {
                        journal.keep((piece.number, hash), (rows, name))?;
                    }
                }
                journal.sync()
            };
            self.stages.time(Stage::Write, keep)?;
        }
        for ((piece, rows), name) in pieces.iter().zip(&rows).zip(names) {
            let count = rows.len() as u64;
            self.fits += count;
            self.interrupted += rows.iter().filter(|row| row.status == Status::Interrupted).count() as u64;
            match self.by_rows.last_mut() {
                Some((last, rows)) if *last == name => *rows += count,
                _ => self.by_rows.push((name, count)),
            }
            self.stages.time(Stage::Write, || self.sink.append(&piece.spectra, rows))?;
        }
        Ok(pieces.into_iter().map(|piece| piece.spectra).collect())
    }

    /// Counts the rows of a piece for who has made them, and names them.
    fn maker(&mut self, piece: &Piece, maker: &Maker) -> String {
        let earlier = piece.known.1.clone();
        match maker {
            Maker::Device(device) if !piece.is_known() => {
                let (name, rows) = &mut self.by_device[*device];
                *rows += piece.spectra.len() as u64 - piece.recalled;
                joined(earlier, name)
            }
            _ => earlier,
        }
    }
}

/// Returns the names of the makers of a batch that an earlier run began.
fn joined(earlier: String, now: &str) -> String {
    if earlier.is_empty() || earlier == now { now.into() } else { format!("{earlier} + {now}") }
}
