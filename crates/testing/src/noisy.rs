//! Noisy templates of a bare emulator, the same in every run: shared with `benches/fits.rs`.

use popfit::emulator::{Label, Transform};
use popfit::spectra::Wavelength;
use popfit::{Emulator, Result, Spectra};

use crate::sequence::Sequence;

/// Spectra of labels uniform within ±0.8 scaled ones, signal to noise 20 to 100, and where their fits start (spectra,
/// labels): the centre of the labels.
pub fn noisy_templates(emulator: &Emulator, count: usize) -> Result<(Spectra<'static>, Vec<f64>)> {
    let mut random = Sequence(7);
    let physical = |label: &Label, z: f64| {
        let x = label.mean + label.std * z;
        if label.transform == Transform::Log10 {
            10f64.powf(x)
        } else {
            x
        }
    };
    // 1. Draw the labels.
    let labels = emulator.labels();
    let truths: Vec<f64> = (0..count)
        .flat_map(|_| {
            labels
                .iter()
                .map(|label| physical(label, 1.6 * random.uniform() - 0.8))
                .collect::<Vec<_>>()
        })
        .collect();
    // 2. Add noise to their templates.
    let mut flux = Vec::new();
    let mut ivar = Vec::new();
    for template in emulator.templates(&truths).chunks_exact(emulator.pixels()) {
        let mean = template.iter().map(|x| f64::from(*x)).sum::<f64>() / template.len() as f64;
        let noise = mean / (20.0 + 80.0 * random.uniform());
        for x in template {
            let sigma = noise * (0.7 + 0.6 * random.uniform());
            flux.push(f64::from(*x) + sigma * random.normal());
            ivar.push(sigma.powi(-2));
        }
    }
    let wavelength = Wavelength::from(emulator.wavelength().to_vec());
    let spectra = Spectra::from_arrays(wavelength, flux, ivar, None, None)?;
    let start: Vec<f64> = labels.iter().map(|label| physical(label, 0.0)).collect();
    Ok((spectra, start.repeat(count)))
}
