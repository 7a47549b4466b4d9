// Adds an arm to the member's sums (see docs/src/equations.md): r = D - weight value continuum, J = weight continuum
// tangents,
//
//   chi2 += r^T r,  g += J^T r,  A += J^T J - B^T C^-1 B,  B = S^T J,  S_jc = weight_j value_j q_c(lambda_j)
//
// One workgroup a member. members, state (read-write), pixel_data, weight (PIXELS a spectrum). The rows are a buffer's
// (stored_rows.wgsl) or resampled here (resampled_rows.wgsl), the continuum is continuum.wgsl's (projection.wgsl), is
// solved here in a first sweep over the pixels (elimination_first.wgsl), or is none. The host emits tangent_I(place),
// the derivative by the I-th of the UNIQUE parameters, numbered PARAMETER_OF[I], and FIRST, the number of totals before
// this kernel's; the continuum's parts vanish at TERMS = 0. The sums of a residual are in least_squares.wgsl or
// robust.wgsl. f32, sums over 64 lanes in a fixed order.
//@use math, members, state, packed, tree

const CROSS: u32 = 1u + UNIQUE + UNIQUE * (UNIQUE + 1u) / 2u; // B, TERMS x UNIQUE

fn add_pixel(place: Place, j: u32, w: f32, d: f32) {
    let value = row_0(place);
    load_basis(j);
    let scaled = w * level();
    let row = add_residual(d - scaled * value); // sqrt of the weight, and the weighted residual
    //@for i 0 UNIQUE
    let j_$i = scaled * row.x * tangent_$i(place);
    sums[1 + $i] += j_$i * row.y;
    //@for k 0 $i+1
    sums[1 + UNIQUE + $i * ($i + 1) / 2 + $k] += j_$i * j_$k;
    //@end
    //@end
    let scaled_value = w * row.x * value;
    //@for c 0 TERMS
    let s_$c = scaled_value * p[$c];
    //@for i 0 UNIQUE
    sums[CROSS + $cu * UNIQUE + $iu] += s_$c * j_$i;
    //@end
    //@end
}

// Index of element (c, i) of B in the totals.
fn cross_at(c: u32, i: u32) -> u32 {
    return FIRST + CROSS + c * UNIQUE + i;
}

// Replaces column i of B by that of L^-1 T B: the transform T leads from the stored basis to the orthonormal one.
fn forward_substitute(i: u32) {
    orthonormalise_vector(cross_at(0u, i), UNIQUE);
    for (var c = 0u; c < TERMS; c++) {
        var sum = totals[cross_at(c, i)];
        for (var k = 0u; k < c; k++) {
            sum -= factor_at(c, k) * totals[cross_at(k, i)];
        }
        totals[cross_at(c, i)] = sum / factor_at(c, c);
    }
}

fn add_entry(slot: u32, i: u32, k: u32) {
    var sum = totals[FIRST + 1u + UNIQUE + packed(i, k)];
    for (var c = 0u; c < TERMS; c++) {
        sum -= totals[cross_at(c, i)] * totals[cross_at(c, k)];
    }
    state[at(TRIAL_NORMAL + packed(PARAMETER_OF[i], PARAMETER_OF[k]), slot)] += curvature_ratio() * sum;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let slot = slot_at(group.x);
    let spectrum = spectrum_of(slot);
    let rows = rows_of(group.x, spectrum, slot);
    prepare_continuum(rows, group.x, slot, lane);
    let data_start = pixel_data_base(group.x, spectrum);
    let weight_start = weight_base(group.x, spectrum);
    for (var j = lane; j < PIXELS; j += 64u) {
        let w = weight[weight_start + j];
        if w > 0.0 {
            add_pixel(look_at(rows, j), j, w, pixel_data[data_start + j]);
        }
    }
    reduce_sums(lane);
    if lane < UNIQUE {
        forward_substitute(lane);
        state[at(TRIAL_GRADIENT + PARAMETER_OF[lane], slot)] += gradient_of(lane);
    }
    workgroupBarrier();
    for (var i = 0u; i < UNIQUE; i++) {
        if lane <= i {
            add_entry(slot, i, lane);
        }
    }
    if lane == 0u {
        let chi2 = state[at(TRIAL_CHI2, slot)] + totals[FIRST];
        state[at(TRIAL_CHI2, slot)] = select(chi2, nan_like(chi2), continuum_failed());
        add_loss_sums(slot);
    }
}
