//! Named arrays in memory.

use std::borrow::Cow;
use std::sync::Arc;

use super::reader::ArraysReader;
use super::source::{ArrayHead, ArrayRows, ArraySource, ElementKind, SourcePlace, format_shape};
use super::values::ArrayValues;
use crate::error::{Error, Result};
use crate::spectra::Spectra;
use crate::spectra::widening::{Widening, require_mask_bits};
use crate::values::Values;

/// An array with a name, for [`Spectra::from_named_arrays`].
#[derive(Clone, Debug, PartialEq)]
pub struct NamedArray<'a> {
    /// Name, as in NPZ files: `flux`, `b_ivar`, `id`.
    pub name: String,
    /// Lengths of the axes, the slowest first; empty for a single element.
    pub shape: Vec<usize>,
    /// The elements of the shape, row-major.
    pub values: ArrayValues<'a>,
}

impl<'a> NamedArray<'a> {
    /// Makes an array of a name, a shape and its elements, row-major.
    pub fn new(
        name: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        values: ArrayValues<'a>,
    ) -> NamedArray<'a> {
        NamedArray {
            name: name.into(),
            shape: shape.into(),
            values,
        }
    }
}

impl<'a> Spectra<'a> {
    /// Makes spectra of arrays that are named as in NPZ files, by the rules of these: arms (`flux` or `b_flux`, …),
    /// ivar or sigma, masks of booleans or integers, one grid for all or per spectrum, resolution matrices, covariance
    /// matrices of the noise, `medium`, `id`, and a column of each array that has one value per spectrum. Flux, ivar,
    /// own grids, masks and covariances stay borrowed if their types are those of spectra. `widening` is the model's
    /// rule for bits of masks ([`SpectralModel::widening`](crate::SpectralModel::widening)).
    ///
    /// Returns the spectra and notes for the user: conversion of wavelengths, and arrays that were not used.
    ///
    /// ```
    /// use popfit::Spectra;
    /// use popfit::low_level::{ArrayValues, NamedArray};
    ///
    /// let (grid, flux) = (vec![5000.0, 5001.0, 5002.0], vec![1f32; 6]);
    /// let arrays = vec![
    ///     NamedArray::new("wavelength", [3], ArrayValues::Float64((&grid[..]).into())),
    ///     NamedArray::new("flux", [2, 3], ArrayValues::Float32((&flux[..]).into())),
    ///     NamedArray::new("sigma", [2, 3], ArrayValues::Float64(vec![0.1; 6].into())),
    /// ];
    /// let (spectra, notes) = Spectra::from_named_arrays(arrays, None)?;
    /// assert_eq!((spectra.len(), notes.len()), (2, 0));
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ShapeMismatch`, which names the array; `BadWavelength` for a grid that all spectra share; `Usage` for arrays
    /// that are missing, misspelt, of a wrong type, given twice or at odds with each other, and where errors are to be
    /// widened without a mask that has bits.
    #[doc(hidden)]
    pub fn from_named_arrays(
        arrays: Vec<NamedArray<'a>>,
        widening: Option<&Widening>,
    ) -> Result<(Spectra<'a>, Vec<String>)> {
        widening.map_or(Ok(()), Widening::check)?;
        let mut reader = ArraysReader::open(MemorySource::new(arrays)?, widening)?;
        let spectra = reader.read_all()?;
        require_mask_bits("", std::slice::from_ref(&spectra), widening)?;
        Ok((spectra, reader.into_notes()))
    }
}

/// Named arrays in memory with their heads.
struct MemorySource<'a>(Vec<(String, ArrayHead, Arc<ArrayValues<'a>>)>);

impl<'a> MemorySource<'a> {
    /// Checks that names differ, and that each array has the elements of its shape.
    fn new(arrays: Vec<NamedArray<'a>>) -> Result<MemorySource<'a>> {
        let mut named_arrays: Vec<(String, ArrayHead, Arc<ArrayValues<'a>>)> =
            Vec::with_capacity(arrays.len());
        for NamedArray {
            name,
            shape,
            values,
        } in arrays
        {
            let elements = shape
                .iter()
                .try_fold(1usize, |elements, length| elements.checked_mul(*length));
            if elements != Some(values.len()) {
                let fault = format!(
                    "has {} elements, which are not of the shape {}",
                    values.len(),
                    format_shape(&shape)
                );
                return Err(SourcePlace::Memory.shape_error(&name, fault));
            }
            if named_arrays.iter().any(|(earlier, _, _)| *earlier == name) {
                return Err(Error::Usage(format!(
                    "two arrays named `{name}`; leave one of them out"
                )));
            }
            named_arrays.push((
                name,
                ArrayHead {
                    shape,
                    kind: values.kind(),
                },
                Arc::new(values),
            ));
        }
        Ok(MemorySource(named_arrays))
    }

    /// Returns the elements of an array; fails if there is none of this name.
    fn values(&self, key: &str) -> Result<&Arc<ArrayValues<'a>>> {
        let array = self.0.iter().find(|(name, _, _)| name == key);
        array
            .map(|(_, _, values)| values)
            .ok_or_else(|| self.missing_error(key))
    }
}

impl<'a> ArraySource<'a> for MemorySource<'a> {
    type Rows = MemoryRows<'a>;

    fn place(&self) -> SourcePlace {
        SourcePlace::Memory
    }

    fn keys(&self) -> Vec<String> {
        self.0.iter().map(|(name, _, _)| name.clone()).collect()
    }

    fn read_head(&mut self, key: &str) -> Result<Option<ArrayHead>> {
        Ok(self
            .0
            .iter()
            .find(|(name, _, _)| name == key)
            .map(|(_, head, _)| head.clone()))
    }

    fn read_through_array(&mut self, _key: &str) -> Result<()> {
        Ok(())
    }

    fn check_two_arrays(&mut self, _first: &str, _second: &str) -> Result<()> {
        Ok(())
    }

    fn values_fit_i64(&mut self, key: &str) -> Result<bool> {
        Ok(self
            .values(key)?
            .bits()
            .all(|natural| i64::try_from(natural).is_ok()))
    }

    fn open_rows(&mut self, key: &str) -> Result<MemoryRows<'a>> {
        let values = self.values(key)?.clone();
        Ok(MemoryRows {
            kind: values.kind(),
            values,
            next: 0,
        })
    }

    fn read_numbers(&mut self, key: &str, convert: &dyn Fn(f64) -> f64) -> Result<Vec<f64>> {
        let values = ArrayValues::clone(self.values(key)?).into_doubles();
        Ok(values.iter().map(|x| convert(*x)).collect())
    }

    fn read_text(&mut self, key: &str) -> Result<Option<String>> {
        match &**self.values(key)? {
            ArrayValues::Text(texts) if texts.len() == 1 => Ok(texts.first().cloned()),
            _ => Ok(None),
        }
    }
}

/// The elements of an array in memory.
struct MemoryRows<'a> {
    kind: ElementKind,
    values: Arc<ArrayValues<'a>>,
    /// Index of the next element.
    next: usize,
}

impl<'a> ArrayRows<'a> for MemoryRows<'a> {
    fn kind(&self) -> ElementKind {
        self.kind
    }

    fn item_bytes(&self) -> usize {
        self.values.item_bytes()
    }

    fn take_elements(&mut self, elements: usize) -> Result<ArrayValues<'a>> {
        let range = self.next..self.next.saturating_add(elements);
        self.next = range.end;
        if range == (0..self.values.len()) {
            // The whole array is moved, and copied only if it is shared.
            let no_values = Arc::new(ArrayValues::Text(Vec::new()));
            let all_values = std::mem::replace(&mut self.values, no_values);
            return Ok(Arc::unwrap_or_clone(all_values));
        }
        self.values
            .get_range(range)
            .ok_or_else(|| SourcePlace::Memory.error("an array ended early"))
    }

    fn take_values(&mut self, elements: usize, _spare: Values<'static>) -> Result<Values<'a>> {
        self.take_elements(elements).map(ArrayValues::into_values)
    }

    fn take_doubles(&mut self, elements: usize, _spare: Values<'static>) -> Result<Cow<'a, [f64]>> {
        self.take_elements(elements).map(ArrayValues::into_doubles)
    }

    fn take_singles(&mut self, elements: usize) -> Result<Cow<'a, [f32]>> {
        self.take_elements(elements).map(ArrayValues::into_singles)
    }

    fn take_flags(&mut self, elements: usize) -> Result<Cow<'a, [bool]>> {
        self.take_elements(elements).map(ArrayValues::into_flags)
    }

    fn take_bits(&mut self, elements: usize, visit: &mut dyn FnMut(u64)) -> Result<()> {
        self.take_elements(elements)
            .map(|values| values.bits().for_each(visit))
    }
}
