// Doppler shift and resampling: pixel j reads the template at index_j + fraction_j - atanh(v/c) / (d ln lambda), clamped to
// its segment, by a cubic B-spline (coefficients from prefilter) or linearly; the slope gives the derivative by the velocity (design §2.3).
//
// One pixel of a member an invocation. members, state, source (ROWS x INPUT_COLUMNS a member), output (OUTPUT_ROWS x PIXELS a member:
// value, d/dv if the velocity is a parameter, then the source's tangents), index (i32: segment << 24 | pixel, -1 padding), fraction.
// f32 with the position split in integer and fraction. The host emits velocity(slot) -> v/c, segment_start, segment_end,
// inverse_step (1/pixel), and BETA_SCALE = d(v/c)/du.
//@use members, state

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let pixel = group.y * 64u + lane.x;
    if pixel >= PIXELS || group.x >= active_count() {
        return;
    }
    let slot = slot_at(group.x);
    let spectrum = spectrum_of(slot);
    let target_base = output_base(group.x, spectrum) + pixel;
    let code = index[index_base(group.x, spectrum) + pixel];
    if code < 0 {
        for (var r = 0u; r < OUTPUT_ROWS; r++) {
            output[target_base + r * PIXELS] = 0.0;
        }
        return;
    }
    let segment = u32(code) >> 24u;
    let start = segment_start(segment);
    let last = segment_end(segment) - 1;
    let beta = beta_of(slot);
    let square = beta * beta;
    let shift = (beta + beta * square * (0.33333333 + 0.2 * square)) * inverse_step(segment);
    let whole = floor(shift);
    var i = (code & 0xffffff) - i32(whole);
    var x = fraction[fraction_base(group.x, spectrum) + pixel] - (shift - whole);
    if x < 0.0 {
        x += 1.0;
        i -= 1;
    }
    let outside = i < start || i >= last;
    i = clamp(i, start, last);
    x = select(x, 0.0, outside);

    let origin = source_base(group.x, spectrum);
    //@for t 0 TAPS
    let tap_$t = origin + u32(clamp(i + $t - FIRST_TAP, start, last));
    //@end
    let weight = tap_weights(x);
    let slope_weight = tap_slopes(x);
    var value = 0.0;
    var slope = 0.0;
    //@for t 0 TAPS
    value += weight[$t] * source[tap_$t];
    slope += slope_weight[$t] * source[tap_$t];
    //@end
    output[target_base] = value;
    if VELOCITY_ROWS > 0u {
        let factor = -inverse_step(segment) * BETA_SCALE / (1.0 - square);
        output[target_base + PIXELS] = select(slope * factor, 0.0, outside);
    }
    for (var r = 1u; r < ROWS; r++) {
        let row = r * INPUT_COLUMNS;
        var tangent = 0.0;
        //@for t 0 TAPS
        tangent += weight[$t] * source[tap_$t + row];
        //@end
        output[target_base + (r + VELOCITY_ROWS) * PIXELS] = tangent;
    }
}
