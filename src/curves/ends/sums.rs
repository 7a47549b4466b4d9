//! The end of a fit whose model is WGSL alone: χ² and errors are those of the device's sums.

use crate::curves::CurveRun;
use crate::curves::ends::polish::CurveProblem;
use crate::curves::input::data::Curve;
use crate::curves::results::result::CurveFit;
use crate::math::covariance::{covariance, pair_index};
use crate::math::triangle::packed_index;
use crate::solver::Outcome;

/// Ratio of an eigenvalue to the largest below which it is the rounding of f32 sums.
const MIN_RELATIVE_EIGENVALUE: f64 = 1e-6;

impl CurveRun {
    /// Sets a fit's χ², information criteria, optimality, covariance, errors and flags from the sums in the device's
    /// outcome. Its parameters are in the model's own units, its sums in those of the solver.
    pub(crate) fn finish_by_sums(
        &self,
        curve: &Curve,
        outcome: &Outcome,
        problem: &CurveProblem,
        fit: &mut CurveFit,
    ) {
        let count = curve.start.len();
        // 1. χ², information criteria and optimality.
        fit.chi2 = outcome.chi2;
        fit.set_criteria(curve.free_parameters().len(), self.estimator);
        let interior = problem.interior_parameters(&fit.parameters);
        fit.optimality = interior
            .iter()
            .map(|&p| (outcome.gradient[p] / curve.scale[p]).abs())
            .fold(0.0, f64::max);
        // 2. Errors and covariances, in the model's own units. Held parameters have none.
        let is_interior: Vec<bool> = (0..count).map(|p| interior.contains(&p)).collect();
        let solver_covariance = covariance(
            &outcome.normal_matrix,
            &is_interior,
            MIN_RELATIVE_EIGENVALUE,
        );
        let factor =
            self.variance_factor(self.cost(fit), fit.dof, curve.rounding(f32::EPSILON.into()));
        let error = |p: usize| solver_covariance.errors[p] * curve.scale[p] * factor.sqrt();
        let is_held = |p: usize| curve.lower[p] == curve.upper[p];
        for p in 0..count {
            for q in 0..count {
                let correlation = if p == q {
                    1.0
                } else {
                    solver_covariance.correlations[pair_index(p.min(q), p.max(q), count)]
                };
                fit.covariance[p * count + q] = if is_held(p) || is_held(q) {
                    0.0
                } else {
                    error(p) * error(q) * correlation
                };
            }
            fit.errors[p] = fit.covariance[p * count + p].sqrt();
        }
        // 3. Flags. A parameter without a diagonal element has no effect.
        let without_effect: Vec<usize> = interior
            .iter()
            .copied()
            .filter(|&p| {
                let has_effect = outcome.normal_matrix[packed_index(p, p)] > 0.0;
                !has_effect
            })
            .collect();
        self.set_flags(fit, curve, &interior, without_effect);
    }
}
