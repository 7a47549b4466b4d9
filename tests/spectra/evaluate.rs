//! The objective at given parameters equals that of a fit, and the first guess equals the starts of a fit.

use popfit::low_level::Task;
use popfit::{
    Continuum, Device, Emulator, Error, FitTable, LabelSettings, Precision, Spectra,
    SpectralFitter, SpectralModel,
};
use popfit_testing::fits::{devices, fitter, synb_spectra};
use popfit_testing::{demo_emulator, synb_model};

/// The parameters of all rows.
fn parameters_of(table: &FitTable) -> Vec<f64> {
    table
        .to_rows()
        .into_iter()
        .flat_map(|row| row.parameters)
        .collect()
}

/// A model with a prior, marginalised over its continuum.
fn marginalised() -> SpectralModel {
    let emulator = Emulator::open(demo_emulator()).unwrap();
    let model = SpectralModel::builder()
        .arm("b", emulator)
        .velocity(-500.0..=500.0)
        .continuum(Continuum::rbf(6));
    model
        .marginalise(true)
        .label("teff", LabelSettings::default().prior(5300.0, 80.0))
        .build()
        .unwrap()
}

#[test]
fn the_objective_at_the_parameters_of_a_row_is_that_of_the_row() {
    let spectra = synb_spectra().slice(0..8);
    for model in [synb_model(), marginalised()] {
        for device in devices() {
            let fitter = fitter(model.clone(), &device);
            let table = fitter.fit(&spectra).unwrap();
            let objectives = fitter
                .objective(&spectra, &parameters_of(&table), false)
                .unwrap();
            for (k, row) in table.to_rows().into_iter().enumerate() {
                let pairs = [
                    (objectives.chi2[k], row.chi2),
                    (objectives.objective[k], row.objective),
                ];
                assert!(
                    pairs.iter().all(|(a, b)| (a - b).abs() < 2e-5 * b.abs()),
                    "{}: {pairs:?}",
                    device.name()
                );
            }
            assert!(objectives.gradient.is_empty() && objectives.normal_matrix.is_empty());
            assert_eq!(objectives.messages, [""; 8]);
            // The objectives do not depend on the size of batches.
            let in_small_batches = fitter
                .clone()
                .batch_size(3)
                .objective(&spectra, &parameters_of(&table), false)
                .unwrap();
            assert_eq!(in_small_batches, objectives, "{}", device.name());
        }
    }
}

#[test]
fn models_at_the_parameters_of_rows_are_those_of_the_rows() {
    let spectra = synb_spectra().slice(0..3);
    let fitter = fitter(synb_model(), &Device::cpu());
    let table = fitter.fit(&spectra).unwrap();
    let mut point = parameters_of(&table);
    let models = fitter.models_at(&spectra, &point).unwrap();
    for (models, expected) in models
        .iter()
        .zip(fitter.model_spectra(&spectra, &table.to_rows()).unwrap())
    {
        let models = &models.as_ref().unwrap()[0];
        let expected = &expected.unwrap()[0];
        assert_eq!(
            (&models.mask, models.chi2, models.unmasked),
            (&expected.mask, expected.chi2, expected.unmasked)
        );
        assert!(
            models
                .model
                .iter()
                .zip(&expected.model)
                .all(|(a, b)| a.to_bits() == b.to_bits())
        );
    }
    let width = fitter.parameters().len();
    point[width] = f64::NAN;
    let models = fitter.models_at(&spectra, &point).unwrap();
    assert_eq!(
        models.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, false, true]
    );
    let error = fitter.models_at(&spectra, &point[1..]).unwrap_err();
    assert_eq!(error.argument(), Some("parameters"), "{error}");
}

/// In f64 differences of the sum of squares are its gradient, and the normal matrix gives the row's errors.
#[test]
fn derivatives_are_those_of_the_objective() {
    let spectra = synb_spectra().slice(0..4);
    let fitter = fitter(marginalised(), &Device::cpu()).precision(Precision::F64);
    let table = fitter.fit(&spectra).unwrap();
    let rows = table.to_rows();
    let width = fitter.parameters().len();
    // The point is half an error off the minimum.
    let point: Vec<f64> = rows
        .iter()
        .flat_map(|row| {
            row.parameters
                .iter()
                .zip(&row.errors)
                .map(|(x, error)| x + 0.5 * error)
        })
        .collect();
    let objectives = fitter.objective(&spectra, &point, true).unwrap();
    let penalty = |row: usize, x: &[f64]| {
        let p = fitter
            .parameters()
            .iter()
            .position(|name| name == "teff")
            .unwrap();
        ((x[row * width + p] - 5300.0) / 80.0).powi(2)
    };
    for p in 0..width {
        let costs_at = |sign: f64| {
            let mut moved = point.clone();
            (0..rows.len()).for_each(|k| moved[k * width + p] += sign * 1e-3 * rows[k].errors[p]);
            let chi2 = fitter.objective(&spectra, &moved, false).unwrap().chi2;
            (0..rows.len())
                .map(|k| chi2[k] + penalty(k, &moved))
                .collect::<Vec<_>>()
        };
        for (k, (high, low)) in costs_at(1.0).into_iter().zip(costs_at(-1.0)).enumerate() {
            let difference = (high - low) / (2e-3 * rows[k].errors[p]);
            let size = 1.0 / rows[k].errors[p];
            assert!(
                (objectives.gradient[k * width + p] - difference).abs() < 1e-3 * size,
                "{p} {k}: {difference}"
            );
        }
    }
    let at_minimum = fitter
        .objective(&spectra, &parameters_of(&table), true)
        .unwrap();
    for (k, row) in rows.iter().enumerate() {
        let matrix = |p: usize, q: usize| at_minimum.normal_matrix[(k * width + p) * width + q];
        let errors = &row.errors;
        // Σ_q N_pq cov_qr is the unit matrix
        let pairs: Vec<(usize, usize)> = (0..width)
            .flat_map(|a| (a + 1..width).map(move |b| (a, b)))
            .collect();
        let correlation = |q: usize, r: usize| {
            let pair = (q.min(r), q.max(r));
            pairs
                .iter()
                .position(|other| *other == pair)
                .map_or(1.0, |k| row.correlations[k])
        };
        for p in 0..width {
            for r in 0..width {
                let sum: f64 = (0..width)
                    .map(|q| matrix(p, q) * errors[q] * errors[r] * correlation(q, r))
                    .sum();
                let unit = if p == r { 1.0 } else { 0.0 };
                assert!(
                    (sum * errors[p] / errors[r] - unit).abs() < 1e-3,
                    "{k} {p} {r}: {sum}"
                );
            }
        }
    }
}

#[test]
fn spectra_without_an_objective_have_a_message() {
    let mut spectra = synb_spectra().slice(0..3);
    let fitter = fitter(synb_model(), &Device::cpu());
    let width = fitter.parameters().len();
    let good = parameters_of(&fitter.fit(&spectra).unwrap());
    let expected = fitter.objective(&spectra, &good, true).unwrap();
    let pixels = spectra.arms[0].pixels;
    spectra.arms[0].flux.to_mut()[pixels + pixels / 2] = f64::NAN;
    spectra.arms[0].ivar.to_mut()[pixels + pixels / 2] = 1.0;
    let mut point = good.clone();
    point[2 * width] = f64::NAN;
    let objectives = fitter.objective(&spectra, &point, true).unwrap();
    assert_eq!(
        (objectives.chi2[0], &objectives.gradient[..width]),
        (expected.chi2[0], &expected.gradient[..width])
    );
    assert!(
        objectives.messages[1].starts_with("non_finite_input: ") && objectives.chi2[1].is_nan(),
        "{:?}",
        objectives.messages
    );
    assert!(
        objectives.messages[2].starts_with("bad_start: ")
            && objectives.messages[2].ends_with(" is NaN")
    );
    assert!(objectives.gradient[width..].iter().all(|x| x.is_nan()));
    let guesses = fitter.guess(&spectra).unwrap();
    assert!(guesses[1].starts.is_empty() && guesses[1].message == objectives.messages[1]);
    let strict = fitter.clone().strict(true);
    assert!(matches!(
        strict.objective(&spectra, &good, false),
        Err(Error::BadSpectrum { row: 1, .. })
    ));
    assert!(matches!(
        strict.guess(&spectra),
        Err(Error::BadSpectrum { row: 1, .. })
    ));
    let message = fitter
        .objective(&spectra, &good[1..], false)
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with("parameters: ")
            && message.contains(&format!("expected 3 spectra × {width} parameters"))
    );
    let without_spectra = fitter
        .objective(&Spectra::slice(&spectra, 0..0), &[], true)
        .unwrap();
    assert!(without_spectra.chi2.is_empty());
}

/// The guess has the starts of a fit, the best first, with the objective there.
#[test]
fn the_guess_has_the_starts_of_a_fit() {
    let spectra = synb_spectra().slice(0..6);
    for device in devices() {
        let fitter = fitter(synb_model(), &device);
        let guesses = fitter.guess(&spectra).unwrap();
        assert!(guesses.iter().any(|guess| guess.starts.len() > 1));
        for guess in &guesses {
            assert!(
                guess.message.is_empty()
                    && guess.starts.is_sorted_by(|a, b| a.objective <= b.objective)
            );
        }
        let best: Vec<f64> = guesses
            .iter()
            .flat_map(|guess| guess.starts[0].parameters.clone())
            .collect();
        let objectives = fitter.objective(&spectra, &best, false).unwrap();
        for (guess, chi2) in guesses.iter().zip(&objectives.chi2) {
            assert!(
                (guess.starts[0].chi2 - chi2).abs() < 2e-5 * chi2,
                "{} {chi2}",
                guess.starts[0].chi2
            );
        }
        // A task has the best start.
        let single: SpectralFitter = fitter.clone().starts(1);
        for (task, guess) in Task::of_spectra(&single, &spectra)
            .unwrap()
            .iter()
            .zip(single.guess(&spectra).unwrap())
        {
            let pairs = task.parameters.iter().zip(&task.linearise.batch.starts);
            let starts: Vec<f64> = pairs.map(|(p, u)| p.origin + p.scale * u).collect();
            assert_eq!(guess.starts.len(), 1);
            let pairs = starts.iter().zip(&guess.starts[0].parameters);
            assert!(
                pairs
                    .into_iter()
                    .all(|(a, b)| (a - b).abs() <= 1e-12 * b.abs().max(1.0)),
                "{starts:?}"
            );
        }
    }
}
