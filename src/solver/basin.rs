//! Tests whether two points lie in one basin of the cost, with their limits. `solver/round/halve.rs` has the rules
//! that use them.

use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// Maximum relative error of a point's quadratic model, at another point, that still counts as one basin.
pub const SAME_BASIN_ERROR: f64 = 0.07;
/// Relative difference of two costs up to which they are equal but for rounding.
pub const EQUAL_COSTS: f64 = 4e-6;
/// Round after which a start may first count as superfluous.
pub const FIRST_ROUND: u32 = 1;
/// Round after which a start may first count as hopeless, when its steps have shown where it leads.
pub const HOPELESS_ROUND: u32 = 4;
/// Number of rounds for which a start pauses after its first one when another of its spectrum is better: mostly it need
/// not go on then.
pub const PAUSE_ROUNDS: u32 = 2;
const _: () = assert!(PAUSE_ROUNDS >= 1);
/// Maximum reduction that the next step of a settled start predicts, as a share of another start's rise above it.
pub const SETTLED_SHARE: f64 = 0.03;
/// Maximum ratio of the squared distances from a better point, in errors, after and before a step that leads there.
pub const NEARER_SHARE: f64 = 0.1;
/// Minimum reduction that a step predicts which leads to a better point, as a share of the rise above that point. The
/// maximum is the whole rise.
pub const LEAST_REDUCTION_SHARE: f64 = 0.8;
/// Maximum of what a start may still gain, as a multiple of the reduction that its next step predicts.
pub const GAIN_FACTOR: f64 = 30.0;
/// Rise of the cost up to which a second minimum is close enough to be reported (flag 32).
pub const LEAST_RISE: f64 = 9.0;

/// An accepted point, its cost, gradient and packed normal matrix (signs of `docs/src/equations.md`).
#[derive(Clone, Copy, Debug)]
pub struct AcceptedPoint<'a> {
    pub parameters: &'a [f64],
    pub cost: f64,
    pub gradient: &'a [f64],
    pub normal_matrix: &'a [f64],
}

/// Returns whether two points lie around one minimum: the quadratic model at `better` predicts cost and slope at
/// `other`.
pub fn is_same_basin(better: AcceptedPoint, other: AcceptedPoint) -> bool {
    // 1. The slopes at both points along δ, the way from the better point to the other, and the curvature δᵀAδ.
    let count = better.parameters.len();
    let delta = |p: usize| other.parameters[p] - better.parameters[p];
    let mut slope = 0.0;
    let mut other_slope = 0.0;
    let mut curvature = 0.0;
    for p in 0..count {
        slope += better.gradient[p] * delta(p);
        other_slope += other.gradient[p] * delta(p);
        for q in 0..count {
            curvature += delta(p) * better.normal_matrix[packed_index(p, q)] * delta(q);
        }
    }
    // 2. The errors of the predicted cost and slope.
    let allowed_error = SAME_BASIN_ERROR * curvature + EQUAL_COSTS * better.cost;
    let cost_error = other.cost - better.cost - (curvature - 2.0 * slope);
    let slope_error = other_slope - (slope - curvature);
    cost_error.abs() <= allowed_error && slope_error.abs() <= allowed_error
}

/// Returns whether the step from `other` to `trial`, with its predicted reduction, ends near `better` and about as low.
///
/// Distances are measured by the normal matrix at `better`.
pub fn leads_to(
    better: AcceptedPoint,
    other: AcceptedPoint,
    trial: &[f64],
    predicted_reduction: f64,
) -> bool {
    let rise = other.cost - better.cost;
    let distance_before = squared_distance(better, other.parameters);
    let is_near = squared_distance(better, trial) <= NEARER_SHARE * distance_before;
    is_near && predicted_reduction >= LEAST_REDUCTION_SHARE * rise && predicted_reduction <= rise
}

/// Returns whether the undamped Gauss–Newton step from `other` leads to `better`, which may still fall a little.
pub fn points_at(better: AcceptedPoint, other: AcceptedPoint) -> bool {
    let rise = other.cost - better.cost;
    match gauss_newton_step(better, other) {
        Some((end, reduction)) if reduction <= (1.0 + SETTLED_SHARE) * rise => {
            leads_to(better, other, &end, reduction.min(rise))
        }
        _ => false,
    }
}

/// Returns the end of the Gauss–Newton step from `from` and its predicted gain; `None` where the step is undetermined.
/// Only the parameters that differ at `to` move (some may be held).
fn gauss_newton_step(to: AcceptedPoint, from: AcceptedPoint) -> Option<(Vec<f64>, f64)> {
    let moving: Vec<usize> = (0..from.parameters.len())
        .filter(|&p| from.parameters[p] != to.parameters[p])
        .collect();
    // 1. Solve A δ = g for these parameters.
    let mut matrix = vec![0.0; packed_length(moving.len())];
    for (i, &p) in moving.iter().enumerate() {
        for (j, &q) in moving.iter().enumerate().take(i + 1) {
            matrix[packed_index(i, j)] = from.normal_matrix[packed_index(p, q)];
        }
    }
    let mut delta: Vec<f64> = moving.iter().map(|&p| from.gradient[p]).collect();
    if !cholesky(&mut matrix, moving.len()) {
        return None;
    }
    solve_lower(&matrix, &mut delta);
    solve_upper(&matrix, &mut delta);
    // 2. Its end, and gᵀδ.
    let mut end = from.parameters.to_vec();
    let mut predicted_reduction = 0.0;
    for (p, delta) in moving.into_iter().zip(delta) {
        end[p] += delta;
        predicted_reduction += from.gradient[p] * delta;
    }
    Some((end, predicted_reduction))
}

/// Returns δᵀAδ, with δ the way from `from` to `to` and A the normal matrix at `from`: a squared distance in errors.
fn squared_distance(from: AcceptedPoint, to: &[f64]) -> f64 {
    let delta = |p: usize| to[p] - from.parameters[p];
    (0..to.len())
        .map(|p| {
            let row_product: f64 = (0..to.len())
                .map(|q| from.normal_matrix[packed_index(p, q)] * delta(q))
                .sum();
            delta(p) * row_product
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cost = Σ (x − minimum)², A = 1, g = minimum − x.
    fn cost_and_gradient(x: &[f64], minimum: f64) -> (f64, Vec<f64>) {
        (
            x.iter().map(|x| (x - minimum).powi(2)).sum(),
            x.iter().map(|x| minimum - x).collect(),
        )
    }

    fn point<'a>(
        x: &'a [f64],
        (cost, gradient): &'a (f64, Vec<f64>),
        normal_matrix: &'a [f64],
    ) -> AcceptedPoint<'a> {
        AcceptedPoint {
            parameters: x,
            cost: *cost,
            gradient,
            normal_matrix,
        }
    }

    #[test]
    fn points_of_one_quadratic_share_a_basin_and_those_of_two_do_not() {
        let identity = [1.0, 0.0, 1.0];
        let points = [vec![0.5, -0.2], vec![7.0, 3.0]];
        let at_better = cost_and_gradient(&points[0], 0.0);
        let at_other = cost_and_gradient(&points[1], 0.0);
        let at_other_of_second = cost_and_gradient(&points[1], 6.0);
        let better = point(&points[0], &at_better, &identity);
        let same = point(&points[1], &at_other, &identity);
        let different = point(&points[1], &at_other_of_second, &identity);
        assert!(is_same_basin(better, same));
        assert!(!is_same_basin(better, different));
        let nan = (f64::NAN, vec![0.0; 2]);
        assert!(!is_same_basin(better, point(&points[1], &nan, &identity)));
        // A full step ends at the minimum of its own quadratic, wherever it began.
        let near_minimum = cost_and_gradient(&[0.1, 0.0], 0.0);
        let settled = point(&[0.1, 0.0], &near_minimum, &identity);
        assert!(points_at(settled, same));
        assert!(!points_at(settled, different));
        assert!(!points_at(settled, point(&points[1], &at_other, &[0.0; 3])));
        // Half the way; too small a predicted reduction; that of a lower end; NaN.
        let leads = |trial: [f64; 2], reduction| leads_to(settled, same, &trial, reduction);
        assert!(leads([1.0, 0.5], 57.0));
        assert!(!leads([3.5, 1.5], 57.0) && !leads([1.0, 0.5], 40.0) && !leads([1.0, 0.5], 60.0));
        assert!(!leads([f64::NAN, 0.0], 57.0) && !leads([1.0, 0.5], f64::NAN));
    }
}
