//! Objects with several exposures, against joint fits in numpy (`tests/reference/make_exposures.py`).

use std::path::PathBuf;

use popfit::{
    Continuum, Device, Emulator, ExposureVelocity, FitRow, Spectra, SpectralFitter, SpectralModel,
    Status, VelocityScan,
};
use popfit_testing::fits::{devices, fitter, pick, same_bits, synb_spectra};
use popfit_testing::{array, demo_emulator};

const LABELS: usize = 4;

fn file(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/exposures");
    PathBuf::from(folder).join(name)
}

fn spectra() -> Spectra<'static> {
    Spectra::open(file("stars.npz")).unwrap()
}

fn model(velocity: Option<ExposureVelocity>) -> SpectralModel {
    let builder = SpectralModel::builder()
        .arm("", Emulator::open(demo_emulator()).unwrap())
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10));
    match velocity {
        Some(velocity) => builder.exposures(velocity),
        None => builder,
    }
    .build()
    .unwrap()
}

fn fit(velocity: ExposureVelocity, device: &Device, spectra: &Spectra) -> Vec<FitRow> {
    let table = fitter(model(Some(velocity)), device).fit(spectra).unwrap();
    table.to_rows()
}

/// The joint fit of a star in numpy.
struct Reference {
    x: Vec<f64>,
    errors: Vec<f64>,
    /// (parameters, parameters)
    correlations: Vec<f64>,
    chi2: f64,
}

impl Reference {
    fn of(star: &str, mode: &str) -> Reference {
        let get = |key: &str| {
            array(
                &file("stars_reference.npz"),
                &format!("{star}_{mode}_{key}"),
            )
            .1
        };
        Reference {
            x: get("x"),
            errors: get("err"),
            correlations: get("correlations"),
            chi2: get("chi2")[0],
        }
    }

    /// Fails unless value and error of a parameter agree within 2 % of the error. A parameter at a bound has no error.
    fn assert_agrees(&self, p: usize, value: f64, error: f64, what: &str) {
        if self.errors[p].is_nan() {
            assert!(
                error.is_nan() && (value - self.x[p]).abs() < 1e-9 * value.abs(),
                "{what}"
            );
            return;
        }
        let offset = (value - self.x[p]) / self.errors[p];
        let ratio = error / self.errors[p];
        assert!(
            offset.abs() < 0.02 && (ratio - 1.0).abs() < 0.02,
            "{what}: {offset} {ratio}"
        );
    }

    /// Fails unless a correlation agrees with that of two parameters, which has no value if one is at a bound.
    fn assert_correlated(&self, a: usize, b: usize, correlation: f64, what: &str) {
        let expected = self.correlations[a * self.x.len() + b];
        assert!(
            correlation.is_nan() && expected.is_nan() || (correlation - expected).abs() < 0.02,
            "{what}: {correlation} {expected}"
        );
    }

    /// Fails unless the last labels of a row agree, `first` being the first label of the reference.
    fn assert_labels_agree(&self, first: usize, row: &FitRow) {
        assert!(
            (row.chi2 - self.chi2).abs() < 0.02,
            "{}: {} {}",
            row.id,
            row.chi2,
            self.chi2
        );
        let mut pairs = row.correlations[LABELS..].iter();
        for a in 0..LABELS {
            let what = format!("{}, label {a}", row.id);
            self.assert_agrees(first + a, row.parameters[1 + a], row.errors[1 + a], &what);
            for b in a + 1..LABELS {
                self.assert_correlated(first + a, first + b, *pairs.next().unwrap(), &what);
            }
        }
    }
}

#[test]
fn exposures_with_one_velocity_meet_the_joint_fit() {
    let spectra = spectra().join_exposures();
    for device in devices() {
        for row in fit(ExposureVelocity::Shared, &device, &spectra) {
            let reference = Reference::of(&row.id.to_string(), "shared");
            reference.assert_labels_agree(1, &row);
            reference.assert_agrees(0, row.parameters[0], row.errors[0], "velocity");
            for label in 0..LABELS {
                reference.assert_correlated(0, 1 + label, row.correlations[label], "velocity");
            }
            assert!(row.status.is_success() && row.exposure_velocities.is_none());
        }
    }
}

#[test]
fn exposures_with_their_own_velocities_meet_the_joint_fit() {
    let all = spectra();
    let joined = all.clone().join_exposures();
    // A software adapter compiles the kernels of each velocity for seconds.
    let has_few_exposures = |row: &usize| ["1", "2", "7"].contains(&all.ids.text(*row).as_str());
    let few: Vec<usize> = (0..all.len()).filter(has_few_exposures).collect();
    let few = pick(&all, &few).join_exposures();
    for (device, spectra) in devices().iter().zip([&joined, &few]) {
        for row in fit(ExposureVelocity::Each, device, spectra) {
            let star = row.id.to_string();
            let reference = Reference::of(&star, "each");
            let list = row.exposure_velocities.as_ref().unwrap();
            let count = list.velocities.len();
            assert_eq!(
                (row.exposures, count + LABELS),
                (Some(count as u64), reference.x.len())
            );
            reference.assert_labels_agree(count, &row);
            for (k, (velocity, error)) in list.velocities.iter().zip(&list.errors).enumerate() {
                reference.assert_agrees(k, *velocity, *error, &format!("{star}, exposure {k}"));
            }
            // The velocity of the object is the mean, and its test is that of numpy.
            let get =
                |key: &str| array(&file("stars_reference.npz"), &format!("{star}_{key}")).1[0];
            let offset = (row.parameters[0] - get("mean")) / get("mean_err");
            let ratio = row.errors[0] / get("mean_err");
            assert!(
                offset.abs() < 0.02 && (ratio - 1.0).abs() < 0.02,
                "{star}: {offset} {ratio}"
            );
            let p_constant = row.p_constant_velocity.unwrap();
            assert!(
                (p_constant - get("p")).abs() < 0.01,
                "{star}: {p_constant} {}",
                get("p")
            );
        }
    }
    // The velocities of star 3 differ by up to 32 km/s, and those of star 1 are equal.
    let rows = fit(ExposureVelocity::Each, &Device::cpu(), &joined);
    let p_constant = |star: i64| {
        let row = rows.iter().find(|row| row.id == star.into()).unwrap();
        row.p_constant_velocity.unwrap()
    };
    assert!(p_constant(3) < 1e-100 && p_constant(1) > 0.001);
}

#[test]
fn bits_depend_neither_on_batches_nor_on_the_order_of_objects() {
    let spectra = spectra();
    let joined = spectra.clone().join_exposures();
    for velocity in [ExposureVelocity::Shared, ExposureVelocity::Each] {
        let rows = fit(velocity, &Device::cpu(), &joined);
        let small_batches = fitter(model(Some(velocity)), &Device::cpu()).batch_size(3);
        let rows_of_small_batches = small_batches.fit(&joined).unwrap().to_rows();
        let mut order: Vec<usize> = (0..spectra.len()).collect();
        order.sort_by_key(|&row| std::cmp::Reverse(spectra.ids.text(row)));
        let sorted_rows = fit(
            velocity,
            &Device::cpu(),
            &pick(&spectra, &order).join_exposures(),
        );
        for (row, other) in rows.iter().zip(&rows_of_small_batches) {
            same_bits(row, other, "batches of three");
            assert_eq!(row.exposure_velocities, other.exposure_velocities);
        }
        for row in &rows {
            let other = sorted_rows.iter().find(|other| other.id == row.id).unwrap();
            same_bits(row, other, "sorted by id");
        }
        assert_eq!(sorted_rows[0].id, 7.into());
    }
}

#[test]
fn single_exposures_are_fitted_as_spectra() {
    let spectra = synb_spectra().slice(0..12);
    let alone = fitter(model(None), &Device::cpu()).fit(&spectra).unwrap();
    for velocity in [ExposureVelocity::Shared, ExposureVelocity::Each] {
        let rows = fit(velocity, &Device::cpu(), &spectra.clone().join_exposures());
        for (row, expected) in rows.iter().zip(alone.to_rows()) {
            same_bits(row, &expected, "one exposure");
            assert_eq!((row.exposures, row.p_constant_velocity), (Some(1), None));
        }
        // A model of exposures also fits spectra that are not joined.
        for (row, expected) in fit(velocity, &Device::cpu(), &spectra)
            .iter()
            .zip(alone.to_rows())
        {
            same_bits(row, &expected, "not joined");
        }
    }
}

#[test]
fn exposures_without_data_are_left_out() {
    let spectra = spectra();
    let star = spectra.ids.text(0);
    let rows_of_star: Vec<usize> = (0..spectra.len())
        .filter(|&row| spectra.ids.text(row) == star)
        .collect();
    let mut dead = pick(&spectra, &rows_of_star);
    let pixels = dead.arms[0].pixels;
    dead.arms[0].ivar.to_mut()[pixels..2 * pixels].fill(0.0);
    let mut others = rows_of_star.clone();
    others.remove(1);
    for velocity in [ExposureVelocity::Shared, ExposureVelocity::Each] {
        let row = &fit(velocity, &Device::cpu(), &dead.clone().join_exposures())[0];
        let expected = &fit(
            velocity,
            &Device::cpu(),
            &pick(&spectra, &others).join_exposures(),
        )[0];
        same_bits(row, expected, "one dead exposure");
        assert_eq!(row.exposures, Some(others.len() as u64));
        if let Some(list) = &row.exposure_velocities {
            assert!(list.velocities[1].is_nan() && list.errors[1].is_nan());
            assert_eq!(
                list.velocities[2],
                expected.exposure_velocities.as_ref().unwrap().velocities[1]
            );
        }
    }
    // Without any data there is a row with the reason.
    dead.arms[0].ivar.to_mut().fill(0.0);
    let row = &fit(
        ExposureVelocity::Each,
        &Device::cpu(),
        &dead.join_exposures(),
    )[0];
    assert_eq!(
        (row.status, row.status_text.as_str()),
        (Status::BadInput, "no_data")
    );
}

#[test]
fn too_many_velocities_are_a_row_with_the_reason() {
    let spectra = spectra();
    let many = pick(&spectra, &[0; 40]).join_exposures();
    let row = &fit(ExposureVelocity::Each, &Device::cpu(), &many)[0];
    assert_eq!(
        (row.status, row.status_text.as_str()),
        (Status::BadInput, "too_many_exposures")
    );
    assert!(row.message.contains("40 exposures") && row.message.contains("at most 28"));
    // One velocity is possible for any number.
    let row = &fit(ExposureVelocity::Shared, &Device::cpu(), &many)[0];
    assert!(row.status.is_success());
    // An exposure that counts forty times has 1/√40 of its error.
    let alone = pick(&spectra, &[0]);
    let single = fitter(model(None), &Device::cpu()).fit(&alone).unwrap();
    let ratio = row.errors[0] / single.errors("velocity").unwrap()[0];
    assert!((ratio * 40f64.sqrt() - 1.0).abs() < 0.05, "{ratio}");
}

/// The penalty of a point outside the training hull grows with the pixels of all exposures.
#[test]
fn points_beyond_the_hull_pay_for_all_exposures() {
    let star = pick(&spectra(), &[0]);
    // The hull is the box of the labels, whose bounds do not act here.
    let mut parameters: Vec<f64> = model(None)
        .bounds()
        .iter()
        .map(|(_, upper)| *upper)
        .collect();
    parameters[0] = 0.0;
    parameters[2] += 0.3;
    let alone = fitter(model(None), &Device::cpu());
    let single = alone.objective(&star, &parameters, false).unwrap();
    let penalty = single.objective[0] - single.chi2[0];
    assert!(penalty > 100.0, "{penalty}");
    let tripled = pick(&spectra(), &[0; 3]).join_exposures();
    for velocity in [ExposureVelocity::Shared, ExposureVelocity::Each] {
        let joint = fitter(model(Some(velocity)), &Device::cpu());
        let objectives = joint.objective(&tripled, &parameters, false).unwrap();
        let ratio = (objectives.objective[0] - objectives.chi2[0]) / penalty;
        assert!((ratio - 3.0).abs() < 1e-3, "{ratio}");
    }
}

#[test]
fn models_of_exposures_are_those_of_their_arms() {
    let joined = spectra().join_exposures();
    for velocity in [ExposureVelocity::Shared, ExposureVelocity::Each] {
        let fitter: SpectralFitter = fitter(model(Some(velocity)), &Device::cpu());
        let rows = fitter.fit(&joined).unwrap().to_rows();
        for (row, arms) in rows
            .iter()
            .zip(fitter.model_spectra(&joined, &rows).unwrap())
        {
            let arms = arms.unwrap();
            assert_eq!(Some(arms.len() as u64), row.exposures);
            assert_eq!((arms[0].name.as_str(), arms[1].name.as_str()), ("#1", "#2"));
            let chi2: f64 = arms.iter().map(|arm| arm.chi2).sum();
            assert!(
                (chi2 - row.chi2).abs() < 1e-3 * row.chi2,
                "{} {}",
                chi2,
                row.chi2
            );
        }
    }
}

#[test]
fn a_scan_of_the_velocity_needs_a_single_one() {
    let scanned = |velocity| {
        fitter(model(Some(velocity)), &Device::cpu())
            .velocity_scan(VelocityScan::Fixed)
            .fit(&spectra().slice(0..3).join_exposures())
    };
    assert!(
        scanned(ExposureVelocity::Shared)
            .unwrap()
            .to_rows()
            .iter()
            .all(|row| row.posterior.is_some())
    );
    let message = scanned(ExposureVelocity::Each).unwrap_err().to_string();
    assert!(message.contains("each exposure has its own"), "{message}");
}

#[test]
fn objectives_of_exposures_are_sums_of_their_spectra() {
    let spectra = spectra();
    let joined = spectra.clone().join_exposures();
    let table = fitter(model(Some(ExposureVelocity::Shared)), &Device::cpu())
        .fit(&joined)
        .unwrap();
    let rows = table.to_rows();
    let at_rows: Vec<f64> = rows.iter().flat_map(|row| row.parameters.clone()).collect();
    // The same parameters for each exposure by itself.
    let at_exposures: Vec<f64> = (0..spectra.len())
        .flat_map(|k| {
            let id = spectra.ids.text(k);
            let row = rows.iter().find(|row| row.id.to_string() == id).unwrap();
            row.parameters.clone()
        })
        .collect();
    let alone = fitter(model(None), &Device::cpu());
    let of_exposures = alone.objective(&spectra, &at_exposures, true).unwrap();
    for velocity in [ExposureVelocity::Shared, ExposureVelocity::Each] {
        let fitter = fitter(model(Some(velocity)), &Device::cpu());
        let objectives = fitter.objective(&joined, &at_rows, true).unwrap();
        let mut chi2 = vec![0.0; rows.len()];
        let mut normal = vec![0.0; rows.len() * 25];
        for k in 0..spectra.len() {
            let id = spectra.ids.text(k);
            let place = rows
                .iter()
                .position(|row| row.id.to_string() == id)
                .unwrap();
            chi2[place] += of_exposures.chi2[k];
            for (sum, value) in normal[place * 25..][..25]
                .iter_mut()
                .zip(&of_exposures.normal_matrix[k * 25..])
            {
                *sum += value;
            }
        }
        for (k, row) in rows.iter().enumerate() {
            assert!((objectives.chi2[k] - chi2[k]).abs() < 1e-4 * chi2[k]);
            assert!((objectives.chi2[k] - row.chi2).abs() < 1e-4 * row.chi2);
            for (element, sum) in objectives.normal_matrix[k * 25..][..25]
                .iter()
                .zip(&normal[k * 25..])
            {
                let scale = normal[k * 25..][..25]
                    .iter()
                    .fold(0.0f64, |a, x| a.max(x.abs()));
                assert!(
                    (element - sum).abs() < 1e-3 * sum.abs() + 1e-9 * scale,
                    "{element} {sum}"
                );
            }
        }
    }
}

/// Standard normal numbers: Box and Muller's transform of a linear congruential generator.
fn normal_numbers(seed: u64) -> impl Iterator<Item = f64> {
    let mut state = seed;
    let mut uniform = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    std::iter::from_fn(move || {
        let radius = (-2.0 * uniform().ln()).sqrt();
        Some(radius * (std::f64::consts::TAU * uniform()).cos())
    })
}

/// The best velocity of an exposure that shows no line is anywhere, with a small error of its own. It is no sign of a
/// companion.
#[test]
fn a_faint_exposure_does_not_make_the_velocity_vary() {
    let all = spectra();
    for star in ["5", "6"] {
        let rows: Vec<usize> = (0..all.len())
            .filter(|&row| all.ids.text(row) == star)
            .collect();
        for seed in 1..13 {
            let joined = with_faint_exposure(&all, &rows, seed);
            let row = &fit(ExposureVelocity::Each, &Device::cpu(), &joined)[0];
            let common = &fit(ExposureVelocity::Shared, &Device::cpu(), &joined)[0];
            assert!(row.objective <= common.objective + 0.01, "{star} {seed}");
            let p_constant = row.p_constant_velocity.unwrap();
            assert!(
                p_constant > 1e-4,
                "{star} {seed}: {p_constant} {:?}",
                row.exposure_velocities
            );
        }
    }
}

/// Replaces the first exposure of a star by one with twice its flux as noise.
fn with_faint_exposure(all: &Spectra, rows: &[usize], seed: u64) -> Spectra<'static> {
    let mut star = pick(all, rows);
    let arm = &mut star.arms[0];
    let faint = 0..arm.pixels;
    let sigma: Vec<f64> = arm.flux.to_double()[faint.clone()]
        .iter()
        .map(|flux| 2.0 * flux.abs())
        .collect();
    let noisy = arm.flux.to_mut()[faint.clone()].iter_mut();
    for ((flux, sigma), normal) in noisy.zip(&sigma).zip(normal_numbers(seed)) {
        *flux += sigma * normal;
    }
    for (ivar, sigma) in arm.ivar.to_mut()[faint].iter_mut().zip(&sigma) {
        *ivar = sigma.powi(-2);
    }
    star.join_exposures()
}

#[test]
fn exposures_of_nan_weights_are_left_out_and_bad_ones_named_by_their_number() {
    let all = spectra();
    let rows: Vec<usize> = (0..all.len())
        .filter(|&row| all.ids.text(row) == "0")
        .collect();
    let mut star = pick(&all, &rows);
    let pixels = star.arms[0].pixels;
    star.arms[0].ivar.to_mut()[..pixels].fill(f64::NAN);
    let row = &fit(
        ExposureVelocity::Each,
        &Device::cpu(),
        &star.clone().join_exposures(),
    )[0];
    assert!(row.status.is_success() && row.exposures == Some(rows.len() as u64 - 1));
    assert!(row.exposure_velocities.as_ref().unwrap().velocities[0].is_nan());
    // The third exposure is the second of those that have data.
    star.arms[0].ivar.to_mut()[2 * pixels + 7] = -1.0;
    let row = &fit(
        ExposureVelocity::Each,
        &Device::cpu(),
        &star.join_exposures(),
    )[0];
    assert_eq!(row.status_text, "bad_weight");
    assert!(row.message.contains("#3"), "{}", row.message);
    assert_eq!(
        row.exposure_velocities.as_ref().unwrap().velocities.len(),
        rows.len()
    );
}
