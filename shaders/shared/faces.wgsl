// The way of a step through the box, from face to face: a primal active-set method (Nocedal & Wright 2006, algorithm
// 16.3). For kernels that have box.wgsl's bindings. Twin of src/solver/round/step/faces.rs.

// Of each parameter the share of the way to the solution that lies inside the box; or, if it is held in vain, what it
// would gain.
var<private> scores: array<f32, PARAMETERS>;

// The step to the face that lies before a goal outside.
fn face(slot: u32, p: u32, goal: f32) -> f32 {
    let value = state[at(ACCEPTED + p, slot)];
    return select(upper_bound(slot, p), lower_bound(slot, p), value + goal < lower_bound(slot, p)) - value;
}

// The share of the way from delta to goal that lies inside the bounds; all of it where nothing is left to go.
fn share_inside(slot: u32, p: u32, goal: f32) -> f32 {
    let there = state[at(ACCEPTED + p, slot)] + goal;
    let left = goal - delta[p];
    if left == 0.0 || (there >= lower_bound(slot, p) && there <= upper_bound(slot, p)) {
        return 1.0;
    }
    return clamp((face(slot, p, goal) - delta[p]) / left, 0.0, 1.0);
}

// Goes on from delta towards x as far as the first face, and holds what has met it; false when nothing has.
fn meet_faces(slot: u32) -> bool {
    var first = 1.0;
    var order = 0u;
    for (var p = 0u; p < parameter_count; p++) {
        if free[p] {
            scores[p] = share_inside(slot, p, x[order]);
            first = min(first, scores[p]);
            order += 1u;
        }
    }
    order = 0u;
    for (var p = 0u; p < parameter_count; p++) {
        if free[p] {
            let goal = x[order];
            order += 1u;
            delta[p] = select(goal, delta[p] + first * (goal - delta[p]), first < 1.0);
            if first < 1.0 && scores[p] == first {
                delta[p] = face(slot, p, goal);
                free[p] = false;
            }
        }
    }
    return first < 1.0;
}

// Frees the held parameter that promises most, if what is foretold falls on its way inside; false when there is none.
fn release(slot: u32, mu: f32) -> bool {
    var most = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        scores[p] = 0.0;
        if !free[p] {
            scores[p] = gain(slot, p, mu);
        }
        most = max(most, scores[p]);
    }
    for (var p = 0u; p < parameter_count; p++) {
        free[p] = free[p] || (most > 0.0 && scores[p] == most);
    }
    return most > 0.0;
}

// Of parameter p, were it free alone; 0 where it is not held in vain.
fn gain(slot: u32, p: u32, mu: f32) -> f32 {
    var slope = state[at(GRADIENT + p, slot)];
    var size = abs(slope);
    for (var q = 0u; q < parameter_count; q++) {
        let damping = select(0.0, damping_of(slot, p, mu), q == p);
        let term = (curvature(slot, p, q) + damping) * delta[q];
        slope -= term;
        size += abs(term);
    }
    let lower = lower_bound(slot, p);
    let upper = upper_bound(slot, p);
    let value = state[at(ACCEPTED + p, slot)] + delta[p];
    let inwards = select(-slope, slope, value - lower <= upper - value);
    let diagonal = normal_entry(slot, p, p);
    let vain = lower < upper && diagonal > 0.0 && inwards > SLIGHT * size;
    return select(0.0, inwards * (inwards / diagonal), vain);
}
