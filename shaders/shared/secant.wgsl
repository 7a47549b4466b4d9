// The curvature that the normal matrix leaves out: sum r H(r), which bends the cost where a parameter is known no
// better than its own size. Symmetric update of rank one (Nocedal & Wright 2006, eq. 6.24) of the structured secant
// equation (Dennis, Gay & Welsch 1981). For kernels that have box.wgsl's bindings. Twin of
// src/solver/round/step/secant.rs.
//@use state, box, judge

// From the accepted point to the other: the trial point, or the one before when that was accepted.
fn between(slot: u32, p: u32) -> f32 {
    return trial(p, slot) - state[at(ACCEPTED + p, slot)];
}

// Sets secant, such that the mean normal matrix and its square foretell how the gradient changes from here to the other
// point: zeros where that is too far away, where the step between them did not lead well beyond a minimum, or where the
// matrix does well enough. Whether it has an effect.
fn set_secant(slot: u32) -> bool {
    var quadratic = 0.0;
    var down = 0.0;
    var up = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        secant[p] = 0.0;
        if !is_free(slot, p) {
            continue;
        }
        var told = 0.0;
        for (var q = 0u; q < parameter_count; q++) {
            let there = state[at(TRIAL_NORMAL + packed_symmetric(p, q), slot)];
            told += 0.5 * (normal_entry(slot, p, q) + there) * between(slot, q);
        }
        let here = state[at(GRADIENT + p, slot)];
        let there = state[at(TRIAL_GRADIENT + p, slot)];
        secant[p] = here - there - told;
        quadratic += told * between(slot, p);
        down += here * between(slot, p);
        up -= there * between(slot, p);
    }
    let extra = down + up - quadratic;
    let close = quadratic > 0.0 && quadratic <= CLOSE * accepted_cost(slot);
    let rejected = control[cell(REJECTIONS, slot)] > 0;
    let beyond = min(down, up) > 0.0 && select(down, up, rejected) >= BENT * select(up, down, rejected);
    let bent = beyond && extra >= BENT * quadratic;
    // before the second round there is no other point
    let known = close && bent && control[cell(ROUNDS, slot)] > 1 && trial_is_finite(slot);
    for (var p = 0u; p < parameter_count; p++) {
        secant[p] = select(0.0, secant[p] / sqrt(extra), known);
    }
    return known;
}

// Whether the cost rises more steeply at the trial point than it falls at the accepted one: the minimum between them is
// nearer to this.
fn turns_back(slot: u32) -> bool {
    var slope = 0.0;
    for (var p = 0u; p < parameter_count; p++) {
        slope += between(slot, p) * (state[at(GRADIENT + p, slot)] + state[at(TRIAL_GRADIENT + p, slot)]);
    }
    return slope < 0.0;
}
