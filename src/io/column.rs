//! Typed columns of a table, with names and units.

use std::ops::Range;
use std::sync::Arc;

/// One column, one value a spectrum.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The table it comes from (`FIBERMAP`, `SCORES`); empty when there is only one.
    pub table: Arc<str>,
    /// Name as in the file.
    pub name: Arc<str>,
    /// Empty: none is said.
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

/// Does the same with the values of every type.
macro_rules! each {
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

impl ColumnValues {
    /// Returns the value of spectrum `row` as a number; `None` for text.
    ///
    /// # Panics
    /// If `row` is not below the number of spectra.
    pub fn number(&self, row: usize) -> Option<f64> {
        Some(match self {
            ColumnValues::Bool(v) => f64::from(u8::from(v[row])),
            ColumnValues::U8(v) => f64::from(v[row]),
            ColumnValues::I16(v) => f64::from(v[row]),
            ColumnValues::U16(v) => f64::from(v[row]),
            ColumnValues::I32(v) => f64::from(v[row]),
            ColumnValues::U32(v) => f64::from(v[row]),
            ColumnValues::I64(v) => v[row] as f64,
            ColumnValues::U64(v) => v[row] as f64,
            ColumnValues::F32(v) => f64::from(v[row]),
            ColumnValues::F64(v) => v[row],
            ColumnValues::Text(_) => return None,
        })
    }

    /// Returns the number of values, one per spectrum.
    pub fn len(&self) -> usize {
        each!(self, v => v.len())
    }

    /// Returns whether the column has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a column of the same type without values.
    pub fn empty(&self) -> ColumnValues {
        self.slice(0..0)
    }

    /// Returns a copy of the values of a range of rows.
    pub(crate) fn slice(&self, rows: Range<usize>) -> ColumnValues {
        each!(self, v => v[rows].to_vec().into())
    }
}

/// Each type's own variant.
macro_rules! from_values {
    ($($variant:ident: $type:ty),*) => {
        $(impl From<Vec<$type>> for ColumnValues {
            fn from(values: Vec<$type>) -> ColumnValues {
                ColumnValues::$variant(values)
            }
        })*
    };
}

from_values!(Bool: bool, U8: u8, I16: i16, U16: u16, I32: i32, U32: u32, I64: i64, U64: u64);
from_values!(F32: f32, F64: f64, Text: String);
