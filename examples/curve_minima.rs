//! Counts fits of curves that end above the lowest known minimum: `cargo run --release --example curve_minima [CURVES
//! [SEED [MODEL ...]]]`.
//!
//! Draws CURVES (1,000) noisy curves of each of twenty models, with starts that are 20 to 50 % off, and fits them to
//! columns on the CPU, once from their starts and twelve times from the truth and around it. Prints, by model and noise
//! (in units of the curve's scatter), how many fits fail, how many successes end above the lowest χ² of the twelve, and
//! how many of these do not determine a parameter or have two parallel columns of the Jacobian.

use std::time::Instant;

use popfit_testing::regressions::{REGRESSIONS, Sample};

/// Noise of the curves, in root mean squares of the true curve about its mean.
const NOISES: [f64; 4] = [0.01, 0.1, 0.3, 1.0];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let curves: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let seed: u64 = arguments.next().map_or(Ok(7), |text| text.parse())?;
    let models: Vec<String> = arguments.collect();
    println!(
        "{:26} noise  failures  above  undetermined  parallel  seconds",
        "model"
    );
    for regression in REGRESSIONS
        .iter()
        .filter(|r| models.is_empty() || models.iter().any(|name| name == r.name))
    {
        for noise in NOISES {
            let begin = Instant::now();
            let found = regression.minima(Sample {
                curves,
                noise,
                seed,
            })?;
            let (seconds, name) = (begin.elapsed().as_secs_f64(), regression.name);
            let [failures, above, undetermined, parallel] = [
                found.failures,
                found.above,
                found.undetermined,
                found.parallel,
            ];
            println!(
                "{name:26} {noise:5} {failures:9} {above:6} {undetermined:13} {parallel:9} {seconds:8.2}"
            );
        }
    }
    Ok(())
}
