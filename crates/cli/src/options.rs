//! Options of commands that fit: how, and where.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use popfit::{Control, Solver, SpectralFitter, VelocityScan};

use super::bytes::bytes;
use super::fit_files::FitSettings;

/// Options on which the rows depend.
#[derive(clap::Args, Debug)]
pub struct FitOptions {
    /// The solver [default: the model file's, else lm]
    #[arg(long, value_parser = solver_parser(), help_heading = "Fit")]
    solver: Option<Solver>,
    /// Scan the velocity for its posterior [default: the model file's, else fixed for --format rvtab and off otherwise]
    #[arg(long, value_enum, help_heading = "Fit")]
    velocity_scan: Option<Scan>,
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
    /// What spectra of a file are that have the same id [default: as the model file says, else separate]
    #[arg(long, value_enum, help_heading = "Fit")]
    exposures: Option<Exposures>,
    /// f32, or mixed: output layers as products of 16-bit numbers, for GPUs
    #[arg(long, value_enum, default_value_t = Precision::F32, help_heading = "Fit")]
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
    /// Make the first bad spectrum an error
    #[arg(long, help_heading = "Input and output")]
    strict: bool,
}

/// Options of the device, on which no row depends but by its kind.
#[derive(clap::Args, Debug)]
pub struct DeviceOptions {
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
    /// Bytes that all populations on a device may take; K, M and G are 2^10, 2^20 and 2^30
    /// [default: 1G on the CPU, half of its memory on a GPU]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Devices")]
    pub memory: Option<u64>,
    /// Spectra that are read, fitted and kept for --resume at once, small files together [default: 256, on GPUs 2048]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Devices")]
    batch: Option<u16>,
    /// Threads that compute [default: RAYON_NUM_THREADS, else those of the processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Devices")]
    threads: Option<u16>,
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
enum Exposures {
    /// Exposures of one object, which are fitted together
    Join,
    /// Objects of their own
    Separate,
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

impl FitOptions {
    /// Sets the settings of fits that these options give.
    pub fn apply(&self, settings: &mut FitSettings) {
        settings.strict = self.strict;
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
        settings.join_exposures = self.exposures.map(|exposures| exposures == Exposures::Join);
        settings.starts = self.starts.map(usize::from);
        settings.seed = self.seed;
    }
}

impl DeviceOptions {
    /// Sets the settings of the device that these options give.
    pub fn apply(&self, settings: &mut FitSettings) {
        settings.device = self.device.as_str().into();
        settings.gpu_timeout = self
            .gpu_timeout
            .map(|seconds| Duration::from_secs(seconds.into()));
        settings.cpu_fallback = self.cpu_fallback;
        settings.max_memory = self.memory;
        settings.batch_size = self.batch.map(usize::from);
    }

    /// Sets the number of threads that these options give.
    pub fn apply_threads(&self, control: &mut Control) {
        control.threads = self.threads.map(usize::from);
    }
}
