//! Columns of results that stand alone.

use serde::{Deserialize, Serialize};

/// Type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    Int32,
    Int64,
    Float64,
    Text,
    /// A list of 64-bit floats in each cell.
    FloatLists,
}

impl ColumnKind {
    /// Returns the name of this type of column, such as `float64`. Numpy and ECSV have the same names, except that of
    /// lists.
    pub fn name(self) -> &'static str {
        match self {
            ColumnKind::Int32 => "int32",
            ColumnKind::Int64 => "int64",
            ColumnKind::Float64 => "float64",
            ColumnKind::Text => "string",
            ColumnKind::FloatLists => "float64 list",
        }
    }
}

/// Values of a column of results, one per row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FitValues {
    /// 32-bit integers, such as statuses.
    Int32(Vec<i32>),
    /// 64-bit integers, such as ids and counts.
    Int64(Vec<i64>),
    /// Floats, such as parameters; NaN where a row has no value.
    Float64(Vec<f64>),
    /// Texts, such as files.
    Text(Vec<String>),
    /// Lists of floats, such as one per exposure, whose lengths may differ; empty where a row has no value.
    FloatLists(Vec<Vec<f64>>),
}

impl FitValues {
    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        match self {
            FitValues::Int32(values) => values.len(),
            FitValues::Int64(values) => values.len(),
            FitValues::Float64(values) => values.len(),
            FitValues::Text(values) => values.len(),
            FitValues::FloatLists(values) => values.len(),
        }
    }

    /// Returns the type of the values.
    pub(crate) fn kind(&self) -> ColumnKind {
        match self {
            FitValues::Int32(_) => ColumnKind::Int32,
            FitValues::Int64(_) => ColumnKind::Int64,
            FitValues::Float64(_) => ColumnKind::Float64,
            FitValues::Text(_) => ColumnKind::Text,
            FitValues::FloatLists(_) => ColumnKind::FloatLists,
        }
    }
}

/// A column of results that stands alone: name, unit, meaning and one value per row.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FitColumn {
    /// Name, as in a written table.
    pub name: String,
    /// Unit, such as `km/s`; empty without one.
    pub unit: String,
    /// Meaning, a few words in ASCII.
    pub meaning: String,
    /// One value per row.
    pub values: FitValues,
}

impl FitColumn {
    /// Returns a column with this name, unit, meaning and values.
    pub fn new(
        name: impl Into<String>,
        unit: impl Into<String>,
        meaning: impl Into<String>,
        values: FitValues,
    ) -> FitColumn {
        FitColumn {
            name: name.into(),
            unit: unit.into(),
            meaning: meaning.into(),
            values,
        }
    }
}
