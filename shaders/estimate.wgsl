// Adds a curve's points to the member's sums under an estimator other than least squares, with no continuum:
//
//   chi2 += cost,  g += J^T r,  A += J^T J,  J = s tangents
//
// One workgroup a member. members, state (read-write), model ((1 + tangents) x PIXELS a member), pixel_data and weight
// (PIXELS a spectrum). The host emits share_of(d, w, m) -> (cost, r, s), see estimator.wgsl, and tangent_I(place), the
// derivative by the I-th of the UNIQUE parameters, numbered PARAMETER_OF[I]. f32, sums over 64 lanes in a fixed order.
//@use estimator, members, state, packed, tree, stored_rows

fn add_pixel(place: Place, w: f32, d: f32) {
    let share = share_of(d, w, row_0(place));
    sums[0] += share.x;
    //@for i 0 UNIQUE
    let j_$i = share.z * tangent_$i(place);
    sums[1 + $i] += j_$i * share.y;
    //@for k 0 $i+1
    sums[1 + UNIQUE + $i * ($i + 1) / 2 + $k] += j_$i * j_$k;
    //@end
    //@end
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let slot = slot_at(group.x);
    let spectrum = spectrum_of(slot);
    let rows = rows_of(group.x, spectrum, slot);
    let data_start = pixel_data_base(group.x, spectrum);
    let weight_start = weight_base(group.x, spectrum);
    for (var j = lane; j < PIXELS; j += 64u) {
        let w = weight[weight_start + j];
        if w > 0.0 {
            add_pixel(look_at(rows, j), w, pixel_data[data_start + j]);
        }
    }
    reduce_sums(lane);
    if lane < UNIQUE {
        state[at(TRIAL_GRADIENT + PARAMETER_OF[lane], slot)] += totals[1u + lane];
        for (var k = 0u; k <= lane; k++) {
            let entry = at(TRIAL_NORMAL + packed(PARAMETER_OF[lane], PARAMETER_OF[k]), slot);
            state[entry] += totals[1u + UNIQUE + packed(lane, k)];
        }
    }
    if lane == 0u {
        state[at(TRIAL_CHI2, slot)] += totals[0];
    }
}
