// Stops members that another start of their spectrum makes superfluous: those that sit in the basin of a better one, and those that
// are hopelessly above it. A decision uses the numbers of a group after the same round, never another decision of this round.
//
// One member an invocation. members, state, control (read-write: GAVE_WAY of the own slot; STATUS, ROUNDS). f32. Twin of
// src/cpu/halve.rs.
//@use members, state, packed

// PARAMETERS as the compiler cannot know it: unrolled loops take software drivers seconds.
var<private> parameter_count: u32;

fn cost_of(slot: u32) -> f32 {
    return state[at(CHI2, slot)] + state[at(PENALTY, slot)];
}

fn control_of(cell: u32, slot: u32) -> i32 {
    return control[cell * CAPACITY + slot];
}

fn apart(parameter: u32, slot: u32, other: u32) -> f32 {
    return state[at(ACCEPTED + parameter, slot)] - state[at(ACCEPTED + parameter, other)];
}

// Whether `slot` gives way to `other`: GOES_ON, SAME_BASIN_CODE or HOPELESS_CODE.
fn gives_way(slot: u32, other: u32) -> i32 {
    let cost = cost_of(slot);
    let best = cost_of(other);
    let is_better = best < cost || (best == cost && other < slot);
    let status = control_of(STATUS, other);
    // it may have left already, and must not count if it has not
    let gone = control_of(ROUNDS, other) < control_of(ROUNDS, slot) && control_of(GAVE_WAY, other) != GOES_ON;
    if !is_better || gone || (status != RUNNING && status < 0) {
        return GOES_ON;
    }
    let rise = cost - best;
    let noise = EQUAL * best;
    // cost and slope at the member along the line from the better one, by the better one's quadratic model
    var slope = 0.0;
    var own_slope = 0.0;
    var curvature = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        let delta = apart(p, slot, other);
        slope += state[at(GRADIENT + p, other)] * delta;
        own_slope += state[at(GRADIENT + p, slot)] * delta;
        for (var q = 0u; q < parameter_count; q++) {
            curvature += delta * state[at(NORMAL + packed_symmetric(p, q), other)] * apart(q, slot, other);
        }
    }
    let allowed = SAME_BASIN * curvature + noise;
    if abs(rise - (curvature - 2.0 * slope)) <= allowed && abs(own_slope - (slope - curvature)) <= allowed {
        return SAME_BASIN_CODE;
    }
    let hopeless = rise > max(LEAST_RISE, HOPELESS * abs(state[at(PREDICTED_REDUCTION, slot)])) + noise;
    return select(GOES_ON, HOPELESS_CODE, hopeless && control_of(ROUNDS, slot) >= HOPELESS_ROUND);
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
    var verdict = GOES_ON;
    var other = next_of(slot);
    for (var k = 1u; verdict == GOES_ON && other != slot && k < CAPACITY; k++) {
        verdict = gives_way(slot, other);
        other = next_of(other);
    }
    control[GAVE_WAY * CAPACITY + slot] = verdict;
}
