//! Levenberg–Marquardt on whitened rows, in lockstep for the spectra of a group. The steps are the solver's own
//! (`solver/round/step`), with its tolerances in f64.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::sums::{ArmPoint, add_arm};
use crate::buffers::Sums;
use crate::error::Result;
use crate::first_guess::Start;
use crate::math::Real;
use crate::model::{ArmLayout, SpectralModel, hull_weights};
use crate::recording::{Parameter, Precision, Prior, Priors, Stage, add_penalties};
use crate::solver::member::{Member, Phase};
use crate::solver::round::step::{Rules, step_member};
use crate::solver::{Bounds, LevenbergMarquardt, Outcome, Status, Tolerances};
use crate::spectral::input::ready::{
    Grids, NEVER_CANCELLED, ReadySpectra, ReadySpectrum, collect_samplings,
};
use crate::spectral::model_rows::{ArmRows, RowEvaluator};
use crate::spectral::search::shared::SharedResources;
use crate::threads;

/// Maximum number of points that are evaluated together, because their rows take memory.
const MAX_POINTS_TOGETHER: usize = 64;

/// Fits of spectra of one shape, some of which have correlated noise.
#[derive(Clone, Copy)]
pub struct CorrelatedFit<'a> {
    pub model: &'a SpectralModel,
    pub shared: &'a SharedResources,
    pub layout: &'a [ArmLayout],
    pub grids: &'a [Grids],
    pub settings: LevenbergMarquardt,
}

/// One outcome of a spectrum that is continued with the covariance of its noise.
struct CorrelatedMember<'r> {
    spectrum: &'r ReadySpectrum,
    outcome: &'r mut Outcome,
    member: Member,
    limits: MemberLimits,
}

/// Bounds and priors of the parameters, in the solver's units, and the weights of the hulls.
struct MemberLimits {
    lower: Vec<f64>,
    upper: Vec<f64>,
    prior_mean: Vec<f64>,
    prior_weight: Vec<f64>,
    hull_weights: Vec<f64>,
}

impl CorrelatedFit<'_> {
    /// Continues the outcomes of spectra with correlated noise to the minima of their objective. Starts that gave way
    /// to others, and interrupted ones, are only evaluated, so that all outcomes of a spectrum can be compared. Those
    /// of other spectra keep every bit. A cancelled fit ends as interrupted after at least one evaluation.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn refine(
        self,
        ready: &[ReadySpectrum],
        outcomes: &mut [Vec<Outcome>],
        cancel: &AtomicBool,
    ) -> Result<()> {
        let mut members = Vec::new();
        for (spectrum, outcomes) in ready.iter().zip(outcomes) {
            if spectrum.prepared.has_correlated_noise() {
                members.extend(outcomes.iter_mut().map(|outcome| {
                    let is_interrupted = outcome.status == Some(Status::Interrupted);
                    let may_continue = outcome.gave_way.is_none() && !is_interrupted;
                    self.make_member(spectrum, outcome, may_continue)
                }));
            }
        }
        self.run(members, cancel)
    }

    /// Replaces the sums of outcomes of spectra with correlated noise, one per spectrum, by those with the covariance
    /// of the noise at the same point.
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn evaluate(self, ready: &[ReadySpectrum], outcomes: &mut [Outcome]) -> Result<()> {
        let correlated = ready
            .iter()
            .zip(outcomes)
            .filter(|(spectrum, _)| spectrum.prepared.has_correlated_noise());
        let members = correlated
            .map(|(spectrum, outcome)| self.make_member(spectrum, outcome, false))
            .collect();
        self.run(members, &NEVER_CANCELLED)
    }

    /// Makes the member that begins where an outcome ended. Without `may_continue` it is only evaluated.
    fn make_member<'r>(
        self,
        spectrum: &'r ReadySpectrum,
        outcome: &'r mut Outcome,
        may_continue: bool,
    ) -> CorrelatedMember<'r> {
        let parameters = self.model.parameters.iter().zip(&spectrum.limits);
        let mut limits = MemberLimits {
            lower: Vec::new(),
            upper: Vec::new(),
            prior_mean: Vec::new(),
            prior_weight: Vec::new(),
            hull_weights: Vec::new(),
        };
        for (parameter, given) in parameters {
            limits.lower.push(parameter.to_u(given.lower));
            limits.upper.push(parameter.to_u(given.upper));
            let (mean, weight) = given.prior_in_u(parameter);
            limits.prior_mean.push(mean);
            limits.prior_weight.push(weight);
        }
        let samplings = collect_samplings(self.grids, spectrum.place);
        let pixels: Vec<usize> = samplings.iter().map(|sampling| sampling.pixels).collect();
        limits.hull_weights = hull_weights(self.model, &pixels);
        let bounds = limits.lower.iter().zip(&limits.upper);
        let start: Vec<f64> = outcome
            .parameters
            .iter()
            .zip(bounds)
            .map(|(u, (lower, upper))| u.clamp(*lower, *upper))
            .collect();
        let mut member = Member::new(0, 0, &start, self.settings.initial_damping);
        if !may_continue {
            member.phase = Phase::Evaluating;
        }
        CorrelatedMember {
            spectrum,
            outcome,
            member,
            limits,
        }
    }

    /// Takes all members to their ends, some at a time, and writes these into their outcomes.
    fn run(self, mut members: Vec<CorrelatedMember>, cancel: &AtomicBool) -> Result<()> {
        let Some(capacity) = Some(members.len().min(MAX_POINTS_TOGETHER)).filter(|n| *n > 0) else {
            return Ok(());
        };
        let objective =
            self.shared
                .get_or_make_objective(self.model, self.layout, Precision::F64, false);
        let mut evaluator = RowEvaluator::new(objective, capacity)?;
        for chunk in members.chunks_mut(capacity) {
            let mut active: Vec<&mut CorrelatedMember> = chunk.iter_mut().collect();
            while !active.is_empty() {
                self.advance(&mut evaluator, &mut active)?;
                if cancel.load(Ordering::Relaxed) {
                    for member in &mut active {
                        let status = &mut member.member.status;
                        *status = status.or(Some(Status::Interrupted));
                    }
                }
                active.retain(|member| member.member.status.is_none());
            }
            chunk.iter_mut().for_each(CorrelatedMember::write_outcome);
        }
        Ok(())
    }

    /// Evaluates members at their trial points, and takes a step of each.
    fn advance(
        self,
        evaluator: &mut RowEvaluator,
        active: &mut [&mut CorrelatedMember],
    ) -> Result<()> {
        // 1. Evaluate the rows of the model.
        let points: Vec<ReadySpectrum> = active
            .iter()
            .map(|member| ReadySpectrum {
                starts: vec![Start {
                    u: member.member.trial.clone(),
                    basin: 0,
                }],
                ..member.spectrum.clone()
            })
            .collect();
        let rows = evaluator.evaluate(ReadySpectra {
            model: self.model,
            grids: self.grids,
            spectra: &points,
            guess: None,
        })?;
        // 2. Whiten them, make the sums, and take a step.
        let recording = evaluator.objective.recording();
        let terms: Vec<usize> = evaluator
            .objective
            .arms
            .iter()
            .map(|arm| arm.basis.map_or(0, |basis| basis.terms))
            .collect();
        let parameters = &recording.parameters;
        let prior = recording.stages.iter().find_map(|stage| match stage {
            Stage::Prior(prior) => Some(prior),
            _ => None,
        });
        let tolerances =
            Tolerances::of_members(&self.settings, recording.caps_cost, f64::COST_NOISE);
        threads::in_pool(|| {
            active.par_iter_mut().zip(&rows).for_each(|(member, rows)| {
                member.add_penalties(prior, parameters);
                self.add_arms(member, rows, &terms);
                let CorrelatedMember { member, limits, .. } = &mut **member;
                let rules = Rules {
                    bounds: Bounds {
                        lower: &limits.lower,
                        upper: &limits.upper,
                    },
                    settings: &self.settings,
                    tolerances,
                    trusts_last_step: recording.trusts_steps(),
                };
                step_member(member, &rules);
            });
        });
        Ok(())
    }

    /// Adds the arms of a spectrum, whose rows are those at its member's trial point, to the member's sums there.
    fn add_arms(self, member: &mut CorrelatedMember, rows: &[ArmRows], terms: &[usize]) {
        let samplings = collect_samplings(self.grids, member.spectrum.place);
        for (a, (rows, sampling)) in rows.iter().zip(samplings).enumerate() {
            let columns = self.model.derivative_parameters(a);
            let point = ArmPoint {
                prepared: &member.spectrum.prepared.arms[a],
                sampling,
                terms: terms[a],
                model: &rows.model,
                stride: rows.model.len() / (1 + columns.len()),
            };
            add_arm(point, &columns, &mut member.member.trial_sums);
        }
    }
}

impl CorrelatedMember<'_> {
    /// Resets the sums at the trial point, and adds the penalties of priors and hulls there.
    fn add_penalties(&mut self, prior: Option<&Prior>, parameters: &[Parameter]) {
        let limits = &self.limits;
        let priors = Priors {
            mean: &limits.prior_mean,
            weight: &limits.prior_weight,
        };
        add_penalties(
            prior.unwrap_or(&Prior::WITHOUT_HULLS),
            parameters,
            &self.member.trial,
            priors,
            |hull| limits.hull_weights[hull],
            &mut self.member.trial_sums,
        );
    }

    /// Writes the end into the outcome. Its status stays that of the fit without correlations if it was only evaluated.
    fn write_outcome(&mut self) {
        let was_evaluated = self.member.phase == Phase::Evaluating;
        let Sums {
            chi2,
            penalty,
            ln_det,
            ref gradient,
            ref normal_matrix,
            ..
        } = self.member.sums;
        let outcome = &mut *self.outcome;
        outcome.chi2 = chi2;
        outcome.penalty = penalty;
        outcome.ln_det = ln_det;
        outcome.gradient.clone_from(gradient);
        outcome.normal_matrix.clone_from(normal_matrix);
        outcome.parameters.clone_from(&self.member.parameters);
        outcome.rounds += self.member.rounds;
        outcome.evaluations += self.member.rounds;
        if !was_evaluated {
            outcome.status = self.member.status;
        }
    }
}
