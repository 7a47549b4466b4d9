// Derivatives of a user's `model` by differences in f32, for models without `derivative`. Twin of differences.rs.
//
// No single step is right in f32: a wide one keeps the digits of an amplitude, but not the place of a narrow line far
// from zero. So there are two, powers of two of what the parameter is, which add without rounding, and the wide one
// counts where they agree.

const POPFIT_WIDE: f32 = 0.00390625;
const POPFIT_NARROW: f32 = 0.00012207031;
// Rounding of a value, a few units.
const POPFIT_NOISE: f32 = 5e-7;

// The model with parameter k moved.
fn popfit_moved(u: ptr<function, array<f32, PARAMETERS>>, k: u32, to: f32, x: PopfitPoint) -> f32 {
    let own = (*u)[k];
    (*u)[k] = to;
    let value = model(*u, x);
    (*u)[k] = own;
    return value;
}

// Central where the bounds leave room, else from the parabola through three points on one side.
fn popfit_difference(u: ptr<function, array<f32, PARAMETERS>>, k: u32, step: f32, x: PopfitPoint, value: f32) -> f32 {
    let own = (*u)[k];
    let below = own - scale_of(PARAMETERS + k, here.x, here.y);
    let above = scale_of(2u * PARAMETERS + k, here.x, here.y) - own;
    let room = max(below, above);
    if room <= 0.0 {
        return 0.0;
    }
    if step <= min(below, above) {
        let high = popfit_moved(u, k, own + step, x);
        let low = popfit_moved(u, k, own - step, x);
        if is_finite(high) && is_finite(low) {
            return (high - low) / (2.0 * step);
        }
        return select((value - low) / step, (high - value) / step, is_finite(high));
    }
    let h = min(step, 0.5 * room) * select(-1.0, 1.0, above >= below);
    let first = popfit_moved(u, k, own + h, x);
    let second = popfit_moved(u, k, own + 2.0 * h, x);
    return (4.0 * (first - value) - (second - value)) / (2.0 * h);
}

fn popfit_slope(u: ptr<function, array<f32, PARAMETERS>>, k: u32, x: PopfitPoint, value: f32) -> f32 {
    let size = max(abs((*u)[k]), 0.01 * scale_of(k, here.x, here.y));
    let unit = bitcast<f32>(bitcast<u32>(size) & 0x7f800000u);
    let wide = popfit_difference(u, k, POPFIT_WIDE * unit, x, value);
    let narrow = popfit_difference(u, k, POPFIT_NARROW * unit, x, value);
    let rounding = POPFIT_NOISE * abs(value) / (POPFIT_NARROW * unit);
    return select(narrow, wide, abs(wide - narrow) <= max(rounding, 0.001 * abs(wide)));
}
