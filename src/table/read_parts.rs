//! The parts of a run in parts (`popfit plan`), read as one table.

#![deny(clippy::indexing_slicing)] // a folder must not cause a panic

use std::path::{Path, PathBuf};

use super::MetadataEntry;
use super::read::{TableSource, WantedColumn};
use super::read_parquet::ParquetSource;
use crate::error::{Error, Result};
use crate::spectral::FitValues;

/// Entries of the metadata that say something of one part alone.
const ENTRIES_OF_PARTS: [&str; 2] = ["popfit.rows", "popfit.part"];

/// The parts in a folder, in the order of their names, which is that of the rows.
pub(super) struct PartsSource {
    current: ParquetSource,
    /// Paths of the parts that follow, the next one last.
    following: Vec<PathBuf>,
    metadata: Vec<MetadataEntry>,
    notes: Vec<String>,
}

impl PartsSource {
    /// Opens the first of the parts `part-*.parquet` in a folder; fails if there is none. Parts that are missing before
    /// the last one are noted.
    pub fn open(folder: &Path) -> Result<PartsSource> {
        // 1. List the parts.
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
            let name = entry
                .map_err(Error::io(folder))?
                .file_name()
                .to_string_lossy()
                .into_owned();
            if name.starts_with("part-") && name.ends_with(".parquet") {
                names.push(name);
            }
        }
        names.sort();
        let number = |name: &str| name.split('-').nth(1)?.parse::<usize>().ok();
        let missing = names
            .last()
            .and_then(|name| number(name))
            .map_or(0, |last| (last + 1).saturating_sub(names.len()));
        // 2. Open the first one.
        let mut following: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
        following.reverse();
        let Some(first) = following.pop() else {
            let message = "is a folder without parts of a run (part-*.parquet)";
            return Err(Error::format(folder, message));
        };
        let current = ParquetSource::open(&first)?;
        let mut metadata = current.metadata();
        metadata.retain(|entry| !ENTRIES_OF_PARTS.contains(&entry.key.as_str()));
        let mut notes = current.notes();
        if missing > 0 {
            notes.push(format!("{missing} parts before the last one are missing"));
        }
        Ok(PartsSource {
            current,
            following,
            metadata,
            notes,
        })
    }
}

impl TableSource for PartsSource {
    fn column_names(&self) -> &[String] {
        self.current.column_names()
    }

    fn text_ids(&self, id: usize) -> bool {
        self.current.text_ids(id)
    }

    fn metadata(&self) -> Vec<MetadataEntry> {
        self.metadata.clone()
    }

    fn units(&self) -> Vec<(String, String)> {
        self.current.units()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn next_batch(&mut self, wanted: &[WantedColumn]) -> Result<Option<Vec<FitValues>>, String> {
        loop {
            if let Some(batch) = self.current.next_batch(wanted)? {
                return Ok(Some(batch));
            }
            let Some(path) = self.following.pop() else {
                return Ok(None);
            };
            let next = ParquetSource::open(&path).map_err(|error| error.to_string())?;
            if next.column_names() != self.current.column_names() {
                return Err(format!(
                    "{}: it has other columns than the parts before",
                    path.display()
                ));
            }
            self.current = next;
        }
    }
}
