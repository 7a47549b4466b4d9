//! `cargo run --release --example soak -- MINUTES [DEVICE]`: good and bad spectra stream through a fitter without end.
//! Every ten seconds it prints rows, resident memory and open handles; it fails when these grow, a spectrum has no row,
//! or a row differs from its first.

#[path = "../tests/soak/stream.rs"]
mod stream;

use std::process::ExitCode;
use std::time::Duration;

use popfit::Device;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let minutes = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .filter(|m: &f64| (0.0..1e5).contains(m));
    let Some(minutes) = minutes else {
        eprintln!("usage: soak MINUTES [cpu|gpu|gpu:N|all]");
        return ExitCode::from(2);
    };
    let device = arguments
        .next()
        .unwrap_or_else(|| "cpu".into())
        .parse::<Device>();
    let ended =
        device.and_then(|device| stream::soak(device, Duration::from_secs_f64(60.0 * minutes)));
    match ended {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            faults.iter().take(20).for_each(|fault| println!("{fault}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}
