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
        conflicts_with_all = ["model", "spectra", "output", "format", "per_file", "skip_existing", "input_root",
            "resume", "overwrite", "models", "report", "profile", "FitOptions", "SelectionOptions"],
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
        help_heading = "Plan"
    )]
    part: Vec<usize>,
    /// Fit parts that no other worker fits, at most N, until none is left
    #[arg(long, value_name = "N", num_args = 0..=1, requires = "plan", help_heading = "Plan")]
    take: Option<Option<usize>>,
    /// Errors after which --take leaves a part alone [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Plan")]
    attempts: Option<u32>,
    /// Seconds without a sign of life after which --take takes over another worker's part [default: 600]
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Plan"
    )]
    lease: Option<u32>,
}

impl PlannedOptions {
    /// Fails if options of a worker are given without a plan, or do not go together.
    pub fn check(&self) -> Result<(), Failure> {
        let of_take = [
            ("--attempts", self.attempts.is_some()),
            ("--lease", self.lease.is_some()),
        ];
        let of_take = of_take
            .iter()
            .find(|(_, is_given)| *is_given)
            .map(|(name, _)| *name);
        let given = [
            (!self.part.is_empty()).then_some("--part"),
            self.take.is_some().then_some("--take"),
            of_take,
        ];
        match (&self.plan, given.iter().flatten().next(), of_take) {
            (None, Some(option), _) => Err(Failure::usage(format!(
                "{option} is for the workers of a plan: give --plan DIR"
            ))),
            (Some(_), None, _) => Err(Failure::usage(
                "which parts? Give --take for all that are free, or --part K,...",
            )),
            (Some(_), _, Some(option)) if self.take.is_none() => {
                Err(Failure::usage(format!("{option} goes with --take")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the limits of `--take`.
    fn take_options(&self) -> TakeOptions {
        let default = TakeOptions::default();
        TakeOptions {
            most: self.take.flatten(),
            attempts: self
                .attempts
                .map_or(default.attempts, |attempts| attempts as usize),
            lease: self
                .lease
                .map_or(default.lease, |seconds| Duration::from_secs(seconds.into())),
        }
    }
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
    match options.take {
        None => fit_parts(&worker, &options.part, &control, report),
        Some(_) => take_parts(&worker, &options.take_options(), &control, quiet, report),
    }
}

/// Fits the given parts. One that fails does not keep the others from being fitted; its error is that of the command.
fn fit_parts(
    worker: &Worker,
    parts: &[usize],
    control: &Control,
    report: impl Fn(usize, &Result<PartOutcome>),
) -> Result<(), Failure> {
    let plan = worker.plan();
    for part in parts {
        plan.part_path(*part)?;
    }
    let mut failure = None;
    for part in parts {
        let outcome = worker.fit_part(*part, control);
        match outcome {
            Ok(_) => report(*part, &outcome),
            Err(error @ Error::Interrupted { .. }) => return Err(Failure::running(error)),
            Err(error) => {
                // what cannot be noted is at least said
                let _ = plan.record_failure(*part, &error.to_string());
                let error = Failure::running(error);
                if parts.len() > 1 {
                    say([format!("part {part}: {}", error.message)]);
                }
                failure.get_or_insert(error);
            }
        }
    }
    let attempts = TakeOptions::default().attempts;
    match failure {
        None => plan
            .write_failure_list(attempts)
            .map(drop)
            .map_err(Failure::from),
        Some(first) => {
            let _ = plan.write_failure_list(attempts);
            Err(Failure::of_the_run(first.message))
        }
    }
}

/// Fits parts that are free, until none is left.
fn take_parts(
    worker: &Worker,
    options: &TakeOptions,
    control: &Control,
    quiet: bool,
    report: impl Fn(usize, &Result<PartOutcome>),
) -> Result<(), Failure> {
    let folder = worker.plan().folder().display();
    let done = worker
        .take_parts(options, control, report)
        .map_err(Failure::running)?;
    if !quiet {
        let left = match done.left {
            0 => String::new(),
            left => format!(
                "; left: {left}, which other workers fit, or have left less than {} s ago",
                options.lease.as_secs()
            ),
        };
        say([format!(
            "fitted here: parts {}, spectra {}{left}",
            done.parts, done.spectra
        )]);
    }
    let Some(first) = done.failed.first() else {
        return Ok(());
    };
    let cause = first.causes.last().map_or("", |cause| cause.as_str());
    Err(Failure::of_the_run(format!(
        "failed parts: {}; {folder}/_failed.json has their causes, and --part K tries one again once its cause is \
         mended. The last cause of part {}: {cause}",
        done.failed.len(),
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
