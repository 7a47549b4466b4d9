//! The exposures of a spectrum's object, which share a velocity or have one each. A template's χ² is the sum over
//! exposures, each at the velocity that fits it best.

use std::borrow::Cow;

use super::FirstGuess;
use super::bins::Signals;
use super::look::{Candidate, VelocitySearch};
use super::refit::{ContinuumRefit, SpectrumArm};
use crate::model::{ParameterLimits, Prepared, PreparedArm, Sampling};

/// One exposure of an object, in all arms.
pub struct Exposure<'a> {
    arms: Vec<ExposureArm<'a>>,
    /// Sums in the bins of each segment.
    pub signals: Vec<Signals>,
}

/// An arm of an exposure.
struct ExposureArm<'a> {
    prepared: &'a PreparedArm,
    /// weight · continuum
    smooth: &'a [f32],
    sampling: &'a Sampling,
}

impl Exposure<'_> {
    /// Returns whether some compared velocities leave pixels uncovered.
    pub fn is_cut(&self) -> bool {
        self.signals.iter().any(|signals| signals.is_cut)
    }
}

/// Exposures that have one velocity.
pub struct VelocityGroup<'a> {
    /// Sums of all of them in the bins of each segment.
    signals: Cow<'a, [Signals]>,
    /// Continua of all of their arms.
    refits: Vec<ContinuumRefit<'a>>,
    coarse_search: VelocitySearch<'a>,
    fine_search: VelocitySearch<'a>,
    /// (templates) Velocity in km/s at which each template fits best. Candidates have that of the first group.
    velocities: Vec<f64>,
}

impl VelocityGroup<'_> {
    /// Adds χ² with the continua of the group's exposures refitted to the candidates' scores.
    fn add_scores(&self, candidates: &mut [Candidate]) {
        for refit in &self.refits {
            refit.add_scores(candidates);
        }
    }

    /// Moves candidates to the velocities of their templates in this group, with a score of 0.
    fn place_candidates(&self, candidates: &[Candidate]) -> Vec<Candidate> {
        let place = |candidate: &Candidate| Candidate {
            template: candidate.template,
            velocity: self.velocities[candidate.template],
            score: 0.0,
        };
        candidates.iter().map(place).collect()
    }
}

/// Sets the candidates' scores to χ² with the continua of all arms refitted. Further groups than the first are judged
/// at velocities of their own.
pub fn judge_candidates(groups: &[VelocityGroup], candidates: &mut [Candidate]) {
    for candidate in candidates.iter_mut() {
        candidate.score = 0.0;
    }
    let Some((first, others)) = groups.split_first() else {
        return;
    };
    first.add_scores(candidates);
    for group in others {
        let mut placed = group.place_candidates(candidates);
        group.add_scores(&mut placed);
        for (candidate, placed) in candidates.iter_mut().zip(placed) {
            candidate.score += placed.score;
        }
    }
}

impl FirstGuess {
    /// Sums each exposure's products with its continuum in the fine bins of each segment; `smooth` is each arm's weight
    /// · continuum.
    pub(super) fn sum_exposures<'a>(
        &self,
        prepared: &'a Prepared,
        smooth: &'a [Vec<f32>],
        samplings: &[&'a Sampling],
        limits: &[ParameterLimits],
    ) -> Vec<Exposure<'a>> {
        let count = prepared.arms.len() / self.arms;
        let mut exposures = Vec::with_capacity(count);
        for k in 0..count {
            let indices = (0..self.arms).map(|arm| arm * count + k);
            let arms: Vec<ExposureArm> = indices
                .map(|a| ExposureArm {
                    prepared: &prepared.arms[a],
                    smooth: &smooth[a],
                    sampling: samplings[a],
                })
                .collect();
            let velocity_range = self.velocity_range_of(k, limits);
            let signals = self.segments.iter().map(|segment| {
                let ExposureArm {
                    prepared,
                    smooth,
                    sampling,
                } = arms[segment.arm];
                segment.sum_signals(&prepared.cleaned, smooth, sampling, velocity_range)
            });
            exposures.push(Exposure {
                signals: signals.collect(),
                arms,
            });
        }
        exposures
    }

    /// Returns whether each exposure has its own velocity: the limits of further ones follow behind all others.
    fn has_own_velocities(&self, limits: &[ParameterLimits]) -> bool {
        limits.len() > self.model_parameters.len()
    }

    /// Returns the parameter of the velocity of an exposure; `None` if it is fixed.
    fn velocity_parameter(&self, exposure: usize, limits: &[ParameterLimits]) -> Option<usize> {
        let first = self.free_velocity?;
        if self.has_own_velocities(limits) && exposure > 0 {
            Some(self.model_parameters.len() + exposure - 1)
        } else {
            Some(first)
        }
    }

    /// Returns the lowest and the highest velocity of an exposure in km/s: its bounds, or the middle of the library's
    /// velocities if the velocity is fixed.
    fn velocity_range_of(&self, exposure: usize, limits: &[ParameterLimits]) -> [f64; 2] {
        let middle =
            0.5 * (self.fine_velocities[0] + self.fine_velocities[self.fine_velocities.len() - 1]);
        self.velocity_parameter(exposure, limits)
            .map_or([middle; 2], |p| [limits[p].lower, limits[p].upper])
    }

    /// Groups the exposures by velocity: all together, or each by itself.
    pub(super) fn group_exposures<'a>(
        &'a self,
        exposures: &'a [Exposure<'a>],
        limits: &[ParameterLimits],
    ) -> Vec<VelocityGroup<'a>> {
        let group_size = if self.has_own_velocities(limits) {
            1
        } else {
            exposures.len()
        };
        let mut groups = Vec::with_capacity(exposures.len() / group_size);
        for (exposure, members) in exposures.chunks(group_size).enumerate() {
            let velocity_limits = self
                .velocity_parameter(exposure, limits)
                .map(|p| &limits[p]);
            groups.push(VelocityGroup {
                signals: add_signals(members),
                refits: members
                    .iter()
                    .flat_map(|member| self.prepare_refits(member))
                    .collect(),
                coarse_search: VelocitySearch::new(&self.coarse_velocities, velocity_limits),
                fine_search: VelocitySearch::new(&self.fine_velocities, velocity_limits),
                velocities: Vec::new(),
            });
        }
        groups
    }

    /// Prepares the refit of the continua of an exposure's arms.
    fn prepare_refits<'a>(
        &'a self,
        exposure: &'a Exposure<'a>,
    ) -> impl Iterator<Item = ContinuumRefit<'a>> {
        exposure.arms.iter().enumerate().map(move |(index, arm)| {
            let arm = SpectrumArm {
                index,
                prepared: arm.prepared,
                smooth: arm.smooth,
                sampling: arm.sampling,
                segments: &self.segments,
                signals: &exposure.signals,
            };
            ContinuumRefit::new(arm, self.marginalise)
        })
    }

    /// Compares all templates with the exposures by their lines alone. Each is placed at the velocity of each group
    /// where it fits best.
    pub(super) fn compare_lines(&self, groups: &mut [VelocityGroup]) -> Vec<Candidate> {
        let mut joint: Vec<Candidate> = Vec::new();
        for group in groups {
            let scores = self.score_templates(&group.signals);
            let rows = scores
                .chunks_exact(self.coarse_velocities.len())
                .enumerate();
            let candidates: Vec<Candidate> = rows
                .map(|(template, row)| group.coarse_search.find_lowest(template, row))
                .collect();
            group.velocities = candidates
                .iter()
                .map(|candidate| candidate.velocity)
                .collect();
            if joint.is_empty() {
                joint = candidates;
                continue;
            }
            for (sum, candidate) in joint.iter_mut().zip(candidates) {
                sum.score += candidate.score;
            }
        }
        joint
    }

    /// Judges templates at all coarse velocities inside the bounds, and returns each at the local minima. The continuum
    /// that was fitted without lines hides wide lines, so that a template may fit best at another velocity than with
    /// that continuum. If there are several velocities, each template is returned once, at the lowest minimum of each.
    pub(super) fn scan_velocities(
        &self,
        groups: &mut [VelocityGroup],
        templates: &[usize],
    ) -> Vec<Candidate> {
        let has_one_velocity = groups.len() == 1;
        let mut minima = Vec::new();
        for (k, group) in groups.iter_mut().enumerate() {
            for mut minima_of_template in self.scan_group(group, templates) {
                minima_of_template.sort_unstable_by(Candidate::order);
                let Some(lowest) = minima_of_template.first() else {
                    continue;
                };
                if has_one_velocity {
                    minima.append(&mut minima_of_template);
                } else {
                    group.velocities[lowest.template] = lowest.velocity;
                    minima.extend((k == 0).then(|| lowest.clone()));
                }
            }
        }
        // The minima lie between the coarse velocities, so they are judged once more.
        judge_candidates(groups, &mut minima);
        minima
    }

    /// Judges templates by the exposures of a group at all coarse velocities inside the bounds, and returns the local
    /// minima of each template; none if a single velocity is allowed.
    fn scan_group(&self, group: &VelocityGroup, templates: &[usize]) -> Vec<Vec<Candidate>> {
        let scanned = group.coarse_search.scanned_range();
        if scanned.is_empty() {
            return Vec::new();
        }
        // 1. Judge every template at every velocity.
        let mut candidates = Vec::with_capacity(templates.len() * scanned.len());
        for &template in templates {
            for &velocity in &self.coarse_velocities[scanned.clone()] {
                candidates.push(Candidate {
                    template,
                    velocity,
                    score: 0.0,
                });
            }
        }
        group.add_scores(&mut candidates);
        // 2. Find the minima of each template.
        let mut minima = Vec::with_capacity(templates.len());
        let mut row = vec![f32::NAN; self.coarse_velocities.len()];
        for (template, candidates) in templates.iter().zip(candidates.chunks_exact(scanned.len())) {
            for (score, candidate) in row[scanned.clone()].iter_mut().zip(candidates) {
                *score = candidate.score;
            }
            minima.push(group.coarse_search.find_minima(*template, &row));
        }
        minima
    }

    /// Returns the velocity of each group (km/s) at a candidate's template, refined by exact scores.
    pub(super) fn refine_velocities(
        &self,
        groups: &[VelocityGroup],
        candidate: &Candidate,
    ) -> Vec<f64> {
        let mut velocities = Vec::with_capacity(groups.len());
        for (k, group) in groups.iter().enumerate() {
            let mut placed = candidate.clone();
            if k > 0 {
                placed.velocity = group.velocities[candidate.template];
            }
            group
                .fine_search
                .refine_by_exact_scores(&mut placed, &self.segments, &group.signals);
            velocities.push(placed.velocity);
        }
        velocities
    }
}

/// Returns the sums of exposures over all of them.
fn add_signals<'a>(exposures: &'a [Exposure]) -> Cow<'a, [Signals]> {
    let [first, others @ ..] = exposures else {
        return Cow::Borrowed(&[]);
    };
    if others.is_empty() {
        return Cow::Borrowed(&first.signals);
    }
    let mut total = first.signals.clone();
    for exposure in others {
        for (sum, signals) in total.iter_mut().zip(&exposure.signals) {
            sum.add(signals);
        }
    }
    Cow::Owned(total)
}
