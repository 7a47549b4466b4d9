//! `popfit fit`: a run over files, reported on the terminal.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use popfit::low_level::printable;
use popfit::{Control, Error, Solver, SpectralFitter, VelocityScan};

use super::bytes::bytes;
use super::fit_files::{Event, FitFiles, OptionNames, fit_files};
use super::output::Format;
use super::progress::progress_bar;
use super::{Failure, name_order, profile, selection, signals};

#[derive(clap::Args)]
pub struct Arguments {
    /// The model file
    #[arg(value_name = "MODEL.toml")]
    model: PathBuf,
    /// Files of spectra, fitted one after another into one table
    #[arg(value_name = "SPECTRA", required = true)]
    pub(super) spectra: Vec<PathBuf>,
    /// The result table: a name that ends in .parquet, .fits or .csv
    #[arg(short, long, value_name = "OUT", help_heading = "Input and output")]
    output: PathBuf,
    /// The result's layout
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Input and output")]
    pub(super) format: Format,
    #[command(flatten)]
    selection: selection::Arguments,
    /// auto, all, cpu, gpu, gpu:N, gpu:pci=PLACE or gpu:NAME
    #[arg(
        long,
        default_value = "auto",
        value_name = "D",
        help_heading = "Devices"
    )]
    device: String,
    /// Let the CPU take over what a GPU fails to fit twice [default: true for auto and all, else false]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Devices"
    )]
    cpu_fallback: Option<bool>,
    /// Seconds without an answer after which a GPU counts as lost [default: 120, or 600 on software adapters]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Devices")]
    gpu_timeout: Option<u32>,
    /// The solver [default: the model file's, else lm]
    #[arg(long, value_parser = solver_parser(), help_heading = "Fit")]
    solver: Option<Solver>,
    /// Scan the velocity for its posterior [default: the model file's, else fixed for --format rvtab and off otherwise]
    #[arg(long, value_enum, help_heading = "Fit")]
    pub(super) velocity_scan: Option<Scan>,
    /// Add columns NAME_err_released: errors that do not take parameters at a bound for known
    /// [default: the model file's, else false]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Fit"
    )]
    released_errors: Option<bool>,
    /// f32, or mixed: the first rounds' output layers as products of 16-bit numbers, for GPUs
    #[arg(long, value_enum, default_value_t = Precision::F32, help_heading = "Devices")]
    precision: Precision,
    /// Starts of each spectrum, 1 to 64 [default: the model file's, else as many as compete, at most 4; 8 or 32 where
    /// little of a spectrum counts; up to 16 more where χ²/dof is large]
    #[arg(
        long,
        value_name = "K",
        value_parser = clap::value_parser!(u16).range(1..=SpectralFitter::MOST_STARTS as i64),
        help_heading = "Fit"
    )]
    starts: Option<u16>,
    /// Seed of the first guess [default: 3]
    #[arg(long, value_name = "S", help_heading = "Fit")]
    seed: Option<u64>,
    /// Rounds a fit may take [default: 60 for lm, 1500 for nelder-mead]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Fit")]
    max_rounds: Option<u32>,
    /// Bytes that all populations on a device may take; K, M and G are 2^10, 2^20 and 2^30
    /// [default: 1G on the CPU, half of its memory on a GPU]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Devices")]
    memory: Option<u64>,
    /// Spectra that are read, fitted and kept for --resume at once, small files together [default: 256, on GPUs 2048]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Devices")]
    pub(super) batch: Option<u16>,
    /// Threads that compute [default: RAYON_NUM_THREADS, else those of the processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Devices")]
    threads: Option<u16>,
    /// Go on with a run that was killed or interrupted: what it has fitted is not fitted again
    #[arg(long, help_heading = "Input and output")]
    resume: bool,
    /// Replace OUT, and what is written beside it, if these files exist; they stay until the new ones are whole
    #[arg(long, help_heading = "Input and output")]
    overwrite: bool,
    /// Make the first bad spectrum an error
    #[arg(long, help_heading = "Input and output")]
    strict: bool,
    /// Also write the best-fit spectra: a name that ends in .fits
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

/// Returns the parser of the option `--solver`, with a help text for each solver's name.
fn solver_parser() -> impl TypedValueParser<Value = Solver> {
    let meanings = [
        "Levenberg–Marquardt",
        "Nelder–Mead on the objective itself",
        "Levenberg–Marquardt, polished by Nelder–Mead",
    ];
    let values = Solver::NAMES
        .iter()
        .copied()
        .zip(meanings)
        .map(|(name, meaning)| PossibleValue::new(name).help(meaning));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Solver>())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Precision {
    /// All rounds in f32
    F32,
    /// The last rounds, and all results, in f32
    Mixed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scan {
    /// None
    Off,
    /// Labels and vsini stay at the best fit
    Fixed,
    /// Labels and vsini are fitted anew at every velocity
    Refitted,
}

/// Runs `popfit fit`: fits every selected spectrum of the files, and writes the result table and what else is asked
/// for.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let quiet = arguments.quiet;
    let bar = progress_bar(0, quiet);
    let shown = bar.clone();
    let mut control = Control::default()
        .progress(move |done, _| shown.set_position(done))
        .profile(arguments.profile);
    control.threads = arguments.threads.map(usize::from);
    let reported = Arc::new(Mutex::new(Reported::default()));
    let mut files = arguments.files()?;
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
    let done = done.map_err(|error| failed(arguments, error, reported))?;
    if !quiet {
        let warnings = done.bad_inputs.iter().chain(&done.summary.failures);
        say(warnings.map(|text| format!("popfit: {text}")));
        say([done.to_string()]
            .into_iter()
            .chain(done.flags.iter().cloned()));
        say(done.summary.profile.iter().flat_map(profile::lines));
    }
    if done.summary.interrupted > 0 {
        return Err(Failure::interrupted(&arguments.output));
    }
    if done.summary.fits > 0 && done.converged() == 0 {
        let (output, counts) = (arguments.output.display(), done.counts());
        let message = format!(
            "no fit converged ({counts}): {output} has a row for every spectrum, which says why"
        );
        return Err(Failure::nothing_fitted(message));
    }
    Ok(())
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
    fn files(&self) -> Result<FitFiles, Failure> {
        let mut files = FitFiles::new(&self.model, self.spectra.clone(), &self.output);
        files.format = self.format;
        files.resume = self.resume;
        files.overwrite = self.overwrite;
        files.models.clone_from(&self.models);
        files.report.clone_from(&self.report);
        files.selection = self.selection.selection()?;
        files.other_inputs.extend(self.selection.list());
        let settings = &mut files.settings;
        settings.strict = self.strict;
        settings.device = self.device.as_str().into();
        settings.gpu_timeout = self
            .gpu_timeout
            .map(|seconds| Duration::from_secs(seconds.into()));
        settings.cpu_fallback = self.cpu_fallback;
        settings.max_memory = self.memory;
        settings.batch_size = self.batch.map(usize::from);
        settings.solver = self.solver;
        settings.max_rounds = self.max_rounds;
        settings.precision = match self.precision {
            Precision::F32 => popfit::Precision::F32,
            Precision::Mixed => popfit::Precision::Mixed,
        };
        settings.velocity_scan = self.velocity_scan.map(|scan| match scan {
            Scan::Off => VelocityScan::Off,
            Scan::Fixed => VelocityScan::Fixed,
            Scan::Refitted => VelocityScan::Refitted,
        });
        settings.released_errors = self.released_errors;
        settings.starts = self.starts.map(usize::from);
        settings.seed = self.seed;
        files.option_names = OptionNames::Flags;
        Ok(files)
    }
}

/// Prints each text as a line on standard error; what cannot be written is lost.
fn say(lines: impl IntoIterator<Item = String>) {
    lines
        .into_iter()
        .for_each(|line| drop(writeln!(std::io::stderr(), "{}", printable(&line))));
}

/// Converts an error of the run to a failure with exit code and advice.
fn failed(arguments: &Arguments, error: Error, reported: Reported) -> Failure {
    let mut failure = match (&error, arguments.memory) {
        (Error::OutOfMemory { .. }, Some(bytes)) => {
            Failure::usage(format!("--memory {bytes} is too little: {error}"))
        }
        _ if reported.has_begun => Failure::running(error),
        _ => name_order(error, &arguments.model).into(),
    };
    if let Some(remains) = reported.remains {
        // Something is written.
        failure.code = 1;
        failure.add(&format!("\n{remains}"));
    }
    failure
}
