//! Reader of result tables, batch by batch. Columns that it does not know are ignored.

#![deny(clippy::indexing_slicing)] // a file must not cause a panic

use std::path::Path;
use std::sync::Arc;

use super::read_csv::CsvSource;
use super::read_fits::FitsSource;
#[cfg(feature = "parquet")]
use super::read_parquet::ParquetSource;
use super::{Entry, Extension, extension};
use crate::error::{Error, Result};
use crate::io::output::Metadata;
use crate::spectral::{
    ColumnKind, FitRow, FitTable, FitValues, LAYOUT, ResultColumn, Schema, Store,
};

/// A column of a file that is to be read, by its index there, and the type of its values.
pub(super) struct Wanted {
    pub place: usize,
    pub kind: ColumnKind,
}

/// A file of one format.
pub(super) trait Source {
    /// Returns the names of the columns.
    fn names(&self) -> &[String];
    /// Returns whether the ids, in column `id`, are text.
    fn text_ids(&self, id: usize) -> bool;
    /// Returns the entries of the metadata, if the table has any.
    fn metadata(&self) -> Vec<Entry>;
    /// Returns name and unit of each column that has a unit.
    fn units(&self) -> Vec<(String, String)>;
    /// Returns notes for the user.
    fn notes(&self) -> Vec<String>;
    /// Reads these columns of the next rows; `None` at the end. Empty cells are 0, NaN or an empty text.
    fn next_batch(&mut self, wanted: &[Wanted]) -> Result<Option<Vec<FitValues>>, String>;
}

/// Converts the values of column `name` to this type. Integers become any; `None` are values of a type that no table
/// has.
///
/// # Errors
/// Returns a message with the column if its values are of another type, or too large.
pub(super) fn converted(
    name: &str,
    values: Option<FitValues>,
    kind: ColumnKind,
) -> Result<FitValues, String> {
    let wrong = || {
        format!(
            "column `{name}`: its values are not of the type {}",
            kind.name()
        )
    };
    Ok(match (values.ok_or_else(wrong)?, kind) {
        (FitValues::Int64(values), ColumnKind::Int32) => {
            let narrow =
                |n: i64| i32::try_from(n).map_err(|_| format!("column `{name}`: {n} is too large"));
            FitValues::Int32(values.into_iter().map(narrow).collect::<Result<_, _>>()?)
        }
        (FitValues::Int64(values), ColumnKind::Float64) => {
            FitValues::Float64(values.into_iter().map(|n| n as f64).collect())
        }
        (FitValues::Int64(values), ColumnKind::Text) => {
            FitValues::Text(values.iter().map(ToString::to_string).collect())
        }
        (values, kind) if values.kind() == kind => values,
        _ => return Err(wrong()),
    })
}

/// A result table that is read in batches. A CSV table has no metadata, units and checksums.
///
/// The checksums of Parquet and FITS are verified. Those of FITS are compared when the file is opened; those of Parquet
/// with each row group's last row, so that rows which have been returned are verified once the table has been read to
/// its end.
pub struct TableReader {
    /// Schema of the table's columns.
    pub schema: Schema,
    /// Metadata of the table, empty where another program wrote it without them.
    pub metadata: Metadata,
    /// Version of popfit that wrote the table, if the table has it.
    pub version: Option<String>,
    /// Version of the table's layout, if the table has it.
    pub layout: Option<u32>,
    /// Notes for the user, one line each, such as that the table has no checksums.
    pub notes: Vec<String>,
    path: Arc<Path>,
    source: Box<dyn Source>,
    columns: Vec<ResultColumn>,
    /// Index of each column in the file; `None` for a column that the file does not have.
    places: Vec<Option<usize>>,
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

impl TableReader {
    /// Opens a result table (Parquet, FITS or CSV) and reads its metadata; fails if it is no result table, or found to
    /// be damaged.
    ///
    /// # Errors
    /// `Io`; `Usage` for another extension; `Format` for a file that is no result table, whose layout is newer
    /// than this popfit's, or whose bytes differ from their checksums.
    pub fn open(path: impl AsRef<Path>) -> Result<TableReader> {
        let path = path.as_ref();
        let source: Box<dyn Source> = match extension(path)? {
            #[cfg(feature = "parquet")]
            Extension::Parquet => Box::new(ParquetSource::open(path)?),
            Extension::Csv => Box::new(CsvSource::open(path)?),
            Extension::Fits => Box::new(FitsSource::open(path)?),
        };
        let format = |message| Error::format(path, message);
        let find = |name: &str| source.names().iter().position(|n| n == name);
        let text_ids = find("id").is_some_and(|id| source.text_ids(id));
        let schema =
            Schema::from_names(source.names(), text_ids, source.units()).map_err(format)?;
        let columns = schema.columns();
        let places = columns.iter().map(|column| find(&column.name)).collect();
        let entries = source.metadata();
        let layout = layout(&entries).map_err(format)?;
        let notes = source
            .notes()
            .iter()
            .map(|note| format!("{}: {note}", path.display()))
            .collect();
        let (metadata, version) = Metadata::from_entries(entries);
        Ok(TableReader {
            schema,
            metadata,
            version,
            layout,
            notes,
            path: path.into(),
            source,
            columns,
            places,
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
        // 1. Read the columns that the file has.
        let format = |message: String| Error::format(&self.path, message);
        let wanted = |(column, place): (&ResultColumn, &Option<usize>)| {
            Some(Wanted {
                place: (*place)?,
                kind: column.kind,
            })
        };
        let wanted: Vec<Wanted> = self
            .columns
            .iter()
            .zip(&self.places)
            .filter_map(wanted)
            .collect();
        let Some(values) = self.source.next_batch(&wanted).map_err(format)? else {
            return Ok(None);
        };
        // 2. Make rows of them.
        let mut values = values.into_iter();
        let values = self
            .places
            .iter()
            .map(|place| place.and_then(|_| values.next()))
            .collect();
        let store = Store::from_values(&self.columns, values, self.rows).map_err(format)?;
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

/// Returns the version of the table's column layout, `None` if it names none; fails if this popfit is too old for it.
fn layout(entries: &[Entry]) -> Result<Option<u32>, String> {
    let Some(Entry { value: text, .. }) = entries.iter().find(|entry| entry.key == "popfit.layout")
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
