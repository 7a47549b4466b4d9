//! Parquet: snappy, row groups of 8192 rows wherever batches end, the run's description and checksums in the key-value
//! metadata. Units and meanings are the fields' metadata, where pyarrow shows them, and the key `table_meta_yaml`,
//! where astropy looks for them.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde_json::json;

use super::Entry;
use super::checksum::{self, Checksums};
use super::columns::{Column, Kind, MEANING, UNIT, Value};
use crate::io::files::File;
use crate::io::output::Metadata;
use crate::spectral::FitRow;

/// Key in the metadata of the Arrow schema under which astropy looks for units and descriptions.
const ASTROPY: &str = "table_meta_yaml";
/// Number of rows of a row group. Its description of the columns is kept in memory until the end of the file.
const GROUP: usize = 8192;

/// A result table that is being written as Parquet.
pub(super) struct ParquetTable {
    writer: ArrowWriter<File>,
    file: File,
    schema: Arc<arrow_schema::Schema>,
    checksums: Checksums,
    metadata: Vec<Entry>,
}

impl ParquetTable {
    /// Begins a Parquet result table with these columns in an empty file.
    pub fn new(file: File, columns: &[Column], metadata: &Metadata) -> io::Result<ParquetTable> {
        let fields: Vec<Field> = columns.iter().map(field).collect();
        let header = HashMap::from([(ASTROPY.to_string(), astropy_header(columns))]);
        let schema = Arc::new(arrow_schema::Schema::new_with_metadata(fields, header));
        let metadata = metadata.table_entries();
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("popfit ", env!("CARGO_PKG_VERSION")).into())
            .set_max_row_group_row_count(Some(GROUP))
            .build();
        let writer = ArrowWriter::try_new(file.again()?, schema.clone(), Some(properties)).map_err(system)?;
        Ok(ParquetTable { writer, file, schema, checksums: Checksums::new(GROUP), metadata })
    }

    /// Writes rows to the Parquet file, and adds them to its checksums.
    pub fn append(&mut self, columns: &[Column], rows: &[FitRow]) -> io::Result<()> {
        let arrays = columns.iter().map(|column| array(column, rows)).collect();
        let batch = RecordBatch::try_new(self.schema.clone(), arrays).map_err(|error| system(error.into()))?;
        self.checksums.add(&batch).map_err(io::Error::other)?;
        self.writer.write(&batch).map_err(system)
    }

    /// Adds a key and value to the metadata that `finish` writes.
    pub fn describe(&mut self, entry: Entry) {
        self.metadata.push(entry);
    }

    /// Writes metadata, checksums and the Parquet footer, and returns the file.
    pub fn finish(mut self) -> io::Result<File> {
        let checksums = self.checksums.finish(&self.metadata);
        self.metadata.push(Entry::new(checksum::KEY, checksums));
        for Entry { key, value } in self.metadata {
            self.writer.append_key_value_metadata(KeyValue::new(key, value));
        }
        self.writer.finish().map_err(system)?;
        Ok(self.file)
    }
}

/// Converts an error of the Parquet writer to an I/O error: the system's own error if that was the cause.
fn system(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => source.downcast().map_or_else(io::Error::other, |source| *source),
        other => io::Error::other(other),
    }
}

/// Returns a column's Arrow field: name, type, no nulls, and its unit and meaning as metadata.
fn field(column: &Column) -> Field {
    let mut metadata = HashMap::from([(MEANING.to_string(), column.meaning.clone())]);
    if !column.unit.is_empty() {
        metadata.insert(UNIT.to_string(), column.unit.clone());
    }
    Field::new(&column.name, data_type(column.kind), false).with_metadata(metadata)
}

/// Returns the text by which astropy knows units and descriptions of a Parquet file's columns: an ECSV header, as JSON.
fn astropy_header(columns: &[Column]) -> String {
    json!({ "datatype": columns.iter().map(astropy_column).collect::<Vec<_>>() }).to_string()
}

/// Returns a column's entry for astropy's header, as JSON: name, type, description and unit.
fn astropy_column(column: &Column) -> serde_json::Value {
    let mut one = json!({ "name": column.name, "datatype": column.kind.name(), "description": column.meaning });
    if !column.unit.is_empty() {
        one["unit"] = json!(column.unit);
    }
    one
}

/// Returns the Arrow type in which cells of this kind are stored.
fn data_type(kind: Kind) -> DataType {
    match kind {
        Kind::Int32 => DataType::Int32,
        Kind::Int64 => DataType::Int64,
        Kind::Float64 => DataType::Float64,
        Kind::Text => DataType::Utf8,
    }
}

/// Returns the cells of one column for all rows, as an Arrow array.
fn array(column: &Column, rows: &[FitRow]) -> ArrayRef {
    let values = rows.iter().map(|row| column.value(row));
    match column.kind {
        Kind::Int32 => Arc::new(Int32Array::from_iter_values(values.map(|v| v.integer() as i32))),
        Kind::Int64 => Arc::new(Int64Array::from_iter_values(values.map(Value::integer))),
        Kind::Float64 => Arc::new(Float64Array::from_iter_values(values.map(|v| match v {
            Value::Float(x) => x,
            other => other.integer() as f64,
        }))),
        Kind::Text => Arc::new(StringArray::from_iter_values(values.map(|v| match v {
            Value::Text(text) => text.into_owned(),
            other => other.integer().to_string(),
        }))),
    }
}
