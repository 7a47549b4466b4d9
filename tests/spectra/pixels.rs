//! Pixels that integrate: models and their derivatives are means over pixels, exact for the interpolation, and labels
//! of spectra with wide pixels are not biased.

use popfit::low_level::checks::list_pixel_notes;
use popfit::spectra::{Ids, Wavelength};
use popfit::{
    Arm, Continuum, Device, Emulator, Error, FitRow, Interpolation, LineSpread, Pixels, Spectra,
    SpectralFitter, SpectralModel,
};
use popfit_testing::fits::{fitter, gpu};
use popfit_testing::random::Random;
use popfit_testing::{demo_emulator, tiny};

/// km/s.
const VELOCITY: f64 = 37.0;

fn model(emulator: &Emulator, pixels: Pixels, interpolation: Interpolation) -> SpectralModel {
    let arm = Arm::new("", emulator.clone())
        .pixels(pixels)
        .interpolation(interpolation)
        .continuum(Continuum::none());
    SpectralModel::builder()
        .add_arm(arm)
        .velocity(-100.0..=100.0)
        .build()
        .unwrap()
}

/// Returns the model's values at these wavelengths.
fn values(model: SpectralModel, wavelength: &[f64]) -> Vec<f64> {
    let ones = vec![1.0; wavelength.len()];
    let spectra =
        Spectra::from_arrays(wavelength.to_vec(), ones.clone(), ones, None, None).unwrap();
    let mut row = FitRow::new(0, 3);
    row.parameters = vec![VELOCITY, 0.7, -0.3];
    fitter(model, &Device::cpu())
        .model_spectrum(&spectra, &row)
        .unwrap()
        .swap_remove(0)
        .model
}

/// Returns the edges of each pixel: half way to its neighbours; at the ends and beside a gap as far away as on the
/// other side.
fn edges(wavelength: &[f64]) -> Vec<(f64, f64)> {
    let half_distance = |j: usize, neighbour: Option<usize>| {
        neighbour
            .and_then(|k| wavelength.get(k))
            .map(|w| 0.5 * (w - wavelength[j]).abs())
    };
    let mut edges = Vec::with_capacity(wavelength.len());
    for (j, centre) in wavelength.iter().enumerate() {
        let below = half_distance(j, j.checked_sub(1));
        let above = half_distance(j, Some(j + 1));
        let nearer = below.unwrap_or(f64::MAX).min(above.unwrap_or(f64::MAX));
        let half_width =
            |half: Option<f64>| half.filter(|half| *half < 1.5 * nearer).unwrap_or(nearer);
        edges.push((centre - half_width(below), centre + half_width(above)));
    }
    edges
}

#[test]
fn models_are_means_over_pixels() {
    const PARTS: usize = 200;
    let emulator = tiny::linear(&["a", "b"], tiny::wave);
    // The network has pixels of 0.5 Å, from 5000 to 5032 Å
    let mut grid: Vec<f64> = (0..18).map(|j| 5003.3 + 0.7 * f64::from(j)).collect();
    grid.extend((0..6).map(|j| 5020.1 + 1.9 * f64::from(j)));
    for interpolation in [Interpolation::Cubic, Interpolation::Linear] {
        let centre_of_part = |(low, high): (f64, f64), k: usize| {
            low * (high / low).powf((k as f64 + 0.5) / PARTS as f64)
        };
        let fine: Vec<f64> = edges(&grid)
            .into_iter()
            .flat_map(|ends| (0..PARTS).map(move |k| centre_of_part(ends, k)))
            .collect();
        let samples = values(model(&emulator, Pixels::Sample, interpolation), &fine);
        let means = values(model(&emulator, Pixels::Integrate, interpolation), &grid);
        let centres = values(model(&emulator, Pixels::Sample, interpolation), &grid);
        for (j, (mean, samples)) in means.iter().zip(samples.chunks(PARTS)).enumerate() {
            let expected = samples.iter().sum::<f64>() / PARTS as f64;
            assert!(
                (mean - expected).abs() < 3e-6,
                "{interpolation:?}, pixel {j}: {mean}, not {expected}"
            );
        }
        assert!(
            means
                .iter()
                .zip(centres)
                .any(|(mean, centre)| (mean - centre).abs() > 1e-3)
        );
    }
}

/// Compares derivatives by velocity and labels with differences, on the template's own pixels, which are means, too.
#[test]
fn derivatives_are_those_of_the_means() {
    let emulator = Emulator::open(demo_emulator()).unwrap();
    for interpolation in [Interpolation::Cubic, Interpolation::Linear] {
        let fitter = fitter(
            model(&emulator, Pixels::Integrate, interpolation),
            &Device::cpu(),
        );
        for check in fitter.check_jacobian().unwrap() {
            assert!(check.error < 1e-6, "{interpolation:?}: {check:?}");
        }
    }
}

/// Draws stars of the demo's network at 1 Å per pixel and S/N 60, each pixel the mean of 20 values. Returns the
/// spectra, and the true velocity and labels of each.
fn draw_stars(count: usize, own_grids: bool) -> (Spectra<'static>, Vec<[f64; 5]>) {
    const PARTS: usize = 20;
    let emulator = Emulator::open(demo_emulator()).unwrap();
    let mut random = Random(3);
    let mut grids = Vec::new();
    let mut flux = Vec::new();
    let mut ivar = Vec::new();
    let mut truths = Vec::new();
    for k in 0..count {
        let offset = if own_grids { 0.01 * k as f64 } else { 0.0 };
        let grid: Vec<f64> = (0..1400).map(|j| 4050.0 + offset + f64::from(j)).collect();
        let mut draw = |low: f64, high: f64| low + (high - low) * random.uniform();
        let truth = [
            draw(-90.0, 90.0),
            draw(5000.0, 6500.0),
            draw(2.0, 4.5),
            draw(-1.5, 0.2),
            draw(0.0, 0.3),
        ];
        let fine: Vec<f64> = grid
            .iter()
            .flat_map(|w| (0..PARTS).map(move |p| w - 0.5 + (p as f64 + 0.5) / PARTS as f64))
            .collect();
        let ones = vec![1.0; fine.len()];
        let fine_spectrum = Spectra::from_arrays(fine, ones.clone(), ones, None, None).unwrap();
        let mut row = FitRow::new(0, 5);
        row.parameters = truth.to_vec();
        let sampled = model(&emulator, Pixels::Sample, Interpolation::Cubic);
        let values = fitter(sampled, &Device::cpu())
            .model_spectrum(&fine_spectrum, &row)
            .unwrap()
            .swap_remove(0)
            .model;
        for mean in values
            .chunks(PARTS)
            .map(|parts| parts.iter().sum::<f64>() / PARTS as f64)
        {
            let sigma = mean / 60.0;
            flux.push(mean + sigma * random.normal());
            ivar.push(sigma.powi(-2));
        }
        grids.push(grid);
        truths.push(truth);
    }
    let wavelength = if own_grids {
        Wavelength::Own(grids.concat().into())
    } else {
        grids.swap_remove(0).into()
    };
    let ids = Ids::Integer((0..count as i64).collect());
    (
        Spectra::from_arrays(wavelength, flux, ivar, None, Some(ids)).unwrap(),
        truths,
    )
}

/// Returns mean and standard deviation of the pulls of each parameter.
fn pulls(fitter: &SpectralFitter, spectra: &Spectra, truths: &[[f64; 5]]) -> Vec<(f64, f64)> {
    let rows = fitter.fit(spectra).unwrap().to_rows();
    let good_rows = || {
        rows.iter()
            .zip(truths)
            .filter(|(row, _)| row.status.is_success() && row.at_bound == 0)
    };
    assert!(good_rows().count() * 10 > rows.len() * 8);
    let mut moments = Vec::with_capacity(5);
    for p in 0..5 {
        let pulls: Vec<f64> = good_rows()
            .map(|(row, truth)| (row.parameters[p] - truth[p]) / row.errors[p])
            .collect();
        let count = pulls.len() as f64;
        let mean = pulls.iter().sum::<f64>() / count;
        let variance = pulls.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        moments.push((mean, variance.sqrt()));
    }
    moments
}

/// With 60 stars a mean pull is known to 0.13, and a standard deviation to 0.09.
#[test]
fn labels_of_wide_pixels_are_not_biased() {
    let emulator = Emulator::open(demo_emulator()).unwrap();
    let fitter_with = |pixels| {
        fitter(
            model(&emulator, pixels, Interpolation::Cubic),
            &Device::cpu(),
        )
    };
    for own_grids in [false, true] {
        let (spectra, truths) = draw_stars(60, own_grids);
        let integrated = pulls(&fitter_with(Pixels::Integrate), &spectra, &truths);
        assert!(
            integrated
                .iter()
                .all(|(mean, deviation)| mean.abs() < 0.5 && (0.7..1.3).contains(deviation)),
            "{integrated:?}"
        );
        let sampled = pulls(&fitter_with(Pixels::Sample), &spectra, &truths);
        assert!(
            sampled[3].0.abs() > 1.0,
            "the metallicity is biased by pixels that sample: {sampled:?}"
        );
    }
}

#[test]
fn devices_agree_on_integrated_pixels() {
    let Some(gpu) = gpu() else { return };
    let (spectra, _) = draw_stars(4, true);
    let fit_on = |device| {
        let model = model(
            &Emulator::open(demo_emulator()).unwrap(),
            Pixels::Integrate,
            Interpolation::Cubic,
        );
        fitter(model, device).fit(&spectra).unwrap().to_rows()
    };
    for (cpu, gpu) in fit_on(&Device::cpu()).iter().zip(fit_on(&gpu)) {
        assert!(
            popfit_testing::fits::offset(&gpu, &cpu.parameters, &cpu.errors) < 0.02,
            "{cpu:?} {gpu:?}"
        );
    }
}

/// Resolution matrices already contain the average over pixels.
#[test]
fn resolution_matrices_exclude_integration() {
    let arm = Arm::new("", tiny::linear(&["a"], tiny::wave))
        .line_spread(LineSpread::File)
        .pixels(Pixels::Integrate);
    match SpectralModel::builder().add_arm(arm).build() {
        Err(Error::Model { message, .. }) => {
            assert!(message.contains("would count them twice"), "{message}")
        }
        other => panic!("{other:?}"),
    }
}

/// A note warns of wide pixels, unless the model sets `pixels` or means and values agree.
#[test]
fn a_note_warns_of_wide_pixels() {
    let notes = |pixels: Option<Pixels>, step: f64| {
        let arm = Arm::new("", Emulator::open(demo_emulator()).unwrap());
        let arm = pixels.map_or(arm.clone(), |pixels| arm.pixels(pixels));
        let model = SpectralModel::builder()
            .add_arm(arm)
            .velocity(-100.0..=100.0)
            .build()
            .unwrap();
        let grid: Vec<f64> = (0..(1400.0 / step) as usize)
            .map(|j| 4050.0 + step * j as f64)
            .collect();
        let ones = vec![1.0; grid.len()];
        let spectra = Spectra::from_arrays(grid, ones.clone(), ones, None, None).unwrap();
        list_pixel_notes(&fitter(model, &Device::cpu()), [&spectra])
    };
    let wide_pixel_notes = notes(None, 1.0);
    assert!(
        wide_pixel_notes.len() == 1 && wide_pixel_notes[0].contains("`pixels = \"integrate\"`"),
        "{wide_pixel_notes:?}"
    );
    for (pixels, step) in [
        (None, 0.4),
        (Some(Pixels::Sample), 1.0),
        (Some(Pixels::Integrate), 1.0),
    ] {
        assert_eq!(notes(pixels, step), [""; 0], "{pixels:?} {step}");
    }
}
