//! The share of fits that end above the best that any seed of the first guess reaches: the cost of halving and of few
//! starts.
//!
//! `cargo run --release --example seeds -- MODEL.toml SPECTRA [SEEDS] [CASE]`; a CASE makes the spectra hard to fit:
//! `sums` adds to each the next one, `faint` noise of thirty times the errors, `noise` is nothing else, `inverted` has
//! lines that go up. Starts that are far off are the model file's affair (`[velocity] start`). By hand: a change of
//! halving or first guess is to be judged by it, before and after.

mod hard;

use popfit::{Device, ModelFile, Result, Spectra, SpectralFitter};

/// Rise of the objective that counts.
const ABOVE: f64 = 0.02;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, spectra, rest @ ..] = arguments.as_slice() else {
        usage()
    };
    let (mut seeds, mut spectra) = (8, Spectra::open(spectra)?);
    for word in rest {
        match (word.parse(), hard::case(word)) {
            (Ok(count), _) => seeds = count,
            (_, Some(case)) => case(&mut spectra),
            _ => usage(),
        }
    }
    let (mut objectives, mut linearisations) = (Vec::new(), 0);
    for seed in 0..seeds {
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
    let fits = seeds as f64 * spectra.len() as f64;
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

fn usage() -> ! {
    eprintln!(
        "usage: seeds MODEL.toml SPECTRA [SEEDS] [{}]",
        hard::CASES.map(|(name, _)| name).join("|")
    );
    std::process::exit(2);
}
