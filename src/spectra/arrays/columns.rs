//! Columns of spectra: all one-dimensional arrays with one value per spectrum that are not part of an arm or the ids.

use std::sync::Arc;

use super::source::{ArrayRows, ArraySource, ElementKind};
use super::values::ArrayValues;
use crate::error::Result;
use crate::spectra::{Column, ColumnValues};

/// Names and values of all columns.
pub struct ColumnArrays<R>(Vec<(Arc<str>, ElementKind, R)>);

impl<R> ColumnArrays<R> {
    /// Finds all arrays of one value per spectrum except those in `spectra_arrays`, and reads each through to find
    /// damage. Arrays of types that popfit does not read are ignored.
    pub fn open<'a, S>(
        source: &mut S,
        length: usize,
        spectra_arrays: &[String],
    ) -> Result<ColumnArrays<R>>
    where
        S: ArraySource<'a, Rows = R>,
        R: ArrayRows<'a>,
    {
        let mut columns = Vec::new();
        for key in source.keys() {
            if spectra_arrays.contains(&key) {
                continue;
            }
            let Ok(Some(head)) = source.read_head(&key) else {
                continue;
            };
            if head.shape != [length] {
                continue;
            }
            source.read_through_array(&key)?;
            columns.push((Arc::from(key.as_str()), head.kind, source.open_rows(&key)?));
        }
        Ok(ColumnArrays(columns))
    }

    /// Returns the memory that one spectrum's cells take (bytes), texts at their maximum length.
    pub fn spectrum_bytes<'a>(&self) -> u64
    where
        R: ArrayRows<'a>,
    {
        self.0
            .iter()
            .map(|(_, _, rows)| (rows.item_bytes() + size_of::<String>()) as u64)
            .sum()
    }

    /// Takes the values of the next `rows` spectra in every column.
    pub fn read_batch<'a>(&mut self, rows: usize) -> Result<Vec<Column>>
    where
        R: ArrayRows<'a>,
    {
        self.0
            .iter_mut()
            .map(|(name, _, array)| {
                Ok(make_column(
                    name,
                    into_column_values(array.take_elements(rows)?),
                ))
            })
            .collect()
    }

    /// Returns the columns with names and types but without values.
    pub fn without_values(&self) -> Vec<Column> {
        self.0
            .iter()
            .map(|(name, kind, _)| make_column(name, no_values(*kind)))
            .collect()
    }
}

/// Makes a column of this name and these values, without a unit or the name of a table.
fn make_column(name: &Arc<str>, values: ColumnValues) -> Column {
    Column {
        table: Arc::from(""),
        name: name.clone(),
        unit: Arc::from(""),
        values,
    }
}

/// Returns an empty vector of values of this kind.
fn no_values(kind: ElementKind) -> ColumnValues {
    match kind {
        ElementKind::Bool => ColumnValues::Bool(Vec::new()),
        ElementKind::Integer => ColumnValues::I64(Vec::new()),
        ElementKind::Natural => ColumnValues::U64(Vec::new()),
        ElementKind::Single => ColumnValues::F32(Vec::new()),
        ElementKind::Half | ElementKind::Double => ColumnValues::F64(Vec::new()),
        ElementKind::Text => ColumnValues::Text(Vec::new()),
    }
}

/// Returns the values of a column, copied if they are borrowed.
fn into_column_values(array: ArrayValues) -> ColumnValues {
    match array {
        ArrayValues::Bool(values) => ColumnValues::Bool(values.into_owned()),
        ArrayValues::Int64(values) => ColumnValues::I64(values.into_owned()),
        ArrayValues::UInt64(values) => ColumnValues::U64(values.into_owned()),
        ArrayValues::Float32(values) => ColumnValues::F32(values.into_owned()),
        ArrayValues::Float64(values) => ColumnValues::F64(values.into_owned()),
        ArrayValues::Text(values) => ColumnValues::Text(values),
    }
}
