// Stops starts that another start of their spectrum makes superfluous (successive halving): those in the basin of a
// better one or on their way to it, and those hopelessly above it. After their first round all but the best pause. A
// decision uses the numbers of a group after the same round, never another decision of this round.
//
// One active member an invocation. members, state, control (read-write: GAVE_WAY and PAUSE of the own slot; STATUS,
// ROUNDS, REJECTIONS). f32. Twin of src/solver/round/halve.rs.
//@use members, state, packed

// PARAMETERS as the compiler cannot know it: unrolled loops take software drivers seconds.
var<private> parameter_count: u32;

fn cost_of(slot: u32) -> f32 {
    return state[at(CHI2, slot)] + state[at(PENALTY, slot)];
}

fn control_of(cell: u32, slot: u32) -> i32 {
    return control[cell * CAPACITY + slot];
}

// From the accepted point of `other` to that of `slot`.
fn difference(parameter: u32, slot: u32, other: u32) -> f32 {
    return state[at(ACCEPTED + parameter, slot)] - state[at(ACCEPTED + parameter, other)];
}

// From the accepted point of `other` to the trial point of `slot`.
fn trial_difference(parameter: u32, slot: u32, other: u32) -> f32 {
    return state[at(TRIAL_PARAMETERS + parameter, slot)] - state[at(ACCEPTED + parameter, other)];
}

// Rounds since the member entered, including those in which it paused: PAUSE is 0, or 1 + these. Other invocations set
// it from 0 to 1 in this round.
fn age(slot: u32) -> i32 {
    return control_of(ROUNDS, slot) + max(control_of(PAUSE, slot), 1) - 1;
}

// True if `slot` may give way to `other`, which has a lower cost (or slot, if equal) and has not failed or given way.
fn is_better(other: u32, slot: u32) -> bool {
    let cost = cost_of(slot);
    let other_cost = cost_of(other);
    let status = control_of(STATUS, other);
    // a start that gave way in an earlier round may have been removed already; it must not count if it has not, either
    let gave_way_before = age(other) < age(slot) && control_of(GAVE_WAY, other) != GOES_ON;
    let failed = status != RUNNING && status < 0;
    return !failed && !gave_way_before && (other_cost < cost || (other_cost == cost && other < slot));
}

// The reduction that a running member's next step predicts; 0 where the step was rescaled or follows a rejection.
fn credible_reduction(slot: u32) -> f32 {
    return select(0.0, max(state[at(PREDICTED_REDUCTION, slot)], 0.0), control_of(REJECTIONS, slot) == 0);
}

// True if a member has ended, or will not fall by more than `limit`.
fn has_settled(slot: u32, limit: f32) -> bool {
    if control_of(STATUS, slot) != RUNNING {
        return true;
    }
    let reduction = credible_reduction(slot);
    return control_of(ROUNDS, slot) > FIRST_ROUND && reduction > 0.0 && reduction <= limit;
}

// Why `slot` should give way to a better start: SAME_BASIN_CODE or HOPELESS_CODE; GOES_ON if it should not.
fn reason_to_give_way(slot: u32, better: u32) -> i32 {
    let best_cost = cost_of(better);
    let rise = cost_of(slot) - best_cost;
    let cost_error = EQUAL_COSTS * best_cost;
    // 1. Slopes and curvature along the line from the better start, by its quadratic model, and the squared distance
    // from it at the end of the next step.
    var slope = 0.0;
    var own_slope = 0.0;
    var curvature = 0.0;
    var remaining_distance = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        let delta = difference(p, slot, better);
        slope += state[at(GRADIENT + p, better)] * delta;
        own_slope += state[at(GRADIENT + p, slot)] * delta;
        let trial_delta = trial_difference(p, slot, better);
        for (var q = 0u; q < parameter_count; q++) {
            let normal = state[at(NORMAL + packed_symmetric(p, q), better)];
            curvature += delta * normal * difference(q, slot, better);
            remaining_distance += trial_delta * normal * trial_difference(q, slot, better);
        }
    }
    // 2. The next step leads to a better start that has settled.
    let reduction = credible_reduction(slot);
    let ends_near = remaining_distance <= NEARER_SHARE * curvature;
    let ends_as_low = reduction > 0.0 && reduction >= LEAST_REDUCTION_SHARE * rise && reduction <= rise;
    if ends_near && ends_as_low && has_settled(better, SETTLED_SHARE * rise) {
        return SAME_BASIN_CODE;
    }
    // 3. The better start's model predicts cost and slope. A member that paused while the better start went on is
    // judged by its step alone: its cost is still that of a point far from the minimum.
    let allowed_error = SAME_BASIN_ERROR * curvature + cost_error;
    let is_behind = control_of(ROUNDS, slot) == FIRST_ROUND && control_of(ROUNDS, better) > FIRST_ROUND;
    let is_predicted = abs(rise - (curvature - 2.0 * slope)) <= allowed_error;
    if !is_behind && is_predicted && abs(own_slope - (slope - curvature)) <= allowed_error {
        return SAME_BASIN_CODE;
    }
    // 4. Its possible further gain is smaller than its rise.
    let possible_gain = max(LEAST_RISE, GAIN_FACTOR * abs(state[at(PREDICTED_REDUCTION, slot)])) + cost_error;
    let is_hopeless = rise > possible_gain && control_of(ROUNDS, slot) >= HOPELESS_ROUND;
    return select(GOES_ON, HOPELESS_CODE, is_hopeless);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= active_count() {
        return;
    }
    let slot = slot_at(id.x);
    if control_of(STATUS, slot) != RUNNING || control_of(ROUNDS, slot) < FIRST_ROUND {
        return;
    }
    parameter_count = min(PARAMETERS, arrayLength(&state));
    var decision = GOES_ON;
    var is_best = true;
    var other = next_of(slot);
    for (var k = 1u; decision == GOES_ON && other != slot && k < CAPACITY; k++) {
        if is_better(other, slot) {
            decision = reason_to_give_way(slot, other);
            is_best = is_best && control_of(STATUS, other) != RUNNING;
        }
        other = next_of(other);
    }
    control[GAVE_WAY * CAPACITY + slot] = decision;
    let is_after_first_round = control_of(ROUNDS, slot) == FIRST_ROUND && control_of(PAUSE, slot) == 0;
    if decision == GOES_ON && is_after_first_round && !is_best {
        control[PAUSE * CAPACITY + slot] = 1;
    }
}
