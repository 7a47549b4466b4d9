//! `popfit-bench soak`: good and bad spectra stream through a fitter without end. Every ten seconds it prints rows,
//! resident memory and open handles. It fails if these grow, if a spectrum has no row, or if a row differs from its
//! first.

use std::time::Duration;

use popfit::Device;
use popfit_cli::Failure;

/// Number of faults in the message.
const MAX_LISTED_FAULTS: usize = 20;

#[derive(clap::Args)]
pub struct Arguments {
    minutes: f64,
    /// cpu, gpu, gpu:N or all
    #[arg(default_value = "cpu")]
    device: String,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let length = Duration::try_from_secs_f64(60.0 * arguments.minutes)
        .map_err(|error| Failure::usage(format!("{} minutes: {error}", arguments.minutes)))?;
    let device: Device = arguments.device.parse()?;
    let faults = popfit_testing::soak::soak(device, length)?;
    if faults.is_empty() {
        return Ok(());
    }
    let listed = &faults[..faults.len().min(MAX_LISTED_FAULTS)];
    Err(Failure::of_the_run(listed.join("; ")))
}
