//! The command `popfit` as a library: [`run_code`] is all of it, and [`fit_files`] its run over files.
#![deny(unsafe_code)]
#![warn(missing_docs)]
// a panic is no answer to bad input
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented
    )
)]

mod bytes;
mod check;
mod compare;
mod completions;
mod demo;
mod devices;
mod drivers;
mod dry_run;
mod failure;
mod fit;
mod fit_files;
mod fit_plan;
mod import;
mod init;
mod merge;
mod options;
mod output;
mod output_files;
mod own_files;
mod plan;
mod predict;
mod profile;
mod progress;
mod report;
mod rows;
mod schema;
mod selection;
mod signals;
mod stdout;
pub mod survey;
mod truth;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clap::{CommandFactory, Parser, Subcommand};
use popfit::low_level::printable;
use popfit::{Error, ModelFile};

pub use failure::Failure;
pub use fit_files::{
    BuiltModel, Event, FailedFile, FitDevice, FitFiles, FitFilesSummary, FitModel, FitSettings,
    OptionNames, PerFileSummary, StatusCount, fit_files,
};
pub use output::Format;
#[doc(hidden)]
pub use rows::{cells, print};
#[doc(hidden)]
pub use stdout::line;

/// Fits populations of stellar-spectrum parameters at once, on a GPU or the CPU.
#[derive(Parser)]
#[command(
    name = "popfit",
    version,
    about = "Fits populations of stellar-spectrum parameters at once, on a GPU or the CPU",
    after_help = EXAMPLES
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fit the bundled spectra, print a table, write results and a picture
    Demo(demo::Arguments),
    /// Write a commented model file to begin with
    Init(init::Arguments),
    /// Print the JSON schema of model files, with which editors check and complete them
    Schema(schema::Arguments),
    /// Fit spectra with a model and write one row for each
    #[command(override_usage = FIT_USAGE, after_help = FIT_EXAMPLES)]
    Fit(Box<fit::Arguments>),
    /// Divide a run over files into parts, for many workers and machines
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(plan::Arguments),
    /// Make one table of the parts of a plan
    Merge(merge::Arguments),
    /// List adapters and their limits, and which one `auto` takes
    Devices,
    /// Validate a model file, compare its Jacobian with differences, and try it on spectra
    Check(check::Arguments),
    /// Print or write the model spectrum of given parameters
    #[command(after_help = PREDICT_EXAMPLES)]
    Predict(predict::Arguments),
    /// Turn another program's emulator into popfit's
    Import(import::Arguments),
    /// Compare two result tables of the same spectra, in units of the errors
    Compare(compare::Arguments),
    /// Make one HTML page of a result table: counts, figures, spectra with their fits, a table to sort
    Report(report::Arguments),
    /// Print a shell's completion script
    Completions(completions::Arguments),
    /// Write manual pages
    Man(completions::ManArguments),
}

/// Text that is shown below the list of commands.
const EXAMPLES: &str = concat!(
    "\
Examples:
  popfit demo                                                the bundled spectra, in seconds
  popfit init network.safetensors                            a model file for a network of yours
  popfit fit model.toml spectra.npz -o results.parquet       one row for each spectrum

Manual: ",
    env!("CARGO_PKG_HOMEPAGE"),
    "/docs"
);

/// How `popfit fit` is called.
const FIT_USAGE: &str = "popfit fit [OPTIONS] --output <OUT> <MODEL.toml> <SPECTRA>...
       popfit fit --plan <DIR> <--take [N]|--part <K,...>> [OPTIONS]";

/// Text that is shown below the options of `popfit plan`.
const PLAN_EXAMPLES: &str = "\
Examples:
  popfit plan desi.toml coadd-*.fits --parts 5000 -o run     checks all files, writes run/_manifest.json
  popfit fit --plan run --take                               a worker: fits what nobody fits, until all is fitted
  popfit fit --plan run --part $SLURM_ARRAY_TASK_ID          a task of an array
  popfit merge run -o results.parquet                        the table that one `popfit fit` would write";

/// Text that is shown below the options of `popfit fit`.
const FIT_EXAMPLES: &str = "\
Examples:
  popfit fit model.toml spectra.npz -o results.parquet --report page
  popfit fit desi.toml coadd-*.fits.gz -o rvtab_X.fits --format rvtab --objtype TGT --min-sn 2
  popfit fit desi.toml healpix/*/coadd-*.fits -o tables/ --format rvtab --per-file --skip-existing";

/// Text that is shown below the options of `popfit predict`.
const PREDICT_EXAMPLES: &str = "\
Examples:
  popfit predict model.toml velocity=0 teff=5800 logg=4.4 feh=-0.5 alpha=0.1 > star.csv
  popfit predict model.toml velocity=20 teff=5800 logg=4.4 feh=-0.5 alpha=0.1 --grid spectra.npz -o star.npz";

/// Opens and parses the model file at `path`; a format error also says that the model file comes before the spectra.
fn open_model(path: &Path) -> Result<ModelFile, Error> {
    ModelFile::open(path).map_err(|error| name_order(error, path))
}

/// Adds to a format error of the file at `model` that the model file comes before the spectra.
fn name_order(error: Error, model: &Path) -> Error {
    match error {
        Error::Format {
            path,
            offset,
            message,
        } if path == model => {
            let message = format!("{message}; the model file comes first, files of spectra follow");
            Error::Format {
                path,
                offset,
                message,
            }
        }
        other => other,
    }
}

/// Runs the `popfit` command with these arguments, the program's name first, and returns its exit code. Exit code 0:
/// every spectrum has a row; 1: the run failed; 2: bad usage, file or model; 3: the run came to its end, but no fit
/// converged.
///
/// While it fits, Ctrl-C ends the run with what it has.
pub fn run_code(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    execute(
        "popfit",
        Arguments::try_parse_from(arguments),
        |arguments| dispatch(arguments.command),
    )
}

/// Runs the command as [`run_code`] does, in a process that is there for it alone: a run also ends with what it has at
/// SIGTERM, and when its terminal goes.
pub fn run_process(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    drivers::name_missing();
    signals::own_process();
    run_code(arguments)
}

/// Runs `command` on the parsed arguments, or prints why there are none; prints failures, returns the exit code.
#[doc(hidden)]
pub fn execute<A>(
    program: &str,
    parsed: Result<A, clap::Error>,
    command: impl FnOnce(A) -> Result<(), Failure>,
) -> u8 {
    let (result, code) = match parsed {
        Ok(arguments) => (command(arguments), 0),
        Err(answer) => print_answer(&answer),
    };
    let failures = [result.err(), stdout::failure()];
    for Failure { message, .. } in failures.iter().flatten() {
        let _ = writeln!(std::io::stderr(), "{program}: {}", printable(message));
    }
    failures
        .iter()
        .flatten()
        .next()
        .map_or(code, |failure| failure.code)
}

/// Prints what the parser answers instead of arguments (help, version, an error); returns `Ok` and the exit code.
fn print_answer(answer: &clap::Error) -> (Result<(), Failure>, u8) {
    let printed = answer.print();
    if !answer.use_stderr() {
        stdout::note(printed);
    }
    (Ok(()), answer.exit_code().try_into().unwrap_or(2))
}

/// Runs the subcommand that was given, such as `popfit fit`.
fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Init(arguments) => init::run(&arguments),
        Command::Schema(arguments) => schema::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments, Arguments::command()),
        Command::Man(arguments) => completions::write_man(&arguments, Arguments::command()),
        Command::Fit(arguments) => fit::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Merge(arguments) => merge::run(&arguments),
        Command::Devices => devices::run(),
        Command::Check(arguments) => check::run(&arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
    }
}
