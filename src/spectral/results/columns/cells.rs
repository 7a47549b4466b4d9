//! Storage of the fields of rows in columns: conversion of their cells to written values, and back.

use std::fmt::Debug;
use std::sync::Arc;

use crate::flag::Flags;
use crate::solver::Status;
use crate::spectral::results::exposures::ExposureVelocities;
use crate::spectral::results::moments::VelocityPosterior;
use crate::spectral::results::row::Id;
use crate::spectral::results::values::{ColumnKind, FitValues};

/// A value that is one cell of the table.
pub trait Cell: Clone + Debug + PartialEq {
    /// Type of the column. Ids may be text, too.
    const KIND: ColumnKind;

    /// Returns the cell of a row that has no value.
    fn missing() -> Self;

    /// Converts cells to the values that are written, without a copy where both have the same type.
    fn to_values(cells: Vec<Self>, kind: ColumnKind) -> FitValues;

    /// Converts written values to cells. Fails for a value that is not valid in this column.
    fn from_values(values: FitValues) -> Result<Vec<Self>, InvalidCell>;

    /// Returns the cells of a column of floats; `None` for other types.
    fn floats(_: &[Self]) -> Option<&[f64]> {
        None
    }
}

/// The error for a value that is not valid in its column.
#[derive(Debug)]
pub struct InvalidCell {
    pub row: usize,
    pub message: String,
}

impl InvalidCell {
    /// Returns the error for values of the wrong type, which makes the first cell invalid.
    fn wrong_type(values: &FitValues) -> InvalidCell {
        InvalidCell {
            row: 0,
            message: format!("{} is not its type", values.kind().name()),
        }
    }
}

/// Implements [`Cell`] for a type that is written unchanged.
macro_rules! implement_plain_cell {
    ($type:ty, $kind:ident, $missing:expr $(, $floats:item)?) => {
        impl Cell for $type {
            const KIND: ColumnKind = ColumnKind::$kind;

            fn missing() -> $type {
                $missing
            }

            fn to_values(cells: Vec<$type>, _: ColumnKind) -> FitValues {
                FitValues::$kind(cells)
            }

            fn from_values(values: FitValues) -> Result<Vec<$type>, InvalidCell> {
                match values {
                    FitValues::$kind(cells) => Ok(cells),
                    other => Err(InvalidCell::wrong_type(&other)),
                }
            }

            $($floats)?
        }
    };
}

implement_plain_cell!(i64, Int64, 0);
implement_plain_cell!(String, Text, String::new());
implement_plain_cell!(
    f64,
    Float64,
    f64::NAN,
    fn floats(cells: &[f64]) -> Option<&[f64]> {
        Some(cells)
    }
);

/// Implements [`Cell`] for a type that is written as an integer. `$read` returns `None` for a value that is no `$name`.
macro_rules! implement_integer_cell {
    ($type:ty, $kind:ident, $name:literal, $missing:expr, $write:expr, $read:expr) => {
        impl Cell for $type {
            const KIND: ColumnKind = ColumnKind::$kind;

            fn missing() -> $type {
                $missing
            }

            fn to_values(cells: Vec<$type>, _: ColumnKind) -> FitValues {
                FitValues::$kind(cells.into_iter().map($write).collect())
            }

            fn from_values(values: FitValues) -> Result<Vec<$type>, InvalidCell> {
                let FitValues::$kind(values) = values else {
                    return Err(InvalidCell::wrong_type(&values));
                };
                let read_cell = |(row, value)| {
                    ($read)(value).ok_or_else(|| InvalidCell {
                        row,
                        message: format!("`{value}` is no {}", $name),
                    })
                };
                values.into_iter().enumerate().map(read_cell).collect()
            }
        }
    };
}

implement_integer_cell!(u32, Int64, "count", 0, i64::from, |n: i64| u32::try_from(n)
    .ok());
implement_integer_cell!(u64, Int64, "count", 0, |n: u64| n as i64, |n: i64| {
    u64::try_from(n).ok()
});
implement_integer_cell!(
    Status,
    Int32,
    "status",
    Status::Interrupted,
    Status::code,
    Status::from_code
);
implement_integer_cell!(
    Flags,
    Int64,
    "sum of flags",
    Flags::empty(),
    |flags: Flags| i64::from(flags.bits()),
    |bits: i64| u32::try_from(bits).ok().map(Flags::from_bits)
);
implement_integer_cell!(
    Option<u32>,
    Int32,
    "index",
    None,
    |index: Option<u32>| index
        .and_then(|index| i32::try_from(index).ok())
        .unwrap_or(-1),
    |n: i32| Some(u32::try_from(n).ok())
);

impl Cell for Arc<str> {
    const KIND: ColumnKind = ColumnKind::Text;

    fn missing() -> Arc<str> {
        "".into()
    }

    fn to_values(cells: Vec<Arc<str>>, _: ColumnKind) -> FitValues {
        FitValues::Text(cells.iter().map(ToString::to_string).collect())
    }

    /// Equal texts that follow one another become one text, which the cells share.
    fn from_values(values: FitValues) -> Result<Vec<Arc<str>>, InvalidCell> {
        let FitValues::Text(texts) = values else {
            return Err(InvalidCell::wrong_type(&values));
        };
        let mut previous: Arc<str> = "".into();
        let mut cells = Vec::with_capacity(texts.len());
        for text in texts {
            if *previous != *text {
                previous = text.into();
            }
            cells.push(previous.clone());
        }
        Ok(cells)
    }
}

/// A list of floats in one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatList(Vec<f64>);

impl Cell for FloatList {
    const KIND: ColumnKind = ColumnKind::FloatLists;

    fn missing() -> FloatList {
        FloatList(Vec::new())
    }

    fn to_values(cells: Vec<FloatList>, _: ColumnKind) -> FitValues {
        FitValues::FloatLists(cells.into_iter().map(|FloatList(list)| list).collect())
    }

    fn from_values(values: FitValues) -> Result<Vec<FloatList>, InvalidCell> {
        match values {
            FitValues::FloatLists(lists) => Ok(lists.into_iter().map(FloatList).collect()),
            other => Err(InvalidCell::wrong_type(&other)),
        }
    }
}

impl Cell for Id {
    const KIND: ColumnKind = ColumnKind::Int64;

    fn missing() -> Id {
        Id::Integer(0)
    }

    /// Ids are integers if the column is of integers and all ids are; otherwise they are texts.
    fn to_values(cells: Vec<Id>, kind: ColumnKind) -> FitValues {
        let integers: Option<Vec<i64>> = cells
            .iter()
            .map(|id| match id {
                Id::Integer(integer) => Some(*integer),
                Id::Text(_) => None,
            })
            .collect();
        match integers {
            Some(integers) if kind == ColumnKind::Int64 => FitValues::Int64(integers),
            _ => FitValues::Text(cells.iter().map(ToString::to_string).collect()),
        }
    }

    fn from_values(values: FitValues) -> Result<Vec<Id>, InvalidCell> {
        match values {
            FitValues::Int64(integers) => Ok(integers.into_iter().map(Id::Integer).collect()),
            FitValues::Text(texts) => Ok(texts.into_iter().map(Id::Text).collect()),
            other => Err(InvalidCell::wrong_type(&other)),
        }
    }
}

/// A field of a row, which consists of any number of cells of one type.
pub trait RowField {
    type Cell: Cell;

    /// Returns the cells; none if the row does not have the field.
    fn cells(&self) -> impl Iterator<Item = Self::Cell>;

    /// Returns the field with these cells.
    fn from_cells(cells: impl Iterator<Item = Self::Cell>) -> Self;
}

impl<C: Cell> RowField for C {
    type Cell = C;

    fn cells(&self) -> impl Iterator<Item = C> {
        std::iter::once(self.clone())
    }

    fn from_cells(mut cells: impl Iterator<Item = C>) -> C {
        cells.next().unwrap_or_else(C::missing)
    }
}

impl<C: Cell> RowField for Vec<C> {
    type Cell = C;

    fn cells(&self) -> impl Iterator<Item = C> {
        self.iter().cloned()
    }

    fn from_cells(cells: impl Iterator<Item = C>) -> Vec<C> {
        cells.collect()
    }
}

impl RowField for Option<f64> {
    type Cell = f64;

    fn cells(&self) -> impl Iterator<Item = f64> {
        self.iter().copied()
    }

    fn from_cells(mut cells: impl Iterator<Item = f64>) -> Option<f64> {
        cells.next().filter(|x| !x.is_nan())
    }
}

/// A count of which tables write 0 where there is none.
impl RowField for Option<u64> {
    type Cell = u64;

    fn cells(&self) -> impl Iterator<Item = u64> {
        self.iter().copied()
    }

    fn from_cells(mut cells: impl Iterator<Item = u64>) -> Option<u64> {
        cells.next().filter(|n| *n > 0)
    }
}

impl RowField for Option<VelocityPosterior> {
    type Cell = f64;

    fn cells(&self) -> impl Iterator<Item = f64> {
        self.iter().flat_map(|posterior| {
            [
                posterior.velocity,
                posterior.error,
                posterior.skewness,
                posterior.kurtosis,
            ]
        })
    }

    fn from_cells(mut cells: impl Iterator<Item = f64>) -> Option<VelocityPosterior> {
        let velocity = cells.next().filter(|x| !x.is_nan())?;
        let mut next_cell = || cells.next().unwrap_or(f64::NAN);
        Some(VelocityPosterior {
            velocity,
            error: next_cell(),
            skewness: next_cell(),
            kurtosis: next_cell(),
        })
    }
}

impl RowField for Option<ExposureVelocities> {
    type Cell = FloatList;

    fn cells(&self) -> impl Iterator<Item = FloatList> {
        self.iter().flat_map(|exposures| {
            [
                FloatList(exposures.velocities.clone()),
                FloatList(exposures.errors.clone()),
            ]
        })
    }

    /// There are as many errors as velocities: those that are missing in a file are NaN.
    fn from_cells(mut cells: impl Iterator<Item = FloatList>) -> Option<ExposureVelocities> {
        let FloatList(velocities) = cells.next().filter(|FloatList(list)| !list.is_empty())?;
        let FloatList(mut errors) = cells.next().unwrap_or_else(FloatList::missing);
        errors.resize(velocities.len(), f64::NAN);
        Some(ExposureVelocities { velocities, errors })
    }
}

/// The cells of one field of all rows, column by column. There is no column if no row has the field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldColumns<C>(pub Vec<Vec<C>>);

impl<C> Default for FieldColumns<C> {
    fn default() -> FieldColumns<C> {
        FieldColumns(Vec::new())
    }
}

impl<C: Cell> FieldColumns<C> {
    /// Returns the column of a field that has a single one.
    pub fn single(&self) -> &[C] {
        self.0.first().map_or(&[], Vec::as_slice)
    }

    /// Appends the cells of a row to columns of `rows` cells. Columns for which the row has no cell get a missing one.
    pub fn push(&mut self, cells: impl Iterator<Item = C>, rows: usize) {
        let mut cell_count = 0;
        for (index, cell) in cells.enumerate() {
            self.add_missing_columns(index + 1, rows);
            self.0[index].push(cell);
            cell_count += 1;
        }
        for column in &mut self.0[cell_count..] {
            column.push(C::missing());
        }
    }

    /// Returns the cells of a row.
    pub fn row(&self, index: usize) -> impl ExactSizeIterator<Item = C> + use<'_, C> {
        self.0.iter().map(move |column| column[index].clone())
    }
}

/// A stored field, with cells of any type. `column` is the index of one of its columns.
pub trait StoredField {
    /// Returns whether there is no column, because no row has the field.
    fn is_empty(&self) -> bool;
    /// Appends columns of missing cells until there are `count`.
    fn add_missing_columns(&mut self, count: usize, rows: usize);
    /// Returns the cells of a column of floats.
    fn floats(&self, column: usize) -> Option<&[f64]>;
    /// Returns a copy of the values of a column.
    fn values(&self, column: usize, kind: ColumnKind) -> Option<FitValues>;
    /// Moves the values out of a column, which is empty then. Returns missing cells if there is no such column.
    fn take_values(&mut self, column: usize, kind: ColumnKind, rows: usize) -> FitValues;
    /// Sets the values of a column.
    fn set_values(&mut self, column: usize, values: FitValues) -> Result<(), InvalidCell>;
}

impl<C: Cell> StoredField for FieldColumns<C> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add_missing_columns(&mut self, count: usize, rows: usize) {
        while self.0.len() < count {
            self.0.push(vec![C::missing(); rows]);
        }
    }

    fn floats(&self, column: usize) -> Option<&[f64]> {
        C::floats(self.0.get(column)?)
    }

    fn values(&self, column: usize, kind: ColumnKind) -> Option<FitValues> {
        Some(C::to_values(self.0.get(column)?.clone(), kind))
    }

    fn take_values(&mut self, column: usize, kind: ColumnKind, rows: usize) -> FitValues {
        self.add_missing_columns(column + 1, rows);
        C::to_values(std::mem::take(&mut self.0[column]), kind)
    }

    fn set_values(&mut self, column: usize, values: FitValues) -> Result<(), InvalidCell> {
        let cells = C::from_values(values)?;
        self.add_missing_columns(column + 1, cells.len());
        self.0[column] = cells;
        Ok(())
    }
}
