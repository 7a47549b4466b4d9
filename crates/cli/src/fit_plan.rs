//! `popfit fit --plan`: a worker of a plan.

use std::path::PathBuf;
use std::time::Duration;

use popfit::{Control, Error, Result};

use super::Failure;
use super::fit_files::{FitSettings, StatusCount};
use super::options::DeviceOptions;
use super::progress::say;
use super::signals;
use super::survey::{PartOutcome, TakeOptions, Worker};

/// Options of a worker of a plan.
#[derive(clap::Args, Debug)]
pub struct PlannedOptions {
    /// Fit parts of the plan in DIR (popfit plan) instead of files; with it go the options of devices alone
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["model", "spectra", "output", "format", "resume", "overwrite", "models", "report",
            "profile", "FitOptions", "SelectionOptions"],
        help_heading = "Plan"
    )]
    plan: Option<PathBuf>,
    /// Fit these parts, counted from 0
    #[arg(
        long,
        value_name = "K,...",
        value_delimiter = ',',
        requires = "plan",
        conflicts_with = "take",
        required_unless_present_any = ["output", "take"],
        help_heading = "Plan"
    )]
    part: Vec<usize>,
    /// Fit parts that no other worker fits, at most N, until none is left
    #[arg(long, value_name = "N", num_args = 0..=1, requires = "plan", help_heading = "Plan")]
    take: Option<Option<usize>>,
    /// Errors after which --take leaves a part alone
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        requires = "take",
        help_heading = "Plan"
    )]
    attempts: usize,
    /// Seconds without a sign of life after which --take takes over another worker's part
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..),
        requires = "take",
        help_heading = "Plan"
    )]
    lease: u64,
}

/// Runs a worker of a plan: fits the given parts, or those that are free.
pub fn run(options: &PlannedOptions, device: &DeviceOptions, quiet: bool) -> Result<(), Failure> {
    let Some(folder) = &options.plan else {
        return Err(Failure::usage("give a model file, or --plan"));
    };
    let mut settings = FitSettings::default();
    device.apply(&mut settings);
    let mut control = Control::default();
    device.apply_threads(&mut control);
    let _handlers = signals::cancel(&control)?;
    let worker = Worker::open(folder, settings)?;
    let report = |part: usize, outcome: &Result<PartOutcome>| {
        if !quiet {
            say([describe(part, outcome)]);
        }
    };
    let Some(most) = options.take else {
        for part in &options.part {
            let outcome = worker.fit_part(*part, &control);
            match &outcome {
                Ok(_) => report(*part, &outcome),
                Err(Error::Interrupted { .. }) => {}
                Err(error) if worker.plan().part_path(*part).is_ok() => {
                    worker.plan().record_failure(*part, &error.to_string())?;
                }
                Err(_) => {}
            }
            outcome.map_err(Failure::running)?;
        }
        return Ok(());
    };
    let take = TakeOptions {
        most,
        attempts: options.attempts,
        lease: Duration::from_secs(options.lease),
    };
    let done = worker
        .take_parts(&take, &control, report)
        .map_err(Failure::running)?;
    if !quiet {
        let left = match done.left {
            0 => String::new(),
            left => format!("; {left} are left, or other workers fit them"),
        };
        say([format!(
            "{} parts with {} spectra fitted{left}",
            done.parts, done.spectra
        )]);
    }
    let Some(first) = done.failed.first() else {
        return Ok(());
    };
    let cause = first.causes.last().map_or("", |cause| cause.as_str());
    Err(Failure::of_the_run(format!(
        "{} parts failed; {}/_failed.json has their causes. The last of part {}: {cause}",
        done.failed.len(),
        folder.display(),
        first.part,
    )))
}

/// Returns a line about a part that was to be fitted.
fn describe(part: usize, outcome: &Result<PartOutcome>) -> String {
    match outcome {
        Ok(PartOutcome::AlreadyThere) => format!("part {part}: is there already"),
        Ok(PartOutcome::Fitted(fitted)) => {
            let counts = StatusCount::in_words(&fitted.statuses);
            format!("part {part}: {} spectra: {counts}", fitted.spectra)
        }
        Err(error) => format!("part {part}: {error}"),
    }
}
