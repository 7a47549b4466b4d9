//! popfit's side of `gauss2d_cpufit.py`: the workload of `cargo bench --bench curves`, written to a file, and timed.
//!
//! `cargo run --release --example gauss2d_peer -- FOLDER [DEVICE] [SECONDS] [FITS]` writes FOLDER/workload.safetensors
//! (y, starts) and FOLDER/answers.safetensors (parameters), and prints one line of JSON.

#[path = "../shared/arrays.rs"]
mod arrays;
#[path = "../shared/images.rs"]
mod images;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use images::{PARAMETERS, POINTS, images};
use popfit::{CurveFitter, Curves, Device, Error, Result};

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
        text(1, "cpu").parse::<Device>()?,
    );
    let (seconds, count) = (number(2, "3")?, number(3, "100000")? as usize);

    let (formula, x, y, starts) = images(count);
    arrays::write(
        &folder.join("workload.safetensors"),
        &[("y", POINTS, &y), ("starts", PARAMETERS, &starts)],
    )?;
    let fitter = CurveFitter::new(formula, device);
    let curves = Curves::on_common_grid(x, y, starts);
    let mut columns = fitter.fit_columns(&curves)?;
    let (begin, mut rounds) = (Instant::now(), 0);
    while rounds == 0 || begin.elapsed() < Duration::from_secs_f64(seconds) {
        fitter.fit_columns_into(&curves, &mut columns)?;
        rounds += 1;
    }
    let rate = (rounds * count) as f64 / begin.elapsed().as_secs_f64();
    let parameters = &columns.parameters;
    arrays::write(
        &folder.join("answers.safetensors"),
        &[("parameters", PARAMETERS, parameters)],
    )?;
    println!(r#"{{"fits": {count}, "fits_per_s": {rate:.1}}}"#);
    Ok(())
}
