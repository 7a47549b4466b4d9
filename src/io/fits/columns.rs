//! The columns of a table that have one number or text per row, read together.

use std::sync::Arc;

use crate::error::Result;
use crate::io::column::{Column, ColumnValues};
use crate::io::fits::hdu::Fits;
use crate::io::fits::table::TableColumn;

/// The columns of a table that have one number or text per row.
pub struct TableColumns {
    index: usize,
    /// Columns without rows, for their structure.
    columns: Vec<Column>,
}

impl TableColumns {
    /// Prepares to copy a table's columns that have one number or text per row; appends a note that names the others.
    pub fn new(fits: &Fits, index: usize, notes: &mut Vec<String>) -> Result<TableColumns> {
        let table = fits.table(index)?;
        let name = fits
            .hdus
            .get(index)
            .map(|hdu| hdu.name.clone())
            .unwrap_or_default();
        // 1. Note the columns that have arrays or types that popfit does not read.
        let left_out: Vec<&str> = table
            .columns
            .iter()
            .filter(|column| !column.is_single())
            .map(|column| column.name.as_str())
            .collect();
        if !left_out.is_empty() {
            notes.push(format!(
                "{}: {name}: columns that are not one number or text a row are left out: {}",
                fits.path.display(),
                left_out.join(", ")
            ));
        }
        // 2. Keep the structure of the others.
        let table_name: Arc<str> = name.into();
        let mut columns = Vec::new();
        for column in table.columns.iter().filter(|column| column.is_single()) {
            columns.push(Column {
                table: table_name.clone(),
                name: column.name.as_str().into(),
                unit: column.unit.as_str().into(),
                values: column
                    .decode_values(&[], table.row_bytes.max(1))
                    .map_err(|message| fits.fault(index, message))?,
            });
        }
        Ok(TableColumns { index, columns })
    }

    /// Reads the prepared columns of these rows and appends them to `out`.
    pub fn read(&self, fits: &mut Fits, rows: &[usize], out: &mut Vec<Column>) -> Result<()> {
        let bytes = fits.read_rows(self.index, rows)?;
        let bytes_per_row = fits
            .table(self.index)?
            .columns
            .iter()
            .filter(|column| column.is_single())
            .map(TableColumn::memory)
            .fold(0, usize::saturating_add);
        fits.charge_memory(rows.len(), bytes_per_row)?;
        let table = fits.table(self.index)?;
        let single = table.columns.iter().filter(|column| column.is_single());
        for (column, prepared) in single.zip(&self.columns) {
            let values = column
                .decode_values(&bytes, table.row_bytes)
                .map_err(|message| fits.fault(self.index, message))?;
            out.push(Column {
                values,
                ..prepared.clone()
            });
        }
        Ok(())
    }

    /// Returns the table's columns with names and types, but without values.
    pub fn empty(&self) -> Vec<Column> {
        self.columns.clone()
    }

    /// Returns the first value of the column of this name as text; `None` unless the column is one of text or integers.
    pub fn text(columns: &[Column], name: &str) -> Option<String> {
        let column = columns
            .iter()
            .find(|column| column.name.eq_ignore_ascii_case(name))?;
        match &column.values {
            ColumnValues::Text(values) => values.first().map(|text| text.trim().to_string()),
            ColumnValues::I16(values) => values.first().map(i16::to_string),
            ColumnValues::I32(values) => values.first().map(i32::to_string),
            ColumnValues::I64(values) => values.first().map(i64::to_string),
            ColumnValues::U64(values) => values.first().map(u64::to_string),
            _ => None,
        }
    }
}
