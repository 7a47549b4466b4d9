//! Result tables from CSV.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::fs::File;
use std::path::Path;

use csv::{Reader, StringRecord};

use super::read::{Cells, Source};
use crate::error::{Error, Result};
use crate::files;

/// Rows a batch.
const BATCH: usize = 4096;
pub(super) struct CsvSource {
    reader: Reader<File>,
    names: Vec<String>,
    /// Read ahead, to see what the ids are.
    first: Vec<StringRecord>,
}

impl CsvSource {
    pub fn open(path: &Path) -> Result<CsvSource> {
        let file = files::open(path).map_err(Error::io(path))?;
        let mut reader = Reader::from_reader(file);
        let format = |e: csv::Error| Error::format(path, e.to_string());
        let names = reader.headers().map_err(format)?.iter().map(str::to_string).collect();
        let first = reader.records().take(BATCH).collect::<Result<_, _>>().map_err(format)?;
        Ok(CsvSource { reader, names, first })
    }
}

impl Source for CsvSource {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn text_ids(&self, id: usize) -> bool {
        self.first.iter().any(|record| record.get(id).is_some_and(|text| text.parse::<i64>().is_err()))
    }

    fn pairs(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn units(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// That CSV has no checksums is said where the format is described.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn next_batch(&mut self) -> Result<Option<Box<dyn Cells>>, String> {
        let mut batch = std::mem::take(&mut self.first);
        if batch.is_empty() {
            batch = self.reader.records().take(BATCH).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        }
        Ok((!batch.is_empty()).then(|| Box::new(CsvCells(batch)) as Box<dyn Cells>))
    }
}

struct CsvCells(Vec<StringRecord>);

impl CsvCells {
    fn cell(&self, c: usize, r: usize) -> &str {
        self.0.get(r).and_then(|record| record.get(c)).unwrap_or_default()
    }
}

impl Cells for CsvCells {
    fn rows(&self) -> usize {
        self.0.len()
    }

    fn integer(&self, c: usize, r: usize) -> Option<i64> {
        self.cell(c, r).parse().ok()
    }

    fn float(&self, c: usize, r: usize) -> f64 {
        self.cell(c, r).parse().unwrap_or(f64::NAN)
    }

    fn text(&self, c: usize, r: usize) -> String {
        self.cell(c, r).to_string()
    }
}
