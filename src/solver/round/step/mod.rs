//! One Levenberg–Marquardt step of one member: judges the trial point, then chooses the next one. f64. Twin of
//! `shaders/step.wgsl`; the equations are in sections 7 and 8 of `docs/src/equations.md`.
//!
//! - Scaling is Marquardt's, damping is Nielsen's (`solver/damping.rs`), and bounds are an active set
//!   (`step/faces.rs`).
//! - *Finishing steps.* They begin when the predicted reduction falls below the rounding error of the cost (1e-6 of it
//!   for f32 rows), or when rejections have made the step vanish. They are Gauss–Newton steps, damped only enough for
//!   the factorisation and without a floor of the diagonal. A finishing step may raise the cost by a tenth. The steps
//!   end when their predicted reduction no longer shrinks. They go on if all remaining steps together cover more than
//!   a hundredth of an error, or if two successive steps grow and each is longer than that. A last step that raised
//!   the cost is then undone; after one that lowered it by more than its rounding error, the search goes on instead.
//!   Gradients point to the minimum long after differences of the cost have drowned in rounding. A finishing step that
//!   leads beyond twice the way to the minimum is therefore rejected. Steps that shrink slowly and are parallel are
//!   lengthened.
//! - *Last step on trust.* The ratio of the last two predicted reductions may say that the step after the next one
//!   would be below `ftol`. The next step is then taken without an evaluation, and its predicted reduction is
//!   subtracted from χ². This saves a linearisation that could only confirm the step. It is not done under penalties;
//!   after a rejection or a shortened step; after a step that has changed the set of active bounds; where the secant
//!   term acts; where Poisson's likelihood may have no value
//!   ([`Recording::trusts_steps`](crate::recording::Recording::trusts_steps)); after more than `TRUSTED_STEPS`
//!   finishing steps; or where a spectrum's cost is above 10⁴.
//! - *Convergence* is judged by the whole step, before `largest_step` shortens it, and by a lengthened step before it
//!   is cut. Parameters that the floor of the diagonal held back are released before a fit may end.

mod damped;
pub mod decisions;
pub mod equations;
mod faces;
mod secant;
mod system;
#[cfg(test)]
mod tests;

use crate::math::triangle::packed_index;
use crate::solver::member::{Member, Phase, PredictedReduction};
use crate::solver::thresholds::{
    AT_FACE_SHARE, BEST_CONTRACTION, CLOSE_POINTS_SHARE, CREEPING_RATIO, FAR_COSINE,
    FAR_FINISHING_STEPS, FINISHING_DAMPING, FINISHING_RISE, FINISHING_STEPS, LONGEST_STRIDE,
    MAX_FLOOR_ROUNDS, PARALLEL_COSINE, SHRINKING_RATIO, TRUSTED_STEPS, UNDAMPED,
};
use crate::solver::{Bounds, LevenbergMarquardt, Status, Tolerances};
use damped::{DampedStep, is_free, longest_factor, solve_damped_step};
use decisions::{EvaluatedTrial, convergence_status};
use secant::{find_secant_vector, overshoots_minimum};

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
pub fn step_member(member: &mut Member, rules: &Rules<'_>) {
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
        Phase::Striding => return judge_lengthened_step(member, rules.tolerances.cost_error),
        Phase::Searching | Phase::Released | Phase::Evaluating => {}
    }
    // 2. The usual rule compares the costs. It covers the first point, too, because fits begin by searching.
    let trial = EvaluatedTrial {
        cost: member.sums.cost(),
        trial_cost: member.trial_sums.cost(),
        predicted_reduction: member.predicted_reduction.value(),
        is_rescaled: matches!(member.predicted_reduction, PredictedReduction::Rescaled(_)),
        is_finite: member.trial_sums.is_finite(),
        is_first: member.rounds == 1,
    };
    let (is_accepted, damping) = trial.judge_cost(member.damping, rules.tolerances.cost_error, 0.0);
    member.damping = damping;
    accept_or_reject(member, is_accepted);
    // 3. A first point without finite sums ends the fit, and so does any first point that is only evaluated.
    if trial.is_first && !trial.is_finite {
        return Some(Status::NotFinite);
    }
    (member.phase == Phase::Evaluating).then_some(Status::Ftol)
}

/// Makes the trial point the accepted one, or counts it as rejected.
fn accept_or_reject(member: &mut Member, is_accepted: bool) {
    if is_accepted {
        member.rejections = 0;
        member.accept();
    } else {
        member.rejections += 1;
    }
}

/// Accepts a finishing step, rejects it if it overshot the minimum, or ends the fit if the cost rose.
/// Returns the final status if the cost rose by more than a tenth or is not finite.
fn judge_finishing_step(member: &mut Member, bounds: Bounds<'_>) -> Option<Status> {
    let is_finite = member.trial_sums.is_finite();
    if is_finite && member.trial_sums.cost() <= member.sums.cost() * FINISHING_RISE {
        accept_or_reject(member, !overshoots_minimum(member));
        return None;
    }
    // Where the model meets the data to the last digit, rounding raises a finite cost, and the cosine says nothing.
    let was_rescaled = matches!(member.predicted_reduction, PredictedReduction::Rescaled(_));
    Some(finishing_status(member, bounds, was_rescaled || !is_finite))
}

/// Accepts a lengthened finishing step, or rejects it if it raised the cost by more than rounding or overshot the
/// minimum.
fn judge_lengthened_step(member: &mut Member, cost_error: f64) -> Option<Status> {
    let is_low = member.trial_sums.cost() <= member.sums.cost() * (1.0 + cost_error);
    let is_accepted = member.trial_sums.is_finite() && is_low && !overshoots_minimum(member);
    accept_or_reject(member, is_accepted);
    None
}

/// Returns the status after finishing steps: `Stalled` if the point `may_be_far` and the gradient is large, else
/// `Ftol`.
fn finishing_status(member: &Member, bounds: Bounds<'_>, may_be_far: bool) -> Status {
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
    // 1. The fit ends where the gradient vanishes, or after too many rejections in a row.
    if largest_cosine(member, bounds) <= tolerances.cosine {
        return Some(Status::Gtol);
    }
    if member.rejections > settings.max_rejections {
        return Some(Status::Stalled);
    }
    // 2. Solve the damped system for the next step.
    let changed_active_bounds = changed_active_bounds(member, bounds);
    let secant = find_secant_vector(member, bounds);
    let Some(mut next_step) = solve_damped_step(member, &secant, rules) else {
        return Some(Status::Singular);
    };
    let cost = member.sums.cost();
    // 3. Where little is left to gain, solve again without the floor of the diagonal, so that the parameters that it
    //    has held back move, too.
    let outlook = next_step.outlook(member);
    let gains_little = outlook.reduction <= tolerances.reduction.max(cost_error) * cost;
    let is_about_to_end = gains_little || outlook.is_short(tolerances.step);
    let creeps = member.rounds >= MAX_FLOOR_ROUNDS;
    let releases_floor =
        outlook.releases_floor(member.damping.mu, UNDAMPED, is_about_to_end, creeps);
    if member.phase == Phase::Searching && releases_floor {
        member.phase = Phase::Released;
        let Some(step) = solve_damped_step(member, &secant, rules) else {
            return Some(Status::Singular);
        };
        next_step = step;
    }
    // 4. Finishing steps begin where the cost no longer says anything: the predicted reduction drowns in its rounding
    //    error, or the step has become too small to move the point.
    let is_undamped = next_step.outlook(member).is_undamped;
    let is_unshortened_retry = !next_step.is_rescaled && member.rejections > 0;
    let drowns_in_rounding =
        (is_undamped || is_unshortened_retry) && next_step.predicted_reduction <= cost_error * cost;
    if matches!(member.phase, Phase::Finishing | Phase::Striding) {
        if let Some(status) = end_finishing(member, &mut next_step, rules) {
            return Some(status);
        }
    } else if drowns_in_rounding || !set_trial_point(member, &next_step, bounds) {
        member.phase = Phase::Finishing;
        member.damping.mu = FINISHING_DAMPING;
        let Some(step) = solve_damped_step(member, &secant, rules) else {
            return Some(Status::Singular);
        };
        next_step = step;
    }
    // 5. Test for convergence, by the whole step.
    let outlook = next_step.outlook(member);
    let least_reduction = tolerances.least_reduction(cost);
    let small_reduction = is_undamped
        && outlook.reduction <= least_reduction
        && !is_far_from_minimum(member, &next_step, rules);
    let small_step = is_undamped && outlook.is_short(tolerances.step);
    if let Some(status) = convergence_status(small_reduction, small_step, None, Some) {
        return Some(status);
    }
    // 6. Decide whether the next step may be taken without an evaluation. The quadratic model must predict its
    //    reduction well: a penalty changes it by an unknown amount, the secant term differs from step to step, and
    //    after a change of the active bounds the last two reductions say nothing about the rate of convergence.
    let has_secant_term = secant.iter().any(|element| *element != 0.0);
    let is_near = cost <= tolerances.largest_cost && member.finishing_steps <= TRUSTED_STEPS;
    let is_predictable = member.sums.penalty == 0.0
        && !has_secant_term
        && !changed_active_bounds
        && outlook.is_comparable();
    let would_converge_after = outlook.expected_reduction(BEST_CONTRACTION) <= least_reduction
        && outlook.contraction(BEST_CONTRACTION) * outlook.squared_distance()
            <= tolerances.squared_distance;
    let trusts_next_step =
        trusts_last_step && is_near && is_undamped && is_predictable && would_converge_after;
    // 7. Set the trial point.
    member.predicted_reduction = next_step.prediction();
    let moves = set_trial_point(member, &next_step, bounds);
    match (moves, trusts_next_step) {
        (false, _) if next_step.is_rescaled => Some(Status::Stalled),
        (false, _) => Some(Status::Xtol),
        (true, true) => Some(accept_on_trust(member)),
        (true, false) => None,
    }
}

/// Counts a finishing step, and returns the final status once only rounding is left: the steps no longer shrink, and
/// the remaining distance is within the limit.
///
/// The last step is undone if it raised the cost; if it lowered the cost by more than rounding, the search goes on.
/// Where steps creep, the next one is lengthened instead. The step after a lengthened one may be longer than the one
/// that was lengthened, which does not end the fit.
fn end_finishing(
    member: &mut Member,
    next_step: &mut DampedStep,
    rules: &Rules<'_>,
) -> Option<Status> {
    // 1. Compare the next step's predicted reduction with that of the last one.
    member.finishing_steps += 1;
    let cost = member.sums.cost();
    let was_lengthened = member.phase == Phase::Striding;
    member.phase = Phase::Finishing;
    let last_reduction = member.predicted_reduction.value();
    let no_longer_shrinks =
        !was_lengthened && next_step.predicted_reduction > SHRINKING_RATIO * last_reduction;
    let creeps = next_step.predicted_reduction > CREEPING_RATIO * last_reduction;
    let is_far = is_far_from_minimum(member, next_step, rules);
    let max_steps = if is_far {
        FAR_FINISHING_STEPS
    } else {
        FINISHING_STEPS
    };
    // 2. Lengthen the next step where steps creep.
    let may_lengthen = creeps && member.finishing_steps < max_steps;
    if let Some(factor) = extrapolation_factor(member, next_step, rules).filter(|_| may_lengthen) {
        next_step.lengthen(
            factor,
            longest_factor(member, rules.settings.largest_step, &next_step.delta),
        );
        member.phase = Phase::Striding;
        return None;
    }
    // 3. Go on searching where the last step lowered the cost by more than rounding. After an accepted step, `trial`
    //    holds the point before it.
    let fall = if member.rejections == 0 {
        member.trial_sums.cost() - cost
    } else {
        0.0
    };
    if no_longer_shrinks && fall > rules.tolerances.cost_error * cost {
        member.phase = Phase::Released;
        return None;
    }
    // 4. End the fit, and undo a last step that raised the cost: `accept` swaps the two points.
    let was_last = no_longer_shrinks && !is_far;
    if was_last && fall < 0.0 {
        member.accept();
    }
    let has_ended = was_last || (!was_lengthened && member.finishing_steps >= max_steps);
    has_ended.then(|| finishing_status(member, rules.bounds, next_step.is_rescaled))
}

/// Returns whether the remaining steps cover a larger distance, estimated from the last two predicted reductions, than
/// that at which a fit may end.
fn is_far_from_minimum(member: &Member, next_step: &DampedStep, rules: &Rules<'_>) -> bool {
    next_step.outlook(member).squared_distance() > rules.tolerances.squared_distance
}

/// Returns the factor by which the next finishing step is to be lengthened where steps creep; `None` elsewhere.
///
/// Where the residuals reduce the curvature of the cost, A exaggerates it, and Gauss–Newton steps are too short. They
/// are parallel, each is q times as long as the one before, and together they lead 1 / (1 − q) times as far as the
/// first of them (Aitken's extrapolation). Where steps grow, the minimum is further away than any factor says.
fn extrapolation_factor(member: &Member, next_step: &DampedStep, rules: &Rules<'_>) -> Option<f64> {
    // 1. The last two steps must be comparable. Where the model meets the data to the last digit, residuals are
    //    rounding, and so are steps; their reductions are then a large share of the cost.
    let is_small = next_step.predicted_reduction <= CLOSE_POINTS_SHARE * member.sums.cost();
    let is_comparable = member.rejections == 0
        && is_small
        && !next_step.is_rescaled
        && !changed_active_bounds(member, rules.bounds);
    let last_reduction = member
        .predicted_reduction
        .of_whole_step()
        .filter(|_| is_comparable)?;
    // 2. Both steps must be parallel. With δ₋ the last step, δᵀAδ₋ = gᵀδ₋, and δᵀAδ is the reduction that a
    //    Gauss–Newton step predicts.
    let last_step = member
        .parameters
        .iter()
        .zip(&member.trial)
        .map(|(x, x_before)| x - x_before);
    let product: f64 = last_step
        .zip(&member.sums.gradient)
        .map(|(delta, g)| g * delta)
        .sum();
    let is_parallel =
        product >= PARALLEL_COSINE * (last_reduction * next_step.predicted_reduction).sqrt();
    // 3. The reductions go with the squares of the steps' lengths.
    let length_ratio = (next_step.predicted_reduction / last_reduction).sqrt();
    is_parallel.then(|| (1.0 / (1.0 - length_ratio.min(1.0))).min(LONGEST_STRIDE))
}

/// Sets the trial point to the step's end, clamped to the bounds; returns whether it differs from the accepted point.
fn set_trial_point(member: &mut Member, step: &DampedStep, bounds: Bounds<'_>) -> bool {
    for (p, delta) in step.delta.iter().enumerate() {
        member.trial[p] = (member.parameters[p] + delta).clamp(bounds.lower[p], bounds.upper[p]);
    }
    member.trial != member.parameters
}

/// Returns whether the last step has moved a parameter onto one of its bounds, or off it. The member's `trial` must be
/// the point before that step, as it is after a step that was accepted.
fn changed_active_bounds(member: &Member, bounds: Bounds<'_>) -> bool {
    for (p, (&x, &x_before)) in member.parameters.iter().zip(&member.trial).enumerate() {
        let gap = distance_from_bounds(x, p, bounds).min(distance_from_bounds(x_before, p, bounds));
        if x != x_before && gap <= AT_FACE_SHARE * (x - x_before).abs() {
            return true;
        }
    }
    false
}

/// Returns the distance of a value of parameter p from the nearer of its bounds.
fn distance_from_bounds(x: f64, p: usize, bounds: Bounds<'_>) -> f64 {
    (x - bounds.lower[p]).abs().min((x - bounds.upper[p]).abs())
}

/// Accepts the trial point without evaluating it; the quadratic model predicts cost and gradient there. Returns
/// `Status::Ftol`.
fn accept_on_trust(member: &mut Member) -> Status {
    let count = member.parameters.len();
    let delta: Vec<f64> = member
        .trial
        .iter()
        .zip(&member.parameters)
        .map(|(trial, accepted)| trial - accepted)
        .collect();
    member.sums.chi2 -= member.predicted_reduction.value();
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
    let mut largest = 0.0;
    for p in (0..member.parameters.len()).filter(|&p| is_free(member, p, bounds) && cost > 0.0) {
        let diagonal = member.sums.normal_matrix[packed_index(p, p)];
        largest = f64::max(
            largest,
            member.sums.gradient[p].abs() / (diagonal * cost).sqrt(),
        );
    }
    largest
}
