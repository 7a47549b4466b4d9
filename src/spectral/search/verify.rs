//! Spot checks of a GPU that fits spectra: the CPU computes a few of its results again.
//!
//! 1. *Objectives.* At the parameters of one result of each readback, the CPU evaluates the objective F of the same
//!    recording. The two may differ by rounding. If each weighted pixel of the model is off by ε, Cauchy and Schwarz
//!    allow
//!
//!    ```text
//!    |ΔF| ≤ 2 √(χ²) √(Σ ε²) + Σ ε².
//!    ```
//!
//! 2. *Minima.* A GPU can also end fits too early, at correct objectives. So the CPU continues a few of the fits that
//!    ended as successes, and the median of their costs must not fall by much.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::cpu::CpuDevice;
use crate::device::verify::{compare_costs, sample_successes, untrusted};
use crate::error::Result;
use crate::model::{Prepared, SpectralObjective};
use crate::solver::{Device, LevenbergMarquardt, Method, Outcome, Status};
use crate::spectral::input::ready::{Monitor, NEVER, ReadySpectra, ReadySpectrum};
use crate::spectral::search::pass::Pass;
use crate::spectral::search::solve::winner;
use crate::spectral::search::waiting::PassOutcomes;

/// Largest difference between two evaluations of the same objective in f32, in units of χ².
const MAX_DIFFERENCE: f64 = 0.01;
/// Largest difference as a share of the objective, in addition to the above: sums in f32 have relative errors of 1e-5.
const MAX_RELATIVE_DIFFERENCE: f64 = 1e-4;
/// Relative rounding error of the model of one pixel in f32.
const ROUNDING: f64 = 1e-5;
/// Reduction of the cost that the last step of a fit may fail to bring, in units of `ftol`. No round evaluates its end.
const LAST_STEP: f64 = 100.0;
/// Number of rounds by which the CPU continues a fit. The first evaluates its end, the others take steps from there.
const ROUNDS: u32 = 4;
/// Largest median fall of the costs in these rounds, in units of χ²: that of 0.2 errors.
///
/// The median says something of the GPU and little of the data. Fits of sound GPUs may end far from the minimum where
/// f32 does not hold the sums: one that was 50 above it had a pixel with 10⁶ times the weight of the others.
const MAX_FALL: f64 = 0.05;
/// The same as a share of the cost, in addition. Up to a cost of 10¹⁰, falls by rounding were at most 4e-6 of it.
const MAX_RELATIVE_FALL: f64 = 1e-5;
/// Smallest number of fits that have a median.
const MIN_FOR_MEDIAN: usize = 3;
/// Number of spectra that the CPU has room for. More of them take turns.
const CAPACITY: usize = 16;

/// The CPU's twin of a pass that runs on a GPU.
pub struct Verifier {
    /// Name of the GPU.
    gpu: String,
    pass: Box<Pass>,
    /// Tolerance of the fits that the GPU makes, whose last steps it may take on trust.
    ftol: f64,
}

/// A result of a GPU that is computed again.
struct Sample<'a> {
    /// Index of the spectrum among those that the GPU fits together.
    spectrum: usize,
    outcome: &'a Outcome,
}

impl Verifier {
    /// Makes the CPU's twin of a pass of a GPU with this objective, whose fits have these settings.
    ///
    /// # Errors
    /// Returns the CPU's errors.
    pub fn new(gpu: String, objective: Arc<SpectralObjective>, settings: LevenbergMarquardt) -> Result<Verifier> {
        let method = Method::LevenbergMarquardt(LevenbergMarquardt { max_rounds: ROUNDS, ..settings });
        let population = CpuDevice.population(objective.recording().clone(), &method, CAPACITY)?;
        let pass = Box::new(Pass { objective, population, verifier: None });
        Ok(Verifier { gpu, pass, ftol: settings.ftol })
    }

    /// Compares the objective of one result of each readback with the CPU's.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if they differ by more than rounding.
    pub fn check_objectives(&mut self, spectra: ReadySpectra, found: &PassOutcomes) -> Result<()> {
        let marginalise = spectra.model.marginalise;
        let samples = sample(found, marginalise);
        let (own, ends) = gather(spectra, &samples);
        let computed = self.pass.evaluate(spectra.with_spectra(&own), ends)?.concat();
        for ((one, sample), computed) in own.iter().zip(&samples).zip(&computed) {
            let [reported, expected] = [sample.outcome, computed].map(|at| at.objective(marginalise));
            if expected.is_finite() {
                compare_costs(&self.gpu, reported, expected, self.largest_difference(computed, &one.prepared), "")?;
            }
        }
        Ok(())
    }

    /// Continues some of the spectra whose fits ended as successes on the CPU, to see whether they are at minima.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) if their median cost falls by more than
    /// rounding explains.
    pub fn check_minima(&mut self, spectra: ReadySpectra, outcomes: &[Vec<Outcome>]) -> Result<()> {
        // 1. Evaluate the ends of some fits, and continue from there.
        let lowest = |k: usize| Some(&outcomes[k][winner(&outcomes[k], spectra.model.marginalise)?]);
        let some = sample_successes(0..outcomes.len(), |k| lowest(k)?.status);
        let samples = some.into_iter().filter_map(|spectrum| Some(Sample { spectrum, outcome: lowest(spectrum)? }));
        let (own, ends) = gather(spectra, &samples.collect::<Vec<_>>());
        let before = self.pass.evaluate(spectra.with_spectra(&own), ends.clone())?.concat();
        let monitor = Monitor { cancel: &NEVER, progress: &mut |_| {} };
        let after = self.pass.run(spectra.with_spectra(&own), ends, monitor)?.outcomes.concat();
        // 2. Look at how far the costs fall.
        let costs = before.iter().zip(&after).map(|(before, after)| [before, after].map(|at| at.chi2 + at.penalty));
        let mut falls: Vec<f64> = costs.map(|[before, after]| before - after - MAX_RELATIVE_FALL * before).collect();
        falls.sort_by(f64::total_cmp);
        let (count, median) = (falls.len(), falls.get(falls.len() / 2));
        match median.filter(|median| count >= MIN_FOR_MEDIAN && **median > MAX_FALL) {
            Some(fall) => Err(untrusted(
                &self.gpu,
                format!("ends fits early: the median of {count} costs falls by {fall} in a few more rounds"),
            )),
            None => Ok(()),
        }
    }

    /// Returns the largest difference that two evaluations of one objective may have: rounding, and what the last step
    /// may fail to bring.
    fn largest_difference(&self, at: &Outcome, prepared: &Prepared) -> f64 {
        let cost = at.chi2 + at.penalty;
        let rounding = prepared.unmasked as f64 * (ROUNDING * prepared.signal_to_noise).powi(2);
        let of_sums = MAX_DIFFERENCE + MAX_RELATIVE_DIFFERENCE * (cost + at.ln_det.abs());
        of_sums + LAST_STEP * self.ftol * cost + 2.0 * (cost * rounding).sqrt() + rounding
    }
}

/// Returns one result of each readback: the first success, or the first result with a finite objective.
fn sample(found: &PassOutcomes, marginalise: bool) -> Vec<Sample<'_>> {
    let is_success = |outcome: &Outcome| outcome.status.is_some_and(Status::is_success);
    let mut samples: BTreeMap<u32, Sample> = BTreeMap::new();
    for (spectrum, group) in found.outcomes.iter().enumerate() {
        let Some(best) = winner(group, marginalise) else { continue };
        let outcome = &group[best];
        match samples.entry(found.submissions[spectrum]) {
            Entry::Vacant(place) => {
                place.insert(Sample { spectrum, outcome });
            }
            Entry::Occupied(mut first) if is_success(outcome) && !is_success(first.get().outcome) => {
                first.insert(Sample { spectrum, outcome });
            }
            Entry::Occupied(_) => {}
        }
    }
    samples.into_values().collect()
}

/// Returns the spectra of some samples, and one start for each: the parameters that the GPU reported.
fn gather(spectra: ReadySpectra, samples: &[Sample]) -> (Vec<ReadySpectrum>, Vec<Vec<Vec<f64>>>) {
    let each = samples.iter();
    each.map(|one| (spectra.spectra[one.spectrum].clone(), vec![one.outcome.parameters.clone()])).unzip()
}

#[cfg(test)]
mod tests {
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
    use crate::spectral::search::solve::Passes;
    use crate::{Continuum, Device as Chosen, Emulator, Spectra, SpectralModel};

    /// Spectra of the demo, what the CPU finds for them, and a verifier to which this is a GPU's.
    struct Fits {
        model: SpectralModel,
        grids: Vec<Grids>,
        ready: Vec<ReadySpectrum>,
        /// Standard errors in the solver's units u, of one parameter while the others are held.
        errors: Vec<Vec<f64>>,
        found: PassOutcomes,
        verifier: Verifier,
    }

    /// Fits five spectra of the demo from their minima.
    fn fits() -> Fits {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
        let emulator = Emulator::open(format!("{data}/emulator.safetensors")).unwrap();
        let builder = SpectralModel::builder().arm("", emulator).velocity(-1000.0..=1000.0);
        let model = builder.continuum(Continuum::rbf(10)).marginalise(true).build().unwrap();
        let spectra = Spectra::open(format!("{data}/spectra.npz")).unwrap().slice(0..5);
        let fitter = SpectralFitter::new(model.clone(), Chosen::cpu());
        let rows = fitter.fit(&spectra).unwrap().to_rows();
        let arms = matched(&model, &spectra).unwrap();
        let grids = fitter.run().unwrap().grids(&arms, &spectra).unwrap();
        let mut ready = Vec::new();
        for (place, row) in rows.iter().enumerate() {
            let prepared = Arc::new(prepare_one(&model, &arms, &grids, place).unwrap());
            let u = model.parameters.iter().zip(&row.parameters).map(|(p, x)| p.to_u(*x)).collect();
            let limits = model.parameters.iter().map(ModelParameter::limits).collect();
            let starts = vec![Start { u, basin: 0 }];
            ready.push(ReadySpectrum { place, prepared, limits, starts, may_add_starts: false });
        }
        let layout = layout_for(layout(&model, &arms, &grids), ready.iter().map(|one| &*one.prepared));
        let (solver, precision) = (fitter.solver, Precision::F32);
        let settings = PassSettings { solver, precision, has_evaluation: false, memory: None, max_starts: 5 };
        let shared = Shared::default();
        let mut passes = Passes::new(&model, &shared, &layout, &CpuDevice, settings).unwrap();
        let together = ReadySpectra { model: &model, grids: &grids, spectra: &ready, guess: None };
        let monitor = Monitor { cancel: &NEVER, progress: &mut |_| {} };
        let found = passes.rounds(together, together.starts(), monitor).unwrap();
        let error = |one: &Outcome, p: usize| one.normal_matrix[packed_index(p, p)].powf(-0.5);
        let of_fit = |group: &Vec<Outcome>| (0..model.parameters.len()).map(|p| error(&group[0], p)).collect();
        let errors = found.outcomes.iter().map(of_fit).collect();
        let objective = shared.objective(&model, &layout, precision, false);
        let verifier = Verifier::new("gpu".into(), objective, LevenbergMarquardt::default()).unwrap();
        drop(passes);
        Fits { model, grids, ready, errors, found, verifier }
    }

    impl Fits {
        /// Runs one of the checks on outcomes that `change` has changed; it receives each one and its spectrum's index.
        fn check(&mut self, minima: bool, change: impl Fn(usize, &mut Outcome)) -> Result<()> {
            let Fits { model, grids, ready, found, verifier, .. } = self;
            let spectra = ReadySpectra { model, grids, spectra: ready, guess: None };
            let mut outcomes = found.outcomes.clone();
            outcomes.iter_mut().enumerate().for_each(|(k, group)| group.iter_mut().for_each(|one| change(k, one)));
            if minima {
                return verifier.check_minima(spectra, &outcomes);
            }
            let submissions = found.submissions.clone();
            verifier.check_objectives(spectra, &PassOutcomes { outcomes, submissions })
        }
    }

    #[test]
    fn sound_results_are_trusted() {
        let mut fits = fits();
        fits.check(false, |_, _| {}).unwrap();
        fits.check(true, |_, _| {}).unwrap();
        // Nothing is compared where there is no number.
        fits.check(false, |_, one| one.chi2 = f64::NAN).unwrap();
    }

    #[test]
    fn wrong_objectives_are_found() {
        let mut fits = fits();
        for factor in [0.0, 0.99, 1.01, 1e3] {
            let checked = fits.check(false, |_, one| one.chi2 *= factor);
            assert!(matches!(checked, Err(Error::DeviceUntrusted { .. })), "{factor}: {checked:?}");
        }
        let errors = fits.errors.clone();
        for (p, parameter) in fits.model.parameters.clone().iter().enumerate() {
            let checked = fits.check(false, |k, one| one.parameters[p] += 5.0 * errors[k][p]);
            assert!(matches!(checked, Err(Error::DeviceUntrusted { .. })), "{}: {checked:?}", parameter.solver.name);
        }
    }

    #[test]
    fn fits_that_end_early_are_found() {
        let mut fits = fits();
        let errors = fits.errors.clone();
        for (p, parameter) in fits.model.parameters.clone().iter().enumerate() {
            let name = &parameter.solver.name;
            let shift = |k: usize, one: &mut Outcome, by: f64| one.parameters[p] += by * errors[k][p];
            // one error is too much for most of them, and five are nothing unusual for two
            let most = fits.check(true, |k, one| shift(k, one, if k < 2 { 0.0 } else { 1.0 })).unwrap_err();
            assert!(most.to_string().contains("the median of 5"), "{name}: {most}");
            fits.check(true, |k, one| shift(k, one, if k < 2 { 5.0 } else { 0.0 })).unwrap();
            // a failure is not expected to be at a minimum
            let failed = |k: usize, one: &mut Outcome| {
                shift(k, one, 5.0);
                one.status = Some(Status::MaxRounds);
            };
            fits.check(true, failed).unwrap();
        }
    }

    #[test]
    fn one_result_of_each_readback_is_computed_again() {
        let outcome = |status| vec![Outcome { status: Some(status), ..Outcome::default() }];
        let lost = || vec![Outcome { chi2: f64::NAN, ..Outcome::default() }];
        let outcomes = vec![
            outcome(Status::Stalled),
            outcome(Status::Ftol),
            outcome(Status::Xtol),
            lost(),
            outcome(Status::MaxRounds),
            outcome(Status::Stalled),
            lost(),
        ];
        let found = PassOutcomes { outcomes, submissions: vec![1, 1, 1, 2, 2, 2, 3] };
        let chosen: Vec<usize> = sample(&found, false).iter().map(|sample| sample.spectrum).collect();
        assert_eq!(chosen, [1, 4]);
    }
}
