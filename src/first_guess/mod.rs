//! First guess: a library of templates, at a few vsini where that is free, against a spectrum's lines over all
//! velocities, arms summed (see `docs/src/equations.md`).
//!
//! A template's χ² at a shift is const + Σ s² l² − 2 Σ s (D − s) l, with s = weight · continuum and l = template / its
//! continuum − 1: two cross-correlations. The library's l and l² are replaced by sixteen principal components in bins
//! twice as wide as the lines allow, which makes them cheap. The best eighth is then judged as a fit would judge it, in
//! bins that suit the lines and with a continuum of its own (`refit.rs`). If few pixels of a spectrum count, or its
//! lines say little (`effort.rs`), all templates are judged so, and the best at all velocities. Those that compete
//! become starts (`choose.rs`), after their velocity is refined on five exact scores and the parabola between them.

mod bins;
mod choose;
mod components;
mod effects;
mod effort;
mod exposures;
mod folds;
mod library;
mod lines;
mod look;
mod refit;
mod stretches;
mod unit;

use rayon::prelude::*;

use crate::error::Result;
use crate::io::memory::check;
use crate::model::{ModelArm, ModelParameter, ParameterLimits, Prepared, Sampling, SpectralModel};
use crate::recording::{LIGHT, Source};
use bins::Signals;
use choose::Distances;
pub use choose::MOST_COMPETING;
pub use effort::MAX_GUESSED_STARTS;
use effort::{Effort, StartChoice};
use exposures::{VelocityGroup, judge_candidates};
pub use folds::Fold;
use folds::FoldMap;
pub use library::physical_labels;
use library::{choose_rotations, observe_templates, rotate_points, sample_points};
use look::Candidate;
use unit::TemplateSegment;

/// Templates that are evaluated in one product.
const TEMPLATES_PER_PRODUCT: usize = 64;
/// Number of templates per one that is shortlisted, and judged with a continuum of its own.
const TEMPLATES_PER_SHORTLISTED: usize = 8;
/// Uncertainty of a guessed velocity in steps of the coarse velocities. Of 9,000 stars seen through pieces of a network
/// (`tests/reference/check_ends.py`), whose coarse velocities are 50 or 100 km/s apart, 7 ended more than five errors
/// off with 150 km/s, 9 with 100 and 20 with 60.
const VELOCITY_UNCERTAINTY_STEPS: f64 = 1.5;
/// Smallest uncertainty of a guessed velocity, in km/s.
const MIN_VELOCITY_UNCERTAINTY: f64 = 60.0;

/// Start of a fit, in the solver's units.
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
    template_parameters: Vec<Vec<f64>>,
    /// Number of successive templates that have the same labels and differ in vsini.
    rotations_per_point: usize,
    distances: Distances,
    fold_map: FoldMap,
    segments: Vec<TemplateSegment>,
    /// Number of arms, of which spectra have one per exposure.
    arms: usize,
    /// km/s: those of coarse bins, and those of fine ones.
    coarse_velocities: Vec<f64>,
    fine_velocities: Vec<f64>,
    free_velocity: Option<usize>,
    model_parameters: Vec<ModelParameter>,
    marginalise: bool,
}

/// Returns the parameters of every template of a model's library, in the solver's units, without the templates; the
/// velocity in them has no meaning.
pub fn library_points(model: &SpectralModel, seed: u64) -> Result<Vec<Vec<f64>>> {
    let points = sample_points(model, seed)?;
    Ok(rotate_points(model, points, &choose_rotations(model)))
}

impl FirstGuess {
    /// Computes the templates of a quasi-random sample of labels, and everything else that does not depend on a
    /// spectrum.
    pub fn new(model: &SpectralModel, seed: u64) -> Result<FirstGuess> {
        // 1. Sample the labels, each at a few vsini if that is free.
        let points = sample_points(model, seed)?;
        let fold_map = FoldMap::new(model, &points);
        let rotations = choose_rotations(model);
        let rotations_per_point = if model.free_vsini().is_some() {
            rotations.len()
        } else {
            1
        };
        let templates = points.len() * rotations_per_point;
        // 2. Evaluate the templates of each arm, and bin their lines in each segment.
        let mut segments = Vec::new();
        let velocity_range = model.velocity_range();
        for (arm_index, arm) in model.arms.iter().enumerate() {
            let pixels = arm.emulator.pixels();
            check(estimate_template_bytes(arm, templates), || {
                format!("a first guess from {templates} templates of {pixels} pixels")
            })?;
            let flux = observe_templates(arm, evaluate_templates(model, arm, &points), &rotations);
            for segment in 0..arm.grid.segments.len() {
                segments.push(TemplateSegment::new(
                    arm,
                    arm_index,
                    segment,
                    &flux,
                    templates,
                    velocity_range.clone(),
                )?);
            }
        }
        // 3. Templates are compared at velocities that are whole bins of the first segment.
        let first_arm = &model.arms[0];
        let pixel_step = first_arm.grid.segments[segments[0].segment].step;
        let [coarse_velocities, fine_velocities] =
            [&segments[0].coarse, &segments[0].fine].map(|bins| {
                list_velocities(
                    pixel_step * bins.width as f64,
                    *velocity_range.start(),
                    *velocity_range.end(),
                )
            });
        for segment in &mut segments {
            let arm = &model.arms[segment.arm];
            segment.place_velocities(arm, &coarse_velocities, &fine_velocities);
        }
        // 4. Measure distances between templates by the labels of the first arm.
        let template_parameters = rotate_points(model, points, &rotations);
        let scaled_labels = template_parameters
            .iter()
            .map(|u| {
                first_arm
                    .emulator
                    .scaled(&physical_labels(model, first_arm, u))
            })
            .collect();
        let label_parameters = first_arm
            .inputs
            .iter()
            .map(|input| match input.source {
                Source::Parameter(p) => Some(p),
                _ => None,
            })
            .collect();
        let lines: Vec<&[f32]> = segments.iter().map(TemplateSegment::exact_lines).collect();
        let distances = Distances::new(scaled_labels, label_parameters, &lines);
        Ok(FirstGuess {
            template_parameters,
            rotations_per_point,
            distances,
            fold_map,
            segments,
            arms: model.arms.len(),
            coarse_velocities,
            fine_velocities,
            free_velocity: model.free_velocity(),
            model_parameters: model.parameters.clone(),
            marginalise: model.marginalise,
        })
    }

    /// Returns the parameters that [`library_points`] returns for this library.
    #[cfg(test)]
    pub fn points(&self) -> &[Vec<f64>] {
        &self.template_parameters
    }

    /// Returns the folds of the templates near a point in the solver's units.
    pub fn folds_near(&self, u: &[f64]) -> Vec<Fold> {
        self.fold_map.folds_near(u)
    }

    /// Returns the uncertainty of a guessed velocity (km/s): the right one usually lies within it.
    pub fn velocity_uncertainty(&self) -> f64 {
        let step = self
            .coarse_velocities
            .get(1)
            .map_or(0.0, |second| second - self.coarse_velocities[0]);
        MIN_VELOCITY_UNCERTAINTY.max(VELOCITY_UNCERTAINTY_STEPS * step)
    }

    /// Guesses starting points of a spectrum's fit by correlating it with the templates: 1 to `count` of them, or those
    /// with competitive χ². A start in `limits` replaces the library's value. An object of several exposures has each
    /// arm once per exposure; further velocities follow behind the other parameters.
    pub fn starts(
        &self,
        prepared: &Prepared,
        samplings: &[&Sampling],
        limits: &[ParameterLimits],
        count: Option<usize>,
    ) -> Vec<Start> {
        // 1. Compare all templates by their lines alone, at all coarse velocities.
        let smooth = fit_smooth_continua(prepared, samplings);
        let exposures = self.sum_exposures(prepared, &smooth, samplings, limits);
        let mut groups = self.group_exposures(&exposures, limits);
        let (by_lines, mut unlisted) = self.shortlist(&mut groups);
        // 2. Judge the shortlisted templates with continua of their own.
        let mut judged = by_lines.clone();
        judge_candidates(&groups, &mut judged);
        judged.sort_unstable_by(Candidate::order);
        // 3. If the lines say little, judge all templates so, and the best of them at all velocities. If a network
        //    ends inside the data, judge the best ones at all velocities, too.
        let is_cut = exposures.iter().any(|exposure| exposure.is_cut())
            || prepared.arms.iter().any(|arm| arm.unreached > 0);
        let effort = Effort::new(prepared, is_cut, &by_lines, &judged);
        if effort.judges_all {
            judge_candidates(&groups, &mut unlisted);
            judged.append(&mut unlisted);
            judged.sort_unstable_by(Candidate::order);
        }
        if effort.rescanned > 0 {
            let templates = self.best_of_labels(&judged, effort.rescanned);
            judged.append(&mut self.scan_velocities(&mut groups, &templates));
            judged.sort_unstable_by(Candidate::order);
        }
        // 4. Choose starts among them.
        let mut chosen = Vec::new();
        match (count, effort.starts) {
            (None, StartChoice::Competing(rule)) => {
                chosen = self.distances.choose_competing(&judged, rule, limits)
            }
            (Some(count), _) | (None, StartChoice::Distinct(count)) => {
                self.distances
                    .choose_distinct(&judged, &mut chosen, count, limits);
                if chosen.len() < count {
                    unlisted.sort_unstable_by(Candidate::order);
                    self.distances
                        .choose_distinct(&unlisted, &mut chosen, count, limits);
                    judged.append(&mut unlisted);
                }
            }
        }
        let basins = self.distances.find_basins(&judged, &chosen, limits);
        // 5. Refine the velocities of the starts. They move by a bin or so at most, so that we check neither their
        //    order nor their distances again.
        let mut starts = Vec::with_capacity(chosen.len());
        for (candidate, basin) in chosen.into_iter().zip(basins) {
            let velocities = self.refine_velocities(&groups, &candidate);
            starts.push(self.start_at(candidate.template, &velocities, basin, limits));
        }
        starts
    }

    /// Divides the templates, each at the velocities where it fits best by its lines alone, into the shortlist, in the
    /// order of χ², and the rest.
    fn shortlist(&self, groups: &mut [VelocityGroup]) -> (Vec<Candidate>, Vec<Candidate>) {
        let mut shortlisted = self.compare_lines(groups);
        let length = shortlisted.len().div_ceil(TEMPLATES_PER_SHORTLISTED);
        shortlisted.select_nth_unstable_by(length - 1, Candidate::order);
        let unlisted = shortlisted.split_off(length);
        shortlisted.sort_unstable_by(Candidate::order);
        (shortlisted, unlisted)
    }

    /// Returns the templates of the first `count` sorted candidates whose labels differ. The best velocity of a
    /// template depends less on vsini than on the labels.
    fn best_of_labels(&self, sorted: &[Candidate], count: usize) -> Vec<usize> {
        let point_of = |template: usize| template / self.rotations_per_point;
        let mut templates: Vec<usize> = Vec::with_capacity(count);
        for candidate in sorted {
            let point = point_of(candidate.template);
            if templates.len() < count && !templates.iter().any(|&chosen| point_of(chosen) == point)
            {
                templates.push(candidate.template);
            }
        }
        templates
    }

    /// Returns a fit's starting parameters at a template and the velocities (km/s) of each group of exposures. Starts
    /// in `limits` replace them, and bounds clip them.
    fn start_at(
        &self,
        template: usize,
        velocities: &[f64],
        basin: usize,
        limits: &[ParameterLimits],
    ) -> Start {
        let mut u = self.template_parameters[template].clone();
        for (p, (limits, parameter)) in limits.iter().zip(&self.model_parameters).enumerate() {
            let is_velocity = self.free_velocity == Some(p);
            let guess = if is_velocity {
                velocities[0]
            } else {
                parameter.to_physical(u[p])
            };
            let value = limits.start.unwrap_or(guess);
            // The library's value inside the bounds keeps its bits.
            let is_outside = value < limits.lower || value > limits.upper;
            if is_velocity || limits.start.is_some() || is_outside {
                u[p] = parameter.to_u(value.clamp(limits.lower, limits.upper));
            }
        }
        // The velocities of further exposures have the unit of the first.
        let further_limits = &limits[self.model_parameters.len()..];
        for (limits, guess) in further_limits.iter().zip(&velocities[1..]) {
            if let Some(p) = self.free_velocity {
                let value = limits.start.unwrap_or(*guess);
                u.push(self.model_parameters[p].to_u(value.clamp(limits.lower, limits.upper)));
            }
        }
        Start { u, basin }
    }

    /// Computes χ², up to a constant and approximated by principal components, of each template at each velocity:
    /// (templates, coarse velocities).
    fn score_templates(&self, signals: &[Signals]) -> Vec<f32> {
        let mut scores = vec![0f32; self.template_parameters.len() * self.coarse_velocities.len()];
        for (segment, fine_signals) in self.segments.iter().zip(signals) {
            let coarse_sums = segment.rebin_to_coarse(fine_signals);
            segment.add_component_scores(&coarse_sums, &mut scores);
        }
        let mut uncovered = Vec::with_capacity(self.coarse_velocities.len());
        for &velocity in &self.coarse_velocities {
            let misfits = self
                .segments
                .iter()
                .zip(signals)
                .map(|(segment, signals)| segment.uncovered_misfit(signals, velocity));
            uncovered.push(misfits.sum::<f32>());
        }
        if uncovered.iter().any(|misfit| *misfit != 0.0) {
            for row in scores.chunks_exact_mut(uncovered.len()) {
                for (score, misfit) in row.iter_mut().zip(&uncovered) {
                    *score -= misfit;
                }
            }
        }
        scores
    }
}

/// Evaluates an arm's network at every point, without rotation or line spread: (points, pixels).
fn evaluate_templates(model: &SpectralModel, arm: &ModelArm, points: &[Vec<f64>]) -> Vec<f32> {
    let labels: Vec<f64> = points
        .iter()
        .flat_map(|u| physical_labels(model, arm, u))
        .collect();
    let evaluator = arm.emulator.evaluator();
    labels
        .par_chunks(TEMPLATES_PER_PRODUCT * arm.inputs.len())
        .map(|labels| evaluator.templates(labels))
        .collect::<Vec<Vec<f32>>>()
        .concat()
}

/// Fits each arm's continuum without spectral lines, and returns weight · continuum at its pixels.
fn fit_smooth_continua(prepared: &Prepared, samplings: &[&Sampling]) -> Vec<Vec<f32>> {
    prepared
        .arms
        .iter()
        .zip(samplings)
        .map(|(arm, sampling)| arm.weighted_continuum(sampling))
        .collect()
}

/// Estimates the memory of an arm's templates and of the lines in one of its segments, in bins of a usual width
/// (bytes). Without room for these the work need not begin.
fn estimate_template_bytes(arm: &ModelArm, templates: usize) -> u64 {
    let longest = arm
        .grid
        .segments
        .iter()
        .map(|segment| segment.end - segment.start)
        .max()
        .unwrap_or(0);
    (templates as u64).saturating_mul(4 * arm.emulator.pixels() as u64 + 10 * longest as u64)
}

/// Returns the velocities, km/s, from `low` to `high` whose Doppler shifts are whole multiples of `step` in ln λ, or
/// the middle if there is none.
fn list_velocities(step: f64, low: f64, high: f64) -> Vec<f64> {
    let steps_of = |velocity: f64| (velocity / LIGHT).atanh() / step;
    let whole_steps = steps_of(low).ceil() as i64..=steps_of(high).floor() as i64;
    let mut velocities: Vec<f64> = whole_steps
        .map(|k| LIGHT * (k as f64 * step).tanh())
        .collect();
    if velocities.is_empty() {
        velocities.push(0.5 * (low + high));
    }
    velocities
}

#[cfg(test)]
pub mod tests;
