//! A step of every lane: judge the trial point, then choose the next one. `solver/round/step/mod.rs` does this for one
//! member, by the same decisions (`solver/round/step/decisions.rs`).
//!
//! Small fits have neither finishing steps nor a secant term. Other differences from members are:
//! - A trial point is accepted, too, if its cost is higher by less than rounding.
//! - Where fits converge at a constant rate, the predicted reductions of all steps to come must be below the tolerance,
//!   not that of the next one alone. A predicted reduction that no longer shrinks is taken for rounding.
//! - A step that has converged is taken without an evaluation, if it is so short that it is to be trusted.
//! - A floor of the diagonal is released from the next round on, and convergence comes before `Stalled`.
//!
//! Loops over lanes read whole arrays, and [`pick`] chooses between values that are read already, so that the loops
//! become vector code.
#![expect(clippy::needless_range_loop, reason = "one index for many arrays")]

use pulp::Simd;

use super::block::{FitBlock, PrecisionLimits, RUNNING_LANE_STATUS, gradient, normal};
use super::registers::PredictedReductions;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, absolute, pick};
use crate::solver::round::step::decisions::{
    EvaluatedTrial, Outlook, convergence_status, least_reduction,
};
use crate::solver::round::step::equations::shortened_reduction;
use crate::solver::small::SmallProblem;
use crate::solver::thresholds::{
    BEST_CONTRACTION, MAX_FLOOR_ROUNDS, STAGNATION_RATIO, TOTAL_REDUCTION_FACTOR,
};
use crate::solver::{Damping, Interval, Status};

/// Returns `new` if the condition holds, else `old`. Adds 0, which turns −0 into 0. Without this sum compilers turn a
/// store of the result into a masked store, which is slow on AMD's processors.
#[inline(always)]
pub fn replace_if<R: Real>(condition: bool, new: R, old: R) -> R {
    pick(condition, new, old) + R::ZERO
}

/// Converts a status to its code as a floating-point number, which is how lanes store it.
#[inline(always)]
fn status_code<R: Real>(status: Status) -> R {
    R::of(f64::from(status.code()))
}

impl<R: Real> FitBlock<R> {
    /// Accepts or rejects each lane's trial point by its cost, and updates the damping.
    #[inline(always)]
    pub fn judge_trials(&mut self) {
        // 1. A sum over the cost and the diagonal is finite if all of them are.
        let mut sum_of_diagonal = self.trial_sums[0];
        for p in 0..self.parameters {
            let diagonal = &self.trial_sums[normal(p, p)].0;
            (0..LANES).for_each(|l| sum_of_diagonal.0[l] += diagonal[l]);
        }
        // 2. Judge the trial points, and update the damping.
        let rounding = R::of(self.precision_limits().cost);
        let running = R::of(RUNNING_LANE_STATUS);
        let cost = &self.sums[0].0;
        let trial_cost = &self.trial_sums[0].0;
        let mut is_accepted = Lanes::splat(R::ZERO);
        let mut all_accepted = true;
        for l in 0..LANES {
            let predicted_reduction = self.predicted_reduction.0[l];
            let rounds = self.rounds.0[l];
            let rejections = self.rejections.0[l];
            let damping = Damping {
                mu: self.mu.0[l],
                nu: self.nu.0[l],
            };
            let status = self.status.0[l];
            let trial = EvaluatedTrial {
                cost: cost[l],
                trial_cost: trial_cost[l],
                predicted_reduction: absolute(predicted_reduction),
                is_rescaled: predicted_reduction < R::ZERO,
                // A NaN or an infinity times 0 is not 0.
                is_finite: sum_of_diagonal.0[l] * R::ZERO == R::ZERO,
                is_first: rounds == R::ZERO,
            };
            // Small fits have no finishing steps, so both tolerances are the rounding.
            let (accepted, damping) = trial.judge_cost(damping, rounding, rounding);
            is_accepted.0[l] = pick(accepted, R::ONE, R::ZERO);
            all_accepted &= accepted;
            (self.mu.0[l], self.nu.0[l]) = (damping.mu, damping.nu);
            self.rejections.0[l] = pick(accepted, R::ZERO, rejections + R::ONE);
            self.rounds.0[l] = rounds + R::ONE;
            let fails_at_start = (status == running) & trial.is_first & !trial.is_finite;
            self.status.0[l] = replace_if(fails_at_start, status_code(Status::NotFinite), status);
        }
        // 3. Copy the accepted trial points and their sums, or swap whole rows if all are accepted.
        if all_accepted {
            // The trial's rows are written anew before they are read.
            std::mem::swap(&mut self.sums, &mut self.trial_sums);
            std::mem::swap(&mut self.accepted, &mut self.trial);
            return;
        }
        let row_pairs = self.sums.iter_mut().zip(&self.trial_sums);
        for (row, trial_row) in row_pairs.chain(self.accepted.iter_mut().zip(&self.trial)) {
            let row = &mut row.0;
            let trial_row = &trial_row.0;
            for l in 0..LANES {
                let old = row[l];
                let new = trial_row[l];
                row[l] = replace_if(is_accepted.0[l] > R::ZERO, new, old);
            }
        }
    }

    /// Computes each lane's next step and trial point, or sets the status of a fit that ends.
    #[inline(always)]
    pub fn choose_steps<S: Simd>(&mut self, simd: S, problem: &SmallProblem) {
        // 1. Solve for the steps, and predict their reductions.
        self.set_free_parameters();
        let flat = self.find_flat_lanes(problem.tolerances.cosine);
        self.solve_steps(simd);
        // These are of the whole step: a shortened one never counts as small.
        let PredictedReductions {
            linear_term,
            quadratic_term,
            squared_length,
            squared_scale,
        } = self.predict_reductions(simd);
        self.shorten_steps(problem);
        // 2. Decide for each lane whether the fit ends.
        let limits = StopLimits::new(problem, self.may_end, self.precision_limits());
        let running = R::of(RUNNING_LANE_STATUS);
        let max_rejections = R::of(problem.settings.max_rejections.into());
        let trusts_last_step = problem.estimator.trusts_last_step();
        let cost = &self.sums[0].0;
        let mut is_final = Lanes::splat(R::ZERO);
        for l in 0..LANES {
            let linear_term = linear_term.0[l];
            let quadratic_term = quadratic_term.0[l];
            let share = self.step_share.0[l];
            let rounds = self.rounds.0[l];
            let mu = self.mu.0[l];
            let rejections = self.rejections.0[l];
            let old_status = self.status.0[l];
            let outlook = Outlook {
                reduction: linear_term - quadratic_term,
                previous: self.predicted_reduction.0[l],
                was_rejected: rejections > R::ZERO,
                is_rescaled: share < R::ONE,
                is_undamped: self.is_undamped_step.0[l] > R::ZERO,
                length_squared: squared_length.0[l],
                scale_squared: squared_scale.0[l],
            };
            let is_trusted = self.is_trusted_step.0[l] > R::ZERO;
            let nearness = limits.judge_nearness(outlook, cost[l], is_trusted);
            // Before it ends, a fit releases the floor, so that parameters which the floor restrained can move.
            let is_about_to_end = nearness.small_reduction | nearness.small_step;
            let is_late = rounds >= limits.patience;
            let releases_floor =
                outlook.releases_floor(mu, limits.undamped, is_about_to_end, is_late);
            self.diagonal_floor.0[l] =
                replace_if(releases_floor, R::ZERO, self.diagonal_floor.0[l]);
            // Each reason to end replaces those above it.
            let small_reduction = outlook.is_undamped & nearness.small_reduction;
            let small_step = outlook.is_undamped & nearness.small_step;
            let mut status = pick(
                rounds >= self.max_rounds.0[l],
                status_code(Status::MaxRounds),
                running,
            );
            status = pick(
                rejections > max_rejections,
                status_code(Status::Stalled),
                status,
            );
            status = convergence_status(small_reduction, small_step, status, status_code);
            let is_singular = self.factors.positive.0[l] == R::ZERO;
            let is_flat = flat.0[l] > R::ZERO;
            status = pick(is_singular, status_code(Status::Singular), status);
            status = pick(is_flat, status_code(Status::Gtol), status);
            let has_converged = (small_reduction | small_step) & !is_singular & !is_flat;
            is_final.0[l] = pick(
                trusts_last_step & is_trusted & has_converged & (old_status == running),
                R::ONE,
                R::ZERO,
            );
            self.status.0[l] = replace_if(old_status == running, status, old_status);
            let reduction_if_shortened = shortened_reduction(linear_term, quadratic_term, share);
            self.predicted_reduction.0[l] = pick(
                outlook.is_rescaled,
                -reduction_if_shortened,
                outlook.reduction,
            );
        }
        // 3. Move the trial points.
        self.move_trial_points(&is_final);
    }

    /// Sets the trial points to the ends of the steps. Where the step `is_final`, the point is accepted without another
    /// evaluation.
    #[inline(always)]
    fn move_trial_points(&mut self, is_final: &Lanes<R>) {
        for p in 0..self.parameters {
            let x = &mut self.accepted[p].0;
            let delta = &self.delta[p].0;
            let trial = &mut self.trial[p].0;
            (0..LANES).for_each(|l| trial[l] = x[l] + delta[l]);
            if let (Some(lower), Some(upper)) = (self.lower.get(p), self.upper.get(p)) {
                (0..LANES)
                    .for_each(|l| trial[l] = trial[l].maximum(lower.0[l]).minimum(upper.0[l]));
            }
            for l in 0..LANES {
                let old = x[l];
                let new = trial[l];
                x[l] = replace_if(is_final.0[l] > R::ZERO, new, old);
            }
        }
        // A point that is accepted without an evaluation gets the predicted cost.
        let cost = &mut self.sums[0].0;
        for l in 0..LANES {
            let old = cost[l];
            let predicted_cost =
                (cost[l] - absolute(self.predicted_reduction.0[l])).maximum(R::ZERO);
            cost[l] = replace_if(is_final.0[l] > R::ZERO, predicted_cost, old);
        }
    }

    /// Marks as free the parameters whose bounds leave them room and which the gradient does not push against a bound.
    #[inline(always)]
    pub fn set_free_parameters(&mut self) {
        for p in 0..self.lower.len() {
            let x = &self.accepted[p].0;
            let g = &self.sums[gradient(p)].0;
            let lower = &self.lower[p].0;
            let upper = &self.upper[p].0;
            let free = &mut self.is_free[p].0;
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
    fn find_flat_lanes(&self, gtol: f64) -> Lanes<R> {
        let limit = R::of(gtol * gtol);
        let mut flat = Lanes::splat(R::ONE);
        let cost = &self.sums[0].0;
        for p in 0..self.parameters {
            let g = &self.sums[gradient(p)].0;
            let a = &self.sums[normal(p, p)].0;
            let free = &self.is_free[p].0;
            for l in 0..LANES {
                let g = g[l] * free[l];
                let flat_so_far = flat.0[l];
                // A square that overflows or underflows proves nothing.
                let square = g * g;
                let largest_square = limit * a[l] * cost[l];
                let is_small = (square <= largest_square)
                    & (largest_square > R::ZERO)
                    & (largest_square * R::ZERO == R::ZERO);
                flat.0[l] = flat_so_far * pick(is_small | (g == R::ZERO), R::ONE, R::ZERO);
            }
        }
        flat
    }

    /// Returns the cost reductions that the steps predict, and the lengths by which convergence is judged.
    #[inline(always)]
    fn predict_reductions<S: Simd>(&self, simd: S) -> PredictedReductions<R> {
        match self.parameters {
            3 => return self.predict_reductions_in_registers::<S, 3>(simd),
            4 => return self.predict_reductions_in_registers::<S, 4>(simd),
            5 => return self.predict_reductions_in_registers::<S, 5>(simd),
            6 => return self.predict_reductions_in_registers::<S, 6>(simd),
            _ => {}
        }
        let zero = Lanes::splat(R::ZERO);
        let mut totals = PredictedReductions::new();
        let PredictedReductions {
            linear_term,
            quadratic_term,
            squared_length,
            squared_scale,
        } = &mut totals;
        let two = R::of(2.0);
        for p in 0..self.parameters {
            // Row p of A δ, left of the diagonal.
            let mut slope = zero;
            for q in 0..p {
                let a = &self.sums[normal(p, q)].0;
                let delta = &self.delta[q].0;
                (0..LANES).for_each(|l| slope.0[l] = a[l].fused(delta[l], slope.0[l]));
            }
            let delta = &self.delta[p].0;
            let x = &self.accepted[p].0;
            let diagonal = &self.sums[normal(p, p)].0;
            let g = &self.sums[gradient(p)].0;
            for l in 0..LANES {
                let d = delta[l];
                let x = x[l];
                let square = diagonal[l] * d * d;
                linear_term.0[l] += two * d * g[l];
                quadratic_term.0[l] += two * d * slope.0[l] + square;
                squared_length.0[l] += square;
                squared_scale.0[l] += pick(d == R::ZERO, R::ZERO, diagonal[l] * x * x);
            }
        }
        totals
    }
}

/// Limits at which small fits end, the same for all lanes of a block.
#[derive(Clone, Copy)]
struct StopLimits<R> {
    tolerance: R,
    largest_cost: R,
    /// Smallest relative reduction of a cost that can be distinguished from its rounding.
    rounding: R,
    xtol: R,
    undamped: R,
    patience: R,
    /// Limit of the reduction that all steps to come predict, relative to that of the next one.
    all_steps_factor: R,
    trusts_last_step: bool,
    /// Whether another precision continues the fits.
    is_continued: bool,
}

/// Nearness of a fit to its end.
struct Nearness {
    small_reduction: bool,
    small_step: bool,
}

impl<R: Real> StopLimits<R> {
    /// Derives the limits from the settings and the rounding of the precision R, in which fits end if `may_end`.
    #[inline(always)]
    fn new(problem: &SmallProblem, may_end: bool, rounding: &PrecisionLimits) -> StopLimits<R> {
        // Reweighted least squares converge at a constant rate, and so do others where the noise is as large as the
        // model. Then all steps to come count, not the next one alone.
        let all_steps_factor = match (problem.estimator.is_least_squares(), may_end) {
            (true, false) => 1e30,
            (true, true) => TOTAL_REDUCTION_FACTOR,
            (false, _) => 1.0,
        };
        StopLimits {
            tolerance: R::of(problem.tolerances.reduction),
            largest_cost: R::of(problem.tolerances.largest_cost),
            rounding: R::of(rounding.reduction),
            xtol: R::of(problem.tolerances.step.max(rounding.step)),
            undamped: R::of(rounding.undamped),
            patience: R::of(MAX_FLOOR_ROUNDS.into()),
            all_steps_factor: R::of(all_steps_factor),
            trusts_last_step: problem.estimator.trusts_last_step(),
            is_continued: !may_end,
        }
    }

    /// Returns whether a solved step predicts too small a reduction or is too short. The caller
    /// judges its damping.
    #[inline(always)]
    fn judge_nearness(self, outlook: Outlook<R>, cost: R, is_trusted: bool) -> Nearness {
        let reduction = outlook.reduction;
        let is_comparable = outlook.is_comparable();
        let best_contraction = R::of(BEST_CONTRACTION);
        let contraction = outlook.contraction(best_contraction);
        let remaining = pick(
            is_comparable & self.trusts_last_step,
            outlook.expected_reduction(best_contraction),
            reduction,
        );
        let root = contraction.root();
        let share_of_next = (R::ONE - root) * (R::ONE - root);
        let limit = least_reduction(self.tolerance, cost, self.largest_cost);
        let is_near = remaining
            <= pick(
                is_comparable,
                limit * R::ONE.minimum(self.all_steps_factor * share_of_next),
                limit,
            );
        // A step that is not trusted is evaluated, unless it predicts too small a reduction to be taken at all.
        let is_at_end = is_near & (is_trusted | (reduction <= limit));
        // A predicted reduction that no longer shrinks is rounding.
        let stagnates = self.is_continued
            | !is_comparable
            | (reduction > R::of(STAGNATION_RATIO) * outlook.previous);
        Nearness {
            small_reduction: is_at_end | (stagnates & (remaining <= self.rounding * cost)),
            small_step: outlook.is_short(self.xtol),
        }
    }
}
