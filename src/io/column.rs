//! Typed columns of a table, with names and units.

use std::ops::Range;
use std::sync::Arc;

/// A column of a table, with one value per spectrum.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name of its table (`FIBERMAP`, `SCORES`); empty if there is only one.
    pub table: Arc<str>,
    /// Name as in the file.
    pub name: Arc<str>,
    /// Unit; empty if the file gives none.
    pub unit: Arc<str>,
    /// (n)
    pub values: ColumnValues,
}

/// A column's values, in the width of the file. Integers never pass through a float.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "their names say what they hold")]
pub enum ColumnValues {
    Bool(Vec<bool>),
    U8(Vec<u8>),
    I16(Vec<i16>),
    U16(Vec<u16>),
    I32(Vec<i32>),
    U32(Vec<u32>),
    I64(Vec<i64>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Text(Vec<String>),
}

/// Evaluates the same expression for the values of every type.
macro_rules! for_each_type {
    ($column:expr, $values:ident => $result:expr) => {
        match $column {
            ColumnValues::Bool($values) => $result,
            ColumnValues::U8($values) => $result,
            ColumnValues::I16($values) => $result,
            ColumnValues::U16($values) => $result,
            ColumnValues::I32($values) => $result,
            ColumnValues::U32($values) => $result,
            ColumnValues::I64($values) => $result,
            ColumnValues::U64($values) => $result,
            ColumnValues::F32($values) => $result,
            ColumnValues::F64($values) => $result,
            ColumnValues::Text($values) => $result,
        }
    };
}

/// Appends the values of a column to one of the same type, and evaluates to false if the types differ.
macro_rules! append_values {
    ($column:expr, $more:expr; $($variant:ident)*) => {
        match ($column, $more) {
            $((ColumnValues::$variant(values), ColumnValues::$variant(more)) => {
                values.extend(more);
                true
            })*
            _ => false,
        }
    };
}

impl ColumnValues {
    /// Returns the value of spectrum `row` as a number; `None` for text.
    ///
    /// # Panics
    /// If `row` is not below the number of spectra.
    pub fn number(&self, row: usize) -> Option<f64> {
        Some(match self {
            ColumnValues::Bool(values) => f64::from(u8::from(values[row])),
            ColumnValues::U8(values) => f64::from(values[row]),
            ColumnValues::I16(values) => f64::from(values[row]),
            ColumnValues::U16(values) => f64::from(values[row]),
            ColumnValues::I32(values) => f64::from(values[row]),
            ColumnValues::U32(values) => f64::from(values[row]),
            ColumnValues::I64(values) => values[row] as f64,
            ColumnValues::U64(values) => values[row] as f64,
            ColumnValues::F32(values) => f64::from(values[row]),
            ColumnValues::F64(values) => values[row],
            ColumnValues::Text(_) => return None,
        })
    }

    /// Returns the number of values, one per spectrum.
    pub fn len(&self) -> usize {
        for_each_type!(self, v => v.len())
    }

    /// Returns whether the column has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a column of the same type without values.
    pub(crate) fn empty(&self) -> ColumnValues {
        self.slice(0..0)
    }

    /// Returns a copy of the values of these rows, in their order.
    pub(crate) fn copy_rows(&self, rows: &[usize]) -> ColumnValues {
        for_each_type!(self, v => rows.iter().map(|&row| &v[row]).cloned().collect::<Vec<_>>().into())
    }

    /// Appends the values of a column of the same type. Returns false, and appends nothing, if the types differ.
    #[must_use]
    pub(crate) fn append(&mut self, more: ColumnValues) -> bool {
        append_values!(self, more; Bool U8 I16 U16 I32 U32 I64 U64 F32 F64 Text)
    }

    /// Returns a copy of the values of a range of rows.
    pub(crate) fn slice(&self, rows: Range<usize>) -> ColumnValues {
        for_each_type!(self, v => v[rows].to_vec().into())
    }
}

/// A type of the values of a column.
pub trait ColumnType: Sized {
    /// Makes a column of these values.
    fn into_column(values: Vec<Self>) -> ColumnValues;
}

macro_rules! column_types {
    ($($variant:ident: $type:ty),*) => {
        $(impl ColumnType for $type {
            fn into_column(values: Vec<$type>) -> ColumnValues {
                ColumnValues::$variant(values)
            }
        })*
    };
}

column_types!(Bool: bool, U8: u8, I16: i16, U16: u16, I32: i32, U32: u32, I64: i64, U64: u64);
column_types!(F32: f32, F64: f64, Text: String);

impl<T: ColumnType> From<Vec<T>> for ColumnValues {
    fn from(values: Vec<T>) -> ColumnValues {
        T::into_column(values)
    }
}
