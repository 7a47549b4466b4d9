//! Result tables from Parquet, whose rows are compared with the checksums in the footer.

#![deny(clippy::indexing_slicing)] // a file must not cause a panic

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_schema::{DataType, FieldRef};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::{ColumnChunkMetaData, FileMetaData, KeyValue};

use super::Entry;
use super::checksum::{self, Verifier};
use super::parquet::UNIT;
use super::read::{Source, Wanted, converted};
use crate::error::{Error, Result};
use crate::io::files;
use crate::spectral::FitValues;

/// A result table in Parquet.
pub(super) struct ParquetSource {
    reader: ParquetRecordBatchReader,
    names: Vec<String>,
    types: Vec<DataType>,
    metadata: Vec<Entry>,
    units: Vec<(String, String)>,
    checks: Checks,
}

/// Checksums of a table, if it has any.
enum Checks {
    Verified(Box<Verifier>),
    /// Reason why there is nothing to compare with.
    Absent(String),
}

impl ParquetSource {
    /// Opens a Parquet result table, reads its columns' names and metadata, and checks the metadata against its
    /// checksum.
    pub fn open(path: &Path) -> Result<ParquetSource> {
        let file = files::open(path).map_err(Error::io(path))?;
        let format = |e: parquet::errors::ParquetError| Error::format(path, e.to_string());
        let builder = decoded(|| ParquetRecordBatchReaderBuilder::try_new(file))
            .map_err(|message| Error::format(path, message))?;
        let mut columns = builder
            .metadata()
            .row_groups()
            .iter()
            .flat_map(|group| group.columns());
        // the crate asserts this
        if !columns.all(has_places) {
            return Err(Error::format(
                path,
                "damaged: a column of it begins before the file, or has no length",
            ));
        }
        let fields = builder.schema().fields();
        let names = fields.iter().map(|field| field.name().clone()).collect();
        let types = fields
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let known = builder.metadata().file_metadata().key_value_metadata();
        let entry = |known: &KeyValue| {
            Some(Entry {
                key: known.key.clone(),
                value: known.value.clone()?,
            })
        };
        let metadata: Vec<_> =
            known.map_or_else(Vec::new, |all| all.iter().filter_map(entry).collect());
        let unit =
            |field: &FieldRef| Some((field.name().clone(), field.metadata().get(UNIT)?.clone()));
        let units = fields.iter().filter_map(unit).collect();
        let file = builder.metadata().file_metadata();
        let checks = checks(file, &metadata).map_err(|message| Error::format(path, message))?;
        Ok(ParquetSource {
            reader: builder.build().map_err(format)?,
            names,
            types,
            metadata,
            units,
            checks,
        })
    }
}

/// Returns how the rows can be verified: by checksums, or a note why not; fails if popfit wrote the file and they are
/// gone. A table that another program has rewritten may have those of the table before.
fn checks(file: &FileMetaData, entries: &[Entry]) -> Result<Checks, String> {
    let find = |key: &str| {
        entries
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| entry.value.as_str())
    };
    let writer = file.created_by().unwrap_or("an unknown program");
    let is_own = writer.starts_with("popfit ");
    match find(checksum::KEY) {
        Some(text) if is_own => {
            let rows = u64::try_from(file.num_rows()).unwrap_or(0);
            Verifier::new(text, rows, entries).map(|verifier| Checks::Verified(Box::new(verifier)))
        }
        Some(_) => Ok(Checks::Absent(format!(
            "was rewritten by {writer}, and its checksums are those of the table before: \
             changed bytes would not be noticed"
        ))),
        // popfit has always written its version, and its checksums since its tables have a layout
        None if is_own && (find("popfit.version").is_none() || find("popfit.layout").is_some()) => {
            Err(format!(
                "damaged: the metadata key {} is missing, which popfit writes",
                checksum::KEY
            ))
        }
        None => Ok(Checks::Absent(format!(
            "written by {writer}, has no checksums: changed bytes would not be noticed"
        ))),
    }
}

/// Calls a function that decodes a Parquet file, and turns a panic into an error: the crate panics on some damaged
/// files.
fn decoded<T, E: std::fmt::Display>(decode: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err("damaged: its pages do not fit together".into()),
    }
}

/// Returns whether a column's offsets and length in the Parquet file are all at least 0, as in a sound file.
fn has_places(column: &ColumnChunkMetaData) -> bool {
    let offsets = [
        Some(column.data_page_offset()),
        column.dictionary_page_offset(),
        Some(column.compressed_size()),
    ];
    offsets.into_iter().flatten().all(|place| place >= 0)
}

impl Source for ParquetSource {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn text_ids(&self, id: usize) -> bool {
        !self.types.get(id).is_some_and(DataType::is_integer)
    }

    fn metadata(&self) -> Vec<Entry> {
        self.metadata.clone()
    }

    fn units(&self) -> Vec<(String, String)> {
        self.units.clone()
    }

    fn notes(&self) -> Vec<String> {
        match &self.checks {
            Checks::Verified(_) => Vec::new(),
            Checks::Absent(why) => vec![why.clone()],
        }
    }

    fn next_batch(&mut self, wanted: &[Wanted]) -> Result<Option<Vec<FitValues>>, String> {
        let batch = decoded(|| self.reader.next().transpose())?;
        if let Checks::Verified(verifier) = &mut self.checks {
            match &batch {
                Some(batch) => verifier.add(batch)?,
                None => verifier.finish()?,
            }
        }
        let Some(batch) = batch else { return Ok(None) };
        let of_column = |wanted: &Wanted| {
            let name = self.names.get(wanted.place).map_or("", String::as_str);
            converted(name, values(batch.column(wanted.place)), wanted.kind)
        };
        wanted
            .iter()
            .map(of_column)
            .collect::<Result<_, _>>()
            .map(Some)
    }
}

/// Returns the values of an array, with 0, NaN or an empty text in empty cells; `None` for types that no table has.
fn values(array: &dyn Array) -> Option<FitValues> {
    let text = |text: Option<&str>| text.unwrap_or_default().to_string();
    Some(match array.data_type() {
        DataType::Int32 => {
            let integers = array.as_primitive::<Int32Type>().iter();
            FitValues::Int64(integers.map(|n| n.map_or(0, i64::from)).collect())
        }
        DataType::Int64 => FitValues::Int64(
            array
                .as_primitive::<Int64Type>()
                .iter()
                .map(Option::unwrap_or_default)
                .collect(),
        ),
        DataType::Float32 => {
            let floats = array.as_primitive::<Float32Type>().iter();
            FitValues::Float64(floats.map(|x| x.map_or(f64::NAN, f64::from)).collect())
        }
        DataType::Float64 => {
            let floats = array.as_primitive::<Float64Type>().iter();
            FitValues::Float64(floats.map(|x| x.unwrap_or(f64::NAN)).collect())
        }
        DataType::Utf8 => FitValues::Text(array.as_string::<i32>().iter().map(text).collect()),
        DataType::LargeUtf8 => FitValues::Text(array.as_string::<i64>().iter().map(text).collect()),
        DataType::Utf8View => FitValues::Text(array.as_string_view().iter().map(text).collect()),
        _ => return None,
    })
}
