//! (A + S + μ D) δ = g, the system of a damped step, and its solution for some of the parameters. f64.

use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};
use crate::solver::member::Member;

/// The system of one member's step; S = s sᵀ with s the secant vector, and D = diag A, but at least `diagonal_floor`.
pub struct DampedSystem<'a> {
    pub member: &'a Member,
    pub secant: &'a [f64],
    pub diagonal_floor: f64,
}

impl DampedSystem<'_> {
    /// Returns element (p, p) of the normal matrix, without damping.
    pub fn diagonal(&self, p: usize) -> f64 {
        self.member.sums.normal_matrix[packed_index(p, p)]
    }

    /// Returns element (p, q) of A + s sᵀ, the normal matrix and the secant correction.
    pub fn curvature(&self, p: usize, q: usize) -> f64 {
        self.member.sums.normal_matrix[packed_index(p, q)] + self.secant[p] * self.secant[q]
    }

    /// Returns the damping term of diagonal element p: μ max(A_pp, `diagonal_floor`).
    pub fn damping(&self, p: usize) -> f64 {
        self.member.damping.mu * self.diagonal(p).max(self.diagonal_floor)
    }

    /// Solves the damped system for the free elements of `delta`, given the others; returns the largest μ D / diag A.
    /// `None` if it does not factorise.
    pub fn solve_free(&self, free: &[bool], delta: &mut [f64]) -> Option<f64> {
        // 1. The system of the free parameters; the held ones contribute to its right-hand side.
        let free_parameters: Vec<usize> = (0..free.len()).filter(|&p| free[p]).collect();
        let order = free_parameters.len();
        let mut matrix = vec![0.0; packed_length(order)];
        let mut solution = vec![0.0; order];
        let mut largest_damping = self.member.damping.mu;
        for (i, &p) in free_parameters.iter().enumerate() {
            for (j, &q) in free_parameters.iter().enumerate().take(i + 1) {
                matrix[packed_index(i, j)] = self.curvature(p, q);
            }
            matrix[packed_index(i, i)] += self.damping(p);
            largest_damping = largest_damping.max(self.damping(p) / self.diagonal(p));
            solution[i] = self.member.sums.gradient[p];
            for q in (0..free.len()).filter(|&q| !free[q]) {
                solution[i] -= self.curvature(p, q) * delta[q];
            }
        }
        // 2. Its solution by Cholesky factors.
        if !cholesky(&mut matrix, order) {
            return None;
        }
        solve_lower(&matrix, &mut solution);
        solve_upper(&matrix, &mut solution);
        if !solution.iter().all(|element| element.is_finite()) {
            return None;
        }
        for (&p, element) in free_parameters.iter().zip(solution) {
            delta[p] = element;
        }
        Some(largest_damping)
    }
}
