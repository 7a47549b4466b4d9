// Resets the members' sums and adds Gaussian priors and training hulls as least-squares rows (see
// docs/src/equations.md).
//
//   prior of parameter p:  r = (mean - u) w,  J_p = w,  w = 1/tau
//   hull, where d > 0:     r = -weight d,     J_p = weight sum_a n_a dz_a/du_p,  d = max over facets of n.z + offset
//   penalty += r^2,  g += J r,  A += J J^T
//
// One member an invocation. members, state (read-write), limits (spectra x 4 x PARAMETERS: lower, upper, mean, weight),
// facets (all hulls, each facet its normal and its offset), hull_weights (HULLS per spectrum). f32. The host emits
// `hull_rows`, one call a hull.
//
// With LABELLED = 1 (0 or 1) the invocation also does the work of labels.wgsl for its member, with the arrays of
// label_rows.wgsl: both read the trial point.
//@use math, members, state, packed, label

fn limit(slot: u32, kind: u32, parameter: u32) -> f32 {
    return limits[(spectrum_of(slot) * 4u + kind) * PARAMETERS + parameter];
}

var<private> jacobian: array<f32, PARAMETERS>;

// Adds a row with data 0 and model `value`, whose derivatives are in `jacobian`.
fn add_row(slot: u32, value: f32) {
    state[at(TRIAL_PENALTY, slot)] += value * value;
    for (var p = 0u; p < PARAMETERS; p++) {
        let j = jacobian[p];
        if j != 0.0 {
            state[at(TRIAL_GRADIENT + p, slot)] -= j * value;
            for (var q = 0u; q <= p; q++) {
                state[at(TRIAL_NORMAL + packed(p, q), slot)] += j * jacobian[q];
            }
        }
    }
}

//@for h 0 HULLS
fn hull_row_$h(slot: u32) {
    var z: array<f32, HULL_AXES_$h>;
    var slope: array<f32, HULL_AXES_$h>;
    hull_labels_$h(slot, &z, &slope);
    var worst = 0u;
    var distance = -1.0e30;
    for (var f = 0u; f < HULL_FACETS_$h; f++) {
        let facet = HULL_FIRST_$h + f * (HULL_AXES_$h + 1u);
        var d = facets[facet + HULL_AXES_$h];
        //@for a 0 HULL_AXES_$h
        d += facets[facet + $a] * z[$a];
        //@end
        worst = select(worst, facet, d > distance);
        distance = max(distance, d);
    }
    if distance > 0.0 {
        for (var p = 0u; p < PARAMETERS; p++) {
            jacobian[p] = 0.0;
        }
        let weight = hull_weight_$h(slot);
        hull_jacobian_$h(worst, weight, &slope);
        add_row(slot, weight * distance);
    }
}
//@end

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= member_count() {
        return;
    }
    let slot = slot_at(id.x);
    for (var i = 0u; i < TRIAL_SUMS; i++) {
        state[at(TRIAL_CHI2 + i, slot)] = 0.0;
    }
    for (var p = 0u; p < PARAMETERS; p++) {
        let weight = limit(slot, 3u, p);
        if weight > 0.0 {
            let residual = (limit(slot, 2u, p) - trial(p, slot)) * weight;
            state[at(TRIAL_PENALTY, slot)] += residual * residual;
            state[at(TRIAL_GRADIENT + p, slot)] += weight * residual;
            state[at(TRIAL_NORMAL + packed(p, p), slot)] += weight * weight;
        }
    }
    //@for h 0 HULLS
    hull_row_$h(slot);
    //@end
    //@for l 0 LABELLED
    write_label_rows(id.x);
    //@end
}
