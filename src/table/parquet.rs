//! Parquet, compressed by snappy, in row groups of 8192 rows whatever the batches, with the run's description and
//! checksums in the key-value metadata. Units and meanings are the fields' metadata, where pyarrow shows them, and the
//! key `table_meta_yaml`, where astropy looks for them.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, FieldRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use serde_json::json;

use super::MetadataEntry;
use super::checksum::{self, RowGroupChecksums};
use crate::error::{Error, Result};
use crate::io::files::File;
use crate::io::output::Metadata;
use crate::spectral::{ColumnKind, FitTable, FitValues, ResultColumn};

/// Key of a unit in the metadata of a field.
pub(super) const UNIT_KEY: &str = "unit";
/// Key of a meaning in the metadata of a field.
pub(super) const MEANING_KEY: &str = "description";
/// Key in the metadata of the Arrow schema under which astropy looks for units and descriptions.
const ASTROPY_KEY: &str = "table_meta_yaml";
/// Number of rows of a row group. Its description of the columns is kept in memory until the end of the file.
const ROWS_PER_GROUP: usize = 8192;

/// A result table that is being written as Parquet.
pub(super) struct ParquetTable {
    writer: ArrowWriter<File>,
    file: File,
    schema: Arc<arrow_schema::Schema>,
    checksums: RowGroupChecksums,
    metadata: Vec<MetadataEntry>,
}

impl ParquetTable {
    /// Begins a Parquet result table with these columns in an empty file.
    pub fn new(
        file: File,
        columns: &[ResultColumn],
        metadata: &Metadata,
    ) -> io::Result<ParquetTable> {
        let schema = arrow_schema(columns, &[]);
        let metadata = metadata.table_entries();
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("popfit ", env!("CARGO_PKG_VERSION")).into())
            .set_max_row_group_row_count(Some(ROWS_PER_GROUP));
        for column in columns {
            if column.kind == ColumnKind::FloatLists {
                properties = write_lists_in_one_page(properties, &column.name);
            }
        }
        let writer = ArrowWriter::try_new(file.again()?, schema.clone(), Some(properties.build()))
            .map_err(to_io_error)?;
        Ok(ParquetTable {
            writer,
            file,
            schema,
            checksums: RowGroupChecksums::new(ROWS_PER_GROUP),
            metadata,
        })
    }

    /// Writes rows, which are given by columns, to the Parquet file, and adds them to its checksums.
    pub fn append(&mut self, columns: Vec<FitValues>) -> io::Result<()> {
        let arrays = columns.into_iter().map(to_arrow_array).collect();
        let batch = RecordBatch::try_new(self.schema.clone(), arrays)
            .map_err(|error| to_io_error(error.into()))?;
        self.checksums.add(&batch).map_err(io::Error::other)?;
        self.writer.write(&batch).map_err(to_io_error)
    }

    /// Adds a key and value to the metadata that `finish` writes.
    pub fn add_metadata(&mut self, entry: MetadataEntry) {
        self.metadata.push(entry);
    }

    /// Writes metadata, checksums and the Parquet footer, and returns the file.
    pub fn finish(mut self) -> io::Result<File> {
        let checksums = self.checksums.finish(&self.metadata);
        self.metadata
            .push(MetadataEntry::new(checksum::CHECKSUM_KEY, checksums));
        for MetadataEntry { key, value } in self.metadata {
            self.writer
                .append_key_value_metadata(KeyValue::new(key, value));
        }
        self.writer.finish().map_err(to_io_error)?;
        Ok(self.file)
    }
}

/// Sets that the lists of a column are one page per row group, without a dictionary. The writer ends pages and
/// dictionaries of a given size between two calls, and the bytes of the file must not depend on the size of appends.
fn write_lists_in_one_page(
    properties: WriterPropertiesBuilder,
    column: &str,
) -> WriterPropertiesBuilder {
    let path = ColumnPath::new(vec![
        column.into(),
        "list".into(),
        list_item().name().clone(),
    ]);
    properties
        .set_column_dictionary_enabled(path.clone(), false)
        .set_column_data_page_size_limit(path, i32::MAX as usize)
}

/// Converts an error of the Parquet writer to an I/O error: the system's own error if that was the cause.
fn to_io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => source
            .downcast()
            .map_or_else(io::Error::other, |source| *source),
        error => io::Error::other(error),
    }
}

impl FitTable {
    /// Returns the table as an Arrow record batch with the columns, types, units, meanings and metadata of the Parquet
    /// file that [`write_with`](FitTable::write_with) makes of it. Checksums are those of files alone.
    ///
    /// # Errors
    /// Returns [`Error::Model`] if two columns would have the same name.
    pub fn record_batch(&self, metadata: &Metadata) -> Result<RecordBatch> {
        let columns = self.schema().distinct_columns()?;
        let schema = arrow_schema(&columns, &metadata.table_entries());
        let arrays = self
            .clone()
            .into_columns()
            .into_iter()
            .map(|column| to_arrow_array(column.values))
            .collect();
        RecordBatch::try_new(schema, arrays).map_err(|error| Error::Internal(error.to_string()))
    }
}

/// Returns the Arrow schema of a table: its fields, astropy's header and entries of metadata.
fn arrow_schema(columns: &[ResultColumn], entries: &[MetadataEntry]) -> Arc<arrow_schema::Schema> {
    let fields: Vec<Field> = columns.iter().map(arrow_field).collect();
    let mut metadata = HashMap::from([(ASTROPY_KEY.to_string(), astropy_header(columns))]);
    metadata.extend(
        entries
            .iter()
            .map(|entry| (entry.key.clone(), entry.value.clone())),
    );
    Arc::new(arrow_schema::Schema::new_with_metadata(fields, metadata))
}

/// Returns a column's Arrow field: name, type, no nulls, and its unit and meaning as metadata.
fn arrow_field(column: &ResultColumn) -> Field {
    let mut metadata = HashMap::from([(MEANING_KEY.to_string(), column.meaning.clone())]);
    if !column.unit.is_empty() {
        metadata.insert(UNIT_KEY.to_string(), column.unit.clone());
    }
    Field::new(&column.name, arrow_type(column.kind), false).with_metadata(metadata)
}

/// Returns the text by which astropy knows units and descriptions of a Parquet file's columns: an ECSV header, as JSON.
fn astropy_header(columns: &[ResultColumn]) -> String {
    json!({ "datatype": columns.iter().map(astropy_column).collect::<Vec<_>>() }).to_string()
}

/// Returns a column's entry for astropy's header, as JSON: name, type, description and unit.
fn astropy_column(column: &ResultColumn) -> serde_json::Value {
    let mut entry = json!({ "name": column.name, "datatype": column.kind.name(), "description": column.meaning });
    if column.kind == ColumnKind::FloatLists {
        entry["datatype"] = json!("string");
        entry["subtype"] = json!("float64[null]");
    }
    if !column.unit.is_empty() {
        entry["unit"] = json!(column.unit);
    }
    entry
}

/// Returns the Arrow type in which cells of this kind are stored.
fn arrow_type(kind: ColumnKind) -> DataType {
    match kind {
        ColumnKind::Int32 => DataType::Int32,
        ColumnKind::Int64 => DataType::Int64,
        ColumnKind::Float64 => DataType::Float64,
        ColumnKind::Text => DataType::Utf8,
        ColumnKind::FloatLists => DataType::List(list_item()),
    }
}

/// Returns the Arrow field of the numbers of a list, of which none is null. Parquet's format prescribes its name.
fn list_item() -> FieldRef {
    Arc::new(Field::new("element", DataType::Float64, false))
}

/// Converts the values of a column to an Arrow array. Numbers are moved.
fn to_arrow_array(values: FitValues) -> ArrayRef {
    match values {
        FitValues::Int32(values) => Arc::new(Int32Array::from(values)),
        FitValues::Int64(values) => Arc::new(Int64Array::from(values)),
        FitValues::Float64(values) => Arc::new(Float64Array::from(values)),
        FitValues::Text(values) => Arc::new(StringArray::from(values)),
        FitValues::FloatLists(lists) => {
            let mut builder = ListBuilder::new(Float64Builder::new()).with_field(list_item());
            for list in &lists {
                builder.values().append_slice(list);
                builder.append(true);
            }
            Arc::new(builder.finish())
        }
    }
}
