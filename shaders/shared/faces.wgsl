// The path of a step through the box of the bounds: a primal active-set method (Nocedal & Wright 2006, algorithm 16.3).
// For kernels that have box.wgsl's bindings. Twin of src/solver/round/step/faces.rs.

// For each free parameter the share of the way to the solution that lies inside the box; for each held one the
// predicted gain if it were released.
var<private> scores: array<f32, PARAMETERS>;

// The step to the face that lies before a goal outside the box.
fn step_to_face(slot: u32, p: u32, goal: f32) -> f32 {
    let value = state[at(ACCEPTED + p, slot)];
    return select(upper_bound(slot, p), lower_bound(slot, p), value + goal < lower_bound(slot, p)) - value;
}

// The share of the way from delta to goal that lies inside the bounds; 1 where nothing is left to go.
fn share_inside(slot: u32, p: u32, goal: f32) -> f32 {
    let end = state[at(ACCEPTED + p, slot)] + goal;
    let distance = goal - delta[p];
    if distance == 0.0 || (end >= lower_bound(slot, p) && end <= upper_bound(slot, p)) {
        return 1.0;
    }
    return clamp((step_to_face(slot, p, goal) - delta[p]) / distance, 0.0, 1.0);
}

// Moves the step towards x up to the first bound and holds the parameters that meet it; false if none does.
fn advance_to_face(slot: u32) -> bool {
    // 1. Find the share of the way that each free parameter can go.
    var smallest_share = 1.0;
    var order = 0u;
    for (var p = 0u; p < parameter_count; p++) {
        if free[p] {
            scores[p] = share_inside(slot, p, x[order]);
            smallest_share = min(smallest_share, scores[p]);
            order += 1u;
        }
    }
    // 2. Go as far as the nearest bound, and hold what meets it exactly there.
    order = 0u;
    for (var p = 0u; p < parameter_count; p++) {
        if free[p] {
            let goal = x[order];
            order += 1u;
            delta[p] = select(goal, delta[p] + smallest_share * (goal - delta[p]), smallest_share < 1.0);
            if smallest_share < 1.0 && scores[p] == smallest_share {
                delta[p] = step_to_face(slot, p, goal);
                free[p] = false;
            }
        }
    }
    return smallest_share < 1.0;
}

// Frees the held parameter with the largest predicted gain, if the cost falls inwards there; false if there is none.
fn release_best_parameter(slot: u32, mu: f32) -> bool {
    var largest_gain = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        scores[p] = 0.0;
        if !free[p] {
            scores[p] = predict_gain(slot, p, mu);
        }
        largest_gain = max(largest_gain, scores[p]);
    }
    for (var p = 0u; p < parameter_count; p++) {
        free[p] = free[p] || (largest_gain > 0.0 && scores[p] == largest_gain);
    }
    return largest_gain > 0.0;
}

// The cost reduction predicted if parameter p alone is freed from its bound; 0 unless the cost falls inwards.
fn predict_gain(slot: u32, p: u32, mu: f32) -> f32 {
    var slope = state[at(GRADIENT + p, slot)];
    var size_of_terms = abs(slope);
    for (var q = 0u; q < parameter_count; q++) {
        let damping = select(0.0, damping_term(slot, p, mu), q == p);
        let term = (curvature(slot, p, q) + damping) * delta[q];
        slope -= term;
        size_of_terms += abs(term);
    }
    let lower = lower_bound(slot, p);
    let upper = upper_bound(slot, p);
    let value = state[at(ACCEPTED + p, slot)] + delta[p];
    let slope_inwards = select(-slope, slope, value - lower <= upper - value);
    let diagonal = normal_entry(slot, p, p);
    let gains = lower < upper && diagonal > 0.0 && slope_inwards > UNCERTAIN_SLOPE_SHARE * size_of_terms;
    return select(0.0, slope_inwards * (slope_inwards / diagonal), gains);
}
