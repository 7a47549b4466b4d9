//! A check that fitted errors are calibrated: `cargo run --release --example calibration -- 20000` refits nine NIST
//! problems and a spectrum so often, with noise that is known, and prints how (found − true) / error and χ² are
//! distributed. Fails when a number is beyond what so many refits scatter.

#[path = "../tests/spectra/calibration/refits.rs"]
mod refits;
#[path = "../tests/spectra/calibration/statistics.rs"]
mod statistics;

use std::process::ExitCode;

use statistics::{Calibration, refit_all_problems};

fn main() -> ExitCode {
    let count = std::env::args()
        .nth(1)
        .map_or(Ok(20_000), |text| text.parse());
    let Ok(count @ 2..) = count else {
        eprintln!("usage: calibration [REFITS], at least 2");
        return ExitCode::from(2);
    };
    let calibration = Calibration::new(&refit_all_problems(count), 1.0, 0.0);
    calibration.print();
    let faults = calibration.faults();
    faults
        .iter()
        .for_each(|fault| println!("beyond the limits: {fault}"));
    if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
