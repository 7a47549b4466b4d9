//! Trials that are too long for tests: they judge a change of a solver or of the first guess, before and after.

mod calibration;
mod curve_minima;
mod far_starts;
mod memory_of_curves;
mod seeds;
mod soak;
mod true_chi2;
mod two_precisions;

use clap::Subcommand;
use popfit_cli::Failure;

#[derive(Subcommand)]
pub enum Trial {
    /// Refit NIST problems and a spectrum with known noise, and compare pulls and χ² with their distributions
    Calibration(calibration::Arguments),
    /// Count fits of curves that end above the lowest known minimum
    CurveMinima(curve_minima::Arguments),
    /// Count fits that find the best minimum from starts far away
    FarStarts(far_starts::Arguments),
    /// Print the peak memory of a million fits of 25 points
    MemoryOfCurves(memory_of_curves::Arguments),
    /// Count fits that end above the best that any seed of the first guess reaches
    Seeds(seeds::Arguments),
    /// Stream good and bad spectra through a fitter, and watch its memory, handles and rows
    Soak(soak::Arguments),
    /// Recompute the χ² of every fit that reports success
    #[command(name = "true-chi2")]
    TrueChi2(true_chi2::Arguments),
    /// Compare the fits of spectra in f32 and in f64
    TwoPrecisions(two_precisions::Arguments),
}

/// Runs a trial.
pub fn run(trial: &Trial) -> Result<(), Failure> {
    match trial {
        Trial::Calibration(arguments) => calibration::run(arguments),
        Trial::CurveMinima(arguments) => curve_minima::run(arguments),
        Trial::FarStarts(arguments) => far_starts::run(arguments),
        Trial::MemoryOfCurves(arguments) => memory_of_curves::run(arguments),
        Trial::Seeds(arguments) => seeds::run(arguments),
        Trial::Soak(arguments) => soak::run(arguments),
        Trial::TrueChi2(arguments) => true_chi2::run(arguments),
        Trial::TwoPrecisions(arguments) => two_precisions::run(arguments),
    }
}

/// Returns the failure of a file that cannot be written.
fn io_failure(path: &std::path::Path, source: std::io::Error) -> Failure {
    let path = path.to_path_buf();
    popfit::Error::Io { path, source }.into()
}
