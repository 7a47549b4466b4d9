//! Checks of right results, wrong results, and fits that ended early. The verifier takes results of the CPU for those
//! of a GPU.

use super::*;
use crate::error::Error;
use crate::first_guess::Start;
use crate::math::triangle::packed_index;
use crate::model::ModelParameter;
use crate::recording::Precision;
use crate::spectral::SpectralFitter;
use crate::spectral::input::assemble::{match_arms, prepare_spectrum_of_batch};
use crate::spectral::input::layout::{lay_out_arms, mark_own_bases};
use crate::spectral::input::ready::Grids;
use crate::spectral::search::pass::PassSettings;
use crate::spectral::search::shared::SharedResources;
use crate::spectral::search::shared_populations::SharedPopulations;
use crate::spectral::search::solve::SpectralPasses;
use crate::{Continuum, Device as DeviceChoice, Emulator, Spectra, SpectralModel};

/// Spectra of the demo, their outcomes on the CPU, and a verifier that takes these for a GPU's.
struct VerifierTest {
    model: SpectralModel,
    grids: Vec<Grids>,
    ready: Vec<ReadySpectrum>,
    /// Standard errors in the solver's units u, of one parameter while the others are held.
    errors: Vec<Vec<f64>>,
    outcomes: Vec<Vec<Outcome>>,
    verifier: PassVerifier,
}

/// Fits five spectra of the demo from their minima.
fn fit_demo_spectra() -> VerifierTest {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
    let emulator = Emulator::open(format!("{data}/emulator.safetensors")).unwrap();
    let builder = SpectralModel::builder()
        .arm("", emulator)
        .velocity(-1000.0..=1000.0);
    let model = builder
        .continuum(Continuum::rbf(10))
        .marginalise(true)
        .build()
        .unwrap();
    let spectra = Spectra::open(format!("{data}/spectra.npz"))
        .unwrap()
        .slice(0..5);
    let fitter = SpectralFitter::new(model.clone(), DeviceChoice::cpu());
    let rows = fitter.fit(&spectra).unwrap().to_rows();
    // 1. Prepare the spectra to start at their fits.
    let arms = match_arms(&model, &spectra).unwrap();
    let grids = fitter
        .make_run()
        .unwrap()
        .sample_grids(&arms, &spectra)
        .unwrap();
    let mut ready = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let prepared =
            Arc::new(prepare_spectrum_of_batch(&model, &arms, &grids, place, None, &[]).unwrap());
        let u = model
            .parameters
            .iter()
            .zip(&row.parameters)
            .map(|(parameter, value)| parameter.to_u(*value))
            .collect();
        let limits = model
            .parameters
            .iter()
            .map(ModelParameter::limits)
            .collect();
        ready.push(ReadySpectrum {
            place,
            prepared,
            limits,
            starts: vec![Start { u, basin: 0 }],
            may_add_starts: false,
        });
    }
    // 2. Fit them in f32.
    let layout = mark_own_bases(
        lay_out_arms(&model, &arms, &grids),
        ready.iter().map(|spectrum| &*spectrum.prepared),
    );
    let precision = Precision::F32;
    let settings = PassSettings {
        solver: fitter.solver,
        precision,
        has_evaluation: false,
        memory: None,
        workers: 1,
        max_starts: 5,
    };
    let shared = SharedResources::default();
    let mut passes = SpectralPasses::new(
        &model,
        &shared,
        &layout,
        &CpuDevice,
        &SharedPopulations::default(),
        settings,
    )
    .unwrap();
    let ready_spectra = ReadySpectra {
        model: &model,
        grids: &grids,
        spectra: &ready,
        guess: None,
    };
    let monitor = Monitor {
        cancel: &NEVER_CANCELLED,
        progress: &mut |_| {},
    };
    let outcomes = passes
        .linearise
        .fit_from_starts(ready_spectra, ready_spectra.starts(), monitor)
        .unwrap();
    // 3. Compute the standard errors, and make the verifier.
    let mut errors = Vec::with_capacity(outcomes.len());
    for group in &outcomes {
        let normal_matrix = &group[0].normal_matrix;
        let errors_of_spectrum = (0..model.parameters.len())
            .map(|p| normal_matrix[packed_index(p, p)].powf(-0.5))
            .collect();
        errors.push(errors_of_spectrum);
    }
    let objective = shared.get_or_make_objective(&model, &layout, precision, false);
    let verifier =
        PassVerifier::new("gpu".into(), objective, LevenbergMarquardt::default(), None).unwrap();
    drop(passes);
    VerifierTest {
        model,
        grids,
        ready,
        errors,
        outcomes,
        verifier,
    }
}

impl VerifierTest {
    /// Checks the objectives of outcomes after `change`, which receives each outcome and its spectrum's index.
    fn check_objectives(&mut self, change: impl Fn(usize, &mut Outcome)) -> Result<()> {
        let outcomes = self.changed_outcomes(change);
        let submissions = vec![0; outcomes.len()];
        let spectra = ReadySpectra {
            model: &self.model,
            grids: &self.grids,
            spectra: &self.ready,
            guess: None,
        };
        let finished = PassOutcomes {
            searches: Vec::new(),
            outcomes,
            submissions,
        };
        self.verifier.check_objectives(spectra, &finished)
    }

    /// Checks whether outcomes are at minima after `change`. The verifier forgets earlier checks before.
    fn check_minima(&mut self, change: impl Fn(usize, &mut Outcome)) -> Result<()> {
        self.verifier.falls.clear();
        self.check_minima_again(change)
    }

    /// Checks whether outcomes are at minima after `change`. The verifier remembers earlier checks.
    fn check_minima_again(&mut self, change: impl Fn(usize, &mut Outcome)) -> Result<()> {
        let outcomes = self.changed_outcomes(change);
        let spectra = ReadySpectra {
            model: &self.model,
            grids: &self.grids,
            spectra: &self.ready,
            guess: None,
        };
        self.verifier.check_minima(spectra, &outcomes)
    }

    /// Returns a copy of the outcomes after `change`.
    fn changed_outcomes(&self, change: impl Fn(usize, &mut Outcome)) -> Vec<Vec<Outcome>> {
        let mut outcomes = self.outcomes.clone();
        for (k, group) in outcomes.iter_mut().enumerate() {
            for outcome in group {
                change(k, outcome);
            }
        }
        outcomes
    }
}

#[test]
fn right_results_are_accepted() {
    let mut test = fit_demo_spectra();
    test.check_objectives(|_, _| {}).unwrap();
    test.check_minima(|_, _| {}).unwrap();
    // Nothing is compared where the parameters are not finite.
    let without_parameters = |_, outcome: &mut Outcome| {
        outcome.chi2 = f64::NAN;
        outcome.parameters.fill(f64::NAN);
    };
    test.check_objectives(without_parameters).unwrap();
}

#[test]
fn wrong_objectives_are_refused() {
    let mut test = fit_demo_spectra();
    for factor in [0.0, 0.99, 1.01, 1e3, f64::NAN, f64::INFINITY] {
        let checked = test.check_objectives(|_, outcome| outcome.chi2 *= factor);
        assert!(
            matches!(checked, Err(Error::DeviceUntrusted { .. })),
            "{factor}: {checked:?}"
        );
    }
    let errors = test.errors.clone();
    for (p, parameter) in test.model.parameters.clone().iter().enumerate() {
        let checked =
            test.check_objectives(|k, outcome| outcome.parameters[p] += 5.0 * errors[k][p]);
        assert!(
            matches!(checked, Err(Error::DeviceUntrusted { .. })),
            "{}: {checked:?}",
            parameter.solver.name
        );
    }
}

#[test]
fn most_fits_that_end_early_are_refused_and_single_ones_are_accepted() {
    let mut test = fit_demo_spectra();
    let errors = test.errors.clone();
    for (p, parameter) in test.model.parameters.clone().iter().enumerate() {
        let name = &parameter.solver.name;
        // Moves an outcome away from its minimum, by a number of standard errors, and raises χ² accordingly.
        let shift = |k: usize, outcome: &mut Outcome, sigmas: f64| {
            outcome.parameters[p] += errors[k][p] * sigmas;
            outcome.chi2 += sigmas * sigmas;
        };
        // 1. One standard error is refused for three of the five fits, and five are accepted for two.
        let refusal = test
            .check_minima(|k, outcome| shift(k, outcome, if k < 2 { 0.0 } else { 1.0 }))
            .unwrap_err();
        assert!(
            refusal.to_string().contains("ends fits early"),
            "{name}: {refusal}"
        );
        test.check_minima(|k, outcome| shift(k, outcome, if k < 2 { 5.0 } else { 0.0 }))
            .unwrap();
        // 2. Two early successes are accepted once, but not twice.
        let shift_two_successes = |k: usize, outcome: &mut Outcome| {
            shift(k, outcome, 1.0);
            outcome.status = Some(if k < 2 {
                Status::Ftol
            } else {
                Status::MaxRounds
            });
        };
        test.check_minima(shift_two_successes).unwrap();
        assert!(
            test.check_minima_again(shift_two_successes).is_err(),
            "{name}"
        );
        // 3. A failed fit need not be at a minimum.
        let shift_failures = |k: usize, outcome: &mut Outcome| {
            shift(k, outcome, 5.0);
            outcome.status = Some(Status::MaxRounds);
        };
        test.check_minima(shift_failures).unwrap();
    }
}

#[test]
fn one_result_of_each_readback_is_computed_again() {
    let outcome_with_status = |status| {
        vec![Outcome {
            status: Some(status),
            ..Outcome::default()
        }]
    };
    let not_finite = || {
        vec![Outcome {
            chi2: f64::NAN,
            ..Outcome::default()
        }]
    };
    let finished = PassOutcomes {
        searches: Vec::new(),
        outcomes: vec![
            outcome_with_status(Status::Stalled),
            outcome_with_status(Status::Ftol),
            outcome_with_status(Status::Xtol),
            not_finite(),
            outcome_with_status(Status::MaxRounds),
            outcome_with_status(Status::Stalled),
            not_finite(),
        ],
        submissions: vec![1, 1, 1, 2, 2, 2, 3],
    };
    let chosen_spectra = |check: usize| {
        choose_results(&finished, false, check)
            .iter()
            .map(|result| result.spectrum)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (chosen_spectra(0), chosen_spectra(1), chosen_spectra(2)),
        (vec![1, 4, 6], vec![2, 5, 6], vec![1, 4, 6])
    );
}
