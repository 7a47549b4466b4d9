//! Stage by stage against rvspecfit (`tests/data/synb/forward_ref.npz`): labels, template, resampled model, −2 ln L.

use std::path::PathBuf;

use popfit::low_level::recording::Precision;
use popfit::{
    Continuum, Device, Emulator, FitRow, Id, Spectra, SpectralFitter, SpectralModel, Status,
};
use popfit_testing::fits::{evaluator, fitter, gpu, synb_spectra};
use popfit_testing::synb::masked_constant;
use popfit_testing::{array, data_folder, largest, synb_model};

fn reference_path() -> PathBuf {
    data_folder().join("synb/forward_ref.npz")
}

/// Returns the cases of the reference without rotation.
fn cases_without_rotation() -> Vec<usize> {
    let (_, vsini) = array(&reference_path(), "vsini");
    (0..vsini.len()).filter(|&n| vsini[n].is_nan()).collect()
}

/// Returns the velocity and the labels of a case.
fn parameters_of_case(n: usize) -> Vec<f64> {
    let (_, labels) = array(&reference_path(), "par");
    let (_, velocity) = array(&reference_path(), "vel");
    std::iter::once(velocity[n])
        .chain(labels[4 * n..4 * n + 4].iter().copied())
        .collect()
}

fn largest_relative_gap(values: impl IntoIterator<Item = f64>, expected: &[f64]) -> f64 {
    largest(
        values
            .into_iter()
            .zip(expected)
            .map(|(a, b)| (a / b - 1.0).abs()),
    )
}

#[test]
fn scaled_labels_and_templates_meet_the_reference() {
    let emulator = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    let path = reference_path();
    let (_, labels) = array(&path, "par");
    let (_, z) = array(&path, "z");
    let (_, flux) = array(&path, "flux");
    let gap = emulator
        .scaled(&labels)
        .iter()
        .zip(&z)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    assert!(gap < 1e-5, "scaled labels differ by {gap}");
    let templates = emulator.templates(&labels);
    assert_eq!(templates.len(), flux.len());
    let gap = largest_relative_gap(templates.iter().map(|t| f64::from(*t)), &flux);
    println!("templates differ by at most {gap:.1e}");
    assert!(gap < 1e-5);
}

/// Returns a row with these parameters, for the model at them.
fn row_at(parameters: Vec<f64>) -> FitRow {
    let mut row = FitRow::new(Id::Integer(0), parameters.len());
    row.status = Status::MaxRounds;
    row.parameters = parameters;
    row.start = Some(0);
    row
}

#[test]
fn resampled_models_meet_the_reference() {
    let path = reference_path();
    let model = SpectralModel::builder()
        .arm("", Emulator::open(popfit_testing::demo_emulator()).unwrap())
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::none())
        .build()
        .unwrap();
    let fitter = fitter(model, &Device::cpu());
    let (_, wavelength) = array(&path, "lam_obs");
    let (shape, models) = array(&path, "obs_model");
    let pixels = wavelength.len();
    let flat =
        Spectra::from_arrays(wavelength, vec![1.0; pixels], vec![1.0; pixels], None, None).unwrap();
    let mut cases = 0;
    for n in cases_without_rotation()
        .into_iter()
        .filter(|&n| n < shape[0])
    {
        let fit = fitter
            .model_spectrum(&flat, &row_at(parameters_of_case(n)))
            .unwrap()
            .remove(0);
        let gap = largest_relative_gap(fit.model, &models[n * pixels..(n + 1) * pixels]);
        println!("case {n}: the resampled model differs by at most {gap:.1e}");
        assert!(gap < 5e-6, "case {n}: {gap}");
        cases += 1;
    }
    assert!(cases >= 4);
}

/// Returns −2 ln L of one spectrum at one point.
fn objective_at(fitter: &SpectralFitter, spectra: &Spectra, point: &[f64]) -> f64 {
    let table = fitter.fit_from(spectra, point).unwrap();
    let row = &table.row(0);
    assert_eq!(row.evaluations, 1, "{row:?}");
    assert!(
        row.parameters
            .iter()
            .zip(point)
            .all(|(a, b)| (a - b).abs() < 1e-6 * b.abs().max(1.0)),
        "{row:?}"
    );
    row.objective
}

#[test]
fn objectives_of_the_forward_cases_meet_the_reference() {
    let path = reference_path();
    let (_, wavelength) = array(&path, "lam_obs");
    let (_, flux) = array(&path, "spec");
    let (_, sigma) = array(&path, "espec");
    let (_, f32_network) = array(&path, "m2logl");
    let (_, f64_network) = array(&path, "m2logl_f64nn");
    let pixels = wavelength.len();
    let f32_fitter = evaluator(synb_model(), &Device::cpu());
    let f64_fitter = evaluator(synb_model(), &Device::cpu()).precision(Precision::F64);
    let gpu_fitter = gpu().map(|device| evaluator(synb_model(), &device));
    for n in cases_without_rotation() {
        let range = n * pixels..(n + 1) * pixels;
        // rvspecfit keeps masked pixels, with large errors.
        let ivar: Vec<f64> = sigma[range.clone()].iter().map(|e| 1.0 / (e * e)).collect();
        let spectrum =
            Spectra::from_arrays(wavelength.clone(), flux[range].to_vec(), ivar, None, None)
                .unwrap();
        let point = parameters_of_case(n);
        let gap = |fitter: &SpectralFitter, expected: f64| {
            (objective_at(fitter, &spectrum, &point) / expected - 1.0).abs()
        };
        let cpu_gaps = [
            gap(&f64_fitter, f64_network[n]),
            gap(&f32_fitter, f32_network[n]),
        ];
        let gpu_gap = gpu_fitter
            .as_ref()
            .map_or(0.0, |fitter| gap(fitter, f32_network[n]));
        println!(
            "case {n}: -2 ln L {:.1}, relative gaps: f64 {:.1e}, f32 {:.1e}, GPU {gpu_gap:.1e}",
            f32_network[n], cpu_gaps[0], cpu_gaps[1]
        );
        assert!(
            cpu_gaps.into_iter().chain([gpu_gap]).all(|gap| gap < 5e-6),
            "case {n}"
        );
    }
}

#[test]
fn objectives_at_the_minima_meet_the_reference() {
    let path = data_folder().join("synb/fixed_vsini/rvspecfit.npz");
    let (_, x) = array(&path, "ref_x");
    let (_, expected) = array(&path, "ref_m2logl");
    let spectra = synb_spectra();
    for device in popfit_testing::fits::devices() {
        let fitter = evaluator(synb_model(), &device);
        // The minimisation of the reference reached 4e-6 beyond a bound.
        let bounds = fitter.model().bounds();
        let inside: Vec<f64> = x
            .iter()
            .zip(bounds.iter().cycle())
            .map(|(x, (low, high))| x.clamp(*low, *high))
            .collect();
        assert!(x.iter().zip(&inside).all(|(a, b)| (a - b).abs() < 1e-5));
        let table = fitter.fit_from(&spectra, &inside).unwrap();
        let mut largest_gap = 0f64;
        for (n, row) in table.to_rows().into_iter().enumerate() {
            let gap = (row.objective + masked_constant(&spectra, n) - expected[n]).abs();
            assert!(
                gap < 0.02,
                "{}: spectrum {n}: {gap}, {row:?}",
                device.name()
            );
            largest_gap = largest_gap.max(gap);
        }
        println!(
            "{}: -2 ln L at the 128 minima differs by at most {largest_gap:.4}",
            device.name()
        );
    }
}
