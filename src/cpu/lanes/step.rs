//! A step of every lane: judge the trial point, then choose the next one; what `solver/round/step/mod.rs` does for one
//! member, by the same decisions (`solver/round/step/decisions.rs`).
//!
//! Small fits have neither finishing steps nor a secant term. Other differences from members are:
//! - A trial point is accepted, too, if its cost is higher by less than rounding.
//! - Where fits converge at a constant rate, all steps to come must promise as little as asked, not the next one alone;
//!   and what no longer shrinks is taken for rounding.
//! - A step that has converged is taken without an evaluation, if it is so short that it is to be trusted.
//! - A floor of the diagonal that is released is missing from the next round on, and convergence comes before
//!   `Stalled`.
//!
//! Loops over lanes read whole arrays, and [`pick`] values that are read already: so they become vector code.
#![expect(clippy::needless_range_loop, reason = "one index for many arrays")]

use pulp::Simd;

use super::block::{Block, RUNNING, Rounding, gradient, normal};
use super::few::Promises;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, absolute, pick};
use crate::solver::round::step::decisions::{
    EvaluatedTrial, Outlook, convergence_status, least_reduction,
};
use crate::solver::round::step::equations::shortened_reduction;
use crate::solver::small::SmallProblem;
use crate::solver::thresholds::{
    BEST_CONTRACTION, LAST_CONTRACTION, MAX_FLOOR_ROUNDS, STAGNATION_RATIO, TOTAL_REDUCTION_FACTOR,
};
use crate::solver::{Damping, Interval, Status};

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
        let rounding = R::of(self.rounding().cost);
        let running = R::of(RUNNING);
        let (cost, trial) = (&self.sums[0].0, &self.trial_sums[0].0);
        let (mut accept, mut all) = (Lanes::splat(R::ZERO), true);
        for l in 0..LANES {
            let (promise, rounds, rejections) =
                (self.promise.0[l], self.rounds.0[l], self.rejections.0[l]);
            let (damping, status) = (
                Damping {
                    mu: self.mu.0[l],
                    nu: self.nu.0[l],
                },
                self.status.0[l],
            );
            let trial = EvaluatedTrial {
                cost: cost[l],
                trial_cost: trial[l],
                predicted_reduction: absolute(promise),
                is_rescaled: promise < R::ZERO,
                // false of NaN and of infinities
                is_finite: finite.0[l] * R::ZERO == R::ZERO,
                is_first: rounds == R::ZERO,
            };
            // there are no finishing steps
            let (accepted, damping) = trial.judge_cost(damping, rounding, rounding);
            accept.0[l] = pick(accepted, R::ONE, R::ZERO);
            all &= accepted;
            (self.mu.0[l], self.nu.0[l]) = (damping.mu, damping.nu);
            self.rejections.0[l] = pick(accepted, R::ZERO, rejections + R::ONE);
            self.rounds.0[l] = rounds + R::ONE;
            let fails = (status == running) & trial.is_first & !trial.is_finite;
            self.status.0[l] = renew(fails, code(Status::NotFinite), status);
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
    pub fn choose<S: Simd>(&mut self, simd: S, problem: &SmallProblem) {
        self.set_free();
        let flat = self.is_flat(problem.tolerances.cosine);
        self.solve(simd);
        // of the whole step: a shortened one never counts as small
        let Promises {
            gain,
            loss,
            length,
            size,
        } = self.promises(simd);
        self.shorten(problem.settings.largest_step);
        let limits = Limits::new(problem, self.ends, self.rounding());
        let running = R::of(RUNNING);
        let most_rejections = R::of(problem.settings.max_rejections.into());
        let trusts = problem.estimator.trusts_last_step();
        let cost = &self.sums[0].0;
        let mut arrived = Lanes::splat(R::ZERO);
        for l in 0..LANES {
            let (gain, loss, share, rounds) =
                (gain.0[l], loss.0[l], self.share.0[l], self.rounds.0[l]);
            let (mu, rejections, old) = (self.mu.0[l], self.rejections.0[l], self.status.0[l]);
            let outlook = Outlook {
                reduction: gain - loss,
                previous: self.promise.0[l],
                was_rejected: rejections > R::ZERO,
                is_rescaled: share < R::ONE,
                is_undamped: self.settled.0[l] > R::ZERO,
                length_squared: length.0[l],
                scale_squared: size.0[l],
            };
            let is_trusted = self.trusted.0[l] > R::ZERO;
            let near = limits.nearness(outlook, cost[l], is_trusted);
            self.slow.0[l] = pick(near.is_slow, R::ONE, R::ZERO);
            // what the floor held back is to move, too
            let (is_about_to_end, creeps) = (
                near.small_reduction | near.small_step,
                rounds >= limits.patience,
            );
            let releases_floor =
                outlook.releases_floor(mu, limits.undamped, is_about_to_end, creeps);
            self.floor.0[l] = renew(releases_floor, R::ZERO, self.floor.0[l]);
            // the status, the last reason first
            let small_reduction = outlook.is_undamped & near.small_reduction;
            let small_step = outlook.is_undamped & near.small_step;
            let mut status = pick(
                rounds >= self.most_rounds.0[l],
                code(Status::MaxRounds),
                running,
            );
            status = pick(rejections > most_rejections, code(Status::Stalled), status);
            status = convergence_status(small_reduction, small_step, status, code);
            let (is_singular, is_flat) =
                (self.factors.positive.0[l] == R::ZERO, flat.0[l] > R::ZERO);
            status = pick(is_singular, code(Status::Singular), status);
            status = pick(is_flat, code(Status::Gtol), status);
            let has_converged = (small_reduction | small_step) & !is_singular & !is_flat;
            arrived.0[l] = pick(
                trusts & is_trusted & has_converged & (old == running),
                R::ONE,
                R::ZERO,
            );
            self.status.0[l] = renew(old == running, status, old);
            let shortened = shortened_reduction(gain, loss, share);
            self.promise.0[l] = pick(outlook.is_rescaled, -shortened, outlook.reduction);
        }
        self.advance(&arrived);
    }

    /// Sets the trial points to the ends of the steps; where `arrived`, accepts them without another evaluation.
    #[inline(always)]
    fn advance(&mut self, arrived: &Lanes<R>) {
        for p in 0..self.parameters {
            let (x, delta, trial) = (
                &mut self.accepted[p].0,
                &self.delta[p].0,
                &mut self.trial[p].0,
            );
            (0..LANES).for_each(|l| trial[l] = x[l] + delta[l]);
            if let (Some(lower), Some(upper)) = (self.lower.get(p), self.upper.get(p)) {
                (0..LANES)
                    .for_each(|l| trial[l] = trial[l].maximum(lower.0[l]).minimum(upper.0[l]));
            }
            for l in 0..LANES {
                let (old, new) = (x[l], trial[l]);
                x[l] = renew(arrived.0[l] > R::ZERO, new, old);
            }
        }
        let cost = &mut self.sums[0].0;
        for l in 0..LANES {
            let (old, reached) = (
                cost[l],
                (cost[l] - absolute(self.promise.0[l])).maximum(R::ZERO),
            );
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
                let interval = Interval {
                    lower: lower[l],
                    upper: upper[l],
                };
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
            let (g, a, free) = (
                &self.sums[gradient(p)].0,
                &self.sums[normal(p, p)].0,
                &self.free[p].0,
            );
            for l in 0..LANES {
                let (g, known) = (g[l] * free[l], flat.0[l]);
                // squares may leave the range: of what does, nothing is known
                let (square, least) = (g * g, limit * a[l] * cost[l]);
                let is_small = (square <= least) & (least > R::ZERO) & (least * R::ZERO == R::ZERO);
                flat.0[l] = known * pick(is_small | (g == R::ZERO), R::ONE, R::ZERO);
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
        let Promises {
            gain,
            loss,
            length,
            size,
        } = &mut all;
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

/// Limits at which small fits end, the same for all lanes of a block.
#[derive(Clone, Copy)]
struct Limits<R> {
    tolerance: R,
    largest_cost: R,
    /// Least share of a cost that can be told from its rounding.
    rounding: R,
    xtol: R,
    undamped: R,
    patience: R,
    best_contraction: R,
    /// By how many times what all steps to come promise together may exceed what the next one may.
    together: R,
    trusts: bool,
    /// Another precision continues the fits.
    is_continued: bool,
}

/// How near a fit is to its end.
struct Nearness {
    small_reduction: bool,
    small_step: bool,
    /// What steps to come promise is more than asked.
    is_slow: bool,
}

impl<R: Real> Limits<R> {
    /// Derives the limits from the settings and the rounding of the precision R, in which fits end if `ends`.
    #[inline(always)]
    fn new(problem: &SmallProblem, ends: bool, rounding: &Rounding) -> Limits<R> {
        // reweighted least squares converge at a constant rate, others where the noise is as large as the model: all
        // steps to come count, not the next one alone
        let together = match (problem.estimator.is_least_squares(), ends) {
            (true, false) => 1e30,
            (true, true) => TOTAL_REDUCTION_FACTOR,
            (false, _) => 1.0,
        };
        Limits {
            tolerance: R::of(problem.tolerances.reduction),
            largest_cost: R::of(problem.tolerances.largest_cost),
            rounding: R::of(rounding.reduction),
            xtol: R::of(problem.tolerances.step.max(rounding.step)),
            undamped: R::of(rounding.undamped),
            patience: R::of(MAX_FLOOR_ROUNDS.into()),
            best_contraction: R::of(if ends && size_of::<R>() == 4 {
                LAST_CONTRACTION
            } else {
                BEST_CONTRACTION
            }),
            together: R::of(together),
            trusts: problem.estimator.trusts_last_step(),
            is_continued: !ends,
        }
    }

    /// Returns whether a solved step promises too little, is too short, or converges slowly; the caller judges its
    /// damping.
    #[inline(always)]
    fn nearness(self, outlook: Outlook<R>, cost: R, is_trusted: bool) -> Nearness {
        let (new, is_comparable) = (outlook.reduction, outlook.is_comparable());
        let contraction = outlook.contraction(self.best_contraction);
        let remaining = pick(
            is_comparable & self.trusts,
            outlook.expected_reduction(self.best_contraction),
            new,
        );
        let root = contraction.root();
        let beyond = (R::ONE - root) * (R::ONE - root);
        let limit = least_reduction(self.tolerance, cost, self.largest_cost);
        let is_near = remaining
            <= pick(
                is_comparable,
                limit * R::ONE.minimum(self.together * beyond),
                limit,
            );
        // a step that is not to be trusted is evaluated, unless what it promises is too little to take it at all
        let ends = is_near & (is_trusted | (new <= limit));
        // what no longer shrinks is rounding
        let stagnates =
            self.is_continued | !is_comparable | (new > R::of(STAGNATION_RATIO) * outlook.previous);
        Nearness {
            small_reduction: ends | (stagnates & (remaining <= self.rounding * cost)),
            small_step: outlook.is_short(self.xtol),
            is_slow: !is_near,
        }
    }
}
