//! One Levenberg–Marquardt step of one member: judge the trial point, then choose the next one.
//!
//! Damping of Nielsen, the last steps Gauss–Newton steps judged by their length (equations in `docs/src/equations.md`). f64. Twin of
//! `shaders/step.wgsl`.

mod damped;
mod faces;
mod secant;
mod system;

use crate::rows::triangle::packed_index;
use crate::solver::member::{Member, Mode};
use crate::solver::{LevenbergMarquardt, Status};
use damped::{Step, is_free, solve};
use secant::{secant, turns_back};

/// Below this damping a step is as good as undamped, and its prediction says how far the optimum is.
const UNDAMPED: f64 = 0.1;
/// Damping of the finishing steps: nothing but a guard of the Cholesky factorisation.
const FINISHING_DAMPING: f64 = 1e-6;
/// Most finishing steps.
const FINISHING_STEPS: u32 = 20;
/// Rise of the cost that a finishing step may end with: guards against nonsense, not against rounding.
const FINISHING_RISE: f64 = 1.1;
/// Cosine of the gradient above which a finishing step that led nowhere or was too long counts as far from the minimum.
const FAR_COSINE: f64 = 0.01;
/// A finishing step must promise less than this share of the one before it.
const SHRINKS: f64 = 0.8;
/// Smallest ratio of two predicted reductions that is believed of the step to come.
const BEST_CONTRACTION: f64 = 1e-3;
/// Rounds after which the floor of the damping's diagonal is let go in any case: where parameters creep it is in the way.
pub const PATIENCE: u32 = 200;

/// Judges the member's trial sums and sets its next trial, or its status.
/// `noise` is the relative error of a cost in the precision of the rows.
pub fn step(
    member: &mut Member,
    (lower, upper): (&[f64], &[f64]),
    settings: &LevenbergMarquardt,
    (noise, trusts): (f64, bool),
) {
    member.rounds += 1;
    if let Some(status) = judge(member, lower, upper, noise) {
        member.status = Some(status);
        return;
    }
    member.status = choose(member, (lower, upper), settings, (noise, trusts));
    if member.status.is_none() && member.rounds >= settings.max_rounds {
        member.status = Some(Status::MaxRounds);
    }
}

/// Accepts or rejects the trial point.
fn judge(member: &mut Member, lower: &[f64], upper: &[f64], noise: f64) -> Option<Status> {
    let valid = member.trial_sums.is_finite();
    if member.rounds == 1 {
        member.accept();
        return (!valid).then_some(Status::NotFinite);
    }
    let (cost, trial) = (member.sums.cost(), member.trial_sums.cost());
    let (promised, is_shortened) = (member.predicted_reduction.abs(), member.predicted_reduction < 0.0);
    if member.mode == Mode::Finishing {
        if valid && trial <= cost * FINISHING_RISE {
            if turns_back(member) {
                member.rejections += 1;
            } else {
                member.rejections = 0;
                member.accept();
            }
            return None;
        }
        // where data are met to their last digit, rounding makes a finite cost rise, and the cosine says nothing
        let far = (is_shortened || !valid) && largest_cosine(member, lower, upper) > FAR_COSINE;
        return Some(if far { Status::Stalled } else { Status::Ftol });
    }
    // a start so far off that the cost does not tell its first steps
    let unseen = is_shortened && promised <= noise * cost && trial <= cost * (1.0 + noise);
    if valid && (trial < cost || unseen) {
        if !unseen {
            member.damping.accept((cost - trial) / promised);
        }
        member.rejections = 0;
        member.accept();
    } else {
        member.damping.reject();
        member.rejections += 1;
    }
    None
}

/// Chooses the next trial point, or tells why there is none.
fn choose(
    member: &mut Member,
    (lower, upper): (&[f64], &[f64]),
    settings: &LevenbergMarquardt,
    (noise, trusts): (f64, bool),
) -> Option<Status> {
    if largest_cosine(member, lower, upper) <= settings.gtol {
        return Some(Status::Gtol);
    }
    if member.rejections > settings.max_rejections {
        return Some(Status::Stalled);
    }
    let secant = secant(member, lower, upper);
    let Some(mut next) = solve(member, &secant, (lower, upper), settings) else { return Some(Status::Singular) };
    let cost = member.sums.cost();
    let held_back = member.damping.mu < UNDAMPED && next.damping >= UNDAMPED;
    let creeps = member.rounds >= PATIENCE;
    let gains_little = next.is_small(settings, settings.ftol.max(noise), cost);
    if member.mode == Mode::Searching && held_back && (gains_little || creeps) {
        member.mode = Mode::Released;
        let Some(step) = solve(member, &secant, (lower, upper), settings) else { return Some(Status::Singular) };
        next = step;
    }
    let undamped = next.damping < UNDAMPED;
    // the cost no longer tells: too small a reduction, or rejected until next to none or no step is left
    let futile = !next.is_shortened && member.rejections > 0;
    let small = (undamped || futile) && next.predicted_reduction <= noise * cost;
    if member.mode == Mode::Finishing {
        if let Some(status) = finish(member, &next, (lower, upper), noise) {
            return Some(status);
        }
    } else if small || !moves(member, &next, lower, upper) {
        member.mode = Mode::Finishing;
        member.damping.mu = FINISHING_DAMPING;
        let Some(step) = solve(member, &secant, (lower, upper), settings) else { return Some(Status::Singular) };
        next = step;
    }
    let small_reduction = undamped && next.predicted_reduction <= settings.ftol * cost;
    let small_step = undamped && next.length <= settings.xtol * (next.scale + settings.xtol);
    match (small_reduction, small_step) {
        (true, true) => return Some(Status::FtolXtol),
        (true, false) => return Some(Status::Ftol),
        (false, true) => return Some(Status::Xtol),
        (false, false) => {}
    }
    // a penalty would take its unknown share of the promise, what bends the cost changes from step to step
    let bent = secant.iter().any(|s| *s != 0.0);
    let plain = trusts && member.sums.penalty == 0.0 && member.rejections == 0 && !next.is_shortened && !bent;
    let last = undamped && plain && is_last(member, &next, settings.ftol * cost);
    member.predicted_reduction = if next.is_shortened { -next.taken_reduction } else { next.predicted_reduction };
    match (moves(member, &next, lower, upper), last) {
        (false, _) if next.is_shortened => Some(Status::Stalled),
        (false, _) => Some(Status::Xtol),
        (true, true) => Some(take_last(member)),
        (true, false) => None,
    }
}

/// The finishing steps: the status when their length no longer shrinks. What is left is rounding, and the last step is taken back
/// if it raised the cost; if it lowered that by more than rounding, the search goes on.
fn finish(member: &mut Member, next: &Step, (lower, upper): (&[f64], &[f64]), noise: f64) -> Option<Status> {
    member.finishing_steps += 1;
    let cost = member.sums.cost();
    let longer = next.predicted_reduction > SHRINKS * member.predicted_reduction.abs();
    // since the last step was accepted, the trial point is the one before
    let fall = if member.rejections == 0 { member.trial_sums.cost() - cost } else { 0.0 };
    if longer && fall > noise * cost {
        member.mode = Mode::Released;
        return None;
    }
    if longer && fall < 0.0 {
        member.accept();
    }
    let far = next.is_shortened && largest_cosine(member, lower, upper) > FAR_COSINE;
    let ended = longer || member.finishing_steps >= FINISHING_STEPS;
    ended.then_some(if far { Status::Stalled } else { Status::Ftol })
}

/// Puts the trial point at the step's end: whether it is another than the accepted one.
fn moves(member: &mut Member, step: &Step, lower: &[f64], upper: &[f64]) -> bool {
    for (p, delta) in step.delta.iter().enumerate() {
        member.trial[p] = (member.parameters[p] + delta).clamp(lower[p], upper[p]);
    }
    member.trial != member.parameters
}

/// Returns whether the step after `next` would be small enough to stop: predicted reductions shrink by about the same ratio from step to
/// step. NaN before the second step, negative after a shortened one: no.
fn is_last(member: &Member, next: &Step, small: f64) -> bool {
    let contraction = (next.predicted_reduction / member.predicted_reduction).max(BEST_CONTRACTION);
    member.predicted_reduction > 0.0 && next.predicted_reduction * contraction <= small
}

/// Takes the last step without another linearisation, which could only confirm it: its promise is kept to second order.
fn take_last(member: &mut Member) -> Status {
    let count = member.parameters.len();
    let delta: Vec<f64> = member.trial.iter().zip(&member.parameters).map(|(t, x)| t - x).collect();
    member.sums.chi2 -= member.predicted_reduction;
    for p in 0..count {
        let change: f64 = (0..count).map(|q| member.sums.normal_matrix[packed_index(p, q)] * delta[q]).sum();
        member.sums.gradient[p] -= change;
    }
    member.parameters.copy_from_slice(&member.trial);
    Status::Ftol
}

/// MINPACK's gtol: the largest cosine between the residual and a free column of the Jacobian; 0 when nothing is free.
fn largest_cosine(member: &Member, lower: &[f64], upper: &[f64]) -> f64 {
    let cost = member.sums.cost();
    (0..member.parameters.len())
        .filter(|&p| is_free(member, p, lower, upper) && cost > 0.0)
        .map(|p| member.sums.gradient[p].abs() / (member.sums.normal_matrix[packed_index(p, p)] * cost).sqrt())
        .fold(0.0, f64::max)
}
