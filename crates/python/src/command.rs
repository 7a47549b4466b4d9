//! The command `popfit`.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::wait::begin;

/// Runs the command with these arguments, the program's name first, and returns its exit code. `owns_process`: the
/// process is there for the command alone.
#[pyfunction]
pub fn run_command(py: Python<'_>, arguments: Vec<OsString>, owns_process: bool) -> PyResult<u8> {
    begin(py)?;
    Ok(py.detach(|| match owns_process {
        true => popfit_cli::run_process(arguments),
        false => popfit_cli::run_code(arguments),
    }))
}
