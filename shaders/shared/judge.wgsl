// Decisions of a damped step: acceptance of a trial point, Nielsen's damping (1999), MINPACK's gtol, and the
// predictions of a solved step about the end of its fit. For kernels that have box.wgsl's bindings. Twin of
// src/solver/round/step/decisions.rs; with box.wgsl and faces.wgsl it has the equations of
// src/solver/round/step/equations.rs.
//@use math, state, box

fn cell(field: u32, slot: u32) -> u32 {
    return field * CAPACITY + slot;
}

// chi2, penalty, ln det, three sums of a loss, gradient, normal matrix
fn sum_count() -> u32 {
    return 3u + LOSS_SUMS + parameter_count + packed(parameter_count, 0u);
}

// chi2 + penalty of the accepted point.
fn accepted_cost(slot: u32) -> f32 {
    return state[at(CHI2, slot)] + state[at(PENALTY, slot)];
}

// chi2 + penalty of the trial point.
fn trial_cost(slot: u32) -> f32 {
    return state[at(TRIAL_CHI2, slot)] + state[at(TRIAL_PENALTY, slot)];
}

fn trial_is_finite(slot: u32) -> bool {
    var finite = is_finite(trial_cost(slot));
    for (var i = 0u; i < sum_count(); i++) {
        finite = finite && is_finite(state[at(TRIAL_CHI2 + i, slot)]);
    }
    return finite;
}

fn exchange(i: u32, j: u32) {
    let value = state[i];
    state[i] = state[j];
    state[j] = value;
}

// Accepts the trial point: it changes places with the accepted point, and so do their sums.
fn accept(slot: u32) {
    for (var p = 0u; p < parameter_count; p++) {
        exchange(at(ACCEPTED + p, slot), at(TRIAL_PARAMETERS + p, slot));
    }
    for (var i = 0u; i < sum_count(); i++) {
        exchange(at(CHI2 + i, slot), at(TRIAL_CHI2 + i, slot));
    }
}

// Makes the trial point the accepted one, or counts it as rejected.
fn accept_or_reject(slot: u32, accepted: bool) {
    if accepted {
        control[cell(REJECTIONS, slot)] = 0;
        accept(slot);
    } else {
        control[cell(REJECTIONS, slot)] += 1;
    }
}

// Accepts the first point, which has no predecessor to be compared with: the status, or RUNNING.
fn accept_first_point(slot: u32) -> i32 {
    let finite = trial_is_finite(slot);
    accept(slot);
    return select(NOT_FINITE, RUNNING, finite);
}

// Accepts or rejects the trial point by its cost, and updates the damping (Nielsen 1999, eqs. 2.20-2.21). A shortened
// step may gain less than the rounding of the cost: it is accepted as if its gain ratio were a half, at which the
// damping stays.
fn judge_cost(slot: u32) {
    let cost = accepted_cost(slot);
    let new_cost = trial_cost(slot);
    let predicted_reduction = abs(state[at(PREDICTED_REDUCTION, slot)]);
    let gain_is_hidden = was_rescaled(slot) && predicted_reduction <= NOISE * cost;
    let lower = new_cost < cost || (gain_is_hidden && new_cost <= cost * (1.0 + NOISE));
    let accepted = trial_is_finite(slot) && lower;
    let nu = state[at(DAMPING_FACTOR, slot)];
    if accepted {
        let gain_ratio = select(max((cost - new_cost) / predicted_reduction, 0.0), 0.5, gain_is_hidden);
        let centred = 2.0 * gain_ratio - 1.0;
        state[at(DAMPING, slot)] *= max(1.0 / 3.0, 1.0 - centred * centred * centred);
        state[at(DAMPING_FACTOR, slot)] = 2.0;
    } else {
        state[at(DAMPING, slot)] *= nu;
        state[at(DAMPING_FACTOR, slot)] = 2.0 * nu;
    }
    accept_or_reject(slot, accepted);
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

// True if the last step was shortened or lengthened. PREDICTED_REDUCTION is the reduction predicted for the last step;
// its sign is negative if that was rescaled, and it is NaN before the first step.
fn was_rescaled(slot: u32) -> bool {
    return state[at(PREDICTED_REDUCTION, slot)] < 0.0;
}

// True if the last two predicted reductions show how fast the fit converges. The first one (NaN), one after a
// rejection, and that of a rescaled step (negative) do not.
fn is_comparable(slot: u32) -> bool {
    return state[at(PREDICTED_REDUCTION, slot)] > 0.0 && control[cell(REJECTIONS, slot)] == 0 && !rescaled;
}

// The reduction that the step after the next is expected to gain, where reductions are comparable.
fn expected_reduction(slot: u32) -> f32 {
    return reduction * contraction(reduction, state[at(PREDICTED_REDUCTION, slot)]);
}

// True if the step is at most XTOL times as long as the vector of the parameters that it moves.
fn is_short() -> bool {
    return step_length <= XTOL * step_scale;
}

// True if the floor of the damping's diagonal is to be released: the damping itself is below UNDAMPED, so that only the
// floor damps the step, and the fit is about to end or creeps.
fn releases_floor(slot: u32, is_about_to_end: bool) -> bool {
    let creeps = control[cell(ROUNDS, slot)] >= MAX_FLOOR_ROUNDS;
    return step_damping >= UNDAMPED && state[at(DAMPING, slot)] < UNDAMPED && (is_about_to_end || creeps);
}

// The predicted reduction at which a fit has converged: a share of its cost, or of LARGEST_COST where the cost is
// higher.
fn least_reduction(tolerance: f32, cost: f32) -> f32 {
    return tolerance * min(cost, LARGEST_COST);
}

// The status of a fit that has converged by its reduction, by its step, or by both; RUNNING where it has not.
fn convergence_status(small_reduction: bool, small_step: bool) -> i32 {
    let by_one_criterion = select(select(RUNNING, XTOL_STATUS, small_step), FTOL_STATUS, small_reduction);
    return select(by_one_criterion, FTOL_XTOL_STATUS, small_reduction && small_step);
}

// Sets the trial point to the step's end, clamped to the bounds: true if it differs from the accepted point.
fn set_trial_point(slot: u32) -> bool {
    var moved = false;
    for (var p = 0u; p < parameter_count; p++) {
        let value = state[at(ACCEPTED + p, slot)];
        let new_value = clamp(value + delta[p], lower_bound(slot, p), upper_bound(slot, p));
        state[at(TRIAL_PARAMETERS + p, slot)] = new_value;
        moved = moved || new_value != value;
    }
    return moved;
}

// MINPACK's gtol: the largest cosine between the residual and a free column of the Jacobian; 0 when nothing is free.
fn largest_cosine(slot: u32, cost: f32) -> f32 {
    var largest = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        if cost > 0.0 && is_free(slot, p) {
            let slope = abs(state[at(GRADIENT + p, slot)]);
            largest = max(largest, slope / sqrt(normal_entry(slot, p, p)) / sqrt(cost));
        }
    }
    return largest;
}
