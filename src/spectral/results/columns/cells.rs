//! Storage of the fields of rows in columns, whose cells are written and read back.

use std::fmt::Debug;
use std::sync::Arc;

use crate::flag::Flags;
use crate::solver::Status;
use crate::spectral::results::moments::VelocityPosterior;
use crate::spectral::results::row::Id;
use crate::spectral::results::values::{FitValues, Kind};

/// A value that is one cell of the table.
pub trait Cell: Clone + Debug + PartialEq {
    /// Type of the column. Ids may be text, too.
    const KIND: Kind;

    /// Returns the cell of a row that has no value.
    fn missing() -> Self;

    /// Converts cells to the values that are written, without a copy where both have the same type.
    fn to_values(cells: Vec<Self>, kind: Kind) -> FitValues;

    /// Converts written values to cells; an error for a value that is no cell of this column.
    fn from_values(values: FitValues) -> Result<Vec<Self>, BadCell>;

    /// Returns the cells of a column of floats.
    fn floats(_: &[Self]) -> Option<&[f64]> {
        None
    }
}

/// A value that is no cell of its column.
#[derive(Debug)]
pub struct BadCell {
    pub row: usize,
    pub message: String,
}

impl BadCell {
    /// Returns the error for values of the wrong type, of which every cell is bad.
    fn of_type(values: &FitValues) -> BadCell {
        BadCell {
            row: 0,
            message: format!("{} is not its type", values.kind().name()),
        }
    }
}

/// Implements [`Cell`] for a type that is written as it is.
macro_rules! written_as_it_is {
    ($type:ty, $kind:ident, $missing:expr $(, $floats:item)?) => {
        impl Cell for $type {
            const KIND: Kind = Kind::$kind;

            fn missing() -> $type {
                $missing
            }

            fn to_values(cells: Vec<$type>, _: Kind) -> FitValues {
                FitValues::$kind(cells)
            }

            fn from_values(values: FitValues) -> Result<Vec<$type>, BadCell> {
                match values {
                    FitValues::$kind(cells) => Ok(cells),
                    other => Err(BadCell::of_type(&other)),
                }
            }

            $($floats)?
        }
    };
}

written_as_it_is!(i64, Int64, 0);
written_as_it_is!(String, Text, String::new());
written_as_it_is!(
    f64,
    Float64,
    f64::NAN,
    fn floats(cells: &[f64]) -> Option<&[f64]> {
        Some(cells)
    }
);

/// Implements [`Cell`] for a type that is written as an integer. `$read` returns `None` for a value that is no `$name`.
macro_rules! written_as_integer {
    ($type:ty, $kind:ident, $name:literal, $missing:expr, $write:expr, $read:expr) => {
        impl Cell for $type {
            const KIND: Kind = Kind::$kind;

            fn missing() -> $type {
                $missing
            }

            fn to_values(cells: Vec<$type>, _: Kind) -> FitValues {
                FitValues::$kind(cells.into_iter().map($write).collect())
            }

            fn from_values(values: FitValues) -> Result<Vec<$type>, BadCell> {
                let FitValues::$kind(values) = values else {
                    return Err(BadCell::of_type(&values));
                };
                let bad = |row, value| BadCell {
                    row,
                    message: format!("`{value}` is no {}", $name),
                };
                let cell = |(row, value)| ($read)(value).ok_or_else(|| bad(row, value));
                values.into_iter().enumerate().map(cell).collect()
            }
        }
    };
}

written_as_integer!(u32, Int64, "count", 0, i64::from, |n: i64| u32::try_from(n)
    .ok());
written_as_integer!(u64, Int64, "count", 0, |n: u64| n as i64, |n: i64| {
    u64::try_from(n).ok()
});
written_as_integer!(
    Status,
    Int32,
    "status",
    Status::Interrupted,
    Status::code,
    Status::from_code
);
written_as_integer!(
    Flags,
    Int64,
    "sum of flags",
    Flags::empty(),
    |flags: Flags| i64::from(flags.bits()),
    |bits: i64| u32::try_from(bits).ok().map(Flags::from_bits_retain)
);
written_as_integer!(
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
    const KIND: Kind = Kind::Text;

    fn missing() -> Arc<str> {
        "".into()
    }

    fn to_values(cells: Vec<Arc<str>>, _: Kind) -> FitValues {
        FitValues::Text(cells.iter().map(ToString::to_string).collect())
    }

    /// Equal texts that follow one another become one text, which the cells share.
    fn from_values(values: FitValues) -> Result<Vec<Arc<str>>, BadCell> {
        let FitValues::Text(texts) = values else {
            return Err(BadCell::of_type(&values));
        };
        let mut last: Arc<str> = "".into();
        let mut shared = |text: String| {
            if *last != *text {
                last = text.into();
            }
            last.clone()
        };
        Ok(texts.into_iter().map(&mut shared).collect())
    }
}

impl Cell for Id {
    const KIND: Kind = Kind::Int64;

    fn missing() -> Id {
        Id::Integer(0)
    }

    /// Ids are integers if all of them are, and text where the column is.
    fn to_values(cells: Vec<Id>, kind: Kind) -> FitValues {
        let integer = |id: &Id| {
            if let Id::Integer(n) = id {
                Some(*n)
            } else {
                None
            }
        };
        let integers =
            (kind == Kind::Int64).then(|| cells.iter().map(integer).collect::<Option<Vec<i64>>>());
        match integers.flatten() {
            Some(integers) => FitValues::Int64(integers),
            None => FitValues::Text(cells.iter().map(ToString::to_string).collect()),
        }
    }

    fn from_values(values: FitValues) -> Result<Vec<Id>, BadCell> {
        match values {
            FitValues::Int64(integers) => Ok(integers.into_iter().map(Id::Integer).collect()),
            FitValues::Text(texts) => Ok(texts.into_iter().map(Id::Text).collect()),
            other => Err(BadCell::of_type(&other)),
        }
    }
}

/// A field of a row: some cells of one type.
pub trait Field {
    type Cell: Cell;

    /// Returns its cells: none if the row does not have the field.
    fn cells(&self) -> impl Iterator<Item = Self::Cell>;

    /// Returns the field with these cells.
    fn from_cells(cells: impl Iterator<Item = Self::Cell>) -> Self;
}

impl<C: Cell> Field for C {
    type Cell = C;

    fn cells(&self) -> impl Iterator<Item = C> {
        std::iter::once(self.clone())
    }

    fn from_cells(mut cells: impl Iterator<Item = C>) -> C {
        cells.next().unwrap_or_else(C::missing)
    }
}

impl<C: Cell> Field for Vec<C> {
    type Cell = C;

    fn cells(&self) -> impl Iterator<Item = C> {
        self.iter().cloned()
    }

    fn from_cells(cells: impl Iterator<Item = C>) -> Vec<C> {
        cells.collect()
    }
}

impl Field for Option<f64> {
    type Cell = f64;

    fn cells(&self) -> impl Iterator<Item = f64> {
        self.iter().copied()
    }

    fn from_cells(mut cells: impl Iterator<Item = f64>) -> Option<f64> {
        cells.next().filter(|x| !x.is_nan())
    }
}

impl Field for Option<VelocityPosterior> {
    type Cell = f64;

    fn cells(&self) -> impl Iterator<Item = f64> {
        self.iter()
            .flat_map(|p| [p.velocity, p.error, p.skewness, p.kurtosis])
    }

    fn from_cells(mut cells: impl Iterator<Item = f64>) -> Option<VelocityPosterior> {
        let velocity = cells.next().filter(|x| !x.is_nan())?;
        let mut next = || cells.next().unwrap_or(f64::NAN);
        Some(VelocityPosterior {
            velocity,
            error: next(),
            skewness: next(),
            kurtosis: next(),
        })
    }
}

/// The cells of one field of all rows, column by column. There is no column if no row has the field.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns<C>(pub Vec<Vec<C>>);

impl<C> Default for Columns<C> {
    fn default() -> Columns<C> {
        Columns(Vec::new())
    }
}

impl<C: Cell> Columns<C> {
    /// Returns the column of a field that has a single one.
    pub fn only(&self) -> &[C] {
        self.0.first().map_or(&[], Vec::as_slice)
    }

    /// Appends the cells of a row after `rows` others. Cells that the row does not have are missing ones.
    pub fn push(&mut self, cells: impl Iterator<Item = C>, rows: usize) {
        let mut count = 0;
        for (place, cell) in cells.enumerate() {
            self.widen(place + 1, rows);
            self.0[place].push(cell);
            count += 1;
        }
        self.0[count..]
            .iter_mut()
            .for_each(|column| column.push(C::missing()));
    }

    /// Returns the cells of a row.
    pub fn row(&self, index: usize) -> impl ExactSizeIterator<Item = C> + use<'_, C> {
        self.0.iter().map(move |column| column[index].clone())
    }
}

/// A field as it is stored, whatever the type of its cells. `place` is the index of one of its columns.
pub trait StoredField {
    /// Returns whether there is no column, because no row has the field.
    fn is_empty(&self) -> bool;
    /// Appends columns of missing cells until there are `count`.
    fn widen(&mut self, count: usize, rows: usize);
    /// Returns the cells of a column of floats.
    fn floats(&self, place: usize) -> Option<&[f64]>;
    /// Returns a copy of the values of a column.
    fn values(&self, place: usize, kind: Kind) -> Option<FitValues>;
    /// Moves the values of a column out, which is empty then; missing cells if there is no such column.
    fn take(&mut self, place: usize, kind: Kind, rows: usize) -> FitValues;
    /// Sets the values of a column.
    fn put(&mut self, place: usize, values: FitValues) -> Result<(), BadCell>;
}

impl<C: Cell> StoredField for Columns<C> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn widen(&mut self, count: usize, rows: usize) {
        while self.0.len() < count {
            self.0.push(vec![C::missing(); rows]);
        }
    }

    fn floats(&self, place: usize) -> Option<&[f64]> {
        C::floats(self.0.get(place)?)
    }

    fn values(&self, place: usize, kind: Kind) -> Option<FitValues> {
        Some(C::to_values(self.0.get(place)?.clone(), kind))
    }

    fn take(&mut self, place: usize, kind: Kind, rows: usize) -> FitValues {
        self.widen(place + 1, rows);
        C::to_values(std::mem::take(&mut self.0[place]), kind)
    }

    fn put(&mut self, place: usize, values: FitValues) -> Result<(), BadCell> {
        let cells = C::from_values(values)?;
        self.widen(place + 1, cells.len());
        self.0[place] = cells;
        Ok(())
    }
}
