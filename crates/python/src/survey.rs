//! Runs in parts.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use popfit_cli::Event;
use popfit_cli::survey::{
    self, FailedPart, MergeOptions, Part, PartOutcome, PartSize, Plan, Worker,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::exception;
use crate::fit::{Note, Output, Settings, run_over_files};
use crate::model::SharedModel;
use crate::wait::{GivenWatch, Outcome, Watch, run, run_or_raise};

/// Divides a run over files into about so many parts, or parts of about so many spectra, and writes its manifest into
/// a folder. Returns notes.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "they are those of Python")]
pub fn make_plan(
    py: Python<'_>,
    model: &SharedModel,
    files: Vec<PathBuf>,
    folder: PathBuf,
    settings: Settings,
    parts: Option<u64>,
    part_rows: u64,
    watch: GivenWatch,
) -> PyResult<Vec<Note>> {
    let watch = watch.check(py)?;
    let notes = Arc::new(Mutex::new(Vec::<Note>::new()));
    let output = Output::of_table(folder);
    let mut planned =
        run_over_files(model, files, output, &settings).map_err(|error| exception(py, &error))?;
    let told = notes.clone();
    planned.on_event = Some(Box::new(move |event| {
        let note = match event {
            Event::Note(text) => ("note", text),
            Event::Advice(text) | Event::Warning(text) => ("warning", text),
            _ => return,
        };
        told.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(note);
    }));
    let size = parts.map_or(PartSize::Spectra(part_rows), PartSize::Parts);
    let outcome = run(py, watch, move |control| {
        survey::plan(planned, size, control).map(drop)
    })?;
    stop_or(outcome)?;
    let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *notes))
}

/// Returns the result of a run, or raises what ended it early.
fn stop_or<T>(outcome: Outcome<T>) -> PyResult<T> {
    match outcome.stopped {
        Some(stopped) => Err(stopped),
        None => Ok(outcome.result),
    }
}

/// A failed part as Python has it: its index, files and causes.
type PythonFailure = (usize, Vec<PathBuf>, Vec<String>);

/// Hands failed parts to Python.
fn give_failures(failed: Vec<FailedPart>) -> Vec<PythonFailure> {
    let give = |failed: FailedPart| (failed.part, failed.files, failed.causes);
    failed.into_iter().map(give).collect()
}

/// A plan on the disk.
#[pyclass(frozen, name = "Plan", module = "popfit._popfit")]
pub struct SharedPlan(Plan);

#[pymethods]
impl SharedPlan {
    /// Opens the plan in a folder.
    #[staticmethod]
    fn open(py: Python<'_>, folder: PathBuf) -> PyResult<SharedPlan> {
        run_or_raise(py, Watch::default(), move |_| {
            Plan::open(folder).map(SharedPlan)
        })
    }

    /// Returns the number of spectra of each part.
    #[getter]
    fn parts(&self) -> Vec<u64> {
        let parts = self.0.manifest().parts.iter();
        parts.map(Part::spectra).collect()
    }

    /// Returns the path of the table of a part.
    fn part_path(&self, py: Python<'_>, part: usize) -> PyResult<PathBuf> {
        self.0
            .part_path(part)
            .map_err(|error| exception(py, &error))
    }

    /// Returns the indices of parts whose tables are not there.
    fn missing_parts(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.0
            .missing_parts()
            .map_err(|error| exception(py, &error))
    }

    /// Returns whether a part has failed as often as it may.
    fn has_failed(&self, part: usize, attempts: usize) -> bool {
        self.0.has_failed(part, attempts)
    }

    /// Lists the parts that have failed as often as they may: their indices, files and causes.
    fn list_failures(&self, py: Python<'_>, attempts: usize) -> PyResult<Vec<PythonFailure>> {
        let listed = self.0.write_failure_list(attempts);
        listed
            .map(give_failures)
            .map_err(|error| exception(py, &error))
    }

    /// Keeps an error of a part.
    fn record_failure(&self, py: Python<'_>, part: usize, error: &str) -> PyResult<()> {
        self.0
            .record_failure(part, error)
            .map_err(|error| exception(py, &error))
    }

    /// Keeps the loss of a part's worker.
    fn record_loss(&self, py: Python<'_>, part: usize, worker: &str) -> PyResult<()> {
        self.0
            .record_loss(part, worker)
            .map_err(|error| exception(py, &error))
    }

    /// Writes the parts as one table; returns the number of rows and the devices that made them.
    fn merge(
        &self,
        py: Python<'_>,
        output: PathBuf,
        overwrite: bool,
        mixed_devices: bool,
    ) -> PyResult<(u64, Vec<String>)> {
        let mut options = MergeOptions::default();
        options.overwrite = overwrite;
        options.mixed_devices = mixed_devices;
        let merged = run(py, Watch::default(), |control| {
            survey::merge(&self.0, output, &options, &control.cancel)
        })?;
        let merged = stop_or(merged)?;
        Ok((merged.rows, merged.devices))
    }
}

/// A worker of a plan.
#[pyclass(frozen, name = "PlanWorker", module = "popfit._popfit")]
pub struct SharedWorker(Worker);

#[pymethods]
impl SharedWorker {
    /// Opens the plan in a folder, and a device.
    #[staticmethod]
    fn open(py: Python<'_>, folder: PathBuf, settings: Settings) -> PyResult<SharedWorker> {
        run_or_raise(py, Watch::default(), move |_| {
            Worker::open(folder, settings.of_fits()?).map(SharedWorker)
        })
    }

    /// Fits a part, unless its table is there. Returns the number of spectra and the numbers of rows by status; `None`
    /// if the table was there.
    fn fit_part<'py>(
        &self,
        py: Python<'py>,
        part: usize,
        watch: GivenWatch,
    ) -> PyResult<Option<(u64, Bound<'py, PyDict>)>> {
        let watch = watch.check(py)?;
        let outcome = run(py, watch, |control| self.0.fit_part(part, control))?;
        let PartOutcome::Fitted(fitted) = stop_or(outcome)? else {
            return Ok(None);
        };
        let statuses = PyDict::new(py);
        for status in &fitted.statuses {
            statuses.set_item(&status.text, status.count)?;
        }
        Ok(Some((fitted.spectra, statuses)))
    }
}
