//! The content of a journal's file when a run opens it.

#![deny(clippy::indexing_slicing)] // numbers in a file may be anything

use std::collections::BTreeMap;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::Path;

use super::frame::{self, ReadRecord};
use super::head;
use super::outputs::OutputState;
use super::{KnownBatch, Record};
use crate::io::files::File;

/// The content of a journal.
#[derive(Default)]
pub struct JournalContent {
    /// Inputs of the rows; `None` for a file without a whole head.
    pub key: Option<String>,
    /// One of the two copies of the head is damaged.
    pub head_is_damaged: bool,
    pub known: BTreeMap<usize, KnownBatch>,
    /// Offset at which the last whole record ends.
    pub end: u64,
    pub outputs: Vec<OutputState>,
    /// Number of damaged bytes of records.
    damaged_bytes: u64,
    /// Number of known rows.
    known_rows: usize,
}

impl JournalContent {
    /// Returns a message with the numbers of damaged bytes and of kept rows; `None` without damage.
    pub fn describe_damage(&self, path: &Path) -> Option<String> {
        let path = path.display();
        let kept = match (self.known_rows, self.known.len()) {
            (0, _) => "nothing is kept, and all spectra are fitted again".to_string(),
            (rows, 1) => {
                format!("{rows} rows of 1 batch are kept, and all other spectra are fitted again")
            }
            (rows, batches) => format!(
                "{rows} rows of {batches} batches are kept, and all other spectra are fitted again"
            ),
        };
        let records = (self.damaged_bytes > 0)
            .then(|| format!("{} bytes are damaged: {kept}", self.damaged_bytes));
        let head = self
            .head_is_damaged
            .then_some("one copy of its head is damaged, and is written again");
        match (head, records) {
            (None, None) => None,
            (Some(head), None) => Some(format!("{path}: {head}: no row is lost")),
            (None, Some(records)) => Some(format!("{path}: {records}")),
            (Some(head), Some(records)) => Some(format!("{path}: {head}; {records}")),
        }
    }
}

/// Reads a journal's key, outputs and offsets of batches, record by record. Returns a message if the file is no journal
/// of this version, or if its head is damaged. Such a file is not changed.
pub fn read_journal(file: &mut File) -> std::io::Result<Result<JournalContent, &'static str>> {
    // 1. Read the head.
    let length = file.length()?;
    let mut file = BufReader::new(file);
    let head = match head::read_head(&mut file, length)? {
        Err(message) => return Ok(Err(message)),
        Ok(None) => return Ok(Ok(JournalContent::default())),
        Ok(Some(head)) => head,
    };
    let mut content = JournalContent {
        key: Some(head.key),
        head_is_damaged: head.is_damaged,
        end: head.end,
        ..JournalContent::default()
    };
    // 2. Read the records. A later record of a batch replaces an earlier one.
    let mut offset = content.end;
    let mut rows_by_batch = BTreeMap::new();
    file.seek(SeekFrom::Start(offset))?;
    loop {
        let bytes_left = length.saturating_sub(offset);
        let (bytes, record) = match frame::read_record(&mut file, bytes_left)? {
            ReadRecord::Torn => break,
            ReadRecord::Damaged(bytes) => (bytes, None),
            ReadRecord::Whole(payload) => (frame::record_length(&payload), Record::read(&payload)),
        };
        match record {
            Some(Record::Batch(batch)) => {
                let rows = batch.rows.count_finished();
                let known_batch = KnownBatch {
                    offset,
                    is_complete: rows == batch.rows.len(),
                };
                content.known.insert(batch.number, known_batch);
                rows_by_batch.insert(batch.number, rows);
                content.end = offset + bytes;
            }
            Some(Record::Outputs(outputs)) => {
                content.outputs = outputs;
                content.end = offset + bytes;
            }
            None => content.damaged_bytes += bytes,
        }
        offset += bytes;
    }
    content.known_rows = rows_by_batch.values().sum();
    Ok(Ok(content))
}
