//! Saddles where two parameters have the same effect, as the rates of two exponentials have once they are equal.
//!
//! Let columns p and q of the Jacobian be parallel, c_q = r c_p. Along the null direction (δ_p, δ_q) = (−r, 1) t the
//! model does not change to first order, and every solver that follows the Jacobian stays where it is. To second order
//! it does: a e^(−k x) + b e^(−q x) at k = q becomes ½ (b / a) (a + b) t² x² e^(−k x) larger. Only one sign of b / a
//! lowers the cost, and the other pair, a and b, may be moved along its own null direction until that sign is right.

use crate::curves::ends::plateau::LowerPoint;
use crate::curves::ends::polish::{CurveLinearisation, CurveProblem, ParameterStep};

/// Largest squared sine between columns that count as parallel.
const MAX_PARALLEL_SQUARED_SINE: f64 = 1e-8;
/// Maximum number of pairs that are examined: where many parameters have the same effect, the model has more than it
/// needs.
const MAX_PARALLEL_PAIRS: usize = 6;
/// Steps along a null direction, as shares of the parameters' sizes.
const NULL_DIRECTION_STEPS: [f64; 3] = [0.3, 0.03, 1e-3];
/// Shares of the first parameter of a pair in the effect of both of them: of the same and of opposite signs.
const FIRST_PARAMETER_SHARES: [f64; 3] = [0.5, 1.5, -0.5];
/// Relative change of the cost that is rounding where the model does not change.
const MAX_RELATIVE_RISE_ON_NULL_DIRECTION: f64 = 1e-10;

/// Parameters with parallel columns of the Jacobian.
#[derive(Clone, Copy, Debug)]
struct ParallelPair {
    parameters: [usize; 2],
    /// Ratio of the second column to the first.
    ratio: f64,
}

impl ParallelPair {
    /// Returns whether the pairs have no parameter in common.
    fn shares_no_parameter_with(self, other: ParallelPair) -> bool {
        self.parameters
            .iter()
            .all(|p| !other.parameters.contains(p))
    }
}

impl CurveProblem<'_> {
    /// Returns the lowest point that is found beside one where pairs of parameters have the same effect; `None` if none
    /// lowers the cost by more than `gain`.
    pub fn find_lowest_beside_parallel(
        &self,
        gain: f64,
        linearisation: &CurveLinearisation,
        parameters: &[f64],
    ) -> Option<Vec<f64>> {
        let pairs = self.find_parallel_pairs(linearisation, parameters);
        let cost_limit = linearisation.cost() - gain;
        // 1. Move each pair along its null direction.
        let mut candidates: Vec<LowerPoint> = pairs
            .iter()
            .flat_map(|pair| self.find_lower_along_null_direction(cost_limit, parameters, *pair))
            .collect();
        // 2. Move one pair along its null direction, where the cost stays the same, and from there every other pair.
        for pair in &pairs {
            if !pairs
                .iter()
                .any(|other| other.shares_no_parameter_with(*pair))
            {
                continue;
            }
            for share in FIRST_PARAMETER_SHARES {
                let Some(point) = self.redistribute_effect(parameters, *pair, share) else {
                    continue;
                };
                self.cost_evaluations.set(self.cost_evaluations.get() + 1);
                let Some(at_point) = self.linearise(&point) else {
                    continue;
                };
                let max_cost = linearisation.cost() * (1.0 + MAX_RELATIVE_RISE_ON_NULL_DIRECTION);
                if at_point.cost() <= max_cost {
                    for other in self.find_parallel_pairs(&at_point, &point) {
                        if other.shares_no_parameter_with(*pair) {
                            candidates.extend(
                                self.find_lower_along_null_direction(cost_limit, &point, other),
                            );
                        }
                    }
                }
            }
        }
        // 3. Take the lowest point.
        candidates
            .into_iter()
            .min_by(|a, b| a.cost.total_cmp(&b.cost))
            .map(|lowest| lowest.parameters)
    }

    /// Returns the pairs of parameters inside their bounds whose columns are parallel, at most [`MAX_PARALLEL_PAIRS`].
    fn find_parallel_pairs(
        &self,
        linearisation: &CurveLinearisation,
        parameters: &[f64],
    ) -> Vec<ParallelPair> {
        let mut pairs = Vec::new();
        if linearisation.is_independent.get() {
            return pairs;
        }
        let interior = self.interior_parameters(parameters);
        for (i, &q) in interior.iter().enumerate() {
            for &p in &interior[..i] {
                let [p_square, product, q_square] = linearisation.column_products([p, q]);
                let squared_sine = 1.0 - (product / p_square) * (product / q_square);
                // The sine is infinite where the square of a column is beyond f64's range.
                if squared_sine.abs() <= MAX_PARALLEL_SQUARED_SINE {
                    pairs.push(ParallelPair {
                        parameters: [p, q],
                        ratio: product / p_square,
                    });
                    if pairs.len() == MAX_PARALLEL_PAIRS {
                        return pairs;
                    }
                }
            }
        }
        pairs
    }

    /// Returns the points of lower cost along a pair's null direction, on both sides.
    fn find_lower_along_null_direction(
        &self,
        cost_limit: f64,
        parameters: &[f64],
        pair: ParallelPair,
    ) -> Vec<LowerPoint> {
        let [p, q] = pair.parameters;
        // The longest step moves neither parameter by more than its size.
        let longest = self
            .parameter_size(parameters, q)
            .min(self.parameter_size(parameters, p) / pair.ratio.abs());
        NULL_DIRECTION_STEPS
            .into_iter()
            .flat_map(|share| [share, -share])
            .filter_map(|share| {
                let t = share * longest;
                let step = ParameterStep {
                    parameters: &pair.parameters,
                    changes: &[-pair.ratio * t, t],
                };
                self.try_step(cost_limit, parameters, step, 1.0)
            })
            .collect()
    }

    /// Returns the point on a pair's null direction where the first of its parameters has this `share` in the effect of
    /// both; `None` outside the bounds.
    fn redistribute_effect(
        &self,
        parameters: &[f64],
        pair: ParallelPair,
        share: f64,
    ) -> Option<Vec<f64>> {
        let [p, q] = pair.parameters;
        let sum = parameters[p] + pair.ratio * parameters[q];
        let mut point = parameters.to_vec();
        point[p] = share * sum;
        point[q] = (1.0 - share) * sum / pair.ratio;
        let is_inside = [p, q]
            .iter()
            .all(|&i| self.curve.lower[i] < point[i] && point[i] < self.curve.upper[i]);
        is_inside.then_some(point)
    }
}
