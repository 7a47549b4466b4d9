// What becomes of a trial point: acceptance, Nielsen's damping (1999), MINPACK's gtol. For kernels that have box.wgsl's
// bindings. With box.wgsl and faces.wgsl it has the equations of src/solver/round/step/equations.rs.
//@use math, state, box

fn cell(field: u32, slot: u32) -> u32 {
    return field * CAPACITY + slot;
}

// chi2, penalty, ln det, gradient, normal matrix
fn sum_count() -> u32 {
    return 3u + parameter_count + packed(parameter_count, 0u);
}

// chi2 + penalty of the accepted point.
fn accepted_cost(slot: u32) -> f32 {
    return state[at(CHI2, slot)] + state[at(PENALTY, slot)];
}

fn trial_is_finite(slot: u32) -> bool {
    var finite = is_finite(state[at(TRIAL_CHI2, slot)] + state[at(TRIAL_PENALTY, slot)]);
    for (var i = 0u; i < sum_count(); i++) {
        finite = finite && is_finite(state[at(TRIAL_CHI2 + i, slot)]);
    }
    return finite;
}

fn exchange(one: u32, other: u32) {
    let value = state[one];
    state[one] = state[other];
    state[other] = value;
}

// Accepted and trial point change places, and so do their sums.
fn accept(slot: u32) {
    for (var p = 0u; p < parameter_count; p++) {
        exchange(at(ACCEPTED + p, slot), at(TRIAL_PARAMETERS + p, slot));
    }
    for (var i = 0u; i < sum_count(); i++) {
        exchange(at(CHI2 + i, slot), at(TRIAL_CHI2 + i, slot));
    }
}

// Nielsen's damping after an accepted step.
fn relax_damping(slot: u32, gain_ratio: f32) {
    let t = 2.0 * gain_ratio - 1.0;
    state[at(DAMPING, slot)] *= max(1.0 / 3.0, 1.0 - t * t * t);
    state[at(DAMPING_FACTOR, slot)] = 2.0;
}

fn raise_damping(slot: u32) {
    let nu = state[at(DAMPING_FACTOR, slot)];
    state[at(DAMPING, slot)] *= nu;
    state[at(DAMPING_FACTOR, slot)] = 2.0 * nu;
}

// The ratio of the reductions that two successive steps predict, between BEST_CONTRACTION and 1. The step after the
// next is expected to gain this share of what the next one gains.
fn contraction(next: f32, previous: f32) -> f32 {
    return clamp(next / previous, BEST_CONTRACTION, 1.0);
}

// MINPACK's gtol: the largest cosine between the residual and a free column of the Jacobian; 0 when nothing is free.
fn largest_cosine(slot: u32, cost: f32) -> f32 {
    var largest = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        if cost > 0.0 && is_free(slot, p) {
            let g = abs(state[at(GRADIENT + p, slot)]);
            largest = max(largest, g / sqrt(normal_entry(slot, p, p)) / sqrt(cost));
        }
    }
    return largest;
}
