//! Numbers and texts of an array in memory.

use std::borrow::Cow;
use std::ops::Range;

use super::source::Kind;
use crate::values::Values;

/// Elements of a [`NamedArray`](super::NamedArray), row-major; numbers may be lent. Integers of other widths are
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

/// Does the same with the values of every type.
macro_rules! each {
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
        each!(self, values => values.len())
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the type of the elements.
    pub(super) fn kind(&self) -> Kind {
        match self {
            ArrayValues::Bool(_) => Kind::Bool,
            ArrayValues::Int64(_) => Kind::Integer,
            ArrayValues::UInt64(_) => Kind::Natural,
            ArrayValues::Float32(_) => Kind::Single,
            ArrayValues::Float64(_) => Kind::Double,
            ArrayValues::Text(_) => Kind::Text,
        }
    }

    /// Returns the number of bytes of an element.
    pub(super) fn item(&self) -> usize {
        match self {
            ArrayValues::Bool(_) => 1,
            ArrayValues::Float32(_) => 4,
            ArrayValues::Int64(_) | ArrayValues::UInt64(_) | ArrayValues::Float64(_) => 8,
            ArrayValues::Text(_) => size_of::<String>(),
        }
    }

    /// Returns the elements of a range, still lent if they are; `None` beyond the end.
    pub(super) fn part(&self, some: Range<usize>) -> Option<ArrayValues<'a>> {
        Some(match self {
            ArrayValues::Bool(values) => ArrayValues::Bool(part(values, some)?),
            ArrayValues::Int64(values) => ArrayValues::Int64(part(values, some)?),
            ArrayValues::UInt64(values) => ArrayValues::UInt64(part(values, some)?),
            ArrayValues::Float32(values) => ArrayValues::Float32(part(values, some)?),
            ArrayValues::Float64(values) => ArrayValues::Float64(part(values, some)?),
            ArrayValues::Text(values) => ArrayValues::Text(values.get(some)?.to_vec()),
        })
    }

    /// Returns numbers as f32 or f64, lent if they are, integers as f64; nothing for booleans and texts.
    pub(super) fn into_values(self) -> Values<'a> {
        match self {
            ArrayValues::Float32(values) => values.into(),
            other => other.into_doubles().into(),
        }
    }

    /// Returns numbers as f64, lent if they are f64; nothing for booleans and texts.
    pub(super) fn into_doubles(self) -> Cow<'a, [f64]> {
        match self {
            ArrayValues::Float64(values) => values,
            ArrayValues::Float32(values) => values.iter().map(|x| f64::from(*x)).collect(),
            ArrayValues::Int64(values) => values.iter().map(|x| *x as f64).collect(),
            ArrayValues::UInt64(values) => values.iter().map(|x| *x as f64).collect(),
            ArrayValues::Bool(_) | ArrayValues::Text(_) => Cow::default(),
        }
    }

    /// Returns numbers as f32, lent if they are f32; nothing for booleans and texts.
    pub(super) fn into_singles(self) -> Cow<'a, [f32]> {
        match self {
            ArrayValues::Float32(values) => values,
            other => other.into_doubles().iter().map(|x| *x as f32).collect(),
        }
    }

    /// Returns booleans, lent if they are, and of integers true for each that is not 0; nothing for others.
    pub(super) fn into_flags(self) -> Cow<'a, [bool]> {
        match self {
            ArrayValues::Bool(values) => values,
            other => other.bits().map(|bits| bits != 0).collect(),
        }
    }

    /// Returns the bits of each integer; nothing for other elements.
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

/// Returns the elements of a range, still lent if they are; `None` beyond the end.
fn part<'a, T: Clone>(values: &Cow<'a, [T]>, some: Range<usize>) -> Option<Cow<'a, [T]>> {
    Some(match values {
        Cow::Borrowed(values) => Cow::Borrowed(values.get(some)?),
        Cow::Owned(values) if some == (0..values.len()) => Cow::Owned(values.clone()),
        Cow::Owned(values) => Cow::Owned(values.get(some)?.to_vec()),
    })
}
