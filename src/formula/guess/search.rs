//! Search for the parameters of a model: a grid, then a compass search, with linear parameters solved for.

use std::f64::consts::FRAC_PI_2;

use super::Role;
use super::near::SearchRegion;
use super::scale::CurvePoints;
use crate::formula::Formula;
use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// Number of rounds of the compass search from each of the best trials.
const COMPASS_ROUNDS: usize = 6;
/// Maximum number of damped Gauss-Newton steps that follow it.
const MAX_GAUSS_NEWTON_STEPS: usize = 8;
/// Relative reduction of the cost below which the Gauss-Newton steps end.
const MIN_RELATIVE_GAIN: f64 = 1e-3;
/// Maximum rate, in units of 1 / half range.
const MAX_RATE: f64 = 100.0;
/// Number of the best trials that are moved, beside the best of each region.
const MOVED_TRIALS: usize = 3;
/// Share of a column's square that is added to it, so that equal columns have a solution.
const RELATIVE_RIDGE: f64 = 1e-9;

/// Search for the parameters of a model on the points of a curve, in which the linear parameters are solved for.
pub struct GuessSearch<'a> {
    formula: &'a Formula,
    roles: &'static [Role],
    /// Index among the formula's parameters of each parameter of the built-in model.
    order: &'a [usize],
    x: Vec<f64>,
    y: Vec<f64>,
    /// For each column of the linear problem the values of the linear parameters that make it; the others are 0.
    columns: Vec<Vec<(usize, f64)>>,
    /// Values of the columns, (columns, points).
    column_values: Vec<f64>,
    /// Buffer for the parameters in the formula's order.
    formula_parameters: Vec<f64>,
}

impl<'a> GuessSearch<'a> {
    pub fn new(
        formula: &'a Formula,
        order: &'a [usize],
        roles: &'static [Role],
        points: CurvePoints,
    ) -> GuessSearch<'a> {
        let find_role = |is_sought: fn(&Role) -> bool| roles.iter().position(is_sought);
        let phase = find_role(|role| matches!(role, Role::Phase(_)));
        let asymmetry = find_role(|role| *role == Role::Asymmetry);
        let columns = match (phase, asymmetry) {
            // a sin(t + p) = (a cos p) sin t + (a sin p) cos t
            (Some(p), _) => vec![vec![(0, 1.0), (p, 0.0)], vec![(0, 1.0), (p, FRAC_PI_2)]],
            // Profiles of q = 0 and q = 1 and a constant make those of any q.
            (_, Some(q)) => vec![vec![(0, 1.0), (q, 0.0)], vec![(0, 1.0), (q, 1.0)]],
            _ => roles
                .iter()
                .enumerate()
                .filter(|(_, role)| is_height(role))
                .map(|(k, _)| vec![(k, 1.0)])
                .collect(),
        };
        let offset = find_role(|role| *role == Role::Offset).map(|c| vec![(c, 1.0)]);
        let columns: Vec<_> = columns.into_iter().chain(offset).collect();
        let column_values = vec![0.0; columns.len() * points.y.len()];
        let CurvePoints { axes, y } = points;
        GuessSearch {
            formula,
            roles,
            order,
            x: axes.concat(),
            y,
            columns,
            column_values,
            formula_parameters: vec![0.0; roles.len()],
        }
    }

    /// Returns the best parameters that a grid search in each region and moves of its best trials find.
    pub fn find_best(&mut self, regions: &[SearchRegion], grid: &[&[f64]]) -> Vec<f64> {
        let varied: Vec<usize> = (0..self.roles.len())
            .filter(|k| !is_solved(&self.roles[*k]))
            .collect();
        // 1. Compute the cost of all combinations of the grid's numbers in each region.
        let combination_count = grid.iter().map(|row| row.len()).product();
        let mut trials: Vec<(f64, Vec<f64>)> = Vec::new();
        for region in regions {
            for combination in 0..combination_count {
                let mut remainder = combination;
                let mut trial = vec![0.0; self.roles.len()];
                for (&k, row) in varied.iter().zip(grid) {
                    let number = row[remainder % row.len()];
                    trial[k] = scale_grid_number(region, self.roles[k], number);
                    remainder /= row.len();
                }
                trials.push((self.solve_linear_parameters(&mut trial), trial));
            }
        }
        // 2. Choose the best trial of each region, and for a last parameter of either sign that of each of its values.
        //    Then choose the best ones of all.
        let branch_count = match (varied.last().map(|k| self.roles[*k]), grid.last()) {
            (Some(Role::Shape), Some(row)) => row.len(),
            _ => 1,
        };
        let branch_size = trials.len() / regions.len() / branch_count;
        trials
            .chunks_mut(branch_size)
            .for_each(|branch| branch.sort_by(|a, b| a.0.total_cmp(&b.0)));
        let mut chosen_trials: Vec<(f64, Vec<f64>)> =
            trials.iter().step_by(branch_size).cloned().collect();
        trials.sort_by(|a, b| a.0.total_cmp(&b.0));
        chosen_trials.extend(trials.into_iter().take(MOVED_TRIALS));
        // 3. Move these and return the best.
        for (cost, parameters) in &mut chosen_trials {
            *cost = self.search_by_compass(parameters, *cost, &varied);
            *cost = self.descend_by_gauss_newton(parameters, *cost);
        }
        chosen_trials
            .into_iter()
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map_or_else(|| vec![1.0; self.roles.len()], |(_, parameters)| parameters)
    }

    /// Moves parameters one by one, each up or down, if that lowers the cost, and returns the cost. If no move does,
    /// the steps are halved.
    fn search_by_compass(
        &mut self,
        parameters: &mut Vec<f64>,
        mut cost: f64,
        varied: &[usize],
    ) -> f64 {
        let width = varied
            .iter()
            .find(|k| matches!(self.roles[**k], Role::Width(_)))
            .map_or(0.3, |k| parameters[*k]);
        let mut step_size = 1.0;
        for _ in 0..COMPASS_ROUNDS {
            let previous_cost = cost;
            for &k in varied {
                for step in [step_size, -step_size] {
                    let mut trial = parameters.clone();
                    trial[k] = match self.roles[k] {
                        Role::Place(_) => parameters[k] + 0.4 * step * width,
                        Role::Frequency => parameters[k] + 0.06 * step,
                        Role::Shape | Role::Damping => parameters[k] + 0.4 * step,
                        _ => parameters[k] * (0.4 * step).exp(),
                    };
                    let trial_cost = self.solve_linear_parameters(&mut trial);
                    if trial_cost < cost {
                        cost = trial_cost;
                        *parameters = trial;
                        break;
                    }
                }
            }
            if cost == previous_cost {
                step_size *= 0.5;
            }
        }
        cost
    }

    /// Takes damped Gauss-Newton steps of all parameters (Marquardt 1963) while they lower the cost, and returns it.
    fn descend_by_gauss_newton(&mut self, parameters: &mut Vec<f64>, mut cost: f64) -> f64 {
        let point_count = self.y.len();
        let parameter_count = parameters.len();
        let mut damping = 1e-2;
        let mut rows = vec![0.0; (1 + parameter_count) * point_count];
        for _ in 0..MAX_GAUSS_NEWTON_STEPS {
            // 1. Linearise the model and build the normal equations.
            for (index, value) in self.order.iter().zip(&*parameters) {
                self.formula_parameters[*index] = *value;
            }
            self.formula
                .fill_rows(true, &self.x, &self.formula_parameters, &mut rows);
            let slopes = |k: usize| &rows[(1 + self.order[k]) * point_count..][..point_count];
            let mut normal_matrix = vec![0.0; packed_length(parameter_count)];
            let mut gradient = vec![0.0; parameter_count];
            for i in 0..parameter_count {
                for j in 0..=i {
                    normal_matrix[packed_index(i, j)] = dot_product(slopes(i), slopes(j));
                }
                gradient[i] = (0..point_count)
                    .map(|j| (self.y[j] - rows[j]) * slopes(i)[j])
                    .sum();
            }
            // 2. Increase the damping until a step lowers the cost.
            let previous_cost = cost;
            while cost == previous_cost && damping < 1e4 {
                let mut matrix = normal_matrix.clone();
                for i in 0..parameter_count {
                    let diagonal = &mut matrix[packed_index(i, i)];
                    *diagonal = if *diagonal > 0.0 {
                        *diagonal * (1.0 + damping)
                    } else {
                        1.0
                    };
                }
                let mut step = gradient.clone();
                if cholesky(&mut matrix, parameter_count) {
                    solve_lower(&matrix, &mut step);
                    solve_upper(&matrix, &mut step);
                    let mut trial: Vec<f64> = parameters
                        .iter()
                        .zip(&step)
                        .map(|(value, step)| value + step)
                        .collect();
                    let trial_cost = self.solve_linear_parameters(&mut trial);
                    if trial_cost < cost {
                        cost = trial_cost;
                        *parameters = trial;
                    }
                }
                damping *= if cost < previous_cost { 0.1 } else { 10.0 };
            }
            if cost >= previous_cost * (1.0 - MIN_RELATIVE_GAIN) {
                break;
            }
        }
        cost
    }

    /// Solves for the linear parameters of `trial`, sets them, and returns the sum of squares; infinity if they have no
    /// solution.
    fn solve_linear_parameters(&mut self, trial: &mut [f64]) -> f64 {
        let point_count = self.y.len();
        let column_count = self.columns.len();
        let is_too_fast = |(role, value): (&Role, &f64)| {
            matches!(role, Role::Rate | Role::Damping) && value.abs() > MAX_RATE
        };
        if self.roles.iter().zip(&*trial).any(is_too_fast) {
            return f64::INFINITY;
        }
        // 1. Evaluate the columns of the linear problem.
        for (column, values) in self
            .columns
            .iter()
            .zip(self.column_values.chunks_exact_mut(point_count))
        {
            for (k, role) in self.roles.iter().enumerate() {
                let linear_value = column
                    .iter()
                    .find(|(parameter, _)| *parameter == k)
                    .map(|(_, value)| *value);
                let value = linear_value.unwrap_or(if is_solved(role) { 0.0 } else { trial[k] });
                self.formula_parameters[self.order[k]] = value;
            }
            if matches!(column[..], [(k, _)] if self.roles[k] == Role::Offset) {
                values.fill(1.0);
            } else {
                self.formula
                    .fill_rows(false, &self.x, &self.formula_parameters, values);
            }
        }
        // 2. Solve the normal equations, of columns scaled to length 1.
        let column = |i: usize| &self.column_values[i * point_count..][..point_count];
        let lengths: Vec<f64> = (0..column_count)
            .map(|i| dot_product(column(i), column(i)).sqrt())
            .collect();
        let mut matrix = vec![0.0; packed_length(column_count)];
        let mut solution = vec![0.0; column_count];
        for i in 0..column_count {
            for j in 0..i {
                matrix[packed_index(i, j)] =
                    dot_product(column(i), column(j)) / lengths[i] / lengths[j];
            }
            matrix[packed_index(i, i)] = 1.0 + RELATIVE_RIDGE;
            solution[i] = dot_product(column(i), &self.y) / lengths[i];
        }
        let is_solvable =
            lengths.iter().all(|length| length.is_normal()) && cholesky(&mut matrix, column_count);
        if !is_solvable {
            return f64::INFINITY;
        }
        solve_lower(&matrix, &mut solution);
        solve_upper(&matrix, &mut solution);
        solution
            .iter_mut()
            .zip(lengths)
            .for_each(|(value, length)| *value /= length);
        // 3. Sum the squares of the residuals.
        let model_value = |j: usize| {
            (0..column_count)
                .map(|i| solution[i] * self.column_values[i * point_count + j])
                .sum::<f64>()
        };
        let cost: f64 = (0..point_count)
            .map(|j| (self.y[j] - model_value(j)).powi(2))
            .sum();
        // 4. Set the linear parameters.
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
        let first = solution[0];
        let second = solution[1];
        if self.roles[k] == Role::Asymmetry {
            // With L = g²/((x − m)² + g²) and D = (x − m) g/((x − m)² + g²) the profile is a + a(q² − 1)L + 2aqD, and
            // the columns are 1 − L and 1 + 2D. Of the two solutions we take the one of a positive height.
            let even = -first;
            let odd = 2.0 * second;
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

fn dot_product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns whether a parameter is a factor of its model.
fn is_height(role: &Role) -> bool {
    matches!(
        role,
        Role::Height | Role::Area | Role::HeightAtZero(_) | Role::HeightAtOne(_)
    )
}

/// Returns whether a parameter is solved for by linear least squares.
fn is_solved(role: &Role) -> bool {
    is_height(role) || matches!(role, Role::Offset | Role::Phase(_) | Role::Asymmetry)
}

/// Converts a number of the grid to the value of a parameter in a region.
fn scale_grid_number(region: &SearchRegion, role: Role, number: f64) -> f64 {
    match role {
        Role::Place(axis) => region.place[axis] + number * region.width[axis],
        Role::Width(axis) => number * region.width[axis],
        Role::Rate => number / region.width[0],
        Role::Damping => region.damping + number,
        Role::Frequency => region.frequency + number,
        _ => number,
    }
}
