//! First guess: a library of templates against a spectrum's lines over all velocities, arms summed (design §2.10).
//!
//! A template's χ² at a shift is const + Σ s² l² − 2 Σ s (D − s) l, with s = weight · continuum and l = template / its continuum − 1:
//! two cross-correlations. The library's l and l² are replaced by a few principal components, which makes them cheap.

mod components;
mod library;
mod unit;

use rayon::prelude::*;

use super::prepare::Prepared;
use super::sampling::Sampling;
use super::{ModelArm, ModelParameter, SpectralModel};
use crate::error::Result;
use crate::solver::recording::{LIGHT, Velocity};
use library::{library, physical_labels};
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
    units: Vec<Unit>,
    /// km/s
    velocities: Vec<f64>,
    velocity: Option<(usize, ModelParameter)>,
}

impl FirstGuess {
    /// Evaluates the library.
    pub fn new(model: &SpectralModel, seed: u64) -> Result<FirstGuess> {
        let parameters = library(model, seed)?;
        let mut units = Vec::new();
        let (low, high) = model.velocity_range();
        for (a, arm) in model.arms.iter().enumerate() {
            let labels: Vec<f64> = parameters.iter().flat_map(|u| physical_labels(model, arm, u)).collect();
            // pieces of a fixed size: the same bits with any number of threads
            let pieces = labels.par_chunks(PIECE * arm.inputs.len());
            let flux: Vec<f32> = pieces.flat_map_iter(|labels| arm.emulator.templates(labels)).collect();
            for segment in 0..arm.grid.segments.len() {
                units.push(Unit::new(arm, (a, segment), &flux, parameters.len(), (low, high)));
            }
        }
        let velocities = velocities(&units[0], &model.arms[0], low, high);
        for unit in &mut units {
            unit.place(&model.arms[unit.arm], &velocities);
        }
        let first = &model.arms[0];
        let scaled = parameters.iter().map(|u| first.emulator.scaled(&physical_labels(model, first, u))).collect();
        let velocity =
            if let Velocity::Parameter(p) = model.velocity { Some((p, model.parameters[p].clone())) } else { None };
        Ok(FirstGuess { parameters, scaled, units, velocities, velocity })
    }

    /// The library's points in u, the velocity not set.
    pub fn points(&self) -> &[Vec<f64>] {
        &self.parameters
    }

    /// The best distinct starts, at most `count`, at least one.
    pub fn starts(&self, prepared: &Prepared, samplings: &[&Sampling], count: usize) -> Vec<Start> {
        let scores = self.scores(prepared, samplings);
        let width = self.velocities.len();
        let mut best: Vec<(usize, usize, f32)> = Vec::with_capacity(self.parameters.len());
        for (k, row) in scores.chunks_exact(width).enumerate() {
            let lowest = row.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).unwrap_or((0, &0.0));
            best.push((k, lowest.0, *lowest.1));
        }
        best.sort_by(|a, b| a.2.total_cmp(&b.2).then(a.0.cmp(&b.0)));
        let mut chosen: Vec<(usize, f64, f64)> = Vec::new();
        for (k, at, score) in best {
            let v = self.refined_velocity(&scores[k * width..][..width], at);
            let distinct = |&(other, velocity, _): &(usize, f64, f64)| {
                let pairs = self.scaled[k].iter().zip(&self.scaled[other]);
                pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) > DISTINCT_LABEL
                    || (v - velocity).abs() > DISTINCT_VELOCITY
            };
            if chosen.iter().all(distinct) {
                chosen.push((k, v, f64::from(score)));
            }
            if chosen.len() >= count {
                break;
            }
        }
        chosen.into_iter().map(|(k, v, score)| self.start(k, v, score)).collect()
    }

    fn start(&self, k: usize, velocity: f64, score: f64) -> Start {
        let mut u = self.parameters[k].clone();
        if let Some((p, parameter)) = &self.velocity {
            u[*p] = parameter.to_u(velocity.clamp(parameter.lower, parameter.upper));
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

    /// (templates, velocities): χ² up to a constant.
    fn scores(&self, prepared: &Prepared, samplings: &[&Sampling]) -> Vec<f32> {
        let mut total = vec![0f32; self.parameters.len() * self.velocities.len()];
        for unit in &self.units {
            let arm = &prepared.arms[unit.arm];
            let (cross, power) = unit.signals(&arm.data, &arm.smooth, samplings[unit.arm]);
            let cross = unit.lines.correlate(&cross, unit.bins, unit.shifts);
            let power = unit.squares.correlate(&power, unit.bins, unit.shifts);
            unit.add_scores(&cross, &power, &mut total);
        }
        total
    }
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
