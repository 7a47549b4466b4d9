//! Reader of result tables, batch by batch. Columns that it does not know are ignored.

#![deny(clippy::indexing_slicing)] // a file must not cause a panic

use std::path::Path;
use std::sync::Arc;

use super::read_csv::CsvSource;
use super::read_fits::{FitsSource, read_fits_metadata};
#[cfg(feature = "parquet")]
use super::read_parquet::ParquetSource;
#[cfg(feature = "parquet")]
use super::read_parts::PartsSource;
use super::{Extension, MetadataEntry, parse_extension};
use crate::error::{Error, Result};
use crate::io::output::Metadata;
use crate::spectral::{
    ColumnKind, DeviceRows, FitRow, FitTable, FitValues, LAYOUT, ResultColumn, Schema, Store,
};

/// A column of a file that is to be read, by its index there, and the type of its values.
pub(super) struct WantedColumn {
    pub index: usize,
    pub kind: ColumnKind,
}

/// A file of one format.
pub(super) trait TableSource {
    /// Returns the names of the columns.
    fn column_names(&self) -> &[String];
    /// Returns whether the ids, in column `id`, are text.
    fn text_ids(&self, id: usize) -> bool;
    /// Returns the entries of the metadata, if the table has any.
    fn metadata(&self) -> Vec<MetadataEntry>;
    /// Returns name and unit of each column that has a unit.
    fn units(&self) -> Vec<(String, String)>;
    /// Returns notes for the user.
    fn notes(&self) -> Vec<String>;
    /// Reads these columns of the next rows; `None` at the end. Empty cells are 0, NaN or an empty text.
    fn next_batch(&mut self, wanted: &[WantedColumn]) -> Result<Option<Vec<FitValues>>, String>;
}

/// Converts the values of column `name` to this type. Integers become any; `None` are values of a type that no table
/// has.
///
/// # Errors
/// Returns a message with the column if its values are of another type, or too large.
pub(super) fn convert_values(
    name: &str,
    values: Option<FitValues>,
    kind: ColumnKind,
) -> Result<FitValues, String> {
    match (values, kind) {
        (Some(FitValues::Int64(integers)), ColumnKind::Int32) => {
            let mut narrow = Vec::with_capacity(integers.len());
            for n in integers {
                let n =
                    i32::try_from(n).map_err(|_| format!("column `{name}`: {n} is too large"))?;
                narrow.push(n);
            }
            Ok(FitValues::Int32(narrow))
        }
        (Some(FitValues::Int64(integers)), ColumnKind::Float64) => {
            let floats = integers.into_iter().map(|n| n as f64).collect();
            Ok(FitValues::Float64(floats))
        }
        (Some(FitValues::Int64(integers)), ColumnKind::Text) => {
            let texts = integers.iter().map(ToString::to_string).collect();
            Ok(FitValues::Text(texts))
        }
        (Some(values), kind) if values.kind() == kind => Ok(values),
        _ => Err(format!(
            "column `{name}`: its values are not of the type {}",
            kind.name()
        )),
    }
}

/// A result table that is read in batches. A CSV table has no metadata, units and checksums.
///
/// The checksums of Parquet and FITS are verified. Those of FITS are compared when the file is opened; those of Parquet
/// with each row group's last row, so that rows which have been returned are verified once the table has been read to
/// its end.
pub struct TableReader {
    /// Schema of the table's columns.
    #[doc(hidden)]
    pub schema: Schema,
    /// Metadata of the table, empty where another program wrote it without them.
    pub metadata: Metadata,
    /// Version of popfit that wrote the table, if the table has it.
    #[doc(hidden)]
    pub version: Option<String>,
    /// Version of the table's layout, if the table has it.
    #[doc(hidden)]
    pub layout: Option<u32>,
    /// Devices that made the rows, in the order of the rows, each with a number of consecutive rows; empty if the table
    /// does not say so.
    #[doc(hidden)]
    pub by_rows: Vec<DeviceRows>,
    /// Notes for the user, one line each, such as that the table has no checksums.
    #[doc(hidden)]
    pub notes: Vec<String>,
    path: Arc<Path>,
    source: Box<dyn TableSource>,
    columns: Vec<ResultColumn>,
    /// Index of each column in the file; `None` for a column that the file does not have.
    indices_in_file: Vec<Option<usize>>,
    /// Number of rows that were read.
    rows: usize,
}

impl std::fmt::Debug for TableReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableReader")
            .field("schema", &self.schema)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Opens a table by the extension of its path, or a folder of parts.
fn open_source(path: &Path) -> Result<Box<dyn TableSource>> {
    #[cfg(feature = "parquet")]
    if path.is_dir() {
        return Ok(Box::new(PartsSource::open(path)?));
    }
    Ok(match parse_extension(path)? {
        #[cfg(feature = "parquet")]
        Extension::Parquet => Box::new(ParquetSource::open(path)?),
        Extension::Csv => Box::new(CsvSource::open(path)?),
        Extension::Fits => Box::new(FitsSource::open(path)?),
    })
}

impl Metadata {
    /// Reads the metadata that popfit has written into a file: a result table in Parquet or FITS, a table as rvspecfit
    /// writes it, or best-fit spectra. They are empty for CSV, which has none, and for files of other programs. No row
    /// is read, and no checksum of rows is verified.
    ///
    /// # Errors
    /// `Io`; `Usage` for another extension; `Format` for a file that is not of the kind that its extension names.
    #[doc(hidden)]
    pub fn read(path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        let entries = match parse_extension(path)? {
            #[cfg(feature = "parquet")]
            Extension::Parquet => ParquetSource::open(path)?.metadata(),
            Extension::Csv => Vec::new(),
            Extension::Fits => read_fits_metadata(path)?,
        };
        Ok(Metadata::from_entries(entries).0)
    }
}

impl TableReader {
    /// Opens a result table (Parquet, FITS or CSV), or the parts of a run in a folder (`popfit plan`) as one table, and
    /// reads its metadata; fails if it is no result table, or found to be damaged.
    ///
    /// # Errors
    /// `Io`; `Usage` for another extension; `Format` for a file that is no result table, whose layout is newer
    /// than this popfit's, or whose bytes differ from their checksums.
    pub fn open(path: impl AsRef<Path>) -> Result<TableReader> {
        let path = path.as_ref();
        let source = open_source(path)?;
        // 1. The names of the columns decide the schema.
        let names = source.column_names();
        let index_of = |column: &str| names.iter().position(|name| name == column);
        let text_ids = index_of("id").is_some_and(|id| source.text_ids(id));
        let schema = Schema::from_names(names, text_ids, source.units())
            .map_err(|message| Error::format(path, message))?;
        let columns = schema.columns();
        let indices_in_file = columns
            .iter()
            .map(|column| index_of(&column.name))
            .collect();
        // 2. Read the metadata.
        let entries = source.metadata();
        let layout = parse_layout(&entries).map_err(|message| Error::format(path, message))?;
        let by_rows = parse_by_rows(&entries).map_err(|message| Error::format(path, message))?;
        let (metadata, version) = Metadata::from_entries(entries);
        let notes = source
            .notes()
            .iter()
            .map(|note| format!("{}: {note}", path.display()))
            .collect();
        Ok(TableReader {
            schema,
            metadata,
            version,
            layout,
            by_rows,
            notes,
            path: path.into(),
            source,
            columns,
            indices_in_file,
            rows: 0,
        })
    }

    /// Reads all rows that `next_batch` has not returned yet into one table.
    ///
    /// # Errors
    /// The errors of [`next_batch`](TableReader::next_batch).
    pub fn read_all(&mut self) -> Result<FitTable> {
        let Schema {
            parameters,
            units,
            arms,
            ..
        } = self.schema.clone();
        let mut table = FitTable::new(parameters).with_units(units).with_arms(arms);
        while let Some(batch) = self.next_batch()? {
            table.append(&batch)?;
        }
        Ok(table)
    }

    /// Reads the next batch of rows; `None` once all rows have been returned.
    ///
    /// # Errors
    /// Returns `Format` for an unknown status, for rows that differ from their checksum, and for a damaged file.
    pub fn next_batch(&mut self) -> Result<Option<Vec<FitRow>>> {
        let format_error = |message: String| Error::format(&self.path, message);
        // 1. Read the columns that the file has.
        let mut wanted = Vec::new();
        for (column, index) in self.columns.iter().zip(&self.indices_in_file) {
            wanted.extend(index.map(|index| WantedColumn {
                index,
                kind: column.kind,
            }));
        }
        let Some(values) = self.source.next_batch(&wanted).map_err(format_error)? else {
            return Ok(None);
        };
        // 2. Make rows of them. Columns that the file does not have get their defaults.
        let mut values = values.into_iter();
        let values_or_missing = self
            .indices_in_file
            .iter()
            .map(|index| index.and_then(|_| values.next()))
            .collect();
        let store = Store::from_values(&self.columns, values_or_missing, self.rows)
            .map_err(format_error)?;
        self.rows += store.len();
        Ok(Some((0..store.len()).map(|row| store.row(row)).collect()))
    }
}

impl FitTable {
    /// Reads all rows of a result table (Parquet, FITS or CSV), and the metadata of the run that wrote it, which a CSV
    /// table does not have. [`TableReader`] reads batches.
    ///
    /// # Errors
    /// The errors of [`TableReader`].
    pub fn read(path: impl AsRef<Path>) -> Result<(FitTable, Metadata)> {
        let mut reader = TableReader::open(path)?;
        Ok((reader.read_all()?, reader.metadata))
    }
}

/// Parses the entry that says which device made which rows, as the writer writes it; returns nothing if it is
/// not there.
fn parse_by_rows(entries: &[MetadataEntry]) -> Result<Vec<DeviceRows>, String> {
    let Some(MetadataEntry { value: text, .. }) =
        entries.iter().find(|entry| entry.key == "popfit.rows")
    else {
        return Ok(Vec::new());
    };
    let parse = |line: &str| {
        let (rows, device) = line.split_once(' ')?;
        let (first, last) = rows.split_once('-')?;
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        Some(DeviceRows {
            device: device.into(),
            rows: last.checked_sub(first)?.checked_add(1)?,
        })
    };
    let damaged = |line: &str| format!("damaged: popfit.rows has the line {line:?}");
    text.lines()
        .map(|line| parse(line).ok_or_else(|| damaged(line)))
        .collect()
}

/// Returns the version of the table's column layout, `None` if it names none; fails if this popfit is too old for it.
fn parse_layout(entries: &[MetadataEntry]) -> Result<Option<u32>, String> {
    let Some(MetadataEntry { value: text, .. }) =
        entries.iter().find(|entry| entry.key == "popfit.layout")
    else {
        return Ok(None);
    };
    match text.parse() {
        Ok(version) if version <= LAYOUT => Ok(Some(version)),
        Ok(version) => Err(format!(
            "the table's layout is version {version}, and this popfit reads up to {LAYOUT}: take a newer popfit"
        )),
        Err(_) => Err(format!(
            "damaged: popfit.layout is {text:?}, which is no version"
        )),
    }
}
