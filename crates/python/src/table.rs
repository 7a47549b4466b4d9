//! Result tables: columns handed to numpy, and taken back to be written or streamed.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use numpy::PyReadonlyArray1;
use popfit::{FitColumn, FitTable, FitValues, Metadata, WriteOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::arrays::{give, give_lists, give_texts};
use crate::errors::exception;
use crate::wait::{Watch, run_or_raise};

/// A column as Python has it: name, unit, meaning, and an array of numpy, a list of texts, or a list of arrays.
pub type PythonColumn<'py> = (String, String, String, Bound<'py, PyAny>);

/// Hands the columns of a table to Python, without a copy of its numbers.
///
/// # Errors
/// Returns Python's error where there is no memory for texts.
pub fn give_columns<'py>(py: Python<'py>, table: FitTable) -> PyResult<Vec<PythonColumn<'py>>> {
    table
        .into_columns()
        .into_iter()
        .map(|column| give_column(py, column))
        .collect()
}

/// Hands one column to Python.
fn give_column<'py>(py: Python<'py>, column: FitColumn) -> PyResult<PythonColumn<'py>> {
    let FitColumn {
        name,
        unit,
        meaning,
        values,
        ..
    } = column;
    let values = match values {
        FitValues::Int32(values) => give(py, values),
        FitValues::Int64(values) => give(py, values),
        FitValues::Float64(values) => give(py, values),
        FitValues::Text(values) => give_texts(py, &values)?.into_any(),
        FitValues::FloatLists(lists) => give_lists(py, lists)?.into_any(),
        other => {
            return Err(PyTypeError::new_err(format!(
                "{name}: a column of {other:?}"
            )));
        }
    };
    Ok((name, unit, meaning, values))
}

/// Takes a column back from Python.
fn take_column((name, unit, meaning, values): PythonColumn<'_>) -> PyResult<FitColumn> {
    let values = if let Ok(array) = values.extract::<PyReadonlyArray1<'_, f64>>() {
        FitValues::Float64(array.as_slice()?.to_vec())
    } else if let Ok(array) = values.extract::<PyReadonlyArray1<'_, i64>>() {
        FitValues::Int64(array.as_slice()?.to_vec())
    } else if let Ok(array) = values.extract::<PyReadonlyArray1<'_, i32>>() {
        FitValues::Int32(array.as_slice()?.to_vec())
    } else if let Ok(texts) = values.extract() {
        FitValues::Text(texts)
    } else {
        FitValues::FloatLists(take_lists(&values)?)
    };
    Ok(FitColumn::new(name, unit, meaning, values))
}

/// Takes a column of lists back from Python, where it is a list of arrays.
fn take_lists(values: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<f64>>> {
    let arrays: Vec<PyReadonlyArray1<'_, f64>> = values.extract()?;
    let mut lists = Vec::with_capacity(arrays.len());
    for array in &arrays {
        lists.push(array.as_slice()?.to_vec());
    }
    Ok(lists)
}

/// Hands a run's metadata to Python, with what makes a table of its columns again: parameters, arms and units.
///
/// # Errors
/// Returns Python's error where there is no memory.
pub fn give_metadata<'py>(
    py: Python<'py>,
    metadata: &Metadata,
    table: &FitTable,
) -> PyResult<Bound<'py, PyDict>> {
    let entries = PyDict::new(py);
    entries.set_item("model", &metadata.model)?;
    entries.set_item("emulators", metadata.emulators.clone())?;
    entries.set_item("settings", &metadata.settings)?;
    entries.set_item("device", &metadata.device)?;
    entries.set_item("parameters", table.names())?;
    entries.set_item("arms", table.arms())?;
    entries.set_item("units", table.units().to_vec())?;
    Ok(entries)
}

/// Metadata as Python has them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct GivenMetadata {
    model: String,
    emulators: Vec<(String, String)>,
    settings: String,
    device: String,
    arms: Vec<String>,
    units: Vec<(String, String)>,
}

impl GivenMetadata {
    /// Returns the run's metadata as the crate has them.
    pub fn metadata(&self) -> Metadata {
        let mut metadata = Metadata {
            model: self.model.clone(),
            device: self.device.clone(),
            ..Metadata::default()
        };
        metadata.emulators = self.emulators.clone();
        metadata.settings = self.settings.clone();
        metadata
    }

    /// Makes the crate's table of columns.
    ///
    /// # Errors
    /// Returns an `InputError` about a column that is missing, unknown, or of another type or length.
    pub fn table(&self, py: Python<'_>, columns: Vec<PythonColumn<'_>>) -> PyResult<FitTable> {
        let columns = columns
            .into_iter()
            .map(take_column)
            .collect::<PyResult<Vec<_>>>()?;
        let table = FitTable::from_columns(columns).map_err(|error| exception(py, &error))?;
        Ok(table
            .with_units(self.units.clone())
            .with_arms(self.arms.clone()))
    }
}

/// Reads a table: columns, messages and metadata.
#[pyfunction]
pub fn read_table(
    py: Python<'_>,
    path: PathBuf,
) -> PyResult<(Vec<PythonColumn<'_>>, Vec<String>, Bound<'_, PyDict>)> {
    let (table, metadata) = run_or_raise(py, Watch::default(), move |_| FitTable::read(path))?;
    let messages = table.messages().to_vec();
    let metadata = give_metadata(py, &metadata, &table)?;
    Ok((give_columns(py, table)?, messages, metadata))
}

/// Writes a table.
#[pyfunction]
pub fn write_table(
    py: Python<'_>,
    columns: Vec<PythonColumn<'_>>,
    metadata: GivenMetadata,
    path: PathBuf,
    overwrite: bool,
) -> PyResult<()> {
    let table = metadata.table(py, columns)?;
    let options = WriteOptions {
        metadata: metadata.metadata(),
        overwrite,
    };
    run_or_raise(py, Watch::default(), move |_| {
        table.write_with(path, options)
    })
}

/// Returns columns of any names as a capsule of Arrow's C stream.
#[pyfunction]
pub fn columns_stream<'py>(
    py: Python<'py>,
    columns: Vec<PythonColumn<'py>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let columns = columns.into_iter().map(|column| {
        let FitColumn { name, values, .. } = take_column(column)?;
        let array: ArrayRef = match values {
            FitValues::Int32(values) => Arc::new(Int32Array::from(values)),
            FitValues::Int64(values) => Arc::new(Int64Array::from(values)),
            FitValues::Float64(values) => Arc::new(Float64Array::from(values)),
            FitValues::Text(values) => Arc::new(StringArray::from(values)),
            other => {
                return Err(PyTypeError::new_err(format!(
                    "{name}: a column of {other:?}"
                )));
            }
        };
        Ok((name, array))
    });
    let columns = columns.collect::<PyResult<Vec<_>>>()?;
    let batch = RecordBatch::try_from_iter(columns)
        .map_err(|error| PyTypeError::new_err(error.to_string()))?;
    stream_of(py, batch)
}

/// Returns a batch of rows as a capsule of Arrow's C stream.
fn stream_of(py: Python<'_>, batch: RecordBatch) -> PyResult<Bound<'_, PyCapsule>> {
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    PyCapsule::new_with_value(
        py,
        FFI_ArrowArrayStream::new(Box::new(reader)),
        c"arrow_array_stream",
    )
}

/// Returns a table as a capsule of Arrow's C stream.
#[pyfunction]
pub fn arrow_stream<'py>(
    py: Python<'py>,
    columns: Vec<PythonColumn<'py>>,
    metadata: GivenMetadata,
) -> PyResult<Bound<'py, PyCapsule>> {
    let table = metadata.table(py, columns)?;
    stream_of(
        py,
        table
            .record_batch(&metadata.metadata())
            .map_err(|error| exception(py, &error))?,
    )
}
