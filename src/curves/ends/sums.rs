//! The end of a fit whose model is WGSL alone: χ² and errors are those of the device's sums.

use crate::curves::CurveRun;
use crate::curves::ends::polish::Problem;
use crate::curves::input::data::Curve;
use crate::curves::results::result::CurveFit;
use crate::math::covariance::{covariance, pair_index};
use crate::math::triangle::packed_index;
use crate::solver::Outcome;

/// Eigenvalues below this share of the largest are rounding of f32 sums.
const TOLERANCE: f64 = 1e-6;

impl CurveRun {
    /// Sets a fit's χ², information criteria, optimality, covariance, errors and flags from the sums in the device's
    /// outcome. Its parameters are in the model's own units, its sums in those of the solver.
    pub(crate) fn finish_by_sums(
        &self,
        curve: &Curve,
        outcome: &Outcome,
        problem: &Problem,
        fit: &mut CurveFit,
    ) {
        let count = curve.start.len();
        fit.chi2 = outcome.chi2;
        fit.set_criteria(curve.free().len(), self.estimator);
        let inside = problem.inside(&fit.parameters);
        let slopes = inside
            .iter()
            .map(|&p| (outcome.gradient[p] / curve.scale[p]).abs());
        fit.optimality = slopes.fold(0.0, f64::max);
        let free: Vec<bool> = (0..count).map(|p| inside.contains(&p)).collect();
        let found = covariance(&outcome.normal_matrix, &free, TOLERANCE);
        let factor = self.variance_factor(fit, curve.rounding(f32::EPSILON.into()));
        let error = |p: usize| found.errors[p] * curve.scale[p] * factor.sqrt();
        for p in 0..count {
            for q in 0..count {
                let correlation = if p == q {
                    1.0
                } else {
                    found.correlations[pair_index(p.min(q), p.max(q), count)]
                };
                // held ones have none
                let held = curve.lower[p] == curve.upper[p] || curve.lower[q] == curve.upper[q];
                fit.covariance[p * count + q] = if held {
                    0.0
                } else {
                    error(p) * error(q) * correlation
                };
            }
            fit.errors[p] = fit.covariance[p * count + p].sqrt();
        }
        let acts = |p: &usize| outcome.normal_matrix[packed_index(*p, *p)] > 0.0;
        let idle: Vec<usize> = inside.iter().copied().filter(|p| !acts(p)).collect();
        self.set_flags(fit, curve, &inside, idle);
    }
}
