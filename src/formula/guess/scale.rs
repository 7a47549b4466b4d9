//! Points scaled to numbers near 1, and parameters scaled back.

use std::f64::consts::TAU;

use super::{Anchor, Role};

/// Largest number of a guess.
pub const LARGEST: f64 = 1e300;

/// Points of a curve: a row per predictor, and the values. Of one predictor they are in its order.
#[derive(Clone)]
pub struct Points {
    pub axes: Vec<Vec<f64>>,
    pub y: Vec<f64>,
}

impl Points {
    /// Returns the points in the order of the predictor number `axis`.
    pub fn sorted_by(&self, axis: usize) -> Points {
        let mut order: Vec<usize> = (0..self.y.len()).collect();
        order.sort_by(|i, j| self.axes[axis][*i].total_cmp(&self.axes[axis][*j]));
        self.select(&order)
    }

    /// Returns the points of these indices.
    pub fn select(&self, indices: &[usize]) -> Points {
        let of = |row: &Vec<f64>| indices.iter().map(|j| row[*j]).collect();
        Points {
            axes: self.axes.iter().map(of).collect(),
            y: of(&self.y),
        }
    }

    /// Returns as few points as a search for the anchor's models needs: means of neighbours, or of two predictors every
    /// so many points.
    pub fn grouped(self, anchor: Anchor) -> Points {
        let most = match anchor {
            Anchor::Whole | Anchor::Positive { .. } => 64,
            Anchor::Peak | Anchor::Step => 256,
            Anchor::Spot | Anchor::Wave => 1024,
        };
        let size = self.y.len().div_ceil(most);
        if size == 1 {
            return self;
        }
        if anchor == Anchor::Spot {
            return self.select(&(0..self.y.len()).step_by(size).collect::<Vec<_>>());
        }
        let mean = |group: &[f64]| group.iter().map(|value| value / group.len() as f64).sum();
        let of = |row: &Vec<f64>| row.chunks(size).map(mean).collect();
        Points {
            axes: self.axes.iter().map(of).collect(),
            y: of(&self.y),
        }
    }
}

/// Origin and unit of each predictor and of the values.
pub struct Scale {
    x: Vec<(f64, f64)>,
    y: (f64, f64),
}

impl Scale {
    /// Returns the scale for points, and the points in it.
    pub fn of(axes: Vec<Vec<f64>>, y: Vec<f64>, roles: &[Role], anchor: Anchor) -> (Scale, Points) {
        let mut points = Points { axes, y };
        let mut x: Vec<(f64, f64)> = points.axes.iter().map(|row| span(row)).collect();
        if let Anchor::Positive { or_zero } = anchor {
            let is_kept = |x: f64| x > 0.0 || (or_zero && x == 0.0);
            let kept: Vec<usize> = (0..points.y.len())
                .filter(|j| is_kept(points.axes[0][*j]))
                .collect();
            if !kept.is_empty() {
                points = points.select(&kept);
            }
            x[0] = (0.0, geometric_mean(&points.axes[0]));
        }
        // a rotation mixes both predictors
        let widest = x.iter().map(|x| x.1).fold(0.0, f64::max);
        x.iter_mut().for_each(|x| x.1 = widest);
        let has_offset = roles.contains(&Role::Offset);
        let (mut y0, mut sy) = span(&points.y);
        if !has_offset {
            let largest = points.y.iter().fold(0.0, |most: f64, y| most.max(y.abs()));
            (y0, sy) = (0.0, if largest > 0.0 { largest } else { 1.0 });
        }
        for (row, (x0, sx)) in points.axes.iter_mut().zip(&x) {
            row.iter_mut().for_each(|x| *x = (*x - x0) / sx);
        }
        points.y.iter_mut().for_each(|y| *y = (*y - y0) / sy);
        let points = if x.len() == 1 {
            points.sorted_by(0)
        } else {
            points
        };
        (Scale { x, y: (y0, sy) }, points)
    }

    /// Returns the parameters of the points themselves from those of the scaled ones.
    pub fn restore(&self, mut found: Vec<f64>, roles: &[Role]) -> Vec<f64> {
        let ((x0, sx), (y0, sy)) = (self.x[0], self.y);
        for (k, role) in roles.iter().enumerate() {
            let value = found[k];
            found[k] = match *role {
                // a height of 0 leaves a fit without a slope
                Role::Height | Role::Area | Role::HeightAtZero(_) | Role::HeightAtOne(_)
                    if value == 0.0 =>
                {
                    1e-3 * sy
                }
                Role::Height => value * sy,
                Role::Area => value * sy * sx,
                // the rates and exponents that follow are not restored yet
                Role::HeightAtZero(rate) => times_exp(value * sy, found[rate] * (x0 / sx)),
                Role::HeightAtOne(exponent) => times_exp(value * sy, -found[exponent] * sx.ln()),
                Role::Offset => y0 + value * sy,
                Role::Place(axis) => self.x[axis].0 + value * self.x[axis].1,
                Role::Width(axis) => {
                    value.signum() * (value.abs() * self.x[axis].1).max(f64::MIN_POSITIVE)
                }
                Role::Rate | Role::Damping | Role::Frequency => value / sx,
                // the frequency has been restored
                Role::Phase(frequency) => {
                    (value - TAU * (found[frequency] * x0).rem_euclid(1.0)).rem_euclid(TAU)
                }
                Role::Exponent | Role::Shape | Role::Asymmetry => value,
            };
        }
        found
    }
}

/// Returns a eᵇ, at most [`LARGEST`], without an overflow on the way.
fn times_exp(a: f64, b: f64) -> f64 {
    a.signum() * (a.abs().ln() + b).exp().min(LARGEST)
}

/// Returns the middle of numbers and half their range, or another unit if that is 0.
pub fn span(numbers: &[f64]) -> (f64, f64) {
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (middle, half) = (low / 2.0 + high / 2.0, high / 2.0 - low / 2.0);
    let unit = [half, middle.abs(), 1.0]
        .into_iter()
        .find(|unit| *unit > 0.0);
    (middle, unit.unwrap_or(1.0))
}

/// Returns the geometric mean of the positive ones of some numbers; 1 if there is none.
fn geometric_mean(numbers: &[f64]) -> f64 {
    let logarithms: Vec<f64> = numbers
        .iter()
        .filter(|x| **x > 0.0)
        .map(|x| x.ln())
        .collect();
    (logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64).exp()
}
