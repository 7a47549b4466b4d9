//! The row of a spectrum, built from the outcomes of its starts.

use std::collections::BTreeSet;

use crate::first_guess::Start;
use crate::flag::Flags;
use crate::math::covariance::{Covariance, covariance};
use crate::math::probability::{Tail, chi2_tail};
use crate::math::triangle::packed_index;
use crate::model::{Jitter, ParameterLimits, Prepared, PreparedArm, SpectralModel};
use crate::recording::Precision;
use crate::solver::basin::{is_same_basin, points_at};
use crate::solver::{GaveWay, Outcome, Status};
use crate::spectral::input::ready::ReadySpectrum;
use crate::spectral::misfit::{ChiSquare, Misfit};
use crate::spectral::results::row::FitRow;

/// Difference from the winner's objective below which a start agrees.
const MAX_AGREEING_DIFFERENCE: f64 = 0.1;
/// Difference of the objective below which another minimum makes a fit multimodal.
const MAX_MULTIMODAL_DIFFERENCE: f64 = 9.0;
/// Largest χ²/dof without the flag for a poor fit.
const MAX_GOOD_CHI2: f64 = 2.0;
/// Smallest tail probability of a χ² without the flag for an improbable one.
const MIN_TAIL_PROBABILITY: f64 = 1e-6;
/// Largest lower bound of vsini, in km/s, that counts as no rotation.
const MAX_VSINI_WITHOUT_ROTATION: f64 = 1.0;
/// Smallest signal-to-noise ratio without the flag for a low one.
const MIN_SIGNAL_TO_NOISE: f64 = 5.0;
/// Largest share of masked pixels without the flag for many.
const MAX_MASKED_SHARE: f64 = 0.5;
/// Largest share of good pixels that the templates do not cover, without the flag for it.
const MAX_UNREACHED_SHARE: f64 = 0.5;
/// Largest distance of a solution at a bound, in the solver's units. It is not 0 because f32 devices round.
const BOUND_TOLERANCE: f64 = 1e-6;

/// Builds rows of results. It has the inputs that do not depend on the spectrum.
#[derive(Clone, Copy)]
pub struct RowBuilder<'a> {
    pub model: &'a SpectralModel,
    pub precision: Precision,
    pub misfit: Misfit,
    /// Rows also have standard errors with all bounds released.
    pub released_errors: bool,
}

impl RowBuilder<'_> {
    /// Returns an outcome's objective: χ² plus penalties, and the terms of the marginalisation over the continuum and
    /// of the fitted jitter, if the model has them.
    pub fn objective(&self, outcome: &Outcome, prepared: &Prepared) -> f64 {
        // The constant of the marginalisation contains all variances.
        let determinants = if self.model.marginalise {
            outcome.ln_det + prepared.marginal_constant
        } else {
            prepared.jitter_constant
        };
        outcome.chi2 + outcome.penalty + determinants
    }

    /// Fills a spectrum's row from the outcomes of its starts: parameters, errors, status and flags of the best one.
    /// `row` has the identity and the flags of the input.
    pub fn fill_row(&self, row: &mut FitRow, outcomes: &[Outcome], ready: &ReadySpectrum) {
        let prepared = &ready.prepared;
        let limits = &ready.limits;
        let objectives: Vec<f64> = outcomes
            .iter()
            .map(|outcome| self.objective(outcome, prepared))
            .collect();
        row.evaluations = outcomes.iter().map(|outcome| outcome.evaluations).sum();
        // 1. Choose the start with the lowest objective; among equal ones the first. Starts that were stopped early, or
        //    whose objective is not finite, are chosen only if there is no other.
        let rank = |k: usize| {
            if outcomes[k].gave_way.is_none() && objectives[k].is_finite() {
                objectives[k]
            } else {
                f64::INFINITY
            }
        };
        let best = (0..outcomes.len()).min_by(|&a, &b| rank(a).total_cmp(&rank(b)));
        let Some(best) = best else {
            return;
        };
        let winner = &outcomes[best];
        row.start = Some(best as u32);
        row.rounds = winner.rounds;
        row.chi2 = winner.chi2;
        row.objective = objectives[best];
        let held = limits.iter().filter(|limits| limits.is_held()).count();
        row.continuum_terms = prepared.arms.iter().map(|arm| arm.rank as u32).collect();
        row.unreached = prepared
            .arms
            .iter()
            .map(|arm| arm.unreached as u32)
            .collect();
        row.dof = prepared.unmasked as i64
            - (self.model.parameters.len() - held) as i64
            - prepared.rank as i64;
        row.n_starts_agree = count_agreeing_basins(outcomes, &objectives, best, &ready.starts);
        // 2. Set parameters and errors.
        let is_free = self.set_parameters(row, winner, limits);
        let tolerance = self.tolerance();
        let counts = [prepared.unmasked as f64, row.dof as f64];
        let information = self
            .misfit
            .information(winner, counts, &self.model.parameters, limits);
        let covariance = covariance(&information, &is_free, tolerance);
        self.set_errors(row, &covariance, &is_free, limits);
        if self.released_errors {
            row.released_errors =
                self.compute_released_errors(row, &information, limits, tolerance);
        }
        if self.model.loss().is_some() {
            row.downweighted = Some(winner.loss.downweighted / prepared.unmasked as f64);
        }
        if self.model.spectra.jitter == Jitter::Fitted {
            let jitters: Vec<[f64; 3]> = prepared.arms.iter().map(list_jitter).collect();
            row.jitter = jitters.iter().map(|[fraction, ..]| *fraction).collect();
            row.jitter_errors = jitters.iter().map(|[_, error, _]| *error).collect();
            row.error_factors = jitters.iter().map(|[.., factor]| *factor).collect();
        }
        // 3. Set status and flags. If any start was interrupted, so is the fit, because that start might have won.
        let is_interrupted = outcomes
            .iter()
            .any(|outcome| outcome.status == Some(Status::Interrupted));
        self.set_status(row, winner.status.filter(|_| !is_interrupted));
        let chi2 = self
            .misfit
            .chi_square(winner, prepared.unmasked, row.dof as f64);
        self.set_flags(row, chi2, prepared, limits);
        self.flag_other_basins(row, outcomes, &objectives, best);
    }

    /// Returns the smallest eigenvalue of a normal matrix, scaled to unit diagonal, that counts as determined.
    pub fn tolerance(&self) -> f64 {
        if self.precision.of_results() == Precision::F32 {
            1e-6
        } else {
            1e-12
        }
    }

    /// Writes the winner's parameters, in physical units, and the bits of those at a bound into a row. Returns whether
    /// each parameter is free, that is, not at a bound.
    pub(super) fn set_parameters(
        &self,
        row: &mut FitRow,
        winner: &Outcome,
        limits: &[ParameterLimits],
    ) -> Vec<bool> {
        let mut is_free = Vec::with_capacity(winner.parameters.len());
        let parameters = self.model.parameters.iter().zip(&winner.parameters);
        for (p, (parameter, &u)) in parameters.enumerate() {
            let bound = [limits[p].lower, limits[p].upper]
                .into_iter()
                .find(|&bound| {
                    let bound_u = parameter.to_u(bound);
                    (u - bound_u).abs() <= BOUND_TOLERANCE * bound_u.abs().max(1.0)
                });
            row.parameters[p] = bound.unwrap_or_else(|| parameter.to_physical(u));
            row.at_bound |= u32::from(bound.is_some() && !limits[p].is_held()) << p;
            is_free.push(bound.is_none());
        }
        is_free
    }

    /// Writes errors, in physical units, and correlations into a row, and flags it if a direction is undetermined. A
    /// parameter at a bound has no error; a held one has the error 0.
    pub(super) fn set_errors(
        &self,
        row: &mut FitRow,
        covariance: &Covariance,
        is_free: &[bool],
        limits: &[ParameterLimits],
    ) {
        for (p, parameter) in self.model.parameters.iter().enumerate() {
            row.errors[p] = if limits[p].is_held() {
                0.0
            } else if is_free[p] {
                covariance.errors[p] * parameter.solver.scale
            } else {
                f64::NAN
            };
        }
        row.correlations.copy_from_slice(&covariance.correlations);
        if covariance.undetermined > 0 {
            row.flags |= Flags::UNDETERMINED;
        }
    }

    /// Returns the standard errors, in physical units, as if parameters at a bound were free. Held parameters have the
    /// error 0, and undetermined ones an infinite error.
    fn compute_released_errors(
        &self,
        row: &FitRow,
        information: &[f64],
        limits: &[ParameterLimits],
        tolerance: f64,
    ) -> Vec<f64> {
        if row.at_bound == 0 {
            return row.errors.clone();
        }
        self.release_errors(information, limits, tolerance)
    }

    /// Returns the standard errors of [`compute_released_errors`](RowBuilder::compute_released_errors) from the matrix
    /// whose inverse is the covariance.
    pub(super) fn release_errors(
        &self,
        information: &[f64],
        limits: &[ParameterLimits],
        tolerance: f64,
    ) -> Vec<f64> {
        let is_free: Vec<bool> = limits.iter().map(|limits| !limits.is_held()).collect();
        let released = covariance(information, &is_free, tolerance);
        let parameters = self.model.parameters.iter().zip(limits);
        parameters
            .zip(&released.errors)
            .map(|((parameter, limits), error)| {
                if limits.is_held() {
                    0.0
                } else {
                    error * parameter.solver.scale
                }
            })
            .collect()
    }

    /// Sets a row's status and message from the winner's status (`None`: interrupted), and clears the errors of failed
    /// fits. A fit with a parameter, χ² or objective that is not finite has failed.
    pub(super) fn set_status(&self, row: &mut FitRow, final_status: Option<Status>) {
        row.status = final_status.unwrap_or(Status::Interrupted);
        row.status_text = row.status.name().to_string();
        if final_status.is_none() {
            row.message = format!(
                "interrupted after {} rounds; the parameters are the best that were found",
                row.rounds
            );
        }
        let is_finite = row.chi2.is_finite()
            && row.objective.is_finite()
            && row.parameters.iter().all(|x| x.is_finite());
        if final_status.is_some() && !is_finite {
            row.status = Status::NotFinite;
            row.status_text = "non_finite_model_at_start".into();
        }
        if !row.status.is_success() && row.status != Status::MaxRounds {
            row.clear_errors();
        }
    }

    /// Sets a row's flags by its fit and its prepared spectrum: for bounds, χ², signal-to-noise, masked pixels and
    /// hulls.
    pub(super) fn set_flags(
        &self,
        row: &mut FitRow,
        chi2: ChiSquare,
        prepared: &Prepared,
        limits: &[ParameterLimits],
    ) {
        // 1. Find the facts that flags report.
        let nearer_tail = if chi2.value > chi2.dof {
            Tail::Upper
        } else {
            Tail::Lower
        };
        let is_improbable =
            row.dof > 0 && chi2_tail(nearer_tail, chi2.value, chi2.dof) < MIN_TAIL_PROBABILITY;
        let masked_share = 1.0 - prepared.unmasked as f64 / prepared.in_range.max(1) as f64;
        let unreached = prepared.arms.iter().map(|arm| arm.unreached).sum::<usize>() as f64;
        let good_pixels = unreached + prepared.unmasked as f64;
        let rotation_bit = self.vsini_at_lower_bound(row, limits);
        let extrapolates = self.model.arms.iter().any(|arm| {
            let labels: Vec<f64> = arm
                .inputs
                .iter()
                .map(|input| input.source.value(|p| row.parameters[p]))
                .collect();
            arm.emulator.extrapolates(&labels)
        });
        // 2. Set the flags.
        let flags = [
            (Flags::AT_BOUND, row.at_bound & !rotation_bit != 0),
            (Flags::NO_ROTATION, rotation_bit != 0),
            (Flags::NONFINITE_MASKED, prepared.nonfinite > 0),
            (
                Flags::POOR_CHI2,
                row.dof > 0 && chi2.value / chi2.dof > MAX_GOOD_CHI2,
            ),
            (
                Flags::HIGH_CHI2,
                is_improbable && nearer_tail == Tail::Upper,
            ),
            (Flags::LOW_CHI2, is_improbable && nearer_tail == Tail::Lower),
            (
                Flags::LOW_SN,
                prepared.signal_to_noise < MIN_SIGNAL_TO_NOISE,
            ),
            (Flags::MANY_MASKED, masked_share > MAX_MASKED_SHARE),
            (Flags::OUTSIDE_HULL, extrapolates),
            (
                Flags::FEW_REACHED,
                unreached > MAX_UNREACHED_SHARE * good_pixels,
            ),
        ];
        for (flag, is_set) in flags {
            if is_set {
                row.flags |= flag;
            }
        }
    }

    /// Returns the bit of vsini in `at_bound`, if vsini ended at its lower bound and that counts as no rotation.
    fn vsini_at_lower_bound(&self, row: &FitRow, limits: &[ParameterLimits]) -> u32 {
        let Some(p) = self.model.free_vsini() else {
            return 0;
        };
        let lower = limits[p].lower;
        if row.parameters[p] == lower && lower <= MAX_VSINI_WITHOUT_ROTATION {
            row.at_bound & 1 << p
        } else {
            0
        }
    }

    /// Sets the flag for a multimodal fit if another start ended elsewhere at nearly the same objective.
    fn flag_other_basins(
        &self,
        row: &mut FitRow,
        outcomes: &[Outcome],
        objectives: &[f64],
        best: usize,
    ) {
        for (k, outcome) in outcomes.iter().enumerate() {
            let is_close = objectives[k] - objectives[best] < MAX_MULTIMODAL_DIFFERENCE;
            let has_ended = outcome.gave_way.is_none();
            if k != best && has_ended && is_close && self.is_elsewhere(outcome, row) {
                row.flags |= Flags::MULTIMODAL;
                return;
            }
        }
    }

    /// Returns whether an outcome differs from the row by more than three standard errors in any parameter. If the row
    /// has no finite error, the outcome's error with all other parameters fixed is used.
    fn is_elsewhere(&self, outcome: &Outcome, row: &FitRow) -> bool {
        for (p, parameter) in self.model.parameters.iter().enumerate() {
            let error = if row.errors[p].is_finite() {
                row.errors[p]
            } else {
                parameter.solver.scale / outcome.normal_matrix[packed_index(p, p)].sqrt()
            };
            let difference = parameter.to_physical(outcome.parameters[p]) - row.parameters[p];
            if difference.abs() > 3.0 * error {
                return true;
            }
        }
        false
    }
}

/// Returns the fitted jitter of an arm, its standard error, and the factor of the errors; NaN for an arm without pixels
/// that count.
fn list_jitter(arm: &PreparedArm) -> [f64; 3] {
    let has_pixels = arm.weight.iter().any(|weight| *weight > 0.0);
    match &arm.jitter {
        _ if !has_pixels => [f64::NAN; 3],
        Some(jitter) => [jitter.fraction, jitter.error, jitter.factor],
        None => [0.0, f64::NAN, 1.0],
    }
}

/// Returns the number of the first guess's basins with a start that agrees with the winner. A start agrees if it ended
/// at the winner's objective, or if it was stopped in the basin of a start that agrees, or on the way to it.
fn count_agreeing_basins(
    outcomes: &[Outcome],
    objectives: &[f64],
    best: usize,
    starts: &[Start],
) -> u32 {
    // 1. Find the starts that ended at the winner's objective.
    let mut agrees: Vec<bool> = outcomes
        .iter()
        .zip(objectives)
        .map(|(outcome, objective)| {
            outcome.gave_way.is_none() && objective - objectives[best] < MAX_AGREEING_DIFFERENCE
        })
        .collect();
    // 2. Add stopped starts that lead to one that agrees, until there is no other.
    let leads_to = |better: usize, stopped: usize| {
        let better = outcomes[better].point();
        let stopped = outcomes[stopped].point();
        is_same_basin(better, stopped) || points_at(better, stopped)
    };
    while let Some(next) = (0..agrees.len()).find(|&k| {
        !agrees[k]
            && outcomes[k].gave_way == Some(GaveWay::SameBasin)
            && (0..agrees.len()).any(|j| agrees[j] && leads_to(j, k))
    }) {
        agrees[next] = true;
    }
    // 3. Count basins. Later starts, beyond a fold or of a poor fit, follow those of the first guess. Together they
    //    count once.
    let mut basins = BTreeSet::new();
    for (k, agrees) in agrees.iter().enumerate() {
        if *agrees {
            basins.insert(starts.get(k).map(|start| start.basin));
        }
    }
    basins.len() as u32
}
