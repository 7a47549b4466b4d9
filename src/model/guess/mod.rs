//! First guess: a library of templates, at a few vsini where that is free, against a spectrum's lines over all velocities, arms
//! summed (design §2.10).
//!
//! A template's χ² at a shift is const + Σ s² l² − 2 Σ s (D − s) l, with s = weight · continuum and l = template / its continuum − 1:
//! two cross-correlations. The library's l and l² are replaced by a few principal components in wide bins, which makes them cheap; the
//! best templates are then scored with their own l and l², in finer bins, near their best velocity.

mod bins;
mod components;
mod library;
mod look;
mod unit;

use rayon::prelude::*;

use super::prepare::Prepared;
use super::sampling::Sampling;
use super::{Limits, ModelArm, ModelParameter, SpectralModel};
use crate::error::Result;
use crate::memory::check;
use crate::solver::recording::{LIGHT, Source};
use bins::Signals;
use library::{library, observed, physical_labels, rotated, rotations};
use look::{Candidate, Look};
use unit::Unit;

/// Templates that are evaluated in one product.
const PIECE: usize = 64;
/// Two starts are distinct when a scaled label differs by this, or the velocity.
const DISTINCT_LABEL: f64 = 0.6;
const DISTINCT_VELOCITY: f64 = 60.0;

/// Where a fit begins, in the solver's u.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    pub u: Vec<f64>,
}

/// The library of one model.
#[derive(Debug)]
pub struct FirstGuess {
    /// (templates, parameters) in u, the velocity zero.
    parameters: Vec<Vec<f64>>,
    /// (templates) scaled labels of the first arm.
    scaled: Vec<Vec<f64>>,
    /// The parameter of each of them, where it is one.
    label_parameters: Vec<Option<usize>>,
    units: Vec<Unit>,
    /// km/s: those of coarse bins, and those of fine ones.
    coarse: Vec<f64>,
    fine: Vec<f64>,
    free_velocity: Option<usize>,
    model: Vec<ModelParameter>,
}

/// One template of so many is looked at again.
const SHORT: usize = 8;

impl FirstGuess {
    /// Evaluates the library.
    pub fn new(model: &SpectralModel, seed: u64) -> Result<FirstGuess> {
        let points = library(model, seed)?;
        let rotations = rotations(model);
        let templates = points.len() * if model.free_vsini().is_some() { rotations.len() } else { 1 };
        let mut units = Vec::new();
        let (low, high) = model.velocity_range();
        for (a, arm) in model.arms.iter().enumerate() {
            let pixels = arm.emulator.pixels();
            check(bytes(arm, templates), || format!("a first guess from {templates} templates of {pixels} pixels"))?;
            let labels: Vec<f64> = points.iter().flat_map(|u| physical_labels(model, arm, u)).collect();
            // pieces of a fixed size: the same bits with any number of threads
            let pieces = labels.par_chunks(PIECE * arm.inputs.len());
            let flux = pieces.map(|labels| arm.emulator.templates(labels)).collect::<Vec<Vec<f32>>>().concat();
            let flux = observed(arm, flux, &rotations);
            for segment in 0..arm.grid.segments.len() {
                units.push(Unit::new(arm, (a, segment), &flux, templates, (low, high))?);
            }
        }
        let step = model.arms[0].grid.segments[units[0].segment].step;
        let [coarse, fine] =
            [&units[0].coarse, &units[0].fine].map(|bins| velocities(step * bins.bin as f64, low, high));
        for unit in &mut units {
            unit.place(&model.arms[unit.arm], &coarse, &fine);
        }
        let parameters = rotated(model, points, &rotations);
        let first = &model.arms[0];
        let scaled = parameters.iter().map(|u| first.emulator.scaled(&physical_labels(model, first, u))).collect();
        let of = |source: &Source| if let Source::Parameter(p) = source { Some(*p) } else { None };
        let label_parameters = first.inputs.iter().map(|input| of(&input.source)).collect();
        let free_velocity = model.free_velocity();
        let model = model.parameters.clone();
        Ok(FirstGuess { parameters, scaled, label_parameters, units, coarse, fine, free_velocity, model })
    }

    /// The library's points in u, the velocity not set.
    pub fn points(&self) -> &[Vec<f64>] {
        &self.parameters
    }

    /// The best distinct starts, at most `count`, at least one. What `limits` say of a start replaces the library's.
    pub fn starts(&self, prepared: &Prepared, samplings: &[&Sampling], limits: &[Limits], count: usize) -> Vec<Start> {
        let signals = self.signals(prepared, samplings);
        let range = self.free_velocity.map(|p| &limits[p]);
        let (coarse, fine) = (Look::new(&self.coarse, range), Look::new(&self.fine, range));
        let scores = self.scores(&signals);
        let row = |template: usize| &scores[template * self.coarse.len()..][..self.coarse.len()];
        let mut best: Vec<Candidate> = (0..self.parameters.len()).map(|k| coarse.lowest(k, row(k))).collect();
        let order = |a: &Candidate, b: &Candidate| a.score.total_cmp(&b.score).then(a.template.cmp(&b.template));
        // where little of a grid is left, a continuum takes up what tells templates apart: all of them are judged by what it leaves
        let absorption = self.absorption(prepared, samplings);
        let short = if absorption.is_empty() { best.len().div_ceil(SHORT) } else { best.len() };
        best.select_nth_unstable_by(short - 1, order);
        let (near, far) = best.split_at_mut(short);
        let spectrum = (self.units.as_slice(), signals.as_slice());
        for candidate in near.iter_mut() {
            coarse.refine(candidate, row(candidate.template));
            fine.look_again(candidate, spectrum);
            candidate.score -= self.absorbed(candidate.template, fine.nearest(candidate), &absorption);
        }
        near.sort_unstable_by(order);
        let mut chosen = Vec::new();
        self.choose(near, (&mut chosen, count), limits);
        if chosen.len() < count {
            far.iter_mut().for_each(|candidate| coarse.refine(candidate, row(candidate.template)));
            far.sort_unstable_by(order);
            self.choose(far, (&mut chosen, count), limits);
        }
        // a bin or so further at most: neither their order nor whether they are distinct is judged anew
        chosen.iter_mut().for_each(|candidate| fine.look_closer(candidate, spectrum));
        chosen.iter().map(|one| self.start(one, limits)).collect()
    }

    /// Adds the first candidates that are distinct from all that are chosen, until there are `count`.
    fn choose(&self, candidates: &[Candidate], (chosen, count): (&mut Vec<Candidate>, usize), limits: &[Limits]) {
        for one in candidates {
            let distinct = |other: &Candidate| {
                self.label_distance(one.template, other.template, limits) > DISTINCT_LABEL
                    || (one.velocity - other.velocity).abs() > DISTINCT_VELOCITY
            };
            if chosen.len() >= count {
                return;
            }
            if chosen.iter().all(distinct) {
                chosen.push(one.clone());
            }
        }
    }

    /// Largest difference of two templates' scaled labels, of those that the spectrum does not start elsewhere.
    fn label_distance(&self, a: usize, b: usize, limits: &[Limits]) -> f64 {
        let pairs = self.scaled[a].iter().zip(&self.scaled[b]).zip(&self.label_parameters);
        let open = pairs.filter(|(_, p)| p.is_none_or(|p| limits[p].start.is_none()));
        open.map(|((a, b), _)| (a - b).abs()).fold(0.0, f64::max)
    }

    fn start(&self, candidate: &Candidate, limits: &[Limits]) -> Start {
        let mut u = self.parameters[candidate.template].clone();
        for (p, (limits, parameter)) in limits.iter().zip(&self.model).enumerate() {
            let guess = if self.free_velocity == Some(p) { candidate.velocity } else { parameter.to_physical(u[p]) };
            // a value that is inside keeps its bits
            let said = limits.start.unwrap_or(guess);
            if self.free_velocity == Some(p) || limits.start.is_some() || said < limits.lower || said > limits.upper {
                u[p] = parameter.to_u(said.clamp(limits.lower, limits.upper));
            }
        }
        Start { u }
    }

    /// What a spectrum says in the fine bins of each unit.
    fn signals(&self, prepared: &Prepared, samplings: &[&Sampling]) -> Vec<Signals> {
        let smooth: Vec<Vec<f32>> = prepared.arms.iter().zip(samplings).map(|(arm, s)| arm.smooth(s)).collect();
        let of = |unit: &Unit| unit.signals(&prepared.arms[unit.arm].data, &smooth[unit.arm], samplings[unit.arm]);
        self.units.iter().map(of).collect()
    }

    /// Of a spectrum whose weights leave a grid's basis ill conditioned: what the continuum's directions, two by two, take of lines in
    /// each of their arm's units. Of others nothing.
    fn absorption(&self, prepared: &Prepared, samplings: &[&Sampling]) -> Vec<Vec<(usize, Signals)>> {
        let mut all = Vec::new();
        if prepared.arms.iter().all(|arm| arm.basis.is_empty()) {
            return all;
        }
        for (a, (arm, sampling)) in prepared.arms.iter().zip(samplings).enumerate() {
            let (smooth, directions) = (arm.smooth(sampling), arm.directions(sampling));
            let none = vec![0.0; smooth.len()];
            for two in directions.chunks(2 * smooth.len()) {
                let (first, second) = two.split_at(smooth.len());
                let second = if second.is_empty() { &none } else { second };
                let units = self.units.iter().enumerate().filter(|(_, unit)| unit.arm == a);
                let of = |(k, unit): (usize, &Unit)| (k, unit.absorption([first, second], &smooth, sampling));
                all.push(units.map(of).collect());
            }
        }
        all
    }

    /// The part of a template's χ² that the continuum takes up at a fine velocity.
    fn absorbed(&self, template: usize, velocity: usize, absorption: &[Vec<(usize, Signals)>]) -> f32 {
        let of = |units: &Vec<(usize, Signals)>| {
            let mut sums = [0.0; 2];
            units.iter().for_each(|(k, signals)| self.units[*k].add_absorbed(template, signals, velocity, &mut sums));
            sums[0] * sums[0] + sums[1] * sums[1]
        };
        absorption.iter().map(of).sum()
    }

    /// (templates, coarse velocities): χ² up to a constant, by the components.
    fn scores(&self, signals: &[Signals]) -> Vec<f32> {
        let mut total = vec![0f32; self.parameters.len() * self.coarse.len()];
        for (unit, fine) in self.units.iter().zip(signals) {
            unit.add_scores(&unit.coarse_signals(fine), &mut total);
        }
        total
    }
}

/// About the bytes of an arm's templates, and of the lines in one of its segments in bins of a usual width: what is not there for these
/// need not be begun.
fn bytes(arm: &ModelArm, templates: usize) -> u64 {
    let longest = arm.grid.segments.iter().map(|segment| segment.end - segment.start).max().unwrap_or(0);
    (templates as u64).saturating_mul(4 * arm.emulator.pixels() as u64 + 10 * longest as u64)
}

/// Every whole shift inside the range, km/s.
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
mod tests {
    use super::*;
    use crate::model::{RawArm, prepare};
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

    fn demo() -> (SpectralModel, FirstGuess, Spectra) {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
        let emulator = Emulator::open(format!("{data}/emulator.safetensors")).unwrap();
        let builder = SpectralModel::builder().arm("", emulator).velocity(-1000.0..=1000.0);
        let model = builder.continuum(Continuum::rbf(10)).build().unwrap();
        let guess = FirstGuess::new(&model, 3).unwrap();
        (model, guess, Spectra::open(format!("{data}/spectra.npz")).unwrap().slice(0..16))
    }

    fn all_prepared(model: &SpectralModel, spectra: &Spectra) -> (Sampling, Vec<Prepared>) {
        let arm = &spectra.arms[0];
        let Wavelength::Shared(grid) = &arm.wavelength else { panic!("one grid") };
        let sampling = Sampling::new(&model.arms[0], grid, &[], 0).unwrap();
        let both = arm.flux.chunks_exact(arm.pixels).zip(arm.ivar.chunks_exact(arm.pixels));
        let raw = both.map(|(flux, ivar)| RawArm { wavelength: grid, flux, ivar, mask: &[], resolution: None });
        let prepared = raw.map(|raw| prepare(model, &[raw], &[&sampling]).unwrap()).collect();
        (sampling, prepared)
    }

    /// However few the velocities at which a template is looked at: a start lies where its own lines fit best of all velocities, and
    /// between these.
    #[test]
    fn starts_lie_where_their_own_lines_say() {
        let (model, guess, spectra) = demo();
        let (sampling, all) = all_prepared(&model, &spectra);
        let limits: Vec<Limits> = model.parameters.iter().map(limits).collect();
        let velocity = model.free_velocity().unwrap();
        for prepared in all {
            let signals = guess.signals(&prepared, &[&sampling]);
            let starts = guess.starts(&prepared, &[&sampling], &limits, 2);
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

    /// Templates that were not looked at again serve when more starts are wanted than those give.
    #[test]
    fn many_starts_are_distinct() {
        let (model, guess, spectra) = demo();
        let (sampling, all) = all_prepared(&model, &spectra);
        let limits: Vec<Limits> = model.parameters.iter().map(limits).collect();
        let of = |count| guess.starts(&all[0], &[&sampling], &limits, count);
        let (few, many) = (of(2), of(64));
        assert!(many.len() == 64 && many[..2] == few);
        let short = guess.parameters.len().div_ceil(SHORT);
        assert!(many.len() > short);
        let is_again = |k: &usize| many[..*k].contains(&many[*k]);
        assert_eq!((0..64).find(is_again), None);
    }

    /// Where bounds or a start leave one velocity, templates are judged there, wherever the parabola of the first look has led.
    #[test]
    fn templates_are_looked_at_inside_the_bounds() {
        let (model, guess, spectra) = demo();
        let (sampling, all) = all_prepared(&model, &spectra);
        let signals = guess.signals(&all[0], &[&sampling]);
        let own = own_scores(&guess, 5, &signals);
        let velocity = &model.parameters[model.free_velocity().unwrap()];
        for (k, &at) in guess.fine.iter().enumerate() {
            let only = Limits { start: Some(at), ..limits(velocity) };
            let look = Look::new(&guess.fine, Some(&only));
            for beyond in [-200.0, -110.0, 0.0, 110.0, 200.0] {
                let mut candidate = Candidate { template: 5, velocity: at + beyond, score: f32::NAN };
                look.look_again(&mut candidate, (&guess.units, &signals));
                assert!((candidate.score - own[k]).abs() <= 1e-4 * own[k].abs(), "{at} {beyond}: {}", candidate.score);
            }
        }
    }

    fn limits(parameter: &ModelParameter) -> Limits {
        let ModelParameter { lower, upper, start, prior, .. } = parameter;
        Limits { lower: *lower, upper: *upper, start: *start, prior: *prior }
    }
}
