//! popfit's Python module `popfit._popfit`: it lends arrays of numpy to the crate, runs it, and moves results to numpy.
//! There is no numeric code here; `python/popfit` has the public interface.
#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod arrays;
mod command;
mod curve_model;
mod curves;
mod demo;
mod device;
mod emulator;
mod errors;
mod fit;
mod model;
mod report;
mod spectra;
mod survey;
mod table;
mod turns;
mod wait;

use pyo3::prelude::*;

/// Functions and classes that popfit's Python code calls.
#[pymodule(gil_used = false)]
mod _popfit {
    #[pymodule_export]
    use super::command::run_command;
    #[pymodule_export]
    use super::curve_model::SharedCurveModel;
    #[pymodule_export]
    use super::curves::{
        curve_intervals, curve_residuals, curve_statistics, fit_curves, predict_curves,
        status_names,
    };
    #[pymodule_export]
    use super::demo::demo_files;
    #[pymodule_export]
    use super::device::{close_devices, devices, driver_to_add};
    #[pymodule_export]
    use super::emulator::SharedEmulator;
    #[pymodule_export]
    use super::fit::{fit, fit_files};
    #[pymodule_export]
    use super::model::{SharedModel, toml_of_json};
    #[pymodule_export]
    use super::report::write_report;
    #[pymodule_export]
    use super::spectra::{FileSpectra, check_arrays};
    #[pymodule_export]
    use super::survey::{SharedPlan, SharedWorker, make_plan};
    #[pymodule_export]
    use super::table::{arrow_stream, columns_stream, read_table, write_table};
    #[pymodule_export]
    use super::wait::after_fork;

    /// Flag of fits with a parameter at a bound.
    #[pymodule_export]
    const AT_BOUND: u32 = popfit::Flags::AT_BOUND.bits();

    /// Version of the crate.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
