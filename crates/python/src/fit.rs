//! Fits of spectra.

use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use popfit::low_level::FlagCounts;
use popfit::low_level::checks::{check_spectra, list_notes, list_pixel_notes};
use popfit::spectra::{FilesReader, Selection, SpectraReader};
use popfit::{Control, Error, FitTable, Metadata, Spectra, SpectralFitter};
use popfit_cli::{BuiltModel, Event, FailedFile, FitFiles, FitSettings};
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
    exposures: Option<String>,
    strict: bool,
    max_memory: Option<u64>,
    batch_size: Option<usize>,
    cpu_fallback: Option<bool>,
    arms: Option<Vec<String>>,
    target_ids: Option<Vec<i64>>,
    objtype: Option<String>,
    any_fiberstatus: bool,
    min_sn: Option<f64>,
}

impl Settings {
    /// Returns these settings as the crate has them.
    ///
    /// # Errors
    /// Returns the errors of names that the crate does not know.
    pub fn of_fits(&self) -> Result<FitSettings, Error> {
        let mut settings = FitSettings::default();
        settings.device = self.device.as_str().into();
        settings.starts = self.starts;
        settings.seed = Some(self.seed);
        settings.solver = parsed("solver", self.solver.as_deref())?;
        settings.max_rounds = self.max_rounds;
        settings.precision = parsed("precision", Some(&self.precision))?.unwrap_or_default();
        settings.velocity_scan = parsed("velocity_scan", self.velocity_scan.as_deref())?;
        settings.released_errors = self.released_errors;
        settings.join_exposures = self.exposures.as_ref().map(|what| what == "join");
        settings.strict = self.strict;
        settings.max_memory = self.max_memory;
        settings.batch_size = self.batch_size;
        settings.cpu_fallback = self.cpu_fallback;
        Ok(settings)
    }

    /// Returns the fitter of these settings, and opens the device.
    ///
    /// # Errors
    /// Returns the errors of names that the crate does not know, and of devices.
    fn fitter(&self, model: &SharedModel) -> Result<SpectralFitter, Error> {
        self.of_fits()?
            .fitter(model.model.clone(), Some(&model.file))
    }

    /// Returns which spectra of files are read for a model.
    fn selection(&self, model: &SharedModel) -> Selection {
        model.model.complete_selection(Selection {
            arms: self.arms.clone(),
            target_ids: self.target_ids.clone(),
            objtype: self.objtype.clone(),
            good_fibres: !self.any_fiberstatus,
            min_signal_to_noise: self.min_sn,
            ..Selection::default()
        })
    }
}

/// Reads the name of a setting's value; errors name the setting.
///
/// # Errors
/// Returns an `InvalidArgument` for a name that the crate does not know.
fn parsed<T: FromStr<Err = Error>>(setting: &str, name: Option<&str>) -> Result<Option<T>, Error> {
    let parsed = name.map(str::parse).transpose();
    parsed.map_err(|error: Error| Error::InvalidArgument {
        argument: setting.into(),
        message: error.to_string(),
    })
}

/// A fit in memory: its table, and what is to be said of it.
struct Fitted {
    table: FitTable,
    metadata: Metadata,
    notes: Vec<Note>,
    flags: Vec<String>,
}

/// A sentence for the user, and its kind: `note`, or `warning` where the user should act.
pub type Note = (&'static str, String);

/// Returns sentences of this kind.
fn of_kind(kind: &'static str, texts: Vec<String>) -> impl Iterator<Item = Note> {
    texts.into_iter().map(move |text| (kind, text))
}

/// Fits files or arrays into a table. The answer has its columns, messages, metadata, notes (kind and text), notes on
/// arrays, sentences on flags, and the exception that ended the run early.
#[pyfunction]
pub fn fit<'py>(
    py: Python<'py>,
    model: &SharedModel,
    source: Bound<'py, PyAny>,
    settings: Settings,
    watch: GivenWatch,
) -> PyResult<Bound<'py, PyDict>> {
    let watch = watch.check(py)?;
    let selection = settings.selection(model);
    let mut array_notes = Vec::new();
    let Outcome {
        result: fitted,
        stopped,
    } = if let Ok(paths) = source.extract::<Vec<PathBuf>>() {
        run(py, watch, |control| {
            let fitter = settings.fitter(model)?.control(control.clone());
            fit_paths(&fitter, model, &paths, &selection, control)
        })?
    } else {
        let source = Source::hold(&source)?;
        let (lent, unread) = source.lend(py, model.model.widening())?;
        array_notes = unread;
        run(py, watch, |control| {
            let fitter = settings.fitter(model)?.control(control.clone());
            fit_spectra(&fitter, model, lent.get(), control)
        })?
    };
    let Fitted {
        table,
        metadata,
        notes,
        flags,
    } = fitted;
    let answer = PyDict::new(py);
    answer.set_item("messages", table.messages())?;
    answer.set_item("metadata", give_metadata(py, &metadata, &table)?)?;
    answer.set_item("columns", give_columns(py, table)?)?;
    answer.set_item("notes", notes)?;
    answer.set_item("array_notes", array_notes)?;
    answer.set_item("flags", flags)?;
    answer.set_item("stopped", stopped)?;
    Ok(answer)
}

/// Fits the selected spectra of files.
fn fit_paths(
    fitter: &SpectralFitter,
    model: &SharedModel,
    paths: &[PathBuf],
    selection: &Selection,
    control: &Control,
) -> Result<Fitted, Error> {
    let mut reader = FilesReader::open(paths, selection)?;
    let files = reader.files();
    check_spectra(fitter, &files).map_err(|error| model.file.blame(error))?;
    let mut notes: Vec<Note> = of_kind("note", fitter.model().assumptions()).collect();
    notes.extend(of_kind("note", reader.notes().to_vec()));
    notes.extend(of_kind(
        "warning",
        files
            .iter()
            .flat_map(|file| list_notes(fitter, file))
            .collect(),
    ));
    notes.extend(of_kind("warning", list_pixel_notes(fitter, &files)));
    let mut table = fitter.table();
    let summary = fitter.fit_stream(&mut reader, &mut table)?;
    notes.extend(of_kind("warning", summary.failures));
    Fitted::new(fitter, model, table, notes, control)
}

/// Fits spectra in memory.
fn fit_spectra(
    fitter: &SpectralFitter,
    model: &SharedModel,
    spectra: &Spectra<'_>,
    control: &Control,
) -> Result<Fitted, Error> {
    check_spectra(fitter, [spectra]).map_err(|error| model.file.blame(error))?;
    let mut notes: Vec<Note> = of_kind("note", fitter.model().assumptions()).collect();
    notes.extend(of_kind("warning", list_notes(fitter, spectra)));
    notes.extend(of_kind("warning", list_pixel_notes(fitter, [spectra])));
    let table = fitter.fit(spectra)?;
    Fitted::new(fitter, model, table, notes, control)
}

impl Fitted {
    /// Joins a table with its metadata and the sentences on its flags.
    fn new(
        fitter: &SpectralFitter,
        model: &SharedModel,
        table: FitTable,
        notes: Vec<Note>,
        control: &Control,
    ) -> Result<Fitted, Error> {
        let mut counts = FlagCounts::new(&fitter.parameters());
        (0..table.len()).for_each(|k| counts.add(&table.row(k)));
        // the device's name says on how many threads the run was
        let metadata = control.scope(|| Metadata {
            model: model.file.text.clone(),
            ..Metadata::of(fitter)
        })?;
        Ok(Fitted {
            table,
            metadata,
            notes,
            flags: counts.lines(),
        })
    }
}

/// Output of a run over files.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Output {
    path: PathBuf,
    format: String,
    /// A table for each file, in the folder `path`.
    per_file: bool,
    skip_existing: bool,
    /// Folder below which paths are repeated.
    input_root: Option<PathBuf>,
    resume: bool,
    overwrite: bool,
    /// File, or folder, of the best-fit spectra.
    models: Option<PathBuf>,
    /// Folder of the page about the run.
    report: Option<PathBuf>,
}

impl Output {
    /// Returns the output of a run that writes popfit's table alone.
    pub fn of_table(path: PathBuf) -> Output {
        Output {
            path,
            format: "table".into(),
            per_file: false,
            skip_existing: false,
            input_root: None,
            resume: false,
            overwrite: false,
            models: None,
            report: None,
        }
    }
}

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
    let reported = Arc::new(Mutex::new(Vec::<Note>::new()));
    let mut run_over =
        run_over_files(model, files, output, &settings).map_err(|error| exception(py, &error))?;
    let notes = reported.clone();
    run_over.on_event = Some(Box::new(move |event| {
        let note = match event {
            Event::Note(text) => ("note", text),
            Event::Advice(text) | Event::Warning(text) | Event::Remains(text) => ("warning", text),
            _ => return,
        };
        notes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(note);
    }));
    let outcome = run(py, watch, move |control| {
        popfit_cli::fit_files(run_over, control)
    });
    let mut notes = std::mem::take(&mut *reported.lock().unwrap_or_else(PoisonError::into_inner));
    let Outcome { result, stopped } = outcome.map_err(|error| with_warnings(py, error, &notes))?;
    notes.extend(of_kind("warning", result.summary.failures.clone()));
    let summary = PyDict::new(py);
    let statuses: HashMap<&str, u64> = result
        .statuses
        .iter()
        .map(|status| (status.text.as_str(), status.count))
        .collect();
    summary.set_item("spectra", result.summary.fits)?;
    summary.set_item("converged", result.converged())?;
    summary.set_item("interrupted", result.summary.interrupted)?;
    summary.set_item("seconds", result.time.as_secs_f64())?;
    summary.set_item("statuses", statuses)?;
    summary.set_item("bad_inputs", result.bad_inputs.clone())?;
    summary.set_item("flags", result.flags.clone())?;
    summary.set_item("text", result.to_string())?;
    if let Some(files) = &result.per_file {
        let failed = PyDict::new(py);
        for FailedFile { file, cause, .. } in &files.failed {
            failed.set_item(file.display().to_string(), cause)?;
        }
        summary.set_item("written_files", files.written)?;
        summary.set_item("skipped_files", files.skipped)?;
        summary.set_item("failed_files", failed)?;
        summary.set_item("left_files", files.left)?;
        notes.extend(of_kind(
            "warning",
            files.failed.iter().map(ToString::to_string).collect(),
        ));
    }
    (summary, notes, stopped).into_pyobject(py)
}

/// Returns the run of a model over files.
///
/// # Errors
/// Returns the errors of names that the crate does not know.
pub fn run_over_files(
    model: &SharedModel,
    files: Vec<PathBuf>,
    output: Output,
    settings: &Settings,
) -> Result<FitFiles, Error> {
    let mut built = BuiltModel::new(model.model.clone(), model.file.text.clone());
    built.file = Some(model.file.clone());
    let mut run_over = FitFiles::new(built, files, output.path);
    run_over.format = output.format.parse()?;
    (run_over.per_file, run_over.skip_existing) = (output.per_file, output.skip_existing);
    run_over.input_root = output.input_root;
    (run_over.resume, run_over.overwrite) = (output.resume, output.overwrite);
    (run_over.models, run_over.report) = (output.models, output.report);
    run_over.settings = settings.of_fits()?;
    run_over.selection = settings.selection(model);
    Ok(run_over)
}

/// Returns an exception with notes of what was to be warned of before it.
fn with_warnings(py: Python<'_>, error: PyErr, notes: &[Note]) -> PyErr {
    for (_, text) in notes.iter().filter(|(kind, _)| *kind == "warning") {
        // an exception without a note is better than none
        let _ = error.value(py).call_method1("add_note", (text,));
    }
    error
}
