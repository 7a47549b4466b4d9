//! Canaries: known-answer tests of a GPU. Each batch of spectra, and each part of a scan, contains a spectrum whose
//! results are known. If a GPU returns wrong results for it, the others may be wrong too.
//!
//! The spectrum is made from the model itself, in the middle of the labels, with fixed noise at a signal-to-noise ratio
//! of 30, and with the sampling of the batch. The CPU fits it once. It changes no bit of the other fits.

use std::borrow::Cow;
use std::sync::Arc;

use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::first_guess::Start;
use crate::flag::Flags;
use crate::model::{
    ArmLayout, LineSpread, ModelParameter, Prepared, RawArm, Sampling, SpectralModel, SpectralObjective, prepare,
};
use crate::solver::{Device, LevenbergMarquardt, Method, Objective, Outcome, Status};
use crate::spectral::Solver;
use crate::spectral::SpectralFitter;
use crate::spectral::input::assemble::assemble;
use crate::spectral::input::ready::{Grids, Monitor, NEVER, ReadySpectra, ReadySpectrum};
use crate::spectral::results::blank;
use crate::spectral::results::row::FitRow;
use crate::spectral::search::pass::PassSettings;
use crate::spectral::search::shared::Shared;
use crate::spectral::search::solve::Passes;

/// Signal-to-noise ratio of a pixel.
const SIGNAL: f64 = 30.0;
/// Distance of the start of its fit from the truth, as a share of the bounds. It is large enough that the fit takes
/// some rounds, and small enough that there is one minimum.
const OFFSET: f64 = 1e-3;
/// Maximum difference of a parameter, in standard errors. Devices agree to 0.02.
const MAX_DIFFERENCE: f64 = 0.05;
/// The same after a simplex search, which ends within √rounding of χ².
const MAX_DIFFERENCE_OF_SIMPLEX: f64 = 0.5;
/// Maximum difference of χ².
const MAX_CHI2_DIFFERENCE: f64 = 0.01;
/// Maximum difference of χ² as a share of χ², in addition to the above. Sums in f32 have relative errors of 1e-5.
const MAX_RELATIVE_CHI2_DIFFERENCE: f64 = 1e-3;
/// Smallest number of spectra between two canaries.
const MIN_SPACING: usize = 8;

/// A spectrum with a known answer, and the row that the CPU makes of it.
pub struct Canary {
    layout: Vec<ArmLayout>,
    /// The sampling of each arm, if all spectra of the batch share it.
    shared: Vec<Option<Arc<Sampling>>>,
    ready: ReadySpectrum,
    answer: FitRow,
    /// χ² plus penalties at the start of its fit.
    cost_at_start: f64,
    /// Objective at the start of its fit.
    objective_at_start: f64,
}

/// The arms of a canary: their shape, and how they sample the model.
struct CanaryArms<'a> {
    layout: &'a [ArmLayout],
    grids: &'a [Grids],
    /// Sampling of the canary in each arm.
    samplings: Vec<&'a Sampling>,
}

impl Canary {
    /// Makes a canary: a simulated spectrum on the grids of the one at `place`, with the CPU's fit as known answer;
    /// `None` if it cannot be fitted. It cannot either if the model has no finite χ² in the middle of its labels.
    pub fn new(fitter: &SpectralFitter, layout: &[ArmLayout], grids: &[Grids], place: usize) -> Result<Option<Canary>> {
        // 1. Make the spectrum, and move its start away from the truth.
        let samplings = grids.iter().filter_map(|grid| grid.of(place).ok()).map(|s| &**s).collect();
        let arms = CanaryArms { layout, grids, samplings };
        let Some(mut ready) = simulated_spectrum(fitter, &arms, place)? else { return Ok(None) };
        let parameters = &fitter.model.parameters;
        for (u, p) in ready.starts[0].u.iter_mut().zip(parameters) {
            *u = (*u + OFFSET * (p.to_u(p.upper) - p.to_u(p.lower))).clamp(p.to_u(p.lower), p.to_u(p.upper));
        }
        // 2. Fit it on the CPU.
        let mut passes = Passes::new(&fitter.model, &Shared::default(), layout, &CpuDevice, settings_for_one(fitter))?;
        let spectra = ReadySpectra { model: &fitter.model, grids, spectra: std::slice::from_ref(&ready), guess: None };
        let outcomes = passes.solve(spectra, Monitor { cancel: &NEVER, progress: &mut |_| {} })?;
        let begin = &passes.evaluate(spectra)?[0];
        let answer = row(fitter, &ready, &outcomes[0]);
        let cost_at_start = begin.chi2 + begin.penalty;
        let objective_at_start = fitter.finish().objective(begin, &ready.prepared);
        let is_known = answer.chi2.is_finite() && objective_at_start.is_finite();
        let (layout, shared) = (layout.to_vec(), grids.iter().map(|grid| grid.shared().cloned()).collect());
        Ok(is_known.then_some(Canary { layout, shared, ready, answer, cost_at_start, objective_at_start }))
    }

    /// Returns whether this canary can check spectra: their layout must equal its own, and their grids must be the same
    /// shared objects.
    pub fn suits(&self, layout: &[ArmLayout], grids: &[Grids]) -> bool {
        let mut pairs = self.shared.iter().zip(grids.iter().map(Grids::shared));
        self.layout == layout
            && pairs.all(|(own, other)| own.as_ref().zip(other).is_some_and(|(a, b)| Arc::ptr_eq(a, b)))
    }

    /// Inserts a copy of the canary after every `chunk` (at least `MIN_SPACING`) spectra and after the last, and
    /// returns the copies' places. The places are indices in ascending order.
    pub fn join(&self, ready: &mut Vec<ReadySpectrum>, chunk: usize) -> Vec<usize> {
        let (chunk, mut places) = (chunk.max(MIN_SPACING), Vec::new());
        let spectra = std::mem::take(ready);
        let last = spectra.len();
        for (k, one) in spectra.into_iter().enumerate() {
            ready.push(one);
            if (k + 1) % chunk == 0 || k + 1 == last {
                places.push(ready.len());
                ready.push(self.ready.clone());
            }
        }
        places
    }

    /// Returns a copy of the spectrum of known answer (the canary), to be evaluated with others in a scan of the
    /// objective at their starts.
    pub fn in_scan(&self) -> ReadySpectrum {
        self.ready.clone()
    }

    /// Returns an error if the objective that a device found at the canary's start is not the CPU's, within tolerances.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`] if it is wrong.
    pub fn judge_start(&self, fitter: &SpectralFitter, device: &str, found: &Outcome) -> Result<()> {
        let expected = self.objective_at_start;
        let now = fitter.finish().objective(found, &self.ready.prepared);
        if (now - expected).abs() <= MAX_CHI2_DIFFERENCE + MAX_RELATIVE_CHI2_DIFFERENCE * self.cost_at_start {
            return Ok(());
        }
        Err(untrusted(device, &format!("has an objective of {now}, not {expected}")))
    }

    /// Returns an error if a device's fit of the canary is not the CPU's, within tolerances; a cancelled run may leave
    /// it unfinished. Interrupted fits are not checked.
    ///
    /// # Errors
    /// Returns [`Error::DeviceUntrusted`] if they are wrong.
    pub fn judge(&self, fitter: &SpectralFitter, device: &str, outcomes: &[Outcome], cancelled: bool) -> Result<()> {
        let is_interrupted = outcomes.iter().all(|outcome| outcome.status == Some(Status::Interrupted));
        if cancelled && is_interrupted {
            return Ok(());
        }
        let found = if outcomes.is_empty() { None } else { Some(row(fitter, &self.ready, outcomes)) };
        let wrong = found.map_or(Some("has no fit".into()), |found| self.difference(fitter, &found));
        match wrong {
            Some(what) => Err(untrusted(device, &what)),
            None => Ok(()),
        }
    }

    /// Returns in words how a device's fit of the canary differs from the CPU's beyond the tolerances; `None` if they
    /// agree.
    fn difference(&self, fitter: &SpectralFitter, found: &FitRow) -> Option<String> {
        let answer = &self.answer;
        let is_success = |row: &FitRow| row.status.is_success();
        if found.chi2.is_nan() || is_success(found) != is_success(answer) && !is_short(answer, found) {
            return Some(format!("ends as {} with a chi2 of {}", found.status_text, found.chi2));
        }
        if !is_success(answer) || !is_success(found) {
            // Two devices may differ before the fit has ended.
            return (found.chi2 <= 0.0 && answer.chi2 > 0.0).then(|| format!("has a chi2 of {}", found.chi2));
        }
        if (found.chi2 - answer.chi2).abs() > MAX_CHI2_DIFFERENCE + MAX_RELATIVE_CHI2_DIFFERENCE * answer.chi2 {
            return Some(format!("has a chi2 of {}, not {}", found.chi2, answer.chi2));
        }
        if answer.flags.contains(Flags::UNDETERMINED) || answer.at_bound != 0 {
            return None;
        }
        let has_simplex = !matches!(fitter.solver, Solver::LevenbergMarquardt(_));
        let allowed = if has_simplex { MAX_DIFFERENCE_OF_SIMPLEX } else { MAX_DIFFERENCE };
        let names = fitter.model.parameters.iter().map(|p| &p.solver.name);
        let pairs = names.zip(&found.parameters).zip(answer.parameters.iter().zip(&answer.errors));
        let mut far = pairs.filter(|((_, x), (y, error))| error.is_finite() && (*x - *y).abs() > allowed * **error);
        far.next().map(|((name, x), (y, error))| format!("has {name} {x}, not {y} ± {error}"))
    }
}

/// Returns whether one of two fits stopped at the limit of rounds and the other one ended after at least half as many
/// rounds. Two devices may differ in this.
fn is_short(answer: &FitRow, found: &FitRow) -> bool {
    let [ends, stops] = if answer.status == Status::MaxRounds { [found, answer] } else { [answer, found] };
    stops.status == Status::MaxRounds && 2 * ends.rounds >= stops.rounds
}

/// Returns the error for a device whose fit of the canary is wrong in the way that `what` says.
fn untrusted(device: &str, what: &str) -> Error {
    Error::DeviceUntrusted { device: device.into(), message: format!("a spectrum of known answer {what}") }
}

/// Returns the fitter's solver and precision as settings for the fit of one spectrum with one start.
fn settings_for_one(fitter: &SpectralFitter) -> PassSettings {
    let SpectralFitter { solver, precision, .. } = *fitter;
    PassSettings { solver, precision, has_evaluation: false, memory: None, max_starts: 1 }
}

/// Returns the row of results, without an id, for a spectrum and the outcomes of its fits from all starts.
fn row(fitter: &SpectralFitter, ready: &ReadySpectrum, outcomes: &[Outcome]) -> FitRow {
    let mut row = blank::nobody(&fitter.model);
    fitter.finish().fill(&mut row, outcomes, ready);
    row
}

/// Makes a spectrum from the model near the middle of its bounds, with noise, that starts there; `None` if it cannot be
/// fitted.
fn simulated_spectrum(fitter: &SpectralFitter, arms: &CanaryArms, place: usize) -> Result<Option<ReadySpectrum>> {
    let model = &fitter.model;
    let (starts, limits) = (vec![middle(fitter)], model.parameters.iter().map(ModelParameter::limits).collect());
    let ones: Vec<Vec<f64>> = arms.samplings.iter().map(|s| vec![1.0; s.pixels]).collect();
    let Some(prepared) = prepared(model, arms, &ones, &ones) else { return Ok(None) };
    let mut ready = ReadySpectrum { place, prepared: Arc::new(prepared), limits, starts, may_add_starts: false };
    let flux = model_flux(fitter, arms, &ready)?;
    let noise = |a: usize, j: usize| (j as f64 * 12.9898 + a as f64).sin() + (j as f64 * 78.233 - a as f64).cos();
    let (mut noisy, mut ivar) = (flux.clone(), ones);
    for (a, own) in flux.iter().enumerate() {
        let size = own.iter().fold(0.0, |sum, x| if x.is_finite() { sum + x.abs() } else { sum }) / own.len() as f64;
        let sigma = size / SIGNAL;
        for (j, x) in own.iter().enumerate() {
            let counts = x.is_finite() && sigma > 0.0;
            noisy[a][j] = if counts { x + sigma * noise(a, j) } else { 0.0 };
            ivar[a][j] = if counts { 1.0 / (sigma * sigma) } else { 0.0 };
        }
    }
    let Some(prepared) = self::prepared(model, arms, &noisy, &ivar) else { return Ok(None) };
    ready.prepared = Arc::new(prepared);
    Ok(Some(ready))
}

/// Prepares the canary's flux and ivar (by arm) as a spectrum to fit; `None` if it cannot be fitted. If the model asks
/// for resolution matrices, they are the identity.
fn prepared(model: &SpectralModel, arms: &CanaryArms, flux: &[Vec<f64>], ivar: &[Vec<f64>]) -> Option<Prepared> {
    let pairs = arms.samplings.iter().zip(arms.layout);
    let identities: Vec<Vec<f32>> = pairs.map(|(sampling, arm)| identity(sampling.pixels, arm.diagonals)).collect();
    let mut raw = Vec::with_capacity(identities.len());
    for (a, identity) in identities.iter().enumerate() {
        raw.push(RawArm {
            wavelength: Cow::Borrowed(&[]),
            flux: Cow::Borrowed(&flux[a]),
            ivar: Cow::Borrowed(&ivar[a]),
            mask: &[],
            resolution: (model.arms[a].line_spread == LineSpread::File).then_some(&identity[..]),
        });
    }
    prepare(model, &raw, &arms.samplings).ok()
}

/// Returns the identity as a resolution matrix (diagonals, pixels).
fn identity(pixels: usize, diagonals: usize) -> Vec<f32> {
    (0..diagonals * pixels).map(|k| if k / pixels == diagonals / 2 { 1.0 } else { 0.0 }).collect()
}

/// Returns, in the solver's units, the first-guess library's point nearest to the middle of the bounds, or the middle
/// itself without a library.
fn middle(fitter: &SpectralFitter) -> Start {
    let parameters = &fitter.model.parameters;
    let share = |p: &ModelParameter, u: f64| (p.to_physical(u) - p.lower) / (p.upper - p.lower);
    let centre: Vec<f64> = parameters.iter().map(|p| p.to_u(p.lower + 0.5 * (p.upper - p.lower))).collect();
    let distance = |point: &&Vec<f64>| -> f64 {
        let squares = parameters.iter().zip(*point).filter(|(p, _)| !p.is_held());
        squares.map(|(p, u)| (share(p, *u) - 0.5).powi(2)).sum()
    };
    let points = fitter.shared.library().map_or(&[][..], |guess| guess.points());
    let mut u = points.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(&centre).clone();
    if let Some(p) = fitter.model.free_velocity() {
        u[p] = centre[p];
    }
    Start { u, basin: 0 }
}

/// Computes the model's flux at a spectrum's start on the CPU, one row of pixels per arm.
fn model_flux(fitter: &SpectralFitter, arms: &CanaryArms, ready: &ReadySpectrum) -> Result<Vec<Vec<f64>>> {
    let model = &fitter.model;
    let objective = SpectralObjective::new(model, arms.layout, fitter.precision.of_results());
    let spectra = ReadySpectra { model, grids: arms.grids, spectra: std::slice::from_ref(ready), guess: None };
    let batch = assemble(&objective, spectra, &spectra.starts());
    let method = Method::LevenbergMarquardt(LevenbergMarquardt::default());
    let mut population = CpuDevice.population(Arc::new(objective.record()), &method, 1)?;
    pollster::block_on(population.load(&batch))?;
    let models: Vec<_> = objective.arms.iter().map(|arm| arm.model).collect();
    let rows = pollster::block_on(population.inspect_all(&models))?;
    Ok(rows.into_iter().zip(&arms.samplings).map(|(row, sampling)| row[..sampling.pixels].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::device::Device as Chosen;
    use crate::{Continuum, Emulator, NelderMead, Spectra};

    /// Returns a fitter for the demo's spectra, and two of these spectra.
    fn setup(solver: impl Into<Solver>, device: Chosen) -> (SpectralFitter, Spectra<'static>) {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
        let emulator = Emulator::open(format!("{data}/emulator.safetensors")).unwrap();
        let builder = SpectralModel::builder().arm("", emulator).velocity(-1000.0..=1000.0);
        let model = builder.continuum(Continuum::rbf(10)).marginalise(true).build().unwrap();
        let spectra = Spectra::open(format!("{data}/spectra.npz")).unwrap().slice(0..2);
        (SpectralFitter::new(model, device).solver(solver), spectra)
    }

    /// Returns the canary of some spectra, and the outcomes that a device finds for it.
    fn fit_canary(fitter: &SpectralFitter, spectra: &Spectra, device: &dyn Device) -> (Canary, Vec<Outcome>) {
        let mut run = fitter.run().unwrap();
        let arms = crate::spectral::input::assemble::matched(&fitter.model, spectra).unwrap();
        let grids = run.grids(&arms, spectra).unwrap();
        let layout = crate::spectral::input::layout::layout(&fitter.model, &arms, &grids);
        let begin = Instant::now();
        let canary = Canary::new(fitter, &layout, &grids, 0).unwrap().expect("an answer");
        println!("made in {:?}: {:?}", begin.elapsed(), canary.answer);
        let mut passes =
            Passes::new(&fitter.model, &Shared::default(), &layout, device, settings_for_one(fitter)).unwrap();
        let one = std::slice::from_ref(&canary.ready);
        let spectra = ReadySpectra { model: &fitter.model, grids: &grids, spectra: one, guess: None };
        let monitor = Monitor { cancel: &NEVER, progress: &mut |_| {} };
        let outcomes = passes.solve(spectra, monitor).unwrap().remove(0);
        (canary, outcomes)
    }

    /// With about as many rounds as it takes a fit may end on one device and not on the other; with many more it must.
    #[test]
    fn few_rounds_may_end_it_or_not() {
        let (fitter, spectra) = setup(LevenbergMarquardt::default(), Chosen::cpu());
        let (canary, mut outcomes) = fit_canary(&fitter, &spectra, &CpuDevice);
        let answer = canary.answer.rounds;
        let mut stopped_after = |rounds: u32| {
            outcomes.iter_mut().for_each(|outcome| {
                (outcome.status, outcome.rounds) = (Some(Status::MaxRounds), rounds);
            });
            canary.judge(&fitter, "gpu", &outcomes, false)
        };
        stopped_after(answer).unwrap();
        assert!(matches!(stopped_after(10 * answer), Err(Error::DeviceUntrusted { .. })));
    }

    fn check(solver: impl Into<Solver>, device: Chosen) {
        let (fitter, spectra) = setup(solver, device.clone());
        let (canary, outcomes) = fit_canary(&fitter, &spectra, &*device.inner);
        let judge = |outcomes: &[Outcome]| canary.judge(&fitter, "gpu", outcomes, false);
        let (found, answer) = (row(&fitter, &canary.ready, &outcomes), &canary.answer);
        let pairs = found.parameters.iter().zip(&answer.parameters).zip(&answer.errors);
        let offsets: Vec<f64> = pairs.map(|((x, y), error)| (x - y) / error).collect();
        println!("{}: {offsets:?} errors, chi2 {} for {}", device.name(), found.chi2, answer.chi2);
        assert!(answer.status.is_success() && answer.errors.iter().all(|error| error.is_finite()), "{answer:?}");
        judge(&outcomes).unwrap();
        let spoilt = |spoil: &dyn Fn(f64) -> f64| {
            let mut all = outcomes.clone();
            for outcome in &mut all {
                let numbers = outcome.parameters.iter_mut().chain(&mut outcome.gradient);
                numbers.chain(&mut outcome.normal_matrix).chain([&mut outcome.chi2]).for_each(|x| *x = spoil(*x));
            }
            all
        };
        assert!(matches!(judge(&[]), Err(Error::DeviceUntrusted { .. })));
        for spoil in [|_| 0.0, |_| f64::NAN, |x: f64| 1.01 * x, |x: f64| -x, |_| 1e30] {
            assert!(matches!(judge(&spoilt(&spoil)), Err(Error::DeviceUntrusted { .. })));
        }
        // One parameter alone is wrong by more than twice the allowed difference.
        for p in 0..answer.parameters.len() {
            let mut all = outcomes.clone();
            all[0].parameters[p] += 1.2 * answer.errors[p] / fitter.model.parameters[p].solver.scale;
            assert!(judge(&all).unwrap_err().to_string().contains(&fitter.model.parameters[p].solver.name));
        }
    }

    #[test]
    fn a_canary_is_well_on_the_cpu_and_tells_what_is_wrong() {
        check(LevenbergMarquardt::default(), Chosen::cpu());
        check(NelderMead::default(), Chosen::cpu());
    }

    #[test]
    #[cfg(feature = "gpu")]
    fn a_canary_is_well_on_a_gpu() {
        match "gpu".parse::<Chosen>() {
            Ok(gpu) => {
                check(LevenbergMarquardt::default(), gpu.clone());
                check(NelderMead::default(), gpu);
            }
            Err(error) => popfit_testing::required::skip(popfit_testing::required::Need::Gpu, error),
        }
    }
}
