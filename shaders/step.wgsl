// One Levenberg-Marquardt step of every active member: judge the trial point, then choose the next one. Bounds by an
// active set that goes from face to face of the box, damping of Nielsen 1999, the last steps Gauss-Newton steps judged
// by their length (see docs/src/equations.md).
//
// One member an invocation. members, state (read-write), control (read-write), limits (spectra x 4 x PARAMETERS: lower,
// upper, prior mean, prior weight). f32. Constants of the settings: MAX_ROUNDS, MAX_REJECTIONS, FTOL, XTOL, GTOL; of
// the recording: LARGEST_COST, which a higher cost counts as. Twin of src/solver/round/step/mod.rs.
//@use math, members, state, packed, box, judge, secant

fn lower_bound(slot: u32, parameter: u32) -> f32 {
    return limits[spectrum_of(slot) * 4u * PARAMETERS + parameter];
}

fn upper_bound(slot: u32, parameter: u32) -> f32 {
    return limits[(spectrum_of(slot) * 4u + 1u) * PARAMETERS + parameter];
}

// Accepts or rejects the trial point: the status, or RUNNING.
fn judge(slot: u32) -> i32 {
    let mode = control[cell(MODE, slot)];
    if control[cell(ROUNDS, slot)] == 1 {
        let status = accept_first(slot);
        return select(status, FTOL_STATUS, status == RUNNING && mode == EVALUATING);
    }
    if mode == SEARCHING || mode == RELEASED {
        judge_by_cost(slot);
        return RUNNING;
    }
    let finite = trial_is_finite(slot);
    let cost = accepted_cost(slot);
    if mode == STRIDING {
        // a lengthened step may not raise the cost, nor lead beyond the minimum
        let low = finite && trial_cost(slot) <= cost * (1.0 + NOISE);
        settle(slot, low && !turns_back(slot));
        return RUNNING;
    }
    if finite && trial_cost(slot) <= cost * FINISHING_RISE {
        settle(slot, !turns_back(slot));
        return RUNNING;
    }
    // where data are met to their last digit, rounding makes a finite cost rise, and the cosine says nothing
    let rescaled_last = state[at(PREDICTED_REDUCTION, slot)] < 0.0;
    let far = (rescaled_last || !finite) && largest_cosine(slot, cost) > FAR_COSINE;
    return select(FTOL_STATUS, STALLED, far);
}

// The factor by which a finishing step is to be lengthened where steps creep; 1 elsewhere. Where residuals bend the
// cost the other way, the normal matrix is more curved than the cost: steps point the same way, each is q times as long
// as the one before, and together they lead 1 / (1 - q) times as far as the first of them (Aitken's extrapolation).
// Where steps grow, the minimum is further away than any factor says.
fn stride(slot: u32) -> f32 {
    let before = state[at(PREDICTED_REDUCTION, slot)];
    var product = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        product += state[at(GRADIENT + p, slot)] * (state[at(ACCEPTED + p, slot)] - trial(p, slot));
    }
    // of data that are met to the last digit, residuals are rounding, and so are steps
    let small = before > 0.0 && reduction <= CLOSE * accepted_cost(slot);
    let known = small && control[cell(REJECTIONS, slot)] == 0 && !rescaled && !changed_face(slot);
    if !known || !(product >= PARALLEL * sqrt(before) * sqrt(reduction)) {
        return 1.0;
    }
    return 1.0 / max(1.0 - min(sqrt(reduction / before), 1.0), 1.0 / LONGEST_STRIDE);
}

// Multiplies the step by a factor, as far as no parameter moves by too much. What the step promises says nothing about
// the next one then. Convergence is judged by the length that it has before it is cut.
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

// The finishing steps: the status when their length no longer shrinks and the remaining distance is within the limit
// (what is left is rounding), or RUNNING. The step that was too long is taken back if it raised the cost; if it lowered
// that by more than rounding, the search goes on. Where steps creep, the next one is lengthened instead. The step after
// a lengthened one may well be longer than the one that was lengthened; that ends nothing.
fn finish(slot: u32, has_strode: bool) -> i32 {
    let steps = control[cell(FINISHING, slot)] + 1;
    control[cell(FINISHING, slot)] = steps;
    let cost = accepted_cost(slot);
    let longer = !has_strode && reduction > SHRINKS * abs(state[at(PREDICTED_REDUCTION, slot)]);
    let creeps = reduction > CREEPS * abs(state[at(PREDICTED_REDUCTION, slot)]);
    let is_far_off = is_far(slot);
    let max_steps = select(FINISHING_STEPS, FAR_FINISHING_STEPS, is_far_off);
    let factor = stride(slot);
    if creeps && factor > 1.0 && steps < max_steps {
        lengthen(slot, factor);
        control[cell(MODE, slot)] = STRIDING;
        return RUNNING;
    }
    // since the last step was accepted, the trial point is the one before
    let fall = select(0.0, trial_cost(slot) - cost, control[cell(REJECTIONS, slot)] == 0);
    if longer && fall > NOISE * cost {
        control[cell(MODE, slot)] = RELEASED;
        return RUNNING;
    }
    let last = longer && !is_far_off;
    if last && fall < 0.0 {
        accept(slot);
    }
    let far = rescaled && largest_cosine(slot, accepted_cost(slot)) > FAR_COSINE;
    return select(RUNNING, select(FTOL_STATUS, STALLED, far), last || (!has_strode && steps >= max_steps));
}

// The square of the distance that all remaining steps cover together, in errors. Where two reductions cannot be
// compared, it is the square of the next step's length; after a rejection 0, unless that step is known to be shorter
// than the rejected one, because the same step would be rejected again.
fn squared_distance(slot: u32) -> f32 {
    let before = state[at(PREDICTED_REDUCTION, slot)];
    let next = select(0.0, reduction, control[cell(REJECTIONS, slot)] == 0 || reduction < before);
    return select(next, squared_remaining_distance(reduction, before), is_comparable(slot));
}

// True if the remaining steps cover a larger distance than that at which a fit may end.
fn is_far(slot: u32) -> bool {
    return squared_distance(slot) > NEAR;
}

// The distance of a value of a parameter from the nearer of its bounds.
fn face_gap(slot: u32, parameter: u32, value: f32) -> f32 {
    return min(abs(value - lower_bound(slot, parameter)), abs(value - upper_bound(slot, parameter)));
}

// Whether the last step has moved a parameter onto one of its bounds, or off it. The trial point must be the point
// before, as it is after a step that was accepted.
fn changed_face(slot: u32) -> bool {
    var changed = false;
    for (var p = 0u; p < parameter_count; p++) {
        let here = state[at(ACCEPTED + p, slot)];
        let before = trial(p, slot);
        let gap = min(face_gap(slot, p, here), face_gap(slot, p, before));
        changed = changed || (here != before && gap <= AT_FACE * abs(here - before));
    }
    return changed;
}

// Takes the last step without another linearisation, which could only confirm it: its promise is kept to second order.
fn take_last(slot: u32) -> i32 {
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

// Makes the step: the status when nothing moves or `last`, or RUNNING.
fn set_trial(slot: u32, last: bool) -> i32 {
    state[at(PREDICTED_REDUCTION, slot)] = taken_reduction;
    let moved = moves(slot);
    if moved && last {
        return take_last(slot);
    }
    return select(select(XTOL_STATUS, STALLED, rescaled), RUNNING, moved);
}

// Chooses the next trial point (RUNNING), or tells why there is none.
fn choose(slot: u32) -> i32 {
    let cost = accepted_cost(slot);
    if largest_cosine(slot, cost) <= GTOL {
        return GTOL_STATUS;
    }
    if control[cell(REJECTIONS, slot)] > MAX_REJECTIONS {
        return STALLED;
    }
    let has_strode = control[cell(MODE, slot)] == STRIDING;
    if has_strode {
        control[cell(MODE, slot)] = FINISHING_MODE;
    }
    let finishing = control[cell(MODE, slot)] == FINISHING_MODE;
    let changed = changed_face(slot);
    let bent = set_secant(slot);
    var undamped = false;
    // a second and a third time when the floor is released, and when the finishing steps begin
    for (var attempt = 0u; attempt < 3u; attempt++) {
        let mode = control[cell(MODE, slot)];
        damping_floor = select(0.0, DIAGONAL_FLOOR, mode == SEARCHING);
        if !solve_damped(slot) {
            return SINGULAR;
        }
        if mode == FINISHING_MODE {
            undamped = select(undamped, step_damping < UNDAMPED, finishing);
            break;
        }
        undamped = step_damping < UNDAMPED;
        let small = reduction <= max(FTOL, NOISE) * cost || is_short();
        if mode == SEARCHING && releases_floor(slot, small) {
            control[cell(MODE, slot)] = RELEASED;
            continue;
        }
        // the cost no longer tells: too small a reduction, or rejected until next to none or no step is left
        let futile = !rescaled && control[cell(REJECTIONS, slot)] > 0;
        if !(((undamped || futile) && reduction <= NOISE * cost) || !moves(slot)) {
            break;
        }
        control[cell(MODE, slot)] = FINISHING_MODE;
        state[at(DAMPING, slot)] = FINISHING_DAMPING;
    }
    if finishing {
        let status = finish(slot, has_strode);
        if status != RUNNING {
            return status;
        }
    }
    let least = least_reduction(FTOL, cost);
    let small_reduction = undamped && reduction <= least && !is_far(slot);
    let status = converged(small_reduction, undamped && is_short());
    if status != RUNNING {
        return status;
    }
    // a penalty would take its unknown share of the promise, what bends the cost changes from step to step, and the
    // promise of a step with other free parameters says nothing about this one
    let is_near = cost <= LARGEST_COST && control[cell(FINISHING, slot)] <= TRUSTED_STEPS;
    let plain = state[at(PENALTY, slot)] == 0.0 && !bent && !changed && is_comparable(slot);
    let next_distance = squared_distance(slot) * contraction(reduction, state[at(PREDICTED_REDUCTION, slot)]);
    let enough = expected_reduction(slot) <= least && next_distance <= NEAR;
    let last = is_near && undamped && plain && enough;
    return set_trial(slot, TRUSTS_STEPS && last);
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
    var status = judge(slot);
    if status == RUNNING {
        status = choose(slot);
        if status == RUNNING && rounds >= MAX_ROUNDS {
            status = MAX_ROUNDS_STATUS;
        }
    }
    control[cell(STATUS, slot)] = status;
}
