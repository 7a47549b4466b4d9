//! Files of the demonstration.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// Returns names and contents of the demonstration's files.
#[pyfunction]
pub fn demo_files(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let files = PyDict::new(py);
    for (name, contents) in popfit::demo_data::FILES {
        files.set_item(name, PyBytes::new(py, contents))?;
    }
    Ok(files)
}
