//! The row of a spectrum, made from the outcomes of its starts.

use std::collections::BTreeSet;

use crate::first_guess::Start;
use crate::flag::Flags;
use crate::math::covariance::{Covariance, covariance};
use crate::math::probability::{Tail, chi2_tail_is_below};
use crate::math::triangle::packed_index;
use crate::model::{Limits, Prepared, SpectralModel};
use crate::recording::Precision;
use crate::solver::basin::{is_same_basin, points_at};
use crate::solver::{GaveWay, Outcome, Status};
use crate::spectral::input::ready::ReadySpectrum;
use crate::spectral::misfit::{ChiSquare, Misfit};
use crate::spectral::results::row::FitRow;

/// Largest difference between the objectives of starts that agree.
const AGREE: f64 = 0.1;
/// Largest difference of the objective at which another minimum makes a fit multimodal.
const MULTIMODAL: f64 = 9.0;
/// Largest χ²/dof without the flag for a poor fit.
const POOR_CHI2: f64 = 2.0;
/// Smallest tail probability of a χ² without the flag for an improbable one.
const IMPROBABLE: f64 = 1e-6;
/// Largest lower bound of vsini, in km/s, that counts as no rotation.
const NO_ROTATION: f64 = 1.0;
/// Smallest signal-to-noise ratio without the flag for a low one.
const LOW_SIGNAL: f64 = 5.0;
/// Largest share of masked pixels without the flag for many.
const MANY_MASKED: f64 = 0.5;
/// Largest share of good pixels that the templates do not cover, without the flag for it.
const MANY_UNREACHED: f64 = 0.5;
/// Largest distance of a solution at a bound, in the solver's units. It is not 0 because f32 devices round.
const BOUND_TOLERANCE: f64 = 1e-6;

/// The inputs of rows that do not depend on the spectrum.
#[derive(Clone, Copy)]
pub struct Finish<'a> {
    pub model: &'a SpectralModel,
    pub precision: Precision,
    pub misfit: Misfit,
    /// Rows also have standard errors with all bounds released.
    pub released_errors: bool,
}

impl Finish<'_> {
    /// Returns an outcome's objective: χ² plus penalties, and the terms of the marginalisation over the continuum, if
    /// the model has it.
    pub fn objective(&self, outcome: &Outcome, prepared: &Prepared) -> f64 {
        let marginal = if self.model.marginalise {
            outcome.ln_det + prepared.marginal_constant
        } else {
            0.0
        };
        outcome.chi2 + outcome.penalty + marginal
    }

    /// Fills a spectrum's row from the outcomes of its starts: parameters, errors, status and flags of the best one.
    /// `row` has the identity and the flags of the input.
    pub fn fill(&self, row: &mut FitRow, outcomes: &[Outcome], ready: &ReadySpectrum) {
        let ReadySpectrum {
            prepared,
            limits,
            starts,
            ..
        } = ready;
        let objectives: Vec<f64> = outcomes
            .iter()
            .map(|o| self.objective(o, prepared))
            .collect();
        row.evaluations = outcomes.iter().map(|o| o.evaluations).sum();
        // 1. Choose the start with the lowest objective; among equal ones the first. Starts that were stopped early, or
        //    whose objective is not finite, are chosen only if there is no other.
        let may_win = |k: usize| outcomes[k].gave_way.is_none() && objectives[k].is_finite();
        let key = |k: &usize| {
            if may_win(*k) {
                objectives[*k]
            } else {
                f64::INFINITY
            }
        };
        let Some(best) = (0..outcomes.len()).min_by(|a, b| key(a).total_cmp(&key(b))) else {
            return;
        };
        let (winner, objective) = (&outcomes[best], objectives[best]);
        row.start = Some(best as u32);
        row.rounds = winner.rounds;
        row.chi2 = winner.chi2;
        row.objective = objective;
        let held = limits.iter().filter(|l| l.is_held()).count();
        row.continuum_terms = prepared.arms.iter().map(|arm| arm.rank as u32).collect();
        row.unreached = prepared
            .arms
            .iter()
            .map(|arm| arm.unreached as u32)
            .collect();
        row.dof = prepared.unmasked as i64
            - (self.model.parameters.len() - held) as i64
            - prepared.rank as i64;
        row.n_starts_agree = agreeing(outcomes, &objectives, best, starts);
        // 2. Set parameters and errors.
        let free = self.set_parameters(row, winner, limits);
        let tolerance = if self.precision.of_results() == Precision::F32 {
            1e-6
        } else {
            1e-12
        };
        let counts = [prepared.unmasked as f64, row.dof as f64];
        let information = self
            .misfit
            .information(winner, counts, &self.model.parameters, limits);
        let found = covariance(&information, &free, tolerance);
        self.set_errors(row, &found, &free, limits);
        if self.released_errors {
            row.released_errors = self.released(row, &information, limits, tolerance);
        }
        if self.model.loss().is_some() {
            row.downweighted = Some(winner.loss.downweighted / prepared.unmasked as f64);
        }
        // 3. Set status and flags. If any start was interrupted, so is the fit, because that start might have won.
        let interrupted = outcomes
            .iter()
            .any(|o| o.status == Some(Status::Interrupted));
        self.set_status(row, winner.status.filter(|_| !interrupted));
        let chi2 = self
            .misfit
            .chi_square(winner, prepared.unmasked, row.dof as f64);
        self.set_flags(row, chi2, prepared, limits);
        self.flag_other_basins(row, outcomes, &objectives, best);
    }

    /// Writes the winner's parameters, in physical units, and the bits of those at a bound into a row; returns which
    /// are not at one.
    fn set_parameters(&self, row: &mut FitRow, winner: &Outcome, limits: &[Limits]) -> Vec<bool> {
        let mut free = Vec::with_capacity(winner.parameters.len());
        for (p, (parameter, &u)) in self
            .model
            .parameters
            .iter()
            .zip(&winner.parameters)
            .enumerate()
        {
            let near = |bound: f64| {
                let at = parameter.to_u(bound);
                (u - at).abs() <= BOUND_TOLERANCE * at.abs().max(1.0)
            };
            let bound = [limits[p].lower, limits[p].upper]
                .into_iter()
                .find(|b| near(*b));
            row.parameters[p] = bound.unwrap_or_else(|| parameter.to_physical(u));
            row.at_bound |= u32::from(bound.is_some() && !limits[p].is_held()) << p;
            free.push(bound.is_none());
        }
        free
    }

    /// Writes errors, in physical units, and correlations into a row, and flags it if a direction is undetermined. A
    /// parameter at a bound has no error; a held one has the error 0.
    fn set_errors(&self, row: &mut FitRow, found: &Covariance, free: &[bool], limits: &[Limits]) {
        for (p, parameter) in self.model.parameters.iter().enumerate() {
            row.errors[p] = if limits[p].is_held() {
                0.0
            } else if free[p] {
                found.errors[p] * parameter.solver.scale
            } else {
                f64::NAN
            };
        }
        row.correlations.copy_from_slice(&found.correlations);
        if found.undetermined > 0 {
            row.flags |= Flags::UNDETERMINED;
        }
    }

    /// Returns the standard errors, in physical units, as if parameters at a bound were free. Held
    /// parameters have the error 0, and undetermined ones an infinite error.
    fn released(
        &self,
        row: &FitRow,
        normal_matrix: &[f64],
        limits: &[Limits],
        tolerance: f64,
    ) -> Vec<f64> {
        if row.at_bound == 0 {
            return row.errors.clone();
        }
        let free: Vec<bool> = limits.iter().map(|l| !l.is_held()).collect();
        let found = covariance(normal_matrix, &free, tolerance);
        let errors = self.model.parameters.iter().zip(&found.errors).zip(limits);
        errors
            .map(|((p, error), l)| {
                if l.is_held() {
                    0.0
                } else {
                    error * p.solver.scale
                }
            })
            .collect()
    }

    /// Sets a row's status and message from the winner's status (`None`: interrupted), and clears the errors of failed
    /// fits. A fit with a parameter, χ² or objective that is not finite has failed.
    fn set_status(&self, row: &mut FitRow, ended: Option<Status>) {
        row.status = ended.unwrap_or(Status::Interrupted);
        row.status_text = row.status.name().to_string();
        if ended.is_none() {
            row.message = format!(
                "interrupted after {} rounds; the parameters are the best that were found",
                row.rounds
            );
        }
        let finite = row.chi2.is_finite()
            && row.objective.is_finite()
            && row.parameters.iter().all(|x| x.is_finite());
        if ended.is_some() && !finite {
            row.status = Status::NotFinite;
            row.status_text = "non_finite_model_at_start".into();
        }
        if !row.status.is_success() && row.status != Status::MaxRounds {
            row.clear_errors();
        }
    }

    /// Sets a row's flags by its fit and its prepared spectrum: for bounds, χ², signal-to-noise, masked pixels and
    /// hulls.
    fn set_flags(&self, row: &mut FitRow, chi2: ChiSquare, prepared: &Prepared, limits: &[Limits]) {
        let is_improbable =
            |tail: Tail| row.dof > 0 && chi2_tail_is_below(IMPROBABLE, tail, chi2.value, chi2.dof);
        let masked = 1.0 - prepared.unmasked as f64 / prepared.in_range.max(1) as f64;
        let unreached = prepared.arms.iter().map(|arm| arm.unreached).sum::<usize>() as f64;
        let few_reached = unreached > MANY_UNREACHED * (unreached + prepared.unmasked as f64);
        let without_rotation = self.vsini_at_lower_bound(row, limits);
        let extrapolates = self.model.arms.iter().any(|arm| {
            let labels: Vec<f64> = arm
                .inputs
                .iter()
                .map(|input| input.source.value(|p| row.parameters[p]))
                .collect();
            arm.emulator.extrapolates(&labels)
        });
        let flags = [
            (Flags::AT_BOUND, row.at_bound & !without_rotation != 0),
            (Flags::NO_ROTATION, without_rotation != 0),
            (Flags::NONFINITE_MASKED, prepared.nonfinite > 0),
            (
                Flags::POOR_CHI2,
                row.dof > 0 && chi2.value / chi2.dof > POOR_CHI2,
            ),
            (Flags::HIGH_CHI2, is_improbable(Tail::Upper)),
            (Flags::LOW_CHI2, is_improbable(Tail::Lower)),
            (Flags::LOW_SN, prepared.signal_to_noise < LOW_SIGNAL),
            (Flags::MANY_MASKED, masked > MANY_MASKED),
            (Flags::OUTSIDE_HULL, extrapolates),
            (Flags::FEW_REACHED, few_reached),
        ];
        row.flags |= flags
            .into_iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(flag, _)| flag)
            .collect::<Flags>();
    }

    /// Returns the bit of vsini in `at_bound`, if vsini ended at its lower bound and that counts as no rotation.
    fn vsini_at_lower_bound(&self, row: &FitRow, limits: &[Limits]) -> u32 {
        let is_there =
            |p: &usize| row.parameters[*p] == limits[*p].lower && limits[*p].lower <= NO_ROTATION;
        row.at_bound
            & self
                .model
                .free_vsini()
                .filter(is_there)
                .map_or(0, |p| 1 << p)
    }

    /// Sets the flag for a multimodal fit if another start ended elsewhere at nearly the same objective.
    fn flag_other_basins(
        &self,
        row: &mut FitRow,
        outcomes: &[Outcome],
        objectives: &[f64],
        best: usize,
    ) {
        let other = outcomes
            .iter()
            .zip(objectives)
            .enumerate()
            .any(|(k, (o, objective))| {
                let is_close = *objective - objectives[best] < MULTIMODAL;
                k != best && o.gave_way.is_none() && is_close && self.is_elsewhere(o, row)
            });
        if other {
            row.flags |= Flags::MULTIMODAL;
        }
    }

    /// Returns whether an outcome differs from the row by more than three standard errors in any parameter. If the row
    /// has no finite error, that of the outcome alone is used.
    fn is_elsewhere(&self, other: &Outcome, row: &FitRow) -> bool {
        self.model
            .parameters
            .iter()
            .enumerate()
            .any(|(p, parameter)| {
                let curvature =
                    parameter.solver.scale / other.normal_matrix[packed_index(p, p)].sqrt();
                let error = if row.errors[p].is_finite() {
                    row.errors[p]
                } else {
                    curvature
                };
                (parameter.to_physical(other.parameters[p]) - row.parameters[p]).abs() > 3.0 * error
            })
    }
}

/// Returns the number of the first guess's basins with a start that ended as low as the winner, or gave way to one that
/// did. A start agrees if it ended at the winner's objective, or if it was stopped in the basin of a start that agrees,
/// or on the way to it.
fn agreeing(outcomes: &[Outcome], objectives: &[f64], best: usize, starts: &[Start]) -> u32 {
    let ended =
        |k: usize| outcomes[k].gave_way.is_none() && objectives[k] - objectives[best] < AGREE;
    let mut counts: Vec<bool> = (0..outcomes.len()).map(ended).collect();
    loop {
        let is_one = |j: usize, k: usize| {
            let (better, other) = (outcomes[j].point(), outcomes[k].point());
            is_same_basin(better, other) || points_at(better, other)
        };
        let joins = |k: usize| {
            outcomes[k].gave_way == Some(GaveWay::SameBasin)
                && (0..counts.len()).any(|j| counts[j] && is_one(j, k))
        };
        let Some(next) = (0..counts.len())
            .filter(|&k| !counts[k])
            .find(|&k| joins(k))
        else {
            break;
        };
        counts[next] = true;
    }
    // Later starts, beyond a fold or of a poor fit, follow those of the first guess. Together they count once.
    let basins = starts
        .iter()
        .map(|start| Some(start.basin))
        .chain(std::iter::repeat(None));
    let agree = basins.zip(&counts).filter(|(_, counts)| **counts);
    agree
        .map(|(basin, _)| basin)
        .collect::<BTreeSet<Option<usize>>>()
        .len() as u32
}
