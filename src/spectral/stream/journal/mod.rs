//! The write-ahead journal of a run, a file beside its output. The rows of each fitted batch are kept there before they
//! are written to the output, so that a killed run can be resumed.
//!
//! The file begins with two copies of its head (`head.rs`): the version of the format, and all inputs of the rows as
//! text, so that an error message can quote the first difference. Records follow (`frame.rs`). Each holds one
//! batch (`rows.rs`), or the states of the outputs (`outputs.rs`), in the format of the crate postcard. A torn record
//! ends the journal. A damaged one is reported, and its rows are lost. Later rows are lost only if its length is
//! damaged too.
//!
//! `--resume` runs the same stream again. Batches that are in the journal, and whose spectra have the same hash, take
//! their rows from it, so that the output has the bytes of an uninterrupted run. Only batches in flight are lost when a
//! run is killed. The lock on the journal's file prevents a second run with the same output, and ends with the process.
//! An interrupted run leaves a journal even without rows, because it records the states of the outputs.

#![deny(clippy::indexing_slicing)] // numbers in a file may be anything

mod fingerprint;
mod found;
mod frame;
mod head;
mod key;
mod outputs;
mod rows;
#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests;

use std::collections::BTreeMap;
use std::io::{BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cpu::instruction_set;
use crate::error::{Error, Result};
use crate::io::files::{self, File, Lock};
#[cfg(feature = "files")]
use crate::io::output::OutputRecord;
use crate::spectra::Spectra;
use crate::spectral::results::row::FitRow;
pub(super) use fingerprint::{Hash, fingerprint};
use found::read_journal;
use frame::{ReadRecord, frame_payload};
use key::JournalKey;
use outputs::{OutputState, find_changed, read_states};
use rows::{BatchRecord, KeptRows};

/// A record after the first one.
#[derive(Serialize, Deserialize)]
enum Record {
    /// States of the outputs at the start of the run, before files are renamed, or after the run has written them.
    Outputs(Vec<OutputState>),
    /// A batch.
    Batch(BatchRecord),
}

impl Record {
    /// Reads a record; `None` if it is damaged.
    fn read(payload: &[u8]) -> Option<Record> {
        postcard::from_bytes(payload).ok()
    }
}

/// Maximum number of attempts to lock a journal that other runs remove and create meanwhile.
const MAX_LOCK_ATTEMPTS: usize = 10;

/// The last record of a batch.
#[derive(Clone, Copy, Debug)]
struct KnownBatch {
    /// Offset in the file at which the record begins.
    offset: u64,
    /// The record has all rows of the batch.
    is_complete: bool,
}

/// The rows that a run has fitted so far. While the journal is open, no other run can write the same output.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// The batches of which the journal has rows, by their index in the input.
    known: BTreeMap<usize, KnownBatch>,
    /// The journal holds rows that are not in an output.
    has_rows: bool,
    /// The file is not removed when the journal is closed.
    keeps_file: bool,
    /// Message about damaged records.
    damage: Option<String>,
    /// States of the outputs as they were last recorded.
    outputs: Vec<OutputState>,
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.keeps_file {
            // An empty journal that cannot be removed does no harm.
            let _ = files::remove(&self.path);
        }
    }
}

impl Journal {
    /// Opens and locks the journal of the output `target`, `.NAME.journal` beside it, for a new or (with `resume`) the
    /// same run `key`. `key` has all inputs of the rows except the spectra, one per line. With `resume` the rows of an
    /// earlier run are used. The instruction set of the processor, on which the last bits of the rows depend, is added
    /// to the key.
    ///
    /// # Errors
    /// Returns [`Error::OutputLocked`] while another run has it open, and [`Error::Io`]. Returns [`Error::Journal`] if
    /// the file is no journal of this version or its head is damaged, if it holds rows and `resume` is false, or if
    /// `resume` is true and the journal has another key. The message then has the first line in which the keys differ.
    pub fn open(target: &Path, key: &str, resume: bool) -> Result<Journal> {
        Journal::open_on(&instruction_set(), target, key, resume)
    }

    /// Opens and locks the journal of an output as [`open`](Journal::open) does, on a processor with this instruction
    /// set.
    fn open_on(instruction_set: &str, target: &Path, key: &str, resume: bool) -> Result<Journal> {
        // 1. Lock and read the file.
        let path = journal_path(target);
        let mut file = open_and_lock(&path, target)?;
        let content = match read_journal(&mut file).map_err(Error::io(&path))? {
            Ok(content) => content,
            Err(message) => {
                return Err(Error::Journal {
                    path,
                    message: message.into(),
                });
            }
        };
        // 2. Refuse rows of a run that is not resumed, or of another run.
        let has_rows = !content.known.is_empty();
        if has_rows && !resume {
            let message = "it holds what an interrupted run has fitted: resume that run, or remove this file to begin anew";
            return Err(Error::Journal {
                path,
                message: message.into(),
            });
        }
        let key = JournalKey {
            instruction_set,
            inputs: key,
        };
        if resume
            && let Some(earlier_key) = &content.key
            && let Some(message) = JournalKey::parse(earlier_key).explain_mismatch(&key)
        {
            return Err(Error::Journal { path, message });
        }
        // 3. Continue the file, or begin it anew. A journal without rows may still record which outputs are its own.
        let damage = content.describe_damage(&path);
        let continues = has_rows || (resume && content.key.is_some());
        let mut journal = Journal {
            path,
            file,
            known: content.known,
            has_rows,
            keeps_file: continues,
            damage,
            outputs: content.outputs,
        };
        let end = if continues { content.end } else { 0 };
        let needs_head = !continues || content.head_is_damaged;
        journal
            .truncate_and_write_head(end, needs_head.then_some(&key))
            // An error of the folder is reported for the output.
            .map_err(Error::writing(target))?;
        Ok(journal)
    }

    /// Truncates the file at `end` and, with a key, writes the head of a journal.
    fn truncate_and_write_head(
        &mut self,
        end: u64,
        key: Option<&JournalKey>,
    ) -> std::io::Result<()> {
        self.file.set_len(end)?;
        let Some(key) = key else { return Ok(()) };
        self.file.rewind()?;
        self.file.write_all(&head::two_copies(&key.text()))?;
        self.file.sync()?;
        files::sync_folder(&self.path)
    }

    /// Returns whether a run can be resumed: the journal holds rows, and its file was not removed meanwhile.
    pub fn has_rows(&self) -> bool {
        self.has_rows && self.path.exists()
    }

    /// Records the outputs' sizes and times before a run. Unless `overwrite`, fails if one exists that is not in its
    /// recorded state: a resumed run may replace only outputs that it has written itself or was allowed to replace.
    ///
    /// # Errors
    /// Returns [`Error::OutputExists`] for a file that was made or changed since the journal recorded it, and
    /// [`Error::Io`].
    pub fn claim_outputs(&mut self, outputs: &[PathBuf], overwrite: bool) -> Result<()> {
        if !overwrite && let Some(path) = find_changed(outputs, &self.outputs) {
            return Err(Error::OutputExists { path: path.clone() });
        }
        self.record_outputs(outputs)
    }

    /// Records the sizes and times of the outputs after the run has written them.
    ///
    /// # Errors
    /// Returns [`Error::Io`].
    pub fn record_outputs(&mut self, outputs: &[PathBuf]) -> Result<()> {
        self.outputs = read_states(outputs);
        self.append_output_states()
    }

    /// Appends the known states of the outputs to the file and waits until they are on the disk.
    fn append_output_states(&mut self) -> Result<()> {
        self.append_record(&Record::Outputs(self.outputs.clone()))?;
        self.sync()
    }

    /// Returns whether an output has a journal beside it, so that the run that writes it has not ended.
    pub fn is_beside(target: &Path) -> bool {
        journal_path(target).exists()
    }

    /// Returns a message about damaged records that were found when the journal was opened, and about lost rows. Torn
    /// records of a killed run are no damage.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Returns the number of batches of which the journal has the rows of all spectra.
    pub fn len(&self) -> usize {
        self.known
            .values()
            .filter(|batch| batch.is_complete)
            .count()
    }

    /// Returns whether there is no batch of which the journal has the rows of all spectra.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the journal has rows of batch `number`.
    pub(super) fn has_rows_of(&self, number: usize) -> bool {
        self.known.contains_key(&number)
    }

    /// Reads the rows of batch `number`, one per spectrum (`None`: not finished), and the name of the device that made
    /// them. Returns `None` if the rows are of other spectra, which have to be fitted.
    ///
    /// # Errors
    /// Returns [`Error::Io`], and [`Error::Journal`] if the record was damaged since the journal was opened.
    pub(super) fn recall_rows(
        &mut self,
        number: usize,
        spectra: &Spectra,
    ) -> Result<Option<(Vec<Option<FitRow>>, String)>> {
        let Some(KnownBatch { offset, .. }) = self.known.remove(&number) else {
            return Ok(None);
        };
        // 1. Read the record.
        let read = self.read_record_at(offset).map_err(Error::io(&self.path))?;
        let record = match read {
            ReadRecord::Whole(payload) => Record::read(&payload),
            _ => None,
        };
        let Some(Record::Batch(batch)) = record else {
            return Err(self.fault(format!("batch {number} was damaged meanwhile")));
        };
        // 2. Rows of other spectra are of no use.
        if batch.spectra != fingerprint(spectra) || batch.rows.len() != spectra.len() {
            return Ok(None);
        }
        let mut rows = batch
            .rows
            .into_rows()
            .map_err(|message| self.fault(message))?;
        for row in rows.iter_mut().flatten() {
            row.file = spectra.file.clone();
        }
        Ok(Some((rows, batch.device)))
    }

    /// Reads the record at an offset of the file.
    fn read_record_at(&mut self, offset: u64) -> std::io::Result<ReadRecord> {
        let mut file = BufReader::new(&mut self.file);
        let length = file.get_ref().length();
        file.seek(SeekFrom::Start(offset))?;
        frame::read_record(&mut file, length?.saturating_sub(offset))
    }

    /// Returns the error with a message about the journal.
    fn fault(&self, message: String) -> Error {
        Error::Journal {
            path: self.path.clone(),
            message,
        }
    }

    /// Appends the rows of a batch, except those of interrupted fits, to the file. They are safe once
    /// [`sync`](Journal::sync) has returned. `spectra` is the hash of the spectra.
    pub(super) fn keep_rows(
        &mut self,
        number: usize,
        spectra: Hash,
        rows: &[FitRow],
        device: &str,
    ) -> Result<()> {
        let rows = KeptRows::new(rows);
        if rows.count_finished() == 0 {
            return Ok(());
        }
        self.append_record(&Record::Batch(BatchRecord {
            number,
            spectra,
            rows,
            device: device.into(),
        }))?;
        self.has_rows = true;
        self.keeps_file = true;
        Ok(())
    }

    /// Appends a record to the journal's file.
    fn append_record(&mut self, record: &Record) -> Result<()> {
        let payload = postcard::to_stdvec(record).map_err(|error| self.fault(error.to_string()))?;
        self.file
            .seek(SeekFrom::End(0))
            .and_then(|_| self.file.write_all(&frame_payload(&payload)))
            .map_err(Error::writing(&self.path))
    }

    /// Waits until all records are on the disk.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(Error::writing(&self.path))
    }

    /// Closes the journal of an interrupted run, and keeps its file. Its file stays even without rows, so that the run
    /// can be resumed.
    pub fn leave(mut self) {
        self.keeps_file = true;
    }

    /// Closes the journal after the output is complete, and removes its file.
    ///
    /// # Errors
    /// Returns [`Error::Write`] or [`Error::Io`] if the file cannot be removed. The output is complete all the same.
    pub fn remove(mut self) -> Result<()> {
        self.keeps_file = true;
        files::remove(&self.path).map_err(Error::io(&self.path))
    }
}

/// Returns the path of the journal of an output.
fn journal_path(target: &Path) -> PathBuf {
    let name = target
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    target.with_file_name(format!(".{name}.journal"))
}

/// Opens or creates the journal's file, and locks it. Fails if another run has locked it. On a file system without
/// locks it is not locked.
fn open_and_lock(path: &Path, target: &Path) -> Result<File> {
    let locked_error = || Error::OutputLocked {
        path: target.to_path_buf(),
    };
    for _ in 0..MAX_LOCK_ATTEMPTS {
        // 1. Another kind of file, such as a pipe, would be removed at the end.
        let is_special = path
            .metadata()
            .is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
        // If the journal exists, an error is reported for it, and not for the output.
        let reported_path = if path.exists() { path } else { target };
        if is_special {
            let source = std::io::Error::other("what stands there is no file");
            return Err(Error::writing(path)(source));
        }
        // 2. Lock the file.
        let file = File::open_or_create(path).map_err(Error::writing(reported_path))?;
        if file.lock().map_err(Error::writing(target))? == Lock::Taken {
            return Err(locked_error());
        }
        // 3. The run that had locked the file may have removed it meanwhile, and another one may have created its own.
        if file.is_at(path) {
            return Ok(file);
        }
    }
    Err(locked_error())
}

#[cfg(feature = "files")]
impl OutputRecord for Journal {
    /// Records the temporary file: the output may be in its recorded state, or be this file, because a rename keeps
    /// length and time.
    fn expect_output(&mut self, output: &Path, temporary: &Path) {
        outputs::expect_rename(&mut self.outputs, output, temporary);
    }

    fn record_states(&mut self) -> Result<()> {
        self.append_output_states()
    }
}
