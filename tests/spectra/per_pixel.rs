//! Networks per pixel (El-Badry et al. 2018) with linear interpolation, against scipy's answers: a small network and a
//! star drawn from it, and a real star with its real network where `POPFIT_REAL_DATA` has them.

use std::path::PathBuf;

use popfit::emulator::read_wavelength;
use popfit::low_level::recording::Precision;
use popfit::{
    Arm, Continuum, Device, Emulator, FitRow, Interpolation, LabelSettings, Spectra,
    SpectralFitter, SpectralModel,
};
use popfit_testing::fits::{fitter, gpu, offset};
use popfit_testing::{array, data_folder, real_data};

const LABELS: [&str; 5] = ["teff", "logg", "feh", "mgfe", "vmacro"];
const STARTS: [[f64; 6]; 3] = [
    [0.0, 5500.0, 4.5, -0.2, 0.1, 10.0],
    [20.0, 4500.0, 4.2, 0.2, 0.3, 30.0],
    [-10.0, 6000.0, 4.8, -0.6, -0.1, 3.0],
];

/// A network, a star, and scipy's answer.
struct Case {
    network: PathBuf,
    wavelength: PathBuf,
    star: PathBuf,
    bounds: [(f64, f64); 5],
    /// velocity, teff, logg, feh, mgfe, vmacro
    answer: [f64; 6],
    errors: [f64; 6],
    /// χ² and its tolerance.
    chi2: [f64; 2],
    pixels: i64,
}

/// The small network, made by `tests/data/make_per_pixel.py`.
fn small_case() -> Case {
    let folder = data_folder().join("per_pixel");
    let answer = |key: &str| array(&folder.join("answer.npz"), key).1;
    Case {
        network: folder.join("network.npz"),
        wavelength: folder.join("wavelength.npz"),
        star: folder.join("star.npz"),
        bounds: [
            (4200.0, 7000.0),
            (4.0, 5.0),
            (-0.8, 0.4),
            (-0.3, 0.5),
            (0.0, 45.0),
        ],
        answer: answer("parameters").try_into().unwrap(),
        errors: answer("errors").try_into().unwrap(),
        chi2: [answer("chi2")[0], 0.05],
        pixels: answer("pixels")[0] as i64,
    }
}

/// The real star 2M13012770+5754582. Cubic interpolation has another minimum than the linear one that the network was
/// trained with. Of its 6948 good pixels those count that a chip of the network covers at ±20 km/s; with cubic
/// interpolation three fewer count at each end. The answers are scipy's for these pixels.
fn real_case(interpolation: Interpolation) -> Option<Case> {
    let folder = real_data()?.join("apogee");
    let (answer, chi2, pixels) = match interpolation {
        Interpolation::Linear => (
            [0.9818, 4934.17, 4.51808, -0.18964, 0.1113, 16.0525],
            [30320.35, 0.1],
            6918,
        ),
        _ => (
            [0.93177, 4940.50, 4.51999, -0.18726, 0.10841, 16.6339],
            [30581.88, 5.0],
            6901,
        ),
    };
    Some(Case {
        network: folder.join("NN_normalized_spectra.npz"),
        wavelength: folder.join("apogee_wavelength.npz"),
        star: folder.join("2M13012770+5754582.npz"),
        bounds: [
            (4200.0, 7000.0),
            (4.0, 5.0),
            (-1.0, 0.5),
            (-0.3, 0.5),
            (0.0, 45.0),
        ],
        answer,
        errors: [0.0215, 4.02, 0.0041, 0.0017, 0.0027, 0.105],
        chi2,
        pixels,
    })
}

impl Case {
    fn model(&self, interpolation: Interpolation) -> SpectralModel {
        let emulator = Emulator::open(&self.network).unwrap();
        let wavelength = read_wavelength(&self.wavelength).unwrap();
        let emulator = emulator
            .with_wavelength(wavelength)
            .unwrap()
            .with_label_names(&LABELS.map(String::from))
            .unwrap();
        let mut builder = SpectralModel::builder()
            .add_arm(Arm::new("", emulator).interpolation(interpolation))
            .velocity(-100.0..=100.0)
            .continuum(Continuum::none());
        for (name, bounds) in LABELS.into_iter().zip(self.bounds) {
            builder = builder.label(name, LabelSettings::default().bounds(bounds.0..=bounds.1));
        }
        builder.build().unwrap()
    }

    /// Fits from the first guess and from three starts. Each answer is within `tolerance` σ of scipy's and within half
    /// of that of the first (with linear interpolation χ² has a kink wherever a pixel crosses a knot).
    fn assert_fits_meet_the_answer(&self, fitter: &SpectralFitter, tolerance: f64, case: &str) {
        let star = &Spectra::open(&self.star).unwrap();
        let mut rows: Vec<FitRow> = vec![fitter.fit(star).unwrap().row(0)];
        rows.extend(
            STARTS
                .iter()
                .map(|start| fitter.fit_from(star, start).unwrap().row(0)),
        );
        for row in &rows {
            let from_answer = offset(row, &self.answer, &self.errors);
            let from_first = offset(row, &rows[0].parameters, &self.errors);
            println!(
                "{case}: {} after {} rounds, {from_answer:.4} sigma off, {from_first:.5} from the first, chi2 {:.3}",
                row.status_text, row.rounds, row.chi2
            );
            assert!(row.status.is_success(), "{row:?}");
            assert!(
                from_answer < tolerance && from_first < 0.5 * tolerance,
                "{row:?}"
            );
            assert!((row.chi2 - self.chi2[0]).abs() < self.chi2[1], "{row:?}");
            assert_eq!(row.dof, self.pixels - 6);
            assert_eq!(row.at_bound, 0);
        }
    }

    /// Checks fits on the CPU in f64, whose errors must agree too, and in f32.
    fn assert_cpu_fits_meet_the_answer(&self) {
        let model = self.model(Interpolation::Linear);
        let in_f64 = fitter(model.clone(), &Device::cpu()).precision(Precision::F64);
        self.assert_fits_meet_the_answer(&in_f64, 0.02, "f64, linear");
        let row = in_f64
            .fit(&Spectra::open(&self.star).unwrap())
            .unwrap()
            .row(0);
        for (error, expected) in row.errors.iter().zip(self.errors) {
            assert!((error / expected - 1.0).abs() < 0.02, "{:?}", row.errors); // The answer has two digits.
        }
        self.assert_fits_meet_the_answer(&fitter(model, &Device::cpu()), 0.05, "f32, linear");
    }
}

#[test]
fn a_small_network_meets_scipy_on_the_cpu_in_both_precisions() {
    small_case().assert_cpu_fits_meet_the_answer();
}

#[test]
fn a_small_network_meets_scipy_on_the_gpu() {
    let Some(device) = gpu() else { return };
    let case = small_case();
    case.assert_fits_meet_the_answer(
        &fitter(case.model(Interpolation::Linear), &device),
        0.05,
        "GPU, linear",
    );
}

#[test]
fn a_real_star_meets_scipy_on_the_cpu() {
    let Some(linear) = real_case(Interpolation::Linear) else {
        return;
    };
    linear.assert_cpu_fits_meet_the_answer();
    let cubic = real_case(Interpolation::Cubic).unwrap();
    cubic.assert_fits_meet_the_answer(
        &fitter(cubic.model(Interpolation::Cubic), &Device::cpu()),
        0.15,
        "f32, cubic",
    );
}

#[test]
fn a_real_star_meets_scipy_on_the_gpu() {
    let (Some(linear), Some(device)) = (real_case(Interpolation::Linear), gpu()) else {
        return;
    };
    linear.assert_fits_meet_the_answer(
        &fitter(linear.model(Interpolation::Linear), &device),
        0.05,
        "GPU, linear",
    );
    let cubic = real_case(Interpolation::Cubic).unwrap();
    cubic.assert_fits_meet_the_answer(
        &fitter(cubic.model(Interpolation::Cubic), &device),
        0.15,
        "GPU, cubic",
    );
}
