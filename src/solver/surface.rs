//! A quadratic surface through points around a minimum (Nelder & Mead 1965, Comput. J. 7, 308, appendix): it judges the
//! end of a simplex's search, and refines it.
//!
//! In coordinates y along directions e_k in which the cost rises about alike, f(y) = f₀ + gᵀy + ½ yᵀH y. From f at ± r
//! e_k and r (e_i + e_j)
//!
//!   g_k = (f₊ − f₋) / 2r,  H_kk = (f₊ + f₋ − 2 f₀) / r²,  H_ij = (f_ij − f_i − f_j + f₀) / r².
//!
//! The minimum is at y = − H⁻¹ g, and ½ gᵀH⁻¹ g below f₀. A search has ended where that is at most its tolerance.
//! Otherwise the centre moves there, the directions become those of H, and 2 n more points give the next g.

use super::first_simplex::Room;
use super::metric::Metric;
use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// Squares of the radius in units of the tolerance, and of the objective's noise: curvature must stand out of either.
const OF_TOLERANCE: f64 = 100.0;
const OF_NOISE: f64 = 100.0;
/// A radius that the box leaves less than this share of tells too little.
const LEAST_ROOM: f64 = 0.1;
/// Curvature along a direction, in units of what the metric says, below which there is no minimum to be trusted; a
/// pivot.
const LEAST_CURVATURE: f64 = 0.1;
/// Share of the predicted reduction that a step must bring.
const SUFFICIENT: f64 = 0.5;
/// Times that the noise may hide what a step brought; a step that promises less than a share of it is the last.
const SLACK: f64 = 10.0;
const LAST: f64 = 0.3;
/// Most steps.
const STEPS: u32 = 6;

/// Tolerances at which a search ends.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Objectives that differ by this are equal.
    pub fatol: f64,
    /// Error of an objective by rounding.
    pub noise: f64,
}

/// Decision whether the surface's centre is a minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No point of the surface is lower by more than the tolerance.
    Minimum,
    /// Not near a minimum that a quadratic describes.
    Elsewhere,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// All points of the quadratic.
    Whole,
    /// The centre's slopes alone.
    Slopes,
    /// The point at which the surface has its minimum.
    Step { promise: f64 },
}

/// The surface around the best point of one search. P is the number of parameters, n that of those that move.
#[derive(Clone, Debug)]
pub struct Surface {
    lower: Vec<f64>,
    upper: Vec<f64>,
    tolerance: Tolerance,
    moving: usize,
    /// (n, P)
    directions: Vec<f64>,
    /// (P): how far a parameter at a bound moves into the box; 0 for others.
    inward: Vec<f64>,
    radius: f64,
    /// (P) and its objective.
    centre: Vec<f64>,
    value: f64,
    lowest: Vec<f64>,
    lowest_value: f64,
    stage: Stage,
    steps: u32,
    /// (k, P)
    points: Vec<f64>,
    pub evaluations: u32,
}

impl Surface {
    /// Makes a quadratic surface to be fitted around a point of known objective; `None` without room for one in the
    /// bounds.
    pub fn new(
        point: &[f64],
        value: f64,
        normal_matrix: &[f64],
        room: &Room<'_>,
        tolerance: Tolerance,
    ) -> Option<Surface> {
        let moving = room.inside(point);
        let metric = Metric::new(normal_matrix, moving)?;
        let squared = (OF_TOLERANCE * tolerance.fatol).max(OF_NOISE * tolerance.noise);
        let radius = squared.sqrt();
        let mut inward = vec![0.0; point.len()];
        for p in room.free() {
            let distance = radius / normal_matrix[packed_index(p, p)].sqrt();
            let width = room.upper[p] - room.lower[p];
            if point[p] == room.lower[p] {
                inward[p] = distance.min(width);
            } else if point[p] == room.upper[p] {
                inward[p] = -distance.min(width);
            }
        }
        let mut surface = Surface {
            lower: room.lower.to_vec(),
            upper: room.upper.to_vec(),
            tolerance,
            moving: metric.moving.len(),
            directions: metric.directions(point.len()),
            inward,
            radius,
            centre: point.to_vec(),
            value,
            lowest: point.to_vec(),
            lowest_value: value,
            stage: Stage::Whole,
            steps: 0,
            points: Vec::new(),
            evaluations: 0,
        };
        (value.is_finite() && radius > 0.0 && surface.ask(Stage::Whole).is_none())
            .then_some(surface)
    }

    /// Returns the points whose objectives [`take`](Self::take) expects next, (k, P).
    pub fn points(&self) -> &[f64] {
        &self.points
    }

    /// Returns the coordinates of the lowest point found.
    pub fn lowest(&self) -> &[f64] {
        &self.lowest
    }

    /// Returns the objective at the lowest point found.
    pub fn lowest_value(&self) -> f64 {
        self.lowest_value
    }

    /// Takes the objectives at [`points`](Self::points); returns the verdict whether the surface's centre is a minimum,
    /// or `None` if more points must be evaluated first.
    pub fn take(&mut self, values: &[f64]) -> Option<Verdict> {
        self.evaluations += values.len() as u32;
        if !values.iter().all(|value| value.is_finite()) {
            return Some(Verdict::Elsewhere);
        }
        match self.stage {
            Stage::Step { promise } => self.judge_step(values[0], promise),
            Stage::Whole | Stage::Slopes => {
                self.keep_lowest(values);
                self.descend(values)
            }
        }
    }

    /// Fits the surface to the objectives and asks for the one at its minimum; returns a verdict where it ends instead.
    fn descend(&mut self, values: &[f64]) -> Option<Verdict> {
        let n = self.moving;
        let is_whole = self.stage == Stage::Whole;
        let released = &values[values.len() - if is_whole { self.at_bounds() } else { 0 }..];
        // a parameter that lies at a bound wants to be there
        if released
            .iter()
            .any(|value| *value < self.value - self.tolerance.fatol.max(self.tolerance.noise))
        {
            return Some(Verdict::Elsewhere);
        }
        let mut step = self.slopes(&values[..2 * n]);
        if is_whole {
            let mut factor = self.hessian(values);
            let is_convex = cholesky(&mut factor, n)
                && (0..n).all(|k| factor[packed_index(k, k)] > LEAST_CURVATURE);
            if !is_convex {
                return Some(Verdict::Elsewhere);
            }
            // in directions e_k' of H, in which it is twice the unit matrix
            self.turn(&factor);
            solve_lower(&factor, &mut step);
            step.iter_mut().for_each(|y| *y *= std::f64::consts::SQRT_2);
        }
        // g' = √2 L⁻¹ g: the step is − g' / 2, and the promise |g'|² / 4
        let promise = 0.25 * step.iter().map(|g| g * g).sum::<f64>();
        if promise <= self.tolerance.fatol {
            return Some(Verdict::Minimum);
        }
        if self.steps == STEPS {
            return Some(Verdict::Elsewhere);
        }
        self.steps += 1;
        let mut point = self.centre.clone();
        for (direction, g) in self.directions.chunks_exact(point.len()).zip(&step) {
            point
                .iter_mut()
                .zip(direction)
                .for_each(|(x, e)| *x -= 0.5 * g * e);
        }
        self.room().clamp(&mut point);
        self.points = point;
        self.stage = Stage::Step { promise };
        None
    }

    /// Moves the centre to the surface's minimum if its objective is as low as predicted; returns a verdict where it
    /// ends.
    fn judge_step(&mut self, value: f64, promise: f64) -> Option<Verdict> {
        let noise = self.tolerance.noise;
        if value > self.value - SUFFICIENT * promise + SLACK * noise {
            return Some(Verdict::Elsewhere);
        }
        let point = self.points.clone();
        self.centre.copy_from_slice(&point);
        self.value = value;
        // where noise hides which is lower the surface tells
        if value < self.lowest_value + SLACK * noise {
            (self.lowest, self.lowest_value) = (point, value);
        }
        if promise <= LAST * noise {
            return Some(Verdict::Minimum);
        }
        // a step that was longer than the surface is wide leaves it
        let is_far = self.steps > 1 && promise > self.radius * self.radius;
        self.ask(if is_far { Stage::Whole } else { Stage::Slopes })
    }

    /// Sets the points around the centre that a stage needs; returns a verdict instead where the bounds leave no room.
    fn ask(&mut self, stage: Stage) -> Option<Verdict> {
        let (count, n) = (self.centre.len(), self.moving);
        let radius = self.radius * self.share_of_room();
        if radius < LEAST_ROOM * self.radius {
            return Some(Verdict::Elsewhere);
        }
        self.radius = radius;
        self.stage = stage;
        self.points.clear();
        (0..n).for_each(|k| self.push(&[k], 1.0));
        (0..n).for_each(|k| self.push(&[k], -1.0));
        if stage == Stage::Whole {
            for i in 0..n {
                (0..i).for_each(|j| self.push(&[i, j], 1.0));
            }
            for p in (0..count).filter(|&p| self.inward[p] != 0.0) {
                let mut point = self.centre.clone();
                point[p] += self.inward[p];
                self.points.extend(point);
            }
        }
        None
    }

    /// Adds to the points the one that lies `sign` times the radius from the centre along each of these directions.
    fn push(&mut self, directions: &[usize], sign: f64) {
        let count = self.centre.len();
        let mut point = self.centre.clone();
        for &k in directions {
            let direction = &self.directions[k * count..(k + 1) * count];
            point
                .iter_mut()
                .zip(direction)
                .for_each(|(x, e)| *x += sign * self.radius * e);
        }
        self.points.extend(point);
    }

    /// Returns the largest factor of the radius, at most 1, with which all points lie inside the bounds.
    fn share_of_room(&self) -> f64 {
        (0..self.centre.len())
            .map(|p| self.share_inside(p))
            .fold(1.0, f64::min)
    }

    /// Returns the largest factor of the radius, at most 1, with which no point leaves the bounds of parameter p.
    fn share_inside(&self, p: usize) -> f64 {
        // a point moves along two directions at most
        let (mut first, mut second) = (0.0f64, 0.0f64);
        for direction in self.directions.chunks_exact(self.centre.len()) {
            let e = direction[p].abs();
            (first, second) = if e > first {
                (e, first)
            } else {
                (first, second.max(e))
            };
        }
        let reach = self.radius * (first + second);
        let room = (self.centre[p] - self.lower[p]).min(self.upper[p] - self.centre[p]);
        if reach > room { room / reach } else { 1.0 }
    }

    /// Returns the second derivatives of the objective along the directions, packed, from its values at the points.
    fn hessian(&self, values: &[f64]) -> Vec<f64> {
        let (n, r) = (self.moving, self.radius);
        let (plus, rest) = values.split_at(n);
        let (minus, cross) = rest.split_at(n);
        let mut hessian = vec![0.0; packed_length(n)];
        let mut cross = cross.iter();
        for i in 0..n {
            for (j, f) in (0..i).zip(&mut cross) {
                hessian[packed_index(i, j)] = (f - plus[i] - plus[j] + self.value) / (r * r);
            }
            hessian[packed_index(i, i)] = (plus[i] + minus[i] - 2.0 * self.value) / (r * r);
        }
        hessian
    }

    /// Returns the derivatives of the objective along the directions, from its values on both sides of the centre.
    fn slopes(&self, values: &[f64]) -> Vec<f64> {
        let (plus, minus) = values.split_at(self.moving);
        plus.iter()
            .zip(minus)
            .map(|(plus, minus)| (plus - minus) / (2.0 * self.radius))
            .collect()
    }

    /// Replaces the directions E by √2 E L⁻ᵀ, with L Lᵀ the Hessian along E, so that it becomes twice the unit matrix.
    fn turn(&mut self, factor: &[f64]) {
        let (count, n) = (self.centre.len(), self.moving);
        let mut turned = vec![0.0; n * count];
        for (k, turned) in turned.chunks_exact_mut(count).enumerate() {
            let mut coordinates = vec![0.0; n];
            coordinates[k] = std::f64::consts::SQRT_2;
            solve_upper(factor, &mut coordinates);
            for (direction, c) in self.directions.chunks_exact(count).zip(coordinates) {
                turned
                    .iter_mut()
                    .zip(direction)
                    .for_each(|(t, e)| *t += c * e);
            }
        }
        self.directions = turned;
    }

    /// Keeps the point of these objectives that is lower than the lowest so far by more than rounding noise.
    fn keep_lowest(&mut self, values: &[f64]) {
        for (point, value) in self.points.chunks_exact(self.centre.len()).zip(values) {
            if *value < self.lowest_value - SLACK * self.tolerance.noise {
                (self.lowest, self.lowest_value) = (point.to_vec(), *value);
            }
        }
    }

    /// Returns the number of parameters that lie at a bound and have room to move away from it.
    fn at_bounds(&self) -> usize {
        self.inward
            .iter()
            .filter(|distance| **distance != 0.0)
            .count()
    }

    /// Returns the bounds of the parameters, with a size of 0 for simplices.
    fn room(&self) -> Room<'_> {
        Room {
            lower: &self.lower,
            upper: &self.upper,
            size: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bowl with a slanted axis, f = 3 at its minimum.
    fn bowl(u: &[f64]) -> f64 {
        let (x, y) = (u[0] - 1.0, u[1] + 0.5);
        3.0 + 4.0 * x * x + 4.0 * x * y + 3.0 * y * y
    }

    fn run(
        start: &[f64],
        room: &Room<'_>,
        f: impl Fn(&[f64]) -> f64,
    ) -> (Option<Verdict>, Vec<f64>, u32) {
        let tolerance = Tolerance {
            fatol: 1e-4,
            noise: 1e-12,
        };
        let Some(mut surface) = Surface::new(start, f(start), &[2.0, 0.0, 5.0], room, tolerance)
        else {
            return (None, start.to_vec(), 0);
        };
        loop {
            let values: Vec<f64> = surface.points().chunks_exact(2).map(&f).collect();
            if let Some(verdict) = surface.take(&values) {
                return (
                    Some(verdict),
                    surface.lowest().to_vec(),
                    surface.evaluations,
                );
            }
        }
    }

    #[test]
    fn finds_the_minimum_of_a_bowl_in_one_step() {
        let room = Room {
            lower: &[-9.0; 2],
            upper: &[9.0; 2],
            size: 0.5,
        };
        let (verdict, lowest, evaluations) = run(&[0.7, 0.1], &room, bowl);
        // five points, the step, the slopes in two directions
        assert_eq!((verdict, evaluations), (Some(Verdict::Minimum), 10));
        assert!(
            (lowest[0] - 1.0).abs() < 1e-6 && (lowest[1] + 0.5).abs() < 1e-6,
            "{lowest:?}"
        );
    }

    #[test]
    fn a_saddle_is_elsewhere_and_so_is_a_bound_that_holds_nothing() {
        let room = Room {
            lower: &[-9.0; 2],
            upper: &[9.0; 2],
            size: 0.5,
        };
        assert_eq!(
            run(&[0.0, 0.0], &room, |u| u[0] * u[0] - u[1] * u[1]).0,
            Some(Verdict::Elsewhere)
        );
        // it would leave the bound at once
        let room = Room {
            lower: &[0.5, -9.0],
            upper: &[9.0; 2],
            size: 0.5,
        };
        assert_eq!(run(&[0.5, -0.1], &room, bowl).0, Some(Verdict::Elsewhere));
        // and here it would go on if it could
        let room = Room {
            lower: &[-9.0; 2],
            upper: &[0.5, 9.0],
            size: 0.5,
        };
        let (verdict, lowest, _) = run(&[0.5, -0.1], &room, bowl);
        assert_eq!(verdict, Some(Verdict::Minimum));
        assert!(
            lowest[0] == 0.5 && (lowest[1] + 1.0 / 6.0).abs() < 1e-5,
            "{lowest:?}"
        );
    }
}
