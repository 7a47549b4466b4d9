//! `popfit-bench curve-minima`: counts fits of curves that end above the lowest known minimum.
//!
//! Draws noisy curves of each of twenty models, with starts that are 20 to 50 % off, and fits them to columns on the
//! CPU, once from their starts and twelve times from the truth and around it. Prints, by model and noise (in units of
//! the curve's scatter), how many fits fail, how many successes end above the lowest χ² of the twelve, and how many of
//! these do not determine a parameter or have two parallel columns of the Jacobian.

use std::time::Instant;

use popfit_cli::Failure;
use popfit_testing::regressions::{REGRESSIONS, Sample};

/// Noise of the curves, in root mean squares of the true curve about its mean.
const NOISES: [f64; 4] = [0.01, 0.1, 0.3, 1.0];

#[derive(clap::Args)]
pub struct Arguments {
    /// Number of curves of each model and noise
    #[arg(default_value_t = 1000)]
    curves: usize,
    /// Seed of the curves
    #[arg(default_value_t = 7)]
    seed: u64,
    /// Names of the models; all of them by default
    models: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments {
        curves,
        seed,
        models,
    } = arguments;
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
                curves: *curves,
                noise,
                seed: *seed,
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
