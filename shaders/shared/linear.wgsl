// Linear interpolation, taps i, i+1 at i + x.
alias Taps = vec2<f32>;
const FIRST_TAP: i32 = 0;

fn tap_weights(x: f32) -> Taps {
    return Taps(1.0 - x, x);
}

fn tap_slopes(x: f32) -> Taps {
    return Taps(-1.0, 1.0);
}

// Integrals of the taps' triangles up to x.
fn tap_integrals(x: f32) -> Taps {
    let y = 1.0 - x;
    return Taps(1.0 - 0.5 * y * y, 0.5 * x * x);
}
