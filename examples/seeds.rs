//! How often a fit ends above the best that any seed of the first guess reaches: what halving and few starts cost.
//!
//! `cargo run --release --example seeds -- MODEL.toml SPECTRA [SEEDS] [sums]`; `sums` fits each spectrum together with the next one,
//! which no star is like. By hand: a change of halving or first guess is to be judged by it, before and after.

use popfit::{Device, Fitter, LevenbergMarquardt, ModelFile, Result, Spectra};

/// Rise of the objective that counts.
const ABOVE: f64 = 0.02;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, spectra, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: seeds MODEL.toml SPECTRA [SEEDS] [sums]");
        std::process::exit(2);
    };
    let seeds = rest.iter().find_map(|word| word.parse().ok()).unwrap_or(8);
    let mut spectra = Spectra::open(spectra)?;
    if rest.iter().any(|word| word == "sums") {
        add_the_next(&mut spectra);
    }
    let (mut objectives, mut linearisations) = (Vec::new(), 0);
    for seed in 0..seeds {
        let file = ModelFile::open(model)?;
        let starts = file.starts;
        let mut fitter = Fitter::new(file.build()?, Device::cpu(), LevenbergMarquardt::default())?.seed(seed);
        if let Some(starts) = starts {
            fitter = fitter.starts(starts);
        }
        let rows = fitter.fit(&spectra)?.rows;
        linearisations += rows.iter().map(|row| u64::from(row.evaluations)).sum::<u64>();
        objectives.push(rows.iter().map(|row| row.objective).collect::<Vec<_>>());
    }
    let fits = seeds as f64 * spectra.len() as f64;
    println!("{fits} fits, {:.3} linearisations each", linearisations as f64 / fits);
    for k in 0..spectra.len() {
        let best = objectives.iter().map(|of_seed| of_seed[k]).fold(f64::INFINITY, f64::min);
        let above: Vec<String> = objectives
            .iter()
            .map(|of_seed| of_seed[k] - best)
            .filter(|rise| *rise > ABOVE)
            .map(|rise| format!("{rise:.2}"))
            .collect();
        if !above.is_empty() {
            println!("{}: above by {}", spectra.ids.text(k), above.join(", "));
        }
    }
    Ok(())
}

/// Adds to each spectrum the one behind it, to the last the first.
fn add_the_next(spectra: &mut Spectra) {
    for arm in &mut spectra.arms {
        let variance = |ivar: f64| if ivar > 0.0 { 1.0 / ivar } else { f64::INFINITY };
        let (mut flux, mut ivar) = (arm.flux.clone(), arm.ivar.clone());
        flux.rotate_left(arm.pixels);
        ivar.rotate_left(arm.pixels);
        for j in 0..flux.len() {
            arm.ivar[j] = 1.0 / (variance(arm.ivar[j]) + variance(ivar[j]));
            arm.flux[j] += flux[j];
        }
        if !arm.mask.is_empty() {
            let mut mask = arm.mask.clone();
            mask.rotate_left(arm.pixels);
            arm.mask.iter_mut().zip(mask).for_each(|(own, other)| *own |= other);
        }
    }
}
