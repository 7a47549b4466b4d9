//! Result tables from Parquet, whose rows are compared with the checksums in the footer.

#![deny(clippy::indexing_slicing)] // a file must not cause a panic

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::{ColumnChunkMetaData, FileMetaData, KeyValue};

use super::MetadataEntry;
use super::checksum::{self, RowGroupVerifier};
use super::parquet::UNIT_KEY;
use super::read::{TableSource, WantedColumn, convert_values};
use crate::error::{Error, Result};
use crate::io::files;
use crate::spectral::FitValues;

/// A result table in Parquet.
pub(super) struct ParquetSource {
    reader: ParquetRecordBatchReader,
    names: Vec<String>,
    types: Vec<DataType>,
    metadata: Vec<MetadataEntry>,
    units: Vec<(String, String)>,
    checks: Checks,
}

/// Checksums of a table, if it has any.
enum Checks {
    Verified(Box<RowGroupVerifier>),
    /// Reason why there is nothing to compare with.
    Absent(String),
}

impl ParquetSource {
    /// Opens a Parquet result table, reads its columns' names and metadata, and checks the metadata against its
    /// checksum.
    pub fn open(path: &Path) -> Result<ParquetSource> {
        let format_error = |message: String| Error::format(path, message);
        let file = files::open(path).map_err(Error::io(path))?;
        let builder = catch_decoding_panic(|| ParquetRecordBatchReaderBuilder::try_new(file))
            .map_err(format_error)?;
        // 1. The crate asserts that offsets are not negative, so a damaged file must not get that far.
        let mut columns = builder
            .metadata()
            .row_groups()
            .iter()
            .flat_map(|group| group.columns());
        if !columns.all(has_valid_offsets) {
            return Err(format_error(
                "damaged: a column of it begins before the file, or has no length".into(),
            ));
        }
        // 2. Read the description of the columns.
        let mut names = Vec::new();
        let mut types = Vec::new();
        let mut units = Vec::new();
        for field in builder.schema().fields() {
            names.push(field.name().clone());
            types.push(field.data_type().clone());
            if let Some(unit) = field.metadata().get(UNIT_KEY) {
                units.push((field.name().clone(), unit.clone()));
            }
        }
        // 3. Read the metadata, and prepare the comparison of the rows.
        let file_metadata = builder.metadata().file_metadata();
        let mut metadata = Vec::new();
        for KeyValue { key, value } in file_metadata.key_value_metadata().into_iter().flatten() {
            if let Some(value) = value {
                metadata.push(MetadataEntry::new(key, value));
            }
        }
        let checks = prepare_checks(file_metadata, &metadata).map_err(format_error)?;
        let reader = builder
            .build()
            .map_err(|error| format_error(error.to_string()))?;
        Ok(ParquetSource {
            reader,
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
fn prepare_checks(file: &FileMetaData, entries: &[MetadataEntry]) -> Result<Checks, String> {
    let value_of = |key: &str| {
        entries
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| entry.value.as_str())
    };
    let writer = file.created_by().unwrap_or("an unknown program");
    let is_own = writer.starts_with("popfit ");
    match value_of(checksum::CHECKSUM_KEY) {
        Some(text) if is_own => {
            let rows = u64::try_from(file.num_rows()).unwrap_or(0);
            RowGroupVerifier::new(text, rows, entries)
                .map(|verifier| Checks::Verified(Box::new(verifier)))
        }
        Some(_) => Ok(Checks::Absent(format!(
            "was rewritten by {writer}, and its checksums are those of the table before: \
             changed bytes would not be noticed"
        ))),
        // popfit has always written its version, and its checksums since its tables have a layout
        None if is_own
            && (value_of("popfit.version").is_none() || value_of("popfit.layout").is_some()) =>
        {
            Err(format!(
                "damaged: the metadata key {} is missing, which popfit writes",
                checksum::CHECKSUM_KEY
            ))
        }
        None => Ok(Checks::Absent(format!(
            "written by {writer}, has no checksums: changed bytes would not be noticed"
        ))),
    }
}

/// Calls a function that decodes a Parquet file, and turns a panic into an error: the crate panics on some damaged
/// files.
fn catch_decoding_panic<T, E: std::fmt::Display>(
    decode: impl FnOnce() -> Result<T, E>,
) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err("damaged: its pages do not fit together".into()),
    }
}

/// Returns whether a column's offsets and length in the Parquet file are all at least 0, as in a sound file.
fn has_valid_offsets(column: &ColumnChunkMetaData) -> bool {
    let offsets = [
        Some(column.data_page_offset()),
        column.dictionary_page_offset(),
        Some(column.compressed_size()),
    ];
    offsets.into_iter().flatten().all(|offset| offset >= 0)
}

impl TableSource for ParquetSource {
    fn column_names(&self) -> &[String] {
        &self.names
    }

    fn text_ids(&self, id: usize) -> bool {
        !self.types.get(id).is_some_and(DataType::is_integer)
    }

    fn metadata(&self) -> Vec<MetadataEntry> {
        self.metadata.clone()
    }

    fn units(&self) -> Vec<(String, String)> {
        self.units.clone()
    }

    fn notes(&self) -> Vec<String> {
        match &self.checks {
            Checks::Verified(_) => Vec::new(),
            Checks::Absent(reason) => vec![reason.clone()],
        }
    }

    fn next_batch(&mut self, wanted: &[WantedColumn]) -> Result<Option<Vec<FitValues>>, String> {
        let batch = catch_decoding_panic(|| self.reader.next().transpose())?;
        if let Checks::Verified(verifier) = &mut self.checks {
            match &batch {
                Some(batch) => verifier.add(batch)?,
                None => verifier.finish()?,
            }
        }
        let Some(batch) = batch else { return Ok(None) };
        let mut columns = Vec::new();
        for WantedColumn { index, kind } in wanted {
            let name = self.names.get(*index).map_or("", String::as_str);
            let values = read_array(batch.column(*index));
            columns.push(convert_values(name, values, *kind)?);
        }
        Ok(Some(columns))
    }
}

/// Returns the values of an array, with 0, NaN, or an empty text or list in empty cells; `None` for types that no table
/// has.
fn read_array(array: &dyn Array) -> Option<FitValues> {
    let or_empty = |text: Option<&str>| text.unwrap_or_default().to_string();
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
        DataType::Utf8 => FitValues::Text(array.as_string::<i32>().iter().map(or_empty).collect()),
        DataType::LargeUtf8 => {
            FitValues::Text(array.as_string::<i64>().iter().map(or_empty).collect())
        }
        DataType::Utf8View => {
            FitValues::Text(array.as_string_view().iter().map(or_empty).collect())
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            FitValues::FloatLists(lists.iter().map(read_list).collect::<Option<_>>()?)
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            FitValues::FloatLists(lists.iter().map(read_list).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// Returns the floats of a list, which may be null; `None` for a list of another type.
fn read_list(list: Option<ArrayRef>) -> Option<Vec<f64>> {
    let Some(list) = list else {
        return Some(Vec::new());
    };
    match read_array(&list)? {
        FitValues::Float64(floats) => Some(floats),
        _ => None,
    }
}
