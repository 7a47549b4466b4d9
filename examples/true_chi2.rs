//! Recomputes the χ² of every fit that reports success: `cargo run --release --example true_chi2 [CURVES] [DEVICE]
//! [SEED] [FILE]`.
//!
//! Draws CURVES (300,000) noisy curves of twenty models, with starts that are 20 to 50 % off, and fits them to columns;
//! a tenth of them, too, as single fits of formulas and of closures. A success is false where the χ² of its parameters,
//! in plain Rust and f64, is not the one reported. Prints, by model and noise, the share of successes, the false ones,
//! and the largest relative difference of χ². The single fits of formulas go to FILE, for
//! `benches/peers/regressions.py`, which fits them by scipy. With `SHOW` in the environment each false success, too.

use std::fs::File;
use std::io::BufWriter;

use popfit::Device;
use popfit_testing::regressions::{NOISES, REGRESSIONS, Route, Sample};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().map_or(Ok(300_000), |text| text.parse())?;
    let device: Device = arguments
        .next()
        .map_or(Ok(Device::cpu()), |name| name.parse())?;
    let seed: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let mut file = arguments
        .next()
        .map(File::create)
        .transpose()?
        .map(BufWriter::new);
    let shows = std::env::var_os("SHOW").is_some();
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
                regression.write(
                    &device,
                    Sample {
                        curves: each.div_ceil(10),
                        noise,
                        seed,
                    },
                    file,
                )?;
            }
        }
    }
    for (route, (successes, wrong)) in routes.iter().zip(totals) {
        println!("{route:?}: {wrong} of {successes} successes have another chi-square");
    }
    Ok(())
}
