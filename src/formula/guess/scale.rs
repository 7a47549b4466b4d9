//! Points scaled to numbers near 1, and parameters scaled back.

use std::f64::consts::TAU;

use super::{Anchor, Role};

/// Largest absolute value of a guessed parameter.
pub const MAX_GUESS: f64 = 1e300;

/// Points of a curve: a row per predictor, and the values. Of one predictor they are in its order.
#[derive(Clone)]
pub struct CurvePoints {
    pub axes: Vec<Vec<f64>>,
    pub y: Vec<f64>,
}

impl CurvePoints {
    /// Returns the points in the order of the predictor number `axis`.
    pub fn sorted_by(&self, axis: usize) -> CurvePoints {
        let mut order: Vec<usize> = (0..self.y.len()).collect();
        order.sort_by(|i, j| self.axes[axis][*i].total_cmp(&self.axes[axis][*j]));
        self.select(&order)
    }

    /// Returns the points of these indices.
    pub fn select(&self, indices: &[usize]) -> CurvePoints {
        let select_row = |row: &Vec<f64>| indices.iter().map(|j| row[*j]).collect();
        CurvePoints {
            axes: self.axes.iter().map(select_row).collect(),
            y: select_row(&self.y),
        }
    }

    /// Returns as few points as a search for the anchor's models needs: means of neighbours, or for two predictors
    /// every k-th point.
    pub fn group_for_search(self, anchor: Anchor) -> CurvePoints {
        let max_points = match anchor {
            Anchor::Whole | Anchor::Positive { .. } => 64,
            Anchor::Peak | Anchor::Step => 256,
            Anchor::Spot | Anchor::Wave => 1024,
        };
        let group_size = self.y.len().div_ceil(max_points);
        if group_size == 1 {
            return self;
        }
        if anchor == Anchor::Spot {
            return self.select(&(0..self.y.len()).step_by(group_size).collect::<Vec<_>>());
        }
        let mean = |group: &[f64]| group.iter().map(|value| value / group.len() as f64).sum();
        let group_row = |row: &Vec<f64>| row.chunks(group_size).map(mean).collect();
        CurvePoints {
            axes: self.axes.iter().map(group_row).collect(),
            y: group_row(&self.y),
        }
    }
}

/// Origin and unit of each predictor and of the values.
pub struct PointScale {
    x: Vec<(f64, f64)>,
    y: (f64, f64),
}

impl PointScale {
    /// Chooses the scale for points; returns it and the scaled points.
    pub fn scale_points(
        axes: Vec<Vec<f64>>,
        y: Vec<f64>,
        roles: &[Role],
        anchor: Anchor,
    ) -> (PointScale, CurvePoints) {
        let mut points = CurvePoints { axes, y };
        // 1. Choose origin and unit of each predictor. Functions of positive x keep their origin.
        let mut x_scales: Vec<(f64, f64)> = points
            .axes
            .iter()
            .map(|row| middle_and_half_range(row))
            .collect();
        if let Anchor::Positive { or_zero } = anchor {
            let is_allowed = |x: f64| x > 0.0 || (or_zero && x == 0.0);
            let allowed_points: Vec<usize> = (0..points.y.len())
                .filter(|j| is_allowed(points.axes[0][*j]))
                .collect();
            if !allowed_points.is_empty() {
                points = points.select(&allowed_points);
            }
            x_scales[0] = (0.0, geometric_mean(&points.axes[0]));
        }
        // A rotation mixes both predictors, so that they share one unit.
        let widest = x_scales.iter().map(|x| x.1).fold(0.0, f64::max);
        x_scales.iter_mut().for_each(|x| x.1 = widest);
        // 2. Choose origin and unit of the values. Without an offset in the model 0 has to stay 0.
        let has_offset = roles.contains(&Role::Offset);
        let (mut y0, mut sy) = middle_and_half_range(&points.y);
        if !has_offset {
            let largest = points.y.iter().fold(0.0, |max: f64, y| max.max(y.abs()));
            y0 = 0.0;
            sy = if largest > 0.0 { largest } else { 1.0 };
        }
        // 3. Scale the points. Those of one predictor are sorted by it.
        for (row, (x0, sx)) in points.axes.iter_mut().zip(&x_scales) {
            row.iter_mut().for_each(|x| *x = (*x - x0) / sx);
        }
        points.y.iter_mut().for_each(|y| *y = (*y - y0) / sy);
        if x_scales.len() == 1 {
            points = points.sorted_by(0);
        }
        let scale = PointScale {
            x: x_scales,
            y: (y0, sy),
        };
        (scale, points)
    }

    /// Converts parameters of the scaled points to those of the original points.
    pub fn unscale_parameters(&self, mut parameters: Vec<f64>, roles: &[Role]) -> Vec<f64> {
        let (x0, sx) = self.x[0];
        let (y0, sy) = self.y;
        for (k, role) in roles.iter().enumerate() {
            let value = parameters[k];
            parameters[k] = match *role {
                // With a height of 0 a fit would have no slopes.
                Role::Height | Role::Area | Role::HeightAtZero(_) | Role::HeightAtOne(_)
                    if value == 0.0 =>
                {
                    1e-3 * sy
                }
                Role::Height => value * sy,
                Role::Area => value * sy * sx,
                // The rates and exponents come later, so they are still scaled.
                Role::HeightAtZero(rate) => {
                    multiply_by_exp(value * sy, parameters[rate] * (x0 / sx))
                }
                Role::HeightAtOne(exponent) => {
                    multiply_by_exp(value * sy, -parameters[exponent] * sx.ln())
                }
                Role::Offset => y0 + value * sy,
                Role::Place(axis) => self.x[axis].0 + value * self.x[axis].1,
                Role::Width(axis) => {
                    value.signum() * (value.abs() * self.x[axis].1).max(f64::MIN_POSITIVE)
                }
                Role::Rate | Role::Damping | Role::Frequency => value / sx,
                // The frequency comes before its phase, so it is already unscaled.
                Role::Phase(frequency) => {
                    (value - TAU * (parameters[frequency] * x0).rem_euclid(1.0)).rem_euclid(TAU)
                }
                Role::Exponent | Role::Shape | Role::Asymmetry => value,
            };
        }
        parameters
    }
}

/// Computes a eᵇ, at most [`MAX_GUESS`], without an overflow on the way.
fn multiply_by_exp(a: f64, b: f64) -> f64 {
    a.signum() * (a.abs().ln() + b).exp().min(MAX_GUESS)
}

/// Returns the middle of numbers and half their range, or another unit if that is 0.
pub fn middle_and_half_range(numbers: &[f64]) -> (f64, f64) {
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let middle = low / 2.0 + high / 2.0;
    let half_range = high / 2.0 - low / 2.0;
    let unit = [half_range, middle.abs(), 1.0]
        .into_iter()
        .find(|unit| *unit > 0.0);
    (middle, unit.unwrap_or(1.0))
}

/// Returns the geometric mean of the positive numbers; 1 if there is none.
fn geometric_mean(numbers: &[f64]) -> f64 {
    let logarithms: Vec<f64> = numbers
        .iter()
        .filter(|x| **x > 0.0)
        .map(|x| x.ln())
        .collect();
    (logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64).exp()
}
