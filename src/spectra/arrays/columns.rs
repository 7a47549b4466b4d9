//! Columns of spectra: every one-dimensional array with a value for each spectrum that is not part of an arm or
//! ids.

use std::sync::Arc;

use super::source::{Kind, Rows, Source};
use super::values::ArrayValues;
use crate::error::Result;
use crate::spectra::{Column, ColumnValues};

/// Names and values of all columns.
pub struct Columns<R>(Vec<(Arc<str>, Kind, R)>);

impl<R> Columns<R> {
    /// Finds all arrays of one value per spectrum that are not `known` as part of an arm or ids, and reads each through
    /// to find damage. An array whose type popfit does not read is none of its business.
    pub fn open<'a, S>(source: &mut S, length: usize, known: &[String]) -> Result<Columns<R>>
    where
        S: Source<'a, Rows = R>,
        R: Rows<'a>,
    {
        let mut columns = Vec::new();
        for key in source.keys().into_iter().filter(|key| !known.contains(key)) {
            let Ok(Some(head)) = source.head(&key) else {
                continue;
            };
            if head.shape != [length] {
                continue;
            }
            source.check(&key)?;
            columns.push((Arc::from(key.as_str()), head.kind, source.rows(&key)?));
        }
        Ok(Columns(columns))
    }

    /// Returns the memory that one spectrum's cells take (bytes), texts at their longest.
    pub fn bytes<'a>(&self) -> u64
    where
        R: Rows<'a>,
    {
        self.0
            .iter()
            .map(|(_, _, rows)| (rows.item() + size_of::<String>()) as u64)
            .sum()
    }

    /// Takes the values of the next `rows` spectra in every column.
    pub fn batch<'a>(&mut self, rows: usize) -> Result<Vec<Column>>
    where
        R: Rows<'a>,
    {
        self.0
            .iter_mut()
            .map(|(name, _, array)| Ok(column(name, values(array.take(rows)?))))
            .collect()
    }

    /// Returns the columns with names and types but without values.
    pub fn empty(&self) -> Vec<Column> {
        self.0
            .iter()
            .map(|(name, kind, _)| column(name, empty(*kind)))
            .collect()
    }
}

/// Makes a column of this name and these values, without a unit or the name of a table.
fn column(name: &Arc<str>, values: ColumnValues) -> Column {
    Column {
        table: Arc::from(""),
        name: name.clone(),
        unit: Arc::from(""),
        values,
    }
}

/// Returns an empty vector of values of this kind.
fn empty(kind: Kind) -> ColumnValues {
    match kind {
        Kind::Bool => ColumnValues::Bool(Vec::new()),
        Kind::Integer => ColumnValues::I64(Vec::new()),
        Kind::Natural => ColumnValues::U64(Vec::new()),
        Kind::Single => ColumnValues::F32(Vec::new()),
        Kind::Half | Kind::Double => ColumnValues::F64(Vec::new()),
        Kind::Text => ColumnValues::Text(Vec::new()),
    }
}

/// Returns the values of a column, copied if they are lent.
fn values(array: ArrayValues) -> ColumnValues {
    match array {
        ArrayValues::Bool(values) => ColumnValues::Bool(values.into_owned()),
        ArrayValues::Int64(values) => ColumnValues::I64(values.into_owned()),
        ArrayValues::UInt64(values) => ColumnValues::U64(values.into_owned()),
        ArrayValues::Float32(values) => ColumnValues::F32(values.into_owned()),
        ArrayValues::Float64(values) => ColumnValues::F64(values.into_owned()),
        ArrayValues::Text(values) => ColumnValues::Text(values),
    }
}
