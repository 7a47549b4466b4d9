//! `popfit-bench seeds`: the share of fits that end above the best that any seed of the first guess reaches, the cost
//! of successive halving and of few starts. It judges a change of either.
//!
//! A case makes the spectra hard to fit. Starts that are far off are set in the model file (`[velocity] start`).

mod hard;

use std::path::PathBuf;

use popfit::{Device, ModelFile, Spectra, SpectralFitter};
use popfit_cli::Failure;

/// Rise of the objective that counts.
const ABOVE: f64 = 0.02;

#[derive(clap::Args)]
pub struct Arguments {
    /// Model file
    model: PathBuf,
    /// File of spectra
    spectra: PathBuf,
    /// Number of seeds
    #[arg(default_value_t = 8)]
    seeds: u64,
    /// Changes of the spectra: sums adds to each the next one, faint adds noise of thirty times the errors, noise
    /// leaves nothing else, inverted turns lines upwards
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(hard::CASES.map(|(name, _)| name)))]
    cases: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { model, seeds, .. } = arguments;
    let mut spectra = Spectra::open(&arguments.spectra)?;
    for case in arguments.cases.iter().filter_map(|name| hard::case(name)) {
        case(&mut spectra);
    }
    let (mut objectives, mut linearisations) = (Vec::new(), 0);
    for seed in 0..*seeds {
        let file = ModelFile::open(model)?;
        let starts = file.starts;
        let mut fitter = SpectralFitter::new(file.build()?, Device::cpu()).seed(seed);
        if let Some(starts) = starts {
            fitter = fitter.starts(starts);
        }
        let rows = fitter.fit(&spectra)?.to_rows();
        linearisations += rows
            .iter()
            .map(|row| u64::from(row.evaluations))
            .sum::<u64>();
        objectives.push(rows.iter().map(|row| row.objective).collect::<Vec<_>>());
    }
    let fits = *seeds as f64 * spectra.len() as f64;
    let mut count = 0;
    for k in 0..spectra.len() {
        let best = objectives
            .iter()
            .map(|of_seed| of_seed[k])
            .fold(f64::INFINITY, f64::min);
        let above: Vec<String> = objectives
            .iter()
            .map(|of_seed| of_seed[k] - best)
            .filter(|rise| *rise > ABOVE)
            .map(|rise| format!("{rise:.2}"))
            .collect();
        count += above.len();
        if !above.is_empty() {
            println!("{}: above by {}", spectra.ids.text(k), above.join(", "));
        }
    }
    let each = linearisations as f64 / fits;
    println!(
        "{fits} fits, {each:.3} linearisations each, {count} more than {ABOVE} above the best of their spectrum"
    );
    Ok(())
}
