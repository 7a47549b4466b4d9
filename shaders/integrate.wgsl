// Doppler shift and means over pixels: between the fractional indices a and b of its edges a pixel's mean is (sum over
// k of c_k [Q(b - k) - Q(a - k)]) / (b - a), Q the integral of a cubic B-spline or of a triangle (see
// docs/src/equations.md and src/kernels/integrate.rs). The indices of the edges are those of resampled_rows.wgsl, minus
// and plus the distances in `edges`.
//
// One invocation per pixel of a member. members, state, source (ROWS x INPUT_COLUMNS a member), index, fraction, edges
// (2 x PIXELS), output (OUTPUT_ROWS x PIXELS per member). f32. The host emits the functions that resampled_rows.wgsl
// names.
//@use members, state

struct Edge {
    // The first of TAPS template pixels that the edge weighs.
    first: i32,
    integrals: Taps,
    values: Taps,
}

struct Place {
    low: Edge,
    high: Edge,
    start: i32,
    last: i32,
    // 1 / (b - a)
    per_width: f32,
    // Derivative of both indices by the velocity's u.
    slope: f32,
    source: u32,
}

fn edge_at(index: i32, position: f32) -> Edge {
    let whole = floor(position);
    let x = position - whole;
    return Edge(index + i32(whole) - FIRST_TAP, tap_integrals(x), tap_weights(x));
}

fn coefficient(place: Place, row: u32, k: i32) -> f32 {
    return source[place.source + row * INPUT_COLUMNS + u32(clamp(k, place.start, place.last))];
}

fn value_of(place: Place, row: u32) -> f32 {
    var sum = 0.0;
    for (var k = place.low.first; k < place.high.first; k += 1) {
        sum += coefficient(place, row, k);
    }
    //@for t 0 TAPS
    sum += place.high.integrals[$t] * coefficient(place, row, place.high.first + $t)
        - place.low.integrals[$t] * coefficient(place, row, place.low.first + $t);
    //@end
    return sum * place.per_width;
}

fn slope_of_value(place: Place) -> f32 {
    var sum = 0.0;
    //@for t 0 TAPS
    sum += place.high.values[$t] * coefficient(place, 0u, place.high.first + $t)
        - place.low.values[$t] * coefficient(place, 0u, place.low.first + $t);
    //@end
    return sum * place.per_width * place.slope;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let pixel = group.y * 64u + lane.x;
    if pixel >= PIXELS || group.x >= member_count() {
        return;
    }
    let slot = slot_at(group.x);
    let spectrum = spectrum_of(slot);
    let target_place = output_base(group.x, spectrum) + pixel;
    let code = index[index_base(group.x, spectrum) + pixel];
    if code < 0 {
        //@for r 0 OUTPUT_ROWS
        output[target_place + $ru * PIXELS] = 0.0;
        //@end
        return;
    }
    let segment = u32(code) >> 24u;
    let beta = beta_of(slot);
    let square = beta * beta;
    let shift = (beta + beta * square * (0.33333333 + 0.2 * square)) * inverse_step(segment);
    let whole = floor(shift);
    let i = (code & 0xffffff) - i32(whole);
    let x = fraction[fraction_base(group.x, spectrum) + pixel] - (shift - whole);
    let edge = edges_base(group.x, spectrum) + pixel;
    let below = edges[edge];
    let above = edges[edge + PIXELS];
    let factor = -inverse_step(segment) * BETA_SCALE / (1.0 - square);
    let place = Place(
        edge_at(i, x - below), edge_at(i, x + above), segment_start(segment), segment_end(segment) - 1,
        1.0 / (below + above), factor, source_base(group.x, spectrum),
    );
    //@for r 0 OUTPUT_ROWS
    output[target_place + $ru * PIXELS] = row_$r(place);
    //@end
}
