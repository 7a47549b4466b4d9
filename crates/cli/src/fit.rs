//! `popfit fit`: everything is checked before the first fit.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use popfit::report::{About, Collector, ReportFile};
use popfit::spectra::{FilesReader, InputFiles, SpectraReader};
use popfit::{
    Control, Device, Error, Journal, Metadata, ModelFile, Solver, SpectralFitter, SpectralModel, Status, Summary,
    VelocityScan, WriteOptions,
};

use super::bytes::bytes;
use super::output::{Format, Output};
use super::profile::{self, ProfileFiles};
use super::progress::progress_bar;
use super::rows::{Counting, Counts};
use super::targets::{Extras, Targets};
use super::{Failure, open_model, report, selection, signals};

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
    /// auto, all, cpu, gpu, gpu:N or gpu:NAME
    #[arg(long, default_value = "auto", value_name = "D", help_heading = "Devices")]
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
    /// Go on with a run that was killed or interrupted: what it has fitted is not fitted again
    #[arg(long, help_heading = "Input and output")]
    resume: bool,
    /// Replace OUT, and what is written beside it, if these files exist; they stay until the new ones are whole
    #[arg(long, help_heading = "Input and output")]
    overwrite: bool,
    /// Make the first bad spectrum an error
    #[arg(long, help_heading = "Input and output")]
    strict: bool,
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
    let meanings =
        ["Levenberg–Marquardt", "Nelder–Mead on the objective itself", "Levenberg–Marquardt, polished by Nelder–Mead"];
    let values =
        Solver::NAMES.iter().copied().zip(meanings).map(|(name, meaning)| PossibleValue::new(name).help(meaning));
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
    let opened = Instant::now();
    let targets = targets(arguments)?;
    let mut file = open_model(&arguments.model)?;
    if let Some(arms) = &arguments.selection.arms {
        file.keep_arms(arms)?;
    }
    let model = file.build()?;
    let selection = arguments.selection.selection(&model)?;
    let mut inputs = InputFiles::new(&arguments.spectra);
    let mut source = FilesReader::open(&arguments.spectra, &selection)?;
    targets.spare(file.inputs())?;
    selection::refuse_empty(&selection, source.len())?;
    let fitter = fitter(arguments, &file, model)?;
    let files = source.files();
    fitter.check_spectra(&files).map_err(|error| file.blame(error))?;
    if !arguments.quiet {
        let missing = files.iter().flat_map(|file| fitter.notes(file));
        if arguments.precision == Precision::Mixed && fitter.device_name().starts_with("cpu") {
            say(["popfit: mixed precision is for GPUs: on the CPU it only takes longer".into()]);
        }
        let assumed = fitter.model().assumptions();
        say(assumed
            .into_iter()
            .chain(source.notes().iter().cloned())
            .chain(missing)
            .chain(fitter.pixel_notes(&files))
            .map(|note| format!("popfit: {note}")));
    }
    drop(files);
    let metadata = Metadata::of(&fitter).model(file.text);
    let bar = progress_bar(source.len(), arguments.quiet);
    let shown = bar.clone();
    let control = Control::default().progress(move |done, _| shown.set_position(done)).profile(arguments.profile);
    signals::cancel(&control)?;
    if !inputs.read(&control.cancel)? {
        return Err(Failure::stopped(&arguments.output, false));
    }
    let key = format!("{}\nformat = {}", fitter.resume_key(&metadata.model, &selection, &inputs), arguments.format);
    let mut journal = Journal::open(&arguments.output, &key, arguments.resume)?;
    if !arguments.quiet {
        say(journal.damage().map(|damage| format!("popfit: warning: {damage}")));
    }
    if arguments.resume && !journal.has_rows() && !arguments.quiet {
        say([format!("popfit: nothing is kept beside {}: it is made from the start", arguments.output.display())]);
    }
    targets.claim(&mut journal, arguments.overwrite)?;
    let is_new = !arguments.output.exists();
    // an output that exists now is this run's own; one that comes later is not
    let may_replace = |file: &Path| arguments.overwrite || file.exists();
    let options = WriteOptions::default().metadata(metadata.clone()).overwrite(may_replace(&arguments.output));
    let mut table = Output::create(arguments.format, &arguments.output, &fitter, &source, options)?;
    let page = arguments.report.as_deref().map(|folder| page(folder, may_replace)).transpose()?;
    let profiles = arguments.profile.then(|| ProfileFiles::create(&arguments.output, may_replace)).transpose()?;

    let begin = Instant::now();
    let collector = page.is_some().then(|| Collector::new(&fitter.parameters()));
    let mut sink = Counting::new(&mut table, &fitter.parameters(), collector);
    let summary = fitter.fit_journaled(&mut source, &mut sink, &control, &mut journal);
    bar.finish_and_clear();
    let Counting { counts, faults, flags, report: kept, .. } = sink;
    let summary = summary.map_err(|error| failed(arguments, error, journal.has_rows()))?;
    inputs.check()?;
    if counts.any(Status::Interrupted) && !is_new {
        drop(table);
        let kept = journal.has_rows();
        journal.leave();
        return Err(Failure::stopped(&arguments.output, kept));
    }
    let finished = table.finish(&summary.by_rows, &mut journal);
    let finished = targets.record(&mut journal, finished);
    finished.map_err(|error| failed(arguments, error, journal.has_rows()))?;
    let time = begin.elapsed();
    if let (Some(page), Some(kept)) = (page, kept) {
        let about = about(arguments, &fitter, metadata, &summary, time);
        let written = page.write_journaled(&about, &kept, Some(&fitter), &mut journal);
        let written = targets.record(&mut journal, written);
        written.map_err(|error| without_page(arguments, error))?;
    }
    if !arguments.quiet {
        faults.print();
        say(summary.failures.iter().map(|failure| format!("popfit: {failure}")));
        say([closing(&summary, &counts, time)].into_iter().chain(flags.lines()));
    }
    if let (Some(mut profile), Some(files)) = (summary.profile, profiles) {
        profile.opening = Some((begin - opened).as_secs_f64());
        files.write(&profile).map_err(Failure::running)?;
        if !arguments.quiet {
            say(profile::lines(&profile));
        }
    }
    if counts.any(Status::Interrupted) {
        journal.leave();
        return Err(Failure::interrupted(&arguments.output));
    }
    journal.remove();
    if counts.none_converged() {
        let output = arguments.output.display();
        let message = format!("no fit converged ({counts}): {output} has a row for every spectrum, which says why");
        return Err(Failure::nothing_fitted(message));
    }
    Ok(())
}

/// Returns the files that the run will write; fails, before anything is read, if one is an input or must not be
/// replaced.
fn targets(arguments: &Arguments) -> Result<Targets, Failure> {
    let extras = Extras { format: arguments.format, report: arguments.report.as_deref(), profile: arguments.profile };
    let targets = Targets::new(&arguments.output, &extras)?;
    let named = arguments.spectra.iter().chain([&arguments.model]).cloned();
    targets.spare(named.chain(arguments.selection.list()))?;
    if !arguments.overwrite {
        targets.refuse_existing(arguments.resume)?;
    }
    Ok(targets)
}

/// Prints each text as a line on standard error; what cannot be written is lost.
fn say(lines: impl IntoIterator<Item = String>) {
    lines.into_iter().for_each(|line| drop(writeln!(std::io::stderr(), "{line}")));
}

/// Converts an error of the run to a failure with exit code and advice; `kept`: the journal has fits of it to resume
/// from.
fn failed(arguments: &Arguments, error: Error, kept: bool) -> Failure {
    let is_settled = !matches!(error, Error::Unsettled { .. });
    let mut failure = match (&error, arguments.memory) {
        (Error::OutOfMemory { .. }, Some(bytes)) => Failure::usage(format!("--memory {bytes} is too little: {error}")),
        _ => Failure::running(error),
    };
    if is_settled && kept {
        // something is written
        failure.code = 1;
        let output = &arguments.output;
        let now = if output.exists() { "is as it was" } else { "was not written" };
        let output = output.display();
        failure.add(&format!("\n{output} {now}; what was fitted is kept beside it, and --resume goes on"));
    }
    if !is_settled {
        failure.add("\n--resume writes it again");
    }
    failure
}

/// Returns the failure of a run that wrote its table but, because of `error`, not its report page.
fn without_page(arguments: &Arguments, error: Error) -> Failure {
    let mut failure = Failure::running(error);
    let output = arguments.output.display();
    failure.code = 1;
    failure.add(&format!("\n{output} is whole; --resume makes the page without fitting anything again"));
    failure
}

/// Makes the fitter from the command's options, which override those of the model file.
fn fitter(arguments: &Arguments, file: &ModelFile, model: SpectralModel) -> Result<SpectralFitter, Error> {
    let mut solver = arguments.solver.or(file.solver).unwrap_or_default();
    if let Some(rounds) = arguments.max_rounds {
        solver = solver.with_max_rounds(rounds);
    }
    let scan = arguments.velocity_scan.map(|scan| match scan {
        Scan::Off => VelocityScan::Off,
        Scan::Fixed => VelocityScan::Fixed,
        Scan::Refitted => VelocityScan::Refitted,
    });
    let free_velocity = model.parameters().iter().any(|name| name == "velocity");
    let usual = match arguments.format {
        Format::Rvtab if free_velocity => VelocityScan::Fixed,
        _ => VelocityScan::Off,
    };
    if arguments.released_errors == Some(true) && arguments.format == Format::Rvtab {
        return Err(Error::Usage(
            "--released-errors adds columns to popfit's own table: --format rvtab has none".into(),
        ));
    }
    let mut device = arguments.device.parse::<Device>()?;
    if let Some(seconds) = arguments.gpu_timeout {
        device = device.timeout(Duration::from_secs(seconds.into()));
    }
    let mut fitter = SpectralFitter::new(model, device)
        .solver(solver)
        .velocity_scan(scan.or(file.velocity_scan).unwrap_or(usual))
        .released_errors(arguments.released_errors.or(file.released_errors).unwrap_or(false))
        .strict(arguments.strict)
        .precision(match arguments.precision {
            Precision::F32 => popfit::Precision::F32,
            Precision::Mixed => popfit::Precision::Mixed,
        });
    if let Some(bytes) = arguments.memory {
        fitter = fitter.max_memory(bytes);
    }
    if let Some(allowed) = arguments.cpu_fallback {
        fitter = fitter.cpu_fallback(allowed);
    }
    if let Some(starts) = arguments.starts.map(usize::from).or(file.starts) {
        fitter = fitter.starts(starts);
    }
    if let Some(batch) = arguments.batch {
        fitter = fitter.batch_size(batch.into());
    }
    if let Some(seed) = arguments.seed {
        fitter = fitter.seed(seed);
    }
    Ok(fitter)
}

/// Begins the report page `index.html` in `folder`, which is created if missing; it is written after the fits.
fn page(folder: &Path, may_replace: impl Fn(&Path) -> bool) -> Result<ReportFile, Error> {
    if folder.is_file() {
        return Err(Error::Usage(format!("{} is a file: --report takes a folder", folder.display())));
    }
    std::fs::create_dir_all(folder).map_err(|source| Error::Io { path: folder.to_path_buf(), source })?;
    let file = folder.join("index.html");
    let overwrite = may_replace(&file);
    ReportFile::create(file, &WriteOptions::default().overwrite(overwrite))
}

/// Returns the title, metadata and times that the report shows about the run.
fn about(
    arguments: &Arguments,
    fitter: &SpectralFitter,
    metadata: Metadata,
    summary: &Summary,
    time: Duration,
) -> About {
    About::default()
        .title(report::name(&arguments.output))
        .version(env!("CARGO_PKG_VERSION").into())
        .metadata(metadata)
        .units(fitter.units())
        .time(time)
        .recalled(summary.fits.saturating_sub(fitted(summary)))
}

/// Returns how many fits this run made itself, without those that it took from an earlier run's journal.
fn fitted(summary: &Summary) -> u64 {
    summary.by_device.iter().map(|one| one.rows).sum()
}

/// Returns the last line of a run's output: counts by status, time, devices, and this run's own fits per second.
fn closing(summary: &Summary, counts: &Counts, time: Duration) -> String {
    let (fits, fitted) = (summary.fits, fitted(summary));
    let ended = fitted.saturating_sub(summary.interrupted);
    let rate = ended as f64 / time.as_secs_f64().max(1e-9);
    let counts = if fits == 0 { "nothing to fit".to_string() } else { counts.to_string() };
    let kept = if fitted < fits { format!(", of which {} from the journal", fits - fitted) } else { String::new() };
    let devices = match summary.by_device.as_slice() {
        [only] => only.device.clone(),
        several => several.iter().map(|one| format!("{}: {}", one.device, one.rows)).collect::<Vec<_>>().join(", "),
    };
    let rate = if ended > 0 { format!(", {rate:.1} spectra/s") } else { String::new() };
    let spectra = if fits == 1 { "spectrum" } else { "spectra" };
    format!("{fits} {spectra}{kept}: {counts}; {:.2} s{rate}, {devices}", time.as_secs_f64())
}
