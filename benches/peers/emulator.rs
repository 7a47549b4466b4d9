//! popfit's side of `emulator_jax.py`: the workload `emulator` of `benches/fits.rs`, written to a file, and timed.
//!
//! `cargo run --release --example emulator_peer -- FOLDER [DEVICE] [SECONDS] [FITS]` writes FOLDER/workload.safetensors
//! (flux, ivar) and FOLDER/answers.safetensors (labels), and prints one line of JSON.

#[path = "../shared/arrays.rs"]
mod arrays;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use popfit::{
    Arm, Continuum, Device, Emulator, Error, Interpolation, LevenbergMarquardt, Result,
    SpectralFitter, SpectralModel,
};
use popfit_testing::noisy::noisy_templates;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |k: usize, usual: &str| arguments.get(k).map_or(usual, String::as_str).to_string();
    let number = |k, usual| {
        text(k, usual)
            .parse::<f64>()
            .map_err(|e| Error::Usage(format!("argument {}: {e}", k + 1)))
    };
    let (folder, device) = (
        PathBuf::from(text(0, ".")),
        text(1, "auto").parse::<Device>()?,
    );
    let (seconds, count) = (number(2, "3")?, number(3, "512")? as usize);

    // of the project, or, where that is not, of the current folder
    let network = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/emulator.safetensors");
    let emulator = Emulator::open(if network.is_file() {
        network
    } else {
        "data/emulator.safetensors".into()
    })?;
    let pixels = emulator.pixels();
    let (spectra, starts) = noisy_templates(&emulator, count)?;
    let arm = Arm::new("", emulator)
        .interpolation(Interpolation::Linear)
        .continuum(Continuum::none());
    let model = SpectralModel::builder().add_arm(arm).build()?;
    let settings = LevenbergMarquardt::default().ftol(1e-6);
    let fitter = SpectralFitter::new(model, device).solver(settings);
    let table = fitter.fit_from(&spectra, &starts)?;

    let (begin, mut rounds) = (Instant::now(), 0);
    while rounds == 0 || begin.elapsed() < Duration::from_secs_f64(seconds) {
        fitter.fit_from(&spectra, &starts)?;
        rounds += 1;
    }
    let rate = (rounds * count) as f64 / begin.elapsed().as_secs_f64();

    let answers: Vec<f64> = table
        .to_rows()
        .into_iter()
        .flat_map(|row| row.parameters)
        .collect();
    let arm = &spectra.arms[0];
    let (flux, ivar) = (arm.flux.to_double(), arm.ivar.to_double());
    arrays::write(
        &folder.join("workload.safetensors"),
        &[("flux", pixels, &flux), ("ivar", pixels, &ivar)],
    )?;
    arrays::write(
        &folder.join("answers.safetensors"),
        &[("labels", fitter.parameters().len(), &answers)],
    )?;
    let evaluations = table
        .evaluations()
        .iter()
        .copied()
        .map(f64::from)
        .sum::<f64>()
        / count as f64;
    let device = fitter.device_name();
    println!(
        r#"{{"device": "{device}", "fits": {count}, "fits_per_s": {rate:.1}, "linearisations": {evaluations:.2}}}"#
    );
    Ok(())
}
