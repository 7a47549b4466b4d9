//! A spectrum whose answer is known sits among those that go to a GPU, in each batch and in every load of a scan: when
//! it comes back wrong, so may they.
//!
//! It is made from the model itself, in the middle of the labels, with fixed noise at a signal-to-noise ratio of 30,
//! sampled as the batch is. The CPU fits it once; a member of its own changes no bit of its neighbours' fits.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::Flags;
use super::SpectralFitter;
use super::assemble::assemble;
use super::ready::{Grids, Ready};
use super::row::FitRow;
use super::shared::Shared;
use super::solve::Passes;
use super::{Solver, blank};
use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::model::{
    ArmLayout, LineSpread, ModelParameter, Prepared, RawArm, Sampling, SpectralModel, SpectralObjective, Start, prepare,
};
use crate::solver::{Device, LevenbergMarquardt, Method, Objective, Outcome, Status};

/// Signal-to-noise ratio of a pixel.
const SIGNAL: f64 = 30.0;
/// Distance of its fit's start from the truth, as a share of the bounds: large enough that the fit takes some rounds,
/// and small enough that there is one minimum.
const OFFSET: f64 = 1e-3;
/// Allowed differences of parameters, in errors. Devices agree to 0.02; a simplex ends within √rounding of χ².
const ERRORS: f64 = 0.05;
const ERRORS_OF_SIMPLEX: f64 = 0.5;
/// Allowed differences of χ²: f32 sums are good to 1e-5 of it.
const CHI2: (f64, f64) = (0.01, 1e-3);
/// Fewer spectra than this have none among them, but at the end.
const LEAST: usize = 8;

/// The spectrum, and the row that the CPU makes of it.
pub struct Canary {
    layout: Vec<ArmLayout>,
    /// Samplings for which it was made; only those that all spectra share come again.
    shared: Vec<Option<Arc<Sampling>>>,
    ready: Ready,
    answer: FitRow,
    /// χ² with penalties, and the objective, where its fit begins.
    at_start: (f64, f64),
}

impl Canary {
    /// For spectra sampled as the one at `place` is. `None` where the model, in the middle of its labels, has no finite
    /// χ².
    pub fn new(fitter: &SpectralFitter, layout: &[ArmLayout], grids: &[Grids], place: usize) -> Result<Option<Canary>> {
        let samplings: Vec<&Sampling> = grids.iter().filter_map(|grid| grid.of(place).ok()).map(|s| &**s).collect();
        let Some(mut ready) = made_up(fitter, (layout, grids, &samplings), place)? else { return Ok(None) };
        let parameters = &fitter.model.parameters;
        for (u, p) in ready.starts[0].u.iter_mut().zip(parameters) {
            *u = (*u + OFFSET * (p.to_u(p.upper) - p.to_u(p.lower))).clamp(p.to_u(p.lower), p.to_u(p.upper));
        }
        let kinds = (fitter.solver, fitter.precision, false);
        let mut passes = Passes::new((&fitter.model, &Shared::default()), layout, &CpuDevice, kinds, (None, 1))?;
        let (never, one) = (AtomicBool::new(false), std::slice::from_ref(&ready));
        let outcomes = passes.solve(&fitter.model, grids, one, (&never, &mut |_| {}))?;
        let begin = passes.evaluate(&fitter.model, grids, one, (false, (&never, &mut |_| {})))?;
        let answer = row(fitter, &ready, &outcomes[0]);
        let (shared, at_start) = (grids.iter().map(shared).collect(), at_start(fitter, &ready, &begin[0]));
        let is_known = answer.chi2.is_finite() && at_start.1.is_finite();
        Ok(is_known.then(|| Canary { layout: layout.to_vec(), shared, ready, answer, at_start }))
    }

    /// Returns whether it is one for these spectra, too.
    pub fn suits(&self, layout: &[ArmLayout], grids: &[Grids]) -> bool {
        let same = |(own, grid): (&Option<Arc<Sampling>>, &Grids)| match (own, grid) {
            (Some(own), Grids::Shared(other)) => Arc::ptr_eq(own, other),
            _ => false,
        };
        self.layout == layout && self.shared.iter().zip(grids).all(same)
    }

    /// Puts one behind every `chunk` spectra, and behind the last; returns their places, ascending.
    pub fn join(&self, ready: &mut Vec<Ready>, chunk: usize) -> Vec<usize> {
        let (chunk, mut places) = (chunk.max(LEAST), Vec::new());
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

    /// Returns the spectrum that joins those of a scan.
    pub fn in_scan(&self) -> Ready {
        self.ready.clone()
    }

    /// Judges what a scan found for it, as [`judge`](Self::judge) does: at its start, or, when all were fitted again,
    /// at its end.
    pub fn judge_in_scan(&self, fitter: &SpectralFitter, device: &str, (found, refit): (&Outcome, bool)) -> Result<()> {
        if refit {
            return self.judge(fitter, device, std::slice::from_ref(found), false);
        }
        let (cost, objective) = self.at_start;
        let now = at_start(fitter, &self.ready, found).1;
        if (now - objective).abs() <= CHI2.0 + CHI2.1 * cost {
            return Ok(());
        }
        Err(untrusted(device, &format!("has an objective of {now}, not {objective}")))
    }

    /// [`Error::DeviceUntrusted`] when a device's outcomes are not what they should be. A fit that was interrupted says
    /// nothing.
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

    /// Returns the difference between a row and the known answer in words, if there is one.
    fn difference(&self, fitter: &SpectralFitter, found: &FitRow) -> Option<String> {
        let answer = &self.answer;
        let is_success = |row: &FitRow| row.status.is_success();
        if found.chi2.is_nan() || is_success(found) != is_success(answer) && !is_short(answer, found) {
            return Some(format!("ends as {} with a chi2 of {}", found.status_text, found.chi2));
        }
        if !is_success(answer) || !is_success(found) {
            // on its way two devices may differ
            return (found.chi2 <= 0.0 && answer.chi2 > 0.0).then(|| format!("has a chi2 of {}", found.chi2));
        }
        if (found.chi2 - answer.chi2).abs() > CHI2.0 + CHI2.1 * answer.chi2 {
            return Some(format!("has a chi2 of {}, not {}", found.chi2, answer.chi2));
        }
        if answer.flags.contains(Flags::UNDETERMINED) || answer.at_bound != 0 {
            return None;
        }
        let allowed = if matches!(fitter.solver, Solver::LevenbergMarquardt(_)) { ERRORS } else { ERRORS_OF_SIMPLEX };
        let names = fitter.model.parameters.iter().map(|p| &p.solver.name);
        let pairs = names.zip(&found.parameters).zip(answer.parameters.iter().zip(&answer.errors));
        let mut far = pairs.filter(|((_, x), (y, error))| error.is_finite() && (*x - *y).abs() > allowed * **error);
        far.next().map(|((name, x), (y, error))| format!("has {name} {x}, not {y} ± {error}"))
    }
}

/// Returns whether there were about as many rounds as the fit takes: then one of two devices may end it, and the other
/// not.
fn is_short(answer: &FitRow, found: &FitRow) -> bool {
    let [ends, stops] = if answer.status == Status::MaxRounds { [found, answer] } else { [answer, found] };
    stops.status == Status::MaxRounds && 2 * ends.rounds >= stops.rounds
}

fn untrusted(device: &str, what: &str) -> Error {
    Error::DeviceUntrusted { device: device.into(), message: format!("a spectrum of known answer {what}") }
}

/// χ² with penalties, and the objective.
fn at_start(fitter: &SpectralFitter, ready: &Ready, found: &Outcome) -> (f64, f64) {
    (found.chi2 + found.penalty, fitter.finish().objective(found, &ready.prepared))
}

fn shared(grid: &Grids) -> Option<Arc<Sampling>> {
    match grid {
        Grids::Shared(sampling) => Some(sampling.clone()),
        Grids::Own(_) => None,
    }
}

/// The row of a fit.
fn row(fitter: &SpectralFitter, ready: &Ready, outcomes: &[Outcome]) -> FitRow {
    let mut row = blank::nobody(&fitter.model);
    fitter.finish().fill(&mut row, outcomes, ready);
    row
}

/// The spectrum of the model at its middle, which is where it starts.
fn made_up(
    fitter: &SpectralFitter,
    (layout, grids, samplings): (&[ArmLayout], &[Grids], &[&Sampling]),
    place: usize,
) -> Result<Option<Ready>> {
    let model = &fitter.model;
    let (starts, limits) = (vec![middle(fitter)], model.parameters.iter().map(ModelParameter::limits).collect());
    let ones: Vec<Vec<f64>> = samplings.iter().map(|s| vec![1.0; s.pixels]).collect();
    let Some(prepared) = prepared(model, layout, samplings, (&ones, &ones)) else { return Ok(None) };
    let mut ready = Ready { place, prepared, limits, starts, may_look: false };
    let flux = flux(fitter, (layout, grids, samplings), &ready)?;
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
    let Some(prepared) = self::prepared(model, layout, samplings, (&noisy, &ivar)) else { return Ok(None) };
    ready.prepared = prepared;
    Ok(Some(ready))
}

/// Prepares it as any other spectrum; its own resolution, where the model asks for one, is the identity.
fn prepared(
    model: &SpectralModel,
    layout: &[ArmLayout],
    samplings: &[&Sampling],
    (flux, ivar): (&[Vec<f64>], &[Vec<f64>]),
) -> Option<Prepared> {
    let identity = |a: usize| -> Vec<f32> {
        let (pixels, diagonals) = (samplings[a].pixels, layout[a].diagonals);
        (0..diagonals * pixels).map(|k| if k / pixels == diagonals / 2 { 1.0 } else { 0.0 }).collect()
    };
    let resolutions: Vec<Vec<f32>> = (0..samplings.len()).map(identity).collect();
    let raw = |a: usize| RawArm {
        wavelength: Cow::Borrowed(&[]),
        flux: Cow::Borrowed(&flux[a]),
        ivar: Cow::Borrowed(&ivar[a]),
        mask: &[],
        resolution: (model.arms[a].line_spread == LineSpread::File).then_some(&resolutions[a][..]),
    };
    let raw: Vec<RawArm> = (0..samplings.len()).map(raw).collect();
    prepare(model, &raw, samplings).ok()
}

/// Returns a start near the middle of the bounds, in u: the nearest of the library's points, which lie inside the
/// hulls; without a library the middle itself.
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

/// The model at the start of `ready`, arm by arm (pixels), computed on the CPU.
fn flux(
    fitter: &SpectralFitter,
    (layout, grids, samplings): (&[ArmLayout], &[Grids], &[&Sampling]),
    ready: &Ready,
) -> Result<Vec<Vec<f64>>> {
    let objective = SpectralObjective::new(&fitter.model, layout, fitter.precision.of_results());
    let one = std::slice::from_ref(ready);
    let batch = assemble(&fitter.model, &objective, grids, (one, &[ready.starts()]));
    let method = Method::LevenbergMarquardt(LevenbergMarquardt::default());
    let mut population = CpuDevice.population(Arc::new(objective.record()), &method, 1)?;
    pollster::block_on(population.load(&batch))?;
    let models: Vec<_> = objective.arms.iter().map(|arm| arm.model).collect();
    let rows = pollster::block_on(population.inspect_all(&models))?;
    Ok(rows.into_iter().zip(samplings).map(|(row, sampling)| row[..sampling.pixels].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::fit::Device as Chosen;
    use crate::fit::pass::Watched;
    use crate::{Continuum, Emulator, NelderMead, Spectra};

    /// A fitter of the demo's spectra, and these.
    fn setup(solver: impl Into<Solver>, device: Chosen) -> (SpectralFitter, Spectra<'static>) {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
        let emulator = Emulator::open(format!("{data}/emulator.safetensors")).unwrap();
        let builder = SpectralModel::builder().arm("", emulator).velocity(-1000.0..=1000.0);
        let model = builder.continuum(Continuum::rbf(10)).marginalise(true).build().unwrap();
        let spectra = Spectra::open(format!("{data}/spectra.npz")).unwrap().slice(0..2);
        (SpectralFitter::new(model, device).solver(solver), spectra)
    }

    /// The canary of some spectra, and what a device makes of it.
    fn sing(fitter: &SpectralFitter, spectra: &Spectra, device: &dyn Device) -> (Canary, Vec<Outcome>) {
        let mut run = fitter.run().unwrap();
        let arms = crate::fit::assemble::matched(&fitter.model, spectra).unwrap();
        let grids = run.grids(&arms, spectra).unwrap();
        let layout = crate::fit::layout::layout(&fitter.model, &arms, &grids);
        let begin = Instant::now();
        let canary = Canary::new(fitter, &layout, &grids, 0).unwrap().expect("an answer");
        println!("made in {:?}: {:?}", begin.elapsed(), canary.answer);
        let kinds = (fitter.solver, fitter.precision, false);
        let mut passes = Passes::new((&fitter.model, &Shared::default()), &layout, device, kinds, (None, 1)).unwrap();
        let watched: Watched = (&AtomicBool::new(false), &mut |_| {});
        let one = std::slice::from_ref(&canary.ready);
        let outcomes = passes.solve(&fitter.model, &grids, one, watched).unwrap().remove(0);
        (canary, outcomes)
    }

    /// With about as many rounds as it takes a fit may end on one device and not on the other; with many more it must.
    #[test]
    fn few_rounds_may_end_it_or_not() {
        let (fitter, spectra) = setup(LevenbergMarquardt::default(), Chosen::cpu());
        let (canary, mut outcomes) = sing(&fitter, &spectra, &CpuDevice);
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
        let (canary, outcomes) = sing(&fitter, &spectra, &*device.inner);
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
        // a parameter alone, by what is more than twice the allowed
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
