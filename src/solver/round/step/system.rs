//! (A + S + μ D) δ = g, the system of a damped step, and its solution for some of the parameters. f64.

use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};
use crate::solver::member::Member;

/// The system of one member's step; S = s sᵀ of the secant, D = diag A, but at least `lowest`.
pub struct System<'a> {
    pub member: &'a Member,
    pub secant: &'a [f64],
    pub lowest: f64,
}

impl System<'_> {
    /// Returns element (p, p) of the normal matrix, without damping.
    pub fn diagonal(&self, p: usize) -> f64 {
        self.member.sums.normal_matrix[packed_index(p, p)]
    }

    /// Returns element (p, q) of A + s sᵀ, the normal matrix and the secant correction.
    pub fn curvature(&self, p: usize, q: usize) -> f64 {
        self.member.sums.normal_matrix[packed_index(p, q)] + self.secant[p] * self.secant[q]
    }

    /// Returns what damping adds to diagonal element p of the matrix: μ max(A_pp, lowest).
    pub fn damping(&self, p: usize) -> f64 {
        self.member.damping.mu * self.diagonal(p).max(self.lowest)
    }

    /// Solves the damped system for the free elements of `delta`, given the others; returns the largest μ D / diag A.
    /// `None` if it does not factorise.
    pub fn solve_free(&self, free: &[bool], delta: &mut [f64]) -> Option<f64> {
        let members: Vec<usize> = (0..free.len()).filter(|&p| free[p]).collect();
        let mut matrix = vec![0.0; packed_length(members.len())];
        let mut x = vec![0.0; members.len()];
        let mut damping = self.member.damping.mu;
        for (i, &p) in members.iter().enumerate() {
            for (j, &q) in members.iter().enumerate().take(i + 1) {
                matrix[packed_index(i, j)] = self.curvature(p, q);
            }
            matrix[packed_index(i, i)] += self.damping(p);
            damping = damping.max(self.damping(p) / self.diagonal(p));
            x[i] = self.member.sums.gradient[p];
            for q in (0..free.len()).filter(|&q| !free[q]) {
                x[i] -= self.curvature(p, q) * delta[q];
            }
        }
        if !cholesky(&mut matrix, members.len()) {
            return None;
        }
        solve_lower(&matrix, &mut x);
        solve_upper(&matrix, &mut x);
        if !x.iter().all(|v| v.is_finite()) {
            return None;
        }
        for (&p, v) in members.iter().zip(x) {
            delta[p] = v;
        }
        Some(damping)
    }
}
