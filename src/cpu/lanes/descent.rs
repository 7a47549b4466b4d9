//! The damped steps of a block's lanes inside their boxes, and the inverse of their normal matrices.

use pulp::Simd;

use super::block::{Block, RUNNING, gradient, normal};
use super::step::renew;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, absolute, pick};
use crate::math::triangle::packed_index;
use crate::solver::Damping;
use crate::solver::round::step::equations::magnitude;
use crate::solver::thresholds::{
    LEAST_PIVOT_SHARE, LEGS_PER_PARAMETER, SOLVE_ATTEMPTS, TRUSTED_STEP,
};

impl<R: Real> Block<R> {
    /// Computes each lane's damped step inside the bounds; raises the damping where the matrix does not factorise.
    #[inline(always)]
    pub fn solve<S: Simd>(&mut self, simd: S) {
        for _ in 0..SOLVE_ATTEMPTS {
            self.solve_in_box(simd);
            let mut lost = false;
            for l in 0..LANES {
                let mu = self.mu.0[l];
                let failed =
                    (self.factors.positive.0[l] == R::ZERO) & (self.status.0[l] == R::of(RUNNING));
                self.mu.0[l] = renew(failed, Damping { mu, nu: R::ZERO }.raise().mu, mu);
                lost |= failed;
            }
            if !lost {
                break;
            }
            // another attempt begins at the start again
            self.set_free();
        }
    }

    /// Computes each lane's damped step, going on along the bounds where it meets them (`solver/round/step/damped.rs`).
    #[inline(always)]
    fn solve_in_box<S: Simd>(&mut self, simd: S) {
        match (self.lower.is_empty(), self.parameters) {
            (true, 3) => return self.solve_few::<S, 3>(simd),
            (true, 4) => return self.solve_few::<S, 4>(simd),
            (true, 5) => return self.solve_few::<S, 5>(simd),
            (true, 6) => return self.solve_few::<S, 6>(simd),
            _ => {}
        }
        if !self.lower.is_empty() {
            self.given.fill(Lanes::splat(R::ZERO));
        }
        self.set_lowest();
        self.factorise(simd);
        self.solve_free(simd);
        for _ in 0..LEGS_PER_PARAMETER * self.lower.len() {
            if !self.turn() {
                return;
            }
            self.factorise(simd);
            self.solve_free(simd);
        }
        if !self.lower.is_empty() && self.turn() {
            self.delta.copy_from_slice(&self.given);
        }
    }

    /// Sets `lowest`, the least diagonal element of A in the damping: a share of the largest, in the parameters' units.
    #[inline(always)]
    fn set_lowest(&mut self) {
        let mut lowest = Lanes::splat(R::ZERO);
        for p in 0..self.parameters {
            let (a, unit, free) = (&self.sums[normal(p, p)].0, &self.unit[p].0, &self.free[p].0);
            (0..LANES).for_each(|l| {
                lowest.0[l] = lowest.0[l].maximum(a[l] * unit[l] * unit[l] * free[l])
            });
        }
        (0..LANES).for_each(|l| self.lowest.0[l] = lowest.0[l] * self.floor.0[l]);
    }

    /// Factorises A + μ max(diag A, lowest) of the free parameters; sets `settled` to 1 where the damping hardly
    /// counts.
    #[inline(always)]
    fn factorise<S: Simd>(&mut self, simd: S) {
        self.settled = Lanes::splat(R::ONE);
        let undamped = R::of(self.rounding().undamped);
        for i in 0..self.parameters {
            self.set_row(i);
            let (a, per_unit, free) = (
                &self.sums[normal(i, i)].0,
                &self.per_unit[i].0,
                &self.free[i].0,
            );
            let (out, settled) = (
                &mut self.factors.lower[packed_index(i, i)].0,
                &mut self.settled.0,
            );
            for l in 0..LANES {
                let (a, least) = (a[l], self.lowest.0[l] * per_unit[l] * per_unit[l]);
                let (mu, largest) = (self.mu.0[l], a.maximum(least));
                // a parameter without influence stays where it is
                let moves = (a > R::ZERO) & (free[l] > R::ZERO);
                out[l] = pick(moves, mu.fused(largest, a), R::ONE);
                settled[l] *= pick(moves & (mu * largest >= undamped * a), R::ZERO, R::ONE);
            }
            self.least[i] = Lanes::splat(R::ZERO);
        }
        self.factors.factorise(simd, &self.least);
    }

    /// Copies row i of the normal matrix, without its diagonal, to the matrix to factorise; 0 for held parameters.
    #[inline(always)]
    fn set_row(&mut self, i: usize) {
        for j in 0..i {
            let out = &mut self.factors.lower[packed_index(i, j)].0;
            let (a, free, other) = (&self.sums[normal(i, j)].0, &self.free[i].0, &self.free[j].0);
            if self.lower.is_empty() {
                *out = *a;
                continue;
            }
            (0..LANES).for_each(|l| out[l] = a[l] * free[l] * other[l]);
        }
    }

    /// Solves for the free parameters' part of the step `delta`, with the held ones' part fixed at `given`.
    #[inline(always)]
    fn solve_free<S: Simd>(&mut self, simd: S) {
        for p in 0..self.parameters {
            self.delta[p] = self.sums[gradient(p)];
            if self.lower.is_empty() {
                continue;
            }
            let right = &mut self.delta[p].0;
            for q in 0..self.parameters {
                let (a, free, given) = (
                    &self.sums[normal(p, q)].0,
                    &self.free[q].0,
                    &self.given[q].0,
                );
                (0..LANES).for_each(|l| right[l] += -(a[l] * (R::ONE - free[l]) * given[l]));
            }
            let (free, given) = (&self.free[p].0, &self.given[p].0);
            for l in 0..LANES {
                let (held, solved) = (given[l], right[l]);
                right[l] = renew(free[l] > R::ZERO, solved, held);
            }
        }
        self.factors.solve(simd, &mut self.delta);
    }

    /// Scales each lane's step so that no parameter moves by more than `most` times its magnitude; the factor is
    /// `share`. Finds those that are `trusted`: they move none by more than [`TRUSTED_STEP`] and leave all their signs.
    #[inline(always)]
    pub fn shorten(&mut self, most: f64) {
        let (most, short) = (R::of(most.min(1e30)), R::of(TRUSTED_STEP));
        (self.share, self.trusted) = (Lanes::splat(R::ONE), Lanes::splat(R::ONE));
        let mut longer = false;
        for p in 0..self.parameters {
            let (x, unit, delta) = (&self.accepted[p].0, &self.unit[p].0, &self.delta[p].0);
            for l in 0..LANES {
                let (x, d) = (x[l], delta[l]);
                let (magnitude, length) = (magnitude(x, unit[l]), absolute(d));
                longer |= length > most * magnitude;
                let is_trusted = (length <= short * magnitude) & (x * (x + d) >= R::ZERO);
                self.trusted.0[l] = pick(is_trusted, self.trusted.0[l], R::ZERO);
            }
        }
        if !longer {
            return;
        }
        for p in 0..self.parameters {
            let (x, unit, delta) = (&self.accepted[p].0, &self.unit[p].0, &self.delta[p].0);
            for l in 0..LANES {
                let (longest, d) = (most * magnitude(x[l], unit[l]), absolute(delta[l]));
                let ratio = pick(d > longest, longest / d, R::ONE);
                self.share.0[l] = self.share.0[l].minimum(ratio);
            }
        }
        for delta in &mut self.delta {
            (0..LANES).for_each(|l| delta.0[l] *= self.share.0[l]);
        }
    }

    /// Writes the diagonal of the inverse normal matrix, of parameters strictly inside their bounds, into `delta`, and
    /// what is below it into `correlations`, where there is room for them.
    #[inline(always)]
    pub fn invert<S: Simd>(&mut self, simd: S) {
        for p in 0..self.lower.len() {
            let (x, lower, upper) = (&self.accepted[p].0, &self.lower[p].0, &self.upper[p].0);
            let free = &mut self.free[p].0;
            (0..LANES).for_each(|l| {
                free[l] = pick((x[l] > lower[l]) & (x[l] < upper[l]), R::ONE, R::ZERO)
            });
        }
        for i in 0..self.parameters {
            self.set_row(i);
            let (a, free) = (&self.sums[normal(i, i)].0, &self.free[i].0);
            let (out, least) = (
                &mut self.factors.lower[packed_index(i, i)].0,
                &mut self.least[i].0,
            );
            for l in 0..LANES {
                out[l] = pick(free[l] > R::ZERO, a[l], R::ONE);
                least[l] = R::of(LEAST_PIVOT_SHARE) * a[l] * free[l];
            }
        }
        self.factors.factorise(simd, &self.least);
        for p in 0..self.parameters {
            self.delta[p] = self.factors.inverse_diagonal(p);
        }
        if !self.correlations.is_empty() {
            self.factors
                .correlations(&self.delta, &mut self.correlations);
        }
    }
}
