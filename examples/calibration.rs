//! Whether fitted errors are calibrated: `cargo run --release --example calibration -- 20000` refits nine NIST problems and a
//! spectrum so often, with noise that is known, and prints how (found − true) / error and χ² are distributed. Needs the
//! reference data beside the project. Fails when a number is beyond what so many refits scatter.

#[path = "../tests/common/mod.rs"]
mod common;

use std::process::ExitCode;

use common::calibration::{Calibration, all};

fn main() -> ExitCode {
    let count = std::env::args().nth(1).map_or(Ok(20_000), |text| text.parse());
    let Ok(count @ 2..) = count else {
        eprintln!("usage: calibration [REFITS], at least 2");
        return ExitCode::from(2);
    };
    let Some(refits) = all(count) else { return ExitCode::FAILURE };
    let calibration = Calibration::new(&refits, 1.0, 0.0);
    calibration.print();
    let faults = calibration.faults();
    faults.iter().for_each(|fault| println!("beyond the limits: {fault}"));
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
