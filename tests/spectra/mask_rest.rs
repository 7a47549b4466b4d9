//! Masks in the star's frame: they follow a star's velocity, and leave out exactly the pixels of their intervals.

use popfit::{
    Continuum, Device, Emulator, FitRow, FitTable, Spectra, SpectraSettings, SpectralModel,
    SpectralModelBuilder,
};
use popfit_testing::demo_emulator;
use popfit_testing::fits::{demo_spectra, devices, fitter, same_bits};
use popfit_testing::random::Random;

/// Å: around Hβ at 4862.7 Å.
const LINE: (f64, f64) = (4852.7, 4872.7);
/// km/s.
const LIGHT: f64 = 299_792.458;

fn builder(masks: &[(f64, f64)]) -> SpectralModelBuilder {
    let builder = SpectralModel::builder().arm("b", Emulator::open(demo_emulator()).unwrap());
    let builder = builder
        .velocity(-500.0..=500.0)
        .continuum(Continuum::chebyshev(4));
    builder.spectra(SpectraSettings::default().mask_rest(masks.to_vec()))
}

fn fit(masks: &[(f64, f64)], spectra: &Spectra, device: &Device) -> FitTable {
    fitter(builder(masks).build().unwrap(), device)
        .fit(spectra)
        .unwrap()
}

/// Returns the observed wavelength over the wavelength at rest.
fn doppler_factor(velocity: f64) -> f64 {
    ((1.0 + velocity / LIGHT) / (1.0 - velocity / LIGHT)).sqrt()
}

/// Draws stars of ±310 km/s on the demo's grid, S/N 100, with emission that more than fills Hβ. Returns them with their
/// true parameters. `width` is that of the emission, in Å.
fn draw_stars(count: usize, width: f64) -> (Spectra<'static>, Vec<Vec<f64>>) {
    let mut spectra = demo_spectra().slice(0..count);
    let mut random = Random(9);
    spectra.arms[0].mask.to_mut().fill(false);
    let model = builder(&[]).continuum(Continuum::none()).build().unwrap();
    let bounds = model.bounds();
    let fitter = fitter(model, &Device::cpu());
    let mut true_parameters = Vec::new();
    for n in 0..spectra.len() {
        let draw_value =
            |(low, high): &(f64, f64)| low + (0.25 + 0.5 * random.uniform()) * (high - low);
        let mut row = FitRow::new(0, bounds.len());
        row.row = n as u64;
        row.parameters = bounds.iter().map(draw_value).collect();
        row.parameters[0] = if n % 2 == 0 { 310.0 } else { -310.0 };
        let model = fitter
            .model_spectrum(&spectra, &row)
            .unwrap()
            .swap_remove(0)
            .model;
        let arm = &mut spectra.arms[0];
        let grid = arm.grid(n).into_owned();
        let pixels = arm.pixels;
        let sigma = 0.01;
        for (j, (w, value)) in grid.iter().zip(model).enumerate() {
            let distance = (w / doppler_factor(row.parameters[0]) - 4862.7) / width;
            let emission = 1.5 * (-0.5 * distance * distance).exp();
            let value = if value.is_finite() { value } else { 0.0 };
            arm.flux.to_mut()[n * pixels + j] = value + emission + sigma * random.normal();
            arm.ivar.to_mut()[n * pixels + j] = sigma.powi(-2);
        }
        true_parameters.push(row.parameters);
    }
    (spectra, true_parameters)
}

/// Returns the largest distance of each row's parameters from the truth, in the errors of the rows `right`.
fn pulls(rows: &[FitRow], truth: &[Vec<f64>], right: &[FitRow]) -> Vec<f64> {
    let largest_pull = |((row, truth), right): ((&FitRow, &Vec<f64>), &FitRow)| {
        let parameters = row.parameters.iter().zip(truth).zip(&right.errors);
        parameters
            .map(|((x, truth), error)| (x - truth).abs() / error)
            .fold(0.0, f64::max)
    };
    rows.iter()
        .zip(truth)
        .zip(right)
        .map(largest_pull)
        .collect()
}

/// The mask also applies to the first guess. Without it, the guess took the emission for lines of hot stars, and 6 of
/// 64 fits ended there.
#[test]
fn emission_that_is_masked_in_the_stars_frame_moves_no_parameter() {
    for device in devices() {
        let (spectra, truth) = draw_stars(
            if device.name().starts_with("cpu") {
                64
            } else {
                8
            },
            2.0,
        );
        let rows = fit(&[LINE], &spectra, &device).to_rows();
        let distances = pulls(&rows, &truth, &rows);
        assert!(
            distances.iter().all(|pull| *pull < 4.5),
            "{}: {distances:.1?}",
            device.name()
        );
        for row in &rows {
            assert!((0.9..1.1).contains(&(row.chi2 / row.dof as f64)), "{row:?}");
            // Masked pixels count neither as unreached nor for the flag for many masked pixels.
            assert_eq!(
                (row.unreached[0], row.flags.is_empty()),
                (0, true),
                "{row:?}"
            );
        }
        let spoilt = pulls(&fit(&[], &spectra, &device).to_rows(), &truth, &rows);
        assert!(
            spoilt.iter().all(|pull| *pull > 10.0),
            "the line spoils nothing: {spoilt:.1?}"
        );
    }
}

/// At a fixed velocity there is no margin.
#[test]
fn exactly_the_pixels_of_the_interval_are_left_out() {
    let spectra = draw_stars(2, 2.0).0;
    let grid = spectra.arms[0].grid(0).into_owned();
    for velocity in [-310.0, 0.0, 310.0] {
        let fit = |masks: &[(f64, f64)]| {
            let model = builder(masks).fixed_velocity(velocity).build().unwrap();
            fitter(model, &Device::cpu())
                .fit(&spectra)
                .unwrap()
                .to_rows()
        };
        let masked = |w: &&f64| (LINE.0..=LINE.1).contains(&(**w / doppler_factor(velocity)));
        let expected = grid.iter().filter(masked).count() as i64;
        for (row, whole) in fit(&[LINE]).into_iter().zip(fit(&[])) {
            assert_eq!(
                (whole.dof - row.dof, row.unreached),
                (expected, whole.unreached),
                "{velocity} km/s"
            );
        }
        // Intervals on either side of the network have no effect.
        for (row, whole) in fit(&[(-1.0, 3000.0), (9000.0, 9100.0)])
            .into_iter()
            .zip(fit(&[]))
        {
            same_bits(row, whole, "masks outside of the data");
        }
    }
}

/// The pixels of a fit are those that count at its end, wherever it began.
#[test]
fn a_fit_that_moves_far_is_repeated() {
    const NARROW: (f64, f64) = (4858.7, 4866.7);
    let (spectra, truth) = draw_stars(8, 1.0);
    let usual = fit(&[NARROW], &spectra, &Device::cpu()).to_rows();
    // The starts are 2 Å off, so that a part of the emission lies outside of the interval.
    let starts: Vec<f64> = truth
        .iter()
        .flat_map(|row| [&[0.6 * row[0]], &row[1..]].concat())
        .collect();
    let fitter = fitter(builder(&[NARROW]).build().unwrap(), &Device::cpu());
    for (usual, moved) in usual
        .iter()
        .zip(fitter.fit_from(&spectra, &starts).unwrap().to_rows())
    {
        assert!(
            (usual.parameters[0] - moved.parameters[0]).abs() < 0.1 * usual.errors[0],
            "{usual:?} {moved:?}"
        );
        assert_eq!(usual.dof, moved.dof);
    }
}

#[test]
fn invalid_intervals_are_refused() {
    for mask in [(2.0, 1.0), (1.0, f64::NAN)] {
        let error = builder(&[mask]).build().unwrap_err().to_string();
        assert!(error.contains("spectra.mask_rest"), "{error}");
    }
}
