//! Result tables from FITS, whose units are compared with DATASUM and CHECKSUM, and with the checksum of their order,
//! before a row is read.

#![deny(clippy::indexing_slicing)] // a file must not cause a panic

use std::path::Path;

use super::MetadataEntry;
use super::fits::{parse_fits_unit, unescape};
use super::fits_checksum::{self, RESULTS};
use super::read::{TableSource, WantedColumn, convert_values};
use crate::error::{Error, Result, damage_message};
use crate::io::fits::hdu::ChecksumState;
use crate::io::fits::lists::ListColumn;
use crate::io::fits::tables::FitsTables;
use crate::spectra::{self, Column};
use crate::spectral::FitValues;

/// Number of rows per batch.
const FITS_ROWS_PER_BATCH: usize = 4096;

/// A result table in FITS.
pub(super) struct FitsSource {
    file: FitsTables,
    names: Vec<String>,
    columns: Vec<Column>,
    /// Columns of lists, without rows. In the order of `names` they follow the others.
    list_columns: Vec<ListColumn>,
    metadata: Vec<MetadataEntry>,
    notes: Vec<String>,
    /// popfit wrote the table, so its texts have escapes.
    is_own: bool,
    rows: usize,
    next_row: usize,
}

impl FitsSource {
    /// Opens a FITS result table, reads its columns' names and metadata, and verifies its checksums.
    pub fn open(path: &Path) -> Result<FitsSource> {
        // 1. Read the columns' names and the metadata, whose texts popfit wrote with escapes.
        let mut file = FitsTables::open(path)?;
        let rows = file.len(RESULTS)?;
        let mut columns = file.columns(RESULTS, 0..0)?;
        let mut list_columns = file.list_columns(RESULTS, 0..0)?;
        let mut metadata = read_entries(&mut file)?;
        let has_layout = metadata.iter().any(|entry| entry.key == "popfit.layout");
        if has_layout {
            for entry in &mut metadata {
                entry.key = unescape(&entry.key);
                entry.value = unescape(&entry.value);
            }
            for column in &mut columns {
                column.name = unescape(&column.name).into();
                column.unit = unescape(&column.unit).into();
            }
            for column in &mut list_columns {
                column.name = unescape(&column.name);
                column.unit = unescape(&column.unit);
            }
        }
        let names = columns
            .iter()
            .map(|column| column.name.to_string())
            .chain(list_columns.iter().map(|column| column.name.clone()))
            .collect();
        // 2. Compare the sums of all units, then the checksum of the order.
        let units: Vec<CheckedUnit> = file
            .checksums()?
            .into_iter()
            .map(|(name, checksums)| CheckedUnit { name, checksums })
            .collect();
        let format_error = |message| Error::format(path, message);
        let mut notes = check_checksums(&units, has_layout).map_err(format_error)?;
        // A table without a layout whose sums are all right was written by popfit, and its metadata are damaged.
        let is_whole = units
            .iter()
            .all(|unit| unit.checksums == ChecksumState::Right);
        if has_layout || (is_whole && fits_checksum::has_checksum_keyword(&file)?) {
            notes.extend(
                fits_checksum::verify_checksum(&mut file, &metadata)?.map_err(format_error)?,
            );
        }
        Ok(FitsSource {
            file,
            names,
            columns,
            list_columns,
            metadata,
            notes,
            is_own: has_layout,
            rows,
            next_row: 0,
        })
    }
}

/// Reads the metadata of any FITS file by popfit; returns no entries for a file without the HDU METADATA.
pub(super) fn read_fits_metadata(path: &Path) -> Result<Vec<MetadataEntry>> {
    let mut file = FitsTables::open(path)?;
    let mut entries = read_entries(&mut file)?;
    for entry in &mut entries {
        entry.key = unescape(&entry.key);
        entry.value = unescape(&entry.value);
    }
    Ok(entries)
}

/// Reads the entries of METADATA as they are stored, with escapes; returns none if another program wrote the file.
fn read_entries(file: &mut FitsTables) -> Result<Vec<MetadataEntry>> {
    match file.len("METADATA") {
        Ok(lines) => Ok(join_lines(&file.columns("METADATA", 0..lines)?)),
        Err(_) => Ok(Vec::new()),
    }
}

/// A header and data unit, with the state of its checksums.
struct CheckedUnit {
    name: String,
    checksums: ChecksumState,
}

/// Fails if checksums of a table by popfit are wrong or missing; for other programs' tables, returns notes for the
/// user.
///
/// popfit writes them for every unit. Other programs drop them or, as astropy does, keep old ones beside new rows: a
/// table without popfit's metadata and primary unit is read with a note.
fn check_checksums(units: &[CheckedUnit], has_layout: bool) -> Result<Vec<String>, String> {
    // 1. Wrong sums are damage in a table by popfit, and a note in any other.
    let is_own = has_layout
        || units
            .first()
            .is_some_and(|unit| unit.checksums == ChecksumState::Right);
    let mut notes = Vec::new();
    match join_names(units, ChecksumState::Wrong) {
        Some(names) if is_own => {
            let hint =
                "a program that changes the file has to write new ones, astropy with checksum=True";
            return Err(format!(
                "{} ({hint})",
                damage_message(&format!("the bytes of {names}"))
            ));
        }
        Some(names) => notes.push(format!(
            "another program wrote it, and its checksums of {names} are not verified"
        )),
        None => {}
    }
    // 2. So are missing ones, if the table has a layout.
    match join_names(units, ChecksumState::Missing) {
        Some(names) if has_layout => {
            return Err(format!(
                "damaged: DATASUM or CHECKSUM, which popfit writes, is missing in {names}"
            ));
        }
        Some(names) => notes.push(format!(
            "no checksums in {names}: changed bytes would not be noticed there"
        )),
        None => {}
    }
    Ok(notes)
}

/// Returns the names of all units (FITS extensions) whose checksums are in this state, joined by commas; `None` if
/// none.
fn join_names(units: &[CheckedUnit], checksums: ChecksumState) -> Option<String> {
    let named = units.iter().filter(|unit| unit.checksums == checksums);
    let names: Vec<&str> = named.map(|unit| unit.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the metadata of a key and a value column, where following rows with the same key are lines of one value.
fn join_lines(columns: &[Column]) -> Vec<MetadataEntry> {
    let [
        spectra::ColumnValues::Text(keys),
        spectra::ColumnValues::Text(lines),
    ] = [0, 1].map(|index| match columns.get(index) {
        Some(column) => column.values.clone(),
        None => spectra::ColumnValues::Text(Vec::new()),
    })
    else {
        return Vec::new();
    };
    let mut entries: Vec<MetadataEntry> = Vec::new();
    for (key, line) in keys.into_iter().zip(lines) {
        match entries.last_mut() {
            Some(entry) if entry.key == key => entry.value = format!("{}\n{line}", entry.value),
            _ => entries.push(MetadataEntry { key, value: line }),
        }
    }
    entries
}

impl TableSource for FitsSource {
    fn column_names(&self) -> &[String] {
        &self.names
    }

    fn text_ids(&self, id: usize) -> bool {
        self.columns
            .get(id)
            .is_some_and(|column| matches!(column.values, spectra::ColumnValues::Text(_)))
    }

    fn metadata(&self) -> Vec<MetadataEntry> {
        self.metadata.clone()
    }

    fn units(&self) -> Vec<(String, String)> {
        let single = self
            .columns
            .iter()
            .map(|column| (&*column.name, &*column.unit));
        let lists = self
            .list_columns
            .iter()
            .map(|column| (&*column.name, &*column.unit));
        single
            .chain(lists)
            .filter(|(_, unit)| !unit.is_empty())
            .map(|(name, unit)| (name.into(), parse_fits_unit(unit).into()))
            .collect()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn next_batch(&mut self, wanted: &[WantedColumn]) -> Result<Option<Vec<FitValues>>, String> {
        let rows = self.next_row..(self.next_row + FITS_ROWS_PER_BATCH).min(self.rows);
        if rows.is_empty() {
            return Ok(None);
        }
        self.next_row = rows.end;
        let columns = self
            .file
            .columns(RESULTS, rows.clone())
            .map_err(|error| error.to_string())?;
        let mut list_columns = self
            .file
            .list_columns(RESULTS, rows)
            .map_err(|error| error.to_string())?;
        let mut batch = Vec::new();
        for WantedColumn { index, kind } in wanted {
            let name = self.names.get(*index).map_or("", String::as_str);
            let values = match columns.get(*index) {
                Some(column) => self.to_fit_values(&column.values),
                None => {
                    let column = list_columns.get_mut(*index - columns.len());
                    let lists = column.ok_or("damaged: a column is missing")?;
                    Some(FitValues::FloatLists(std::mem::take(&mut lists.lists)))
                }
            };
            batch.push(convert_values(name, values, *kind)?);
        }
        Ok(Some(batch))
    }
}

impl FitsSource {
    /// Returns the values of a column, with integers of any size as int64 and texts without escapes; `None` for other
    /// types.
    fn to_fit_values(&self, values: &spectra::ColumnValues) -> Option<FitValues> {
        fn integers<T: Copy + TryInto<i64>>(values: &[T]) -> Option<FitValues> {
            values
                .iter()
                .map(|x| (*x).try_into().ok())
                .collect::<Option<_>>()
                .map(FitValues::Int64)
        }
        match values {
            spectra::ColumnValues::U8(values) => integers(values),
            spectra::ColumnValues::I16(values) => integers(values),
            spectra::ColumnValues::U16(values) => integers(values),
            spectra::ColumnValues::I32(values) => integers(values),
            spectra::ColumnValues::U32(values) => integers(values),
            spectra::ColumnValues::I64(values) => integers(values),
            spectra::ColumnValues::U64(values) => integers(values),
            spectra::ColumnValues::F32(values) => Some(FitValues::Float64(
                values.iter().map(|x| f64::from(*x)).collect(),
            )),
            spectra::ColumnValues::F64(values) => Some(FitValues::Float64(values.clone())),
            spectra::ColumnValues::Text(texts) if self.is_own => Some(FitValues::Text(
                texts.iter().map(|text| unescape(text)).collect(),
            )),
            spectra::ColumnValues::Text(texts) => Some(FitValues::Text(texts.clone())),
            spectra::ColumnValues::Bool(_) => None,
        }
    }
}
