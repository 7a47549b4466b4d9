// One Levenberg-Marquardt step of every active member: judge the trial point, then choose the next one. Bounds by an
// active set that goes from face to face of the box, damping of Nielsen 1999, the last steps Gauss-Newton steps judged
// by their length (see docs/src/equations.md).
//
// One member an invocation. members, state (read-write), control (read-write), limits (spectra x 4 x PARAMETERS: lower,
// upper, prior mean, prior weight). f32. Constants of the settings: MAX_ROUNDS, MAX_REJECTIONS, FTOL, XTOL, GTOL; of
// the recording: LARGEST_COST, at which a higher cost is capped. Twin of src/solver/round/step/mod.rs.
//@use math, step_member, box, judge, secant

var<private> accepts: bool; // the trial point is accepted
var<private> slope_along_last_step: f32; // gradient at its end times the step
// The end of a fit's finishing steps, which main concludes: that the fit ends, that its last step is undone, and that
// its point may be far from the minimum.
var<private> ends_finishing: bool;
var<private> undoes_last_step: bool;
var<private> may_be_far: bool;

// Judges whether the trial point is to be accepted, and counts a rejection: the final status, or RUNNING.
fn judge_trial_point(finite: bool) -> i32 {
    if rounds == 1 {
        accepts = true;
        return select(NOT_FINITE, select(RUNNING, FTOL_STATUS, phase == EVALUATING), finite);
    }
    if phase == SEARCHING || phase == RELEASED {
        accepts = judge_cost(finite);
    } else {
        // A lengthened step may raise the cost by no more than rounding. None may overshoot the minimum.
        let strides = phase == STRIDING;
        let largest_cost = accepted_cost() * select(FINISHING_RISE, 1.0 + NOISE, strides);
        let is_low = finite & (trial_cost() <= largest_cost);
        if !is_low & !strides {
            // Where the model meets the data to the last digit, rounding raises a finite cost, and the cosine says
            // nothing.
            ends_finishing = true;
            may_be_far = was_rescaled() | !finite;
            return RUNNING;
        }
        accepts = is_low & !overshoots_minimum();
    }
    rejections = select(rejections + 1, 0, accepts);
    return RUNNING;
}

// The status after finishing steps: STALLED if the point may be far from the minimum and the gradient is large. It
// reads the state again, because registers would be kept for this rare case, and the last step may have been undone.
fn finishing_status(slot: u32) -> i32 {
    let first_limit = spectrum_of(slot) * 4u * PARAMETERS;
    var largest = 0.0;
    for (var p = 0u; p < at_run_time(PARAMETERS); p++) {
        let low = limits[first_limit + p];
        let high = limits[first_limit + PARAMETERS + p];
        let diagonal = state[at(NORMAL + packed(p, p), slot)];
        let cosine = scaled_cosine(state[at(ACCEPTED + p, slot)], low, high, state[at(GRADIENT + p, slot)], diagonal);
        largest = max(largest, cosine);
    }
    let cost = state[at(CHI2, slot)] + state[at(PENALTY, slot)];
    let stalled = may_be_far & (cost > 0.0) & (largest * inverseSqrt(cost) > FAR_COSINE);
    return select(FTOL_STATUS, STALLED, stalled);
}

// The factor by which the next finishing step is to be lengthened where steps creep; 1 elsewhere. Where the residuals
// reduce the curvature of the cost, the normal matrix exaggerates it: steps are parallel, each is q times as long as
// the one before, and together they lead 1 / (1 - q) times as far as the first of them (Aitken's extrapolation). Where
// steps grow, the minimum is further away than any factor says.
fn extrapolation_factor(changed_bounds: bool) -> f32 {
    // Where the model meets the data to the last digit, residuals are rounding, and so are steps.
    let is_small = reduction <= CLOSE_POINTS_SHARE * accepted_cost();
    let is_parallel = slope_along_last_step >= PARALLEL_COSINE * sqrt(predicted_reduction) * sqrt(reduction);
    let creeps = is_small & is_comparable() & !changed_bounds & is_parallel;
    let ratio = min(sqrt(reduction / predicted_reduction), 1.0);
    return select(1.0, 1.0 / max(1.0 - ratio, 1.0 / LONGEST_STRIDE), creeps);
}

// Multiplies the step by a factor, as far as no parameter moves by too much. Its prediction then says nothing about the
// next step. Convergence is judged by the length that it has before it is cut.
fn lengthen(factor: f32) {
    //@for p 0 PARAMETERS
    delta[$p] *= factor;
    //@end
    reduction *= factor * factor;
    step_length *= factor;
    shorten();
    rescaled = true;
    taken_reduction = -taken_reduction;
}

// Counts a finishing step. The fit ends once the steps no longer shrink and the remaining distance is within the limit,
// so that only rounding is left. The last step is undone if it raised the cost; if it lowered the cost by more than
// rounding, the search goes on. Where steps creep, the next one is lengthened instead. The step after a lengthened one
// may well be longer than the one that was lengthened; that ends nothing.
fn end_finishing(was_lengthened: bool, changed_bounds: bool) {
    finishing_steps += 1;
    let cost = accepted_cost();
    let last_reduction = abs(predicted_reduction);
    let no_longer_shrinks = !was_lengthened & (reduction > SHRINKING_RATIO * last_reduction);
    let creeps = reduction > CREEPING_RATIO * last_reduction;
    let far = is_far_from_minimum();
    let max_steps = select(FINISHING_STEPS, FAR_FINISHING_STEPS, far);
    let factor = extrapolation_factor(changed_bounds);
    if creeps & (factor > 1.0) & (finishing_steps < max_steps) {
        lengthen(factor);
        phase = STRIDING;
        return;
    }
    // After an accepted step, the trial point is the point before it.
    let fall = select(0.0, trial_cost() - cost, rejections == 0);
    if no_longer_shrinks & (fall > NOISE * cost) {
        phase = RELEASED;
        return;
    }
    let was_last = no_longer_shrinks & !far;
    ends_finishing = was_last | (!was_lengthened & (finishing_steps >= max_steps));
    undoes_last_step = was_last & (fall < 0.0);
    may_be_far = rescaled;
}

// The square of the distance that all remaining steps cover together, in errors. Where two reductions cannot be
// compared, it is the square of the next step's length; after a rejection 0, unless that step is known to be shorter
// than the rejected one, because the same step would be rejected again.
fn squared_distance() -> f32 {
    let another_step = (rejections == 0) | (reduction < predicted_reduction);
    let squared_length = select(0.0, reduction, another_step);
    return select(squared_length, squared_remaining_distance(reduction, predicted_reduction), is_comparable());
}

// True if the remaining steps cover a larger distance than that at which a fit may end.
fn is_far_from_minimum() -> bool {
    return squared_distance() > NEAR;
}

// The distance of a value of a parameter from the nearer of its bounds.
fn distance_from_bounds(p: u32, value: f32) -> f32 {
    return min(abs(value - lower[p]), abs(value - upper[p]));
}

// True if the last step has moved a parameter onto one of its bounds, or off it. The trial point must be the point
// before that step, as it is after a step that was accepted.
fn changed_active_bounds() -> bool {
    var changed = false;
    //@for p 0 PARAMETERS
    {
        let gap = min(distance_from_bounds($pu, accepted[$p]), distance_from_bounds($pu, trial_point[$p]));
        let step = step_to_trial_point($pu);
        changed = changed | ((step != 0.0) & (gap <= AT_FACE_SHARE * abs(step)));
    }
    //@end
    return changed;
}

// Accepts the trial point without evaluating it, which could only confirm it; the quadratic model predicts cost and
// gradient there. There is no secant term then.
fn accept_on_trust(slot: u32) {
    state[at(CHI2, slot)] = sums[0] - reduction;
    //@for p 0 PARAMETERS
    {
        var change = 0.0;
        //@for q 0 PARAMETERS
        change += curvature($pu, $qu) * step_to_trial_point($qu);
        //@end
        state[at(GRADIENT + $pu, slot)] = gradient($pu) - change;
        state[at(ACCEPTED + $pu, slot)] = trial_point[$p];
    }
    //@end
}

// Takes the step: the status when nothing moves or the step is trusted without an evaluation, or RUNNING.
fn take_step(slot: u32, trusts_step: bool) -> i32 {
    predicted_reduction = taken_reduction;
    let moves = step_moves();
    //@for p 0 PARAMETERS
    trial_point[$p] = end_of_step($pu);
    //@end
    if moves && trusts_step {
        accept_on_trust(slot);
        return FTOL_STATUS;
    }
    return select(select(XTOL_STATUS, STALLED, rescaled), RUNNING, moves);
}

// Sets the next trial point from a damped step: RUNNING, or the final status where there is none.
fn choose_trial_point(slot: u32, trial_is_finite: bool) -> i32 {
    // 1. The fit ends where the gradient vanishes, or after too many rejections in a row.
    let cost = accepted_cost();
    if largest_cosine(cost) <= GTOL {
        return GTOL_STATUS;
    }
    if rejections > MAX_REJECTIONS {
        return STALLED;
    }
    let was_lengthened = phase == STRIDING;
    phase = select(phase, FINISHING_MODE, was_lengthened);
    let was_finishing = phase == FINISHING_MODE;
    let changed_bounds = changed_active_bounds();
    slope_along_last_step = 0.0;
    //@for p 0 PARAMETERS
    slope_along_last_step -= gradient($pu) * step_to_trial_point($pu);
    //@end
    let has_secant_term = set_secant(trial_is_finite);
    // 2. Solve the damped system; a second and a third time when the floor is released, and when the finishing steps
    // begin.
    var undamped = false;
    for (var attempt = 0u; attempt < 3u; attempt++) {
        damping_floor = select(0.0, DIAGONAL_FLOOR, phase == SEARCHING);
        if !solve_damped_step() {
            return SINGULAR;
        }
        if phase == FINISHING_MODE {
            undamped = select(undamped, step_damping < UNDAMPED, was_finishing);
            break;
        }
        undamped = step_damping < UNDAMPED;
        let is_about_to_end = (reduction <= max(FTOL, NOISE) * cost) | is_short();
        if phase == SEARCHING && releases_floor(is_about_to_end) {
            phase = RELEASED;
            continue;
        }
        // The cost no longer says anything: the predicted reduction drowns in its rounding error, or the step has
        // become too small to move the point.
        let unshortened_retry = !rescaled & (rejections > 0);
        let drowns_in_rounding = (undamped | unshortened_retry) & (reduction <= NOISE * cost);
        if !drowns_in_rounding & step_moves() {
            break;
        }
        phase = FINISHING_MODE;
        mu = FINISHING_DAMPING;
    }
    if was_finishing {
        end_finishing(was_lengthened, changed_bounds);
        if ends_finishing {
            return RUNNING;
        }
    }
    // 3. Test for convergence, by the whole step.
    let least = least_reduction(FTOL, cost);
    let small_reduction = undamped & (reduction <= least) & !is_far_from_minimum();
    let status = convergence_status(small_reduction, undamped & is_short());
    if status != RUNNING {
        return status;
    }
    // 4. Decide whether the next step may be taken without an evaluation. The quadratic model must predict its
    // reduction well: a penalty changes it by an unknown amount, the secant term differs from step to step, and after a
    // change of the active bounds the last two reductions say nothing about the rate of convergence.
    let is_near = (cost <= LARGEST_COST) & (finishing_steps <= TRUSTED_STEPS);
    let is_predictable = (sums[1] == 0.0) & !has_secant_term & !changed_bounds & is_comparable();
    let shrinkage = contraction(reduction, predicted_reduction);
    let would_converge_after = (reduction * shrinkage <= least) & (squared_distance() * shrinkage <= NEAR);
    return take_step(slot, TRUSTS_STEPS & is_near & undamped & is_predictable & would_converge_after);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= member_count() {
        return;
    }
    let slot = slot_at(id.x);
    load_member(slot);
    rounds += 1;
    // 1. Judge the trial point.
    let finite = trial_is_finite();
    var status = judge_trial_point(finite);
    if accepts {
        accept_trial_point(slot);
    }
    // 2. Choose the next one. After an accepted step the other point is the one before it, which was finite. The slot
    // is hidden from compilers, which would keep the addresses of step 1 in registers.
    let same_slot = at_run_time(slot);
    if status == RUNNING && !ends_finishing {
        status = choose_trial_point(same_slot, finite | (rejections == 0));
    }
    // 3. Conclude the finishing steps.
    if ends_finishing {
        if undoes_last_step {
            exchange_points(same_slot);
        }
        status = finishing_status(same_slot);
    }
    if status == RUNNING && rounds >= MAX_ROUNDS {
        status = MAX_ROUNDS_STATUS;
    }
    store_member(same_slot);
    control[cell(STATUS, same_slot)] = status;
}
