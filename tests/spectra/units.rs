//! Networks in any unit: a fit of data and templates in another unit has the same bits, and pictures are in the unit of
//! the data.

use popfit::emulator::{Activation, EmulatorLayers, Label, Layer};
use popfit::{Arm, Continuum, Emulator, FitRow, Precision, Spectra, SpectralFitter, SpectralModel};
use popfit_testing::fits::{devices, fitter};
use popfit_testing::random::Random;
use popfit_testing::tiny::{PIXELS, wavelength};

const HIDDEN: usize = 8;
/// Signal-to-noise ratio per pixel.
const SIGNAL_TO_NOISE: f64 = 60.0;

/// Returns a network of two labels whose templates are about `unit`, a power of two.
fn network(unit: f64, output: Activation) -> Emulator {
    scaled_network(Activation::Tanh, 1.0, unit, output)
}

/// Returns the same network with another activation function, and with weights of the hidden layer that are multiplied
/// by `hidden_factor`. Those of an output layer without an activation are divided by it.
fn scaled_network(
    activation: Activation,
    hidden_factor: f64,
    unit: f64,
    output: Activation,
) -> Emulator {
    let mut random = Random(5);
    let mut random_list = |count, size: f64, factor: f64| -> Vec<f32> {
        (0..count)
            .map(|_| (random.around(size) * factor) as f32)
            .collect()
    };
    let hidden = Layer::new(
        random_list(2 * HIDDEN, 2.0, hidden_factor),
        random_list(HIDDEN, 0.5, hidden_factor),
    );
    let (factor, bias) = if output == Activation::Identity {
        (unit, unit)
    } else {
        (1.0, unit.ln())
    };
    let pixels = Layer::new(
        random_list(HIDDEN * PIXELS, 0.2, factor / hidden_factor),
        vec![bias as f32; PIXELS],
    );
    let labels = vec![
        Label::new("a", "", 0.0..=1.0),
        Label::new("b", "", -1.0..=1.0),
    ];
    let layers = EmulatorLayers {
        wavelength: wavelength(),
        output,
        ..EmulatorLayers::new(labels, activation, vec![hidden, pixels])
    };
    Emulator::from_layers(layers).unwrap()
}

/// Returns spectra of the network in this unit, with the same relative noise in every unit.
fn spectra(unit: f64) -> Spectra<'static> {
    let mut random = Random(9);
    let labels = [0.3, 0.2, 0.7, -0.5, 0.5, 0.6];
    let clean = network(1.0, Activation::Identity).templates(&labels);
    let flux = clean
        .iter()
        .map(|x| unit * (f64::from(*x) + random.around(1.7 / SIGNAL_TO_NOISE)))
        .collect::<Vec<f64>>();
    let ivar = vec![(SIGNAL_TO_NOISE / unit).powi(2); flux.len()];
    Spectra::from_arrays(wavelength(), flux, ivar, None, None).unwrap()
}

fn model(unit: f64, output: Activation, continuum: Continuum) -> SpectralModel {
    let arm = Arm::new("", network(unit, output)).continuum(continuum);
    SpectralModel::builder()
        .add_arm(arm)
        .velocity(-100.0..=100.0)
        .marginalise(true)
        .build()
        .unwrap()
}

fn fit(fitter: &SpectralFitter, spectra: &Spectra) -> Vec<FitRow> {
    fitter.fit(spectra).unwrap().to_rows()
}

#[test]
fn fits_in_another_unit_have_the_same_bits() {
    for device in devices() {
        for continuum in [Continuum::chebyshev(3), Continuum::none()] {
            let fit_in_unit = |power: i32| {
                let unit = f64::from(power).exp2();
                let fitter = fitter(model(unit, Activation::Identity, continuum), &device);
                (fit(&fitter, &spectra(unit)), fitter)
            };
            let (rows, _) = fit_in_unit(0);
            assert!(
                rows.iter()
                    .all(|row| row.status.is_success() && row.chi2 < 2.0 * PIXELS as f64),
                "{rows:?}"
            );
            for power in [-100, -73, 66, 100] {
                let (rows_in_unit, fitter) = fit_in_unit(power);
                let unit = f64::from(power).exp2();
                for (a, b) in rows.iter().zip(&rows_in_unit) {
                    let case = format!("2^{power}, {continuum:?}, {}", fitter.device_name());
                    assert_eq!(
                        (&a.parameters, &a.errors, a.chi2, a.flags),
                        (&b.parameters, &b.errors, b.chi2, b.flags),
                        "{case}"
                    );
                    // − Σ ln ivar depends on the unit of the data. In ln det C the units of template and ivar cancel.
                    let pixels = PIXELS as f64 - f64::from(a.unreached[0]);
                    let expected = a.objective + 2.0 * pixels * unit.ln();
                    assert!(
                        (b.objective - expected).abs() < 1e-9 * expected.abs(),
                        "{case}: {b:?} {expected}"
                    );
                }
                let pictures = fitter
                    .model_spectrum(&spectra(unit), &rows_in_unit[1])
                    .unwrap();
                let pull = |j: usize| {
                    (pictures[0].model[j] - pictures[0].flux[j]).abs() * SIGNAL_TO_NOISE / unit
                };
                assert!((0..PIXELS).all(|j| pull(j) < 5.0), "{pictures:?}");
                assert!((pictures[0].chi2 / rows_in_unit[1].chi2 - 1.0).abs() < 1e-4);
            }
        }
    }
}

/// A network of ln flux loses only the digits of ln(unit).
#[test]
fn networks_of_ln_flux_agree_in_any_unit() {
    let fit_in_unit = |power: i32| {
        let unit = f64::from(power).exp2();
        let model = model(unit, Activation::Exp { clip: 300.0 }, Continuum::none());
        fit(&fitter(model, &popfit::Device::cpu()), &spectra(unit))
    };
    let rows = fit_in_unit(0);
    for power in [-100, -60, 60, 100] {
        for (a, b) in rows.iter().zip(&fit_in_unit(power)) {
            assert!(
                popfit_testing::fits::offset(a, &b.parameters, &b.errors) < 0.01,
                "2^{power}: {a:?} {b:?}"
            );
        }
    }
}

/// Numbers of hidden and output layers that f16 cannot hold as they are: mixed precision scales both.
#[test]
fn mixed_precision_ends_as_f32_for_weights_of_any_size() {
    for (hidden_factor, unit_power) in [(1.0, 0), (1e3, -9), (1e-5, 0), (1e6, 9), (1e-9, -9)] {
        let unit = f64::from(unit_power).exp2();
        let network = scaled_network(Activation::Relu, hidden_factor, unit, Activation::Identity);
        let model = SpectralModel::builder()
            .add_arm(Arm::new("", network.clone()).continuum(Continuum::none()))
            .velocity(-100.0..=100.0)
            .build()
            .unwrap();
        let clean = network.templates(&[0.3, 0.2, 0.7, -0.5, 0.5, 0.6]);
        let mut random = Random(9);
        let flux: Vec<f64> = clean
            .iter()
            .map(|x| f64::from(*x) + unit * random.around(1.7 / SIGNAL_TO_NOISE))
            .collect();
        let ivar = vec![(SIGNAL_TO_NOISE / unit).powi(2); flux.len()];
        let spectra = Spectra::from_arrays(wavelength(), flux, ivar, None, None).unwrap();
        for device in devices() {
            let [full, mixed] = [Precision::F32, Precision::Mixed].map(|precision| {
                let fitter = fitter(model.clone(), &device).precision(precision);
                fit(&fitter, &spectra)
            });
            for (a, b) in full.iter().zip(&mixed) {
                let offset = popfit_testing::fits::offset(b, &a.parameters, &a.errors);
                let case = format!("{hidden_factor}, 2^{unit_power}");
                assert!(
                    a.status.is_success() && b.status == a.status,
                    "{case}: {a:?} {b:?}"
                );
                assert!(offset < 0.01, "{case}: {offset}: {a:?} {b:?}");
            }
        }
    }
}

/// A model returns the network that it was given.
#[test]
fn a_model_returns_the_given_network() {
    let emulator = network(1e-22, Activation::Identity);
    let model = SpectralModel::builder()
        .arm("", emulator.clone())
        .build()
        .unwrap();
    let (_, returned) = model.arms().next().unwrap();
    assert_eq!(*returned, emulator);
    assert_eq!(
        returned.templates(&[0.5, 0.0]),
        emulator.templates(&[0.5, 0.0])
    );
}
