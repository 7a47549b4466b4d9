//! Tests of whether two points lie in one basin of the cost, and their limits. `solver/round/halve.rs` has the rules
//! that use them.

use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// Largest relative error of a point's quadratic model, at another point, that still counts as one basin.
pub const SAME_BASIN: f64 = 0.07;
/// Costs this close, relatively, are equal but for rounding.
pub const EQUAL: f64 = 4e-6;
/// Rounds before a start may count as superfluous, and as hopeless: the latter needs to see where it leads.
pub const FIRST_ROUND: u32 = 1;
pub const HOPELESS_ROUND: u32 = 4;
/// Rounds that a start sits out after its first one when another of its spectrum is better: mostly it need not go on
/// then. (The members of a simplex that do not count in a round have a pause of 1, which every round renews.)
pub const PAUSE: u32 = 2;
const _: () = assert!(PAUSE >= 1);
/// A point whose next step promises less than this share of another's rise above it will not fall much further.
pub const SETTLED: f64 = 0.03;
/// A step leads to a better point that ends so near to it: the square of the distance, in errors, as a share of what it
/// was …
pub const NEARER: f64 = 0.1;
/// … and that promises at least this share of the rise above that point, and no more than all of it.
pub const LEAST_PROMISE: f64 = 0.8;
/// Upper limit of what a start may still gain, as a multiple of the reduction that its next step predicts.
pub const HOPELESS: f64 = 30.0;
/// A basin this close may be told of (flag 32).
pub const LEAST_RISE: f64 = 9.0;

/// A point, its cost, gradient and packed normal matrix (signs of `docs/src/equations.md`).
#[derive(Clone, Copy, Debug)]
pub struct Point<'a> {
    pub parameters: &'a [f64],
    pub cost: f64,
    pub gradient: &'a [f64],
    pub normal_matrix: &'a [f64],
}

/// Returns whether two points lie around one minimum: the quadratic model at `better` predicts cost and slope at
/// `other`.
pub fn same_basin(better: Point, other: Point) -> bool {
    let count = better.parameters.len();
    let delta = |p: usize| other.parameters[p] - better.parameters[p];
    let (mut slope, mut other_slope, mut curvature) = (0.0, 0.0, 0.0);
    for p in 0..count {
        slope += better.gradient[p] * delta(p);
        other_slope += other.gradient[p] * delta(p);
        for q in 0..count {
            curvature += delta(p) * better.normal_matrix[packed_index(p, q)] * delta(q);
        }
    }
    let allowed = SAME_BASIN * curvature + EQUAL * better.cost;
    let cost_error = other.cost - better.cost - (curvature - 2.0 * slope);
    let slope_error = other_slope - (slope - curvature);
    cost_error.abs() <= allowed && slope_error.abs() <= allowed
}

/// Returns whether the step from `other` to `trial`, predicted to gain `promise`, ends near `better` and about as low.
///
/// Distances are measured by the normal matrix at `better`.
pub fn leads_to(better: Point, other: Point, trial: &[f64], promise: f64) -> bool {
    let rise = other.cost - better.cost;
    let is_near =
        squared_distance(better, trial) <= NEARER * squared_distance(better, other.parameters);
    is_near && promise >= LEAST_PROMISE * rise && promise <= rise
}

/// Returns whether the undamped Gauss–Newton step from `other` leads to `better`, which may still fall a little.
pub fn points_at(better: Point, other: Point) -> bool {
    let rise = other.cost - better.cost;
    let step = step_to(better, other).filter(|(_, promise)| *promise <= (1.0 + SETTLED) * rise);
    step.is_some_and(|(end, promise)| leads_to(better, other, &end, promise.min(rise)))
}

/// Returns the end of the Gauss–Newton step from `from` and its predicted gain; `None` where the step is undetermined.
/// Only the parameters that differ at `to` move (some may be held).
fn step_to(to: Point, from: Point) -> Option<(Vec<f64>, f64)> {
    let moved: Vec<usize> = (0..from.parameters.len())
        .filter(|&p| from.parameters[p] != to.parameters[p])
        .collect();
    let mut matrix = vec![0.0; packed_length(moved.len())];
    for (i, &p) in moved.iter().enumerate() {
        for (j, &q) in moved.iter().enumerate().take(i + 1) {
            matrix[packed_index(i, j)] = from.normal_matrix[packed_index(p, q)];
        }
    }
    let mut step: Vec<f64> = moved.iter().map(|&p| from.gradient[p]).collect();
    if !cholesky(&mut matrix, moved.len()) {
        return None;
    }
    solve_lower(&matrix, &mut step);
    solve_upper(&matrix, &mut step);
    let mut end = from.parameters.to_vec();
    let mut promise = 0.0;
    for (p, step) in moved.into_iter().zip(step) {
        end[p] += step;
        promise += from.gradient[p] * step;
    }
    Some((end, promise))
}

/// Returns δᵀAδ, with δ the way from `from` to `to` and A the normal matrix at `from`: a squared distance in errors.
fn squared_distance(from: Point, to: &[f64]) -> f64 {
    let delta = |p: usize| to[p] - from.parameters[p];
    let row = |p: usize| {
        (0..to.len())
            .map(|q| from.normal_matrix[packed_index(p, q)] * delta(q))
            .sum::<f64>()
    };
    (0..to.len()).map(|p| delta(p) * row(p)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cost = Σ (x − centre)², A = 1, g = centre − x.
    fn bowl(x: &[f64], centre: f64) -> (f64, Vec<f64>) {
        (
            x.iter().map(|x| (x - centre).powi(2)).sum(),
            x.iter().map(|x| centre - x).collect(),
        )
    }

    #[test]
    fn one_bowl_is_one_basin_and_two_are_not() {
        let identity = [1.0, 0.0, 1.0];
        let points = [vec![0.5, -0.2], vec![7.0, 3.0]];
        let at = |x: &Vec<f64>, centre| bowl(x, centre);
        let (near, far, other) = (
            at(&points[0], 0.0),
            at(&points[1], 0.0),
            at(&points[1], 6.0),
        );
        fn point<'a>(
            x: &'a [f64],
            (cost, gradient): &'a (f64, Vec<f64>),
            normal: &'a [f64],
        ) -> Point<'a> {
            Point {
                parameters: x,
                cost: *cost,
                gradient,
                normal_matrix: normal,
            }
        }
        let better = point(&points[0], &near, &identity);
        assert!(same_basin(better, point(&points[1], &far, &identity)));
        assert!(!same_basin(better, point(&points[1], &other, &identity)));
        let nan = (f64::NAN, vec![0.0; 2]);
        assert!(!same_basin(better, point(&points[1], &nan, &identity)));
        // a full step ends in its own bowl's middle, wherever it began
        let middle = at(&vec![0.1, 0.0], 0.0);
        let settled = point(&[0.1, 0.0], &middle, &identity);
        assert!(points_at(settled, point(&points[1], &far, &identity)));
        assert!(!points_at(settled, point(&points[1], &other, &identity)));
        assert!(!points_at(settled, point(&points[1], &far, &[0.0; 3])));
        // half the way, too small a promise, one of a lower end, no number
        let leads = |trial: [f64; 2], promise| {
            leads_to(settled, point(&points[1], &far, &identity), &trial, promise)
        };
        assert!(leads([1.0, 0.5], 57.0));
        assert!(!leads([3.5, 1.5], 57.0) && !leads([1.0, 0.5], 40.0) && !leads([1.0, 0.5], 60.0));
        assert!(!leads([f64::NAN, 0.0], 57.0) && !leads([1.0, 0.5], f64::NAN));
    }
}
