//! Spectra that no star has.

use popfit::Spectra;
use popfit::spectra::ArmSpectra;

use popfit_testing::random::Random;

type Case = fn(&mut Spectra);

pub const CASES: [(&str, Case); 4] = [
    ("sums", sums),
    ("faint", faint),
    ("noise", noise),
    ("inverted", inverted),
];

pub fn case(name: &str) -> Option<Case> {
    CASES
        .iter()
        .find(|(other, _)| *other == name)
        .map(|(_, case)| *case)
}

/// Adds to each spectrum the one behind it, to the last the first.
fn sums(spectra: &mut Spectra) {
    for arm in &mut spectra.arms {
        let variance = |ivar: f64| {
            if ivar > 0.0 {
                1.0 / ivar
            } else {
                f64::INFINITY
            }
        };
        let (mut flux, mut ivar) = (
            arm.flux.to_double().into_owned(),
            arm.ivar.to_double().into_owned(),
        );
        flux.rotate_left(arm.pixels);
        ivar.rotate_left(arm.pixels);
        for j in 0..flux.len() {
            arm.ivar.to_mut()[j] = 1.0 / (variance(arm.ivar.at(j)) + variance(ivar[j]));
            arm.flux.to_mut()[j] += flux[j];
        }
        if !arm.mask.is_empty() {
            let mut mask = arm.mask.to_vec();
            mask.rotate_left(arm.pixels);
            arm.mask
                .to_mut()
                .iter_mut()
                .zip(mask)
                .for_each(|(own, other)| *own |= other);
        }
    }
}

/// Noise of thirty times the errors, and errors that say so.
fn faint(spectra: &mut Spectra) {
    with_noise(spectra, |_, flux| flux);
}

/// The same noise around each spectrum's level.
fn noise(spectra: &mut Spectra) {
    with_noise(spectra, |level, _| level);
}

fn with_noise(spectra: &mut Spectra, signal: impl Fn(f64, f64) -> f64) {
    const TIMES: f64 = 30.0;
    let mut random = Random(17);
    for arm in &mut spectra.arms {
        let levels = levels(arm);
        for (k, (flux, ivar)) in arm
            .flux
            .to_mut()
            .iter_mut()
            .zip(arm.ivar.to_mut())
            .enumerate()
        {
            let noise = if *ivar > 0.0 {
                TIMES * random.normal() / ivar.sqrt()
            } else {
                0.0
            };
            *flux = signal(levels[k / arm.pixels], *flux) + noise;
            *ivar /= TIMES * TIMES;
        }
    }
}

/// Lines go up instead of down.
fn inverted(spectra: &mut Spectra) {
    for arm in &mut spectra.arms {
        let levels = levels(arm);
        arm.flux
            .to_mut()
            .iter_mut()
            .enumerate()
            .for_each(|(k, flux)| *flux = 2.0 * levels[k / arm.pixels] - *flux);
    }
}

/// The mean of each spectrum's pixels that count.
fn levels(arm: &ArmSpectra) -> Vec<f64> {
    let of = |(flux, ivar): (&[f64], &[f64])| {
        let good = || flux.iter().zip(ivar).filter(|(_, ivar)| **ivar > 0.0);
        good().map(|(flux, _)| flux).sum::<f64>() / good().count().max(1) as f64
    };
    let (flux, ivar) = (arm.flux.to_double(), arm.ivar.to_double());
    flux.chunks_exact(arm.pixels)
        .zip(ivar.chunks_exact(arm.pixels))
        .map(of)
        .collect()
}
