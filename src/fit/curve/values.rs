//! Numbers that a user lends or gives, in either precision.

use std::borrow::Cow;
use std::ops::Range;

/// Numbers of [`Curves`](super::Curves): borrowed or owned, f64 or f32. Fits read f32 as it is, widened where it is needed, and never as
/// a whole.
///
/// ```
/// use popfit::Values;
///
/// let (double, single) = (vec![1.0, 2.0], [1.0f32, 2.0]);
/// let all: [Values; 4] = [(&double).into(), double.clone().into(), (&single[..]).into(), single.to_vec().into()];
/// assert!(all.iter().all(|values| values.len() == 2));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Values<'a>(Kind<'a>);

#[derive(Clone, Debug, PartialEq)]
enum Kind<'a> {
    Double(Cow<'a, [f64]>),
    Single(Cow<'a, [f32]>),
}

impl<'a> Values<'a> {
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Double(values) => values.len(),
            Kind::Single(values) => values.len(),
        }
    }

    /// Tells whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns number `index`.
    pub(super) fn at(&self, index: usize) -> f64 {
        match &self.0 {
            Kind::Double(values) => values[index],
            Kind::Single(values) => values[index].into(),
        }
    }

    /// Returns some of the numbers: those themselves, or their f64 in `scratch`.
    pub(super) fn part<'s>(&'s self, some: Range<usize>, scratch: &'s mut Vec<f64>) -> &'s [f64] {
        match &self.0 {
            Kind::Double(values) => &values[some],
            Kind::Single(values) => {
                scratch.clear();
                scratch.extend(values[some].iter().map(|x| f64::from(*x)));
                scratch
            }
        }
    }

    /// Returns some of the numbers in memory of their own.
    pub(super) fn to_vec(&self, some: Range<usize>) -> Vec<f64> {
        match &self.0 {
            Kind::Double(values) => values[some].to_vec(),
            Kind::Single(values) => values[some].iter().map(|x| f64::from(*x)).collect(),
        }
    }

    /// Returns all numbers as f64, without a copy where they are.
    pub(super) fn to_double(&self) -> Cow<'_, [f64]> {
        match &self.0 {
            Kind::Double(values) => Cow::Borrowed(values),
            Kind::Single(_) => Cow::Owned(self.to_vec(0..self.len())),
        }
    }

    /// Lends the numbers.
    pub(super) fn view(&self) -> Values<'_> {
        Values(match &self.0 {
            Kind::Double(values) => Kind::Double(Cow::Borrowed(values)),
            Kind::Single(values) => Kind::Single(Cow::Borrowed(values)),
        })
    }

    /// Returns some of `count` rows of equal length, in this order.
    pub(super) fn rows(&self, count: usize, picked: &[usize]) -> Values<'static> {
        Values(match &self.0 {
            Kind::Double(values) => Kind::Double(Cow::Owned(rows(values, count, picked))),
            Kind::Single(values) => Kind::Single(Cow::Owned(rows(values, count, picked))),
        })
    }
}

/// Returns some of `count` rows of equal length, in this order.
pub(super) fn rows<T: Copy>(values: &[T], count: usize, picked: &[usize]) -> Vec<T> {
    let length = values.len() / count.max(1);
    picked.iter().flat_map(|c| values[c * length..(c + 1) * length].iter().copied()).collect()
}

macro_rules! from {
    ($number:ty, $kind:ident) => {
        impl From<Vec<$number>> for Values<'_> {
            fn from(values: Vec<$number>) -> Self {
                Values(Kind::$kind(Cow::Owned(values)))
            }
        }

        impl<const N: usize> From<[$number; N]> for Values<'_> {
            fn from(values: [$number; N]) -> Self {
                Values(Kind::$kind(Cow::Owned(values.to_vec())))
            }
        }

        impl<'a> From<&'a [$number]> for Values<'a> {
            fn from(values: &'a [$number]) -> Self {
                Values(Kind::$kind(Cow::Borrowed(values)))
            }
        }

        impl<'a> From<&'a Vec<$number>> for Values<'a> {
            fn from(values: &'a Vec<$number>) -> Self {
                Values(Kind::$kind(Cow::Borrowed(values)))
            }
        }

        impl<'a, const N: usize> From<&'a [$number; N]> for Values<'a> {
            fn from(values: &'a [$number; N]) -> Self {
                Values(Kind::$kind(Cow::Borrowed(values)))
            }
        }
    };
}

from!(f64, Double);
from!(f32, Single);
