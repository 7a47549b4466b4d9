// The damped step inside the box for step.wgsl: (A + S + mu diag A) delta = g, S = s s^T of secant.wgsl, bounds by an
// active set (see docs/src/equations.md). Twin of src/solver/round/step/damped.rs and system.rs.
//@use math, packed, solve, faces

// PARAMETERS as the compiler cannot know it: unrolling every loop below takes software drivers seconds.
var<private> parameter_count: u32;

var<private> delta: array<f32, PARAMETERS>;
var<private> secant: array<f32, PARAMETERS>; // s, zeros unless secant.wgsl sets it
var<private> free: array<bool, PARAMETERS>;
var<private> rescaled: bool; // the step is shorter or longer than it was solved for
var<private> reduction: f32; // 2 g delta - delta (A + S) delta before the step was shortened
var<private> step_length: f32; // |sqrt(diag A) delta| before the step was shortened
var<private> taken_reduction: f32; // that of the shortened step, negative if it was rescaled: see was_rescaled
var<private> damping_floor: f32; // share of the largest diagonal element of A
var<private> diagonal_floor: f32; // least diagonal element of A in the damping
var<private> step_damping: f32; // the largest share of its own diagonal by which a free parameter is damped
var<private> step_scale: f32; // |sqrt(diag A) theta| over the parameters that moved

fn normal_entry(slot: u32, p: u32, q: u32) -> f32 {
    return state[at(NORMAL + packed_symmetric(p, q), slot)];
}

// Element (p, q) of A + s s^T, the normal matrix and the secant correction.
fn curvature(slot: u32, p: u32, q: u32) -> f32 {
    return normal_entry(slot, p, q) + secant[p] * secant[q];
}

// True if a parameter may move: its bounds leave room, it is not pushed against one, and the model depends on it.
fn is_free(slot: u32, p: u32) -> bool {
    let value = state[at(ACCEPTED + p, slot)];
    let slope = state[at(GRADIENT + p, slot)];
    let lower = lower_bound(slot, p);
    let upper = upper_bound(slot, p);
    let pushed = (value <= lower && slope <= 0.0) || (value >= upper && slope >= 0.0);
    return upper > lower && !pushed && normal_entry(slot, p, p) > 0.0;
}

// The largest diagonal element of a free parameter.
fn largest_diagonal(slot: u32) -> f32 {
    var largest = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        largest = max(largest, select(0.0, normal_entry(slot, p, p), free[p]));
    }
    return largest;
}

// The damping term of a diagonal element: mu D, D = diag A, but at least `diagonal_floor`.
fn damping_term(slot: u32, p: u32, mu: f32) -> f32 {
    return mu * max(normal_entry(slot, p, p), diagonal_floor);
}

// Solves (A_FF + mu D) x = g_F - A_FC delta_C, A with S, for the free F, the others C held.
fn solve_free(slot: u32, mu: f32) -> bool {
    step_damping = mu;
    var order = 0u;
    for (var p = 0u; p < parameter_count; p++) {
        if free[p] {
            var column = 0u;
            var right_side = state[at(GRADIENT + p, slot)];
            for (var q = 0u; q < parameter_count; q++) {
                let entry = curvature(slot, p, q);
                if !free[q] {
                    right_side -= entry * delta[q];
                } else if q < p {
                    matrix[packed(order, column)] = entry;
                    column += 1u;
                }
            }
            let damping = damping_term(slot, p, mu);
            step_damping = max(step_damping, damping / normal_entry(slot, p, p));
            matrix[packed(order, order)] = curvature(slot, p, p) + damping;
            x[order] = right_side;
            order += 1u;
        }
    }
    return cholesky(order) && cholesky_solve(order);
}

// The magnitude of a parameter, by which its steps are limited: |x|, but at least a share of its unit.
fn magnitude(value: f32) -> f32 {
    return max(abs(value), SMALLEST_MAGNITUDE);
}

// Shortens a step that moves a parameter by more than LARGEST_STEP times its magnitude; returns the share that is left.
fn shorten(slot: u32) -> f32 {
    var largest_ratio = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        largest_ratio = max(largest_ratio, abs(delta[p]) / magnitude(state[at(ACCEPTED + p, slot)]));
    }
    if largest_ratio <= LARGEST_STEP {
        return 1.0;
    }
    for (var p = 0u; p < parameter_count; p++) {
        delta[p] *= LARGEST_STEP / largest_ratio;
    }
    return LARGEST_STEP / largest_ratio;
}

// Predicts the reduction of the step, shortens it where it is too long, and measures it.
fn finish_step(slot: u32) {
    var linear = 0.0;
    var quadratic = 0.0;
    var length_squared = 0.0;
    var scale_squared = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        linear += state[at(GRADIENT + p, slot)] * delta[p];
        for (var q = 0u; q < parameter_count; q++) {
            quadratic += delta[p] * curvature(slot, p, q) * delta[q];
        }
        if delta[p] != 0.0 {
            let value = state[at(ACCEPTED + p, slot)];
            let diagonal = normal_entry(slot, p, p);
            length_squared += diagonal * delta[p] * delta[p];
            scale_squared += diagonal * value * value;
        }
    }
    reduction = 2.0 * linear - quadratic;
    step_length = sqrt(length_squared);
    step_scale = sqrt(scale_squared);
    let share = shorten(slot);
    rescaled = share < 1.0;
    taken_reduction = select(reduction, -share * (2.0 * linear - share * quadratic), rescaled);
}

// Walks towards the solution for the free parameters until no bound is met and no parameter is released.
fn solve_in_box(slot: u32, mu: f32) -> bool {
    for (var p = 0u; p < parameter_count; p++) {
        delta[p] = 0.0;
        free[p] = is_free(slot, p);
    }
    diagonal_floor = damping_floor * largest_diagonal(slot);
    for (var leg = 0u; leg <= LEGS_PER_PARAMETER * parameter_count; leg++) {
        if !solve_free(slot, mu) {
            return false;
        }
        if !advance_to_face(slot) && !release_best_parameter(slot, mu) {
            break;
        }
    }
    finish_step(slot);
    return true;
}

// Raises the damping until the matrix factorises; false if it never does.
fn solve_damped_step(slot: u32) -> bool {
    for (var attempt = 0u; attempt < SOLVE_ATTEMPTS; attempt++) {
        let mu = state[at(DAMPING, slot)];
        if solve_in_box(slot, mu) {
            return true;
        }
        state[at(DAMPING, slot)] = max(DAMPING_RAISE * mu, LEAST_RAISED_DAMPING);
    }
    return false;
}
