//! Results that are sound, wrong or too early, for a verifier to which they are those of a GPU.

use super::*;
use crate::error::Error;
use crate::first_guess::Start;
use crate::math::triangle::packed_index;
use crate::model::ModelParameter;
use crate::recording::Precision;
use crate::spectral::SpectralFitter;
use crate::spectral::input::assemble::{matched, prepare_one};
use crate::spectral::input::layout::{layout, layout_for};
use crate::spectral::input::ready::Grids;
use crate::spectral::search::pass::PassSettings;
use crate::spectral::search::shared::Shared;
use crate::spectral::search::shared_populations::SharedPopulations;
use crate::spectral::search::solve::Passes;
use crate::{Continuum, Device as Chosen, Emulator, Spectra, SpectralModel};

/// Spectra of the demo, what the CPU finds for them, and a verifier to which this is a GPU's.
struct Fits {
    model: SpectralModel,
    grids: Vec<Grids>,
    ready: Vec<ReadySpectrum>,
    /// Standard errors in the solver's units u, of one parameter while the others are held.
    errors: Vec<Vec<f64>>,
    found: Vec<Vec<Outcome>>,
    verifier: Verifier,
}

/// Fits five spectra of the demo from their minima.
fn fits() -> Fits {
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
    let fitter = SpectralFitter::new(model.clone(), Chosen::cpu());
    let rows = fitter.fit(&spectra).unwrap().to_rows();
    let arms = matched(&model, &spectra).unwrap();
    let grids = fitter.run().unwrap().grids(&arms, &spectra).unwrap();
    let mut ready = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let prepared = Arc::new(prepare_one(&model, &arms, &grids, place, None).unwrap());
        let u = model
            .parameters
            .iter()
            .zip(&row.parameters)
            .map(|(p, x)| p.to_u(*x))
            .collect();
        let limits = model
            .parameters
            .iter()
            .map(ModelParameter::limits)
            .collect();
        let starts = vec![Start { u, basin: 0 }];
        ready.push(ReadySpectrum {
            place,
            prepared,
            limits,
            starts,
            may_add_starts: false,
        });
    }
    let layout = layout_for(
        layout(&model, &arms, &grids),
        ready.iter().map(|one| &*one.prepared),
    );
    let (solver, precision) = (fitter.solver, Precision::F32);
    let settings = PassSettings {
        solver,
        precision,
        has_evaluation: false,
        memory: None,
        workers: 1,
        max_starts: 5,
    };
    let shared = Shared::default();
    let mut passes = Passes::new(
        &model,
        &shared,
        &layout,
        &CpuDevice,
        &SharedPopulations::default(),
        settings,
    )
    .unwrap();
    let together = ReadySpectra {
        model: &model,
        grids: &grids,
        spectra: &ready,
        guess: None,
    };
    let monitor = Monitor {
        cancel: &NEVER,
        progress: &mut |_| {},
    };
    let found = passes.rounds(together, together.starts(), monitor).unwrap();
    let error = |one: &Outcome, p: usize| one.normal_matrix[packed_index(p, p)].powf(-0.5);
    let of_fit = |group: &Vec<Outcome>| {
        (0..model.parameters.len())
            .map(|p| error(&group[0], p))
            .collect()
    };
    let errors = found.iter().map(of_fit).collect();
    let objective = shared.objective(&model, &layout, precision, false);
    let verifier =
        Verifier::new("gpu".into(), objective, LevenbergMarquardt::default(), None).unwrap();
    drop(passes);
    Fits {
        model,
        grids,
        ready,
        errors,
        found,
        verifier,
    }
}

impl Fits {
    /// Runs one of the checks on outcomes that `change` has changed; it receives each one and its spectrum's index.
    fn check(&mut self, minima: bool, change: impl Fn(usize, &mut Outcome)) -> Result<()> {
        let Fits {
            model,
            grids,
            ready,
            found,
            verifier,
            ..
        } = self;
        let spectra = ReadySpectra {
            model,
            grids,
            spectra: ready,
            guess: None,
        };
        let mut outcomes = found.clone();
        outcomes
            .iter_mut()
            .enumerate()
            .for_each(|(k, group)| group.iter_mut().for_each(|one| change(k, one)));
        if minima {
            verifier.falls.clear();
            return verifier.check_minima(spectra, &outcomes);
        }
        let submissions = vec![0; outcomes.len()];
        verifier.check_objectives(
            spectra,
            &PassOutcomes {
                outcomes,
                submissions,
            },
        )
    }
}

#[test]
fn sound_results_are_trusted() {
    let mut fits = fits();
    fits.check(false, |_, _| {}).unwrap();
    fits.check(true, |_, _| {}).unwrap();
    // Nothing is compared where there are no parameters.
    let nothing = |_, one: &mut Outcome| {
        one.chi2 = f64::NAN;
        one.parameters.fill(f64::NAN);
    };
    fits.check(false, nothing).unwrap();
}

#[test]
fn wrong_objectives_are_found() {
    let mut fits = fits();
    for factor in [0.0, 0.99, 1.01, 1e3, f64::NAN, f64::INFINITY] {
        let checked = fits.check(false, |_, one| one.chi2 *= factor);
        assert!(
            matches!(checked, Err(Error::DeviceUntrusted { .. })),
            "{factor}: {checked:?}"
        );
    }
    let errors = fits.errors.clone();
    for (p, parameter) in fits.model.parameters.clone().iter().enumerate() {
        let checked = fits.check(false, |k, one| one.parameters[p] += 5.0 * errors[k][p]);
        assert!(
            matches!(checked, Err(Error::DeviceUntrusted { .. })),
            "{}: {checked:?}",
            parameter.solver.name
        );
    }
}

#[test]
fn fits_that_end_early_are_found() {
    let mut fits = fits();
    let errors = fits.errors.clone();
    for (p, parameter) in fits.model.parameters.clone().iter().enumerate() {
        let name = &parameter.solver.name;
        // one error is too much for most of them, and five are nothing unusual for two
        let shifted = |k: usize, one: &mut Outcome, first: f64, others: f64| {
            one.parameters[p] += errors[k][p] * if k < 2 { first } else { others };
            one.chi2 += if k < 2 {
                first * first
            } else {
                others * others
            };
        };
        let most = fits
            .check(true, |k, one| shifted(k, one, 0.0, 1.0))
            .unwrap_err();
        assert!(
            most.to_string().contains("ends fits early"),
            "{name}: {most}"
        );
        fits.check(true, |k, one| shifted(k, one, 5.0, 0.0))
            .unwrap();
        // two fits are too few, but the GPU is remembered
        let few = |k: usize, one: &mut Outcome| {
            shifted(k, one, 1.0, 1.0);
            one.status = Some(if k < 2 {
                Status::Ftol
            } else {
                Status::MaxRounds
            });
        };
        fits.check(true, few).unwrap();
        let Fits {
            model,
            grids,
            ready,
            found,
            verifier,
            ..
        } = &mut fits;
        let spectra = ReadySpectra {
            model,
            grids,
            spectra: ready,
            guess: None,
        };
        let mut outcomes = found.clone();
        outcomes
            .iter_mut()
            .enumerate()
            .for_each(|(k, group)| few(k, &mut group[0]));
        assert!(verifier.check_minima(spectra, &outcomes).is_err(), "{name}");
        // a failure is not expected to be at a minimum
        let failed = |k: usize, one: &mut Outcome| {
            shifted(k, one, 5.0, 5.0);
            one.status = Some(Status::MaxRounds);
        };
        fits.check(true, failed).unwrap();
    }
}

#[test]
fn one_result_of_each_readback_is_computed_again() {
    let outcome = |status| {
        vec![Outcome {
            status: Some(status),
            ..Outcome::default()
        }]
    };
    let lost = || {
        vec![Outcome {
            chi2: f64::NAN,
            ..Outcome::default()
        }]
    };
    let outcomes = vec![
        outcome(Status::Stalled),
        outcome(Status::Ftol),
        outcome(Status::Xtol),
        lost(),
        outcome(Status::MaxRounds),
        outcome(Status::Stalled),
        lost(),
    ];
    let found = PassOutcomes {
        outcomes,
        submissions: vec![1, 1, 1, 2, 2, 2, 3],
    };
    let chosen = |turn: usize| {
        samples(&found, false, turn)
            .iter()
            .map(|sample| sample.spectrum)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (chosen(0), chosen(1), chosen(2)),
        (vec![1, 4, 6], vec![2, 5, 6], vec![1, 4, 6])
    );
}
