//! `popfit-bench calibration`: a check that fitted errors are calibrated. It refits nine NIST problems and a spectrum
//! often, with noise that is known, and prints how (found − true) / error and χ² are distributed. It fails if a number
//! is beyond what so many refits scatter.

use popfit_cli::Failure;
use popfit_testing::calibration::{Calibration, refit_all_problems};

#[derive(clap::Args)]
pub struct Arguments {
    /// Number of refits of each problem
    #[arg(default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(2..))]
    refits: u32,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let refits = refit_all_problems(arguments.refits as usize);
    let calibration = Calibration::new(&refits, 1.0, 0.0);
    calibration.print();
    let faults = calibration.faults();
    if faults.is_empty() {
        return Ok(());
    }
    let message = format!("beyond the limits: {}", faults.join("; "));
    Err(Failure::of_the_run(message))
}
