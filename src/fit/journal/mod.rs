//! The journal of a run, beside its output: each batch that is fitted is kept there before its rows are written, so
//! that a run that was killed can go on.
//!
//! The file begins with a line that says what it is. Records follow (`frame.rs`). The first holds all that the rows
//! depend on, as text, so that a refusal can quote the first difference. The others hold one batch each, or how the
//! outputs stand (`outputs.rs`), in the format of the crate postcard. A torn record ends the journal. A damaged one is
//! reported and costs its own rows, and no more unless its length is damaged, too.
//!
//! `--resume` runs the same stream again. Batches that the journal knows, and whose spectra have the same hash, take
//! their rows from it, so that the output has the bytes of an uninterrupted run. A kill thus costs the batches in
//! flight. The lock on the journal's file keeps a second run away from the output, and ends with the process. An
//! interrupted run leaves a journal even without rows, because it says in which state the outputs were.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

mod fingerprint;
mod frame;
mod outputs;
#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests;

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::row::FitRow;
use crate::error::{Error, Result};
use crate::files::{self, File, Lock};
use crate::solver::Status;
use crate::spectra::Spectra;
pub(super) use fingerprint::{Hash, fingerprint};
use frame::{Frame, frame};
use outputs::{OutputState, first_changed, states};

const MAGIC: &[u8] = b"popfit journal 10\n";

/// Record that follows the head.
#[derive(Serialize, Deserialize)]
enum Record {
    Batch(Batch),
    /// The run's outputs at its start, before they are renamed, or after it has written them.
    Outputs(Vec<OutputState>),
}

/// One batch.
#[derive(Serialize, Deserialize)]
struct Batch {
    /// Its place in the input.
    number: usize,
    /// Hash of its spectra.
    spectra: Hash,
    /// One a spectrum; none of those whose fits were interrupted.
    rows: Vec<Option<FitRow>>,
    /// Name of the device that made the rows.
    device: String,
}

/// Rows that a run has fitted so far. While the journal is open, no other run can write the same output.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// By number: where the batch's last record begins, and whether it has all rows.
    known: BTreeMap<usize, (u64, bool)>,
    /// It holds rows that are nowhere else.
    has_rows: bool,
    /// The file stays when the journal is closed.
    stays: bool,
    damage: Option<String>,
    /// The outputs as they were last recorded.
    outputs: Vec<OutputState>,
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.stays {
            // an empty journal that cannot be removed harms nobody
            let _ = files::remove(&self.path);
        }
    }
}

impl Journal {
    /// Opens the journal of the output `target`, `.NAME.journal` beside it. `key` is all that the rows depend on but
    /// the spectra themselves, a line each. With `resume`, what it holds is taken up.
    ///
    /// # Errors
    /// Returns [`Error::OutputLocked`] while another run has it open, and [`Error::Io`]. Returns [`Error::Journal`] if
    /// the file is no journal of this version or its head is damaged, if it holds rows and `resume` is false, or if
    /// `resume` meets the journal of another run; the message then has the first line in which the keys differ.
    pub fn open(target: &Path, key: &str, resume: bool) -> Result<Journal> {
        let path = beside(target);
        // what is wrong with the folder is said of the output
        let io = Error::writing(target);
        let mut file = lock(&path, target)?;
        let found = match read(&mut file).map_err(Error::io(&path))? {
            Ok(found) => found,
            Err(message) => return Err(Error::Journal { path, message: message.into() }),
        };
        let has_rows = !found.known.is_empty();
        if has_rows && !resume {
            let message =
                "it holds what an interrupted run has fitted: resume that run, or remove this file to begin anew";
            return Err(Error::Journal { path, message: message.into() });
        }
        // one without rows may be the proof of whose an output is
        if resume && !found.key.is_empty() && found.key != key {
            let message = format!("it is of another run: {}", difference(&found.key, key));
            return Err(Error::Journal { path, message });
        }
        let damage = found.damage(&path);
        let stays = has_rows || (resume && found.key == key);
        let (known, outputs) = (found.known, found.outputs);
        let mut journal = Journal { path, file, known, has_rows, stays, damage, outputs };
        journal.begin(if stays { found.end } else { 0 }, key).map_err(io)?;
        Ok(journal)
    }

    /// Cuts what no record follows; an empty journal gets its head.
    fn begin(&mut self, end: u64, key: &str) -> std::io::Result<()> {
        self.file.set_len(end)?;
        if end > 0 {
            return Ok(());
        }
        self.file.rewind()?;
        self.file.write_all(&[MAGIC, &frame(key.as_bytes())].concat())?;
        self.file.sync()?;
        files::sync_folder(&self.path)
    }

    /// Returns whether a run that resumes would find something: it holds rows, and nobody has removed it meanwhile.
    pub fn has_rows(&self) -> bool {
        self.has_rows && self.path.exists()
    }

    /// Records how the run's outputs stand before it begins. A run that goes on may replace what its journal has
    /// recorded, that is, what it has written itself or was allowed to replace. `overwrite` allows any file.
    ///
    /// # Errors
    /// [`Error::OutputExists`] for a file that has come or changed since the journal recorded it; [`Error::Io`].
    pub fn claim_outputs(&mut self, outputs: &[PathBuf], overwrite: bool) -> Result<()> {
        if !overwrite && let Some(path) = first_changed(outputs, &self.outputs) {
            return Err(Error::OutputExists { path: path.clone() });
        }
        self.record_outputs(outputs)
    }

    /// Records how the run's outputs stand after it has written them.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn record_outputs(&mut self, outputs: &[PathBuf]) -> Result<()> {
        self.outputs = states(outputs);
        self.append(&Record::Outputs(self.outputs.clone()))?;
        self.sync()
    }

    /// Records files that are whole and are about to take the names of outputs. Each pair is the output and the
    /// temporary file. From now on an output is the run's own if it is as it was recorded before, or is this file: a
    /// rename keeps length and time.
    ///
    /// # Errors
    /// [`Error::Io`].
    #[cfg(feature = "files")]
    pub(crate) fn record_staged<'p>(&mut self, staged: impl Iterator<Item = (&'p Path, &'p Path)>) -> Result<()> {
        staged.for_each(|(output, temporary)| outputs::expect(&mut self.outputs, output, temporary));
        self.append(&Record::Outputs(self.outputs.clone()))?;
        self.sync()
    }

    /// Tells whether an output has a journal beside it: the run that writes it has not come to its end.
    pub fn is_beside(target: &Path) -> bool {
        beside(target).exists()
    }

    /// Describes the damage that was found when the journal was opened, and its cost. Records that a killed run has
    /// torn are no damage.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Batches of which nothing need be fitted again.
    pub fn len(&self) -> usize {
        self.known.values().filter(|(_, is_whole)| *is_whole).count()
    }

    /// Returns whether it knows no such batch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether it has rows of a batch.
    pub(super) fn knows(&self, number: usize) -> bool {
        self.known.contains_key(&number)
    }

    /// The rows of a batch that have been fitted, one place a spectrum, and the device that made them; nothing where
    /// none has been. [`Error::Journal`] when its spectra have changed since.
    pub(super) fn recall(&mut self, number: usize, spectra: &Spectra) -> Result<(Vec<Option<FitRow>>, String)> {
        let Some((at, _)) = self.known.remove(&number) else { return Ok(Default::default()) };
        let failed = |message: String| Error::Journal { path: self.path.clone(), message };
        let mut file = BufReader::new(&mut self.file);
        let length = file.get_ref().length();
        let seek = file.seek(SeekFrom::Start(at)).and(length);
        let frame = seek.and_then(|length| frame::read(&mut file, length.saturating_sub(at)));
        let record = match frame.map_err(Error::io(&self.path))? {
            Frame::Whole(payload) => postcard::from_bytes::<Record>(&payload).ok(),
            _ => None,
        };
        let Some(Record::Batch(mut record)) = record else {
            return Err(failed(format!("batch {number} was damaged meanwhile")));
        };
        if record.spectra != fingerprint(spectra) || record.rows.len() != spectra.len() {
            return Err(failed(format!("the spectra of {} have changed since they were fitted", spectra.file)));
        }
        record.rows.iter_mut().flatten().for_each(|row| row.file = spectra.file.clone());
        Ok((record.rows, record.device))
    }

    /// Keeps the rows of a batch, but for those of interrupted fits; for good once [`sync`](Journal::sync) has
    /// returned. The hash is that of its spectra.
    pub(super) fn keep(&mut self, (number, spectra): (usize, Hash), (rows, device): (&[FitRow], &str)) -> Result<()> {
        let finished = |row: &FitRow| (row.status != Status::Interrupted).then(|| row.clone());
        let rows: Vec<Option<FitRow>> = rows.iter().map(finished).collect();
        if rows.iter().all(Option::is_none) {
            return Ok(());
        }
        self.append(&Record::Batch(Batch { number, spectra, rows, device: device.into() }))?;
        (self.has_rows, self.stays) = (true, true);
        Ok(())
    }

    /// Writes a record at the end.
    fn append(&mut self, record: &Record) -> Result<()> {
        let failed = |message: String| Error::Journal { path: self.path.clone(), message };
        let payload = postcard::to_stdvec(record).map_err(|error| failed(error.to_string()))?;
        let written = self.file.seek(SeekFrom::End(0)).and_then(|_| self.file.write_all(&frame(&payload)));
        written.map_err(Error::writing(&self.path))
    }

    /// Waits until all that is kept is on the disk.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(Error::writing(&self.path))
    }

    /// The run has been interrupted: the journal stays even without rows, so that the run can go on.
    pub fn leave(mut self) {
        self.stays = true;
    }

    /// The output is whole: the journal goes.
    pub fn remove(mut self) {
        self.stays = false;
    }
}

fn beside(target: &Path) -> PathBuf {
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    target.with_file_name(format!(".{name}.journal"))
}

/// Opens the journal's file, which nobody else has open. A file system without locks does without.
fn lock(path: &Path, target: &Path) -> Result<File> {
    let locked = || Error::OutputLocked { path: target.to_path_buf() };
    for _ in 0..10 {
        // what is wrong with a journal that is there is not the output's fault
        let blamed = if path.exists() { path } else { target };
        // a pipe would be removed at the end, as if it were ours
        if path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            let source = std::io::Error::other("what stands there is no file");
            return Err(Error::writing(path)(source));
        }
        let file = File::open_or_create(path).map_err(Error::writing(blamed))?;
        if file.lock().map_err(Error::writing(target))? == Lock::Taken {
            return Err(locked());
        }
        // who had it may have removed it in between
        if path.exists() {
            return Ok(file);
        }
    }
    Err(locked())
}

/// A journal's head, its batches and where they end.
#[derive(Default)]
struct Found {
    key: String,
    known: BTreeMap<usize, (u64, bool)>,
    end: u64,
    outputs: Vec<OutputState>,
    /// Bytes that are no record and should be.
    damaged: u64,
    /// Number of rows that are known.
    rows: usize,
}

impl Found {
    fn damage(&self, path: &Path) -> Option<String> {
        let kept = match (self.rows, self.known.len()) {
            (0, _) => "nothing is kept, and all spectra are fitted again".to_string(),
            (rows, batches) => {
                let batches = if batches == 1 { "1 batch".into() } else { format!("{batches} batches") };
                format!("{rows} rows of {batches} are kept, and all other spectra are fitted again")
            }
        };
        (self.damaged > 0).then(|| format!("{}: {} bytes are damaged: {kept}", path.display(), self.damaged))
    }
}

/// Reads what a journal holds, a record at a time. A file that is none, or whose head is damaged, is not touched: the
/// message says so.
fn read(file: &mut File) -> std::io::Result<std::result::Result<Found, &'static str>> {
    let length = file.length()?;
    let mut file = BufReader::new(file);
    let mut magic = vec![0; MAGIC.len().min(usize::try_from(length).unwrap_or(usize::MAX))];
    file.read_exact(&mut magic)?;
    if !MAGIC.starts_with(&magic) {
        return Ok(Err("it is no journal of this version of popfit: remove it if nobody needs it"));
    }
    let mut at = magic.len() as u64;
    let mut found = match frame::read(&mut file, length - at)? {
        Frame::Torn => return Ok(Ok(Found::default())),
        Frame::Damaged(_) => return Ok(Err("its head is damaged: remove it to begin anew")),
        Frame::Whole(key) => {
            at += frame::length(&key);
            Found { key: String::from_utf8_lossy(&key).into_owned(), end: at, ..Found::default() }
        }
    };
    // how many rows of each batch
    let mut rows = BTreeMap::new();
    loop {
        let bytes = match frame::read(&mut file, length - at)? {
            Frame::Torn => break,
            Frame::Damaged(bytes) => {
                found.damaged += bytes;
                bytes
            }
            Frame::Whole(payload) => {
                let bytes = frame::length(&payload);
                match postcard::from_bytes::<Record>(&payload) {
                    Ok(record) => {
                        found.end = at + bytes;
                        match record {
                            Record::Batch(batch) => {
                                let finished = batch.rows.iter().flatten().count();
                                found.known.insert(batch.number, (at, finished == batch.rows.len()));
                                rows.insert(batch.number, finished);
                            }
                            Record::Outputs(outputs) => found.outputs = outputs,
                        }
                    }
                    Err(_) => found.damaged += bytes,
                }
                bytes
            }
        };
        at += bytes;
    }
    found.rows = rows.values().sum();
    Ok(Ok(found))
}

/// The first line in which two keys differ.
fn difference(before: &str, now: &str) -> String {
    /// Most characters of a line that are shown.
    const MOST: usize = 120;
    let line = |line: Option<&str>| match line {
        Some(line) if line.chars().count() > MOST => format!("`{}…`", line.chars().take(MOST).collect::<String>()),
        Some(line) => format!("`{line}`"),
        None => "nothing".into(),
    };
    let [mut before, mut now] = [before, now].map(|key| key.lines().filter(|line| !line.trim().is_empty()));
    loop {
        match (before.next(), now.next()) {
            (Some(a), Some(b)) if a == b => {}
            (None, None) => return "empty lines of the model file differ".into(),
            (a, b) => return format!("it has {} where this one has {}", line(a), line(b)),
        }
    }
}
