// The curvature that the normal matrix lacks: sum r H(r), which counts where a parameter is known no better than its
// own size. Symmetric rank-one update (Nocedal & Wright 2006, eq. 6.24) of the structured secant equation (Dennis, Gay
// & Welsch 1981). For kernels that have box.wgsl's bindings. Twin of src/solver/round/step/secant.rs.
//@use state, box, judge

// From the accepted point to the other: the trial point or, if that was accepted, the point before it.
fn step_to_trial_point(slot: u32, p: u32) -> f32 {
    return trial(p, slot) - state[at(ACCEPTED + p, slot)];
}

// Sets `secant`, s, such that A + s s^T predicts the change of the gradient between the two points, with A the mean
// normal matrix: zeros where the points are too far apart, where the step between them did not lead well beyond a
// minimum, or where A alone predicts the change well enough. True if it is not zero.
fn set_secant(slot: u32) -> bool {
    // 1. Compare the change of the gradient with that which A predicts.
    var quadratic = 0.0;
    var fall_at_accepted = 0.0;
    var rise_at_other = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        secant[p] = 0.0;
        if !is_free(slot, p) {
            continue;
        }
        var predicted = 0.0;
        for (var q = 0u; q < parameter_count; q++) {
            let other_entry = state[at(TRIAL_NORMAL + packed_symmetric(p, q), slot)];
            predicted += 0.5 * (normal_entry(slot, p, q) + other_entry) * step_to_trial_point(slot, q);
        }
        let slope = state[at(GRADIENT + p, slot)];
        let other_slope = state[at(TRIAL_GRADIENT + p, slot)];
        secant[p] = slope - other_slope - predicted;
        quadratic += predicted * step_to_trial_point(slot, p);
        fall_at_accepted += slope * step_to_trial_point(slot, p);
        rise_at_other -= other_slope * step_to_trial_point(slot, p);
    }
    // 2. The curvature along the step that A lacks.
    let missing_curvature = fall_at_accepted + rise_at_other - quadratic;
    // 3. The conditions under which it is used; before the second round there is no other point.
    let are_close = quadratic > 0.0 && quadratic <= CLOSE_POINTS_SHARE * accepted_cost(slot);
    let rejected = control[cell(REJECTIONS, slot)] > 0;
    let newer_slope = select(fall_at_accepted, rise_at_other, rejected);
    let older_slope = select(rise_at_other, fall_at_accepted, rejected);
    let is_between = min(fall_at_accepted, rise_at_other) > 0.0 && newer_slope >= LEAST_SECANT_SHARE * older_slope;
    let is_large = is_between && missing_curvature >= LEAST_SECANT_SHARE * quadratic;
    let is_usable = are_close && is_large && control[cell(ROUNDS, slot)] > 1 && trial_is_finite(slot);
    for (var p = 0u; p < parameter_count; p++) {
        secant[p] = select(0.0, secant[p] / sqrt(missing_curvature), is_usable);
    }
    return is_usable;
}

// True if the cost rises more at the trial point than it falls at the accepted one, along the line between them: the
// trial point lies beyond twice the way to the minimum.
fn overshoots_minimum(slot: u32) -> bool {
    var slope = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        slope += step_to_trial_point(slot, p) * (state[at(GRADIENT + p, slot)] + state[at(TRIAL_GRADIENT + p, slot)]);
    }
    return slope < 0.0;
}
