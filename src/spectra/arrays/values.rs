//! Numbers and texts of an array in memory.

use std::borrow::Cow;
use std::ops::Range;

use super::source::ElementKind;
use crate::values::Values;

/// Elements of a [`NamedArray`](super::NamedArray), row-major; numbers may be borrowed. Integers of other widths are
/// widened by the caller: signed ones to `Int64`, unsigned ones to `UInt64`.
///
/// Bits of masks that [widen errors](crate::Widening) are those of the integers given. A mask of signed integers of
/// less than 64 bits is therefore widened through their unsigned type (i32 to u32 to u64): the sign would give it more
/// bits.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "their names say what they hold")]
pub enum ArrayValues<'a> {
    Bool(Cow<'a, [bool]>),
    Int64(Cow<'a, [i64]>),
    UInt64(Cow<'a, [u64]>),
    Float32(Cow<'a, [f32]>),
    Float64(Cow<'a, [f64]>),
    Text(Vec<String>),
}

/// Evaluates the same expression for the values of every type.
macro_rules! for_each_type {
    ($values:expr, $array:ident => $result:expr) => {
        match $values {
            ArrayValues::Bool($array) => $result,
            ArrayValues::Int64($array) => $result,
            ArrayValues::UInt64($array) => $result,
            ArrayValues::Float32($array) => $result,
            ArrayValues::Float64($array) => $result,
            ArrayValues::Text($array) => $result,
        }
    };
}

impl<'a> ArrayValues<'a> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        for_each_type!(self, values => values.len())
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the type of the elements.
    pub(super) fn kind(&self) -> ElementKind {
        match self {
            ArrayValues::Bool(_) => ElementKind::Bool,
            ArrayValues::Int64(_) => ElementKind::Integer,
            ArrayValues::UInt64(_) => ElementKind::Natural,
            ArrayValues::Float32(_) => ElementKind::Single,
            ArrayValues::Float64(_) => ElementKind::Double,
            ArrayValues::Text(_) => ElementKind::Text,
        }
    }

    /// Returns the number of bytes of an element.
    pub(super) fn item_bytes(&self) -> usize {
        match self {
            ArrayValues::Bool(_) => 1,
            ArrayValues::Float32(_) => 4,
            ArrayValues::Int64(_) | ArrayValues::UInt64(_) | ArrayValues::Float64(_) => 8,
            ArrayValues::Text(_) => size_of::<String>(),
        }
    }

    /// Returns the elements of a range, still borrowed if they are; `None` beyond the end.
    pub(super) fn get_range(&self, range: Range<usize>) -> Option<ArrayValues<'a>> {
        Some(match self {
            ArrayValues::Bool(values) => ArrayValues::Bool(get_range(values, range)?),
            ArrayValues::Int64(values) => ArrayValues::Int64(get_range(values, range)?),
            ArrayValues::UInt64(values) => ArrayValues::UInt64(get_range(values, range)?),
            ArrayValues::Float32(values) => ArrayValues::Float32(get_range(values, range)?),
            ArrayValues::Float64(values) => ArrayValues::Float64(get_range(values, range)?),
            ArrayValues::Text(values) => ArrayValues::Text(values.get(range)?.to_vec()),
        })
    }

    /// Returns numbers as f32 or f64, still borrowed if they are, and integers as f64; empty for booleans and texts.
    pub(super) fn into_values(self) -> Values<'a> {
        match self {
            ArrayValues::Float32(values) => values.into(),
            other => other.into_doubles().into(),
        }
    }

    /// Returns numbers as f64, still borrowed if they are f64; empty for booleans and texts.
    pub(super) fn into_doubles(self) -> Cow<'a, [f64]> {
        match self {
            ArrayValues::Float64(values) => values,
            ArrayValues::Float32(values) => values.iter().map(|x| f64::from(*x)).collect(),
            ArrayValues::Int64(values) => values.iter().map(|x| *x as f64).collect(),
            ArrayValues::UInt64(values) => values.iter().map(|x| *x as f64).collect(),
            ArrayValues::Bool(_) | ArrayValues::Text(_) => Cow::default(),
        }
    }

    /// Returns numbers as f32, still borrowed if they are f32; empty for booleans and texts.
    pub(super) fn into_singles(self) -> Cow<'a, [f32]> {
        match self {
            ArrayValues::Float32(values) => values,
            other => other.into_doubles().iter().map(|x| *x as f32).collect(),
        }
    }

    /// Returns booleans, still borrowed if they are, and integers as true where they are not 0; empty for other types.
    pub(super) fn into_flags(self) -> Cow<'a, [bool]> {
        match self {
            ArrayValues::Bool(values) => values,
            other => other.bits().map(|bits| bits != 0).collect(),
        }
    }

    /// Returns the bits of each integer; empty for other types.
    pub(super) fn bits(&self) -> impl Iterator<Item = u64> {
        let (signed, unsigned): (&[i64], &[u64]) = match self {
            ArrayValues::Int64(values) => (values, &[]),
            ArrayValues::UInt64(values) => (&[], values),
            _ => (&[], &[]),
        };
        signed
            .iter()
            .map(|x| *x as u64)
            .chain(unsigned.iter().copied())
    }
}

/// Returns the elements of a range, still borrowed if they are; `None` beyond the end.
fn get_range<'a, T: Clone>(values: &Cow<'a, [T]>, range: Range<usize>) -> Option<Cow<'a, [T]>> {
    Some(match values {
        Cow::Borrowed(values) => Cow::Borrowed(values.get(range)?),
        Cow::Owned(values) if range == (0..values.len()) => Cow::Owned(values.clone()),
        Cow::Owned(values) => Cow::Owned(values.get(range)?.to_vec()),
    })
}
