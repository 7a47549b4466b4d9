//! Fits of spectra.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use popfit::spectra::{FilesReader, Selection, SpectraReader};
use popfit::{Error, FitTable, FlagCounts, Metadata, SpectralFitter};
use popfit_cli::{BuiltModel, Event, FitFiles};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::exception;
use crate::model::SharedModel;
use crate::spectra::Source;
use crate::table::{give_columns, give_metadata};
use crate::wait::{GivenWatch, Outcome, run};

/// Settings of a run, with the names that Python's functions have.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    device: String,
    starts: Option<usize>,
    seed: u64,
    solver: Option<String>,
    max_rounds: Option<u32>,
    precision: String,
    velocity_scan: Option<String>,
    released_errors: Option<bool>,
    strict: bool,
    max_memory: Option<u64>,
    batch_size: Option<usize>,
    cpu_fallback: Option<bool>,
    arms: Option<Vec<String>>,
    target_ids: Option<Vec<i64>>,
    objtype: Option<String>,
    min_sn: Option<f64>,
}

impl Settings {
    /// Returns the run of these settings over files.
    ///
    /// # Errors
    /// Returns the errors of names that the crate does not know.
    fn run_over(&self, model: &SharedModel, files: Vec<PathBuf>, output: PathBuf) -> Result<FitFiles, Error> {
        let mut built = BuiltModel::new(model.model.clone(), model.file.text.clone());
        built.file = Some(model.file.clone());
        let mut run = FitFiles::new(built, files, output);
        run.device = self.device.as_str().into();
        run.starts = self.starts;
        run.seed = Some(self.seed);
        run.solver = self.solver.as_deref().map(str::parse).transpose()?;
        run.max_rounds = self.max_rounds;
        run.precision = self.precision.parse()?;
        run.velocity_scan = self.velocity_scan.as_deref().map(str::parse).transpose()?;
        run.released_errors = self.released_errors;
        run.strict = self.strict;
        run.max_memory = self.max_memory;
        run.batch_size = self.batch_size;
        run.cpu_fallback = self.cpu_fallback;
        run.selection = self.selection(model);
        Ok(run)
    }

    /// Returns which spectra of files are read.
    fn selection(&self, model: &SharedModel) -> Selection {
        let mut selection = Selection::default();
        selection.arms = self.arms.clone();
        selection.target_ids = self.target_ids.clone();
        selection.objtype = self.objtype.clone();
        selection.min_signal_to_noise = self.min_sn;
        selection.widen = model.model.widening().cloned();
        selection
    }
}

/// A fit in memory: its table, and what is to be said of it.
struct Fitted {
    table: FitTable,
    metadata: Metadata,
    notes: Vec<String>,
    flags: Vec<String>,
}

/// What Python gets of a fit: columns, messages, metadata, notes, notes on arrays, sentences on flags, and what ended it
/// early.
type Given<'py> = Bound<'py, PyTuple>;

/// Fits files or arrays into a table.
#[pyfunction]
pub fn fit<'py>(
    py: Python<'py>,
    model: &SharedModel,
    source: Bound<'py, PyAny>,
    settings: Settings,
    watch: GivenWatch,
) -> PyResult<Given<'py>> {
    let watch = watch.check(py)?;
    let made = settings
        .run_over(model, Vec::new(), PathBuf::new())
        .and_then(|run| run.fitter(Some(&model.file), model.model.clone()));
    let fitter = made.map_err(|error| exception(py, &error))?;
    let selection = settings.selection(model);
    let mut array_notes = Vec::new();
    let Outcome { result: fitted, stopped } = if let Ok(paths) = source.extract::<Vec<PathBuf>>() {
        run(py, watch, |control| {
            let mut reader = FilesReader::open(&paths, &selection)?;
            let files = reader.files();
            fitter.check_spectra(&files).map_err(|error| model.file.blame(error))?;
            let missing = files.iter().flat_map(|file| fitter.notes(file)).collect::<Vec<_>>();
            let mut notes = [fitter.model().assumptions(), reader.notes().to_vec(), missing].concat();
            notes.extend(fitter.pixel_notes(&files));
            let mut table = fitter.table();
            let summary = fitter.fit_stream(&mut reader, &mut table, control)?;
            notes.extend(summary.failures);
            Ok(Fitted::new(&fitter, model, table, notes))
        })?
    } else {
        let source = Source::hold(&source)?;
        let (lent, unread) = source.lend(py, model.model.widening())?;
        array_notes = unread;
        let spectra = lent.get();
        run(py, watch, |control| {
            fitter.check_spectra([spectra]).map_err(|error| model.file.blame(error))?;
            let mut notes = [fitter.model().assumptions(), fitter.notes(spectra)].concat();
            notes.extend(fitter.pixel_notes([spectra]));
            let table = fitter.fit_with(spectra, control)?;
            Ok(Fitted::new(&fitter, model, table, notes))
        })?
    };
    let Fitted { table, metadata, notes, flags } = fitted;
    let messages = table.messages().to_vec();
    let metadata = give_metadata(py, &metadata, &table)?;
    (give_columns(py, table)?, messages, metadata, notes, array_notes, flags, stopped).into_pyobject(py)
}

impl Fitted {
    /// Joins a table with its metadata and the sentences on its flags.
    fn new(fitter: &SpectralFitter, model: &SharedModel, table: FitTable, notes: Vec<String>) -> Fitted {
        let mut counts = FlagCounts::new(&fitter.parameters());
        table.to_rows().iter().for_each(|row| counts.add(row));
        let metadata = Metadata::of(fitter).model(model.file.text.clone());
        Fitted { table, metadata, notes, flags: counts.lines() }
    }
}

/// Output of a run over files: path, layout, whether to resume, whether to overwrite, and folder of the report.
type Output = (PathBuf, String, bool, bool, Option<PathBuf>);

/// Fits files into a table on the disk.
#[pyfunction]
pub fn fit_files<'py>(
    py: Python<'py>,
    model: &SharedModel,
    files: Vec<PathBuf>,
    output: Output,
    settings: Settings,
    watch: GivenWatch,
) -> PyResult<Bound<'py, PyTuple>> {
    let watch = watch.check(py)?;
    let (path, format, resume, overwrite, report) = output;
    let events = std::sync::Arc::new(Mutex::new(Vec::new()));
    let told = events.clone();
    let mut run_over = settings.run_over(model, files, path).map_err(|error| exception(py, &error))?;
    run_over.format = format.parse().map_err(|error: Error| exception(py, &error))?;
    (run_over.resume, run_over.overwrite, run_over.report) = (resume, overwrite, report);
    run_over.on_event = Some(Box::new(move |event| {
        let (kind, text) = match event {
            Event::Note(text) => ("note", text),
            Event::Warning(text) | Event::Remains(text) => ("warning", text),
            _ => return,
        };
        if let Ok(mut told) = told.lock() {
            told.push((kind, text));
        }
    }));
    let Outcome { result, stopped } = run(py, watch, move |control| popfit_cli::fit_files(run_over, control))?;
    let summary = PyDict::new(py);
    let statuses: HashMap<&str, u64> =
        result.statuses.iter().map(|status| (status.text.as_str(), status.count)).collect();
    summary.set_item("spectra", result.summary.fits)?;
    summary.set_item("converged", result.converged())?;
    summary.set_item("interrupted", result.summary.interrupted)?;
    summary.set_item("seconds", Duration::as_secs_f64(&result.time))?;
    summary.set_item("statuses", statuses)?;
    summary.set_item("bad_inputs", result.bad_inputs.clone())?;
    summary.set_item("flags", result.flags.clone())?;
    summary.set_item("text", result.to_string())?;
    let events = events.lock().map(|events| events.clone()).unwrap_or_default();
    (summary, events, stopped).into_pyobject(py)
}
