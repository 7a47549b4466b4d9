//! Ends of small fits: errors from their variances, and statuses that the Jacobian confirms.

use super::bounds::{bounds_of, count_free};
use super::covariances::write_correlations;
use super::parts::ResultRows;
use super::{Ending, SmallFitRun};
use crate::curves::ends::polish::MIN_UNDETERMINED_ERROR;
use crate::curves::input::sizes::{rounding, scale_and_take_roots};
use crate::curves::results::sound;
use crate::flag::Flags;
use crate::solver::Status;
use crate::solver::small::{SmallBatch, SmallColumns, WAITING};

/// Length of the next step, by the Jacobian itself, as a share of the errors, at which a fit whose sums f64 does not
/// hold has ended.
const MAX_END_STEP_PER_ERROR: f64 = 1e-3;
/// Largest χ² per point that may be rounding: with more, sigma would be finer than the last three bits of the data.
const MAX_ROUNDING_PER_POINT: f64 = 1e-3;
/// Ratio of χ² to the rounding of data as large as the largest, below which the effect of a parameter may be rounding.
const MIN_CHI2_PER_ROUNDING: f64 = 256.0;

/// The end of a fit as [`fit`](crate::CurveFitter::fit) judges it.
struct Judgement {
    /// (P): infinite for parameters that the data do not determine.
    variances: Vec<f64>,
    /// (P, P): NaN beside those.
    covariance: Vec<f64>,
    /// True if the Jacobian says that the fit has ended.
    is_end: bool,
}

/// The inverse normal matrix of a fit, as far as it has been computed.
struct Inverse<'a> {
    /// (P)
    variances: &'a mut [f64],
    /// (P, P), as in [`SmallColumns`].
    correlations: Option<&'a mut [f64]>,
}

impl SmallFitRun<'_> {
    /// Turns the variances of a batch's ended fits into errors, in place, and successes that are not finite or no
    /// minima into failures. `sizes`: the largest |y| of each fit.
    pub(super) fn finish_fits(
        &self,
        batch: &SmallBatch<'_>,
        sizes: &[f64],
        columns: &mut SmallColumns<'_>,
    ) {
        let count = self.parameters;
        let first = batch.first;
        let SmallColumns {
            parameters,
            variances,
            correlations,
            chi2,
            status,
            ..
        } = columns;
        // 1. Compute the variances again where a pivot was lost. As a rule none was, and a loop without an early exit
        //    is vectorised.
        if variances
            .iter()
            .fold(false, |lost, variance| lost | variance.is_nan())
        {
            let fits = variances
                .chunks_mut(count)
                .zip(parameters.chunks(count))
                .zip(chi2.iter().zip(&mut **status));
            for (k, ((variances, parameters), (chi2, status))) in fits.enumerate() {
                let (lower, upper) = bounds_of(batch.bounds, k, count);
                let is_inside = |p: usize| {
                    lower.is_empty() || lower[p] < parameters[p] && parameters[p] < upper[p]
                };
                // A lost pivot makes NaN of all that was eliminated after it.
                if chi2.is_finite() && (0..count).any(|p| variances[p].is_nan() && is_inside(p)) {
                    let correlations = correlations
                        .as_deref_mut()
                        .map(|all| &mut all[k * count * count..(k + 1) * count * count]);
                    let inverse = Inverse {
                        variances,
                        correlations,
                    };
                    self.replace_lost_variances(first + k, parameters, inverse, status);
                }
            }
        }
        // 2. Turn variances into errors.
        let factors = self.variance_factors(batch, sizes, chi2, parameters, variances);
        scale_and_take_roots(variances, &factors);
        let errors = variances;
        // 3. As a rule χ² is far above rounding and no error is large, so that all parameters are determined.
        let max_rounding = |size: f64| {
            if batch.sigma.is_none() {
                rounding([size].into_iter(), f64::EPSILON)
            } else {
                MAX_ROUNDING_PER_POINT
            }
        };
        let min_chi2 = MIN_CHI2_PER_ROUNDING * self.points as f64;
        let are_above_rounding = chi2.iter().zip(sizes).fold(true, |all, (chi2, size)| {
            all & (*chi2 > min_chi2 * max_rounding(*size))
        });
        let ends = errors.iter().zip(&**parameters);
        if are_above_rounding
            && ends.fold(true, |all, (error, x)| {
                all & (*error <= MIN_UNDETERMINED_ERROR * x.abs())
            })
        {
            return sound::require_finite_columns(status, parameters, errors, chi2);
        }
        // 4. Otherwise the Jacobian in f64 decides which of them are.
        let is_rounding = |k: usize, chi2: f64| {
            let rounding = self.chi2_rounding(batch, k, sizes[k], chi2 / MIN_CHI2_PER_ROUNDING);
            chi2 <= MIN_CHI2_PER_ROUNDING * rounding
        };
        self.mark_undetermined(first, is_rounding, chi2, &factors, parameters, errors);
        sound::require_finite_columns(status, parameters, errors, chi2);
    }

    /// Returns the factors (fits) by which variances are multiplied: χ² over the degrees of freedom, or 1, or NaN where
    /// nothing is left to measure the noise by. An infinite variance stays infinite even without noise.
    fn variance_factors(
        &self,
        batch: &SmallBatch<'_>,
        sizes: &[f64],
        chi2: &[f64],
        parameters: &[f64],
        variances: &[f64],
    ) -> Vec<f64> {
        let count = self.parameters;
        let has_priors = self.fitter.priors.iter().any(Option::is_some);
        // All fits have the same degrees of freedom, unless there are masks or bounds of single fits.
        let have_same_dof =
            batch.mask.is_none() && batch.bounds.is_none_or(|(lower, _)| lower.len() == count);
        let dof_of_fit = |k: usize| {
            let (lower, upper) = bounds_of(batch.bounds, k, count);
            self.fitter.dof(
                self.count_unmasked(batch, k),
                count_free(lower, upper, count),
            )
        };
        let common_dof = have_same_dof.then(|| dof_of_fit(0));
        let factor_of_fit = |k: usize, chi2: f64, parameters: &[f64]| {
            let dof = common_dof.unwrap_or_else(|| dof_of_fit(k));
            let rounding = self.chi2_rounding(batch, k, sizes[k], chi2);
            self.fitter
                .variance_factor(chi2 + self.fitter.penalty(parameters), dof, rounding)
        };
        // As a rule χ² is above what rounding leaves, and the factor is χ²/dof.
        let is_plain = batch.sigma.is_none()
            && batch.mask.is_none()
            && !has_priors
            && self.fitter.is_scaled()
            && !self.fitter.is_sandwich();
        let usual_dof = common_dof
            .filter(|dof| is_plain && *dof > 0)
            .map(|dof| dof as f64);
        chi2.iter()
            .enumerate()
            .map(|(k, &chi2)| match usual_dof {
                Some(dof)
                    if chi2
                        > self.points as f64 * rounding([sizes[k]].into_iter(), f64::EPSILON) =>
                {
                    chi2 / dof
                }
                _ => {
                    let of_fit = k * count..(k + 1) * count;
                    let factor = factor_of_fit(k, chi2, &parameters[of_fit.clone()]);
                    let has_noise = factor > 0.0;
                    if !has_noise && variances[of_fit].contains(&f64::INFINITY) {
                        f64::MIN_POSITIVE
                    } else {
                        factor
                    }
                }
            })
            .collect()
    }

    /// Makes the errors (fits, P) of parameters infinite that the data do not determine, where χ² is no more than what
    /// rounding leaves of it or an error is far larger than its parameter.
    fn mark_undetermined(
        &self,
        first: usize,
        is_rounding: impl Fn(usize, f64) -> bool,
        chi2: &[f64],
        factors: &[f64],
        parameters: &[f64],
        errors: &mut [f64],
    ) {
        let count = self.parameters;
        let fits = errors
            .chunks_mut(count)
            .zip(parameters.chunks(count))
            .zip(chi2.iter().zip(factors))
            .enumerate();
        for (k, ((errors, parameters), (chi2, factor))) in fits {
            // 1. Choose the fits in doubt.
            let has_large_error = || {
                errors.iter().zip(parameters).any(|(error, x)| {
                    *error > MIN_UNDETERMINED_ERROR * x.abs() && error.is_finite()
                })
            };
            if !is_rounding(k, *chi2) && !has_large_error() {
                continue;
            }
            // 2. Linearise there in f64.
            let Some(curve) = self.curve(first + k) else {
                continue;
            };
            let problem = self.fitter.problem(&curve);
            let Some(linearisation) = problem.linearise(parameters) else {
                continue;
            };
            let variances: Vec<f64> = problem
                .covariance(&linearisation, parameters)
                .into_iter()
                .step_by(count + 1)
                .collect();
            // 3. Mark the parameters that the data do not determine.
            let interior = problem.interior_parameters(parameters);
            for p in problem.undetermined_parameters(
                &linearisation,
                parameters,
                &interior,
                &variances,
                *factor,
            ) {
                errors[p] = f64::INFINITY;
            }
        }
    }

    /// Replaces the variances (P) of curve `index`'s fit, some of which are lost, and its correlations (P, P), by those
    /// of its Jacobian in f64; a success that is no minimum by that Jacobian, or that has none, is stalled instead.
    fn replace_lost_variances(
        &self,
        index: usize,
        parameters: &[f64],
        inverse: Inverse<'_>,
        status: &mut i8,
    ) {
        let judgement = self.judge_in_f64(index, parameters);
        // Where a pivot is rounding, the solver's predicted reduction means nothing.
        if *status > 0 && !judgement.as_ref().is_some_and(|judgement| judgement.is_end) {
            *status = Status::Stalled.code() as i8;
        }
        if let Some(judgement) = judgement {
            inverse.variances.copy_from_slice(&judgement.variances);
            if let Some(matrix) = inverse.correlations {
                write_correlations(&judgement.covariance, matrix);
            }
        }
    }

    /// Replaces the flags of all fits: undetermined where an error is infinite, at a bound where a parameter that is
    /// not held is at one.
    pub(super) fn set_flags(&self, bounds: Option<(&[f64], &[f64])>, rows: &mut ResultRows<'_>) {
        let count = self.parameters;
        rows.flags.fill(Flags::empty());
        if bounds.is_none()
            && rows
                .errors
                .iter()
                .fold(true, |all, error| all & error.is_finite())
        {
            return;
        }
        for (k, flags) in rows.flags.iter_mut().enumerate() {
            let of_fit = k * count..(k + 1) * count;
            let parameters = &rows.parameters[of_fit.clone()];
            let (lower, upper) = bounds_of(bounds, k, count);
            let is_at_bound = |p: usize| {
                lower[p] < upper[p] && !(lower[p] < parameters[p] && parameters[p] < upper[p])
            };
            flags.set(
                Flags::UNDETERMINED,
                rows.errors[of_fit].iter().any(|error| error.is_infinite()),
            );
            flags.set(
                Flags::AT_BOUND,
                (0..lower.len()).any(is_at_bound) && parameters.iter().all(|x| x.is_finite()),
            );
        }
    }

    /// Returns the χ² that the rounding of the data of fit `k`, the largest of which is `size`, leaves in any case; 0
    /// if `chi2` is certainly larger.
    fn chi2_rounding(&self, batch: &SmallBatch<'_>, k: usize, size: f64, chi2: f64) -> f64 {
        let points = self.points;
        let is_plain = batch.sigma.is_none() && batch.mask.is_none();
        let max_per_point = if is_plain {
            rounding([size].into_iter(), f64::EPSILON)
        } else {
            MAX_ROUNDING_PER_POINT
        };
        if chi2 > max_per_point * points as f64 {
            return 0.0;
        }
        let weighted_data = (k * points..(k + 1) * points)
            .filter(|j| batch.mask.is_none_or(|mask| !mask[*j]))
            .map(|j| batch.y.get(j) / batch.sigma.map_or(1.0, |sigma| sigma[j]));
        rounding(weighted_data, f64::EPSILON)
    }

    /// Computes the variances at the end of curve `index`'s fit in f64, and whether it is a minimum; `None` where its
    /// linearisation is not finite.
    fn judge_in_f64(&self, index: usize, parameters: &[f64]) -> Option<Judgement> {
        let curve = self.curve(index)?;
        let problem = self.fitter.problem(&curve);
        let linearisation = problem.linearise(parameters)?;
        // 1. Variances are infinite where the data do not determine a parameter.
        let covariance = problem.covariance(&linearisation, parameters);
        let mut variances: Vec<f64> = covariance
            .iter()
            .copied()
            .step_by(self.parameters + 1)
            .collect();
        for p in problem.interior_parameters(parameters) {
            if variances[p].is_nan() {
                variances[p] = f64::INFINITY;
            }
        }
        // 2. At a minimum no step gains more than a small share of the noise, or what the user's `ftol` allows.
        let dof = self
            .fitter
            .dof(curve.unmasked_points, curve.free_parameters().len())
            .max(1) as f64;
        let noise = if self.fitter.is_scaled() {
            linearisation.cost() / dof
        } else {
            1.0
        };
        let users_tolerance = self
            .settings
            .given_ftol()
            .map_or(0.0, |ftol| ftol * linearisation.cost());
        let tolerance =
            users_tolerance.max(MAX_END_STEP_PER_ERROR * MAX_END_STEP_PER_ERROR * noise);
        // Parameters that have no effect here, or the same effect, may lower the cost beside the end.
        let is_saddle = problem
            .find_lower_beside(tolerance, &linearisation, parameters)
            .is_some();
        // `fit` makes the second test itself when it finishes a fit.
        let is_end = !is_saddle
            && (self.ending == Ending::AtTolerance
                || problem
                    .predicted_reduction(&linearisation, parameters)
                    .is_none_or(|reduction| reduction <= tolerance));
        Some(Judgement {
            variances,
            covariance,
            is_end,
        })
    }
}

/// Prepares fits for the second fitter (f64, or two-sided differences). Fits that the first one has ended without
/// variances continue from their ends. Fits that it has not ended begin at their starts again, unless they have used
/// their `budget` of rounds.
pub(super) fn prepare_second_fits(
    batch: &SmallBatch<'_>,
    count: usize,
    budget: u32,
    columns: &mut SmallColumns<'_>,
) {
    snap_to_bounds(batch, count, columns);
    // As a rule all have ended.
    if columns.status.iter().all(|status| *status > 0)
        && columns
            .variances
            .iter()
            .fold(true, |all, x| all & x.is_finite())
    {
        return;
    }
    let fits = columns
        .status
        .iter_mut()
        .zip(&*columns.rounds)
        .zip(&mut *columns.predicted_reductions)
        .zip(
            columns
                .parameters
                .chunks_mut(count)
                .zip(columns.variances.chunks(count)),
        );
    for (k, (((status, rounds), predicted_reduction), (parameters, variances))) in fits.enumerate()
    {
        let has_converged = *status > 0;
        let has_ended = has_converged && variances.iter().all(|x| x.is_finite());
        if *status == Status::BadInput.code() as i8 || has_ended {
            continue;
        }
        if u32::from(*rounds) >= budget {
            *status = Status::MaxRounds.code() as i8;
            continue;
        }
        *status = WAITING;
        let continues = has_converged && parameters.iter().all(|x| x.is_finite());
        if !continues {
            *predicted_reduction = f64::NAN;
            parameters.copy_from_slice(&batch.starts[k * count..(k + 1) * count]);
        }
    }
}

/// Moves parameters that equal a bound when both are rounded to f32 onto the bound itself.
fn snap_to_bounds(batch: &SmallBatch<'_>, count: usize, columns: &mut SmallColumns<'_>) {
    if batch.bounds.is_none() {
        return;
    }
    for (k, parameters) in columns.parameters.chunks_mut(count).enumerate() {
        let (lower, upper) = bounds_of(batch.bounds, k, count);
        for (x, (lower, upper)) in parameters.iter_mut().zip(lower.iter().zip(upper)) {
            for bound in [*lower, *upper] {
                if *x as f32 == bound as f32 && bound.is_finite() {
                    *x = bound;
                }
            }
        }
    }
}

/// Writes statuses, decoded from `codes`, and rounds, which also are the numbers of evaluations, into the rows of ended
/// fits.
pub(super) fn write_ends(rows: &mut ResultRows<'_>, codes: &[i8], rounds: &[u16]) {
    let counts = rows.rounds.iter_mut().zip(rows.evaluations.iter_mut());
    let ends = codes.iter().zip(rounds);
    for ((status, (row_rounds, evaluations)), (code, rounds)) in
        rows.status.iter_mut().zip(counts).zip(ends)
    {
        *status = Status::from_code((*code).into()).unwrap_or(Status::MaxRounds);
        *row_rounds = (*rounds).into();
        // A small fit evaluates its model with derivatives only.
        *evaluations = (*rounds).into();
    }
}
