//! Numbers of the user in either precision, borrowed or owned.

use std::borrow::Cow;
use std::ops::Range;

/// Numbers of [`Curves`](crate::Curves) and [`Spectra`](crate::Spectra): borrowed or owned, f64 or f32. Fits read f32
/// directly, and widen single numbers where needed, never whole arrays.
///
/// ```
/// use popfit::Values;
///
/// let (double, single) = (vec![1.0, 2.0], [1.0f32, 2.0]);
/// let all: [Values; 4] = [(&double).into(), double.clone().into(), (&single[..]).into(), single.to_vec().into()];
/// assert!(all.iter().all(|values| values.len() == 2));
/// ```
#[derive(Clone, Debug)]
pub struct Values<'a>(StoredValues<'a>);

/// A slice of numbers in the precision in which they are stored.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// Numbers in f64.
    Double(&'a [f64]),
    /// Numbers in f32.
    Single(&'a [f32]),
}

impl Numbers<'_> {
    /// Returns the number at this index.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub fn get(self, index: usize) -> f64 {
        match self {
            Numbers::Double(values) => values[index],
            Numbers::Single(values) => values[index].into(),
        }
    }
}

/// Numbers in the precision in which they are stored, borrowed or owned.
#[derive(Clone, Debug)]
enum StoredValues<'a> {
    Double(Cow<'a, [f64]>),
    Single(Cow<'a, [f32]>),
}

/// Compares numbers in f64, whatever their precision.
impl PartialEq for Values<'_> {
    fn eq(&self, other: &Values<'_>) -> bool {
        match (&self.0, &other.0) {
            (StoredValues::Double(values), StoredValues::Double(others)) => values == others,
            (StoredValues::Single(values), StoredValues::Single(others)) => values == others,
            _ => self.len() == other.len() && (0..self.len()).all(|k| self.at(k) == other.at(k)),
        }
    }
}

impl Default for Values<'_> {
    fn default() -> Self {
        Values(StoredValues::Double(Cow::default()))
    }
}

impl FromIterator<f64> for Values<'_> {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Vec::from_iter(values).into()
    }
}

impl<'a> Values<'a> {
    /// Returns the number of numbers.
    pub fn len(&self) -> usize {
        match &self.0 {
            StoredValues::Double(values) => values.len(),
            StoredValues::Single(values) => values.len(),
        }
    }

    /// Returns whether there are no numbers at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number at `index` as f64; panics beyond the end.
    ///
    /// # Panics
    /// If `index` is not below `len()`.
    pub fn at(&self, index: usize) -> f64 {
        match &self.0 {
            StoredValues::Double(values) => values[index],
            StoredValues::Single(values) => values[index].into(),
        }
    }

    /// Returns the numbers as a slice if they are stored as f32; `None` if they are f64.
    pub fn as_f32(&self) -> Option<&[f32]> {
        match &self.0 {
            StoredValues::Double(_) => None,
            StoredValues::Single(values) => Some(values),
        }
    }

    /// Returns the numbers as a slice if they are stored as f64; `None` if they are f32.
    /// [`to_double`](Values::to_double) widens f32.
    pub fn as_f64(&self) -> Option<&[f64]> {
        match &self.0 {
            StoredValues::Double(values) => Some(values),
            StoredValues::Single(_) => None,
        }
    }

    /// Returns the numbers of a range as they are stored.
    pub(crate) fn slice(&self, range: Range<usize>) -> Numbers<'_> {
        match &self.0 {
            StoredValues::Double(values) => Numbers::Double(&values[range]),
            StoredValues::Single(values) => Numbers::Single(&values[range]),
        }
    }

    /// Returns the numbers of a range as f64: borrowed if they are f64, else converted into `scratch`, which is
    /// overwritten.
    pub(crate) fn widen_range<'s>(
        &'s self,
        range: Range<usize>,
        scratch: &'s mut Vec<f64>,
    ) -> &'s [f64] {
        match &self.0 {
            StoredValues::Double(values) => &values[range],
            StoredValues::Single(values) => {
                scratch.clear();
                scratch.extend(values[range].iter().map(|x| f64::from(*x)));
                scratch
            }
        }
    }

    /// Returns whether any number in this range of indices is +∞.
    pub(crate) fn has_infinite(&self, range: Range<usize>) -> bool {
        // The compiler vectorises loops without an early exit.
        match &self.0 {
            StoredValues::Double(values) => values[range]
                .iter()
                .fold(false, |any, x| any | (*x == f64::INFINITY)),
            StoredValues::Single(values) => values[range]
                .iter()
                .fold(false, |any, x| any | (*x == f32::INFINITY)),
        }
    }

    /// Copies the numbers in this range of indices to a new vector of f64.
    pub(crate) fn to_vec(&self, range: Range<usize>) -> Vec<f64> {
        match &self.0 {
            StoredValues::Double(values) => values[range].to_vec(),
            StoredValues::Single(values) => values[range].iter().map(|x| f64::from(*x)).collect(),
        }
    }

    /// Returns all numbers as f64: borrowed if they are stored so, else converted into a copy.
    pub fn to_double(&self) -> Cow<'_, [f64]> {
        self.double(0..self.len())
    }

    /// Returns the numbers in a range of indices as f64: borrowed if they are stored so, else converted into a copy.
    ///
    /// # Panics
    /// If `range` reaches beyond `len()`.
    pub(crate) fn double(&self, range: Range<usize>) -> Cow<'_, [f64]> {
        match &self.0 {
            StoredValues::Double(values) => Cow::Borrowed(&values[range]),
            StoredValues::Single(_) => Cow::Owned(self.to_vec(range)),
        }
    }

    /// Returns a mutable vector of the numbers as f64; first copies them if they are borrowed, or converts them from
    /// f32.
    pub fn to_mut(&mut self) -> &mut Vec<f64> {
        if let StoredValues::Single(_) = &self.0 {
            self.0 = StoredValues::Double(Cow::Owned(self.to_vec(0..self.len())));
        }
        match &mut self.0 {
            StoredValues::Double(values) => values.to_mut(),
            StoredValues::Single(_) => unreachable!("widened above"),
        }
    }

    /// Divides the numbers at the chosen indices, f32 in f32; borrowed numbers are copied first.
    pub(crate) fn divide_where(&mut self, is_chosen: impl Fn(usize) -> bool, divisor: f64) {
        match &mut self.0 {
            StoredValues::Double(values) => divide_where(values.to_mut(), is_chosen, divisor),
            StoredValues::Single(values) => {
                divide_where(values.to_mut(), is_chosen, divisor as f32)
            }
        }
    }

    /// Returns the vector of numbers, to reuse its allocation, if they are owned f64; else an empty vector.
    pub(crate) fn into_double_memory(self) -> Vec<f64> {
        match self.0 {
            StoredValues::Double(Cow::Owned(values)) => values,
            _ => Vec::new(),
        }
    }

    /// Returns the vector of numbers, to reuse its allocation, if they are owned f32; else an empty vector.
    pub(crate) fn into_single_memory(self) -> Vec<f32> {
        match self.0 {
            StoredValues::Single(Cow::Owned(values)) => values,
            _ => Vec::new(),
        }
    }

    /// Returns the numbers as owned data, copied if they were borrowed; f32 stay f32 and f64 stay f64.
    pub fn into_owned(self) -> Values<'static> {
        Values(match self.0 {
            StoredValues::Double(values) => StoredValues::Double(Cow::Owned(values.into_owned())),
            StoredValues::Single(values) => StoredValues::Single(Cow::Owned(values.into_owned())),
        })
    }

    /// Returns how many bytes the numbers take in memory.
    pub(crate) fn bytes(&self) -> usize {
        match &self.0 {
            StoredValues::Double(values) => size_of_val(&values[..]),
            StoredValues::Single(values) => size_of_val(&values[..]),
        }
    }

    /// Returns the same numbers as a borrowed view, without a copy.
    pub(crate) fn view(&self) -> Values<'_> {
        self.range(0..self.len())
    }

    /// Borrows the numbers in this range of indices.
    pub(crate) fn range(&self, range: Range<usize>) -> Values<'_> {
        Values(match &self.0 {
            StoredValues::Double(values) => StoredValues::Double(Cow::Borrowed(&values[range])),
            StoredValues::Single(values) => StoredValues::Single(Cow::Borrowed(&values[range])),
        })
    }

    /// Copies rows of several arrays, whose rows have `length` numbers, in this order: as f32 if all arrays are, else
    /// as f64.
    pub(crate) fn gather_rows(
        arrays: &[&Values],
        length: usize,
        rows: &[RowPlace],
    ) -> Values<'static> {
        let singles: Option<Vec<&[f32]>> = arrays.iter().map(|array| array.as_f32()).collect();
        if let Some(singles) = singles {
            return gather_rows(&singles, length, rows).into();
        }
        let doubles: Vec<Cow<[f64]>> = arrays.iter().map(|array| array.to_double()).collect();
        let doubles: Vec<&[f64]> = doubles.iter().map(|array| &**array).collect();
        gather_rows(&doubles, length, rows).into()
    }

    /// Splits the numbers into `count` rows of equal length, and copies the rows with the indices `indices`, in their
    /// order.
    pub(crate) fn copy_rows(&self, count: usize, indices: &[usize]) -> Values<'static> {
        Values(match &self.0 {
            StoredValues::Double(values) => {
                StoredValues::Double(Cow::Owned(copy_rows(values, count, indices)))
            }
            StoredValues::Single(values) => {
                StoredValues::Single(Cow::Owned(copy_rows(values, count, indices)))
            }
        })
    }
}

/// A row of one of several arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPlace {
    /// Index of the array.
    pub array: usize,
    /// Index of the row in it.
    pub row: usize,
}

/// Copies rows of several arrays, whose rows have `length` elements, in this order.
pub(crate) fn gather_rows<T: Copy>(arrays: &[&[T]], length: usize, rows: &[RowPlace]) -> Vec<T> {
    let mut gathered = Vec::with_capacity(rows.len() * length);
    for place in rows {
        let begin = place.row * length;
        gathered.extend_from_slice(&arrays[place.array][begin..begin + length]);
    }
    gathered
}

/// Splits `values` into `count` rows of equal length, and copies the rows with the indices `indices`, in their order.
pub(crate) fn copy_rows<T: Copy>(values: &[T], count: usize, indices: &[usize]) -> Vec<T> {
    let length = values.len() / count.max(1);
    indices
        .iter()
        .flat_map(|c| values[c * length..(c + 1) * length].iter().copied())
        .collect()
}

/// Divides the numbers at the chosen indices.
fn divide_where<T: std::ops::DivAssign + Copy>(
    values: &mut [T],
    is_chosen: impl Fn(usize) -> bool,
    divisor: T,
) {
    values
        .iter_mut()
        .enumerate()
        .filter(|(k, _)| is_chosen(*k))
        .for_each(|(_, value)| *value /= divisor);
}

/// A number that [`Values`] store: `f64` or `f32`.
pub trait Number: Copy + 'static {
    /// Stores numbers as they are.
    fn store(numbers: Cow<'_, [Self]>) -> Values<'_>;
}

impl Number for f64 {
    fn store(numbers: Cow<'_, [f64]>) -> Values<'_> {
        Values(StoredValues::Double(numbers))
    }
}

impl Number for f32 {
    fn store(numbers: Cow<'_, [f32]>) -> Values<'_> {
        Values(StoredValues::Single(numbers))
    }
}

impl<T: Number> From<Vec<T>> for Values<'_> {
    fn from(values: Vec<T>) -> Self {
        T::store(Cow::Owned(values))
    }
}

impl<'a, T: Number> From<Cow<'a, [T]>> for Values<'a> {
    fn from(values: Cow<'a, [T]>) -> Self {
        T::store(values)
    }
}

impl<T: Number, const N: usize> From<[T; N]> for Values<'_> {
    fn from(values: [T; N]) -> Self {
        T::store(Cow::Owned(values.to_vec()))
    }
}

impl<'a, T: Number> From<&'a [T]> for Values<'a> {
    fn from(values: &'a [T]) -> Self {
        T::store(Cow::Borrowed(values))
    }
}

impl<'a, T: Number> From<&'a Vec<T>> for Values<'a> {
    fn from(values: &'a Vec<T>) -> Self {
        T::store(Cow::Borrowed(values))
    }
}

impl<'a, T: Number, const N: usize> From<&'a [T; N]> for Values<'a> {
    fn from(values: &'a [T; N]) -> Self {
        T::store(Cow::Borrowed(values))
    }
}
