// The damped step inside the box for step.wgsl: (A + S + mu diag A) delta = g, S = s s^T of secant.wgsl, bounds by an
// active set (see docs/src/equations.md). Twin of src/solver/round/step/damped.rs and system.rs.
//@use math, packed, solve, faces

// PARAMETERS as the compiler cannot know it: unrolling every loop below takes software drivers seconds.
var<private> parameter_count: u32;

var<private> delta: array<f32, PARAMETERS>;
var<private> secant: array<f32, PARAMETERS>; // s, zeros unless secant.wgsl sets it
var<private> free: array<bool, PARAMETERS>;
var<private> rescaled: bool;
var<private> reduction: f32; // 2 g delta - delta (A + S) delta, and
var<private> step_length: f32; // |sqrt(diag A) delta|, both before the step was shortened
var<private> taken_reduction: f32; // of the shortened step; negative if it was shortened: it says nothing of the next
var<private> damping_floor: f32;
var<private> lowest: f32; // counts as a diagonal element of A in the damping, at least
var<private> step_damping: f32; // the largest share of its own diagonal by which a free parameter is damped
var<private> step_scale: f32; // |sqrt(diag A) theta| over the parameters that moved

fn normal_entry(slot: u32, p: u32, q: u32) -> f32 {
    return state[at(NORMAL + packed_symmetric(p, q), slot)];
}

// The same with what bends the cost.
fn curvature(slot: u32, p: u32, q: u32) -> f32 {
    return normal_entry(slot, p, q) + secant[p] * secant[q];
}

// Its bounds leave room, it is not pushed against one, and the model depends on it.
fn is_free(slot: u32, p: u32) -> bool {
    let value = state[at(ACCEPTED + p, slot)];
    let g = state[at(GRADIENT + p, slot)];
    let lower = lower_bound(slot, p);
    let upper = upper_bound(slot, p);
    let pushed = (value <= lower && g <= 0.0) || (value >= upper && g >= 0.0);
    return upper > lower && !pushed && normal_entry(slot, p, p) > 0.0;
}

// The largest diagonal element of a free parameter.
fn largest_free(slot: u32) -> f32 {
    var largest = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        largest = max(largest, select(0.0, normal_entry(slot, p, p), free[p]));
    }
    return largest;
}

// mu D, D = diag A, but at least `lowest`.
fn damping_of(slot: u32, p: u32, mu: f32) -> f32 {
    return mu * max(normal_entry(slot, p, p), lowest);
}

// Solves (A_FF + mu D) x = g_F - A_FC delta_C, A with S, for the free F, the others C held.
fn solve_free(slot: u32, mu: f32) -> bool {
    step_damping = mu;
    var order = 0u;
    for (var p = 0u; p < parameter_count; p++) {
        if free[p] {
            var column = 0u;
            var right = state[at(GRADIENT + p, slot)];
            for (var q = 0u; q < parameter_count; q++) {
                let entry = curvature(slot, p, q);
                if !free[q] {
                    right -= entry * delta[q];
                } else if q < p {
                    matrix[packed(order, column)] = entry;
                    column += 1u;
                }
            }
            let damping = damping_of(slot, p, mu);
            step_damping = max(step_damping, damping / normal_entry(slot, p, p));
            matrix[packed(order, order)] = curvature(slot, p, p) + damping;
            x[order] = right;
            order += 1u;
        }
    }
    return cholesky(order) && cholesky_solve(order);
}

// The size of a parameter by which its steps are limited: |x|, but at least a share of its unit.
fn magnitude(value: f32) -> f32 {
    return max(abs(value), SMALLEST_MAGNITUDE);
}

// Shortens a step that moves a parameter by more than LARGEST_STEP times its magnitude: to what share of it.
fn shorten(slot: u32) -> f32 {
    var largest = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        largest = max(largest, abs(delta[p]) / magnitude(state[at(ACCEPTED + p, slot)]));
    }
    if largest <= LARGEST_STEP {
        return 1.0;
    }
    for (var p = 0u; p < parameter_count; p++) {
        delta[p] *= LARGEST_STEP / largest;
    }
    return LARGEST_STEP / largest;
}

fn promise(slot: u32) {
    var linear = 0.0;
    var quadratic = 0.0;
    var length_square = 0.0;
    var scale_square = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        linear += state[at(GRADIENT + p, slot)] * delta[p];
        for (var q = 0u; q < parameter_count; q++) {
            quadratic += delta[p] * curvature(slot, p, q) * delta[q];
        }
        if delta[p] != 0.0 {
            let value = state[at(ACCEPTED + p, slot)];
            let diagonal = normal_entry(slot, p, p);
            length_square += diagonal * delta[p] * delta[p];
            scale_square += diagonal * value * value;
        }
    }
    reduction = 2.0 * linear - quadratic;
    step_length = sqrt(length_square);
    step_scale = sqrt(scale_square);
    let share = shorten(slot);
    rescaled = share < 1.0;
    taken_reduction = select(reduction, -share * (2.0 * linear - share * quadratic), rescaled);
}

// Goes towards the solution for the free parameters from face to face, until no face is met and none holds a parameter
// in vain.
fn solve_in_box(slot: u32, mu: f32) -> bool {
    for (var p = 0u; p < parameter_count; p++) {
        delta[p] = 0.0;
        free[p] = is_free(slot, p);
    }
    lowest = damping_floor * largest_free(slot);
    for (var leg = 0u; leg <= LEGS * parameter_count; leg++) {
        if !solve_free(slot, mu) {
            return false;
        }
        if !meet_faces(slot) && !release(slot, mu) {
            break;
        }
    }
    promise(slot);
    return true;
}

// Raises the damping until the matrix factorises; false if it never does.
fn solve_damped(slot: u32) -> bool {
    for (var attempt = 0u; attempt < SOLVE_ATTEMPTS; attempt++) {
        let mu = state[at(DAMPING, slot)];
        if solve_in_box(slot, mu) {
            return true;
        }
        state[at(DAMPING, slot)] = max(RAISE * mu, LEAST_RAISED);
    }
    return false;
}
