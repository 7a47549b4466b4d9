// The path of a step through the box of the bounds: a primal active-set method (Nocedal & Wright 2006, algorithm 16.3).
// For step.wgsl. Twin of src/solver/round/step/faces.rs.

// For each free parameter the share of the way to the solution that lies inside the box; for each held one the
// predicted gain if it were released.
var<private> scores: array<f32, PARAMETERS>;

// The step to the face that lies before a goal outside the box.
fn step_to_face(p: u32, goal: f32) -> f32 {
    return select(upper[p], lower[p], accepted[p] + goal < lower[p]) - accepted[p];
}

// The share of the way from delta to goal that lies inside the bounds; 1 where nothing is left to go.
fn share_inside(p: u32, goal: f32) -> f32 {
    let end = accepted[p] + goal;
    let distance = goal - delta[p];
    let share = clamp((step_to_face(p, goal) - delta[p]) / distance, 0.0, 1.0);
    return select(share, 1.0, (distance == 0.0) | ((end >= lower[p]) & (end <= upper[p])));
}

// Moves the step towards the solution up to the first bound and holds the parameters that meet it; false if none does.
fn advance_to_face() -> bool {
    // 1. Find the share of the way that each free parameter can go.
    var smallest_share = 1.0;
    //@for p 0 PARAMETERS
    scores[$p] = select(1.0, share_inside($pu, solution[$p]), free[$p]);
    smallest_share = min(smallest_share, scores[$p]);
    //@end
    // 2. Go to the solution or, if a bound is nearer, as far as that, and hold what meets it exactly there.
    if smallest_share >= 1.0 {
        //@for p 0 PARAMETERS
        delta[$p] = solution[$p];
        //@end
        return false;
    }
    //@for p 0 PARAMETERS
    {
        let goal = solution[$p];
        let meets = free[$p] & (scores[$p] == smallest_share);
        delta[$p] = select(delta[$p] + smallest_share * (goal - delta[$p]), step_to_face($pu, goal), meets);
        free[$p] = free[$p] & !meets;
    }
    //@end
    return true;
}

// Frees the held parameter with the largest predicted gain, if the cost falls inwards there; false if there is none.
fn release_best_parameter() -> bool {
    var largest_gain = 0.0;
    //@for p 0 PARAMETERS
    scores[$p] = 0.0;
    if !free[$p] {
        scores[$p] = predict_gain($pu);
    }
    largest_gain = max(largest_gain, scores[$p]);
    //@end
    //@for p 0 PARAMETERS
    free[$p] = free[$p] | ((largest_gain > 0.0) & (scores[$p] == largest_gain));
    //@end
    return largest_gain > 0.0;
}

// The cost reduction predicted if parameter p alone is freed from its bound; 0 unless the cost falls inwards.
fn predict_gain(p: u32) -> f32 {
    var slope = gradient(p);
    var size_of_terms = abs(slope);
    //@for q 0 PARAMETERS
    {
        let damping = select(0.0, damping_term(p), $qu == p);
        let term = (curvature(p, $qu) + damping) * delta[$q];
        slope -= term;
        size_of_terms += abs(term);
    }
    //@end
    let value = accepted[p] + delta[p];
    let slope_inwards = select(-slope, slope, value - lower[p] <= upper[p] - value);
    let diagonal = normal_entry(p, p);
    let gains = (lower[p] < upper[p]) & (diagonal > 0.0) & (slope_inwards > UNCERTAIN_SLOPE_SHARE * size_of_terms);
    return select(0.0, slope_inwards * (slope_inwards / diagonal), gains);
}
