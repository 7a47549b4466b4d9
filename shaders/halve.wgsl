// Stops members that another start of their spectrum makes superfluous: those that sit in the basin of a better one or
// are on their way to it, and those that are hopelessly above it. After their first round all but the best sit out
// some. A decision uses the numbers of a group after the same round, never another decision of this round.
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

fn apart(parameter: u32, slot: u32, other: u32) -> f32 {
    return state[at(ACCEPTED + parameter, slot)] - state[at(ACCEPTED + parameter, other)];
}

// Rounds since it entered, those that it sat out among them: PAUSE is 0, or 1 + these. Others set it from 0 to 1 in
// this round.
fn age(slot: u32) -> i32 {
    return control_of(ROUNDS, slot) + max(control_of(PAUSE, slot), 1) - 1;
}

// Whether `other` is one that `slot` may give way to: its cost, then its slot, is lower.
fn is_better(other: u32, slot: u32) -> bool {
    let cost = cost_of(slot);
    let best = cost_of(other);
    let status = control_of(STATUS, other);
    // it may have left already, and must not count if it has not
    let gone = age(other) < age(slot) && control_of(GAVE_WAY, other) != GOES_ON;
    let failed = status != RUNNING && status < 0;
    return !failed && !gone && (best < cost || (best == cost && other < slot));
}

fn still_apart(parameter: u32, slot: u32, other: u32) -> f32 {
    return state[at(TRIAL_PARAMETERS + parameter, slot)] - state[at(ACCEPTED + parameter, other)];
}

// What the next step of a running member promises; 0 where it was shortened or follows a rejection: nothing is believed
// of it.
fn promise_of(slot: u32) -> f32 {
    return select(0.0, max(state[at(PREDICTED_REDUCTION, slot)], 0.0), control_of(REJECTIONS, slot) == 0);
}

// Whether a member will not fall by more than `little`.
fn has_settled(slot: u32, little: f32) -> bool {
    if control_of(STATUS, slot) != RUNNING {
        return true;
    }
    let promise = promise_of(slot);
    return control_of(ROUNDS, slot) > FIRST_ROUND && promise > 0.0 && promise <= little;
}

// Whether `slot` gives way to a better one: GOES_ON, SAME_BASIN_CODE or HOPELESS_CODE.
fn gives_way(slot: u32, other: u32) -> i32 {
    let best = cost_of(other);
    let rise = cost_of(slot) - best;
    let noise = EQUAL * best;
    // cost and slope at the member along the line from the better one, by the better one's quadratic model
    var slope = 0.0;
    var own_slope = 0.0;
    var curvature = 0.0;
    // and that of where its step leads
    var left = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        let delta = apart(p, slot, other);
        slope += state[at(GRADIENT + p, other)] * delta;
        own_slope += state[at(GRADIENT + p, slot)] * delta;
        let ahead = still_apart(p, slot, other);
        for (var q = 0u; q < parameter_count; q++) {
            let normal = state[at(NORMAL + packed_symmetric(p, q), other)];
            curvature += delta * normal * apart(q, slot, other);
            left += ahead * normal * still_apart(q, slot, other);
        }
    }
    let promise = promise_of(slot);
    let leads = left <= NEARER * curvature && promise > 0.0 && promise >= LEAST_PROMISE * rise && promise <= rise;
    if leads && has_settled(other, SETTLED * rise) {
        return SAME_BASIN_CODE;
    }
    let allowed = SAME_BASIN * curvature + noise;
    // next to what has gone on while it sat out, its step tells more than its cost
    let is_behind = control_of(ROUNDS, slot) == FIRST_ROUND && control_of(ROUNDS, other) > FIRST_ROUND;
    let is_predicted = abs(rise - (curvature - 2.0 * slope)) <= allowed;
    if !is_behind && is_predicted && abs(own_slope - (slope - curvature)) <= allowed {
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
    var is_best = true;
    var other = next_of(slot);
    for (var k = 1u; verdict == GOES_ON && other != slot && k < CAPACITY; k++) {
        if is_better(other, slot) {
            verdict = gives_way(slot, other);
            is_best = is_best && control_of(STATUS, other) != RUNNING;
        }
        other = next_of(other);
    }
    control[GAVE_WAY * CAPACITY + slot] = verdict;
    let is_first = control_of(ROUNDS, slot) == FIRST_ROUND && control_of(PAUSE, slot) == 0;
    if verdict == GOES_ON && is_first && !is_best {
        control[PAUSE * CAPACITY + slot] = 1;
    }
}
