//! `popfit fit`: a run over files, reported on the terminal.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use popfit::{Control, Error};

use super::fit_files::{Event, FitFiles, OptionNames, PerFileSummary, fit_files};
use super::fit_plan::{self, PlannedOptions};
use super::options::{DeviceOptions, FitOptions};
use super::output::Format;
use super::progress::{progress_bar, say};
use super::selection::SelectionOptions;
use super::{Failure, name_order, profile, signals};

#[derive(clap::Args)]
pub struct Arguments {
    /// The model file
    #[arg(value_name = "MODEL.toml", required_unless_present = "plan")]
    model: Option<PathBuf>,
    /// Files of spectra, fitted one after another into one table, or with --per-file into a table for each
    #[arg(value_name = "SPECTRA", required_unless_present = "plan")]
    spectra: Vec<PathBuf>,
    /// The result table: a name that ends in .parquet, .fits or .csv; with --per-file a folder
    #[arg(
        short,
        long,
        value_name = "OUT",
        required_unless_present = "plan",
        help_heading = "Input and output"
    )]
    output: Option<PathBuf>,
    /// The result's layout
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Input and output")]
    format: Format,
    /// Write a table for each file NAME into the folder OUT: rvtab_NAME.fits and rvmod_NAME.fits for --format rvtab,
    /// else NAME.parquet, .fits or .csv, in folders as those of the files. A bad file does not stop the others
    #[arg(long, help_heading = "Input and output")]
    per_file: bool,
    /// With --per-file: pass over files whose outputs are all there, to go on with a run that was killed or interrupted
    #[arg(long, help_heading = "Input and output")]
    skip_existing: bool,
    /// With --per-file: the folder below which OUT repeats the folders of the files [default: the deepest one that has
    /// all of them]
    #[arg(long, value_name = "DIR", help_heading = "Input and output")]
    input_root: Option<PathBuf>,
    #[command(flatten)]
    selection: SelectionOptions,
    #[command(flatten)]
    device: DeviceOptions,
    #[command(flatten)]
    fit: FitOptions,
    #[command(flatten)]
    planned: PlannedOptions,
    /// Go on with a run that was killed or interrupted: what it has fitted is not fitted again
    #[arg(long, help_heading = "Input and output")]
    resume: bool,
    /// Replace OUT, and what is written beside it, if these files exist; they stay until the new ones are whole
    #[arg(long, help_heading = "Input and output")]
    overwrite: bool,
    /// Also write the best-fit spectra: a name that ends in .fits; with --per-file a folder of models_NAME.fits
    #[arg(long, value_name = "FILE", help_heading = "Input and output")]
    models: Option<PathBuf>,
    /// Also write a page with counts, figures, some spectra and a table: DIR/index.html
    #[arg(long, value_name = "DIR", help_heading = "Input and output")]
    report: Option<PathBuf>,
    /// Measure where the time goes: a table, and beside OUT its NAME.profile.json and NAME.trace.json (for Chrome or
    /// Perfetto)
    #[arg(long, help_heading = "Input and output")]
    profile: bool,
    /// Print nothing but errors
    #[arg(long, help_heading = "Input and output")]
    quiet: bool,
}

/// Runs `popfit fit`: over files, or as a worker of a plan.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.planned.check()?;
    match (&arguments.model, &arguments.output) {
        (Some(model), Some(output)) => run_over_files(arguments, model, output),
        _ => fit_plan::run(&arguments.planned, &arguments.device, arguments.quiet),
    }
}

/// Fits every selected spectrum of the files, and writes the result table and what else is asked for.
fn run_over_files(arguments: &Arguments, model: &Path, output: &Path) -> Result<(), Failure> {
    let quiet = arguments.quiet;
    let bar = progress_bar(0, quiet);
    let shown = bar.clone();
    let mut control = Control {
        progress: Some(Arc::new(move |done, _| shown.set_position(done))),
        profile: arguments.profile,
        ..Control::default()
    };
    arguments.device.apply_threads(&mut control);
    let reported = Arc::new(Mutex::new(Reported::default()));
    let mut files = arguments.files(model, output)?;
    let (length, reporter) = (bar.clone(), reported.clone());
    files.on_event = Some(Box::new(move |event| {
        let mut reported = reporter.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Begin { spectra } => {
                length.set_length(spectra);
                reported.has_begun = true;
            }
            Event::Remains(text) => reported.remains = Some(text),
            Event::Warning(text) if !quiet => say([format!("popfit: warning: {text}")]),
            Event::Note(text) | Event::Advice(text) if !quiet => say([format!("popfit: {text}")]),
            Event::Warning(_) | Event::Note(_) | Event::Advice(_) => {}
        }
    }));
    let _handlers = signals::cancel(&control)?;
    let done = fit_files(files, &control);
    bar.finish_and_clear();
    let reported = std::mem::take(&mut *reported.lock().unwrap_or_else(PoisonError::into_inner));
    let done = done.map_err(|error| failed(arguments, model, error, reported))?;
    if !quiet {
        let warnings = done.bad_inputs.iter().chain(&done.summary.failures);
        say(warnings.map(|text| format!("popfit: {text}")));
        say([done.to_string()]
            .into_iter()
            .chain(done.flags.iter().cloned()));
        say(done.summary.profile.iter().flat_map(profile::lines));
    }
    match &done.per_file {
        Some(files) => check_files(files, output)?,
        None if done.summary.interrupted > 0 => return Err(Failure::interrupted(output)),
        None => {}
    }
    if done.summary.fits > 0 && done.converged() == 0 {
        let (output, counts) = (output.display(), done.counts());
        let message = format!(
            "no fit converged ({counts}): {output} has a row for every spectrum, which says why"
        );
        return Err(Failure::nothing_fitted(message));
    }
    Ok(())
}

/// Fails if a run with a table for each file has not written all of them.
fn check_files(files: &PerFileSummary, output: &Path) -> Result<(), Failure> {
    let mut lines = Vec::new();
    if files.left > 0 {
        lines.push(format!(
            "interrupted; files that have no table below {} yet: {}; --skip-existing goes on with them",
            output.display(),
            files.left
        ));
    }
    if !files.failed.is_empty() {
        lines.push(format!(
            "files that could not be fitted: {}",
            files.failed.len()
        ));
        // the further lines of an error are advice, which would bury the other files
        lines.extend(files.failed.iter().map(|failed| {
            let text = failed.to_string();
            match text.split_once('\n') {
                Some((first, _)) => format!("  {first} …"),
                None => format!("  {text}"),
            }
        }));
    }
    if lines.is_empty() {
        return Ok(());
    }
    Err(Failure::of_the_run(lines.join("\n")))
}

/// Events of the run that decide how its failure is reported.
#[derive(Default)]
struct Reported {
    /// The fits have begun.
    has_begun: bool,
    /// What is left of a run that failed, and how to go on.
    remains: Option<String>,
}

impl Arguments {
    /// Returns the settings of the run that the options ask for; reads the file of `--target-id @FILE`.
    fn files(&self, model: &Path, output: &Path) -> Result<FitFiles, Failure> {
        let mut files = FitFiles::new(model, self.spectra.clone(), output);
        files.format = self.format;
        files.per_file = self.per_file;
        files.skip_existing = self.skip_existing;
        files.input_root.clone_from(&self.input_root);
        files.resume = self.resume;
        files.overwrite = self.overwrite;
        files.models.clone_from(&self.models);
        files.report.clone_from(&self.report);
        files.selection = self.selection.selection()?;
        files.other_inputs.extend(self.selection.list());
        self.device.apply(&mut files.settings);
        self.fit.apply(&mut files.settings);
        files.option_names = OptionNames::Flags;
        Ok(files)
    }
}

/// Converts an error of the run to a failure with exit code and advice.
fn failed(arguments: &Arguments, model: &Path, error: Error, reported: Reported) -> Failure {
    let output_exists = matches!(error, Error::OutputExists { .. });
    let mut failure = match (&error, arguments.device.memory) {
        (Error::OutOfMemory { .. }, Some(bytes)) => {
            Failure::usage(format!("--memory {bytes} is too little: {error}"))
        }
        _ if reported.has_begun => Failure::running(error),
        _ => name_order(error, model).into(),
    };
    if arguments.per_file && output_exists {
        failure.add("; --skip-existing keeps the files that are there, and fits the others");
    }
    if let Some(remains) = reported.remains {
        // Something is written.
        failure.code = 1;
        failure.add(&format!("\n{remains}"));
    }
    failure
}
