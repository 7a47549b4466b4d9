//! Result tables from CSV. The name of a column decides its type; ids are integers if all of them are.

#![deny(clippy::indexing_slicing)] // a file must not cause a panic

use std::path::Path;

use csv::{Reader, StringRecord};

use super::MetadataEntry;
use super::read::{TableSource, WantedColumn};
use crate::error::{Error, Result};
use crate::io::files::File;
use crate::spectral::{ColumnKind, FitValues};

/// Number of rows per batch.
const CSV_ROWS_PER_BATCH: usize = 4096;

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
        let format_error = |error: csv::Error| Error::format(path, error.to_string());
        let mut reader = open_reader(path)?;
        let headers = reader.headers().map_err(format_error)?;
        let names: Vec<String> = headers.iter().map(Into::into).collect();
        let id_column = names.iter().position(|name| name == "id").unwrap_or(0);
        let mut text_ids = false;
        let mut record = StringRecord::new();
        while reader.read_record(&mut record).map_err(format_error)? {
            let id = record.get(id_column).unwrap_or_default();
            // an id such as 007 is a text, too
            text_ids |= id.parse::<i64>().map_or(true, |n| n.to_string() != id);
        }
        Ok(CsvSource {
            reader: open_reader(path)?,
            names,
            text_ids,
        })
    }
}

/// Opens a CSV file at its beginning.
fn open_reader(path: &Path) -> Result<Reader<File>> {
    let file = File::open(path).map_err(Error::io(path))?;
    Ok(Reader::from_reader(file))
}

impl TableSource for CsvSource {
    fn column_names(&self) -> &[String] {
        &self.names
    }

    fn text_ids(&self, _: usize) -> bool {
        self.text_ids
    }

    fn metadata(&self) -> Vec<MetadataEntry> {
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

    fn next_batch(&mut self, wanted: &[WantedColumn]) -> Result<Option<Vec<FitValues>>, String> {
        let records: Vec<StringRecord> = self
            .reader
            .records()
            .take(CSV_ROWS_PER_BATCH)
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        if records.is_empty() {
            return Ok(None);
        }
        let mut columns = Vec::new();
        for WantedColumn { index, kind } in wanted {
            let column = parse_column(&records, *index, *kind)
                .map_err(|bad_record| self.describe_bad_field(bad_record, *index, *kind))?;
            columns.push(column);
        }
        Ok(Some(columns))
    }
}

impl CsvSource {
    /// Returns the message for a record whose field in this column is not of this type.
    fn describe_bad_field(&self, record: &StringRecord, index: usize, kind: ColumnKind) -> String {
        let line = record.position().map_or(0, csv::Position::line);
        let name = self.names.get(index).map_or("", String::as_str);
        let expected = match kind {
            ColumnKind::Float64 => "number",
            ColumnKind::FloatLists => "list of numbers",
            _ => "integer",
        };
        format!(
            "line {line}, column `{name}`: {:?} is no {expected}",
            record.get(index).unwrap_or_default()
        )
    }
}

/// Parses the fields of a column as values of this type; the error is a record whose field has another.
fn parse_column(
    records: &[StringRecord],
    index: usize,
    kind: ColumnKind,
) -> Result<FitValues, &StringRecord> {
    Ok(match kind {
        ColumnKind::Int32 => FitValues::Int32(parse_fields(records, index, |text| {
            parse_integer(text)?.try_into().ok()
        })?),
        ColumnKind::Int64 => FitValues::Int64(parse_fields(records, index, parse_integer)?),
        ColumnKind::Float64 => FitValues::Float64(parse_fields(records, index, parse_float)?),
        ColumnKind::Text => {
            FitValues::Text(parse_fields(records, index, |text| Some(text.into()))?)
        }
        ColumnKind::FloatLists => {
            FitValues::FloatLists(parse_fields(records, index, parse_float_list)?)
        }
    })
}

/// Parses the field of each record with a function that returns `None` for a bad one.
fn parse_fields<T>(
    records: &[StringRecord],
    index: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, &StringRecord> {
    records
        .iter()
        .map(|record| parse(record.get(index).unwrap_or_default()).ok_or(record))
        .collect()
}

/// Parses an integer. Other programs leave a field empty where there is no number: it counts as 0.
fn parse_integer(text: &str) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    text.parse().ok()
}

/// Parses a float; an empty field is NaN.
fn parse_float(text: &str) -> Option<f64> {
    if text.is_empty() {
        return Some(f64::NAN);
    }
    text.parse().ok()
}

/// Parses floats with spaces between them.
fn parse_float_list(text: &str) -> Option<Vec<f64>> {
    text.split_whitespace()
        .map(|number| number.parse().ok())
        .collect()
}
