//! Columns of the spectra's own table (DESI's FIBERMAP, …): passed on to the output, or starts and priors of the fit.

use std::ops::Range;
use std::sync::Arc;

/// One column, one value a spectrum.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The table it comes from (`FIBERMAP`, `SCORES`); empty when there is only one.
    pub table: Arc<str>,
    pub name: Arc<str>,
    /// Empty: none is said.
    pub unit: Arc<str>,
    pub values: ColumnValues,
}

/// A column's values, in the width of the file. Integers never pass through a float.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnValues {
    Bool(Vec<bool>),
    U8(Vec<u8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Text(Vec<String>),
}

impl ColumnValues {
    /// The value of spectrum `row` as a number; `None` for text.
    ///
    /// # Panics
    /// When `row` is not below the number of spectra.
    pub fn number(&self, row: usize) -> Option<f64> {
        match self {
            ColumnValues::Bool(v) => Some(f64::from(u8::from(v[row]))),
            ColumnValues::U8(v) => Some(f64::from(v[row])),
            ColumnValues::I16(v) => Some(f64::from(v[row])),
            ColumnValues::I32(v) => Some(f64::from(v[row])),
            ColumnValues::I64(v) => Some(v[row] as f64),
            ColumnValues::F32(v) => Some(f64::from(v[row])),
            ColumnValues::F64(v) => Some(v[row]),
            ColumnValues::Text(_) => None,
        }
    }

    pub fn len(&self) -> usize {
        match self {
            ColumnValues::Bool(v) => v.len(),
            ColumnValues::U8(v) => v.len(),
            ColumnValues::I16(v) => v.len(),
            ColumnValues::I32(v) => v.len(),
            ColumnValues::I64(v) => v.len(),
            ColumnValues::F32(v) => v.len(),
            ColumnValues::F64(v) => v.len(),
            ColumnValues::Text(v) => v.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn slice(&self, rows: Range<usize>) -> ColumnValues {
        match self {
            ColumnValues::Bool(v) => ColumnValues::Bool(v[rows].to_vec()),
            ColumnValues::U8(v) => ColumnValues::U8(v[rows].to_vec()),
            ColumnValues::I16(v) => ColumnValues::I16(v[rows].to_vec()),
            ColumnValues::I32(v) => ColumnValues::I32(v[rows].to_vec()),
            ColumnValues::I64(v) => ColumnValues::I64(v[rows].to_vec()),
            ColumnValues::F32(v) => ColumnValues::F32(v[rows].to_vec()),
            ColumnValues::F64(v) => ColumnValues::F64(v[rows].to_vec()),
            ColumnValues::Text(v) => ColumnValues::Text(v[rows].to_vec()),
        }
    }
}
