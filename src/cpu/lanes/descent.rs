//! Damped steps of a block's lanes inside their bounds, and inverses of their normal matrices.

use pulp::Simd;

use super::block::{FitBlock, RUNNING_LANE_STATUS, gradient, normal};
use super::step::replace_if;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, absolute, pick};
use crate::math::triangle::packed_index;
use crate::solver::Damping;
use crate::solver::round::step::equations::magnitude;
use crate::solver::small::SmallProblem;
use crate::solver::thresholds::{
    LEAST_PIVOT_SHARE, LEGS_PER_PARAMETER, SOLVE_ATTEMPTS, TRUSTED_CONTINUED_STEP, TRUSTED_STEP,
};

impl<R: Real> FitBlock<R> {
    /// Computes each lane's damped step inside the bounds; raises the damping where the matrix does not factorise.
    #[inline(always)]
    pub fn solve_steps<S: Simd>(&mut self, simd: S) {
        for _ in 0..SOLVE_ATTEMPTS {
            self.solve_in_bounds(simd);
            let mut any_failed = false;
            for l in 0..LANES {
                let mu = self.mu.0[l];
                let has_failed = (self.factors.positive.0[l] == R::ZERO)
                    & (self.status.0[l] == R::of(RUNNING_LANE_STATUS));
                self.mu.0[l] = replace_if(has_failed, Damping { mu, nu: R::ZERO }.raise().mu, mu);
                any_failed |= has_failed;
            }
            if !any_failed {
                break;
            }
            // The next attempt begins with all parameters free again.
            self.set_free_parameters();
        }
    }

    /// Computes each lane's damped step, which continues along the bounds that it meets
    /// (`solver/round/step/damped.rs`).
    #[inline(always)]
    fn solve_in_bounds<S: Simd>(&mut self, simd: S) {
        // 1. Without bounds, steps of three to six parameters are solved in registers.
        match (self.lower.is_empty(), self.parameters) {
            (true, 3) => return self.solve_in_registers::<S, 3>(simd),
            (true, 4) => return self.solve_in_registers::<S, 4>(simd),
            (true, 5) => return self.solve_in_registers::<S, 5>(simd),
            (true, 6) => return self.solve_in_registers::<S, 6>(simd),
            _ => {}
        }
        if !self.lower.is_empty() {
            self.reached_step.fill(Lanes::splat(R::ZERO));
        }
        // 2. Solve for the whole step, then again for the free parameters at each bound that the step meets.
        self.set_least_diagonal();
        self.factorise_damped(simd);
        self.solve_free(simd);
        for _ in 0..LEGS_PER_PARAMETER * self.lower.len() {
            if !self.turn_at_bounds() {
                return;
            }
            self.factorise_damped(simd);
            self.solve_free(simd);
        }
        // 3. If some lanes have not arrived after so many bounds, the step ends where it is.
        if !self.lower.is_empty() && self.turn_at_bounds() {
            self.delta.copy_from_slice(&self.reached_step);
        }
    }

    /// Sets the least diagonal element of A in the damping: a share of the largest, in the parameters' units.
    #[inline(always)]
    fn set_least_diagonal(&mut self) {
        let mut largest = Lanes::splat(R::ZERO);
        for p in 0..self.parameters {
            let a = &self.sums[normal(p, p)].0;
            let unit = &self.unit[p].0;
            let free = &self.is_free[p].0;
            (0..LANES).for_each(|l| {
                largest.0[l] = largest.0[l].maximum(a[l] * unit[l] * unit[l] * free[l])
            });
        }
        (0..LANES).for_each(|l| self.least_diagonal.0[l] = largest.0[l] * self.diagonal_floor.0[l]);
    }

    /// Factorises A + μ max(diag A, least diagonal element) of the free parameters, and notes whether the damping is
    /// negligible.
    #[inline(always)]
    fn factorise_damped<S: Simd>(&mut self, simd: S) {
        self.is_undamped_step = Lanes::splat(R::ONE);
        let undamped = R::of(self.precision_limits().undamped);
        for i in 0..self.parameters {
            self.copy_row(i);
            let a = &self.sums[normal(i, i)].0;
            let per_unit = &self.inverse_unit[i].0;
            let free = &self.is_free[i].0;
            let diagonal = &mut self.factors.lower[packed_index(i, i)].0;
            let is_undamped = &mut self.is_undamped_step.0;
            for l in 0..LANES {
                let a = a[l];
                let least_element = self.least_diagonal.0[l] * per_unit[l] * per_unit[l];
                let mu = self.mu.0[l];
                let largest = a.maximum(least_element);
                // A parameter without influence on the model stays where it is.
                let moves = (a > R::ZERO) & (free[l] > R::ZERO);
                diagonal[l] = pick(moves, mu.fused(largest, a), R::ONE);
                is_undamped[l] *= pick(moves & (mu * largest >= undamped * a), R::ZERO, R::ONE);
            }
            self.scratch[i] = Lanes::splat(R::ZERO);
        }
        self.factors.factorise(simd, &self.scratch);
    }

    /// Copies row i of the normal matrix, without its diagonal, to the matrix to factorise; 0 for held parameters.
    #[inline(always)]
    fn copy_row(&mut self, i: usize) {
        for j in 0..i {
            let row = &mut self.factors.lower[packed_index(i, j)].0;
            let a = &self.sums[normal(i, j)].0;
            let free = &self.is_free[i].0;
            let other_free = &self.is_free[j].0;
            if self.lower.is_empty() {
                *row = *a;
                continue;
            }
            (0..LANES).for_each(|l| row[l] = a[l] * free[l] * other_free[l]);
        }
    }

    /// Solves for the free parameters' part of the step `delta`, with the held ones' part fixed at the reached step.
    #[inline(always)]
    fn solve_free<S: Simd>(&mut self, simd: S) {
        for p in 0..self.parameters {
            self.delta[p] = self.sums[gradient(p)];
            if self.lower.is_empty() {
                continue;
            }
            // Subtract A δ of the held parameters. The rows of these keep their part of the step.
            let right_side = &mut self.delta[p].0;
            for q in 0..self.parameters {
                let a = &self.sums[normal(p, q)].0;
                let free = &self.is_free[q].0;
                let reached = &self.reached_step[q].0;
                (0..LANES).for_each(|l| right_side[l] += -(a[l] * (R::ONE - free[l]) * reached[l]));
            }
            let free = &self.is_free[p].0;
            let reached = &self.reached_step[p].0;
            for l in 0..LANES {
                let held = reached[l];
                let solved = right_side[l];
                right_side[l] = replace_if(free[l] > R::ZERO, solved, held);
            }
        }
        self.factors.solve(simd, &mut self.delta);
    }

    /// Scales each lane's step so that no parameter moves by more than `largest_step` times its magnitude, and notes
    /// the factor. Notes also which steps are trusted: they move no parameter by more than [`TRUSTED_STEP`], or
    /// [`TRUSTED_CONTINUED_STEP`] where a fit of least squares does not end in this block, and change no sign.
    #[inline(always)]
    pub fn shorten_steps(&mut self, problem: &SmallProblem) {
        let largest = R::of(problem.settings.largest_step.min(1e30));
        let is_continued = !self.may_end && problem.estimator.is_least_squares();
        let largest_trusted = R::of(if is_continued {
            TRUSTED_CONTINUED_STEP
        } else {
            TRUSTED_STEP
        });
        (self.step_share, self.is_trusted_step) = (Lanes::splat(R::ONE), Lanes::splat(R::ONE));
        let mut any_too_long = false;
        for p in 0..self.parameters {
            let x = &self.accepted[p].0;
            let unit = &self.unit[p].0;
            let delta = &self.delta[p].0;
            for l in 0..LANES {
                let x = x[l];
                let d = delta[l];
                let magnitude = magnitude(x, unit[l]);
                let length = absolute(d);
                any_too_long |= length > largest * magnitude;
                let is_trusted = (length <= largest_trusted * magnitude) & (x * (x + d) >= R::ZERO);
                self.is_trusted_step.0[l] = pick(is_trusted, self.is_trusted_step.0[l], R::ZERO);
            }
        }
        if !any_too_long {
            return;
        }
        for p in 0..self.parameters {
            let x = &self.accepted[p].0;
            let unit = &self.unit[p].0;
            let delta = &self.delta[p].0;
            for l in 0..LANES {
                let longest = largest * magnitude(x[l], unit[l]);
                let d = absolute(delta[l]);
                let ratio = pick(d > longest, longest / d, R::ONE);
                self.step_share.0[l] = self.step_share.0[l].minimum(ratio);
            }
        }
        for delta in &mut self.delta {
            (0..LANES).for_each(|l| delta.0[l] *= self.step_share.0[l]);
        }
    }

    /// Writes the diagonal of the inverse normal matrix, of parameters strictly inside their bounds, into `delta`, and
    /// the correlations below it into `correlations`, unless that is empty.
    #[inline(always)]
    pub fn invert_normal_matrices<S: Simd>(&mut self, simd: S) {
        for p in 0..self.lower.len() {
            let x = &self.accepted[p].0;
            let lower = &self.lower[p].0;
            let upper = &self.upper[p].0;
            let free = &mut self.is_free[p].0;
            (0..LANES).for_each(|l| {
                free[l] = pick((x[l] > lower[l]) & (x[l] < upper[l]), R::ONE, R::ZERO)
            });
        }
        for i in 0..self.parameters {
            self.copy_row(i);
            let a = &self.sums[normal(i, i)].0;
            let free = &self.is_free[i].0;
            let diagonal = &mut self.factors.lower[packed_index(i, i)].0;
            let least_pivot = &mut self.scratch[i].0;
            for l in 0..LANES {
                diagonal[l] = pick(free[l] > R::ZERO, a[l], R::ONE);
                least_pivot[l] = R::of(LEAST_PIVOT_SHARE) * a[l] * free[l];
            }
        }
        self.factors.factorise(simd, &self.scratch);
        for p in 0..self.parameters {
            self.delta[p] = self.factors.inverse_diagonal(p);
        }
        if !self.correlations.is_empty() {
            self.factors
                .write_correlations(&self.delta, &mut self.correlations);
        }
    }
}
