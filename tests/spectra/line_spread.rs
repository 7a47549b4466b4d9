//! Line spread functions: the resolution matrices of the spectra, resolving power, and width in Å. The derivatives of
//! all are compared with differences in f64.

use popfit::spectra::Resolution;
use popfit::{
    Arm, Continuum, Device, Emulator, FitRow, LabelSettings, LineSpread, Spectra, SpectralModel,
    SpectralModelBuilder,
};
use popfit_testing::fits::{devices, evaluator, fitter, pick, same_bits, synb_spectra};

const FWHM: f64 = 2.3548;

fn builder(spread: LineSpread) -> SpectralModelBuilder {
    let emulator = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    SpectralModel::builder()
        .add_arm(Arm::new("b", emulator).line_spread(spread))
        .velocity(-1000.0..=1000.0)
}

fn model(spread: LineSpread) -> SpectralModel {
    builder(spread)
        .continuum(Continuum::none())
        .build()
        .unwrap()
}

/// Returns three `synb` spectra with resolution matrices of `value`s, a function of spectrum, diagonal and pixel.
fn with_resolution(
    diagonals: usize,
    value: impl Fn(usize, usize, usize) -> f32,
) -> Spectra<'static> {
    let mut spectra = pick(&synb_spectra(), &[0, 6, 7]);
    let pixels = spectra.arms[0].pixels;
    let values = (0..3 * diagonals * pixels)
        .map(|i| value(i / diagonals / pixels, i / pixels % diagonals, i % pixels));
    let resolution = Resolution {
        diagonals,
        values: values.collect::<Vec<f32>>().into(),
    };
    spectra.arms = spectra
        .arms
        .drain(..)
        .map(|arm| arm.with_resolution(resolution.clone()).unwrap())
        .collect();
    spectra
}

/// Returns a row at some point for each spectrum.
fn evaluate_rows(spectra: &Spectra, spread: LineSpread) -> Vec<FitRow> {
    let point = [40.0, 5300.0, 4.2, -0.5, 0.2];
    let fitter = evaluator(model(spread), &Device::cpu());
    let mut rows = fitter
        .fit_from(spectra, &point.repeat(spectra.len()))
        .unwrap()
        .to_rows();
    rows.iter_mut()
        .for_each(|row| row.parameters = point.to_vec());
    rows
}

fn model_flux(spectra: &Spectra, spread: LineSpread, n: usize) -> Vec<f64> {
    let row = &evaluate_rows(spectra, spread)[n];
    fitter(model(spread), &Device::cpu())
        .model_spectrum(spectra, row)
        .unwrap()
        .remove(0)
        .model
}

#[test]
fn the_model_is_the_matrix_times_the_unresolved_model() {
    // The matrices have no symmetry, and each spectrum has another one.
    let value = |n: usize, d: usize, j: usize| {
        0.05 + 0.02 * d as f32 + 0.01 * (j % 7) as f32 + 0.03 * n as f32
    };
    let spectra = with_resolution(5, value);
    for n in 0..3 {
        let plain = model_flux(&spectra, LineSpread::None, n);
        let resolved = model_flux(&spectra, LineSpread::File, n);
        for (row, resolved) in resolved.iter().enumerate().take(plain.len() - 10).skip(10) {
            let product = |d: usize| {
                let column = row + 2 - d;
                f64::from(value(n, d, column)) * plain[column]
            };
            let expected: f64 = (0..5).map(product).sum();
            if expected.is_finite() && resolved.is_finite() {
                assert!(
                    (resolved / expected - 1.0).abs() < 1e-6,
                    "spectrum {n}, pixel {row}"
                );
            }
        }
        assert!(resolved.iter().filter(|x| x.is_finite()).count() > 3000);
    }
}

#[test]
fn a_matrix_of_ones_on_the_diagonal_changes_no_bit() {
    let spectra = with_resolution(3, |_, d, _| if d == 1 { 1.0 } else { 0.0 });
    for device in devices() {
        let fit = |spread| {
            let model = builder(spread)
                .continuum(Continuum::rbf(10))
                .build()
                .unwrap();
            fitter(model, &device).fit(&spectra).unwrap()
        };
        let none = fit(LineSpread::None);
        let file = fit(LineSpread::File);
        for (a, b) in none.to_rows().into_iter().zip(file.to_rows()) {
            assert!(a.status.is_success());
            same_bits(a, b, &device.name());
        }
    }
}

/// Pixels that the model masks are resolved into their neighbours. Neighbours of pixels that the template does not
/// cover are left out.
#[test]
fn masked_pixels_are_resolved_into_their_neighbours_and_missing_ones_are_not() {
    let width = |d: usize| (-0.5 * (d as f32 - 2.0).powi(2)).exp() / 2.5;
    let spectra = with_resolution(5, |_, d, _| width(d));
    let wavelength = spectra.arms[0].grid(0).to_vec();
    let model_with_mask = |mask: Vec<(f64, f64)>| {
        let spectra = popfit::SpectraSettings::default().mask(mask);
        builder(LineSpread::File)
            .continuum(Continuum::none())
            .spectra(spectra)
            .build()
            .unwrap()
    };
    let row = &evaluate_rows(&spectra, LineSpread::File)[0];
    let flux = |model: SpectralModel, spectra: &Spectra| {
        fitter(model, &Device::cpu())
            .model_spectrum(spectra, row)
            .unwrap()
            .remove(0)
            .model
    };
    let whole = flux(model_with_mask(vec![]), &spectra);
    let masked = {
        let interval = (wavelength[1000] - 0.01, wavelength[1100] + 0.01);
        flux(model_with_mask(vec![interval]), &spectra)
    };
    let missing_pixels = |model: &[f64]| {
        (0..model.len())
            .filter(|&j| model[j].is_nan())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (missing_pixels(&whole).len(), missing_pixels(&masked)),
        (0, (1000..=1100).collect::<Vec<_>>())
    );
    assert!(whole.iter().zip(&masked).all(|(a, b)| b.is_nan() || a == b));
    // The first twenty pixels now lie bluewards of the template.
    let mut shifted = spectra.clone();
    let first = Emulator::open(popfit_testing::demo_emulator())
        .unwrap()
        .wavelength()[0];
    let grid: Vec<f64> = (0..wavelength.len())
        .map(|j| first * (1e-4 * (j as f64 - 20.0)).exp())
        .collect();
    shifted.arms[0].wavelength = grid.into();
    let missing = missing_pixels(&flux(model_with_mask(vec![]), &shifted));
    assert_eq!(missing[..22], (0..22).collect::<Vec<_>>()[..]);
    assert!(missing[22] > 1000, "{missing:?}");
}

#[test]
fn spectra_without_matrices_are_an_error_that_names_file_and_arm() {
    let spectra = synb_spectra();
    let error = fitter(model(LineSpread::File), &Device::cpu())
        .fit(&spectra)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("spectra.npz")
            && error.contains("arm \"b\"")
            && error.contains("resolution"),
        "{error}"
    );
}

#[test]
fn a_matrix_that_is_not_finite_fails_its_spectrum_alone() {
    let good = with_resolution(3, |_, d, _| if d == 1 { 1.0 } else { 0.0 });
    let bad = with_resolution(3, |n, d, j| match (n, d, j) {
        (1, 0, 2000) => f32::NAN,
        (_, 1, _) => 1.0,
        _ => 0.0,
    });
    let fit = |spectra| {
        fitter(model(LineSpread::File), &Device::cpu())
            .fit(spectra)
            .unwrap()
    };
    let good = fit(&good);
    let bad = fit(&bad);
    assert_eq!(bad.row(1).status_text, "non_finite_input");
    same_bits(bad.row(0), good.row(0), "before");
    same_bits(bad.row(2), good.row(2), "after");
}

/// Compares models broadened on the template with sums over the pixels of the unresolved model, whose grid is finer.
#[test]
fn gaussians_have_the_given_width() {
    let spectra = pick(&synb_spectra(), &[0]);
    let wavelength = spectra.arms[0].grid(0).to_vec();
    let plain = model_flux(&spectra, LineSpread::None, 0);
    let power = |_: f64| 1.0 / (FWHM * 1500.0);
    let width = |w: f64| 2.5 / (FWHM * w);
    for (spread, sigma) in [
        (
            LineSpread::ResolvingPower(1500.0),
            &power as &dyn Fn(f64) -> f64,
        ),
        (LineSpread::Fwhm(2.5), &width as &dyn Fn(f64) -> f64),
    ] {
        let broadened = model_flux(&spectra, spread, 0);
        let mut largest_difference = 0f64;
        let mut largest_change = 0f64;
        for j in 200..wavelength.len() - 200 {
            let mut sum = 0.0;
            let mut sum_of_weights = 0.0;
            for i in j - 60..j + 60 {
                let x = (wavelength[i] / wavelength[j]).ln() / sigma(wavelength[j]);
                let weight =
                    (-0.5 * x * x).exp() * (wavelength[i + 1] - wavelength[i - 1]) / wavelength[i];
                (sum, sum_of_weights) = (sum + weight * plain[i], sum_of_weights + weight);
            }
            if sum.is_finite() && broadened[j].is_finite() {
                largest_difference =
                    largest_difference.max((broadened[j] * sum_of_weights / sum - 1.0).abs());
                largest_change = largest_change.max((broadened[j] / plain[j] - 1.0).abs());
            }
        }
        println!(
            "{spread:?}: {largest_difference:.1e} from the sum over pixels; lines change by up to {largest_change:.2}"
        );
        assert!(largest_difference < 2e-3 && largest_change > 0.05);
    }
}

/// Largest relative difference of any column of the Jacobian.
fn largest_derivative_error(model: SpectralModel, names: &[&str]) -> f64 {
    let checks = fitter(model, &Device::cpu()).check_jacobian().unwrap();
    assert_eq!(
        checks
            .iter()
            .map(|c| c.parameter.as_str())
            .collect::<Vec<_>>(),
        names
    );
    checks
        .iter()
        .for_each(|c| println!("{}: {:.1e}", c.parameter, c.error));
    assert!(checks.iter().all(|c| c.error.is_finite()), "{checks:?}");
    checks.iter().map(|c| c.error).fold(0.0, f64::max)
}

#[test]
fn derivatives_agree_with_central_differences() {
    let tied = LabelSettings::default().tied("0.4 - 0.1*feh + 1e-5*teff");
    for spread in [
        LineSpread::None,
        LineSpread::File,
        LineSpread::ResolvingPower(3000.0),
        LineSpread::Fwhm(1.5),
    ] {
        println!("{spread:?}");
        let free = builder(spread).vsini(0.0..=300.0).build().unwrap();
        assert!(
            largest_derivative_error(free, &["velocity", "vsini", "teff", "logg", "feh", "alpha"])
                < 1e-6
        );
        let tied = builder(spread)
            .fixed_vsini(50.0)
            .label("alpha", tied.clone())
            .build()
            .unwrap();
        assert!(largest_derivative_error(tied, &["velocity", "teff", "logg", "feh"]) < 1e-6);
    }
}

#[test]
fn invalid_widths_are_refused() {
    for spread in [0.0, -1.0, f64::NAN, 1e-3].map(LineSpread::ResolvingPower) {
        let error = builder(spread).build().unwrap_err().to_string();
        assert!(
            error.contains("arm \"b\"") && error.contains("resolving_power"),
            "{error}"
        );
    }
    assert!(
        builder(LineSpread::Fwhm(1e5))
            .build()
            .unwrap_err()
            .to_string()
            .contains("fwhm")
    );
}
