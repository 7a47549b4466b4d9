// A member's rows at a pixel, resampled where they are needed: pixel j reads the template at index_j + fraction_j -
// atanh(v/c) / (d ln lambda), clamped to its segment, by a cubic B-spline (coefficients from prefilter) or linearly;
// the slope gives the derivative by the velocity (see docs/src/equations.md).
//
// source (ROWS x INPUT_COLUMNS per member), index (i32: segment << 24 | pixel, -1 padding, which is not read),
// fraction. f32 with the position split in integer and fraction. The host emits beta_of(slot) -> v/c, segment_start,
// segment_end, inverse_step (1/pixel), BETA_SCALE = d(v/c)/du, and row_R(place): the value, d/dv if the velocity is a
// parameter, then the source's tangents.
//@use members, state

struct Rows {
    source: u32,
    index: u32,
    fraction: u32,
    // v/c, and atanh of it
    beta: f32,
    shift: f32,
}

struct Place {
    weights: Taps,
    // by the velocity's u
    slopes: Taps,
    //@for t 0 TAPS
    tap_$t: u32,
    //@end
}

fn rows_of(position: u32, spectrum: u32, slot: u32) -> Rows {
    let beta = beta_of(slot);
    let square = beta * beta;
    let shift = beta + beta * square * (0.33333333 + 0.2 * square);
    return Rows(
        source_base(position, spectrum), index_base(position, spectrum), fraction_base(position, spectrum), beta, shift,
    );
}

fn look_at(rows: Rows, pixel: u32) -> Place {
    let code = index[rows.index + pixel];
    let segment = u32(max(code, 0)) >> 24u;
    let start = segment_start(segment);
    let last = segment_end(segment) - 1;
    let shift = rows.shift * inverse_step(segment);
    let whole = floor(shift);
    var i = (code & 0xffffff) - i32(whole);
    var x = fraction[rows.fraction + pixel] - (shift - whole);
    if x < 0.0 {
        x += 1.0;
        i -= 1;
    }
    let outside = i < start || i >= last;
    i = clamp(i, start, last);
    x = select(x, 0.0, outside);
    var place: Place;
    //@for t 0 TAPS
    place.tap_$t = rows.source + u32(clamp(i + $t - FIRST_TAP, start, last));
    //@end
    let factor = -inverse_step(segment) * BETA_SCALE / (1.0 - rows.beta * rows.beta);
    // the selections also keep compilers from rearranging weights and rows, differently in each kernel
    place.weights = select(tap_weights(x), Taps(), code < 0);
    place.slopes = select(tap_slopes(x) * factor, Taps(), outside || code < 0);
    return place;
}

fn value_of(place: Place, row: u32) -> f32 {
    var value = 0.0;
    //@for t 0 TAPS
    value += place.weights[$t] * source[place.tap_$t + row * INPUT_COLUMNS];
    //@end
    return value;
}

fn slope_of_value(place: Place) -> f32 {
    var slope = 0.0;
    //@for t 0 TAPS
    slope += place.slopes[$t] * source[place.tap_$t];
    //@end
    return slope;
}
