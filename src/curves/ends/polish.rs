//! Linearisation of a curve's fit in f64 on the host, Gauss–Newton steps and covariance.

use std::cell::Cell;

use nalgebra::{DMatrix, DVector};

use crate::buffers::ResidualScatter;
use crate::curve_model::{CurveModel, Failures};
use crate::curves::ends::factors::JacobianFactors;
use crate::curves::input::data::{Curve, ParameterPrior};
use crate::recording::{CustomInput, Limits, Member};
use crate::solver::{Estimator, Share};

/// Maximum number of Gauss–Newton steps.
const MAX_GAUSS_NEWTON_STEPS: usize = 30;
/// Ratio of a step's length to that of the parameters, under the Jacobian's scaling, below which it changes nothing.
const MIN_STEP_PER_PARAMETERS: f64 = 1e-15;
/// Ratio of a step's length to that of the residual, and so to the errors, below which it changes nothing either.
const MIN_STEP_PER_RESIDUAL: f64 = 1e-12;
/// Ratio of a step's length to that of the residual below which the step is near the minimum.
const MAX_FINAL_STEP_PER_RESIDUAL: f64 = 1e-3;
/// Largest ratio of a step's length to that of the previous one at which another step follows.
const MAX_STEP_CONTRACTION: f64 = 0.9;
/// Relative change of the cost that may be rounding. A step that lowers it by more is followed by another, whatever its
/// length.
const RELATIVE_COST_ROUNDING: f64 = 1e-9;
/// Largest cosine at a minimum between the residual and the space that the derivatives span.
const MAX_COSINE_AT_MINIMUM: f64 = 0.01;
/// Ratio of a cost to the rounding of the data, in f64, below which the cost may be the rounding of the model.
const MODEL_ROUNDING_PER_DATA_ROUNDING: f64 = 1e6;
/// The same in f32.
const MODEL_ROUNDING_PER_DATA_ROUNDING_IN_F32: f64 = 100.0;
/// Share of the cost at the start that may be rounding, where there are no data to measure it by (residuals of 0).
const ROUNDING_PER_START_COST: f64 = 1e-12;
/// Ratio of a parameter's error to its size above which the data may not determine it.
pub(crate) const MIN_UNDETERMINED_ERROR: f64 = 1e3;
/// Ratio of a parameter's error to its error with all others held, above which the others have the same effect.
const MIN_ERROR_INFLATION: f64 = 1e4;
/// Number of roundings of the data that a parameter's effect must exceed where χ² is no more than rounding.
const MIN_EFFECT_PER_ROUNDING: f64 = 16.0;
/// Number of times that a step which raises the cost is halved.
const MAX_HALVINGS: usize = 10;

/// A curve's least-squares problem on the host. The rows of its Jacobian are those of the data, then those of the
/// priors.
pub(crate) struct CurveProblem<'a> {
    pub model: &'a CurveModel,
    pub curve: &'a Curve,
    pub priors: &'a [Option<ParameterPrior>],
    pub estimator: Estimator,
    /// True if errors are those of the sandwich formula.
    pub is_sandwich: bool,
    pub failures: &'a Failures,
    /// Number of evaluations of the cost alone.
    pub cost_evaluations: Cell<u32>,
    /// Number of linearisations that the fit may still use.
    pub linearisations_left: Cell<u32>,
}

/// A step of some parameters.
#[derive(Clone, Copy)]
pub(crate) struct ParameterStep<'a> {
    pub parameters: &'a [usize],
    /// The changes of these parameters.
    pub changes: &'a [f64],
}

/// Residuals and their Jacobian at one point.
pub(crate) struct CurveLinearisation {
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
    /// True if an expected count is so near 0 that only the end of the likelihood's range holds the fit.
    pub touches_zero: bool,
    /// True once the columns of the free parameters are known to be far from dependent on each other.
    pub is_independent: Cell<bool>,
}

impl CurveLinearisation {
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

    /// Returns the predicted reduction of the cost by a Gauss–Newton step of the parameters `moved`: Jᵀr · step.
    pub fn predicted_reduction_by(&self, moved: &[usize], step: &[f64]) -> f64 {
        moved
            .iter()
            .zip(step)
            .map(|(&p, change)| self.gradient[p] * change)
            .sum()
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
    pub fn column_products(&self, [p, q]: [usize; 2]) -> [f64; 3] {
        let first = self.jacobian.column(p);
        let second = self.jacobian.column(q);
        [first.dot(&first), first.dot(&second), second.dot(&second)]
    }

    /// Returns the Gauss–Newton step of the parameters `moved`, one change each; `None` when a direction is
    /// undetermined.
    pub fn gauss_newton_step(&self, moved: &[usize], parameters: &[f64]) -> Option<Vec<f64>> {
        let (step, ..) = JacobianFactors::new(&self.jacobian, moved)?.gauss_newton_step(
            &self.residual,
            &self.gradient,
            parameters,
        )?;
        Some(step.as_slice().to_vec())
    }

    /// Returns the shortest Gauss–Newton step of the parameters `moved`, along the directions that the rows determine;
    /// `None` if it is not finite.
    pub fn shortest_step(&self, moved: &[usize], parameters: &[f64]) -> Option<Vec<f64>> {
        let (step, ..) = JacobianFactors::new(&self.jacobian, moved)?.shortest_step(
            &self.residual,
            &self.gradient,
            parameters,
        )?;
        Some(step.as_slice().to_vec())
    }

    /// Returns damped steps of the parameters `moved`, one change each, if their columns are nearly dependent; none
    /// otherwise.
    pub fn damped_steps(&self, moved: &[usize]) -> Vec<Vec<f64>> {
        JacobianFactors::new(&self.jacobian, moved)
            .map_or(Vec::new(), |factors| factors.damped_steps(&self.residual))
    }

    /// Returns the Jacobian that covariances are computed from: the expected one, unless residuals are plain.
    fn covariance_jacobian(&self) -> &DMatrix<f64> {
        self.expected.as_ref().unwrap_or(&self.jacobian)
    }
}

impl CurveProblem<'_> {
    /// Returns the model's values on the CPU and, with `derivatives`, these, (1 + P, points); `None` if it does not run
    /// there.
    pub fn evaluate_model(
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
        self.cost_evaluations.set(self.cost_evaluations.get() + 1);
        let model = self.evaluate_model(false, parameters, scale)?;
        let unmasked = (0..y.len()).filter(|&j| weight[j] > 0.0);
        let chi2: f64 = unmasked
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
    pub fn linearise(&self, parameters: &[f64]) -> Option<CurveLinearisation> {
        let Curve {
            y, weight, scale, ..
        } = self.curve;
        let points = y.len();
        let count = parameters.len();
        let model = self.evaluate_model(true, parameters, scale)?;
        // 1. Each unmasked point has a row, and each prior has one below them.
        let unmasked: Vec<usize> = (0..points).filter(|&j| weight[j] > 0.0).collect();
        let priors: Vec<(usize, ParameterPrior)> = self
            .priors
            .iter()
            .enumerate()
            .filter_map(|(p, prior)| prior.map(|prior| (p, prior)))
            .collect();
        let rows = unmasked.len() + priors.len();
        // 2. The estimator turns each point into a cost, a residual and a slope.
        let shares: Vec<Share> = unmasked
            .iter()
            .map(|&j| self.estimator.share(weight[j] * y[j], weight[j], model[j]))
            .collect();
        let residual = DVector::from_fn(rows, |row, _| match shares.get(row) {
            Some(share) => share.residual,
            None => {
                let (p, prior) = priors[row - unmasked.len()];
                (prior.mean - parameters[p]) / prior.sigma
            }
        });
        // 3. A Jacobian's rows are the model's derivatives, each times the slope of its point, and those of the priors.
        let jacobian_with = |slope_of_row: &dyn Fn(usize) -> f64| {
            DMatrix::from_fn(rows, count, |row, p| match unmasked.get(row) {
                Some(&j) => slope_of_row(row) * model[(1 + p) * points + j],
                None => {
                    let (prior_parameter, prior) = priors[row - unmasked.len()];
                    if prior_parameter == p {
                        1.0 / prior.sigma
                    } else {
                        0.0
                    }
                }
            })
        };
        let jacobian = jacobian_with(&|row| shares[row].slope);
        let expected = match self.estimator {
            Estimator::LeastSquares => None,
            _ if self.is_sandwich => Some(jacobian_with(&|row| weight[unmasked[row]])),
            _ => Some(jacobian_with(&|row| shares[row].expected_slope)),
        };
        let scatter = self.is_sandwich.then(|| {
            let mut scatter = ResidualScatter::default();
            for (share, &j) in shares.iter().zip(&unmasked) {
                scatter.add(share, weight[j]);
            }
            scatter
        });
        // 4. Costs and gradient must be finite.
        let chi2: f64 = shares.iter().map(|share| share.cost).sum();
        let penalty = residual.rows(unmasked.len(), priors.len()).norm_squared();
        let gradient: Vec<f64> = jacobian.tr_mul(&residual).iter().copied().collect();
        let is_finite = gradient.iter().all(|g| g.is_finite()) && (chi2 + penalty).is_finite();
        is_finite.then_some(CurveLinearisation {
            chi2,
            penalty,
            gradient,
            residual,
            jacobian,
            expected,
            scatter,
            touches_zero: unmasked
                .iter()
                .any(|&j| self.estimator.touches_zero(weight[j] * model[j])),
            is_independent: Cell::new(false),
        })
    }

    /// Linearises at some parameters and counts it against the fit's budget; `None` if the budget is used up, or as
    /// [`linearise`](Self::linearise) does.
    pub fn linearise_if_finite_and_in_budget(
        &self,
        parameters: &[f64],
    ) -> Option<CurveLinearisation> {
        self.linearisations_left
            .set(self.linearisations_left.get().checked_sub(1)?);
        self.linearise(parameters)
    }

    /// Returns the indices of the parameters that are free and strictly between their bounds.
    pub fn interior_parameters(&self, parameters: &[f64]) -> Vec<usize> {
        let Curve { lower, upper, .. } = self.curve;
        self.curve
            .free_parameters()
            .into_iter()
            .filter(|&p| parameters[p] > lower[p] && parameters[p] < upper[p])
            .collect()
    }

    /// Returns (JᵀJ)⁻¹ of all parameters, row by row: 0 for held ones, NaN for undetermined ones and those at a bound.
    pub fn covariance(&self, linearisation: &CurveLinearisation, parameters: &[f64]) -> Vec<f64> {
        let count = parameters.len();
        let interior = self.interior_parameters(parameters);
        // 1. The parameters between their bounds have a covariance.
        let scatter_factors = linearisation
            .scatter
            .and_then(|scatter| scatter.covariance_factors(interior.len()));
        let mut covariance = match scatter_factors {
            Some(factors) => self.sandwich_covariance(linearisation, &interior, factors),
            None => JacobianFactors::new(linearisation.covariance_jacobian(), &interior)
                .map_or_else(
                    || vec![0.0; count * count],
                    |factors| factors.covariance(count),
                ),
        };
        // 2. Those at a bound have none, since the cost has a slope there.
        for p in self.curve.free_parameters() {
            if interior.contains(&p) {
                continue;
            }
            for q in 0..count {
                covariance[p * count + q] = f64::NAN;
                covariance[q * count + p] = f64::NAN;
            }
        }
        covariance
    }

    /// Returns the covariance of the sandwich formula for the parameters `interior`, (P, P), with a and b of
    /// [`ResidualScatter::covariance_factors`]: C M C with C⁻¹ = H = a JᵀJ + D and M = b JᵀJ + D, D being the diagonal
    /// of the priors. That is b/a C + (1 − b/a) C D C.
    fn sandwich_covariance(
        &self,
        linearisation: &CurveLinearisation,
        interior: &[usize],
        (a, b): (f64, f64),
    ) -> Vec<f64> {
        let count = self.priors.len();
        // 1. Without a Jacobian or with a = 0 nothing is determined.
        let Some(jacobian) = linearisation.expected.as_ref().filter(|_| a > 0.0) else {
            return (0..count * count)
                .map(|k| {
                    let is_interior =
                        interior.contains(&(k / count)) && interior.contains(&(k % count));
                    if is_interior { f64::NAN } else { 0.0 }
                })
                .collect();
        };
        // 2. Scale the rows of the data by √a to get C.
        let data_rows = jacobian.nrows() - self.priors.iter().flatten().count();
        let mut scaled = jacobian.clone();
        scaled.rows_mut(0, data_rows).scale_mut(a.sqrt());
        let Some(factors) = JacobianFactors::new(&scaled, interior) else {
            return vec![0.0; count * count];
        };
        let c = factors.covariance(count);
        // 3. Combine C with C D C.
        let ratio = b / a;
        let prior_diagonal: Vec<f64> = (0..count)
            .map(|p| {
                self.priors[p]
                    .filter(|_| interior.contains(&p))
                    .map_or(0.0, |prior| prior.sigma.powi(-2))
            })
            .collect();
        let cdc = |i: usize, j: usize| -> f64 {
            let with_prior = (0..count).filter(|&p| prior_diagonal[p] > 0.0);
            with_prior
                .map(|p| c[i * count + p] * prior_diagonal[p] * c[p * count + j])
                .sum()
        };
        (0..count * count)
            .map(|k| ratio * c[k] + (1.0 - ratio) * cdc(k / count, k % count))
            .collect()
    }

    /// Returns those of the parameters `interior` on which no row depends here: their columns of the Jacobian are 0.
    pub fn parameters_without_effect(
        &self,
        linearisation: &CurveLinearisation,
        interior: &[usize],
    ) -> Vec<usize> {
        let jacobian = linearisation.covariance_jacobian();
        interior
            .iter()
            .copied()
            .filter(|&p| jacobian.column(p).norm() == 0.0)
            .collect()
    }

    /// Returns those of the parameters `interior` that the data do not determine at these parameters.
    ///
    /// A parameter is undetermined in four cases. No row depends on it. Its variance is lost to rounding. Other
    /// parameters have the same effect, so that its error is far larger than itself. Or χ² is no more than rounding
    /// leaves, and so is the parameter's effect, as that of a position without a peak. `variances` (P) are those of
    /// [`covariance`](Self::covariance), and `factor` makes squared errors of them.
    pub fn undetermined_parameters(
        &self,
        linearisation: &CurveLinearisation,
        parameters: &[f64],
        interior: &[usize],
        variances: &[f64],
        factor: f64,
    ) -> Vec<usize> {
        let jacobian = linearisation.covariance_jacobian();
        let rounding = self.curve.rounding(f64::EPSILON).sqrt();
        // The variances of the sandwich formula contain the scatter of the residuals, which inflation must not.
        let scatter = linearisation
            .scatter
            .and_then(|scatter| scatter.covariance_factors(interior.len()))
            .map_or(1.0, |(a, b)| b / (a * a));
        let cost_is_rounding = linearisation.cost().sqrt() <= MIN_EFFECT_PER_ROUNDING * rounding;
        let is_undetermined = |p: usize| {
            let size = self.parameter_size(parameters, p);
            let effect = jacobian.column(p).norm();
            let error = (variances[p] * factor).sqrt();
            let inflation = (variances[p] / scatter).sqrt() * effect;
            effect == 0.0
                || variances[p].is_nan()
                || (error > MIN_UNDETERMINED_ERROR * size && inflation > MIN_ERROR_INFLATION)
                || (cost_is_rounding && effect * size <= MIN_EFFECT_PER_ROUNDING * rounding)
        };
        interior
            .iter()
            .copied()
            .filter(|&p| is_undetermined(p))
            .collect()
    }

    /// Returns the predicted reduction of the cost by a Gauss–Newton step; `None` when a direction is undetermined.
    pub fn predicted_reduction(
        &self,
        linearisation: &CurveLinearisation,
        parameters: &[f64],
    ) -> Option<f64> {
        let interior = self.interior_parameters(parameters);
        let step = linearisation.gauss_newton_step(&interior, parameters)?;
        Some(linearisation.predicted_reduction_by(&interior, &step))
    }

    /// Returns whether the predicted reduction of the Gauss–Newton step is negligible, as at a minimum, or
    /// undetermined. Also true where the residuals are at rounding level, of f32 where the fit ended `in_f32`: there
    /// the test means nothing.
    pub fn is_stationary(
        &self,
        linearisation: &CurveLinearisation,
        parameters: &[f64],
        in_f32: bool,
    ) -> bool {
        let negligible = MAX_COSINE_AT_MINIMUM * MAX_COSINE_AT_MINIMUM * linearisation.cost();
        self.predicted_reduction(linearisation, parameters)
            .is_none_or(|reduction| reduction <= negligible)
            || self.is_rounding(linearisation, in_f32)
    }

    /// Returns whether the cost is so small that rounding of the data, in f32 or f64, explains the residuals.
    pub fn is_rounding(&self, linearisation: &CurveLinearisation, in_f32: bool) -> bool {
        let data_rounding = match in_f32 {
            true => {
                MODEL_ROUNDING_PER_DATA_ROUNDING_IN_F32 * self.curve.rounding(f32::EPSILON.into())
            }
            false => MODEL_ROUNDING_PER_DATA_ROUNDING * self.curve.rounding(f64::EPSILON),
        };
        let cost = linearisation.cost();
        if data_rounding > 0.0 {
            return cost <= data_rounding;
        }
        // Problems of residuals have no data, so the cost at the start shows how small a rounded 0 is.
        let start_cost = self
            .linearise(&self.curve.start)
            .map_or(0.0, |start| start.cost());
        cost <= ROUNDING_PER_START_COST * start_cost
    }

    /// Returns whether the residuals are no more than rounding, either of the data or of the model's terms. The terms,
    /// parameters times derivatives, may be far larger than their sum.
    pub fn is_rounding_of_terms(
        &self,
        linearisation: &CurveLinearisation,
        parameters: &[f64],
        in_f32: bool,
    ) -> bool {
        let (epsilon, roundings) = match in_f32 {
            true => (f32::EPSILON.into(), MODEL_ROUNDING_PER_DATA_ROUNDING_IN_F32),
            false => (f64::EPSILON, MODEL_ROUNDING_PER_DATA_ROUNDING),
        };
        let squared_terms: f64 = parameters
            .iter()
            .zip(linearisation.squares())
            .map(|(x, square)| x * x * square)
            .sum();
        let rounding = f64::max(
            epsilon * epsilon * squared_terms,
            self.curve.rounding(epsilon),
        );
        linearisation.cost() <= roundings * rounding
    }

    /// Takes Gauss–Newton steps while they lower the cost or shrink; returns the number of evaluations, and whether the
    /// last step was short.
    pub fn refine_by_gauss_newton(
        &self,
        parameters: &mut Vec<f64>,
        linearisation: &mut CurveLinearisation,
    ) -> (u32, bool) {
        let mut previous_length = f64::INFINITY;
        let mut cost_has_fallen = false;
        let mut evaluations = 0;
        let mut is_near_minimum = true;
        let interior = self.interior_parameters(parameters);
        for _ in 0..MAX_GAUSS_NEWTON_STEPS {
            // 1. Compute the step.
            let Some(factors) = JacobianFactors::new(&linearisation.jacobian, &interior) else {
                break;
            };
            linearisation.is_independent.set(factors.are_independent());
            let Some((step, length, parameter_length)) = factors.gauss_newton_step(
                &linearisation.residual,
                &linearisation.gradient,
                parameters,
            ) else {
                break;
            };
            // 2. Stop at a step that changes nothing, or that neither shrinks nor follows a fall of the cost.
            let residual_length = linearisation.cost().sqrt();
            is_near_minimum = length <= MAX_FINAL_STEP_PER_RESIDUAL * residual_length;
            let min_length = f64::max(
                MIN_STEP_PER_PARAMETERS * parameter_length,
                MIN_STEP_PER_RESIDUAL * residual_length,
            );
            let is_useful = length < MAX_STEP_CONTRACTION * previous_length || cost_has_fallen;
            if !(is_useful && length > min_length) {
                break;
            }
            // 3. Move along the step as far as the cost does not rise.
            let (accepted, step_evaluations) = self.search_along_step(
                parameters,
                linearisation,
                ParameterStep {
                    parameters: &interior,
                    changes: step.as_slice(),
                },
            );
            evaluations += step_evaluations;
            let Some((trial_point, trial)) = accepted else {
                break;
            };
            cost_has_fallen = trial.cost() < linearisation.cost() * (1.0 - RELATIVE_COST_ROUNDING);
            *parameters = trial_point;
            *linearisation = trial;
            previous_length = length;
        }
        (evaluations, is_near_minimum)
    }

    /// Returns the first point along the step, half of it, … that does not raise the cost, with its linearisation, and
    /// the number of evaluations that this took.
    fn search_along_step(
        &self,
        parameters: &[f64],
        linearisation: &CurveLinearisation,
        step: ParameterStep,
    ) -> (Option<(Vec<f64>, CurveLinearisation)>, u32) {
        let mut evaluations = 0;
        for halvings in 0..=MAX_HALVINGS as i32 {
            let mut trial_point = parameters.to_vec();
            for (&p, change) in step.parameters.iter().zip(step.changes) {
                trial_point[p] += change * 0.5_f64.powi(halvings);
            }
            // A step that crosses a bound is shortened, too.
            if self.interior_parameters(&trial_point).len() != step.parameters.len() {
                continue;
            }
            if self.linearisations_left.get() == 0 {
                break;
            }
            evaluations += 1;
            match self.linearise_if_finite_and_in_budget(&trial_point) {
                Some(trial)
                    if trial.cost() <= linearisation.cost() * (1.0 + RELATIVE_COST_ROUNDING) =>
                {
                    return (Some((trial_point, trial)), evaluations);
                }
                _ => {}
            }
        }
        (None, evaluations)
    }
}
