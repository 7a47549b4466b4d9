//! A quadratic surface through points around a minimum (Nelder & Mead 1965, Comput. J. 7, 308, appendix): it judges the
//! end of a simplex's search, and refines it.
//!
//! In coordinates y along directions e_k in which the cost rises about alike, f(y) = f₀ + gᵀy + ½ yᵀH y. From f at ± r
//! e_k and r (e_i + e_j)
//!
//!   g_k = (f₊ − f₋) / 2r,  H_kk = (f₊ + f₋ − 2 f₀) / r²,  H_ij = (f_ij − f_i − f_j + f₀) / r².
//!
//! The minimum is at y = − H⁻¹ g, and ½ gᵀH⁻¹ g below f₀. A search has ended where that reduction is at most its
//! tolerance. Otherwise the centre moves there, the directions become those of H, and 2 n more points give the next g.

use super::bounds::Bounds;
use super::metric::Metric;
use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};

/// Minimum ratio of the squared radius to the tolerance, so that curvature stands out of it.
const SQUARED_RADIUS_OF_TOLERANCE: f64 = 100.0;
/// Minimum ratio of the squared radius to the objective's noise, so that curvature stands out of it.
const SQUARED_RADIUS_OF_NOISE: f64 = 100.0;
/// Smallest share of the radius for which the bounds must leave room.
const LEAST_SHARE_OF_RADIUS: f64 = 0.1;
/// Smallest pivot of the Hessian, in units of the metric's curvature, at which a minimum is trusted.
const LEAST_PIVOT_OF_HESSIAN: f64 = 0.1;
/// Smallest share of the predicted reduction that a step must gain.
const LEAST_GAIN_SHARE: f64 = 0.5;
/// Multiple of the noise up to which two objectives may differ by noise alone.
const NOISE_MARGIN: f64 = 10.0;
/// Predicted reduction, in units of the noise, up to which a step is the last.
const LAST_STEP_NOISE: f64 = 0.3;
/// Maximum number of steps.
const MAX_SURFACE_STEPS: u32 = 6;

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
pub enum SurfaceVerdict {
    /// No point of the surface is lower by more than the tolerance.
    Minimum,
    /// Not near a minimum that a quadratic describes.
    Elsewhere,
}

/// Points whose objectives the surface expects next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RequestedPoints {
    /// All points of the quadratic.
    Quadratic,
    /// The points on both sides of the centre, for the slopes alone.
    Slopes,
    /// The point at which the surface has its minimum.
    Minimum { predicted_reduction: f64 },
}

/// The surface around the best point of one search. P is the number of parameters, n that of those that move.
#[derive(Clone, Debug)]
pub struct Surface {
    lower: Vec<f64>,
    upper: Vec<f64>,
    tolerance: Tolerance,
    /// n
    moving: usize,
    /// (n, P)
    directions: Vec<f64>,
    /// (P): how far a parameter at a bound moves into the box; 0 for others.
    inward: Vec<f64>,
    radius: f64,
    /// (P)
    centre: Vec<f64>,
    centre_value: f64,
    /// (P)
    lowest: Vec<f64>,
    lowest_value: f64,
    requested: RequestedPoints,
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
        bounds: Bounds<'_>,
        tolerance: Tolerance,
    ) -> Option<Surface> {
        let metric = Metric::new(normal_matrix, bounds.interior_parameters(point))?;
        // 1. Curvature over the radius must stand out of the tolerance and the noise.
        let squared_radius = (SQUARED_RADIUS_OF_TOLERANCE * tolerance.fatol)
            .max(SQUARED_RADIUS_OF_NOISE * tolerance.noise);
        let radius = squared_radius.sqrt();
        // 2. Parameters at a bound do not move along the directions. One point each tests whether they should.
        let mut inward = vec![0.0; point.len()];
        for p in bounds.free_parameters() {
            let distance = radius / normal_matrix[packed_index(p, p)].sqrt();
            let width = bounds.upper[p] - bounds.lower[p];
            if point[p] == bounds.lower[p] {
                inward[p] = distance.min(width);
            } else if point[p] == bounds.upper[p] {
                inward[p] = -distance.min(width);
            }
        }
        let mut surface = Surface {
            lower: bounds.lower.to_vec(),
            upper: bounds.upper.to_vec(),
            tolerance,
            moving: metric.moving.len(),
            directions: metric.directions(point.len()),
            inward,
            radius,
            centre: point.to_vec(),
            centre_value: value,
            lowest: point.to_vec(),
            lowest_value: value,
            requested: RequestedPoints::Quadratic,
            steps: 0,
            points: Vec::new(),
            evaluations: 0,
        };
        let is_possible = value.is_finite()
            && radius > 0.0
            && surface.request_points(RequestedPoints::Quadratic).is_none();
        is_possible.then_some(surface)
    }

    /// Returns the points whose objectives [`take_objectives`](Self::take_objectives) expects next, (k, P).
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
    pub fn take_objectives(&mut self, values: &[f64]) -> Option<SurfaceVerdict> {
        self.evaluations += values.len() as u32;
        if !values.iter().all(|value| value.is_finite()) {
            return Some(SurfaceVerdict::Elsewhere);
        }
        match self.requested {
            RequestedPoints::Minimum {
                predicted_reduction,
            } => self.judge_step(values[0], predicted_reduction),
            RequestedPoints::Quadratic | RequestedPoints::Slopes => {
                self.keep_lowest(values);
                self.step_to_minimum(values)
            }
        }
    }

    /// Fits the surface to the objectives and requests that at its minimum; returns a verdict where the search ends
    /// instead.
    fn step_to_minimum(&mut self, values: &[f64]) -> Option<SurfaceVerdict> {
        let n = self.moving;
        let is_quadratic = self.requested == RequestedPoints::Quadratic;
        // 1. There is no minimum where a parameter at a bound would gain by leaving it.
        let released_count = if is_quadratic {
            self.count_parameters_at_bounds()
        } else {
            0
        };
        let values_off_bounds = &values[values.len() - released_count..];
        let significant = self.tolerance.fatol.max(self.tolerance.noise);
        if values_off_bounds
            .iter()
            .any(|value| *value < self.centre_value - significant)
        {
            return Some(SurfaceVerdict::Elsewhere);
        }
        // 2. The gradient g, in directions in which the Hessian is twice the unit matrix: g' = √2 L⁻¹ g.
        let mut gradient = self.slopes(&values[..2 * n]);
        if is_quadratic {
            let mut factor = self.hessian(values);
            let is_convex = cholesky(&mut factor, n)
                && (0..n).all(|k| factor[packed_index(k, k)] > LEAST_PIVOT_OF_HESSIAN);
            if !is_convex {
                return Some(SurfaceVerdict::Elsewhere);
            }
            self.whiten_directions(&factor);
            solve_lower(&factor, &mut gradient);
            gradient
                .iter_mut()
                .for_each(|g| *g *= std::f64::consts::SQRT_2);
        }
        // 3. The minimum is at − g' / 2, and |g'|² / 4 lower.
        let predicted_reduction = 0.25 * gradient.iter().map(|g| g * g).sum::<f64>();
        if predicted_reduction <= self.tolerance.fatol {
            return Some(SurfaceVerdict::Minimum);
        }
        if self.steps == MAX_SURFACE_STEPS {
            return Some(SurfaceVerdict::Elsewhere);
        }
        self.steps += 1;
        let mut minimum = self.centre.clone();
        for (direction, g) in self.directions.chunks_exact(minimum.len()).zip(&gradient) {
            minimum
                .iter_mut()
                .zip(direction)
                .for_each(|(x, e)| *x -= 0.5 * g * e);
        }
        let bounds = Bounds {
            lower: &self.lower,
            upper: &self.upper,
        };
        bounds.clamp(&mut minimum);
        self.points = minimum;
        self.requested = RequestedPoints::Minimum {
            predicted_reduction,
        };
        None
    }

    /// Moves the centre to the surface's minimum if its objective is as low as predicted; returns a verdict where it
    /// ends.
    fn judge_step(&mut self, value: f64, predicted_reduction: f64) -> Option<SurfaceVerdict> {
        let noise = self.tolerance.noise;
        let margin = NOISE_MARGIN * noise;
        // 1. A step that gains too little has left the quadratic.
        if value > self.centre_value - LEAST_GAIN_SHARE * predicted_reduction + margin {
            return Some(SurfaceVerdict::Elsewhere);
        }
        // 2. Move the centre. Where noise hides which of two points is lower, the surface's minimum counts.
        let point = self.points.clone();
        self.centre.copy_from_slice(&point);
        self.centre_value = value;
        if value < self.lowest_value + margin {
            self.lowest = point;
            self.lowest_value = value;
        }
        if predicted_reduction <= LAST_STEP_NOISE * noise {
            return Some(SurfaceVerdict::Minimum);
        }
        // 3. A step that was longer than the radius has left the region in which the Hessian is known.
        let is_far = self.steps > 1 && predicted_reduction > self.radius * self.radius;
        self.request_points(if is_far {
            RequestedPoints::Quadratic
        } else {
            RequestedPoints::Slopes
        })
    }

    /// Sets the points around the centre to be evaluated next; returns a verdict instead where the bounds leave no
    /// room.
    fn request_points(&mut self, requested: RequestedPoints) -> Option<SurfaceVerdict> {
        // 1. The radius shrinks to what the bounds allow.
        let n = self.moving;
        let radius = self.radius * self.share_inside_bounds();
        if radius < LEAST_SHARE_OF_RADIUS * self.radius {
            return Some(SurfaceVerdict::Elsewhere);
        }
        self.radius = radius;
        self.requested = requested;
        // 2. The points on both sides of the centre, along each direction.
        self.points.clear();
        for k in 0..n {
            self.push_point(&[k], 1.0);
        }
        for k in 0..n {
            self.push_point(&[k], -1.0);
        }
        // 3. For the whole quadratic also points along pairs of directions, and off the bounds.
        if requested == RequestedPoints::Quadratic {
            for i in 0..n {
                for j in 0..i {
                    self.push_point(&[i, j], 1.0);
                }
            }
            for p in (0..self.centre.len()).filter(|&p| self.inward[p] != 0.0) {
                let mut point = self.centre.clone();
                point[p] += self.inward[p];
                self.points.extend(point);
            }
        }
        None
    }

    /// Adds to the points the one that lies `sign` times the radius from the centre along each of these directions.
    fn push_point(&mut self, directions: &[usize], sign: f64) {
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
    fn share_inside_bounds(&self) -> f64 {
        (0..self.centre.len())
            .map(|p| self.share_inside_bounds_of(p))
            .fold(1.0, f64::min)
    }

    /// Returns the largest factor of the radius, at most 1, with which no point leaves the bounds of parameter p.
    fn share_inside_bounds_of(&self, p: usize) -> f64 {
        // A point moves along at most two directions, so the two largest components limit it.
        let mut largest = 0.0f64;
        let mut second_largest = 0.0f64;
        for direction in self.directions.chunks_exact(self.centre.len()) {
            let component = direction[p].abs();
            if component > largest {
                second_largest = largest;
                largest = component;
            } else {
                second_largest = second_largest.max(component);
            }
        }
        let reach = self.radius * (largest + second_largest);
        let distance_to_bound =
            (self.centre[p] - self.lower[p]).min(self.upper[p] - self.centre[p]);
        if reach > distance_to_bound {
            distance_to_bound / reach
        } else {
            1.0
        }
    }

    /// Returns the second derivatives of the objective along the directions, packed, from its values at the points.
    fn hessian(&self, values: &[f64]) -> Vec<f64> {
        let n = self.moving;
        let radius = self.radius;
        let (plus, rest) = values.split_at(n);
        let (minus, mixed) = rest.split_at(n);
        let mut hessian = vec![0.0; packed_length(n)];
        let mut mixed = mixed.iter();
        for i in 0..n {
            for (j, f) in (0..i).zip(&mut mixed) {
                hessian[packed_index(i, j)] =
                    (f - plus[i] - plus[j] + self.centre_value) / (radius * radius);
            }
            hessian[packed_index(i, i)] =
                (plus[i] + minus[i] - 2.0 * self.centre_value) / (radius * radius);
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
    fn whiten_directions(&mut self, factor: &[f64]) {
        let count = self.centre.len();
        let n = self.moving;
        let mut whitened = vec![0.0; n * count];
        for (k, new_direction) in whitened.chunks_exact_mut(count).enumerate() {
            let mut coordinates = vec![0.0; n];
            coordinates[k] = std::f64::consts::SQRT_2;
            solve_upper(factor, &mut coordinates);
            for (direction, coordinate) in self.directions.chunks_exact(count).zip(coordinates) {
                new_direction
                    .iter_mut()
                    .zip(direction)
                    .for_each(|(new, old)| *new += coordinate * old);
            }
        }
        self.directions = whitened;
    }

    /// Keeps the point of these objectives that is lower than the lowest so far by more than rounding noise.
    fn keep_lowest(&mut self, values: &[f64]) {
        let margin = NOISE_MARGIN * self.tolerance.noise;
        for (point, value) in self.points.chunks_exact(self.centre.len()).zip(values) {
            if *value < self.lowest_value - margin {
                self.lowest = point.to_vec();
                self.lowest_value = *value;
            }
        }
    }

    /// Returns the number of parameters that lie at a bound and have room to move away from it.
    fn count_parameters_at_bounds(&self) -> usize {
        self.inward
            .iter()
            .filter(|distance| **distance != 0.0)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quadratic with correlated parameters, f = 3 at its minimum.
    fn quadratic(u: &[f64]) -> f64 {
        let x = u[0] - 1.0;
        let y = u[1] + 0.5;
        3.0 + 4.0 * x * x + 4.0 * x * y + 3.0 * y * y
    }

    /// Follows the surface around `start` to its end; returns its verdict, the lowest point and the evaluations.
    fn follow_surface(
        start: &[f64],
        bounds: Bounds<'_>,
        f: impl Fn(&[f64]) -> f64,
    ) -> (Option<SurfaceVerdict>, Vec<f64>, u32) {
        let tolerance = Tolerance {
            fatol: 1e-4,
            noise: 1e-12,
        };
        let Some(mut surface) = Surface::new(start, f(start), &[2.0, 0.0, 5.0], bounds, tolerance)
        else {
            return (None, start.to_vec(), 0);
        };
        loop {
            let values: Vec<f64> = surface.points().chunks_exact(2).map(&f).collect();
            if let Some(verdict) = surface.take_objectives(&values) {
                return (
                    Some(verdict),
                    surface.lowest().to_vec(),
                    surface.evaluations,
                );
            }
        }
    }

    #[test]
    fn the_minimum_of_a_quadratic_takes_one_step() {
        let bounds = Bounds {
            lower: &[-9.0; 2],
            upper: &[9.0; 2],
        };
        let (verdict, lowest, evaluations) = follow_surface(&[0.7, 0.1], bounds, quadratic);
        // Five points, the step, the slopes in two directions.
        assert_eq!((verdict, evaluations), (Some(SurfaceVerdict::Minimum), 10));
        assert!(
            (lowest[0] - 1.0).abs() < 1e-6 && (lowest[1] + 0.5).abs() < 1e-6,
            "{lowest:?}"
        );
    }

    #[test]
    fn a_saddle_and_a_bound_that_need_not_be_active_are_no_minima() {
        let bounds = Bounds {
            lower: &[-9.0; 2],
            upper: &[9.0; 2],
        };
        assert_eq!(
            follow_surface(&[0.0, 0.0], bounds, |u| u[0] * u[0] - u[1] * u[1]).0,
            Some(SurfaceVerdict::Elsewhere)
        );
        // The lower bound need not be active: the cost falls off it.
        let bounds = Bounds {
            lower: &[0.5, -9.0],
            upper: &[9.0; 2],
        };
        assert_eq!(
            follow_surface(&[0.5, -0.1], bounds, quadratic).0,
            Some(SurfaceVerdict::Elsewhere)
        );
        // The upper bound is active: the cost falls beyond it.
        let bounds = Bounds {
            lower: &[-9.0; 2],
            upper: &[0.5, 9.0],
        };
        let (verdict, lowest, _) = follow_surface(&[0.5, -0.1], bounds, quadratic);
        assert_eq!(verdict, Some(SurfaceVerdict::Minimum));
        assert!(
            lowest[0] == 0.5 && (lowest[1] + 1.0 / 6.0).abs() < 1e-5,
            "{lowest:?}"
        );
    }
}
