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

use web_time::Instant;

use super::profile::Measured;
use super::rest::{Known, complete};
use super::row::FitRow;
use super::run::Run;
use super::stages::{Stage, Stages};
use super::{Control, Fitter, Journal, Sink, Summary};
use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::solver::Device;
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
    /// What devices failed to do, in words.
    failures: Mutex<Vec<String>>,
}

impl<'a> Tally<'a> {
    fn new(control: &'a Control, total: u64) -> Tally<'a> {
        Tally { control, total, finished: Mutex::new(0), failures: Mutex::default() }
    }

    /// A batch has failed on a device, and is fitted again.
    pub fn failed(&self, message: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(message);
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

/// What is fitted together: a batch, or batches of small files; the rows of each when they are fitted, and who has done so.
struct Job {
    number: usize,
    pieces: Vec<Piece>,
    rows: Result<Vec<Vec<FitRow>>>,
    maker: Maker,
}

/// A batch, its place in the input, those of its rows that the journal knows and who made them.
struct Piece {
    number: usize,
    spectra: Spectra,
    known: (Known, String),
    /// How many it knows.
    recalled: u64,
}

impl Piece {
    fn is_known(&self) -> bool {
        self.recalled > 0 && self.recalled == self.spectra.len() as u64
    }
}

/// Who has made the rows of a batch that the journal does not know.
enum Maker {
    Nobody,
    /// A device of this run, by number; the CPU in the place of one that failed comes last.
    Device(usize),
}

/// Reads batches from `source`, has them fitted unless the journal knows them, appends their rows to `sink`.
pub fn stream(
    fitter: &Fitter,
    (source, sink): (&mut dyn SpectraReader, &mut dyn Sink),
    control: &Control,
    journal: Option<&mut Journal>,
) -> Result<Summary> {
    let tally = Tally::new(control, source.len());
    let devices = fitter.device.all();
    let shared = fitter.memory.is_none_or(|bytes| bytes >= SHARED_MEMORY);
    let sharing = if shared { SHARING } else { 1 };
    let begin = Instant::now();
    let measured = control.profile.then(|| Measured::new(&devices, begin));
    let mut runs = Vec::new();
    for number in 0..devices.len() * sharing {
        let device = number / sharing;
        let run = Run::new(fitter, devices[device].clone(), fitter.memory.map(|bytes| bytes / sharing as u64))?;
        let meter = measured.as_ref().map(|measured| measured.meter(device));
        runs.push(run.watched_by(&tally).measured_by(meter, begin));
    }
    let (jobs, waiting) = mpsc::channel();
    let waiting = Mutex::new(waiting);
    let (fitted, done) = mpsc::channel();
    thread::scope(|scope| {
        // one job more is read than can be fitted at once
        let most = runs.len() + 1;
        let workers: Vec<_> = runs
            .into_iter()
            .enumerate()
            .map(|(number, run)| {
                let (waiting, fitted, makers) = (&waiting, fitted.clone(), [number / sharing, devices.len()]);
                scope.spawn(move || work((makers, run), waiting, &fitted))
            })
            .collect();
        drop(fitted);
        let stages = Stages::since(measured.as_ref().map(|_| begin));
        let names = devices.iter().map(|device| device.name()).chain([CpuDevice.name()]);
        let by_device = names.map(|name| (name, 0)).collect();
        let batch = fitter.batch_on(&*devices[0]);
        let share = usize::try_from(source.len()).unwrap_or(usize::MAX).div_ceil(workers.len());
        let enough = share.min(batch / 2).max(1);
        let (pieces, fits, by_rows) = (0, 0, Vec::new());
        let tally = &tally;
        let mut ends = Ends { source, sink, journal, tally, stages, batch, enough, pieces, fits, by_device, by_rows };
        let result = ends.run(jobs, &done, most);
        if result.is_err() {
            // nobody wants what still waits
            let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            while waiting.try_recv().is_ok() {}
        }
        let Ends { stages, fits, mut by_device, by_rows, .. } = ends;
        if by_device.last().is_some_and(|(_, rows)| *rows == 0) {
            by_device.pop();
        }
        let mut threads = vec![stages];
        for worker in workers {
            match worker.join() {
                Ok(stages) => threads.push(stages),
                Err(panic) => panic::resume_unwind(panic),
            }
        }
        let mut stages = Stages::default();
        threads.iter().for_each(|thread| stages.add(thread));
        let profile = measured.map(|measured| measured.profile((fits, sharing), &threads));
        let failures = std::mem::take(&mut *tally.failures.lock().unwrap_or_else(PoisonError::into_inner));
        result.map(|()| Summary { fits, by_device, by_rows, failures, stages: stages.list(), profile })
    })
}

/// Fits batches until none waits, as the first of the makers, or as the second when the run's device has been replaced.
fn work((makers, mut run): ([usize; 2], Run), waiting: &Mutex<Receiver<Job>>, fitted: &Sender<Job>) -> Stages {
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut job) = job else { return run.stages };
        run.stages.batch = job.number;
        let known = |piece: &mut Piece| std::mem::take(&mut piece.known.0);
        let known: Vec<Known> = job.pieces.iter_mut().map(known).collect();
        let pieces = job.pieces.iter().map(|piece| &piece.spectra).zip(known).collect();
        let fit = || complete(pieces, |some| run.batch(some, None));
        let batch = panic::catch_unwind(AssertUnwindSafe(fit));
        let (rows, panic) = match batch {
            Ok(rows) => (rows, None),
            // who waits for the rows must not wait for ever
            Err(panic) => (Err(Error::Usage("a worker panicked".into())), Some(panic)),
        };
        let failed = rows.is_err();
        (job.rows, job.maker) = (rows, Maker::Device(makers[usize::from(run.is_replaced)]));
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
    journal: Option<&'a mut Journal>,
    tally: &'a Tally<'a>,
    stages: Stages,
    /// Spectra of a batch.
    batch: usize,
    /// Spectra of small files that are fitted together: half a batch, unless some worker had none then.
    enough: usize,
    /// Batches read.
    pieces: usize,
    fits: u64,
    /// Those that the journal did not know.
    by_device: Vec<(String, u64)>,
    by_rows: Vec<(String, u64)>,
}

impl Ends<'_> {
    /// At most `most` jobs are between the ends.
    fn run(&mut self, jobs: Sender<Job>, done: &Receiver<Job>, most: usize) -> Result<()> {
        let (mut read, mut written, mut more) = (0, 0, true);
        let mut held = BTreeMap::new();
        loop {
            while more && read - written < most {
                self.stages.batch = read;
                let pieces;
                (pieces, more) = self.read()?;
                if !pieces.is_empty() {
                    self.send((read, pieces), &jobs, &mut held);
                    read += 1;
                }
            }
            while let Some(job) = held.remove(&written) {
                self.write(job)?;
                written += 1;
            }
            if !more && read == written {
                return Ok(());
            }
            if read - written == most || !more {
                let job = done.recv().map_err(|_| Error::Usage("no worker is left".into()))?;
                held.insert(job.number, job);
            }
        }
    }

    /// The next batch; where files are small some of them. And whether more may come.
    fn read(&mut self) -> Result<(Vec<Piece>, bool)> {
        let (mut pieces, mut spectra) = (Vec::new(), 0);
        while spectra < self.enough {
            let Some(next) = self.stages.time(Stage::Read, || self.source.next_batch(self.batch))? else {
                return Ok((pieces, false));
            };
            spectra += next.len();
            let number = self.pieces;
            let known = self.journal.as_mut().map(|journal| journal.recall(number, &next)).transpose()?;
            let known = known.unwrap_or_default();
            let recalled = known.0.iter().flatten().count() as u64;
            if recalled > 0 {
                self.tally.add(recalled);
            }
            pieces.push(Piece { number, spectra: next, known, recalled });
            self.pieces += 1;
        }
        Ok((pieces, true))
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

    fn write(&mut self, job: Job) -> Result<()> {
        let Job { number, pieces, rows, maker } = job;
        self.stages.batch = number;
        let rows = rows?;
        let names: Vec<String> = pieces.iter().map(|piece| self.maker(piece, &maker)).collect();
        if let (Some(journal), Maker::Device(_)) = (&mut self.journal, maker) {
            let keep = || -> Result<()> {
                for ((piece, rows), name) in pieces.iter().zip(&rows).zip(&names).filter(|((p, _), _)| !p.is_known()) {
                    journal.keep(piece.number, &piece.spectra, (rows, name))?;
                }
                journal.sync()
            };
            self.stages.time(Stage::Write, keep)?;
        }
        for ((piece, rows), name) in pieces.iter().zip(&rows).zip(names) {
            let count = rows.len() as u64;
            self.fits += count;
            match self.by_rows.last_mut() {
                Some((last, rows)) if *last == name => *rows += count,
                _ => self.by_rows.push((name, count)),
            }
            self.stages.time(Stage::Write, || self.sink.append(&piece.spectra, rows))?;
        }
        Ok(())
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

/// Who has made a batch that an earlier run began.
fn joined(earlier: String, now: &str) -> String {
    if earlier.is_empty() || earlier == now { now.into() } else { format!("{earlier} + {now}") }
}
