//! Ends of small fits: errors from their variances, and statuses that hold.

use super::Passage;
use super::bounds::{bounds_of, free};
use super::covariances::put_correlations;
use super::parts::Rows;
use crate::curves::ends::polish::LARGE_ERROR;
use crate::curves::input::sizes::{roots, rounding};
use crate::curves::results::sound;
use crate::flag::Flags;
use crate::solver::Status;
use crate::solver::small::{SmallBatch, SmallColumns, WAITING};

/// Length of the next step, by the Jacobian itself, as a share of the errors, at which a fit whose sums f64 does not
/// hold has ended.
const NEAR: f64 = 1e-3;
/// Largest χ² per point that may be rounding: with more, sigma would be finer than the last three bits of the data.
const LITTLE: f64 = 1e-3;
/// Ratio of χ² to the rounding of data as large as the largest, below which a parameter may have no effect beyond it.
const FLOOR: f64 = 256.0;

/// The end of a fit as [`fit`](crate::CurveFitter::fit) judges it.
struct Judgement {
    /// (P): infinite for parameters that the data do not determine.
    variances: Vec<f64>,
    /// (P, P): NaN beside those.
    covariance: Vec<f64>,
    /// True if the Jacobian says that the fit has ended.
    is_end: bool,
}

/// What is known of the inverse normal matrix of a fit.
struct Inverse<'a> {
    /// (P)
    variances: &'a mut [f64],
    /// (P, P), as in [`SmallColumns`].
    correlations: Option<&'a mut [f64]>,
}

impl Passage<'_> {
    /// Turns the variances of a batch's ended fits into errors, in place, and successes that are not finite or no
    /// minima into failures. `sizes`: the largest |y| of each fit.
    pub(super) fn finish(
        &self,
        batch: &SmallBatch<'_>,
        sizes: &[f64],
        columns: &mut SmallColumns<'_>,
    ) {
        let (p, first) = (self.parameters, batch.first);
        // all fits have the same degrees of freedom, unless there are masks or bounds of each fit
        let alike = batch.mask.is_none() && batch.bounds.is_none_or(|(lower, _)| lower.len() == p);
        let freedom = |k: usize| {
            let (lower, upper) = bounds_of(batch.bounds, k, p);
            self.fitter
                .dof(self.used(batch, k), free(lower, upper, p))
                .max(0)
        };
        let common = alike.then(|| freedom(0));
        let is_sandwich = self.fitter.is_sandwich();
        let has_priors = self.fitter.priors.iter().any(Option::is_some);
        let cost = |chi2: f64, x: &[f64]| {
            if has_priors {
                chi2 + self.fitter.penalty(x)
            } else {
                chi2
            }
        };
        // the factor of the variances of a fit
        let factor =
            |k: usize, chi2: f64, parameters: &[f64]| match common.unwrap_or_else(|| freedom(k)) {
                _ if !self.fitter.is_scaled() && !is_sandwich => 1.0,
                // nothing is left to tell the noise from
                0 => f64::NAN,
                // priors do not tell the scatter of the data
                dof if is_sandwich && dof <= self.fitter.free_priors().count() as i64 => f64::NAN,
                _ if is_sandwich => 1.0,
                dof => {
                    f64::max(
                        cost(chi2, parameters),
                        self.rounding_of(batch, k, sizes[k], chi2),
                    ) / dof as f64
                }
            };
        let SmallColumns {
            parameters,
            variances,
            correlations,
            chi2,
            status,
            ..
        } = columns;
        // as a rule all are known, and a loop without an early exit is vector code
        if variances
            .iter()
            .fold(false, |lost, variance| lost | variance.is_nan())
        {
            let each = variances
                .chunks_mut(p)
                .zip(parameters.chunks(p))
                .zip(chi2.iter().zip(&mut **status));
            for (k, ((own, parameters), (chi2, status))) in each.enumerate() {
                let (lower, upper) = bounds_of(batch.bounds, k, p);
                let inside = |q: usize| {
                    lower.is_empty() || lower[q] < parameters[q] && parameters[q] < upper[q]
                };
                // a lost pivot takes along what was eliminated after it
                if chi2.is_finite() && (0..p).any(|q| own[q].is_nan() && inside(q)) {
                    let correlations = correlations
                        .as_deref_mut()
                        .map(|all| &mut all[k * p * p..(k + 1) * p * p]);
                    let inverse = Inverse {
                        variances: own,
                        correlations,
                    };
                    self.judge_lost(first + k, parameters, inverse, status);
                }
            }
        }
        // as a rule χ² is above what rounding leaves
        let plain = batch.sigma.is_none()
            && batch.mask.is_none()
            && !has_priors
            && self.fitter.is_scaled()
            && !is_sandwich;
        let usual_dof = common.filter(|dof| plain && *dof > 0).map(|dof| dof as f64);
        let of_fit = |k: usize, chi2: f64| match usual_dof {
            Some(dof)
                if chi2 > self.points as f64 * rounding([sizes[k]].into_iter(), f64::EPSILON) =>
            {
                chi2 / dof
            }
            _ => {
                let own = k * p..(k + 1) * p;
                let factor = factor(k, chi2, &parameters[own.clone()]);
                // an infinite variance stays one without any noise
                let has_noise = factor > 0.0;
                if !has_noise && variances[own].contains(&f64::INFINITY) {
                    f64::MIN_POSITIVE
                } else {
                    factor
                }
            }
        };
        let factors: Vec<f64> = chi2
            .iter()
            .enumerate()
            .map(|(k, chi2)| of_fit(k, *chi2))
            .collect();
        roots(variances, &factors);
        // as a rule χ² is far above rounding and no error is large, and loops without an early exit are vector code
        let bound = |size: f64| {
            if batch.sigma.is_none() {
                rounding([size].into_iter(), f64::EPSILON)
            } else {
                LITTLE
            }
        };
        let floor = FLOOR * self.points as f64;
        let is_above = chi2.iter().zip(sizes).fold(true, |all, (chi2, size)| {
            all & (*chi2 > floor * bound(*size))
        });
        let ends = variances.iter().zip(&**parameters);
        if is_above
            && ends.fold(true, |all, (error, x)| {
                all & (*error <= LARGE_ERROR * x.abs())
            })
        {
            return sound::columns(status, parameters, variances, chi2);
        }
        let is_rounding = |k: usize, chi2: f64| {
            chi2 <= FLOOR * self.rounding_of(batch, k, sizes[k], chi2 / FLOOR)
        };
        self.open_undetermined(first, is_rounding, chi2, &factors, parameters, variances);
        sound::columns(status, parameters, variances, chi2);
    }

    /// Makes the errors (fits, P) of parameters infinite that the data do not determine, where χ² is no more than what
    /// rounding leaves of it or an error is far larger than its parameter.
    fn open_undetermined(
        &self,
        first: usize,
        is_rounding: impl Fn(usize, f64) -> bool,
        chi2: &[f64],
        factors: &[f64],
        parameters: &[f64],
        errors: &mut [f64],
    ) {
        let p = self.parameters;
        let fits = errors
            .chunks_mut(p)
            .zip(parameters.chunks(p))
            .zip(chi2.iter().zip(factors))
            .enumerate();
        for (k, ((errors, parameters), (chi2, factor))) in fits {
            let is_large =
                |(error, x): (&f64, &f64)| *error > LARGE_ERROR * x.abs() && error.is_finite();
            if !is_rounding(k, *chi2) && !errors.iter().zip(parameters).any(is_large) {
                continue;
            }
            let Some(curve) = self.curve(first + k) else {
                continue;
            };
            let problem = self.fitter.problem(&curve);
            let Some(rows) = problem.rows(parameters) else {
                continue;
            };
            let variances: Vec<f64> = problem
                .covariance(&rows, parameters)
                .into_iter()
                .step_by(p + 1)
                .collect();
            let inside = problem.inside(parameters);
            for open in problem.undetermined(&rows, parameters, &inside, &variances, *factor) {
                errors[open] = f64::INFINITY;
            }
        }
    }

    /// Replaces the variances (P) of curve `index`'s fit, some of which are lost, and its correlations (P, P), by those
    /// of its Jacobian in f64; a success that is no minimum by that Jacobian, or that has none, is stalled instead.
    fn judge_lost(&self, index: usize, parameters: &[f64], inverse: Inverse<'_>, status: &mut i8) {
        let judgement = self.judge_end(index, parameters);
        // where a pivot is rounding the solver's predicted reduction means nothing
        if *status > 0 && !judgement.as_ref().is_some_and(|judgement| judgement.is_end) {
            *status = Status::Stalled.code() as i8;
        }
        if let Some(judgement) = judgement {
            inverse.variances.copy_from_slice(&judgement.variances);
            inverse
                .correlations
                .into_iter()
                .for_each(|matrix| put_correlations(&judgement.covariance, matrix));
        }
    }

    /// Replaces the flags of all fits: undetermined where an error is infinite, at a bound where a parameter that is
    /// not held is at one.
    pub(super) fn set_flags(&self, bounds: Option<(&[f64], &[f64])>, rows: &mut Rows<'_>) {
        let p = self.parameters;
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
            let own = k * p..(k + 1) * p;
            let (parameters, (lower, upper)) =
                (&rows.parameters[own.clone()], bounds_of(bounds, k, p));
            let is_at_bound = |q: usize| {
                lower[q] < upper[q] && !(lower[q] < parameters[q] && parameters[q] < upper[q])
            };
            flags.set(
                Flags::UNDETERMINED,
                rows.errors[own].iter().any(|error| error.is_infinite()),
            );
            flags.set(
                Flags::AT_BOUND,
                (0..lower.len()).any(is_at_bound) && parameters.iter().all(|x| x.is_finite()),
            );
        }
    }

    /// Returns the χ² that the rounding of the data of fit `k`, the largest of which is `size`, leaves in any case; 0
    /// if `chi2` is certainly larger.
    fn rounding_of(&self, batch: &SmallBatch<'_>, k: usize, size: f64, chi2: f64) -> f64 {
        let points = self.points;
        let plain = batch.sigma.is_none() && batch.mask.is_none();
        let most = if plain {
            rounding([size].into_iter(), f64::EPSILON)
        } else {
            LITTLE
        };
        if chi2 > most * points as f64 {
            return 0.0;
        }
        let own = k * points..(k + 1) * points;
        let counts = |j: &usize| batch.mask.is_none_or(|mask| !mask[*j]);
        let weighted = |j: usize| batch.y.get(j) / batch.sigma.map_or(1.0, |sigma| sigma[j]);
        rounding(own.filter(counts).map(weighted), f64::EPSILON)
    }

    /// Computes the variances at the end of curve `index`'s fit in f64, and whether it is a minimum; `None` where its
    /// rows are not finite.
    fn judge_end(&self, index: usize, parameters: &[f64]) -> Option<Judgement> {
        let curve = self.curve(index)?;
        let problem = self.fitter.problem(&curve);
        let rows = problem.rows(parameters)?;
        let covariance = problem.covariance(&rows, parameters);
        let dof = self.fitter.dof(curve.used, curve.free().len()).max(1) as f64;
        let noise = if self.fitter.is_scaled() {
            rows.cost() / dof
        } else {
            1.0
        };
        let mut variances: Vec<f64> = covariance
            .iter()
            .copied()
            .step_by(self.parameters + 1)
            .collect();
        let inside = problem.inside(parameters);
        for &p in &inside {
            if variances[p].is_nan() {
                variances[p] = f64::INFINITY;
            }
        }
        let asked = self
            .settings
            .given_ftol()
            .map_or(0.0, |ftol| ftol * rows.cost());
        let tolerated = asked.max(NEAR * NEAR * noise);
        // parameters that have no effect here, or act alike, may lower the cost beside it
        let is_saddle = problem.lower_beside(tolerated, &rows, parameters).is_some();
        Some(Judgement {
            variances,
            covariance,
            // `fit` judges itself what it finishes
            is_end: !is_saddle
                && (self.exact
                    || problem
                        .promise(&rows, parameters)
                        .is_none_or(|gain| gain <= tolerated)),
        })
    }
}

/// Prepares fits for the second fitter (f64, or differences on both sides): those that the first one has ended without
/// variances go on from their ends, and those that it has not ended begin at their starts again, unless they have used
/// their `budget` of rounds.
pub(super) fn resume(
    batch: &SmallBatch<'_>,
    p: usize,
    budget: u32,
    columns: &mut SmallColumns<'_>,
) {
    snap_to_bounds(batch, p, columns);
    // as a rule all have ended
    if columns.status.iter().all(|status| *status > 0)
        && columns
            .variances
            .iter()
            .fold(true, |all, x| all & x.is_finite())
    {
        return;
    }
    let ends = columns
        .status
        .iter_mut()
        .zip(&*columns.rounds)
        .zip(&mut *columns.promises);
    let fits = ends
        .zip(
            columns
                .parameters
                .chunks_mut(p)
                .zip(columns.variances.chunks(p)),
        )
        .enumerate();
    for (k, (((status, rounds), promise), (parameters, variances))) in fits {
        let arrived = Status::from_code((*status).into()).is_some_and(Status::is_success);
        let finite = parameters.iter().all(|x| x.is_finite());
        let ended = arrived && variances.iter().all(|x| x.is_finite());
        if *status != Status::BadInput.code() as i8 && !ended {
            if u32::from(*rounds) >= budget {
                *status = Status::MaxRounds.code() as i8;
                continue;
            }
            *status = WAITING;
            if !(arrived && finite) {
                *promise = f64::NAN;
                parameters.copy_from_slice(&batch.starts[k * p..(k + 1) * p]);
            }
        }
    }
}

/// Moves parameters that equal a bound when both are rounded to f32 onto the bound itself.
fn snap_to_bounds(batch: &SmallBatch<'_>, p: usize, columns: &mut SmallColumns<'_>) {
    if batch.bounds.is_none() {
        return;
    }
    for (k, parameters) in columns.parameters.chunks_mut(p).enumerate() {
        let (lower, upper) = bounds_of(batch.bounds, k, p);
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
pub(super) fn put_ends(rows: &mut Rows<'_>, codes: &[i8], rounds: &[u16]) {
    let ends = rows
        .status
        .iter_mut()
        .zip(rows.rounds.iter_mut().zip(rows.evaluations.iter_mut()));
    for ((status, (to, evaluations)), (code, from)) in ends.zip(codes.iter().zip(rounds)) {
        *status = Status::from_code((*code).into()).unwrap_or(Status::MaxRounds);
        // a small fit evaluates its model with derivatives only
        (*to, *evaluations) = ((*from).into(), (*from).into());
    }
}
