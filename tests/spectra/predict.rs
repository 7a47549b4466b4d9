//! Model spectra of given parameters.

use popfit::{Continuum, Device, Emulator, Spectra, SpectralFitter, SpectralModel};
use popfit_testing::{demo_builder, demo_emulator, demo_file};

const LABELS: [f64; 4] = [5800.0, 4.4, -0.2, 0.1];

fn fitter(model: SpectralModel) -> SpectralFitter {
    SpectralFitter::new(model, Device::cpu())
}

/// Returns parameters of the demo's model: a velocity and [`LABELS`].
fn parameters_at(velocity: f64) -> Vec<f64> {
    [&[velocity][..], &LABELS].concat()
}

#[test]
fn a_star_at_rest_has_the_spectrum_of_the_network() {
    let emulator = Emulator::open(demo_emulator()).unwrap();
    let expected = emulator.templates(&LABELS);
    for continuum in [Continuum::rbf(10), Continuum::none()] {
        let fitter = fitter(demo_builder("b").continuum(continuum).build().unwrap());
        let arms = fitter.predict(&parameters_at(0.0), None).unwrap();
        assert_eq!((arms.len(), arms[0].name.as_str()), (1, "b"));
        assert_eq!(arms[0].wavelength, emulator.wavelength());
        let finite_pixels = arms[0]
            .flux
            .iter()
            .zip(&expected)
            .enumerate()
            .filter(|(_, (flux, _))| flux.is_finite());
        let count = finite_pixels.clone().count();
        assert!(count > 3600, "{count}");
        for (j, (flux, expected)) in finite_pixels {
            assert!(
                (flux - f64::from(*expected)).abs() < 1e-5,
                "pixel {j}: {flux}, {expected}"
            );
        }
    }
}

#[test]
fn a_moving_star_is_shifted_and_ends_where_the_network_ends() {
    let fitter = fitter(demo_builder("").build().unwrap());
    let rest = &fitter.predict(&parameters_at(0.0), None).unwrap()[0];
    let moved = &fitter.predict(&parameters_at(300.0), None).unwrap()[0];
    assert!(
        moved.flux[0].is_nan() && moved.flux[1000].is_finite(),
        "its light comes from further blue"
    );
    // The deepest line has moved by the Doppler factor
    let deepest = |flux: &[f64]| {
        (0..flux.len())
            .min_by(|&a, &b| flux[a].total_cmp(&flux[b]))
            .unwrap()
    };
    let beta: f64 = 300.0 / 299_792.458;
    let factor = ((1.0 + beta) / (1.0 - beta)).sqrt();
    let ratio = moved.wavelength[deepest(&moved.flux)] / rest.wavelength[deepest(&rest.flux)];
    assert!((ratio - factor).abs() < 1e-4, "{ratio}, {factor}");
}

/// Only the pixels of the given spectra count, and not their fluxes and masks.
#[test]
fn models_are_predicted_at_the_pixels_of_spectra() {
    let fitter = fitter(demo_builder("b").build().unwrap());
    let spectra = Spectra::open(demo_file("spectra.npz")).unwrap();
    let arms = fitter
        .predict(&parameters_at(20.0), Some(&spectra))
        .unwrap();
    assert_eq!(arms[0].wavelength, &*spectra.arms[0].grid(0));
    assert!(
        arms[0].flux.iter().all(|flux| flux.is_finite()),
        "the network reaches all pixels"
    );
    let mut masked = spectra.slice(0..1);
    let pixels = masked.arms[0].pixels;
    masked.arms[0] = masked.arms[0]
        .clone()
        .with_mask(vec![true; pixels])
        .unwrap();
    assert_eq!(
        fitter.predict(&parameters_at(20.0), Some(&masked)).unwrap()[0].flux,
        arms[0].flux
    );
}

#[test]
fn invalid_parameters_are_refused() {
    let fitter = fitter(demo_builder("").build().unwrap());
    for (values, expected) in [
        (
            vec![0.0],
            "1 values are given for the free parameters velocity, teff, logg, feh, alpha",
        ),
        (
            vec![0.0, 58_000.0, 4.4, -0.2, 0.1],
            "teff = 58000 is outside the model's bounds, 4000 to 9000",
        ),
        (
            vec![f64::NAN, 5800.0, 4.4, -0.2, 0.1],
            "velocity = NaN is outside",
        ),
    ] {
        let message = fitter.predict(&values, None).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let no_spectra = Spectra::open(demo_file("spectra.npz")).unwrap().slice(0..0);
    assert!(
        fitter
            .predict(&parameters_at(0.0), Some(&no_spectra))
            .is_err()
    );
}
