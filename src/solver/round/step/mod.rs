//! One Levenberg–Marquardt step of one member: judges the trial point, then chooses the next one. f64. Twin of
//! `shaders/step.wgsl`; the equations are in sections 7 and 8 of `docs/src/equations.md`.
//!
//! - Scaling is Marquardt's, damping is Nielsen's (`solver/damping.rs`), and bounds are an active set
//!   (`step/faces.rs`).
//! - *Finishing steps.* When the predicted reduction falls below what rounding leaves of a cost (1e-6 of it for f32
//!   rows), or when rejections leave no step, the remaining steps are Gauss–Newton steps, damped only enough for the
//!   factorisation and without a floor of the diagonal. A finishing step may raise the cost by a tenth. The steps end
//!   when their predicted reduction no longer shrinks, unless the remaining steps together, or two that grow each by
//!   itself, cover more than a hundredth of an error. A last step that raised the cost is then taken back, and after
//!   one that lowered it by more than its rounding the search goes on instead. Gradients point to the minimum long
//!   after costs have drowned in rounding, so a finishing step that leads beyond twice the way to it counts as
//!   rejected. Steps that creep, all the same way, are lengthened.
//! - *Last step on trust.* If the ratio of the last two predicted reductions says that the step after the next would be
//!   below `ftol`, the next step is taken without an evaluation, and its predicted reduction is subtracted from χ².
//!   This saves a linearisation that could only confirm it. It is not done under penalties, after a rejection or a
//!   shortened step, after one that has moved a parameter onto or off a bound, where the secant term acts, or where
//!   Poisson's likelihood may have no value
//!   ([`Recording::trusts_steps`](crate::recording::Recording::trusts_steps)), nor after more than `TRUSTED_STEPS`
//!   finishing steps or where a spectrum's cost is above 10⁴.
//! - *Convergence* is that of the whole step, before `largest_step` shortens it, and that of a lengthened one before
//!   it is cut. What the floor of the diagonal held back is released before a fit may end.

mod damped;
pub mod decisions;
pub mod equations;
mod faces;
mod secant;
mod system;
#[cfg(test)]
mod tests;

use crate::math::triangle::packed_index;
use crate::solver::member::{Member, Phase, Promise};
use crate::solver::thresholds::{
    AT_FACE, BEST_CONTRACTION, CLOSE, CREEPS, FAR_COSINE, FAR_FINISHING_STEPS, FINISHING_DAMPING,
    FINISHING_RISE, FINISHING_STEPS, LONGEST_STRIDE, PARALLEL, PATIENCE, SHRINKS, TRUSTED_STEPS,
    UNDAMPED,
};
use crate::solver::{Bounds, LevenbergMarquardt, Status, Tolerances};
use damped::{Step, is_free, longest_factor, solve};
use decisions::{Trial, converged};
use secant::{secant, turns_back};

/// Rules by which a member's trial points are judged and chosen.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    pub bounds: Bounds<'a>,
    pub settings: &'a LevenbergMarquardt,
    pub tolerances: Tolerances,
    /// True if a last step may be taken without an evaluation.
    pub trusts_last_step: bool,
}

/// Judges the member's evaluated trial point, then sets its next trial point, or its status where the fit ends.
pub fn step(member: &mut Member, rules: &Rules<'_>) {
    member.rounds += 1;
    if let Some(status) = judge_trial_point(member, rules) {
        member.status = Some(status);
        return;
    }
    member.status = choose_trial_point(member, rules);
    if member.status.is_none() && member.rounds >= rules.settings.max_rounds {
        member.status = Some(Status::MaxRounds);
    }
}

/// Accepts or rejects the evaluated trial point and updates the damping; returns the final status if the fit ends.
fn judge_trial_point(member: &mut Member, rules: &Rules<'_>) -> Option<Status> {
    // 1. Near the minimum rounding hides the gain, so that finishing steps follow rules of their own.
    match member.phase {
        Phase::Finishing => return judge_finishing_step(member, rules.bounds),
        Phase::Striding => return judge_stride(member, rules.tolerances.cost_error),
        Phase::Searching | Phase::Released | Phase::Evaluating => {}
    }
    // 2. The usual rule, which knows the first point, too: fits begin by searching.
    let trial = Trial {
        cost: member.sums.cost(),
        trial_cost: member.trial_sums.cost(),
        promised: member.promise.reduction(),
        is_rescaled: matches!(member.promise, Promise::Rescaled(_)),
        is_finite: member.trial_sums.is_finite(),
        is_first: member.rounds == 1,
    };
    let (is_accepted, damping) = trial.judge(member.damping, rules.tolerances.cost_error, 0.0);
    member.damping = damping;
    settle(member, is_accepted);
    if trial.is_first && !trial.is_finite {
        return Some(Status::NotFinite);
    }
    (member.phase == Phase::Evaluating).then_some(Status::Ftol)
}

/// Makes the trial point the accepted one, or counts it as rejected.
fn settle(member: &mut Member, is_accepted: bool) {
    if is_accepted {
        member.rejections = 0;
        member.accept();
    } else {
        member.rejections += 1;
    }
}

/// Accepts a finishing step, counts it as rejected if it went beyond the minimum, or ends the fit if the cost rose.
/// Returns the final status if the cost rose by more than a tenth or is not finite.
fn judge_finishing_step(member: &mut Member, bounds: Bounds<'_>) -> Option<Status> {
    let valid = member.trial_sums.is_finite();
    if valid && member.trial_sums.cost() <= member.sums.cost() * FINISHING_RISE {
        settle(member, !turns_back(member));
        return None;
    }
    // where data are met to their last digit, rounding makes a finite cost rise, and the cosine says nothing
    let was_rescaled = matches!(member.promise, Promise::Rescaled(_));
    Some(finished(member, bounds, was_rescaled || !valid))
}

/// Accepts a lengthened finishing step, or counts it as rejected if it raised the cost by more than rounding or went
/// beyond the minimum.
fn judge_stride(member: &mut Member, cost_error: f64) -> Option<Status> {
    let is_low = member.trial_sums.cost() <= member.sums.cost() * (1.0 + cost_error);
    settle(
        member,
        member.trial_sums.is_finite() && is_low && !turns_back(member),
    );
    None
}

/// Returns the status after finishing steps: `Stalled` if the point `may_be_far` and the gradient is large, else
/// `Ftol`.
fn finished(member: &Member, bounds: Bounds<'_>, may_be_far: bool) -> Status {
    if may_be_far && largest_cosine(member, bounds) > FAR_COSINE {
        Status::Stalled
    } else {
        Status::Ftol
    }
}

/// Sets the next trial point from a damped step; returns the final status where there is none.
fn choose_trial_point(member: &mut Member, rules: &Rules<'_>) -> Option<Status> {
    let Rules {
        bounds,
        settings,
        tolerances,
        trusts_last_step,
    } = *rules;
    let cost_error = tolerances.cost_error;
    if largest_cosine(member, bounds) <= tolerances.cosine {
        return Some(Status::Gtol);
    }
    if member.rejections > settings.max_rejections {
        return Some(Status::Stalled);
    }
    let changed_face = changed_face(member, bounds);
    // 1. The damped step.
    let secant = secant(member, bounds);
    let Some(mut next) = solve(member, &secant, rules) else {
        return Some(Status::Singular);
    };
    let cost = member.sums.cost();
    // 2. Where little is left to gain, parameters that the damping's floor has held back are to move, too.
    let outlook = next.outlook(member);
    let gains_little = outlook.reduction <= tolerances.reduction.max(cost_error) * cost;
    let (is_about_to_end, creeps) = (
        gains_little || outlook.is_short(tolerances.step),
        member.rounds >= PATIENCE,
    );
    let releases_floor =
        outlook.releases_floor(member.damping.mu, UNDAMPED, is_about_to_end, creeps);
    if member.phase == Phase::Searching && releases_floor {
        member.phase = Phase::Released;
        let Some(step) = solve(member, &secant, rules) else {
            return Some(Status::Singular);
        };
        next = step;
    }
    // 3. The cost no longer says anything: too small a reduction, or rejected until next to none or no step is left.
    let undamped = next.outlook(member).is_undamped;
    let futile = !next.is_rescaled && member.rejections > 0;
    let small = (undamped || futile) && next.predicted_reduction <= cost_error * cost;
    if matches!(member.phase, Phase::Finishing | Phase::Striding) {
        if let Some(status) = end_finishing(member, &mut next, rules) {
            return Some(status);
        }
    } else if small || !set_trial(member, &next, bounds) {
        member.phase = Phase::Finishing;
        member.damping.mu = FINISHING_DAMPING;
        let Some(step) = solve(member, &secant, rules) else {
            return Some(Status::Singular);
        };
        next = step;
    }
    // 4. Convergence, judged by the whole step.
    let outlook = next.outlook(member);
    let least_reduction = tolerances.least_reduction(cost);
    let small_reduction =
        undamped && outlook.reduction <= least_reduction && !is_far(member, &next, rules);
    if let Some(status) = converged(
        small_reduction,
        undamped && outlook.is_short(tolerances.step),
        None,
        Some,
    ) {
        return Some(status);
    }
    // 5. The trial point. A penalty would take its unknown share of the promise, what bends the cost changes from step
    //    to step, and the promise of a step with other free parameters says nothing about this one.
    let bent = secant.iter().any(|s| *s != 0.0) || changed_face;
    let is_near = cost <= tolerances.largest_cost && member.finishing_steps <= TRUSTED_STEPS;
    let is_plain = member.sums.penalty == 0.0 && !bent && outlook.is_comparable();
    let is_enough = outlook.expected_reduction(BEST_CONTRACTION) <= least_reduction
        && outlook.contraction(BEST_CONTRACTION) * outlook.squared_distance()
            <= tolerances.squared_distance;
    let last = trusts_last_step && is_near && undamped && is_plain && is_enough;
    member.promise = next.promise();
    match (set_trial(member, &next, bounds), last) {
        (false, _) if next.is_rescaled => Some(Status::Stalled),
        (false, _) => Some(Status::Xtol),
        (true, true) => Some(take_last(member)),
        (true, false) => None,
    }
}

/// Counts a finishing step; returns the final status once steps no longer shrink and the remaining distance is within
/// the limit, so that only rounding is left. The last step is taken back if it raised the cost; if it lowered that by
/// more than rounding, the search goes on. Where steps creep, the next one is lengthened instead. The step after a
/// lengthened one may well be longer than the one that was lengthened; that ends nothing.
fn end_finishing(member: &mut Member, next: &mut Step, rules: &Rules<'_>) -> Option<Status> {
    member.finishing_steps += 1;
    let cost = member.sums.cost();
    let has_strode = member.phase == Phase::Striding;
    member.phase = Phase::Finishing;
    let longer = !has_strode && next.predicted_reduction > SHRINKS * member.promise.reduction();
    let creeps = next.predicted_reduction > CREEPS * member.promise.reduction();
    let is_far = is_far(member, next, rules);
    let max_steps = if is_far {
        FAR_FINISHING_STEPS
    } else {
        FINISHING_STEPS
    };
    let may_stride = creeps && member.finishing_steps < max_steps;
    if let Some(factor) = stride(member, next, rules).filter(|_| may_stride) {
        next.lengthen(
            factor,
            longest_factor(member, rules.settings.largest_step, &next.delta),
        );
        member.phase = Phase::Striding;
        return None;
    }
    // since the last step was accepted, the trial point is the one before
    let fall = if member.rejections == 0 {
        member.trial_sums.cost() - cost
    } else {
        0.0
    };
    if longer && fall > rules.tolerances.cost_error * cost {
        member.phase = Phase::Released;
        return None;
    }
    let is_last = longer && !is_far;
    if is_last && fall < 0.0 {
        member.accept();
    }
    let ended = is_last || (!has_strode && member.finishing_steps >= max_steps);
    ended.then(|| finished(member, rules.bounds, next.is_rescaled))
}

/// Returns whether the remaining steps, as far as the last two reductions show them, cover a larger distance than that
/// at which a fit may end.
fn is_far(member: &Member, next: &Step, rules: &Rules<'_>) -> bool {
    next.outlook(member).squared_distance() > rules.tolerances.squared_distance
}

/// Returns by which factor a finishing step is to be lengthened where steps creep; `None` elsewhere.
///
/// Where residuals bend the cost the other way, A is more curved than the cost. Gauss–Newton steps are too short then:
/// they point the same way, each is q times as long as the one before, and together they lead 1 / (1 − q) times as far
/// as the first of them (Aitken's extrapolation). Where steps grow, the minimum is further away than any factor says.
fn stride(member: &Member, next: &Step, rules: &Rules<'_>) -> Option<f64> {
    // of data that are met to the last digit, residuals are rounding, and so are steps
    let is_small = next.predicted_reduction <= CLOSE * member.sums.cost();
    let is_known = member.rejections == 0
        && is_small
        && !next.is_rescaled
        && !changed_face(member, rules.bounds);
    let before = member.promise.of_whole_step().filter(|_| is_known)?;
    // δᵀAδ₋ = gᵀδ₋, with δ₋ the last step, and δᵀAδ is what a Gauss–Newton step promises
    let last = member
        .parameters
        .iter()
        .zip(&member.trial)
        .map(|(x, before)| x - before);
    let product: f64 = last
        .zip(&member.sums.gradient)
        .map(|(delta, g)| g * delta)
        .sum();
    let is_parallel = product >= PARALLEL * (before * next.predicted_reduction).sqrt();
    let ratio = (next.predicted_reduction / before).sqrt();
    is_parallel.then(|| (1.0 / (1.0 - ratio.min(1.0))).min(LONGEST_STRIDE))
}

/// Sets the trial point to the step's end, clamped to the bounds; returns whether it differs from the accepted point.
fn set_trial(member: &mut Member, step: &Step, bounds: Bounds<'_>) -> bool {
    for (p, delta) in step.delta.iter().enumerate() {
        member.trial[p] = (member.parameters[p] + delta).clamp(bounds.lower[p], bounds.upper[p]);
    }
    member.trial != member.parameters
}

/// Returns whether the last step has moved a parameter onto one of its bounds, or off it. The trial point must be the
/// point before, as it is after a step that was accepted.
fn changed_face(member: &Member, bounds: Bounds<'_>) -> bool {
    let gap = |x: f64, p: usize| (x - bounds.lower[p]).abs().min((x - bounds.upper[p]).abs());
    let ends = member.parameters.iter().zip(&member.trial).enumerate();
    let mut moved = ends.filter(|(_, (x, before))| x != before);
    moved.any(|(p, (x, before))| gap(*x, p).min(gap(*before, p)) <= AT_FACE * (x - before).abs())
}

/// Accepts the last step without evaluating it, cost and gradient by the quadratic model; returns `Status::Ftol`.
fn take_last(member: &mut Member) -> Status {
    let count = member.parameters.len();
    let delta: Vec<f64> = member
        .trial
        .iter()
        .zip(&member.parameters)
        .map(|(t, x)| t - x)
        .collect();
    member.sums.chi2 -= member.promise.reduction();
    for p in 0..count {
        let change: f64 = (0..count)
            .map(|q| member.sums.normal_matrix[packed_index(p, q)] * delta[q])
            .sum();
        member.sums.gradient[p] -= change;
    }
    member.parameters.copy_from_slice(&member.trial);
    Status::Ftol
}

/// Returns the largest |cosine| between the residual and a free column of the Jacobian (MINPACK's gtol); 0 if none is
/// free.
fn largest_cosine(member: &Member, bounds: Bounds<'_>) -> f64 {
    let cost = member.sums.cost();
    (0..member.parameters.len())
        .filter(|&p| is_free(member, p, bounds) && cost > 0.0)
        .map(|p| {
            member.sums.gradient[p].abs()
                / (member.sums.normal_matrix[packed_index(p, p)] * cost).sqrt()
        })
        .fold(0.0, f64::max)
}
