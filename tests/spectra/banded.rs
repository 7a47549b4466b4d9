//! Spectra whose noise has a banded covariance, against dense generalised least squares in numpy
//! (`tests/reference/make_banded.py`).

use std::path::PathBuf;

use popfit::low_level::JoinedReader;
use popfit::low_level::Task;
use popfit::low_level::checks::check_spectra;
use popfit::spectra::{ArmSpectra, NoiseCovariance, SpectraReader, open_reader};
use popfit::{
    Continuum, Device, Emulator, Error, ExposureVelocity, FitRow, Jitter, LevenbergMarquardt,
    NelderMead, Solver, Spectra, SpectraSettings, SpectralFitter, SpectralModel,
    SpectralModelBuilder, Values, VelocityScan, Widening,
};
use popfit_testing::fits::{bits, devices, fitter, same_bits};
use popfit_testing::random::Random;
use popfit_testing::{array, demo_emulator};

/// Spectrum of the reference whose covariance is diagonal.
const DIAGONAL: usize = 5;
/// Spectrum of the reference with masked pixels in the middle.
const MASKED: usize = 1;

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/banded")).join(name)
}

fn stars() -> Spectra<'static> {
    Spectra::open(file("stars.npz")).unwrap()
}

fn builder() -> SpectralModelBuilder {
    SpectralModel::builder()
        .arm("", Emulator::open(demo_emulator()).unwrap())
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10))
}

fn model() -> SpectralModel {
    builder().build().unwrap()
}

fn cpu_fitter(settings: SpectraSettings) -> SpectralFitter {
    fitter(builder().spectra(settings).build().unwrap(), &Device::cpu())
}

/// Fits spectra with the demo's network on the CPU.
fn fit(spectra: &Spectra) -> Vec<FitRow> {
    fitter(model(), &Device::cpu())
        .fit(spectra)
        .unwrap()
        .to_rows()
}

/// Returns an arm of the same pixels, with other values of its arrays.
fn remake(arm: &ArmSpectra, flux: Vec<f64>, covariance: Option<Vec<f64>>) -> Spectra<'static> {
    let diagonals = arm.covariance.as_ref().map_or(1, |matrix| matrix.diagonals);
    let owned = Spectra::from_arms(vec![arm.clone()], None)
        .unwrap()
        .into_owned();
    let mut arm = owned.arms.into_iter().next().unwrap();
    arm.flux = flux.into();
    arm.covariance = covariance.map(|values| NoiseCovariance {
        diagonals,
        values: values.into(),
    });
    if let Some(matrix) = &arm.covariance {
        arm.ivar = matrix.ivar(arm.pixels).into();
    }
    Spectra::from_arms(vec![arm], None).unwrap()
}

/// Returns one spectrum of the reference, whose covariance and flux were changed.
fn changed(row: usize, change: impl Fn(&mut [f64], &mut [f64])) -> Spectra<'static> {
    let spectra = stars().slice(row..row + 1);
    let arm = &spectra.arms[0];
    let mut flux = arm.flux.to_double().into_owned();
    let mut covariance = arm
        .covariance
        .as_ref()
        .unwrap()
        .values
        .to_double()
        .into_owned();
    change(&mut covariance, &mut flux);
    remake(arm, flux, Some(covariance))
}

#[test]
fn fits_meet_dense_generalised_least_squares() {
    let read = |key: &str| array(&file("stars_reference.npz"), key).1;
    let [x, errors, correlations] = ["x", "err", "correlations"].map(read);
    let [chi2, objective] = ["chi2", "objective"].map(read);
    for device in devices() {
        for marginalise in [false, true] {
            let model = builder().marginalise(marginalise).build().unwrap();
            let rows = fitter(model, &device).fit(&stars()).unwrap().to_rows();
            let mut largest: f64 = 0.0;
            for (k, row) in rows.iter().enumerate() {
                assert!(row.status.is_success(), "{k}: {}", row.status_text);
                let count = row.parameters.len();
                let mut pairs = row.correlations.iter();
                for p in 0..count {
                    let error = errors[k * count + p];
                    let offset = (row.parameters[p] - x[k * count + p]) / error;
                    let ratio = row.errors[p] / error - 1.0;
                    largest = largest.max(offset.abs()).max(ratio.abs());
                    assert!(
                        offset.abs() < 0.02 && ratio.abs() < 0.02,
                        "{k}, {p}: {offset} {ratio}"
                    );
                    for q in p + 1..count {
                        let expected = correlations[(k * count + p) * count + q];
                        let correlation = *pairs.next().unwrap();
                        assert!(
                            (correlation - expected).abs() < 0.02,
                            "{k}, {p}, {q}: {correlation} {expected}"
                        );
                    }
                }
                let expected = if marginalise { objective[k] } else { chi2[k] };
                assert!(
                    (row.chi2 - chi2[k]).abs() < 0.02 && (row.objective - expected).abs() < 0.02,
                    "{k}: {} {}, {} {expected}",
                    row.chi2,
                    chi2[k],
                    row.objective
                );
            }
            println!("largest difference in errors: {largest}");
        }
    }
}

#[test]
fn a_diagonal_covariance_gives_the_bits_of_its_variances() {
    let with_covariance = changed(DIAGONAL, |_, _| {});
    let arm = &with_covariance.arms[0];
    let flux = arm.flux.to_double().into_owned();
    let without = remake(arm, flux, None);
    assert_eq!(
        bits(&fit(&with_covariance)[0]),
        bits(&fit(&without)[0]),
        "a matrix without correlations"
    );
    // Spectra beside those with a covariance keep their bits, too.
    let all = fit(&stars());
    assert_eq!(bits(&all[DIAGONAL]), bits(&fit(&without)[0]));
}

#[test]
fn bits_depend_on_no_other_spectrum() {
    let all = fit(&stars());
    let in_threes = fitter(model(), &Device::cpu()).batch_size(3);
    for (row, other) in all.iter().zip(in_threes.fit(&stars()).unwrap().to_rows()) {
        same_bits(row, &other, "batches of three");
    }
    let alone = fit(&stars().slice(2..3));
    assert_eq!(bits(&all[2]), bits(&alone[0]));
}

#[test]
fn the_objective_and_the_models_are_those_of_the_fit() {
    let spectra = stars();
    let fitter = fitter(builder().marginalise(true).build().unwrap(), &Device::cpu());
    let rows = fitter.fit(&spectra).unwrap().to_rows();
    let parameters: Vec<f64> = rows.iter().flat_map(|row| row.parameters.clone()).collect();
    let objectives = fitter.objective(&spectra, &parameters, true).unwrap();
    let models = fitter.model_spectra(&spectra, &rows).unwrap();
    for (k, row) in rows.iter().enumerate() {
        let [chi2, objective] = [objectives.chi2[k], objectives.objective[k]];
        assert!(
            (chi2 - row.chi2).abs() < 1e-3 && (objective - row.objective).abs() < 1e-3,
            "{k}: {chi2} {}, {objective} {}",
            row.chi2,
            row.objective
        );
        let shown: f64 = models[k].iter().flatten().map(|arm| arm.chi2).sum();
        assert!((shown - row.chi2).abs() < 0.01, "{k}: {shown} {}", row.chi2);
        // The inverse of the square root of the normal matrix's diagonal is the error with all others held.
        let count = row.parameters.len();
        let diagonal = objectives.normal_matrix[k * count * count];
        assert!(diagonal.powf(-0.5) <= row.errors[0] * 1.001);
    }
}

/// In erg/s/cm²/Å the variances are about 10⁻³⁸, which f32 cannot hold.
#[test]
fn no_unit_of_the_flux_underflows() {
    let scale = 2f64.powi(-60);
    let usual = fit(&stars());
    for (k, row) in usual.iter().enumerate() {
        let scaled = changed(k, |covariance, flux| {
            covariance.iter_mut().for_each(|c| *c *= scale * scale);
            flux.iter_mut().for_each(|y| *y *= scale);
        });
        let scaled = &fit(&scaled)[0];
        for p in 0..row.parameters.len() {
            let offset = (scaled.parameters[p] - row.parameters[p]) / row.errors[p];
            assert!(offset.abs() < 1e-3, "{k}, {p}: {offset}");
        }
    }
}

#[test]
fn masked_pixels_may_have_any_covariance() {
    let usual = &fit(&stars())[MASKED];
    let pixels = stars().arms[0].pixels;
    let spoiled = changed(MASKED, |covariance, flux| {
        flux[305] = f64::NAN;
        for d in 0..4 {
            covariance[d * pixels + 305] = f64::NAN;
            covariance[d * pixels + 306] = f64::INFINITY;
        }
    });
    assert_eq!(bits(&fit(&spoiled)[0]), bits(usual));
}

#[test]
fn pulls_of_spectra_with_correlated_noise_are_normal() {
    const COUNT: usize = 500;
    const PIXELS: usize = 600;
    let mut random = Random(8);
    let truth = [35.0, 5800.0, 4.0, -0.6, 0.2];
    let grid: Vec<f64> = (0..PIXELS).map(|j| 4600.0 + 0.6 * j as f64).collect();
    // 1. Draw spectra whose noise is white noise seen through a window of three pixels.
    let frame = Spectra::from_arrays(
        grid.clone(),
        vec![1.0; PIXELS],
        vec![1.0; PIXELS],
        None,
        None,
    );
    let fitter = fitter(model(), &Device::cpu());
    let flux_of_model = fitter.predict(&truth, Some(&frame.unwrap())).unwrap()[0]
        .flux
        .clone();
    let sigma = 0.01;
    let window = [0.3, 1.0, 0.7];
    let mut flux = Vec::new();
    for _ in 0..COUNT {
        let white: Vec<f64> = (0..PIXELS + 2).map(|_| random.normal()).collect();
        for (j, model) in flux_of_model.iter().enumerate() {
            let noise: f64 = window.iter().zip(&white[j..]).map(|(w, e)| w * e).sum();
            flux.push(model + sigma * noise);
        }
    }
    let autocovariance = |d: usize| -> f64 {
        let pairs = window.iter().zip(&window[d..]);
        sigma * sigma * pairs.map(|(a, b)| a * b).sum::<f64>()
    };
    let matrix: Vec<f64> = (0..3)
        .flat_map(|d| vec![autocovariance(d); PIXELS])
        .collect();
    let covariance = NoiseCovariance {
        diagonals: 3,
        values: matrix.repeat(COUNT).into(),
    };
    let ivar = covariance.ivar(PIXELS);
    let plain = ArmSpectra::new("", PIXELS, grid, flux, ivar, None).unwrap();
    let correlated = plain.clone().with_covariance(covariance).unwrap();
    // 2. Compare the scatter of the pulls with and without the covariance.
    let root_mean_squares = |arm: ArmSpectra<'static>| -> Vec<f64> {
        let spectra = Spectra::from_arms(vec![arm], None).unwrap();
        let rows = fitter.fit(&spectra).unwrap().to_rows();
        let mut sums = vec![0.0; truth.len()];
        for row in &rows {
            assert!(row.status.is_success(), "{}", row.message);
            for (p, sum) in sums.iter_mut().enumerate() {
                *sum += ((row.parameters[p] - truth[p]) / row.errors[p]).powi(2);
            }
        }
        sums.iter()
            .map(|sum| (sum / rows.len() as f64).sqrt())
            .collect()
    };
    let with_covariance = root_mean_squares(correlated);
    let without = root_mean_squares(plain);
    println!("with the covariance {with_covariance:?}, without {without:?}");
    for (with, without) in with_covariance.iter().zip(&without) {
        assert!((0.93..1.07).contains(with), "{with_covariance:?}");
        assert!(*without > 1.15, "{without:?}");
    }
}

#[test]
fn a_jitter_is_added_to_the_diagonal() {
    let jitter = 0.01;
    let pixels = stars().arms[0].pixels;
    let settings = SpectraSettings::default().jitter(jitter);
    let with_jitter = cpu_fitter(settings).fit(&stars().slice(0..1)).unwrap();
    let added = changed(0, |covariance, flux| {
        for (variance, y) in covariance[..pixels].iter_mut().zip(flux) {
            *variance += (jitter * *y).powi(2);
        }
    });
    let [with_jitter, added] = [with_jitter.to_rows(), fit(&added)];
    for p in 0..added[0].parameters.len() {
        let error = added[0].errors[p];
        let offset = (with_jitter[0].parameters[p] - added[0].parameters[p]) / error;
        let ratio = with_jitter[0].errors[p] / error - 1.0;
        assert!(
            offset.abs() < 0.01 && ratio.abs() < 0.01,
            "{p}: {offset} {ratio}"
        );
    }
}

#[test]
fn exposures_of_an_object_have_their_own_covariances() {
    let mut spectra = stars();
    spectra.ids = vec![3i64; spectra.len()].into();
    let all = spectra.slice(0..2).join_exposures();
    let model = builder()
        .exposures(ExposureVelocity::Shared)
        .build()
        .unwrap();
    let joint = fitter(model, &Device::cpu());
    let row = &joint.fit(&all).unwrap().to_rows()[0];
    let single = fitter(self::model(), &Device::cpu());
    let parts = single
        .objective(&stars().slice(0..2), &row.parameters.repeat(2), false)
        .unwrap();
    let sum: f64 = parts.chi2.iter().sum();
    assert!((row.chi2 - sum).abs() < 0.01, "{} {sum}", row.chi2);
    let evaluated = joint.objective(&all, &row.parameters, false).unwrap();
    assert!((evaluated.chi2[0] - sum).abs() < 0.01);
    // Objects that are joined while a file is read keep their matrices, too.
    let mut reader = JoinedReader::new(open_reader(file("stars.npz")).unwrap()).unwrap();
    let first = reader.next_batch(3).unwrap().unwrap();
    let slice = stars().slice(0..3);
    let [read, expected] = [&first, &slice].map(|spectra| spectra.arms[0].covariance.as_ref());
    assert!(read.is_some() && read == expected);
}

#[test]
fn faulty_matrices_are_bad_input_with_their_pixel() {
    let pixels = stars().arms[0].pixels;
    let refused = |spectra: &Spectra, words: &str| {
        let row = &fit(spectra)[0];
        assert!(
            row.status_text == "bad_weight" && row.message.contains(words),
            "{}: {}",
            row.status_text,
            row.message
        );
    };
    let too_correlated = changed(0, |covariance, _| {
        covariance[pixels + 40] = covariance[40] * 1.5
    });
    refused(
        &too_correlated,
        "pixel 41: the covariance of the pixels that count is not positive definite",
    );
    let not_finite = changed(0, |covariance, _| covariance[pixels + 40] = f64::NAN);
    refused(&not_finite, "pixel 40: its covariance with pixel 41 is NaN");
    for variance in [0.0, -1.0, f64::NAN] {
        let bad = changed(0, |covariance, _| covariance[7] = variance);
        refused(
            &bad,
            &format!("pixel 7: the variance in `covariance` is {variance}"),
        );
    }
    // An ivar masks pixels, and must else be that of the matrix.
    let mut other = changed(0, |_, _| {});
    other.arms[0].ivar.to_mut()[9] *= 1.01;
    refused(&other, "pixel 9: ivar is ");
    let mut masked = changed(0, |_, _| {});
    masked.arms[0].ivar.to_mut()[9] = 0.0;
    let mut mask = vec![false; pixels];
    mask[9] = true;
    let mut masked_by_mask = changed(0, |_, _| {});
    masked_by_mask.arms[0].mask = mask.into();
    assert_eq!(bits(&fit(&masked)[0]), bits(&fit(&masked_by_mask)[0]));
    let strict = fitter(model(), &Device::cpu()).strict(true);
    assert!(matches!(
        strict.fit(&not_finite),
        Err(Error::BadSpectrum { .. })
    ));
}

#[test]
fn settings_without_correlations_are_refused_by_name() {
    let spectra = stars();
    let refused = |fitter: SpectralFitter, word: &str| {
        let errors = [
            fitter.fit(&spectra).err(),
            check_spectra(&fitter, [&spectra]).err(),
        ];
        for error in errors {
            let message = error.unwrap().to_string();
            assert!(
                message.contains("`covariance` excludes") && message.contains(word),
                "{message}"
            );
        }
    };
    let loss = SpectraSettings::default().loss(popfit::Estimator::Huber(1.345));
    refused(cpu_fitter(loss), "`loss`");
    let jitter = SpectraSettings::default().jitter(Jitter::Fitted);
    refused(cpu_fitter(jitter), "`jitter = \"fit\"`");
    let widen = SpectraSettings::default().widen(Widening::new([2], 2.0));
    refused(cpu_fitter(widen), "`spectra.widen`");
    let plain = || fitter(model(), &Device::cpu());
    refused(plain().solver(NelderMead::default()), "`solver`");
    let two_solvers = Solver::LevenbergMarquardtThenNelderMead(
        LevenbergMarquardt::default(),
        NelderMead::default(),
    );
    refused(plain().solver(two_solvers), "`solver`");
    refused(
        plain().velocity_scan(VelocityScan::Fixed),
        "`velocity_scan`",
    );
    let message = Task::of_spectra(&plain(), &spectra)
        .err()
        .unwrap()
        .to_string();
    assert!(message.contains("`covariance` excludes tasks"), "{message}");
    // Shapes are checked when the matrices are set.
    let wrong = NoiseCovariance {
        diagonals: 2,
        values: Values::from(vec![1.0; 5]),
    };
    let arm = remake(
        &spectra.arms[0],
        spectra.arms[0].flux.to_double().into_owned(),
        None,
    );
    let message = arm.arms[0]
        .clone()
        .with_covariance(wrong)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("covariance has 5 values of 2 diagonals"),
        "{message}"
    );
}

#[test]
fn an_arm_may_have_a_covariance_beside_one_without() {
    const SPLIT: usize = 360;
    let spectra = stars().slice(2..3);
    let arm = &spectra.arms[0];
    let grid = arm.grid(0).into_owned();
    let flux = arm.flux.to_double().into_owned();
    let matrix = arm.covariance.as_ref().unwrap();
    let bands = matrix.values.to_double().into_owned();
    let part = |name: &str, pixels: std::ops::Range<usize>, scale: Option<f64>| {
        let values: Vec<f64> = bands
            .chunks_exact(arm.pixels)
            .enumerate()
            .flat_map(|(d, band)| {
                let factor = if d == 0 { 1.0 } else { scale.unwrap_or(0.0) };
                band[pixels.clone()].iter().map(move |c| c * factor)
            })
            .collect();
        let covariance = NoiseCovariance {
            diagonals: matrix.diagonals,
            values: values.into(),
        };
        let ivar = covariance.ivar(pixels.len());
        let [grid, flux] = [&grid, &flux].map(|values| values[pixels.clone()].to_vec());
        let part = ArmSpectra::new(name, pixels.len(), grid, flux, ivar, None).unwrap();
        match scale {
            Some(_) => part.with_covariance(covariance).unwrap(),
            None => part,
        }
    };
    let emulator = || Emulator::open(demo_emulator()).unwrap();
    let model = SpectralModel::builder()
        .arm("b", emulator())
        .arm("r", emulator())
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(6));
    let fitter = fitter(model.build().unwrap(), &Device::cpu());
    // Correlations of 1e-12 are none, but take the way of correlated noise.
    let rows = [None, Some(1e-12)].map(|scale| {
        let arms = vec![
            part("b", 0..SPLIT, Some(1.0)),
            part("r", SPLIT..arm.pixels, scale),
        ];
        let spectra = Spectra::from_arms(arms, None).unwrap();
        fitter.fit(&spectra).unwrap().to_rows().swap_remove(0)
    });
    assert!((rows[0].chi2 - rows[1].chi2).abs() < 1e-6);
    for p in 0..rows[0].parameters.len() {
        let offset = (rows[0].parameters[p] - rows[1].parameters[p]) / rows[0].errors[p];
        assert!(offset.abs() < 1e-5, "{p}: {offset}");
    }
}
