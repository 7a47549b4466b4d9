//! One Levenberg–Marquardt step of one member: judge the trial point, then choose the next one.
//!
//! (A + μ diag A) δ = g, box bounds by projection with an active set, damping of Nielsen (design §2.6), the last steps
//! Gauss–Newton steps judged by their length (design §2.7). f64. Twin of `shaders/step.wgsl`.

use crate::solver::member::{Member, Mode};
use crate::solver::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};
use crate::solver::{LevenbergMarquardt, Status};

/// Below this damping a step is as good as undamped, and its prediction says how far the optimum is.
const UNDAMPED: f64 = 0.1;
/// Damping of the finishing steps: nothing but a guard of the Cholesky factorisation.
const FINISHING_DAMPING: f64 = 1e-6;
/// Most finishing steps.
const FINISHING_STEPS: u32 = 20;
/// Rise of the cost that a finishing step may end with: guards against nonsense, not against rounding.
const FINISHING_RISE: f64 = 1.1;
/// Where a finishing step led nowhere or was too long, a gradient above this cosine says that it had far to go.
const FAR_COSINE: f64 = 0.01;
/// A finishing step must promise less than this share of the one before it.
const SHRINKS: f64 = 0.8;
/// Smallest ratio of two predicted reductions that is believed of the step to come.
const BEST_CONTRACTION: f64 = 1e-3;
/// Rounds after which the floor of the damping's diagonal is let go in any case: where parameters creep it is in the way.
pub const PATIENCE: u32 = 200;
/// Share of a parameter's unit below which its magnitude does not bound a step.
const SMALLEST_MAGNITUDE: f64 = 0.1;
/// Factors of ten by which the damping may rise until the matrix factorises.
const SOLVE_ATTEMPTS: usize = 10;

/// A step from the accepted point and what it promises. Convergence is judged by the step as it was solved for, its trial by what it
/// promises after it was shortened.
struct Step {
    /// Shortened where it was too long.
    delta: Vec<f64>,
    is_shortened: bool,
    /// 2 gᵀδ − δᵀAδ before, and after it was shortened.
    predicted_reduction: f64,
    taken_reduction: f64,
    /// ‖√diag(A) δ‖, before, and ‖√diag(A) θ‖ over the parameters that moved.
    length: f64,
    scale: f64,
    /// The largest share of its own diagonal by which a free parameter is damped: μ, or more by the floor.
    damping: f64,
}

impl Step {
    /// Nothing is left to gain, to `share` of the cost, or to move.
    fn is_small(&self, settings: &LevenbergMarquardt, share: f64, cost: f64) -> bool {
        self.predicted_reduction <= share * cost || self.length <= settings.xtol * (self.scale + settings.xtol)
    }
}

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
            member.accept();
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
    let Some(mut next) = solve(member, lower, upper, settings) else { return Some(Status::Singular) };
    let cost = member.sums.cost();
    let held_back = member.damping.mu < UNDAMPED && next.damping >= UNDAMPED;
    let creeps = member.rounds >= PATIENCE;
    let gains_little = next.is_small(settings, settings.ftol.max(noise), cost);
    if member.mode == Mode::Searching && held_back && (gains_little || creeps) {
        member.mode = Mode::Released;
        let Some(step) = solve(member, lower, upper, settings) else { return Some(Status::Singular) };
        next = step;
    }
    let undamped = next.damping < UNDAMPED;
    // the cost no longer tells: too small a reduction, or rejected until next to none or no step is left
    let futile = !next.is_shortened && member.rejections > 0;
    let small = (undamped || futile) && next.predicted_reduction <= noise * cost;
    if member.mode == Mode::Finishing {
        if let Some(status) = finish(member, &next, lower, upper) {
            return Some(status);
        }
    } else if small || !moves(member, &next, lower, upper) {
        member.mode = Mode::Finishing;
        member.damping.mu = FINISHING_DAMPING;
        let Some(step) = solve(member, lower, upper, settings) else { return Some(Status::Singular) };
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
    // a penalty would take its unknown share of the promise
    let plain = trusts && member.sums.penalty == 0.0 && member.rejections == 0 && !next.is_shortened;
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
/// unless it lowered the cost.
fn finish(member: &mut Member, next: &Step, lower: &[f64], upper: &[f64]) -> Option<Status> {
    member.finishing_steps += 1;
    let cost = member.sums.cost();
    let longer = next.predicted_reduction > SHRINKS * member.predicted_reduction.abs();
    if longer && member.trial_sums.cost() < cost {
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

/// Whether the step after `next` would be small enough to stop: predicted reductions shrink by about the same ratio from step to
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

/// A parameter that may move: its bounds leave room, it is not pushed against one, and the model depends on it.
fn is_free(member: &Member, p: usize, lower: &[f64], upper: &[f64]) -> bool {
    let (x, g) = (member.parameters[p], member.sums.gradient[p]);
    let pushed = (x <= lower[p] && g <= 0.0) || (x >= upper[p] && g >= 0.0);
    upper[p] > lower[p] && !pushed && member.sums.normal_matrix[packed_index(p, p)] > 0.0
}

/// MINPACK's gtol: the largest cosine between the residual and a free column of the Jacobian; 0 when nothing is free.
fn largest_cosine(member: &Member, lower: &[f64], upper: &[f64]) -> f64 {
    let cost = member.sums.cost();
    (0..member.parameters.len())
        .filter(|&p| is_free(member, p, lower, upper) && cost > 0.0)
        .map(|p| member.sums.gradient[p].abs() / (member.sums.normal_matrix[packed_index(p, p)] * cost).sqrt())
        .fold(0.0, f64::max)
}

/// The damped step inside the box; raises the damping until the matrix factorises. `None`: it never does.
fn solve(member: &mut Member, lower: &[f64], upper: &[f64], settings: &LevenbergMarquardt) -> Option<Step> {
    for _ in 0..SOLVE_ATTEMPTS {
        if let Some(step) = solve_in_box(member, lower, upper, settings) {
            return Some(step);
        }
        member.damping.mu = f64::max(10.0 * member.damping.mu, 1e-6);
    }
    None
}

/// Parameters that would leave the box are put on its face, the others solved again with that step given.
fn solve_in_box(member: &Member, lower: &[f64], upper: &[f64], settings: &LevenbergMarquardt) -> Option<Step> {
    let count = member.parameters.len();
    let mut delta = vec![0.0; count];
    let mut free: Vec<bool> = (0..count).map(|p| is_free(member, p, lower, upper)).collect();
    // a floor would go on damping the steps that are to have none
    let floor = if member.mode == Mode::Searching { settings.diagonal_floor } else { 0.0 };
    let mut damping = 0.0;
    for _ in 0..=count {
        damping = solve_free(member, &free, floor, &mut delta)?;
        let mut inside = true;
        for p in 0..count {
            let target = member.parameters[p] + delta[p];
            if free[p] && !(target >= lower[p] && target <= upper[p]) {
                delta[p] = if target < lower[p] { lower[p] } else { upper[p] } - member.parameters[p];
                free[p] = false;
                inside = false;
            }
        }
        if inside {
            break;
        }
    }
    Some(promise(member, delta, settings.largest_step, damping))
}

/// The share of a step that moves no parameter by more than `most` times its magnitude: 1 where it is all of it.
fn share(member: &Member, most: f64, delta: &[f64]) -> f64 {
    let ratio = |(d, x): (&f64, &f64)| d.abs() / x.abs().max(SMALLEST_MAGNITUDE);
    let largest = delta.iter().zip(&member.parameters).map(ratio).fold(0.0, f64::max);
    if largest > most { most / largest } else { 1.0 }
}

/// Solves (A_FF + μ D) δ_F = g_F − A_FC δ_C for the free F, the others C held; D = diag A_FF, at least `floor` times its largest.
/// Returns the largest μ D / diag A_FF.
fn solve_free(member: &Member, free: &[bool], floor: f64, delta: &mut [f64]) -> Option<f64> {
    let normal = &member.sums.normal_matrix;
    let members: Vec<usize> = (0..free.len()).filter(|&p| free[p]).collect();
    let mut matrix = vec![0.0; packed_length(members.len())];
    let mut x = vec![0.0; members.len()];
    let mu = member.damping.mu;
    let mut damping = mu;
    let lowest = floor * members.iter().map(|&p| normal[packed_index(p, p)]).fold(0.0, f64::max);
    for (i, &p) in members.iter().enumerate() {
        for (j, &q) in members.iter().enumerate().take(i + 1) {
            matrix[packed_index(i, j)] = normal[packed_index(p, q)];
        }
        let diagonal = &mut matrix[packed_index(i, i)];
        damping = damping.max(mu * lowest / *diagonal);
        *diagonal = if *diagonal < lowest { *diagonal + mu * lowest } else { *diagonal * (1.0 + mu) };
        x[i] = member.sums.gradient[p];
        for q in (0..free.len()).filter(|&q| !free[q]) {
            x[i] -= normal[packed_index(p, q)] * delta[q];
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

fn promise(member: &Member, mut delta: Vec<f64>, most: f64, damping: f64) -> Step {
    let normal = &member.sums.normal_matrix;
    let (mut linear, mut quadratic, mut length, mut scale) = (0.0, 0.0, 0.0, 0.0);
    for p in 0..delta.len() {
        linear += member.sums.gradient[p] * delta[p];
        for q in 0..delta.len() {
            quadratic += delta[p] * normal[packed_index(p, q)] * delta[q];
        }
        if delta[p] != 0.0 {
            let diagonal = normal[packed_index(p, p)];
            length += diagonal * delta[p] * delta[p];
            scale += diagonal * member.parameters[p] * member.parameters[p];
        }
    }
    let share = share(member, most, &delta);
    delta.iter_mut().for_each(|d| *d *= share);
    Step {
        delta,
        is_shortened: share < 1.0,
        predicted_reduction: 2.0 * linear - quadratic,
        taken_reduction: share * (2.0 * linear - share * quadratic),
        length: length.sqrt(),
        scale: scale.sqrt(),
        damping,
    }
}
