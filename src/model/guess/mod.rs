//! First guess: a library of templates, at a few vsini where that is free, against a spectrum's lines over all
//! velocities, arms summed (see `docs/src/equations.md`).
//!
//! A template's χ² at a shift is const + Σ s² l² − 2 Σ s (D − s) l, with s = weight · continuum and l = template / its
//! continuum − 1: two cross-correlations. The library's l and l² are replaced by sixteen principal components in bins
//! twice as wide as the lines allow, which makes them cheap. The best eighth is then judged as a fit would judge it, in
//! bins that suit the lines and with a continuum of its own (`refit.rs`). Those that compete become starts
//! (`choose.rs`), after a closer look at five velocities and the parabola between them.

mod bins;
mod choose;
mod components;
mod effects;
mod effort;
mod library;
mod lines;
mod look;
mod refit;
mod stretches;
mod unit;

use rayon::prelude::*;

use super::prepare::Prepared;
use super::sampling::Sampling;
use super::{Limits, ModelArm, ModelParameter, SpectralModel};
use crate::error::Result;
use crate::memory::check;
use crate::recording::{LIGHT, Source};
use bins::Signals;
use choose::Distances;
pub use choose::MOST_COMPETING;
use effort::Effort;
pub use effort::MOST_STARTS;
use library::{library, observed, physical_labels, rotated, rotations};
use look::{Candidate, Look};
use refit::{Arm, add_refitted};
use unit::Unit;

/// Templates that are evaluated in one product.
const PIECE: usize = 64;
/// Start of a fit, in the solver's u.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    pub u: Vec<f64>,
    /// Starts in one basin of the first guess have the same number.
    pub basin: usize,
}

/// The library of one model.
#[derive(Debug)]
pub struct FirstGuess {
    /// (templates, parameters) in u, the velocity zero.
    parameters: Vec<Vec<f64>>,
    distances: Distances,
    units: Vec<Unit>,
    /// km/s: those of coarse bins, and those of fine ones.
    coarse: Vec<f64>,
    fine: Vec<f64>,
    free_velocity: Option<usize>,
    model: Vec<ModelParameter>,
    marginalise: bool,
}

/// One template of so many is judged with a continuum of its own.
const SHORT: usize = 8;

impl FirstGuess {
    /// Computes the templates of a quasi-random sample of labels, and all that depends on no spectrum, for guessing
    /// starts.
    pub fn new(model: &SpectralModel, seed: u64) -> Result<FirstGuess> {
        let points = library(model, seed)?;
        let rotations = rotations(model);
        let templates = points.len() * if model.free_vsini().is_some() { rotations.len() } else { 1 };
        let mut units = Vec::new();
        let range = model.velocity_range();
        for (a, arm) in model.arms.iter().enumerate() {
            let pixels = arm.emulator.pixels();
            check(bytes(arm, templates), || format!("a first guess from {templates} templates of {pixels} pixels"))?;
            let labels: Vec<f64> = points.iter().flat_map(|u| physical_labels(model, arm, u)).collect();
            let pieces = labels.par_chunks(PIECE * arm.inputs.len());
            let evaluator = arm.emulator.evaluator();
            let flux = pieces.map(|labels| evaluator.templates(labels)).collect::<Vec<Vec<f32>>>().concat();
            let flux = observed(arm, flux, &rotations);
            for segment in 0..arm.grid.segments.len() {
                units.push(Unit::new(arm, a, segment, &flux, templates, range.clone())?);
            }
        }
        let step = model.arms[0].grid.segments[units[0].segment].step;
        let [coarse, fine] = [&units[0].coarse, &units[0].fine]
            .map(|bins| velocities(step * bins.bin as f64, *range.start(), *range.end()));
        for unit in &mut units {
            unit.place_velocities(&model.arms[unit.arm], &coarse, &fine);
        }
        let parameters = rotated(model, points, &rotations);
        let first = &model.arms[0];
        let scaled = parameters.iter().map(|u| first.emulator.scaled(&physical_labels(model, first, u))).collect();
        let of = |source: &Source| if let Source::Parameter(p) = source { Some(*p) } else { None };
        let label_parameters = first.inputs.iter().map(|input| of(&input.source)).collect();
        let lines: Vec<&[f32]> = units.iter().map(Unit::own_lines).collect();
        let distances = Distances::new(scaled, label_parameters, &lines);
        let (free_velocity, marginalise) = (model.free_velocity(), model.marginalise);
        let model = model.parameters.clone();
        Ok(FirstGuess { parameters, distances, units, coarse, fine, free_velocity, model, marginalise })
    }

    /// Returns the parameters of every template, in the solver's units; the velocity in them has no meaning.
    pub fn points(&self) -> &[Vec<f64>] {
        &self.parameters
    }

    /// Guesses starting points of a spectrum's fit by correlating it with the templates: 1 to `count` of them, or those
    /// with competitive χ². What `limits` say of a start replaces the library's.
    pub fn starts(
        &self,
        prepared: &Prepared,
        samplings: &[&Sampling],
        limits: &[Limits],
        count: Option<usize>,
    ) -> Vec<Start> {
        let smooth = smooths(prepared, samplings);
        let signals = self.signals(prepared, &smooth, samplings);
        let range = self.free_velocity.map(|p| &limits[p]);
        let (coarse, fine) = (Look::new(&self.coarse, range), Look::new(&self.fine, range));
        let scores = self.scores(&signals);
        let row = |template: usize| &scores[template * self.coarse.len()..][..self.coarse.len()];
        let effort = Effort::new(prepared);
        let templates = 0..self.parameters.len();
        let mut best: Vec<Candidate> = templates.flat_map(|k| coarse.lowest(k, row(k), effort.velocities)).collect();
        let order = |a: &Candidate, b: &Candidate| a.score.total_cmp(&b.score).then(a.template.cmp(&b.template));
        let short = if effort.refits_all { best.len() } else { best.len().div_ceil(SHORT) };
        best.select_nth_unstable_by(short - 1, order);
        let (near, far) = best.split_at_mut(short);
        for candidate in near.iter_mut() {
            coarse.refine(candidate, row(candidate.template));
            candidate.score = 0.0;
        }
        for (place, (prepared, smooth)) in prepared.arms.iter().zip(&smooth).enumerate() {
            let arm =
                Arm { place, prepared, smooth, sampling: samplings[place], units: &self.units, signals: &signals };
            add_refitted(near, arm, self.marginalise);
        }
        near.sort_unstable_by(order);
        let (mut chosen, mut far_too) = (Vec::new(), false);
        if let Some(count) = count.or(effort.starts) {
            self.distances.choose(near, &mut chosen, count, limits);
            far_too = chosen.len() < count;
            if far_too {
                far.iter_mut().for_each(|candidate| coarse.refine(candidate, row(candidate.template)));
                far.sort_unstable_by(order);
                self.distances.choose(far, &mut chosen, count, limits);
            }
        } else {
            chosen = self.distances.competing(near, limits);
        }
        let basins = self.distances.basins(if far_too { &best } else { &best[..short] }, &chosen, limits);
        // a bin or so further at most: neither their order nor whether they are distinct is judged anew
        chosen.iter_mut().for_each(|candidate| fine.look_closer(candidate, &self.units, &signals));
        chosen.iter().zip(basins).map(|(one, basin)| self.start(one, basin, limits)).collect()
    }

    /// Makes a fit's starting parameters of a candidate's template and velocity; given starts replace them, bounds clip
    /// them.
    fn start(&self, candidate: &Candidate, basin: usize, limits: &[Limits]) -> Start {
        let mut u = self.parameters[candidate.template].clone();
        for (p, (limits, parameter)) in limits.iter().zip(&self.model).enumerate() {
            let guess = if self.free_velocity == Some(p) { candidate.velocity } else { parameter.to_physical(u[p]) };
            // a value that is inside keeps its bits
            let said = limits.start.unwrap_or(guess);
            if self.free_velocity == Some(p) || limits.start.is_some() || said < limits.lower || said > limits.upper {
                u[p] = parameter.to_u(said.clamp(limits.lower, limits.upper));
            }
        }
        Start { u, basin }
    }

    /// Sums a spectrum's products with its continuum in the fine bins of each segment; `smooth` is each arm's weight ·
    /// continuum.
    fn signals(&self, prepared: &Prepared, smooth: &[Vec<f32>], samplings: &[&Sampling]) -> Vec<Signals> {
        let of = |unit: &Unit| unit.signals(&prepared.arms[unit.arm].data, &smooth[unit.arm], samplings[unit.arm]);
        self.units.iter().map(of).collect()
    }

    /// Computes χ², up to a constant and approximated by principal components, of each template at each velocity:
    /// (templates, coarse velocities).
    fn scores(&self, signals: &[Signals]) -> Vec<f32> {
        let mut total = vec![0f32; self.parameters.len() * self.coarse.len()];
        for (unit, fine) in self.units.iter().zip(signals) {
            unit.add_scores(&unit.coarse_signals(fine), &mut total);
        }
        total
    }
}

/// Fits each arm's continuum without spectral lines, and returns weight · continuum at its pixels.
fn smooths(prepared: &Prepared, samplings: &[&Sampling]) -> Vec<Vec<f32>> {
    prepared.arms.iter().zip(samplings).map(|(arm, sampling)| arm.smooth(sampling)).collect()
}

/// Estimates the memory of an arm's templates and of the lines in one of its segments, in bins of a usual width
/// (bytes). Without room for these the work need not be begun.
fn bytes(arm: &ModelArm, templates: usize) -> u64 {
    let longest = arm.grid.segments.iter().map(|segment| segment.end - segment.start).max().unwrap_or(0);
    (templates as u64).saturating_mul(4 * arm.emulator.pixels() as u64 + 10 * longest as u64)
}

/// Returns the velocities, km/s, from `low` to `high` whose Doppler shifts are whole multiples of `step` in ln λ; else
/// their middle.
fn velocities(step: f64, low: f64, high: f64) -> Vec<f64> {
    let index = |v: f64| (v / LIGHT).atanh() / step;
    let whole = index(low).ceil() as i64..=index(high).floor() as i64;
    let mut all: Vec<f64> = whole.map(|k| LIGHT * (k as f64 * step).tanh()).collect();
    if all.is_empty() {
        all.push(0.5 * (low + high));
    }
    all
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::model::continuum::dot;
    use crate::model::{PreparedArm, RawArm, prepare};
    use crate::rows::triangle::{cholesky, packed_index, solve_lower};
    use crate::spectra::Wavelength;
    use crate::{Continuum, Emulator, Spectra};

    /// χ² of a template with its own lines at all fine velocities.
    fn own_scores(guess: &FirstGuess, template: usize, signals: &[Signals]) -> Vec<f32> {
        let mut scores = vec![0.0; guess.fine.len()];
        for (unit, signals) in guess.units.iter().zip(signals) {
            unit.add_exact_scores(template, signals, 0..guess.fine.len(), &mut scores);
        }
        scores
    }

    pub fn demo() -> (SpectralModel, FirstGuess, Spectra<'static>) {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
        let emulator = Emulator::open(format!("{data}/emulator.safetensors")).unwrap();
        let builder = SpectralModel::builder().arm("", emulator).velocity(-1000.0..=1000.0);
        let model = builder.continuum(Continuum::rbf(10)).build().unwrap();
        let guess = FirstGuess::new(&model, 3).unwrap();
        (model, guess, Spectra::open(format!("{data}/spectra.npz")).unwrap().slice(0..16))
    }

    pub fn all_prepared(model: &SpectralModel, spectra: &Spectra) -> (Sampling, Vec<Prepared>) {
        let arm = &spectra.arms[0];
        let Wavelength::Shared(grid) = &arm.wavelength else { panic!("one grid") };
        let sampling = Sampling::new(&model.arms[0], grid, &[], 0).unwrap();
        let pixels = |k: usize| k * arm.pixels..(k + 1) * arm.pixels;
        let raw = (0..arm.len()).map(|k| {
            let (flux, ivar) = (arm.flux.double(pixels(k)), arm.ivar.double(pixels(k)));
            RawArm { wavelength: arm.grid(k), flux, ivar, mask: &[], resolution: None }
        });
        let prepared = raw.map(|raw| prepare(model, &[raw], &[&sampling]).unwrap()).collect();
        (sampling, prepared)
    }

    /// However few the velocities at which a template is looked at: a start lies where its own lines fit best of all
    /// velocities, and between these.
    #[test]
    fn starts_lie_where_their_own_lines_say() {
        let (model, guess, spectra) = demo();
        let (sampling, all) = all_prepared(&model, &spectra);
        let limits: Vec<Limits> = model.parameters.iter().map(limits).collect();
        let velocity = model.free_velocity().unwrap();
        for prepared in all {
            let signals = guess.signals(&prepared, &smooths(&prepared, &[&sampling]), &[&sampling]);
            let starts = guess.starts(&prepared, &[&sampling], &limits, Some(2));
            assert_eq!(starts.len(), 2);
            for start in &starts {
                let is_its = |u: &Vec<f64>| (0..u.len()).all(|p| p == velocity || u[p] == start.u[p]);
                let template = guess.parameters.iter().position(is_its).unwrap();
                let scores = own_scores(&guess, template, &signals);
                let lowest = (0..scores.len()).min_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap();
                let found = model.parameters[velocity].to_physical(start.u[velocity]);
                let half = 0.5 * (guess.fine[1] - guess.fine[0]) + 1e-2;
                assert!((found - guess.fine[lowest]).abs() <= half, "{found} {}", guess.fine[lowest]);
                assert_ne!(found, guess.fine[lowest], "not between velocities");
            }
        }
    }

    /// χ² + ln det A of a template shifted by so many of its pixels, its continuum fitted to the spectrum's pixels
    /// themselves.
    fn refitted(arm: &PreparedArm, sampling: &Sampling, flux: &[f32], shift: f64) -> f64 {
        let pixels = sampling.pixels;
        let template = |j: usize| {
            let place = f64::from(sampling.index[j] & 0xff_ffff) + f64::from(sampling.fraction[j]) - shift;
            let place = place.clamp(0.0, flux.len() as f64 - 1.001);
            let (at, f) = (place as usize, place.fract());
            f64::from(flux[at]) * (1.0 - f) + f64::from(flux[at + 1]) * f
        };
        let (stride, data) = (arm.weight.len(), &arm.data[..pixels]);
        let row = |k: usize| -> Vec<f64> {
            let basis = &arm.basis(sampling)[k * stride..][..pixels];
            (0..pixels).map(|j| f64::from(basis[j] * arm.weight[j]) * template(j)).collect()
        };
        let rows: Vec<Vec<f64>> = (0..arm.rank).map(row).collect();
        let mut normal: Vec<f64> =
            (0..arm.rank).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|(i, j)| dot(&rows[i], &rows[j])).collect();
        let data: Vec<f64> = data.iter().map(|d| f64::from(*d)).collect();
        let mut slopes: Vec<f64> = rows.iter().map(|row| dot(row, &data)).collect();
        assert!(cholesky(&mut normal, arm.rank));
        solve_lower(&normal, &mut slopes);
        let ln_det: f64 = (0..arm.rank).map(|k| 2.0 * normal[packed_index(k, k)].ln()).sum();
        dot(&data, &data) - dot(&slopes, &slopes) + ln_det
    }

    /// Sums in bins rank templates as a fit of the continuum to the pixels does.
    #[test]
    fn templates_are_judged_with_a_continuum_of_their_own() {
        let (model, guess, spectra) = demo();
        let (sampling, all) = all_prepared(&model, &spectra);
        let limits: Vec<Limits> = model.parameters.iter().map(limits).collect();
        let (arm, free) = (&model.arms[0], model.free_velocity().unwrap());
        let labels: Vec<f64> = guess.parameters.iter().flat_map(|u| physical_labels(&model, arm, u)).collect();
        let flux = arm.emulator.templates(&labels);
        for prepared in all.iter().take(6) {
            let start = &guess.starts(prepared, &[&sampling], &limits, Some(1))[0];
            let velocity = model.parameters[free].to_physical(start.u[free]);
            let smooth = smooths(prepared, &[&sampling]);
            let signals = guess.signals(prepared, &smooth, &[&sampling]);
            let mut candidates: Vec<Candidate> =
                (0..guess.parameters.len()).map(|template| Candidate { template, velocity, score: 0.0 }).collect();
            let (prepared, smooth) = (&prepared.arms[0], &smooth[0]);
            let one = Arm { place: 0, prepared, smooth, sampling: &sampling, units: &guess.units, signals: &signals };
            add_refitted(&mut candidates, one, true);
            let shift = (velocity / LIGHT).atanh() / arm.grid.segments[0].step;
            let exact = flux.chunks(arm.emulator.pixels()).map(|flux| refitted(prepared, &sampling, flux, shift));
            let best = exact.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0;
            let rank = candidates.iter().filter(|one| one.score < candidates[best].score).count();
            assert!(rank < 4, "{rank} templates are better");
        }
    }

    /// Templates that were not looked at again serve when more starts are wanted than those give.
    #[test]
    fn many_starts_are_distinct() {
        let (model, guess, spectra) = demo();
        let (sampling, all) = all_prepared(&model, &spectra);
        let limits: Vec<Limits> = model.parameters.iter().map(limits).collect();
        let of = |count| guess.starts(&all[0], &[&sampling], &limits, Some(count));
        let (few, many) = (of(2), of(64));
        assert!(many.len() == 64 && many[..2] == few);
        let short = guess.parameters.len().div_ceil(SHORT);
        // those that are near are not all distinct
        assert!(many.len() >= short);
        let is_again = |k: &usize| many[..*k].contains(&many[*k]);
        assert_eq!((0..64).find(is_again), None);
    }

    /// The less of a spectrum counts, the more starts it has; an explicit number still holds.
    #[test]
    fn scarce_data_have_many_starts() {
        for (share, starts) in [(0.5, 8), (0.1, MOST_STARTS)] {
            let (model, guess, mut spectra) = demo();
            let limits: Vec<Limits> = model.parameters.iter().map(limits).collect();
            let arm = &mut spectra.arms[0];
            let masked = (arm.pixels as f64 * (1.0 - share)) as usize;
            arm.ivar.to_mut().chunks_mut(arm.pixels).for_each(|ivar| ivar[..masked].fill(0.0));
            let (sampling, all) = all_prepared(&model, &spectra);
            for prepared in &all {
                assert!(!prepared.arms[0].basis.is_empty());
                let of = |count| guess.starts(prepared, &[&sampling], &limits, count).len();
                assert_eq!((of(None), of(Some(3))), (starts, 3));
            }
        }
    }

    /// Templates are judged at the one velocity that bounds or a start leave, wherever the parabola of the first look
    /// has led.
    #[test]
    fn templates_are_looked_at_inside_the_bounds() {
        let (model, guess, spectra) = demo();
        let (sampling, all) = all_prepared(&model, &spectra);
        let signals = guess.signals(&all[0], &smooths(&all[0], &[&sampling]), &[&sampling]);
        let own = own_scores(&guess, 5, &signals);
        let velocity = &model.parameters[model.free_velocity().unwrap()];
        for (k, &at) in guess.fine.iter().enumerate() {
            let only = Limits { start: Some(at), ..limits(velocity) };
            let look = Look::new(&guess.fine, Some(&only));
            for beyond in [-200.0, -110.0, 0.0, 110.0, 200.0] {
                let mut candidate = Candidate { template: 5, velocity: at + beyond, score: f32::NAN };
                look.look_closer(&mut candidate, &guess.units, &signals);
                assert!((candidate.score - own[k]).abs() <= 1e-4 * own[k].abs(), "{at} {beyond}: {}", candidate.score);
            }
        }
    }

    fn limits(parameter: &ModelParameter) -> Limits {
        let ModelParameter { lower, upper, start, prior, .. } = parameter;
        Limits { lower: *lower, upper: *upper, start: *start, prior: *prior }
    }
}
