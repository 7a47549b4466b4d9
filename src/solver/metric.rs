//! Directions in which a cost rises alike, from a normal matrix.
//!
//! With A the normal matrix at a point and A = L Lᵀ, the columns e_k of L⁻ᵀ satisfy e_iᵀ A e_k = δ_ik: a unit step
//! along any of them raises the quadratic model of the cost by one. A simplex with these edges needs no time to adapt
//! to the problem.

use crate::math::triangle::{packed_index, packed_length, solve_lower, solve_upper};

/// Smallest pivot of the normal matrix scaled to a unit diagonal. It limits the length of directions along which the
/// cost hardly changes.
const LEAST_PIVOT: f64 = 1e-6;

/// A point and its linearisation, in `u`. P is the number of parameters.
#[derive(Clone, Copy, Debug)]
pub struct Linearisation<'a> {
    /// (P)
    pub point: &'a [f64],
    pub cost: f64,
    /// (P) Jᵀr, the direction of descent.
    pub gradient: &'a [f64],
    /// (P (P + 1) / 2)
    pub normal_matrix: &'a [f64],
}

/// A metric on some of the parameters.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Parameters that move.
    pub moving: Vec<usize>,
    /// Packed Cholesky factor of the scaled normal matrix of these parameters.
    factor: Vec<f64>,
    /// √A_pp of these parameters.
    scale: Vec<f64>,
}

impl Metric {
    /// Factorises the scaled normal matrix of the `moving` parameters as L Lᵀ; `None` unless its diagonal is positive.
    pub fn new(normal_matrix: &[f64], moving: Vec<usize>) -> Option<Metric> {
        let scale: Vec<f64> = moving
            .iter()
            .map(|&p| normal_matrix[packed_index(p, p)].sqrt())
            .collect();
        if !scale.iter().all(|scale| *scale > 0.0 && scale.is_finite()) {
            return None;
        }
        let mut factor = vec![0.0; packed_length(moving.len())];
        for (i, &p) in moving.iter().enumerate() {
            for (j, &q) in moving.iter().enumerate().take(i + 1) {
                let mut sum = normal_matrix[packed_index(p, q)] / (scale[i] * scale[j]);
                sum -= (0..j)
                    .map(|k| factor[packed_index(i, k)] * factor[packed_index(j, k)])
                    .sum::<f64>();
                let pivot = sum.max(LEAST_PIVOT).sqrt();
                factor[packed_index(i, j)] = if i == j {
                    pivot
                } else {
                    sum / factor[packed_index(j, j)]
                };
            }
        }
        factor.iter().all(|x| x.is_finite()).then_some(Metric {
            moving,
            factor,
            scale,
        })
    }

    /// Returns L⁻¹ g, the gradient in coordinates in which the normal matrix is the unit matrix. The Gauss–Newton step
    /// has the same ones.
    pub fn whitened(&self, gradient: &[f64]) -> Vec<f64> {
        let mut y: Vec<f64> = self
            .moving
            .iter()
            .zip(&self.scale)
            .map(|(&p, scale)| gradient[p] / scale)
            .collect();
        solve_lower(&self.factor, &mut y);
        y
    }

    /// Converts coordinates along the directions back to a vector of all P parameters u, L⁻ᵀ y; 0 for those that stay.
    pub fn vector(&self, coordinates: &[f64], parameters: usize) -> Vec<f64> {
        let mut x = coordinates.to_vec();
        solve_upper(&self.factor, &mut x);
        let mut vector = vec![0.0; parameters];
        for ((&p, x), scale) in self.moving.iter().zip(&x).zip(&self.scale) {
            vector[p] = x / scale;
        }
        vector
    }

    /// Returns a vector in u for each coordinate, a step by which, from a minimum, raises the cost by 1: (moving, P).
    pub fn directions(&self, parameters: usize) -> Vec<f64> {
        let mut directions = Vec::with_capacity(self.moving.len() * parameters);
        for k in 0..self.moving.len() {
            let mut coordinates = vec![0.0; self.moving.len()];
            coordinates[k] = 1.0;
            directions.extend(self.vector(&coordinates, parameters));
        }
        directions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_conjugate_and_steps_reach_the_minimum() {
        // Parameter 1 is held.
        let normal_matrix = [4.0, 0.0, 7.0, 2.0, 0.0, 3.0];
        let metric = Metric::new(&normal_matrix, vec![0, 2]).unwrap();
        let directions = metric.directions(3);
        let product = |i: usize, j: usize| {
            let x = &directions[3 * i..3 * i + 3];
            let y = &directions[3 * j..3 * j + 3];
            (0..3)
                .flat_map(|p| (0..3).map(move |q| x[p] * normal_matrix[packed_index(p, q)] * y[q]))
                .sum::<f64>()
        };
        assert!((product(0, 0) - 1.0).abs() < 1e-14 && (product(1, 1) - 1.0).abs() < 1e-14);
        assert!(product(0, 1).abs() < 1e-14);
        // A x = g for the other parameters: x = [-0.5, 2].
        let step = metric.vector(&metric.whitened(&[2.0, 9.0, 5.0]), 3);
        assert!((step[0] + 0.5).abs() < 1e-14 && step[1] == 0.0 && (step[2] - 2.0).abs() < 1e-14);
        assert!(Metric::new(&[0.0], vec![0]).is_none());
    }
}
