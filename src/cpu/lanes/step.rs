//! A step of every lane: judge the trial point, then choose the next one; what `solver/round/step.rs` does for one
//! member.
//!
//! Loops over lanes read whole arrays, and [`pick`] values that are read already: so they become vector code.
#![expect(clippy::needless_range_loop, reason = "one index for many arrays")]

use pulp::Simd;

use super::block::{Block, RUNNING, gradient, normal};
use super::few::Promises;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, absolute, pick};
use crate::solver::round::step::equations::{contraction, relaxation, shortened_reduction};
use crate::solver::thresholds::{BEST_CONTRACTION, PATIENCE};
use crate::solver::whole::Whole;
use crate::solver::{Interval, Status};

/// [`BEST_CONTRACTION`] where nothing is to follow that would make good what luck promised: fits that end in f32.
const LAST_CONTRACTION: f64 = 0.02;

/// By how many times what all steps to come promise together may exceed what the next one may.
const TOGETHER: f64 = 2.5;

/// A promise above this share of the one before it does not shrink.
const SHRINKS: f64 = 0.5;

/// Returns `new` if the condition holds, else `old`, plus 0, which makes of −0 a 0. Without the sum, compilers turn a
/// store of the result into a masked store, which is slow on AMD's processors.
#[inline(always)]
pub fn renew<R: Real>(condition: bool, new: R, old: R) -> R {
    pick(condition, new, old) + R::ZERO
}

/// Converts a status to its code as a floating-point number, which is how lanes store it.
#[inline(always)]
fn code<R: Real>(status: Status) -> R {
    R::of(f64::from(status.code()))
}

impl<R: Real> Block<R> {
    /// Accepts or rejects each lane's trial point by its cost, and updates the damping.
    #[inline(always)]
    pub fn judge(&mut self) {
        let mut finite = self.trial_sums[0];
        for p in 0..self.parameters {
            let diagonal = &self.trial_sums[normal(p, p)].0;
            (0..LANES).for_each(|l| finite.0[l] += diagonal[l]);
        }
        let (noise, two) = (R::of(1.0 + Self::rounding().cost), R::of(2.0));
        let running = R::of(RUNNING);
        let (cost, trial) = (&self.sums[0].0, &self.trial_sums[0].0);
        let (mut accept, mut all) = (Lanes::splat(R::ZERO), true);
        for l in 0..LANES {
            let (cost, trial, mu, nu, status) = (cost[l], trial[l], self.mu.0[l], self.nu.0[l], self.status.0[l]);
            let (rounds, rejections) = (self.rounds.0[l], self.rejections.0[l]);
            // false of NaN and of infinities
            let valid = finite.0[l] * R::ZERO == R::ZERO;
            let first = rounds == R::ZERO;
            let accepted = first | (valid & (trial <= cost * noise));
            let gain_ratio = ((cost - trial) / absolute(self.promise.0[l])).maximum(R::ZERO);
            let relaxed = pick(first, mu, mu * relaxation(gain_ratio));
            accept.0[l] = pick(accepted, R::ONE, R::ZERO);
            all &= accepted;
            self.mu.0[l] = pick(accepted, relaxed, mu * nu);
            self.nu.0[l] = pick(accepted, two, two * nu);
            self.rejections.0[l] = pick(accepted, R::ZERO, rejections + R::ONE);
            self.rounds.0[l] = rounds + R::ONE;
            self.status.0[l] = renew((status == running) & first & !valid, code(Status::NotFinite), status);
        }
        if all {
            // the trial's places are written anew before they are read
            std::mem::swap(&mut self.sums, &mut self.trial_sums);
            std::mem::swap(&mut self.accepted, &mut self.trial);
            return;
        }
        let pairs = self.sums.iter_mut().zip(&self.trial_sums);
        for (to, from) in pairs.chain(self.accepted.iter_mut().zip(&self.trial)) {
            let (to, from) = (&mut to.0, &from.0);
            for l in 0..LANES {
                let (old, new) = (to[l], from[l]);
                to[l] = renew(accept.0[l] > R::ZERO, new, old);
            }
        }
    }

    /// Computes each lane's next step and trial point, or sets the status of a fit that ends.
    #[inline(always)]
    pub fn choose<S: Simd>(&mut self, simd: S, whole: &Whole) {
        let settings = &whole.settings;
        self.set_free();
        let flat = self.is_flat(settings.gtol);
        self.solve(simd);
        // of the whole step: a shortened one never counts as small
        let Promises { gain, loss, length, size } = self.promises(simd);
        self.shorten(settings.largest_step);
        let rounding = Self::rounding();
        let xtol = settings.xtol.max(rounding.step);
        let (tolerance, xtol) = (R::of(whole.tolerance), R::of(xtol * xtol));
        let (least, most_reduction) = (R::of(rounding.reduction), R::of(whole.most.min(1e30)));
        let continued = !self.ends;
        let best = R::of(if self.ends && size_of::<R>() == 4 { LAST_CONTRACTION } else { BEST_CONTRACTION });
        // reweighted least squares converge at a constant rate, others where the noise is as large as the model: all
        // steps to come count, not the next one alone
        let together = R::of(match (whole.estimator.is_least_squares(), continued) {
            (true, true) => 1e30,
            (true, false) => TOGETHER,
            (false, _) => 1.0,
        });
        let trusts = whole.estimator.trusts_last_step();
        let (undamped, running) = (R::of(rounding.undamped), R::of(RUNNING));
        let patience = R::of(PATIENCE.into());
        let (most, stalled) = (R::of(settings.max_rounds.into()), R::of(settings.max_rejections.into()));
        let cost = &self.sums[0].0;
        let mut arrived = Lanes::splat(R::ZERO);
        for l in 0..LANES {
            let (gain, loss, share) = (gain.0[l], loss.0[l], self.share.0[l]);
            let (new, previous, rejections) = (gain - loss, self.promise.0[l], self.rejections.0[l]);
            // the first promise, one after a rejection, and that of a shortened step tell nothing about the next
            let full = share == R::ONE;
            let known = (previous > R::ZERO) & (rejections == R::ZERO) & full;
            let contraction = contraction(new, previous, best);
            let remaining = pick(known & trusts, new * contraction, new);
            let settled = self.settled.0[l] > R::ZERO;
            let root = contraction.root();
            let beyond = (R::ONE - root) * (R::ONE - root);
            let limit = (tolerance * cost[l]).minimum(most_reduction);
            let near = remaining <= pick(known, limit * R::ONE.minimum(together * beyond), limit);
            self.slow.0[l] = pick(near, R::ZERO, R::ONE);
            // a step that is not to be trusted is evaluated, unless what it promises is too little to take it at all
            let trusted = self.trusted.0[l] > R::ZERO;
            let near = near & (trusted | (new <= limit));
            // what no longer shrinks is rounding
            let still = continued | !known | (new > R::of(SHRINKS) * previous);
            let small_reduction = near | (still & (remaining <= least * cost[l]));
            let small_step = length.0[l] <= xtol * size.0[l];
            // what the floor held back is to move, too
            let creeps = self.rounds.0[l] >= patience;
            let release = !settled & (self.mu.0[l] < undamped) & (small_reduction | small_step | creeps);
            self.floor.0[l] = renew(release, R::ZERO, self.floor.0[l]);
            let (small_reduction, small_step) = (settled & small_reduction, settled & small_step);
            let mut status = pick(self.rounds.0[l] >= most, code(Status::MaxRounds), running);
            status = pick(rejections > stalled, code(Status::Stalled), status);
            status = pick(small_step, code(Status::Xtol), status);
            status = pick(small_reduction, code(Status::Ftol), status);
            status = pick(small_reduction & small_step, code(Status::FtolXtol), status);
            let singular = self.factors.positive.0[l] == R::ZERO;
            status = pick(singular, code(Status::Singular), status);
            let flat = flat.0[l] > R::ZERO;
            status = pick(flat, code(Status::Gtol), status);
            let old = self.status.0[l];
            let arrives = trusts & trusted & (old == running) & (small_reduction | small_step) & !singular & !flat;
            arrived.0[l] = pick(arrives, R::ONE, R::ZERO);
            self.status.0[l] = renew(old == running, status, old);
            self.promise.0[l] = pick(full, new, -shortened_reduction(gain, loss, share));
        }
        self.advance(&arrived);
    }

    /// Sets the trial points to the ends of the steps; where `arrived`, accepts them without another evaluation.
    #[inline(always)]
    fn advance(&mut self, arrived: &Lanes<R>) {
        for p in 0..self.parameters {
            let (x, delta, trial) = (&mut self.accepted[p].0, &self.delta[p].0, &mut self.trial[p].0);
            (0..LANES).for_each(|l| trial[l] = x[l] + delta[l]);
            if let (Some(lower), Some(upper)) = (self.lower.get(p), self.upper.get(p)) {
                (0..LANES).for_each(|l| trial[l] = trial[l].maximum(lower.0[l]).minimum(upper.0[l]));
            }
            for l in 0..LANES {
                let (old, new) = (x[l], trial[l]);
                x[l] = renew(arrived.0[l] > R::ZERO, new, old);
            }
        }
        let cost = &mut self.sums[0].0;
        for l in 0..LANES {
            let (old, reached) = (cost[l], (cost[l] - absolute(self.promise.0[l])).maximum(R::ZERO));
            cost[l] = renew(arrived.0[l] > R::ZERO, reached, old);
        }
    }

    /// Marks as free the parameters whose bounds leave them room and which the gradient does not push against a bound.
    #[inline(always)]
    pub fn set_free(&mut self) {
        for p in 0..self.lower.len() {
            let (x, g) = (&self.accepted[p].0, &self.sums[gradient(p)].0);
            let (lower, upper, free) = (&self.lower[p].0, &self.upper[p].0, &mut self.free[p].0);
            for l in 0..LANES {
                let interval = Interval { lower: lower[l], upper: upper[l] };
                free[l] = pick(interval.lets_move(x[l], g[l]), R::ONE, R::ZERO);
            }
        }
    }

    /// Returns 1 for lanes in which no free column of the Jacobian has a cosine with the residual above `gtol`, else 0.
    #[inline(always)]
    fn is_flat(&self, gtol: f64) -> Lanes<R> {
        let limit = R::of(gtol * gtol);
        let mut flat = Lanes::splat(R::ONE);
        let cost = &self.sums[0].0;
        for p in 0..self.parameters {
            let (g, a, free) = (&self.sums[gradient(p)].0, &self.sums[normal(p, p)].0, &self.free[p].0);
            for l in 0..LANES {
                let (g, known) = (g[l] * free[l], flat.0[l]);
                // squares may leave the range: of what does, nothing is known
                let (square, least) = (g * g, limit * a[l] * cost[l]);
                let small = (square <= least) & (least > R::ZERO) & (least * R::ZERO == R::ZERO);
                flat.0[l] = known * pick(small | (g == R::ZERO), R::ONE, R::ZERO);
            }
        }
        flat
    }

    /// Returns the cost reductions that the steps predict, and the lengths by which convergence is judged.
    #[inline(always)]
    fn promises<S: Simd>(&self, simd: S) -> Promises<R> {
        match self.parameters {
            3 => return self.promises_few::<S, 3>(simd),
            4 => return self.promises_few::<S, 4>(simd),
            5 => return self.promises_few::<S, 5>(simd),
            6 => return self.promises_few::<S, 6>(simd),
            _ => {}
        }
        let zero = Lanes::splat(R::ZERO);
        let mut all = Promises::new();
        let Promises { gain, loss, length, size } = &mut all;
        let two = R::of(2.0);
        for p in 0..self.parameters {
            // A δ, its diagonal apart
            let mut slope = zero;
            for q in 0..p {
                let (a, delta) = (&self.sums[normal(p, q)].0, &self.delta[q].0);
                (0..LANES).for_each(|l| slope.0[l] = a[l].fused(delta[l], slope.0[l]));
            }
            let (delta, x) = (&self.delta[p].0, &self.accepted[p].0);
            let (diagonal, g) = (&self.sums[normal(p, p)].0, &self.sums[gradient(p)].0);
            for l in 0..LANES {
                let (d, x) = (delta[l], x[l]);
                let square = diagonal[l] * d * d;
                gain.0[l] += two * d * g[l];
                loss.0[l] += two * d * slope.0[l] + square;
                length.0[l] += square;
                size.0[l] += pick(d == R::ZERO, R::ZERO, diagonal[l] * x * x);
            }
        }
        all
    }
}
