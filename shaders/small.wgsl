// Small fits: up to SOME_ROUNDS rounds of Levenberg-Marquardt (src/solver/small.rs) of one fit an
// invocation, which sums its points itself. The state stays in its buffer between dispatches; loops are short, as
// drivers count them.
//
// state, control as in step.wgsl; observed (POINTS x 2 x CAPACITY: y, weight), grid (predictors x points x CAPACITY, or
// shared), limits (PARAMETERS x 3 x CAPACITY: lower, upper, unit). f32. fill() and predictors_at() are generated. Twin
// of src/cpu/small.rs.
//@use functions, state, packed, box, judge

fn limit(kind: u32, parameter: u32, slot: u32) -> f32 {
    return limits[(3u * parameter + kind) * CAPACITY + slot];
}

fn lower_bound(slot: u32, parameter: u32) -> f32 {
    return limit(0u, parameter, slot);
}

fn upper_bound(slot: u32, parameter: u32) -> f32 {
    return limit(1u, parameter, slot);
}

// The sums at the trial point: chi2, gradient and normal matrix by u, the parameters in their units.
fn linearise(slot: u32) {
    var physical: array<f32, PARAMETERS>;
    //@for p 0 PARAMETERS
    let unit$p = limit(2u, $pu, slot);
    physical[$p] = trial($pu, slot) * unit$p;
    var residual$p = 0.0; // of the gradient
    //@for q 0 $p+1
    var sum$p_$q = 0.0;
    //@end
    //@end
    var chi2 = 0.0;
    var out: array<f32, ROWS>;
    for (var point = 0u; point < POINTS; point++) {
        let weight = observed[(2u * point + 1u) * CAPACITY + slot];
        // a masked row may be anything, NaN included
        if weight > 0.0 {
            fill(predictors_at(point, slot), &physical, &out);
            let r = weight * (observed[2u * point * CAPACITY + slot] - out[0]);
            chi2 += r * r;
            //@for p 0 PARAMETERS
            let j$p = weight * out[1 + $p] * unit$p;
            residual$p += j$p * r;
            //@for q 0 $p+1
            sum$p_$q += j$p * j$q;
            //@end
            //@end
        }
    }
    state[at(TRIAL_CHI2, slot)] = chi2;
    state[at(TRIAL_PENALTY, slot)] = 0.0;
    state[at(TRIAL_LN_DET, slot)] = 0.0;
    //@for p 0 PARAMETERS
    state[at(TRIAL_GRADIENT + $pu, slot)] = residual$p;
    //@for q 0 $p+1
    state[at(TRIAL_NORMAL + packed($pu, $qu), slot)] = sum$p_$q;
    //@end
    //@end
}

// Returns true if the step moves no parameter by more than TRUSTED_STEP of its magnitude, and leaves all their signs.
fn is_trusted(slot: u32) -> bool {
    var trusted = !rescaled;
    for (var p = 0u; p < parameter_count; p++) {
        let value = state[at(ACCEPTED + p, slot)];
        let is_short = abs(delta[p]) <= TRUSTED_STEP * magnitude(value);
        trusted = trusted && is_short && value * (value + delta[p]) >= 0.0;
    }
    return trusted;
}

// Chooses the next trial point (RUNNING), or tells why there is none. The last one is taken without an evaluation where
// it is to be trusted, and not at all where it promises too little for one.
fn choose(slot: u32) -> i32 {
    let cost = accepted_cost(slot);
    if largest_cosine(slot, cost) <= GTOL {
        return GTOL_STATUS;
    }
    damping_floor = select(DIAGONAL_FLOOR, 0.0, control[cell(MODE, slot)] == RELEASED);
    if !solve_damped(slot) {
        return SINGULAR;
    }
    let rejections = control[cell(REJECTIONS, slot)];
    let remaining = select(reduction, expected_reduction(slot), is_comparable(slot));
    let least = least_reduction(TOLERANCE, cost);
    var small_reduction = remaining <= least;
    var small_step = is_short();
    if releases_floor(slot, small_reduction || small_step) {
        control[cell(MODE, slot)] = RELEASED; // what the floor held back is to move, too
    }
    let settled = step_damping < UNDAMPED;
    let trusted = is_trusted(slot);
    small_reduction = small_reduction && settled && (trusted || reduction <= least);
    small_step = small_step && settled;
    state[at(PREDICTED_REDUCTION, slot)] = taken_reduction;
    moves(slot);
    if small_reduction || small_step {
        if trusted {
            for (var p = 0u; p < parameter_count; p++) {
                state[at(ACCEPTED + p, slot)] = trial(p, slot);
            }
            state[at(CHI2, slot)] = max(cost - abs(taken_reduction), 0.0);
        }
        return converged(small_reduction, small_step);
    }
    if rejections > MAX_REJECTIONS {
        return STALLED;
    }
    return select(RUNNING, MAX_ROUNDS_STATUS, control[cell(ROUNDS, slot)] >= MAX_ROUNDS);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let slot = id.x;
    if slot >= CAPACITY {
        return;
    }
    parameter_count = min(PARAMETERS, arrayLength(&limits));
    var status = control[cell(STATUS, slot)];
    for (var round = 0u; round < SOME_ROUNDS && status == RUNNING; round++) {
        linearise(slot);
        let rounds = control[cell(ROUNDS, slot)] + 1;
        control[cell(ROUNDS, slot)] = rounds;
        if rounds == 1 {
            status = accept_first(slot);
        } else {
            judge_by_cost(slot, NOISE);
        }
        if status == RUNNING {
            status = choose(slot);
        }
    }
    control[cell(STATUS, slot)] = status;
}
