//! The result table as FITS: HDU 1 `RESULTS` with the columns of `columns.rs`, HDU 2 `METADATA` with the metadata.

use std::io::{BufWriter, Write};
use std::path::Path;

use super::Entry;
use super::columns::{Column, Kind, Value};
use crate::error::Result;
use crate::io::files::File;
use crate::io::fits::sum::OnesSum;
use crate::io::fits::writer::cards::Cards;
use crate::io::fits::writer::table::{FitsColumn, TableUnit, refused};
use crate::io::output::Metadata;
use crate::spectra::ColumnValues;
use crate::spectral::FitRow;

/// A result table that is being written as FITS.
pub(super) struct FitsTable {
    file: File,
    table: TableUnit,
    metadata: Vec<Entry>,
}

impl FitsTable {
    /// Begins a FITS result table with these columns; `file` stays empty until `finish`.
    pub fn new(path: &Path, file: File, columns: &[Column], metadata: &Metadata) -> Result<FitsTable> {
        let one = |c: &Column| FitsColumn::new(&c.name, spelled(&c.unit), &like(c.kind)).comment(&c.meaning);
        let all = columns.iter().map(one);
        let table = TableUnit::new(path, "RESULTS", all.collect())?;
        Ok(FitsTable { file, table, metadata: metadata.table_entries() })
    }

    /// Appends the cells of these rows to the table's temporary file.
    pub fn append(&mut self, columns: &[Column], rows: &[FitRow]) -> std::io::Result<()> {
        let values: Vec<ColumnValues> = columns.iter().map(|column| values(column, rows)).collect();
        self.table.append(&values)
    }

    /// Adds a key and value to the metadata, which `finish` writes as a table of its own.
    pub fn describe(&mut self, entry: Entry) {
        self.metadata.push(entry);
    }

    /// Writes the FITS file: header, result table, then metadata table; returns the flushed file.
    pub fn finish(mut self, path: &Path) -> Result<File> {
        let mut out = BufWriter::new(self.file);
        out.write_all(&Cards::primary().finish(OnesSum::default())).map_err(refused(path))?;
        self.table.write(&mut out).map_err(refused(path))?;
        metadata_unit(path, &self.metadata)?.write(&mut out).map_err(refused(path))?;
        out.into_inner().map_err(|e| refused(path)(e.into_error()))
    }
}

/// Returns a FITS table of metadata: text columns `key` and `value`, one row per line of a value, as the model file has
/// many. The value is read back as the lines of a key, joined by line feeds.
pub(super) fn metadata_unit(path: &Path, entries: &[Entry]) -> Result<TableUnit> {
    let text = ColumnValues::Text(Vec::new());
    let columns = ["key", "value"].map(|name| FitsColumn::new(name, "", &text));
    let mut table = TableUnit::new(path, "METADATA", columns.to_vec())?;
    let lines = || entries.iter().flat_map(|Entry { key, value }| value.split('\n').map(move |line| (key, line)));
    let keys = lines().map(|(key, _)| key.clone()).collect();
    let values = lines().map(|(_, line)| line.to_string()).collect();
    table.append(&[ColumnValues::Text(keys), ColumnValues::Text(values)]).map_err(refused(path))?;
    Ok(table)
}

/// Converts a unit's name from FITS to popfit's: `km s-1` to `km/s`, others as they are.
pub(super) fn read_unit(unit: &str) -> &str {
    if unit == "km s-1" { "km/s" } else { unit }
}

/// Converts a unit's name from popfit's to that in FITS: `km/s` to `km s-1`, others as they are.
pub(super) fn spelled(unit: &str) -> &str {
    if unit == "km/s" { "km s-1" } else { unit }
}

/// Returns an empty array of the element type that a column of this kind has.
fn like(kind: Kind) -> ColumnValues {
    match kind {
        Kind::Int32 => ColumnValues::I32(Vec::new()),
        Kind::Int64 => ColumnValues::I64(Vec::new()),
        Kind::Float64 => ColumnValues::F64(Vec::new()),
        Kind::Text => ColumnValues::Text(Vec::new()),
    }
}

/// Returns the cells of one column for all rows, as one array of the column's type.
fn values(column: &Column, rows: &[FitRow]) -> ColumnValues {
    let cells = rows.iter().map(|row| column.value(row));
    match column.kind {
        Kind::Int32 => ColumnValues::I32(cells.map(|v| v.integer() as i32).collect()),
        Kind::Int64 => ColumnValues::I64(cells.map(Value::integer).collect()),
        Kind::Float64 => {
            ColumnValues::F64(cells.map(|v| if let Value::Float(x) = v { x } else { v.integer() as f64 }).collect())
        }
        Kind::Text => ColumnValues::Text(
            cells.map(|v| if let Value::Text(t) = v { t.into_owned() } else { v.integer().to_string() }).collect(),
        ),
    }
}
