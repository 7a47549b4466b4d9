// Linear interpolation, taps i, i+1 at i + x.
const FIRST_TAP: i32 = 0;

fn tap_weights(x: f32) -> vec2<f32> {
    return vec2<f32>(1.0 - x, x);
}

fn tap_slopes(x: f32) -> vec2<f32> {
    return vec2<f32>(-1.0, 1.0);
}
