//! A real star with a real per-pixel network (El-Badry et al. 2018) against scipy's answers (shared `data/README.md`).

mod common;

use std::path::Path;

use common::fits::{fitter, gpu, offset};
use common::shared;
use popfit::emulator::read_wavelength;
use popfit::solver::recording::Precision;
use popfit::{Arm, Continuum, Device, Emulator, FitRow, Fitter, Interpolation, LabelSettings, Spectra, SpectralModel};

const LABELS: [&str; 5] = ["teff", "logg", "feh", "mgfe", "vmacro"];
const BOUNDS: [(f64, f64); 5] = [(4200.0, 7000.0), (4.0, 5.0), (-1.0, 0.5), (-0.3, 0.5), (0.0, 45.0)];
/// velocity, teff, logg, feh, mgfe, vmacro
const LINEAR: [f64; 6] = [0.9806, 4942.27, 4.5262, -0.1875, 0.1108, 16.108];
const ERRORS: [f64; 6] = [0.0215, 4.02, 0.0041, 0.0017, 0.0027, 0.105];
const CUBIC: [f64; 6] = [0.9298, 4949.68, 4.5288, -0.1850, 0.1076, 16.630];
/// χ² and how near it must be.
const LINEAR_CHI2: [f64; 2] = [30652.66, 0.1];
const CUBIC_CHI2: [f64; 2] = [31038.0, 5.0];
const PIXELS: i64 = 6948;
const STARTS: [[f64; 6]; 3] =
    [[0.0, 5500.0, 4.5, -0.2, 0.1, 10.0], [20.0, 4500.0, 4.2, 0.2, 0.3, 30.0], [-10.0, 6000.0, 4.8, -0.6, -0.1, 3.0]];

fn star(shared: &Path) -> Spectra {
    Spectra::open(shared.join("data/apogee/2M13012770+5754582.npz")).unwrap()
}

fn model(shared: &Path, interpolation: Interpolation) -> SpectralModel {
    let folder = shared.join("data/apogee");
    let emulator = Emulator::open(folder.join("NN_normalized_spectra.npz")).unwrap();
    let wavelength = read_wavelength(folder.join("apogee_wavelength.npz")).unwrap();
    let emulator = emulator.with_wavelength(wavelength).unwrap().with_label_names(&LABELS.map(String::from)).unwrap();
    let mut builder = SpectralModel::builder()
        .add_arm(Arm::new("", emulator).interpolation(interpolation))
        .velocity(-100.0..=100.0)
        .continuum(Continuum::none());
    for (name, bounds) in LABELS.into_iter().zip(BOUNDS) {
        builder = builder.label(name, LabelSettings { bounds: Some(bounds), ..LabelSettings::default() });
    }
    builder.build().unwrap()
}

/// By first guess and from three starts: the same answer, within `tolerance` σ of `expected` and half of that of each other
/// (with linear interpolation χ² has a kink wherever a pixel crosses a knot).
fn meets(fitter: &Fitter, star: &Spectra, (expected, chi2): ([f64; 6], [f64; 2]), tolerance: f64, what: &str) {
    let mut rows: Vec<FitRow> = vec![fitter.fit(star).unwrap().rows.remove(0)];
    rows.extend(STARTS.iter().map(|start| fitter.fit_from(star, start).unwrap().rows.remove(0)));
    for row in &rows {
        let away = offset(row, &expected, &ERRORS);
        let apart = offset(row, &rows[0].parameters, &ERRORS);
        println!(
            "{what}: {} after {} rounds, {away:.4} sigma off, {apart:.5} from the first, chi2 {:.3}",
            row.status_text, row.rounds, row.chi2
        );
        assert!(row.status.is_success(), "{row:?}");
        assert!(away < tolerance && apart < 0.5 * tolerance, "{row:?}");
        assert!((row.chi2 - chi2[0]).abs() < chi2[1], "{row:?}");
        assert_eq!(row.dof, PIXELS - 6);
        assert_eq!(row.at_bound, 0);
    }
}

#[test]
fn linear_on_the_cpu_in_both_precisions() {
    let Some(shared) = shared() else { return };
    let (star, model) = (star(&shared), model(&shared, Interpolation::Linear));
    let in_f64 = fitter(model.clone(), &Device::cpu()).precision(Precision::F64);
    meets(&in_f64, &star, (LINEAR, LINEAR_CHI2), 0.02, "f64, linear");
    let row = in_f64.fit(&star).unwrap().rows.remove(0);
    for (found, expected) in row.errors.iter().zip(ERRORS) {
        assert!((found / expected - 1.0).abs() < 0.02, "{:?}", row.errors); // given to two digits
    }
    meets(&fitter(model, &Device::cpu()), &star, (LINEAR, LINEAR_CHI2), 0.05, "f32, linear");
}

#[test]
fn cubic_on_the_cpu() {
    let Some(shared) = shared() else { return };
    let (star, model) = (star(&shared), model(&shared, Interpolation::Cubic));
    meets(&fitter(model, &Device::cpu()), &star, (CUBIC, CUBIC_CHI2), 0.15, "f32, cubic");
}

#[test]
fn both_on_the_gpu() {
    let (Some(shared), Some(device)) = (shared(), gpu()) else { return };
    let star = star(&shared);
    let linear = fitter(model(&shared, Interpolation::Linear), &device);
    meets(&linear, &star, (LINEAR, LINEAR_CHI2), 0.05, "GPU, linear");
    let cubic = fitter(model(&shared, Interpolation::Cubic), &device);
    meets(&cubic, &star, (CUBIC, CUBIC_CHI2), 0.15, "GPU, cubic");
}
