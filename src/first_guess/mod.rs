//! First guess: a library of templates, at a few vsini where that is free, against a spectrum's lines over all
//! velocities, arms summed (see `docs/src/equations.md`).
//!
//! A template's χ² at a shift is const + Σ s² l² − 2 Σ s (D − s) l, with s = weight · continuum and l = template / its
//! continuum − 1: two cross-correlations. The library's l and l² are replaced by sixteen principal components in bins
//! twice as wide as the lines allow, which makes them cheap. The best eighth is then judged as a fit would judge it, in
//! bins that suit the lines and with a continuum of its own (`refit.rs`). Where little of a spectrum counts, or its
//! lines say little (`effort.rs`), all templates are judged so, and the best at all velocities. Those that compete
//! become starts (`choose.rs`), after a closer look at five velocities and the parabola between them.

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

use crate::error::Result;
use crate::io::memory::check;
use crate::model::{Limits, ModelArm, ModelParameter, Prepared, Sampling, SpectralModel};
use crate::recording::{LIGHT, Source};
use bins::Signals;
use choose::Distances;
pub use choose::MOST_COMPETING;
pub use effort::MOST_STARTS;
use effort::{Effort, Starts};
use library::{library, observed, physical_labels, rotated, rotations};
use look::{Candidate, Look};
use refit::{Arm, Refit};
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
    /// Number of successive templates that have the same labels and differ in vsini.
    rotations: usize,
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
/// Uncertainty of a guessed velocity in steps of the coarse velocities. Of 9,000 stars seen through pieces of a network
/// (`tests/reference/check_ends.py`), whose coarse velocities are 50 or 100 km/s apart, 7 ended more than five errors
/// off with 150 km/s, 9 with 100 and 20 with 60.
const UNCERTAIN_STEPS: f64 = 1.5;
/// Smallest uncertainty of a guessed velocity, in km/s.
const LEAST_UNCERTAINTY: f64 = 60.0;

/// Returns the parameters of every template of a model's library, in the solver's units, without the templates; the
/// velocity in them has no meaning.
pub fn points(model: &SpectralModel, seed: u64) -> Result<Vec<Vec<f64>>> {
    Ok(rotated(model, library(model, seed)?, &rotations(model)))
}

impl FirstGuess {
    /// Computes the templates of a quasi-random sample of labels, and all that depends on no spectrum, for guessing
    /// starts.
    pub fn new(model: &SpectralModel, seed: u64) -> Result<FirstGuess> {
        let points = library(model, seed)?;
        let rotations = rotations(model);
        let rotations_per_point = if model.free_vsini().is_some() {
            rotations.len()
        } else {
            1
        };
        let templates = points.len() * rotations_per_point;
        let mut units = Vec::new();
        let range = model.velocity_range();
        for (a, arm) in model.arms.iter().enumerate() {
            let pixels = arm.emulator.pixels();
            check(bytes(arm, templates), || {
                format!("a first guess from {templates} templates of {pixels} pixels")
            })?;
            let labels: Vec<f64> = points
                .iter()
                .flat_map(|u| physical_labels(model, arm, u))
                .collect();
            let pieces = labels.par_chunks(PIECE * arm.inputs.len());
            let evaluator = arm.emulator.evaluator();
            let flux = pieces
                .map(|labels| evaluator.templates(labels))
                .collect::<Vec<Vec<f32>>>()
                .concat();
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
        let scaled = parameters
            .iter()
            .map(|u| first.emulator.scaled(&physical_labels(model, first, u)))
            .collect();
        let of = |source: &Source| {
            if let Source::Parameter(p) = source {
                Some(*p)
            } else {
                None
            }
        };
        let label_parameters = first.inputs.iter().map(|input| of(&input.source)).collect();
        let lines: Vec<&[f32]> = units.iter().map(Unit::own_lines).collect();
        let distances = Distances::new(scaled, label_parameters, &lines);
        let (free_velocity, marginalise) = (model.free_velocity(), model.marginalise);
        let model = model.parameters.clone();
        Ok(FirstGuess {
            parameters,
            rotations: rotations_per_point,
            distances,
            units,
            coarse,
            fine,
            free_velocity,
            model,
            marginalise,
        })
    }

    /// Returns what [`points`] returned for this library.
    #[cfg(test)]
    pub fn points(&self) -> &[Vec<f64>] {
        &self.parameters
    }

    /// Returns the uncertainty of a guessed velocity (km/s): the right one usually lies within it.
    pub fn velocity_uncertainty(&self) -> f64 {
        let step = self
            .coarse
            .get(1)
            .map_or(0.0, |second| second - self.coarse[0]);
        LEAST_UNCERTAINTY.max(UNCERTAIN_STEPS * step)
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
        let signals = self.signals(prepared, &smooth, samplings, limits);
        let range = self.free_velocity.map(|p| &limits[p]);
        let (coarse, fine) = (Look::new(&self.coarse, range), Look::new(&self.fine, range));
        // 1. Judge the templates that fit best by their lines alone with continua of their own.
        let scores = self.scores(&signals);
        let (mut near, mut far) = self.shortlist(&scores, &coarse);
        let arms =
            prepared
                .arms
                .iter()
                .zip(&smooth)
                .enumerate()
                .map(|(place, (prepared, smooth))| {
                    let (sampling, units, signals) =
                        (samplings[place], &self.units[..], &signals[..]);
                    Refit::new(
                        Arm {
                            place,
                            prepared,
                            smooth,
                            sampling,
                            units,
                            signals,
                        },
                        self.marginalise,
                    )
                });
        let arms: Vec<Refit> = arms.collect();
        let by_lines = near.clone();
        judge(&arms, &mut near);
        near.sort_unstable_by(Candidate::order);
        // 2. Where lines tell little, judge all templates so, and the best of them at all velocities. Where a network
        //    ends inside the data, judge the best ones at all velocities, too.
        let is_cut = signals.iter().any(|signals| signals.is_cut)
            || prepared.arms.iter().any(|arm| arm.unreached > 0);
        let effort = Effort::new(prepared, is_cut, &by_lines, &near);
        if effort.judges_all {
            judge(&arms, &mut far);
            near.append(&mut far);
            near.sort_unstable_by(Candidate::order);
        }
        if effort.rescanned > 0 {
            near.append(&mut self.at_all_velocities(&near, effort.rescanned, &coarse, &arms));
            near.sort_unstable_by(Candidate::order);
        }
        // 3. Choose starts among them.
        let mut chosen = Vec::new();
        match (count, effort.starts) {
            (None, Starts::Competing(rule)) => {
                chosen = self.distances.competing(&near, rule, limits)
            }
            (Some(count), _) | (None, Starts::Distinct(count)) => {
                self.distances.choose(&near, &mut chosen, count, limits);
                if chosen.len() < count {
                    far.sort_unstable_by(Candidate::order);
                    self.distances.choose(&far, &mut chosen, count, limits);
                    near.append(&mut far);
                }
            }
        }
        let basins = self.distances.basins(&near, &chosen, limits);
        // a bin or so further at most: neither their order nor whether they are distinct is judged anew
        chosen
            .iter_mut()
            .for_each(|candidate| fine.look_closer(candidate, &self.units, &signals));
        chosen
            .iter()
            .zip(basins)
            .map(|(one, basin)| self.start(one, basin, limits))
            .collect()
    }

    /// Divides the templates, each at the velocity where it fits best by its lines alone, into those that are judged
    /// further and the rest. `scores` are χ² at all coarse velocities.
    fn shortlist(&self, scores: &[f32], look: &Look) -> (Vec<Candidate>, Vec<Candidate>) {
        let rows = scores.chunks_exact(self.coarse.len()).enumerate();
        let mut near: Vec<Candidate> = rows
            .map(|(template, row)| look.lowest(template, row))
            .collect();
        let short = near.len().div_ceil(SHORT);
        near.select_nth_unstable_by(short - 1, Candidate::order);
        let far = near.split_off(short);
        near.sort_unstable_by(Candidate::order);
        (near, far)
    }

    /// Judges the best templates of `count` labels among sorted candidates at all coarse velocities inside the bounds,
    /// and returns each at the local minima. The continuum that was fitted without lines hides wide lines, so that a
    /// template may fit best at another velocity than with that continuum.
    fn at_all_velocities(
        &self,
        sorted: &[Candidate],
        count: usize,
        look: &Look,
        arms: &[Refit],
    ) -> Vec<Candidate> {
        let reach = look.reach();
        if reach.is_empty() {
            return Vec::new();
        }
        let templates = self.best_of_labels(sorted, count);
        let velocities = &self.coarse[reach.clone()];
        let at = |&template: &usize| {
            velocities.iter().map(move |&velocity| Candidate {
                template,
                velocity,
                score: 0.0,
            })
        };
        let mut all: Vec<Candidate> = templates.iter().flat_map(at).collect();
        judge(arms, &mut all);
        let mut minima = Vec::new();
        let mut row = vec![f32::NAN; self.coarse.len()];
        for (template, candidates) in templates.iter().zip(all.chunks_exact(reach.len())) {
            row[reach.clone()]
                .iter_mut()
                .zip(candidates)
                .for_each(|(score, one)| *score = one.score);
            minima.append(&mut look.minima(*template, &row));
        }
        // between the coarse velocities
        judge(arms, &mut minima);
        minima
    }

    /// Returns the templates of the first `count` sorted candidates whose labels differ. The best velocity of a
    /// template depends less on vsini than on the labels.
    fn best_of_labels(&self, sorted: &[Candidate], count: usize) -> Vec<usize> {
        let mut templates: Vec<usize> = Vec::with_capacity(count);
        for Candidate { template, .. } in sorted {
            let has_same_labels =
                |other: &usize| other / self.rotations == template / self.rotations;
            if templates.len() < count && !templates.iter().any(has_same_labels) {
                templates.push(*template);
            }
        }
        templates
    }

    /// Makes a fit's starting parameters of a candidate's template and velocity; given starts replace them, bounds clip
    /// them.
    fn start(&self, candidate: &Candidate, basin: usize, limits: &[Limits]) -> Start {
        let mut u = self.parameters[candidate.template].clone();
        for (p, (limits, parameter)) in limits.iter().zip(&self.model).enumerate() {
            let guess = if self.free_velocity == Some(p) {
                candidate.velocity
            } else {
                parameter.to_physical(u[p])
            };
            // a value that is inside keeps its bits
            let said = limits.start.unwrap_or(guess);
            if self.free_velocity == Some(p)
                || limits.start.is_some()
                || said < limits.lower
                || said > limits.upper
            {
                u[p] = parameter.to_u(said.clamp(limits.lower, limits.upper));
            }
        }
        Start { u, basin }
    }

    /// Sums a spectrum's products with its continuum in the fine bins of each segment; `smooth` is each arm's weight ·
    /// continuum.
    fn signals(
        &self,
        prepared: &Prepared,
        smooth: &[Vec<f32>],
        samplings: &[&Sampling],
        limits: &[Limits],
    ) -> Vec<Signals> {
        let middle = 0.5 * (self.fine[0] + self.fine[self.fine.len() - 1]);
        let velocities = self
            .free_velocity
            .map_or([middle; 2], |p| [limits[p].lower, limits[p].upper]);
        let signals_of = |unit: &Unit| {
            let data = &prepared.arms[unit.arm].cleaned;
            unit.signals(data, &smooth[unit.arm], samplings[unit.arm], velocities)
        };
        self.units.iter().map(signals_of).collect()
    }

    /// Computes χ², up to a constant and approximated by principal components, of each template at each velocity:
    /// (templates, coarse velocities).
    fn scores(&self, signals: &[Signals]) -> Vec<f32> {
        let mut total = vec![0f32; self.parameters.len() * self.coarse.len()];
        for (unit, fine) in self.units.iter().zip(signals) {
            unit.add_scores(&unit.coarse_sums(fine), &mut total);
        }
        let unreached = |velocity: &f64| {
            self.units
                .iter()
                .zip(signals)
                .map(|(unit, signals)| unit.unreached(signals, *velocity))
                .sum()
        };
        let unreached: Vec<f32> = self.coarse.iter().map(unreached).collect();
        if unreached.iter().any(|misfit| *misfit != 0.0) {
            let rows = total.chunks_exact_mut(unreached.len());
            rows.for_each(|row| {
                row.iter_mut()
                    .zip(&unreached)
                    .for_each(|(score, misfit)| *score -= misfit)
            });
        }
        total
    }
}

/// Sets the candidates' scores to χ² with the continua of all arms refitted.
fn judge(arms: &[Refit], candidates: &mut [Candidate]) {
    candidates
        .iter_mut()
        .for_each(|candidate| candidate.score = 0.0);
    arms.iter().for_each(|arm| arm.add_scores(candidates));
}

/// Fits each arm's continuum without spectral lines, and returns weight · continuum at its pixels.
fn smooths(prepared: &Prepared, samplings: &[&Sampling]) -> Vec<Vec<f32>> {
    prepared
        .arms
        .iter()
        .zip(samplings)
        .map(|(arm, sampling)| arm.weighted_continuum(sampling))
        .collect()
}

/// Estimates the memory of an arm's templates and of the lines in one of its segments, in bins of a usual width
/// (bytes). Without room for these the work need not be begun.
fn bytes(arm: &ModelArm, templates: usize) -> u64 {
    let longest = arm
        .grid
        .segments
        .iter()
        .map(|segment| segment.end - segment.start)
        .max()
        .unwrap_or(0);
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
pub mod tests;
