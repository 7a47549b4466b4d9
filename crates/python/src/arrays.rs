//! Arrays of numpy, lent to the crate while the GIL is released, and vectors of the crate, handed to numpy.

use std::borrow::Cow;

use numpy::{
    Element, PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods,
};
use popfit::Values;
use popfit::low_level::{ArrayValues, NamedArray};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::errors::input_error;

/// An array of numpy of one of the types that the crate reads, held for reading. `popfit/_arrays.py` makes them.
pub struct LentArray<'py> {
    name: String,
    shape: Vec<usize>,
    values: LentValues<'py>,
}

enum LentValues<'py> {
    Bool(PyReadonlyArrayDyn<'py, bool>),
    Int64(PyReadonlyArrayDyn<'py, i64>),
    UInt64(PyReadonlyArrayDyn<'py, u64>),
    Float32(PyReadonlyArrayDyn<'py, f32>),
    Float64(PyReadonlyArrayDyn<'py, f64>),
    Text(Vec<String>),
}

impl<'py> LentArray<'py> {
    /// Holds an array for reading; text is copied.
    ///
    /// # Errors
    /// Returns an `InputError` for another type, or for elements that are not in C order.
    fn hold(name: String, array: &Bound<'py, PyAny>) -> PyResult<LentArray<'py>> {
        let py = array.py();
        if let Ok((shape, texts)) = array.extract::<(Vec<usize>, Vec<String>)>() {
            return Ok(LentArray {
                name,
                shape,
                values: LentValues::Text(texts),
            });
        }
        let refuse = |what: &str| {
            input_error(
                py,
                &name,
                format!("{name}: {what}; popfit._arrays converts arrays"),
            )
        };
        let array_of = array
            .cast::<numpy::PyUntypedArray>()
            .map_err(|_| refuse("not an array of numpy"))?;
        // `as_slice` would take Fortran's order, too
        if !array_of.is_c_contiguous() {
            return Err(refuse("not in C order"));
        }
        let shape = array_of.shape().to_vec();
        let values = if let Ok(array) = array.cast::<PyArrayDyn<f64>>() {
            LentValues::Float64(array.readonly())
        } else if let Ok(array) = array.cast::<PyArrayDyn<f32>>() {
            LentValues::Float32(array.readonly())
        } else if let Ok(array) = array.cast::<PyArrayDyn<bool>>() {
            LentValues::Bool(array.readonly())
        } else if let Ok(array) = array.cast::<PyArrayDyn<i64>>() {
            LentValues::Int64(array.readonly())
        } else if let Ok(array) = array.cast::<PyArrayDyn<u64>>() {
            LentValues::UInt64(array.readonly())
        } else {
            return Err(refuse("an array of a type that popfit does not read"));
        };
        Ok(LentArray {
            name,
            shape,
            values,
        })
    }

    /// Lends the array to the crate.
    ///
    /// # Errors
    /// Returns an `InputError` if the elements are not in one piece of memory.
    fn lend(&self, py: Python<'_>) -> PyResult<NamedArray<'_>> {
        let values = match &self.values {
            LentValues::Bool(array) => ArrayValues::Bool(self.slice(py, array)?),
            LentValues::Int64(array) => ArrayValues::Int64(self.slice(py, array)?),
            LentValues::UInt64(array) => ArrayValues::UInt64(self.slice(py, array)?),
            LentValues::Float32(array) => ArrayValues::Float32(self.slice(py, array)?),
            LentValues::Float64(array) => ArrayValues::Float64(self.slice(py, array)?),
            LentValues::Text(texts) => ArrayValues::Text(texts.clone()),
        };
        Ok(NamedArray::new(
            self.name.clone(),
            self.shape.clone(),
            values,
        ))
    }

    /// Returns the name of the array.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lends an array of floats.
    ///
    /// # Errors
    /// Returns an `InputError` for an array of another type.
    pub fn numbers(&self, py: Python<'_>) -> PyResult<Values<'_>> {
        match &self.values {
            LentValues::Float32(array) => Ok(self.slice(py, array)?.into()),
            LentValues::Float64(array) => Ok(self.slice(py, array)?.into()),
            _ => Err(input_error(
                py,
                &self.name,
                format!("{}: give floats", self.name),
            )),
        }
    }

    /// Lends an array of truth values.
    ///
    /// # Errors
    /// Returns an `InputError` for an array of another type.
    pub fn truths(&self, py: Python<'_>) -> PyResult<Cow<'_, [bool]>> {
        match &self.values {
            LentValues::Bool(array) => self.slice(py, array),
            _ => Err(input_error(
                py,
                &self.name,
                format!("{}: give truth values", self.name),
            )),
        }
    }

    /// Returns an array's elements.
    fn slice<'a, T: Element + Clone>(
        &self,
        py: Python<'_>,
        array: &'a PyReadonlyArrayDyn<'_, T>,
    ) -> PyResult<Cow<'a, [T]>> {
        array
            .as_slice()
            .map(Cow::Borrowed)
            .map_err(|error| input_error(py, &self.name, error.to_string()))
    }
}

/// Holds the arrays of a dictionary of names for reading.
///
/// # Errors
/// Those of an array of another type or order.
pub fn hold_all<'py>(arrays: &Bound<'py, PyDict>) -> PyResult<Vec<LentArray<'py>>> {
    arrays
        .iter()
        .map(|(name, array)| LentArray::hold(name.extract()?, &array))
        .collect()
}

/// Lends arrays to the crate.
///
/// # Errors
/// Those of an array that is not in one piece of memory.
pub fn lend_all<'a>(py: Python<'_>, arrays: &'a [LentArray<'_>]) -> PyResult<Vec<NamedArray<'a>>> {
    arrays.iter().map(|array| array.lend(py)).collect()
}

/// Hands numbers to numpy without a copy.
pub fn give<'py, T: Element>(py: Python<'py>, values: Vec<T>) -> Bound<'py, PyAny> {
    PyArray1::from_vec(py, values).into_any()
}

/// Hands lists of numbers to numpy without a copy, as a list of arrays.
///
/// # Errors
/// Returns Python's error where there is no memory for the list.
pub fn give_lists<'py, T: Element>(
    py: Python<'py>,
    lists: Vec<Vec<T>>,
) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, lists.into_iter().map(|values| give(py, values)))
}

/// Hands numbers to numpy without a copy, as an array of some shape.
///
/// # Errors
/// Returns numpy's error if the shape has another number of elements.
pub fn give_shaped<'py, T: Element>(
    py: Python<'py>,
    values: Vec<T>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyArray1::from_vec(py, values).reshape(shape)?.into_any())
}

/// Makes a list of texts, of which equal neighbours are one object.
pub fn give_texts<'py>(py: Python<'py>, texts: &[impl AsRef<str>]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    let mut last: Option<(&str, Bound<'py, pyo3::types::PyString>)> = None;
    for text in texts {
        let text = text.as_ref();
        let object = match last.take() {
            Some((same, object)) if same == text => object,
            _ => pyo3::types::PyString::new(py, text),
        };
        list.append(&object)?;
        last = Some((text, object));
    }
    Ok(list)
}
