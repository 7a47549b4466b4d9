//! First guess: a library of templates, at a few vsini where that is free, against a spectrum's lines over all velocities, arms
//! summed (design §2.10).
//!
//! A template's χ² at a shift is const + Σ s² l² − 2 Σ s (D − s) l, with s = weight · continuum and l = template / its continuum − 1:
//! two cross-correlations. The library's l and l² are replaced by a few principal components, which makes them cheap; the best
//! templates are then scored with their own l and l² near their best velocity.

mod components;
mod library;
mod unit;

use std::ops::Range;

use rayon::prelude::*;

use super::prepare::Prepared;
use super::sampling::Sampling;
use super::{Limits, ModelArm, ModelParameter, SpectralModel};
use crate::error::Result;
use crate::memory::check;
use crate::solver::recording::{LIGHT, Source};
use library::{library, observed, physical_labels, rotated, rotations};
use unit::Unit;

/// Templates that are evaluated in one product.
const PIECE: usize = 64;
/// Two starts are distinct when a scaled label differs by this, or the velocity.
const DISTINCT_LABEL: f64 = 0.6;
const DISTINCT_VELOCITY: f64 = 60.0;

/// Where a fit begins, in the solver's u, and the score (χ² up to a constant) that chose it.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    pub u: Vec<f64>,
    pub score: f64,
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
    /// km/s
    velocities: Vec<f64>,
    free_velocity: Option<usize>,
    model: Vec<ModelParameter>,
}

/// One template of so many is looked at again.
const SHORT: usize = 8;
/// Velocities to either side of the best at which a template is looked at again.
const AROUND: usize = 2;

/// A template at its best velocity.
struct Candidate {
    template: usize,
    /// Index into the velocities.
    at: usize,
    score: f32,
}

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
            let flux: Vec<f32> = pieces.flat_map_iter(|labels| arm.emulator.templates(labels)).collect();
            let flux = observed(arm, flux, &rotations);
            for segment in 0..arm.grid.segments.len() {
                units.push(Unit::new(arm, (a, segment), &flux, templates, (low, high))?);
            }
        }
        let velocities = velocities(&units[0], &model.arms[0], low, high);
        for unit in &mut units {
            unit.place(&model.arms[unit.arm], &velocities);
        }
        let parameters = rotated(model, points, &rotations);
        let first = &model.arms[0];
        let scaled = parameters.iter().map(|u| first.emulator.scaled(&physical_labels(model, first, u))).collect();
        let of = |source: &Source| if let Source::Parameter(p) = source { Some(*p) } else { None };
        let label_parameters = first.inputs.iter().map(|input| of(&input.source)).collect();
        let free_velocity = model.free_velocity();
        let model = model.parameters.clone();
        Ok(FirstGuess { parameters, scaled, label_parameters, units, velocities, free_velocity, model })
    }

    /// The library's points in u, the velocity not set.
    pub fn points(&self) -> &[Vec<f64>] {
        &self.parameters
    }

    /// The best distinct starts, at most `count`, at least one. What `limits` say of a start replaces the library's.
    pub fn starts(&self, prepared: &Prepared, samplings: &[&Sampling], limits: &[Limits], count: usize) -> Vec<Start> {
        let signals = self.signals(prepared, samplings);
        let mut scores = self.scores(&signals);
        let width = self.velocities.len();
        let allowed = self.allowed(limits);
        let lowest = |(template, row): (usize, &[f32])| {
            let all = row.iter().enumerate().take(allowed.end).skip(allowed.start);
            let (at, score) = all.min_by(|a, b| a.1.total_cmp(b.1)).unwrap_or((0, &0.0));
            Candidate { template, at, score: *score }
        };
        let mut best: Vec<Candidate> = scores.chunks_exact(width).enumerate().map(lowest).collect();
        let order = |a: &Candidate, b: &Candidate| a.score.total_cmp(&b.score).then(a.template.cmp(&b.template));
        best.sort_by(order);
        let short = best.len().div_ceil(SHORT);
        for candidate in &mut best[..short] {
            self.look_again(candidate, &signals, (&mut scores, &allowed));
        }
        best[..short].sort_by(order);
        let mut chosen: Vec<(usize, f64, f64)> = Vec::new();
        for Candidate { template, at, score } in best {
            let v = self.refined_velocity(&scores[template * width..][..width], at);
            let distinct = |&(other, velocity, _): &(usize, f64, f64)| {
                self.label_distance(template, other, limits) > DISTINCT_LABEL
                    || (v - velocity).abs() > DISTINCT_VELOCITY
            };
            if chosen.iter().all(distinct) {
                chosen.push((template, v, f64::from(score)));
            }
            if chosen.len() >= count {
                break;
            }
        }
        chosen.into_iter().map(|(k, v, score)| self.start(k, v, score, limits)).collect()
    }

    /// The velocities inside this spectrum's bounds, or the one nearest to its start.
    fn allowed(&self, limits: &[Limits]) -> Range<usize> {
        let Some(Limits { lower, upper, start, .. }) = self.free_velocity.map(|p| limits[p]) else { return 0..1 };
        let range = (start.unwrap_or(lower), start.unwrap_or(upper));
        let below = self.velocities.partition_point(|v| *v < range.0);
        let end = self.velocities.partition_point(|v| *v <= range.1);
        if below < end {
            return below..end;
        }
        let (before, after) = (below.saturating_sub(1), below.min(self.velocities.len() - 1));
        let distance = |k: usize| (self.velocities[k] - range.0).abs();
        if distance(before) <= distance(after) { before..before + 1 } else { after..after + 1 }
    }

    /// Largest difference of two templates' scaled labels, of those that the spectrum does not start elsewhere.
    fn label_distance(&self, a: usize, b: usize, limits: &[Limits]) -> f64 {
        let pairs = self.scaled[a].iter().zip(&self.scaled[b]).zip(&self.label_parameters);
        let open = pairs.filter(|(_, p)| p.is_none_or(|p| limits[p].start.is_none()));
        open.map(|((a, b), _)| (a - b).abs()).fold(0.0, f64::max)
    }

    fn start(&self, k: usize, velocity: f64, score: f64, limits: &[Limits]) -> Start {
        let mut u = self.parameters[k].clone();
        for (p, (limits, parameter)) in limits.iter().zip(&self.model).enumerate() {
            let guess = if self.free_velocity == Some(p) { velocity } else { parameter.to_physical(u[p]) };
            // a value that is inside keeps its bits
            let said = limits.start.unwrap_or(guess);
            if self.free_velocity == Some(p) || limits.start.is_some() || said < limits.lower || said > limits.upper {
                u[p] = parameter.to_u(said.clamp(limits.lower, limits.upper));
            }
        }
        Start { u, score }
    }

    /// The minimum of the parabola through the best velocity and its neighbours, km/s.
    fn refined_velocity(&self, row: &[f32], at: usize) -> f64 {
        let v = self.velocities[at];
        if at == 0 || at + 1 >= row.len() {
            return v;
        }
        let (a, b, c) = (f64::from(row[at - 1]), f64::from(row[at]), f64::from(row[at + 1]));
        let curvature = a - 2.0 * b + c;
        let offset = if curvature > 0.0 { (0.5 * (a - c) / curvature).clamp(-0.5, 0.5) } else { 0.0 };
        v + offset * 0.5 * (self.velocities[at + 1] - self.velocities[at - 1])
    }

    /// What a spectrum says in the bins of each unit.
    fn signals(&self, prepared: &Prepared, samplings: &[&Sampling]) -> Vec<(Vec<f32>, Vec<f32>)> {
        let of = |unit: &Unit| {
            let arm = &prepared.arms[unit.arm];
            unit.signals(&arm.data, &arm.smooth, samplings[unit.arm])
        };
        self.units.iter().map(of).collect()
    }

    /// (templates, velocities): χ² up to a constant.
    fn scores(&self, signals: &[(Vec<f32>, Vec<f32>)]) -> Vec<f32> {
        let mut total = vec![0f32; self.parameters.len() * self.velocities.len()];
        for (unit, (cross, power)) in self.units.iter().zip(signals) {
            let cross = unit.lines.correlate(cross, unit.bins, unit.shifts);
            let power = unit.squares.correlate(power, unit.bins, unit.shifts);
            unit.add_scores(&cross, &power, &mut total);
        }
        total
    }

    /// Scores a template with its own lines, at the velocities around its best.
    fn look_again(
        &self,
        candidate: &mut Candidate,
        signals: &[(Vec<f32>, Vec<f32>)],
        (scores, allowed): (&mut [f32], &Range<usize>),
    ) {
        let width = self.velocities.len();
        // one more to either side, whose scores the parabola through the best may ask for
        let near = candidate.at.saturating_sub(AROUND + 1)..(candidate.at + AROUND + 2).min(width);
        let row = &mut scores[candidate.template * width..][near.clone()];
        row.fill(0.0);
        for (unit, (cross, power)) in self.units.iter().zip(signals) {
            unit.add_exact_scores(candidate.template, (cross, power), near.clone(), row);
        }
        let before = candidate.at;
        let is_near = |at: &usize| at.abs_diff(before) <= AROUND && allowed.contains(at);
        let inside = near.zip(&*row).filter(|(at, _)| is_near(at));
        if let Some((at, score)) = inside.min_by(|a, b| a.1.total_cmp(b.1)) {
            (candidate.at, candidate.score) = (at, *score);
        }
    }
}

/// Bytes of an arm's templates and of the lines in one of its segments, while they are gathered.
fn bytes(arm: &ModelArm, templates: usize) -> u64 {
    let longest = arm.grid.segments.iter().map(|segment| segment.end - segment.start).max().unwrap_or(0);
    (templates as u64).saturating_mul(4 * arm.emulator.pixels() as u64 + 10 * longest as u64)
}

/// Every bin of the first unit inside the range, km/s.
fn velocities(unit: &Unit, arm: &ModelArm, low: f64, high: f64) -> Vec<f64> {
    let step = arm.grid.segments[unit.segment].step * unit.bin as f64;
    let index = |v: f64| (v / LIGHT).atanh() / step;
    let whole = index(low).ceil() as i64..=index(high).floor() as i64;
    let mut all: Vec<f64> = whole.map(|k| LIGHT * (k as f64 * step).tanh()).collect();
    if all.is_empty() {
        all.push(0.5 * (low + high));
    }
    all
}
