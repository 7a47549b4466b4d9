//! `popfit-bench true-chi2`: recomputes the χ² of every fit that reports success.
//!
//! Draws noisy curves of twenty models, with starts that are 20 to 50 % off, and fits them to columns; a tenth of them,
//! too, as single fits of formulas and of closures. A success is false if the χ² of its parameters, in plain Rust and
//! f64, is not the one reported. Prints, by model and noise, the share of successes, the false ones, and the largest
//! relative difference of χ².

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use popfit::Device;
use popfit_cli::Failure;
use popfit_testing::regressions::{NOISES, REGRESSIONS, Route, Sample};

use super::io_failure;

#[derive(clap::Args)]
pub struct Arguments {
    /// Number of curves of all models and noises
    #[arg(default_value_t = 300_000)]
    curves: usize,
    #[arg(default_value = "cpu")]
    device: String,
    /// Seed of the curves
    #[arg(default_value_t = 1)]
    seed: u64,
    /// File for the single fits of formulas, which benches/peers/regressions.py fits by scipy
    file: Option<PathBuf>,
    /// Print each false success
    #[arg(long)]
    show: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let &Arguments {
        curves: count,
        seed,
        show: shows,
        ..
    } = arguments;
    let device: Device = arguments.device.parse()?;
    let path = arguments.file.clone().unwrap_or_default();
    let file = arguments.file.as_ref().map(File::create).transpose();
    let mut file = file
        .map_err(|source| io_failure(&path, source))?
        .map(BufWriter::new);
    let each = count.div_ceil(REGRESSIONS.len() * NOISES.len());
    let routes = [Route::Columns, Route::Fits, Route::Closures];
    let mut totals = [(0, 0); 3];
    println!(
        "{:26} {:>5}  {:22}  {:22}  Closures",
        "model", "noise", "Columns", "Fits"
    );
    for regression in &REGRESSIONS {
        for noise in NOISES {
            print!("{:26} {noise:5}", regression.name);
            for (route, total) in routes.into_iter().zip(&mut totals) {
                let curves = if route == Route::Columns {
                    each
                } else {
                    each.div_ceil(10)
                };
                let found = regression.compare(
                    route,
                    &device,
                    Sample {
                        curves,
                        noise,
                        seed,
                    },
                )?;
                let share = 100.0 * found.successes as f64 / curves as f64;
                print!(
                    "  {share:6.2} % {:4} {:8.1e}",
                    found.wrong.len(),
                    found.worst
                );
                found
                    .wrong
                    .iter()
                    .filter(|_| shows)
                    .for_each(|wrong| print!("\n    {wrong}"));
                *total = (total.0 + found.successes, total.1 + found.wrong.len());
            }
            println!();
            if let Some(file) = &mut file {
                regression
                    .write(
                        &device,
                        Sample {
                            curves: each.div_ceil(10),
                            noise,
                            seed,
                        },
                        file,
                    )
                    .map_err(|source| io_failure(&path, source))?;
            }
        }
    }
    for (route, (successes, wrong)) in routes.iter().zip(totals) {
        println!("{route:?}: {wrong} of {successes} successes have another chi-square");
    }
    Ok(())
}
