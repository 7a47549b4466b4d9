// One Levenberg-Marquardt step of every active member: judge the trial point, then choose the next one. Bounds by an
// active set that goes from face to face of the box, damping of Nielsen 1999, the last steps Gauss-Newton steps judged
// by their length (see docs/src/equations.md).
//
// One member an invocation. members, state (read-write), control (read-write), limits (spectra x 4 x PARAMETERS: lower,
// upper, prior mean, prior weight). f32. Constants of the settings: MAX_ROUNDS, MAX_REJECTIONS, FTOL, XTOL, GTOL; of
// the recording: LARGEST_COST, at which a higher cost is capped. Twin of src/solver/round/step/mod.rs.
//@use math, members, state, packed, box, judge, secant

fn lower_bound(slot: u32, parameter: u32) -> f32 {
    return limits[spectrum_of(slot) * 4u * PARAMETERS + parameter];
}

fn upper_bound(slot: u32, parameter: u32) -> f32 {
    return limits[(spectrum_of(slot) * 4u + 1u) * PARAMETERS + parameter];
}

// Accepts or rejects the trial point and updates the damping: the final status, or RUNNING.
fn judge_trial_point(slot: u32) -> i32 {
    let phase = control[cell(MODE, slot)];
    if control[cell(ROUNDS, slot)] == 1 {
        let status = accept_first_point(slot);
        return select(status, FTOL_STATUS, status == RUNNING && phase == EVALUATING);
    }
    if phase == SEARCHING || phase == RELEASED {
        judge_cost(slot);
        return RUNNING;
    }
    let finite = trial_is_finite(slot);
    let cost = accepted_cost(slot);
    if phase == STRIDING {
        // a lengthened step may neither raise the cost by more than rounding nor overshoot the minimum
        let low = finite && trial_cost(slot) <= cost * (1.0 + NOISE);
        accept_or_reject(slot, low && !overshoots_minimum(slot));
        return RUNNING;
    }
    if finite && trial_cost(slot) <= cost * FINISHING_RISE {
        accept_or_reject(slot, !overshoots_minimum(slot));
        return RUNNING;
    }
    // where the model meets the data to the last digit, rounding raises a finite cost, and the cosine says nothing
    return finishing_status(slot, was_rescaled(slot) || !finite);
}

// The status after finishing steps: STALLED if the point may be far from the minimum and the gradient is large.
fn finishing_status(slot: u32, may_be_far: bool) -> i32 {
    let stalled = may_be_far && largest_cosine(slot, accepted_cost(slot)) > FAR_COSINE;
    return select(FTOL_STATUS, STALLED, stalled);
}

// The factor by which the next finishing step is to be lengthened where steps creep; 1 elsewhere. Where the residuals
// reduce the curvature of the cost, the normal matrix exaggerates it: steps are parallel, each is q times as long as
// the one before, and together they lead 1 / (1 - q) times as far as the first of them (Aitken's extrapolation). Where
// steps grow, the minimum is further away than any factor says.
fn extrapolation_factor(slot: u32) -> f32 {
    let last_reduction = state[at(PREDICTED_REDUCTION, slot)];
    var product = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        product += state[at(GRADIENT + p, slot)] * (state[at(ACCEPTED + p, slot)] - trial(p, slot));
    }
    // where the model meets the data to the last digit, residuals are rounding, and so are steps
    let small = last_reduction > 0.0 && reduction <= CLOSE_POINTS_SHARE * accepted_cost(slot);
    let comparable = small && control[cell(REJECTIONS, slot)] == 0 && !rescaled && !changed_active_bounds(slot);
    if !comparable || !(product >= PARALLEL_COSINE * sqrt(last_reduction) * sqrt(reduction)) {
        return 1.0;
    }
    return 1.0 / max(1.0 - min(sqrt(reduction / last_reduction), 1.0), 1.0 / LONGEST_STRIDE);
}

// Multiplies the step by a factor, as far as no parameter moves by too much. Its prediction then says nothing about the
// next step. Convergence is judged by the length that it has before it is cut.
fn lengthen(slot: u32, factor: f32) {
    for (var p = 0u; p < parameter_count; p++) {
        delta[p] *= factor;
    }
    reduction *= factor * factor;
    step_length *= factor;
    shorten(slot);
    rescaled = true;
    taken_reduction = -taken_reduction;
}

// Counts a finishing step: the final status once the steps no longer shrink and the remaining distance is within the
// limit, so that only rounding is left; or RUNNING. The last step is undone if it raised the cost; if it lowered the
// cost by more than rounding, the search goes on. Where steps creep, the next one is lengthened instead. The step after
// a lengthened one may well be longer than the one that was lengthened; that ends nothing.
fn end_finishing(slot: u32, was_lengthened: bool) -> i32 {
    let steps = control[cell(FINISHING, slot)] + 1;
    control[cell(FINISHING, slot)] = steps;
    let cost = accepted_cost(slot);
    let last_reduction = abs(state[at(PREDICTED_REDUCTION, slot)]);
    let no_longer_shrinks = !was_lengthened && reduction > SHRINKING_RATIO * last_reduction;
    let creeps = reduction > CREEPING_RATIO * last_reduction;
    let far = is_far_from_minimum(slot);
    let max_steps = select(FINISHING_STEPS, FAR_FINISHING_STEPS, far);
    let factor = extrapolation_factor(slot);
    if creeps && factor > 1.0 && steps < max_steps {
        lengthen(slot, factor);
        control[cell(MODE, slot)] = STRIDING;
        return RUNNING;
    }
    // after an accepted step, the trial point is the point before it
    let fall = select(0.0, trial_cost(slot) - cost, control[cell(REJECTIONS, slot)] == 0);
    if no_longer_shrinks && fall > NOISE * cost {
        control[cell(MODE, slot)] = RELEASED;
        return RUNNING;
    }
    let was_last = no_longer_shrinks && !far;
    if was_last && fall < 0.0 {
        accept(slot);
    }
    let has_ended = was_last || (!was_lengthened && steps >= max_steps);
    return select(RUNNING, finishing_status(slot, rescaled), has_ended);
}

// The square of the distance that all remaining steps cover together, in errors. Where two reductions cannot be
// compared, it is the square of the next step's length; after a rejection 0, unless that step is known to be shorter
// than the rejected one, because the same step would be rejected again.
fn squared_distance(slot: u32) -> f32 {
    let previous = state[at(PREDICTED_REDUCTION, slot)];
    let another_step = control[cell(REJECTIONS, slot)] == 0 || reduction < previous;
    let squared_length = select(0.0, reduction, another_step);
    return select(squared_length, squared_remaining_distance(reduction, previous), is_comparable(slot));
}

// True if the remaining steps cover a larger distance than that at which a fit may end.
fn is_far_from_minimum(slot: u32) -> bool {
    return squared_distance(slot) > NEAR;
}

// The distance of a value of a parameter from the nearer of its bounds.
fn distance_from_bounds(slot: u32, parameter: u32, value: f32) -> f32 {
    return min(abs(value - lower_bound(slot, parameter)), abs(value - upper_bound(slot, parameter)));
}

// True if the last step has moved a parameter onto one of its bounds, or off it. The trial point must be the point
// before that step, as it is after a step that was accepted.
fn changed_active_bounds(slot: u32) -> bool {
    var changed = false;
    for (var p = 0u; p < parameter_count; p++) {
        let value = state[at(ACCEPTED + p, slot)];
        let before = trial(p, slot);
        let gap = min(distance_from_bounds(slot, p, value), distance_from_bounds(slot, p, before));
        changed = changed || (value != before && gap <= AT_FACE_SHARE * abs(value - before));
    }
    return changed;
}

// Accepts the trial point without evaluating it, which could only confirm it; the quadratic model predicts cost and
// gradient there.
fn accept_on_trust(slot: u32) -> i32 {
    state[at(CHI2, slot)] -= reduction;
    for (var p = 0u; p < parameter_count; p++) {
        var change = 0.0;
        for (var q = 0u; q < parameter_count; q++) {
            change += normal_entry(slot, p, q) * (trial(q, slot) - state[at(ACCEPTED + q, slot)]);
        }
        state[at(GRADIENT + p, slot)] -= change;
    }
    for (var p = 0u; p < parameter_count; p++) {
        state[at(ACCEPTED + p, slot)] = trial(p, slot);
    }
    return FTOL_STATUS;
}

// Takes the step: the status when nothing moves or the step is trusted without an evaluation, or RUNNING.
fn take_step(slot: u32, trusts_step: bool) -> i32 {
    state[at(PREDICTED_REDUCTION, slot)] = taken_reduction;
    let moved = set_trial_point(slot);
    if moved && trusts_step {
        return accept_on_trust(slot);
    }
    return select(select(XTOL_STATUS, STALLED, rescaled), RUNNING, moved);
}

// Sets the next trial point from a damped step: RUNNING, or the final status where there is none.
fn choose_trial_point(slot: u32) -> i32 {
    // 1. The fit ends where the gradient vanishes, or after too many rejections in a row.
    let cost = accepted_cost(slot);
    if largest_cosine(slot, cost) <= GTOL {
        return GTOL_STATUS;
    }
    if control[cell(REJECTIONS, slot)] > MAX_REJECTIONS {
        return STALLED;
    }
    let was_lengthened = control[cell(MODE, slot)] == STRIDING;
    if was_lengthened {
        control[cell(MODE, slot)] = FINISHING_MODE;
    }
    let was_finishing = control[cell(MODE, slot)] == FINISHING_MODE;
    let changed_bounds = changed_active_bounds(slot);
    let has_secant_term = set_secant(slot);
    // 2. Solve the damped system; a second and a third time when the floor is released, and when the finishing steps
    // begin.
    var undamped = false;
    for (var attempt = 0u; attempt < 3u; attempt++) {
        let phase = control[cell(MODE, slot)];
        damping_floor = select(0.0, DIAGONAL_FLOOR, phase == SEARCHING);
        if !solve_damped_step(slot) {
            return SINGULAR;
        }
        if phase == FINISHING_MODE {
            undamped = select(undamped, step_damping < UNDAMPED, was_finishing);
            break;
        }
        undamped = step_damping < UNDAMPED;
        let is_about_to_end = reduction <= max(FTOL, NOISE) * cost || is_short();
        if phase == SEARCHING && releases_floor(slot, is_about_to_end) {
            control[cell(MODE, slot)] = RELEASED;
            continue;
        }
        // the cost no longer says anything: the predicted reduction drowns in its rounding error, or the step has
        // become too small to move the point
        let unshortened_retry = !rescaled && control[cell(REJECTIONS, slot)] > 0;
        let drowns_in_rounding = (undamped || unshortened_retry) && reduction <= NOISE * cost;
        if !(drowns_in_rounding || !set_trial_point(slot)) {
            break;
        }
        control[cell(MODE, slot)] = FINISHING_MODE;
        state[at(DAMPING, slot)] = FINISHING_DAMPING;
    }
    if was_finishing {
        let status = end_finishing(slot, was_lengthened);
        if status != RUNNING {
            return status;
        }
    }
    // 3. Test for convergence, by the whole step.
    let least = least_reduction(FTOL, cost);
    let small_reduction = undamped && reduction <= least && !is_far_from_minimum(slot);
    let status = convergence_status(small_reduction, undamped && is_short());
    if status != RUNNING {
        return status;
    }
    // 4. Decide whether the next step may be taken without an evaluation. The quadratic model must predict its
    // reduction well: a penalty changes it by an unknown amount, the secant term differs from step to step, and after a
    // change of the active bounds the last two reductions say nothing about the rate of convergence.
    let is_near = cost <= LARGEST_COST && control[cell(FINISHING, slot)] <= TRUSTED_STEPS;
    let predictable = state[at(PENALTY, slot)] == 0.0 && !has_secant_term && !changed_bounds && is_comparable(slot);
    let later_distance = squared_distance(slot) * contraction(reduction, state[at(PREDICTED_REDUCTION, slot)]);
    let would_converge_after = expected_reduction(slot) <= least && later_distance <= NEAR;
    let trusts_step = is_near && undamped && predictable && would_converge_after;
    return take_step(slot, TRUSTS_STEPS && trusts_step);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= member_count() {
        return;
    }
    let slot = slot_at(id.x);
    parameter_count = min(PARAMETERS, arrayLength(&limits));
    let rounds = control[cell(ROUNDS, slot)] + 1;
    control[cell(ROUNDS, slot)] = rounds;
    var status = judge_trial_point(slot);
    if status == RUNNING {
        status = choose_trial_point(slot);
        if status == RUNNING && rounds >= MAX_ROUNDS {
            status = MAX_ROUNDS_STATUS;
        }
    }
    control[cell(STATUS, slot)] = status;
}
