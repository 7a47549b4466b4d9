//! A curve's rows in f64 on the host, Gauss–Newton steps and covariance.

use std::cell::Cell;

use nalgebra::{DMatrix, DVector};

use crate::buffers::ResidualScatter;
use crate::curve_model::{CurveModel, Failures};
use crate::curves::ends::factors::Factors;
use crate::curves::input::data::{Curve, Prior};
use crate::recording::{CustomInput, Limits, Member};
use crate::solver::{Estimator, Share};

/// Maximum number of Gauss–Newton steps.
const STEPS: usize = 30;
/// A step this much shorter than the parameters, under the Jacobian's scaling, changes nothing.
const SHORTEST: f64 = 1e-15;
/// A step this much shorter than the residual, and so than the errors, changes nothing either.
const NEGLIGIBLE: f64 = 1e-12;
/// A step this much shorter than the residual is near the optimum.
const FAR: f64 = 1e-3;
/// Largest ratio of a step's length to that of the last at which another step follows.
const SHRINKS: f64 = 0.9;
/// Relative change of the cost that may be rounding. A step that lowers it by more is followed by another, whatever its
/// length.
const COST_NOISE: f64 = 1e-9;
/// Largest cosine at a minimum between the residual and the space that the derivatives span.
const COSINE: f64 = 0.01;
/// Ratio of a cost to the rounding of the data, in f64, below which it may be the rounding of the model.
const RESOLVED: f64 = 1e6;
/// The same in f32.
const RESOLVED_IN_F32: f64 = 100.0;
/// Share of the cost at the start that may be rounding, where data tell nothing (residuals of 0).
const GONE: f64 = 1e-12;
/// Error of a parameter, in its sizes, from which on the data may not determine it.
pub(crate) const LARGE_ERROR: f64 = 1e3;
/// Ratio of a parameter's error to its error with all others held, from which on the others do what it does.
const INFLATED: f64 = 1e4;
/// Number of roundings of the data that a parameter's effect has to exceed where χ² is no more than rounding.
const EFFECT: f64 = 16.0;
/// Number of times that a step which raises the cost is halved.
const HALVINGS: usize = 10;

/// A curve as a problem for the host. Its rows are those of the data, then those of the priors.
pub(crate) struct Problem<'a> {
    pub model: &'a CurveModel,
    pub curve: &'a Curve,
    pub priors: &'a [Option<Prior>],
    pub estimator: Estimator,
    /// True if errors are those of the sandwich formula.
    pub is_sandwich: bool,
    pub failures: &'a Failures,
    /// Number of evaluations of the cost alone.
    pub costs: Cell<u32>,
    /// Number of linearisations that the fit has left.
    pub left: Cell<u32>,
}

/// A step of some parameters.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub parameters: &'a [usize],
    /// The changes of these parameters.
    pub changes: &'a [f64],
}

/// Residuals and their Jacobian at one point.
pub(crate) struct Rows {
    pub chi2: f64,
    pub penalty: f64,
    /// Jᵀr, by every parameter.
    pub gradient: Vec<f64>,
    residual: DVector<f64>,
    jacobian: DMatrix<f64>,
    /// The Jacobian whose square is the inverse of the covariance, where that is not `jacobian`; that of least squares
    /// if errors are those of the sandwich formula.
    expected: Option<DMatrix<f64>>,
    /// The scatter of the residuals, for the sandwich formula.
    scatter: Option<ResidualScatter>,
    /// True if an expected count is so near 0 that only the likelihood's end holds the fit.
    pub touches_zero: bool,
    /// True once the columns of the free parameters are known to be far from dependent on each other.
    pub is_independent: Cell<bool>,
}

impl Rows {
    /// Returns χ² plus the penalty of the priors.
    pub fn cost(&self) -> f64 {
        self.chi2 + self.penalty
    }

    /// Returns the squared norms of the Jacobian's columns, (P).
    pub fn squares(&self) -> impl Iterator<Item = f64> + '_ {
        self.jacobian
            .column_iter()
            .map(|column| column.norm_squared())
    }

    /// Returns the |cosine| between the residual and a column of the Jacobian; 0 where one of them is 0.
    pub fn cosine(&self, p: usize) -> f64 {
        let lengths = self.jacobian.column(p).norm() * self.residual.norm();
        if lengths > 0.0 {
            self.gradient[p].abs() / lengths
        } else {
            0.0
        }
    }

    /// Returns the products c_p·c_p, c_p·c_q and c_q·c_q of two of the Jacobian's columns.
    pub fn products(&self, [p, q]: [usize; 2]) -> [f64; 3] {
        let [p, q] = [p, q].map(|k| self.jacobian.column(k));
        [p.dot(&p), p.dot(&q), q.dot(&q)]
    }

    /// Returns the Gauss–Newton step of some parameters, one change each; `None` when a direction is undetermined.
    pub fn step(&self, some: &[usize], parameters: &[f64]) -> Option<Vec<f64>> {
        let (delta, ..) =
            Factors::new(&self.jacobian, some)?.step(&self.residual, &self.gradient, parameters)?;
        Some(delta.as_slice().to_vec())
    }

    /// Returns the shortest Gauss–Newton step of some parameters, along the directions that the rows determine; `None`
    /// if it is not finite.
    pub fn least_step(&self, some: &[usize], parameters: &[f64]) -> Option<Vec<f64>> {
        let (delta, ..) = Factors::new(&self.jacobian, some)?.least_step(
            &self.residual,
            &self.gradient,
            parameters,
        )?;
        Some(delta.as_slice().to_vec())
    }

    /// Returns damped steps of some parameters, one change each, if their columns are nearly dependent; none otherwise.
    pub fn damped_steps(&self, some: &[usize]) -> Vec<Vec<f64>> {
        Factors::new(&self.jacobian, some)
            .map_or(Vec::new(), |factors| factors.damped_steps(&self.residual))
    }

    /// Factorises the Jacobian (unless residuals are plain, the expected one) of the `free` parameters, for their
    /// covariance; `None` as for [`Factors::new`].
    fn information(&self, free: &[usize]) -> Option<Factors> {
        Factors::new(self.expected.as_ref().unwrap_or(&self.jacobian), free)
    }
}

impl Problem<'_> {
    /// Returns the model's values on the CPU and, with `derivatives`, these, (1 + P, points); `None` if it does not run
    /// there.
    pub fn model_rows(
        &self,
        derivatives: bool,
        parameters: &[f64],
        scale: &[f64],
    ) -> Option<Vec<f64>> {
        let limits = Some(Limits {
            scale,
            ..self.curve.limits()
        });
        let member = Member {
            index: self.curve.index,
            number: self.curve.number,
        };
        self.model.rows(
            derivatives,
            &CustomInput {
                x: &self.curve.x,
                parameters,
                limits,
                member,
            },
            self.failures,
        )
    }

    /// Returns the cost alone, without derivatives and with priors; `None` where the model is not finite at an unmasked
    /// point.
    pub fn cost(&self, parameters: &[f64]) -> Option<f64> {
        let Curve {
            y, weight, scale, ..
        } = self.curve;
        self.costs.set(self.costs.get() + 1);
        let model = self.model_rows(false, parameters, scale)?;
        let used = (0..y.len()).filter(|&j| weight[j] > 0.0);
        let chi2: f64 = used
            .map(|j| {
                self.estimator
                    .share(weight[j] * y[j], weight[j], model[j])
                    .cost
            })
            .sum();
        let priors = self.priors.iter().zip(parameters);
        let penalty: f64 = priors
            .filter_map(|(prior, x)| prior.map(|prior| ((prior.mean - x) / prior.sigma).powi(2)))
            .sum();
        Some(chi2 + penalty).filter(|cost| cost.is_finite())
    }

    /// Returns residuals, Jacobian, gradient and cost at some parameters; `None` where model or derivatives are not
    /// finite at an unmasked point.
    pub fn rows(&self, parameters: &[f64]) -> Option<Rows> {
        let Curve {
            y, weight, scale, ..
        } = self.curve;
        let (points, count) = (y.len(), parameters.len());
        let model = self.model_rows(true, parameters, scale)?;
        let used: Vec<usize> = (0..points).filter(|&j| weight[j] > 0.0).collect();
        let priors: Vec<(usize, Prior)> = self
            .priors
            .iter()
            .enumerate()
            .filter_map(|(p, prior)| prior.map(|prior| (p, prior)))
            .collect();
        let rows = used.len() + priors.len();
        let shares: Vec<Share> = used
            .iter()
            .map(|&j| self.estimator.share(weight[j] * y[j], weight[j], model[j]))
            .collect();
        let residual = DVector::from_fn(rows, |i, _| match shares.get(i) {
            Some(share) => share.residual,
            None => {
                let (p, prior) = priors[i - used.len()];
                (prior.mean - parameters[p]) / prior.sigma
            }
        });
        let of_prior = |i: usize, p: usize| {
            if priors[i].0 == p {
                1.0 / priors[i].1.sigma
            } else {
                0.0
            }
        };
        let unscaled = |of_point: &dyn Fn(usize, usize) -> f64| {
            let entry = |i, p| {
                if i < used.len() {
                    of_point(i, p)
                } else {
                    of_prior(i - used.len(), p)
                }
            };
            DMatrix::from_fn(rows, count, entry)
        };
        let by = |slope: fn(&Share) -> f64| {
            unscaled(&|i, p| slope(&shares[i]) * model[(1 + p) * points + used[i]])
        };
        let jacobian = by(|share| share.slope);
        let expected = match self.estimator {
            Estimator::LeastSquares => None,
            _ if self.is_sandwich => Some(unscaled(&|i, p| {
                weight[used[i]] * model[(1 + p) * points + used[i]]
            })),
            _ => Some(by(|share| share.expected_slope)),
        };
        let scatter = self.is_sandwich.then(|| {
            let mut scatter = ResidualScatter::default();
            shares
                .iter()
                .zip(&used)
                .for_each(|(share, &j)| scatter.add(share, weight[j]));
            scatter
        });
        let chi2: f64 = shares.iter().map(|share| share.cost).sum();
        let penalty = residual.rows(used.len(), priors.len()).norm_squared();
        let gradient: Vec<f64> = jacobian.tr_mul(&residual).iter().copied().collect();
        let finite = gradient.iter().all(|g| g.is_finite()) && (chi2 + penalty).is_finite();
        finite.then_some(Rows {
            chi2,
            penalty,
            gradient,
            residual,
            jacobian,
            expected,
            scatter,
            touches_zero: used
                .iter()
                .any(|&j| self.estimator.touches_zero(weight[j] * model[j])),
            is_independent: Cell::new(false),
        })
    }

    /// Takes a linearisation from those that the fit has left, and returns the rows at some parameters; `None` if none
    /// is left, or as [`rows`](Self::rows) does.
    pub fn drawn_rows(&self, parameters: &[f64]) -> Option<Rows> {
        self.left.set(self.left.get().checked_sub(1)?);
        self.rows(parameters)
    }

    /// Returns the indices of the parameters that are free and strictly between their bounds.
    pub fn inside(&self, parameters: &[f64]) -> Vec<usize> {
        let Curve { lower, upper, .. } = self.curve;
        self.curve
            .free()
            .into_iter()
            .filter(|&p| parameters[p] > lower[p] && parameters[p] < upper[p])
            .collect()
    }

    /// Returns (JᵀJ)⁻¹ of all parameters, row by row: 0 for held ones, NaN for undetermined ones and those at a bound.
    pub fn covariance(&self, rows: &Rows, parameters: &[f64]) -> Vec<f64> {
        let (count, inside) = (parameters.len(), self.inside(parameters));
        let mut covariance = match rows
            .scatter
            .and_then(|scatter| scatter.covariance_factors(inside.len()))
        {
            Some(factors) => self.sandwich(rows, &inside, factors),
            None => {
                let factors = rows.information(&inside);
                factors.map_or_else(
                    || vec![0.0; count * count],
                    |factors| factors.covariance(count),
                )
            }
        };
        for p in self
            .curve
            .free()
            .into_iter()
            .filter(|p| !inside.contains(p))
        {
            (0..count).for_each(|q| {
                (covariance[p * count + q], covariance[q * count + p]) = (f64::NAN, f64::NAN)
            });
        }
        covariance
    }

    /// Returns the covariance of the sandwich formula for the parameters `inside`, (P, P), with a and b of
    /// [`ResidualScatter::factors`]: C M C with C⁻¹ = H = a JᵀJ + D and M = b JᵀJ + D, D being the diagonal of the
    /// priors. That is b/a C + (1 − b/a) C D C.
    fn sandwich(&self, rows: &Rows, inside: &[usize], (a, b): (f64, f64)) -> Vec<f64> {
        let count = self.priors.len();
        let Some(jacobian) = rows.expected.as_ref().filter(|_| a > 0.0) else {
            let of = |at: usize| inside.contains(&(at / count)) && inside.contains(&(at % count));
            return (0..count * count)
                .map(|at| if of(at) { f64::NAN } else { 0.0 })
                .collect();
        };
        let of_data = jacobian.nrows() - self.priors.iter().flatten().count();
        let mut scaled = jacobian.clone();
        scaled.rows_mut(0, of_data).scale_mut(a.sqrt());
        let Some(factors) = Factors::new(&scaled, inside) else {
            return vec![0.0; count * count];
        };
        let plain = factors.covariance(count);
        let ratio = b / a;
        let of_prior = |p: usize| {
            self.priors[p]
                .filter(|_| inside.contains(&p))
                .map_or(0.0, |prior| prior.sigma.powi(-2))
        };
        let held = |i: usize, j: usize| -> f64 {
            let priors = (0..count).filter(|&p| of_prior(p) > 0.0);
            priors
                .map(|p| plain[i * count + p] * of_prior(p) * plain[p * count + j])
                .sum()
        };
        (0..count * count)
            .map(|at| ratio * plain[at] + (1.0 - ratio) * held(at / count, at % count))
            .collect()
    }

    /// Returns those of the parameters `inside` on which no row depends here: their columns of the Jacobian are 0.
    pub fn idle(&self, rows: &Rows, inside: &[usize]) -> Vec<usize> {
        let jacobian = rows.expected.as_ref().unwrap_or(&rows.jacobian);
        inside
            .iter()
            .copied()
            .filter(|&p| jacobian.column(p).norm() == 0.0)
            .collect()
    }

    /// Returns those of the parameters `inside` that the data do not determine at these parameters: no row depends on
    /// them; their variances are lost to rounding; other parameters do what they do, so that their errors are far
    /// larger than they are; or χ² is no more than rounding leaves, and so is their effect: a position without a peak.
    /// `variances` (P) are those of [`covariance`](Self::covariance), and `factor` makes squared errors of them.
    pub fn undetermined(
        &self,
        rows: &Rows,
        parameters: &[f64],
        inside: &[usize],
        variances: &[f64],
        factor: f64,
    ) -> Vec<usize> {
        let jacobian = rows.expected.as_ref().unwrap_or(&rows.jacobian);
        let rounding = self.curve.rounding(f64::EPSILON).sqrt();
        // that of the sandwich formula is no geometry
        let scatter = rows
            .scatter
            .and_then(|scatter| scatter.covariance_factors(inside.len()))
            .map_or(1.0, |(a, b)| b / (a * a));
        let is_floor = rows.cost().sqrt() <= EFFECT * rounding;
        let is_open = |p: &usize| {
            let (size, effect) = (self.size(parameters, *p), jacobian.column(*p).norm());
            let (error, inflation) = (
                (variances[*p] * factor).sqrt(),
                (variances[*p] / scatter).sqrt() * effect,
            );
            effect == 0.0
                || variances[*p].is_nan()
                || (error > LARGE_ERROR * size && inflation > INFLATED)
                || (is_floor && effect * size <= EFFECT * rounding)
        };
        inside.iter().copied().filter(is_open).collect()
    }

    /// Returns by how much a Gauss–Newton step is predicted to lower the cost; `None` when a direction is undetermined.
    pub fn promise(&self, rows: &Rows, parameters: &[f64]) -> Option<f64> {
        let inside = self.inside(parameters);
        let delta = rows.step(&inside, parameters)?;
        Some(
            inside
                .iter()
                .zip(&delta)
                .map(|(&p, d)| rows.gradient[p] * d)
                .sum(),
        )
    }

    /// Returns whether the Gauss–Newton step promises no appreciably lower cost, as at a minimum, or is undetermined.
    /// Also true where the residuals are at rounding level, of f32 where the fit ended `in_f32`: there the test means
    /// nothing.
    pub fn is_stationary(&self, rows: &Rows, parameters: &[f64], in_f32: bool) -> bool {
        let is_orthogonal = |gain| gain <= COSINE * COSINE * rows.cost();
        self.promise(rows, parameters).is_none_or(is_orthogonal) || self.is_rounding(rows, in_f32)
    }

    /// Returns whether the cost is so small that rounding of the data, in f32 or f64, explains the residuals.
    pub fn is_rounding(&self, rows: &Rows, in_f32: bool) -> bool {
        let rounding = match in_f32 {
            true => RESOLVED_IN_F32 * self.curve.rounding(f32::EPSILON.into()),
            false => RESOLVED * self.curve.rounding(f64::EPSILON),
        };
        // residuals have no data: the cost at the start says how small 0 is
        let at_start = || self.rows(&self.curve.start).map_or(0.0, |rows| rows.cost());
        rows.cost()
            <= if rounding > 0.0 {
                rounding
            } else {
                GONE * at_start()
            }
    }

    /// Returns whether the residuals are no more than rounding: of the data, or of the terms of which the model is
    /// made, parameters times derivatives, which may be far larger than their sum.
    pub fn is_rounding_of_terms(&self, rows: &Rows, parameters: &[f64], in_f32: bool) -> bool {
        let (epsilon, resolved) = match in_f32 {
            true => (f32::EPSILON.into(), RESOLVED_IN_F32),
            false => (f64::EPSILON, RESOLVED),
        };
        let terms: f64 = parameters
            .iter()
            .zip(rows.squares())
            .map(|(x, square)| x * x * square)
            .sum();
        rows.cost() <= resolved * f64::max(epsilon * epsilon * terms, self.curve.rounding(epsilon))
    }

    /// Takes Gauss–Newton steps while they lower the cost or shrink; returns the evaluations, and whether the last step
    /// was short.
    pub fn refine(&self, parameters: &mut Vec<f64>, rows: &mut Rows) -> (u32, bool) {
        let (mut last, mut falls, mut evaluations) = (f64::INFINITY, false, 0);
        let mut near = true;
        let free = self.inside(parameters);
        for _ in 0..STEPS {
            let Some(factors) = Factors::new(&rows.jacobian, &free) else {
                break;
            };
            rows.is_independent.set(factors.are_independent());
            let Some((delta, length, size)) =
                factors.step(&rows.residual, &rows.gradient, parameters)
            else {
                break;
            };
            near = length <= FAR * rows.cost().sqrt();
            let shortest = f64::max(SHORTEST * size, NEGLIGIBLE * rows.cost().sqrt());
            if !((length < SHRINKS * last || falls) && length > shortest) {
                break;
            }
            let (found, spent) = self.search(
                parameters,
                rows,
                Step {
                    parameters: &free,
                    changes: delta.as_slice(),
                },
            );
            evaluations += spent;
            let Some((trial, lower)) = found else { break };
            falls = lower.cost() < rows.cost() * (1.0 - COST_NOISE);
            (*parameters, *rows, last) = (trial, lower, length);
        }
        (evaluations, near)
    }

    /// Returns the first point along the step, half of it, … that does not raise the cost, with its rows, and the
    /// number of evaluations that this took.
    fn search(
        &self,
        parameters: &[f64],
        rows: &Rows,
        step: Step,
    ) -> (Option<(Vec<f64>, Rows)>, u32) {
        let mut evaluations = 0;
        for halvings in 0..=HALVINGS as i32 {
            let mut trial = parameters.to_vec();
            let changes = step.parameters.iter().zip(step.changes);
            changes.for_each(|(&p, d)| trial[p] += d * 0.5_f64.powi(halvings));
            if self.inside(&trial).len() != step.parameters.len() {
                continue;
            }
            if self.left.get() == 0 {
                break;
            }
            evaluations += 1;
            match self.drawn_rows(&trial) {
                Some(found) if found.cost() <= rows.cost() * (1.0 + COST_NOISE) => {
                    return (Some((trial, found)), evaluations);
                }
                _ => {}
            }
        }
        (None, evaluations)
    }
}
