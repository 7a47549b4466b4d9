//! Jitter: errors of calibration that are a fraction of the flux, added to those of the file in quadrature.

use popfit::{Continuum, Device, Emulator, Spectra, SpectraSettings, SpectralModel};
use popfit_testing::demo_emulator;
use popfit_testing::fits::{demo_spectra, fitter};
use popfit_testing::random::Random;

/// Error of calibration of each pixel, as a fraction of its flux.
const FRACTION: f64 = 0.03;

fn fit_with(jitter: f64, spectra: &Spectra) -> Vec<popfit::FitRow> {
    let builder = SpectralModel::builder().arm("b", Emulator::open(demo_emulator()).unwrap());
    let builder = builder
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10));
    let settings = SpectraSettings::default().jitter(jitter);
    let model = builder.spectra(settings).build().unwrap();
    fitter(model, &Device::cpu())
        .fit(spectra)
        .unwrap()
        .to_rows()
}

/// Returns the demo's spectra whose fluxes have another error of calibration in each pixel.
fn spoil_calibration(seed: u64) -> Spectra<'static> {
    let mut spectra = demo_spectra();
    let mut random = Random(seed);
    for flux in spectra.arms[0].flux.to_mut() {
        *flux *= 1.0 + FRACTION * random.normal();
    }
    spectra
}

/// Beside the fits of the spectra as they were, whose own scatter the differences of two fits do not have.
#[test]
fn pulls_of_spectra_with_errors_of_calibration_are_normal() {
    let plain = fit_with(0.0, &demo_spectra());
    let root_mean_square = |jitter: f64| {
        let mut squares = Vec::new();
        let mut chi2_per_dof = Vec::new();
        for seed in 0..4 {
            for (row, undisturbed) in fit_with(jitter, &spoil_calibration(seed))
                .iter()
                .zip(&plain)
            {
                chi2_per_dof.push(row.chi2 / row.dof as f64);
                let values = row.parameters.iter().zip(&undisturbed.parameters);
                for ((value, before), (error, error_before)) in
                    values.zip(row.errors.iter().zip(&undisturbed.errors))
                {
                    // the added error alone, without that of the file
                    let added = error * error - error_before * error_before;
                    if error.is_finite() && (jitter == 0.0 || added > 0.0) {
                        let variance = if jitter > 0.0 { added } else { error * error };
                        squares.push((value - before).powi(2) / variance);
                    }
                }
            }
        }
        let mean = squares.iter().sum::<f64>() / squares.len() as f64;
        (mean.sqrt(), popfit_testing::median(chi2_per_dof))
    };
    let (without, chi2_without) = root_mean_square(0.0);
    let (with, chi2_with) = root_mean_square(FRACTION);
    println!(
        "without: pulls {without:.3}, χ²/dof {chi2_without:.3}; with: {with:.3}, {chi2_with:.3}"
    );
    assert!(without > 1.3 && chi2_without > 2.0);
    assert!((with - 1.0).abs() < 0.15, "{with}");
    assert!((chi2_with - 1.0).abs() < 0.05, "{chi2_with}");
}

#[test]
fn a_jitter_of_0_changes_no_bit_and_masked_pixels_stay_masked() {
    let spectra = demo_spectra();
    let plain = fit_with(0.0, &spectra);
    let with = fit_with(0.05, &spectra);
    for (row, plain) in with.iter().zip(&plain) {
        assert_eq!(row.dof, plain.dof, "no pixel comes or goes");
        assert!(row.chi2 < plain.chi2);
        assert!(row.errors.iter().zip(&plain.errors).all(|(a, b)| a >= b));
    }
}
