//! The command `popfit`.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::wait::begin;

/// Runs the command with these arguments, the program's name first, and returns its exit code.
#[pyfunction]
pub fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    begin(py)?;
    Ok(py.detach(|| popfit_cli::run_code(arguments)))
}
