//! Search for the parameters of a model: a grid, then a compass search, with linear parameters solved for.

use std::f64::consts::FRAC_PI_2;

use super::Role;
use super::near::Near;
use super::scale::Points;
use crate::formula::Formula;
use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// Number of rounds of the compass search from each of the best combinations.
const ROUNDS: usize = 6;
/// Largest number of damped Gauss-Newton steps that follow it, and gain below which they end.
const STEPS: usize = 8;
const LEAST_GAIN: f64 = 1e-3;
/// Largest rate, in units of half the range.
const FASTEST: f64 = 100.0;
/// Number of the best combinations that are moved, beside the best of each place.
const MOVED: usize = 3;
/// Share of a column's square that is added to it, so that equal columns have a solution.
const RIDGE: f64 = 1e-9;

/// A model with points, whose linear parameters are solved for.
pub struct Search<'a> {
    formula: &'a Formula,
    roles: &'static [Role],
    /// Index among the formula's parameters of each parameter of the built-in model.
    order: &'a [usize],
    x: Vec<f64>,
    y: Vec<f64>,
    /// For each column of the linear problem the parameters that make it, all other linear ones being 0.
    columns: Vec<Vec<(usize, f64)>>,
    /// Values of the columns, (columns, points).
    values: Vec<f64>,
    /// The parameters in the formula's order.
    arranged: Vec<f64>,
}

impl<'a> Search<'a> {
    pub fn new(
        formula: &'a Formula,
        order: &'a [usize],
        roles: &'static [Role],
        points: Points,
    ) -> Search<'a> {
        let find = |wanted: fn(&Role) -> bool| roles.iter().position(wanted);
        let columns = match (
            find(|r| matches!(r, Role::Phase(_))),
            find(|r| *r == Role::Asymmetry),
        ) {
            // a sin(t + p) = (a cos p) sin t + (a sin p) cos t
            (Some(p), _) => vec![vec![(0, 1.0), (p, 0.0)], vec![(0, 1.0), (p, FRAC_PI_2)]],
            // profiles of q = 0 and q = 1 and a constant make those of any q
            (_, Some(q)) => vec![vec![(0, 1.0), (q, 0.0)], vec![(0, 1.0), (q, 1.0)]],
            _ => roles
                .iter()
                .enumerate()
                .filter(|(_, role)| is_height(role))
                .map(|(k, _)| vec![(k, 1.0)])
                .collect(),
        };
        let offset = find(|role| *role == Role::Offset).map(|c| vec![(c, 1.0)]);
        let columns: Vec<_> = columns.into_iter().chain(offset).collect();
        let values = vec![0.0; columns.len() * points.y.len()];
        let Points { axes, y } = points;
        Search {
            formula,
            roles,
            order,
            x: axes.concat(),
            y,
            columns,
            values,
            arranged: vec![0.0; roles.len()],
        }
    }

    /// Returns the best of all combinations of the grid's numbers around each place, and of what lies near them.
    pub fn run(&mut self, near: &[Near], grid: &[&[f64]]) -> Vec<f64> {
        let varied: Vec<usize> = (0..self.roles.len())
            .filter(|k| !is_solved(&self.roles[*k]))
            .collect();
        let mut trials: Vec<(f64, Vec<f64>)> = Vec::new();
        for near in near {
            for number in 0..grid.iter().map(|row| row.len()).product() {
                let mut rest = number;
                let mut trial = vec![0.0; self.roles.len()];
                for (&k, row) in varied.iter().zip(grid) {
                    trial[k] = near_value(near, self.roles[k], row[rest % row.len()]);
                    rest /= row.len();
                }
                trials.push((self.cost(&mut trial), trial));
            }
        }
        // the best of each place, and for a last parameter of either sign of each of its values, then the others
        let branches = match (varied.last().map(|k| self.roles[*k]), grid.last()) {
            (Some(Role::Shape), Some(row)) => row.len(),
            _ => 1,
        };
        let size = trials.len() / near.len() / branches;
        trials
            .chunks_mut(size)
            .for_each(|chunk| chunk.sort_by(|a, b| a.0.total_cmp(&b.0)));
        let mut chosen: Vec<(f64, Vec<f64>)> = trials.iter().step_by(size).cloned().collect();
        trials.sort_by(|a, b| a.0.total_cmp(&b.0));
        chosen.extend(trials.into_iter().take(MOVED));
        for (cost, found) in &mut chosen {
            *cost = self.refine(found, *cost, &varied);
            *cost = self.descend(found, *cost);
        }
        let best = chosen.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or_else(|| vec![1.0; self.roles.len()], |(_, found)| found)
    }

    /// Moves parameters one by one, each up or down, while that lowers the cost, by steps that are halved when none
    /// does, and returns the cost.
    fn refine(&mut self, found: &mut Vec<f64>, mut cost: f64, varied: &[usize]) -> f64 {
        let width = varied
            .iter()
            .find(|k| matches!(self.roles[**k], Role::Width(_)))
            .map_or(0.3, |k| found[*k]);
        let mut share = 1.0;
        for _ in 0..ROUNDS {
            let before = cost;
            for &k in varied {
                for sign in [share, -share] {
                    let mut trial = found.clone();
                    trial[k] = match self.roles[k] {
                        Role::Place(_) => found[k] + 0.4 * sign * width,
                        Role::Frequency => found[k] + 0.06 * sign,
                        Role::Shape | Role::Damping => found[k] + 0.4 * sign,
                        _ => found[k] * (0.4 * sign).exp(),
                    };
                    let lower = self.cost(&mut trial);
                    if lower < cost {
                        (cost, *found) = (lower, trial);
                        break;
                    }
                }
            }
            if cost == before {
                share *= 0.5;
            }
        }
        cost
    }

    /// Takes damped Gauss-Newton steps of all parameters (Marquardt 1963) while they lower the cost, and returns it.
    fn descend(&mut self, found: &mut Vec<f64>, mut cost: f64) -> f64 {
        let (n, count) = (self.y.len(), found.len());
        let mut damping = 1e-2;
        let mut rows = vec![0.0; (1 + count) * n];
        for _ in 0..STEPS {
            self.order
                .iter()
                .zip(&*found)
                .for_each(|(place, value)| self.arranged[*place] = *value);
            self.formula.fill(true, &self.x, &self.arranged, &mut rows);
            let row = |k: usize| &rows[(1 + self.order[k]) * n..][..n];
            let mut normal = vec![0.0; packed_length(count)];
            let mut gradient = vec![0.0; count];
            for i in 0..count {
                for j in 0..=i {
                    normal[packed_index(i, j)] = dot(row(i), row(j));
                }
                gradient[i] = (0..n).map(|j| (self.y[j] - rows[j]) * row(i)[j]).sum();
            }
            let before = cost;
            while cost == before && damping < 1e4 {
                let mut matrix = normal.clone();
                for i in 0..count {
                    let diagonal = &mut matrix[packed_index(i, i)];
                    *diagonal = if *diagonal > 0.0 {
                        *diagonal * (1.0 + damping)
                    } else {
                        1.0
                    };
                }
                let mut step = gradient.clone();
                if cholesky(&mut matrix, count) {
                    solve_lower(&matrix, &mut step);
                    solve_upper(&matrix, &mut step);
                    let mut trial: Vec<f64> = found
                        .iter()
                        .zip(&step)
                        .map(|(value, step)| value + step)
                        .collect();
                    let lower = self.cost(&mut trial);
                    if lower < cost {
                        (cost, *found) = (lower, trial);
                    }
                }
                damping *= if cost < before { 0.1 } else { 10.0 };
            }
            if cost >= before * (1.0 - LEAST_GAIN) {
                break;
            }
        }
        cost
    }

    /// Solves for the linear parameters of `trial`, sets them, and returns the sum of squares; infinity if they have no
    /// solution.
    fn cost(&mut self, trial: &mut [f64]) -> f64 {
        let (n, count) = (self.y.len(), self.columns.len());
        let is_fast = |(role, value): (&Role, &f64)| {
            matches!(role, Role::Rate | Role::Damping) && value.abs() > FASTEST
        };
        if self.roles.iter().zip(&*trial).any(is_fast) {
            return f64::INFINITY;
        }
        // 1. the columns
        for (column, values) in self.columns.iter().zip(self.values.chunks_exact_mut(n)) {
            for (k, role) in self.roles.iter().enumerate() {
                let set = column
                    .iter()
                    .find(|(set, _)| *set == k)
                    .map(|(_, value)| *value);
                let value = set.unwrap_or(if is_solved(role) { 0.0 } else { trial[k] });
                self.arranged[self.order[k]] = value;
            }
            if matches!(column[..], [(k, _)] if self.roles[k] == Role::Offset) {
                values.fill(1.0);
            } else {
                self.formula.fill(false, &self.x, &self.arranged, values);
            }
        }
        // 2. the normal equations, of columns of length 1
        let column = |i: usize| &self.values[i * n..][..n];
        let lengths: Vec<f64> = (0..count)
            .map(|i| dot(column(i), column(i)).sqrt())
            .collect();
        let mut matrix = vec![0.0; packed_length(count)];
        let mut solution = vec![0.0; count];
        for i in 0..count {
            for j in 0..i {
                matrix[packed_index(i, j)] = dot(column(i), column(j)) / lengths[i] / lengths[j];
            }
            matrix[packed_index(i, i)] = 1.0 + RIDGE;
            solution[i] = dot(column(i), &self.y) / lengths[i];
        }
        if !lengths.iter().all(|length| length.is_normal()) || !cholesky(&mut matrix, count) {
            return f64::INFINITY;
        }
        solve_lower(&matrix, &mut solution);
        solve_upper(&matrix, &mut solution);
        solution
            .iter_mut()
            .zip(lengths)
            .for_each(|(value, length)| *value /= length);
        // 3. what is left
        let model = |j: usize| {
            (0..count)
                .map(|i| solution[i] * self.values[i * n + j])
                .sum::<f64>()
        };
        let cost: f64 = (0..n).map(|j| (self.y[j] - model(j)).powi(2)).sum();
        for (column, value) in self.columns.iter().zip(&solution) {
            trial[column[0].0] = *value;
        }
        self.set_phase_or_asymmetry(trial, &solution);
        if cost.is_finite() {
            cost
        } else {
            f64::INFINITY
        }
    }

    /// Sets height and phase of a wave, or height, asymmetry and offset of a Fano profile, from their columns' shares.
    fn set_phase_or_asymmetry(&self, trial: &mut [f64], solution: &[f64]) {
        let [(_, _), (k, _)] = self.columns[0][..] else {
            return;
        };
        let (first, second) = (solution[0], solution[1]);
        if self.roles[k] == Role::Asymmetry {
            // With L = g²/((x − m)² + g²) and D = (x − m) g/((x − m)² + g²) the profile is a + a(q² − 1)L + 2aqD, and
            // the columns are 1 − L and 1 + 2D. The height of the two solutions that is positive is taken.
            let (even, odd) = (-first, 2.0 * second);
            let ratio = even / odd;
            let larger = ratio.abs() + ratio.hypot(1.0);
            let q = odd.signum() * if even < 0.0 { 1.0 / larger } else { larger };
            let is_odd = odd != 0.0 && q != 0.0 && q.is_finite();
            (trial[0], trial[k]) = if is_odd {
                (odd / (2.0 * q), q)
            } else {
                (first, 0.0)
            };
            if let Some(c) = self.roles.iter().position(|role| *role == Role::Offset) {
                trial[c] += first + second - trial[0];
            }
        } else {
            (trial[0], trial[k]) = (first.hypot(second), second.atan2(first));
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns whether a parameter is a factor of its model.
fn is_height(role: &Role) -> bool {
    matches!(
        role,
        Role::Height | Role::Area | Role::HeightAtZero(_) | Role::HeightAtOne(_)
    )
}

/// Returns whether a parameter is solved for.
fn is_solved(role: &Role) -> bool {
    is_height(role) || matches!(role, Role::Offset | Role::Phase(_) | Role::Asymmetry)
}

/// Returns the value of a parameter that a number of the grid means near a place.
fn near_value(near: &Near, role: Role, number: f64) -> f64 {
    match role {
        Role::Place(axis) => near.place[axis] + number * near.width[axis],
        Role::Width(axis) => number * near.width[axis],
        Role::Rate => number / near.width[0],
        Role::Damping => near.damping + number,
        Role::Frequency => near.frequency + number,
        _ => number,
    }
}
