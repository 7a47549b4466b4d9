//! The content of a journal's file, as a run finds it.

#![deny(clippy::indexing_slicing)] // numbers in a file may be anything

use std::collections::BTreeMap;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::Path;

use super::frame::{self, Frame};
use super::head::{self, Head};
use super::outputs::OutputState;
use super::{KnownBatch, Record};
use crate::io::files::File;

/// The content of a journal.
#[derive(Default)]
pub struct Found {
    /// Inputs of the rows; `None` for a file without a whole head.
    pub key: Option<String>,
    /// One of the two copies of the head is damaged.
    pub head_is_damaged: bool,
    pub known: BTreeMap<usize, KnownBatch>,
    /// Offset at which the last whole record ends.
    pub end: u64,
    pub outputs: Vec<OutputState>,
    /// Number of damaged bytes of records.
    damaged: u64,
    /// Number of known rows.
    rows: usize,
}

impl Found {
    /// Returns a message that says how many bytes are damaged and how many rows are kept; `None` without damage.
    pub fn damage(&self, path: &Path) -> Option<String> {
        let path = path.display();
        let kept = match (self.rows, self.known.len()) {
            (0, _) => "nothing is kept, and all spectra are fitted again".to_string(),
            (rows, batches) => {
                let batches = if batches == 1 {
                    "1 batch".into()
                } else {
                    format!("{batches} batches")
                };
                format!("{rows} rows of {batches} are kept, and all other spectra are fitted again")
            }
        };
        let records =
            (self.damaged > 0).then(|| format!("{} bytes are damaged: {kept}", self.damaged));
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

/// Reads a journal's key, outputs and places of batches, record by record, or says why it is no usable journal. Returns
/// a message if the file is no journal of this version, or if its head is damaged. Such a file is not changed.
pub fn read(file: &mut File) -> std::io::Result<Result<Found, &'static str>> {
    // 1. Read the head.
    let length = file.length()?;
    let mut file = BufReader::new(file);
    let mut found = match head::read(&mut file, length)? {
        Err(message) => return Ok(Err(message)),
        Ok(None) => return Ok(Ok(Found::default())),
        Ok(Some(Head {
            key,
            end,
            is_damaged,
        })) => Found {
            key: Some(key),
            head_is_damaged: is_damaged,
            end,
            ..Found::default()
        },
    };
    // 2. Read the records. A later record of a batch replaces an earlier one.
    let (mut at, mut rows) = (found.end, BTreeMap::new());
    file.seek(SeekFrom::Start(at))?;
    loop {
        let (bytes, record) = match frame::read(&mut file, length.saturating_sub(at))? {
            Frame::Torn => break,
            Frame::Damaged(bytes) => (bytes, None),
            Frame::Whole(payload) => (frame::length(&payload), Record::read(&payload)),
        };
        match record {
            Some(Record::Batch(batch)) => {
                let is_complete = batch.rows.finished() == batch.rows.len();
                found.known.insert(
                    batch.number,
                    KnownBatch {
                        offset: at,
                        is_complete,
                    },
                );
                rows.insert(batch.number, batch.rows.finished());
                found.end = at + bytes;
            }
            Some(Record::Outputs(outputs)) => {
                found.outputs = outputs;
                found.end = at + bytes;
            }
            Some(Record::OldBatch(_)) | None => found.damaged += bytes,
        }
        at += bytes;
    }
    found.rows = rows.values().sum();
    Ok(Ok(found))
}
