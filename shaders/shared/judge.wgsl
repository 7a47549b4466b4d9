// Decisions of a damped step: acceptance of a trial point, Nielsen's damping (1999), MINPACK's gtol, and the
// predictions of a solved step about the end of its fit. For step.wgsl. Twin of src/solver/round/step/decisions.rs;
// with box.wgsl and faces.wgsl it has the equations of src/solver/round/step/equations.rs.
//@use math, step_member, box

fn trial_is_finite() -> bool {
    var finite = is_finite(trial_cost());
    //@for i 0 TRIAL_SUMS
    finite = finite & is_finite(trial_sums[$i]);
    //@end
    return finite;
}

// Judges the trial point by its cost, and updates the damping (Nielsen 1999, eqs. 2.20-2.21): true if it is accepted. A
// shortened step may gain less than the rounding of the cost: it is accepted as if its gain ratio were a half, at which
// the damping stays.
fn judge_cost(finite: bool) -> bool {
    let cost = accepted_cost();
    let new_cost = trial_cost();
    let gain_is_hidden = was_rescaled() & (abs(predicted_reduction) <= NOISE * cost);
    let is_lower = (new_cost < cost) | (gain_is_hidden & (new_cost <= cost * (1.0 + NOISE)));
    let is_accepted = finite & is_lower;
    let gain_ratio = select(max((cost - new_cost) / abs(predicted_reduction), 0.0), 0.5, gain_is_hidden);
    let centred = 2.0 * gain_ratio - 1.0;
    mu *= select(nu, max(1.0 / 3.0, 1.0 - centred * centred * centred), is_accepted);
    nu = select(2.0 * nu, 2.0, is_accepted);
    return is_accepted;
}

// The ratio of the reductions that two successive steps predict, between BEST_CONTRACTION and 1. The step after the
// next is expected to gain this share of what the next one gains.
fn contraction(next: f32, previous: f32) -> f32 {
    return clamp(next / previous, BEST_CONTRACTION, 1.0);
}

// The square of the distance that all remaining steps cover together, in errors, from the reductions that two
// successive steps predict: that of the next one over (1 - q)^2, with q the ratio of their lengths. Where steps grow,
// it is the square of the shorter one's length: a fit that was near its minimum is led away from it by rounding alone.
fn squared_remaining_distance(next: f32, previous: f32) -> f32 {
    let shrinkage = 1.0 - sqrt(next / previous);
    return select(previous, next / (shrinkage * shrinkage), shrinkage > 0.0);
}

// True if the last step was shortened or lengthened.
fn was_rescaled() -> bool {
    return predicted_reduction < 0.0;
}

// True if the last two predicted reductions show how fast the fit converges. The first one (NaN), one after a
// rejection, and that of a rescaled step (negative) do not.
fn is_comparable() -> bool {
    return (predicted_reduction > 0.0) & (rejections == 0) & !rescaled;
}

// True if the step is at most XTOL times as long as the vector of the parameters that it moves.
fn is_short() -> bool {
    return step_length <= XTOL * step_scale;
}

// True if the floor of the damping's diagonal is to be released: the damping itself is below UNDAMPED, so that only the
// floor damps the step, and the fit is about to end or creeps.
fn releases_floor(is_about_to_end: bool) -> bool {
    return (step_damping >= UNDAMPED) & (mu < UNDAMPED) & (is_about_to_end | (rounds >= MAX_FLOOR_ROUNDS));
}

// The predicted reduction at which a fit has converged: a share of its cost, or of LARGEST_COST where the cost is
// higher.
fn least_reduction(tolerance: f32, cost: f32) -> f32 {
    return tolerance * min(cost, LARGEST_COST);
}

// The status of a fit that has converged by its reduction, by its step, or by both; RUNNING where it has not.
fn convergence_status(small_reduction: bool, small_step: bool) -> i32 {
    let by_one_criterion = select(select(RUNNING, XTOL_STATUS, small_step), FTOL_STATUS, small_reduction);
    return select(by_one_criterion, FTOL_XTOL_STATUS, small_reduction & small_step);
}

// The end of the step, clamped to the bounds.
fn end_of_step(p: u32) -> f32 {
    return clamp(accepted[p] + delta[p], lower[p], upper[p]);
}

// True if the end of the step differs from the accepted point.
fn step_moves() -> bool {
    var moves = false;
    //@for p 0 PARAMETERS
    moves = moves | (end_of_step($pu) != accepted[$p]);
    //@end
    return moves;
}

// MINPACK's gtol: the largest cosine between the residual and a free column of the Jacobian; 0 when nothing is free.
// Sets `may_move`.
fn largest_cosine(cost: f32) -> f32 {
    var largest = 0.0;
    //@for p 0 PARAMETERS
    {
        let cosine = scaled_cosine(accepted[$p], lower[$p], upper[$p], gradient($pu), normal_entry($pu, $pu));
        may_move[$p] = cosine >= 0.0;
        largest = max(largest, cosine);
    }
    //@end
    return select(0.0, largest * inverseSqrt(cost), cost > 0.0);
}
