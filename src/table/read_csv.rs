//! Result tables from CSV. What a column holds is what is declared for its name; ids are integers if all of them are.

#![deny(clippy::indexing_slicing)] // a file must not cause a panic

use std::path::Path;

use csv::{Reader, StringRecord};

use super::Entry;
use super::read::{Source, Wanted};
use crate::error::{Error, Result};
use crate::io::files::File;
use crate::spectral::{ColumnKind, FitValues};

/// Number of rows per batch.
const BATCH: usize = 4096;

/// A result table in CSV.
pub(super) struct CsvSource {
    reader: Reader<File>,
    names: Vec<String>,
    text_ids: bool,
}

impl CsvSource {
    /// Opens a CSV result table, and reads it once to see that its lines have equally many fields, and of which type
    /// the ids are.
    pub fn open(path: &Path) -> Result<CsvSource> {
        let open = || {
            Ok(Reader::from_reader(
                File::open(path).map_err(Error::io(path))?,
            ))
        };
        let format = |error: csv::Error| Error::format(path, error.to_string());
        let mut reader = open()?;
        let names: Vec<String> = reader
            .headers()
            .map_err(format)?
            .iter()
            .map(Into::into)
            .collect();
        let id = names.iter().position(|name| name == "id").unwrap_or(0);
        let (mut record, mut text_ids) = (StringRecord::new(), false);
        while reader.read_record(&mut record).map_err(format)? {
            let text = record.get(id).unwrap_or_default();
            text_ids |= text.parse::<i64>().map_or(true, |n| n.to_string() != text);
        }
        Ok(CsvSource {
            reader: open()?,
            names,
            text_ids,
        })
    }
}

impl Source for CsvSource {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn text_ids(&self, _: usize) -> bool {
        self.text_ids
    }

    fn metadata(&self) -> Vec<Entry> {
        Vec::new()
    }

    fn units(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn notes(&self) -> Vec<String> {
        let note = "a CSV table has no metadata, units or checksums: the model and the settings of its run are not \
                    known, and changed bytes would not be noticed";
        vec![note.into()]
    }

    fn next_batch(&mut self, wanted: &[Wanted]) -> Result<Option<Vec<FitValues>>, String> {
        let records: Vec<StringRecord> = self
            .reader
            .records()
            .take(BATCH)
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        if records.is_empty() {
            return Ok(None);
        }
        let of_column = |Wanted { place, kind }: &Wanted| {
            values(&records, *place, *kind).map_err(|bad| {
                let line = bad.position().map_or(0, csv::Position::line);
                let name = self.names.get(*place).map_or("", String::as_str);
                let expected = if *kind == ColumnKind::Float64 {
                    "number"
                } else {
                    "integer"
                };
                format!(
                    "line {line}, column `{name}`: {:?} is no {expected}",
                    bad.get(*place).unwrap_or_default()
                )
            })
        };
        wanted
            .iter()
            .map(of_column)
            .collect::<Result<_, _>>()
            .map(Some)
    }
}

/// Parses the fields of a column as values of this type; the error is a record whose field has another.
fn values(
    records: &[StringRecord],
    place: usize,
    kind: ColumnKind,
) -> Result<FitValues, &StringRecord> {
    /// Parses the field of each record with a function that returns `None` for a bad one.
    fn parse<T>(
        records: &[StringRecord],
        place: usize,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, &StringRecord> {
        records
            .iter()
            .map(|record| parse(record.get(place).unwrap_or_default()).ok_or(record))
            .collect()
    }
    // Other programs write nothing where there is no number.
    let integer = |text: &str| {
        if text.is_empty() {
            Some(0)
        } else {
            text.parse::<i64>().ok()
        }
    };
    let float = |text: &str| {
        if text.is_empty() {
            Some(f64::NAN)
        } else {
            text.parse().ok()
        }
    };
    Ok(match kind {
        ColumnKind::Int32 => FitValues::Int32(parse(records, place, |text| {
            integer(text)?.try_into().ok()
        })?),
        ColumnKind::Int64 => FitValues::Int64(parse(records, place, integer)?),
        ColumnKind::Float64 => FitValues::Float64(parse(records, place, float)?),
        ColumnKind::Text => FitValues::Text(parse(records, place, |text| Some(text.into()))?),
    })
}
