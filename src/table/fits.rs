//! The result table as FITS: HDU 1 `RESULTS` with the columns of `columns.rs`, HDU 2 `METADATA` with how they came
//! about.

use std::io::{BufWriter, Write};
use std::path::Path;

use super::Metadata;
use super::columns::{Column, Kind, Value};
use super::fits_cards::Cards;
use super::fits_unit::{FitsColumn, TableUnit, refused};
use crate::error::Result;
use crate::files::File;
use crate::fit::FitRow;
use crate::spectra::{ColumnValues, OnesSum};

pub(super) struct FitsTable {
    file: File,
    table: TableUnit,
    metadata: Vec<(String, String)>,
}

impl FitsTable {
    pub fn new(path: &Path, file: File, columns: &[Column], metadata: &Metadata) -> Result<FitsTable> {
        let one = |c: &Column| FitsColumn::new(&c.name, spelled(&c.unit), &like(c.kind)).comment(&c.meaning);
        let all = columns.iter().map(one);
        let table = TableUnit::new(path, "RESULTS", all.collect())?;
        Ok(FitsTable { file, table, metadata: metadata.table_pairs() })
    }

    pub fn append(&mut self, columns: &[Column], rows: &[FitRow]) -> std::io::Result<()> {
        let values: Vec<ColumnValues> = columns.iter().map(|column| values(column, rows)).collect();
        self.table.append(&values)
    }

    /// One more key and value.
    pub fn describe(&mut self, pair: (String, String)) {
        self.metadata.push(pair);
    }

    /// Puts the file together.
    pub fn finish(mut self, path: &Path) -> Result<File> {
        let mut out = BufWriter::new(self.file);
        let mut units = || -> std::io::Result<()> {
            out.write_all(&Cards::primary().finish(OnesSum::default()))?;
            self.table.write(&mut out)
        };
        units().map_err(refused(path))?;
        metadata_unit(path, &self.metadata)?.write(&mut out).map_err(refused(path))?;
        out.into_inner().map_err(|e| refused(path)(e.into_error()))
    }
}

/// A table of two text columns: `key` and `value`, one row a line of the value (the model file has many), which
/// therefore reads back as it was: a key's lines, joined by line feeds.
pub(super) fn metadata_unit(path: &Path, pairs: &[(String, String)]) -> Result<TableUnit> {
    let text = ColumnValues::Text(Vec::new());
    let columns = ["key", "value"].map(|name| FitsColumn::new(name, "", &text));
    let mut table = TableUnit::new(path, "METADATA", columns.to_vec())?;
    let lines = || pairs.iter().flat_map(|(key, value)| value.split('\n').map(move |line| (key, line)));
    let keys = lines().map(|(key, _)| key.clone()).collect();
    let values = lines().map(|(_, line)| line.to_string()).collect();
    table.append(&[ColumnValues::Text(keys), ColumnValues::Text(values)]).map_err(refused(path))?;
    Ok(table)
}

/// A unit that FITS spells, as popfit does.
pub(super) fn read_unit(unit: &str) -> &str {
    if unit == "km s-1" { "km/s" } else { unit }
}

/// A unit as FITS spells it.
pub(super) fn spelled(unit: &str) -> &str {
    if unit == "km/s" { "km s-1" } else { unit }
}

fn like(kind: Kind) -> ColumnValues {
    match kind {
        Kind::Int32 => ColumnValues::I32(Vec::new()),
        Kind::Int64 => ColumnValues::I64(Vec::new()),
        Kind::Float64 => ColumnValues::F64(Vec::new()),
        Kind::Text => ColumnValues::Text(Vec::new()),
    }
}

fn values(column: &Column, rows: &[FitRow]) -> ColumnValues {
    let cells = rows.iter().map(|row| column.value(row));
    let integer = |value: Value<'_>| match value {
        Value::Integer(n) => n,
        other => unreachable!("an integer column gave {other:?}"),
    };
    match column.kind {
        Kind::Int32 => ColumnValues::I32(cells.map(|v| integer(v) as i32).collect()),
        Kind::Int64 => ColumnValues::I64(cells.map(integer).collect()),
        Kind::Float64 => {
            ColumnValues::F64(cells.map(|v| if let Value::Float(x) = v { x } else { integer(v) as f64 }).collect())
        }
        Kind::Text => ColumnValues::Text(
            cells.map(|v| if let Value::Text(t) = v { t.into_owned() } else { integer(v).to_string() }).collect(),
        ),
    }
}
