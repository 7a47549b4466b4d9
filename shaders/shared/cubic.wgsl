// Cubic B-spline, taps i-1 .. i+2 at i + x.
alias Taps = vec4<f32>;
const FIRST_TAP: i32 = 1;

fn tap_weights(x: f32) -> Taps {
    let y = 1.0 - x;
    return Taps(
        y * y * y * 0.16666667,
        ((3.0 * x - 6.0) * x * x + 4.0) * 0.16666667,
        (((-3.0 * x + 3.0) * x + 3.0) * x + 1.0) * 0.16666667,
        x * x * x * 0.16666667,
    );
}

fn tap_slopes(x: f32) -> Taps {
    let y = 1.0 - x;
    return Taps(-0.5 * y * y, (1.5 * x - 2.0) * x, (-1.5 * x + 1.0) * x + 0.5, 0.5 * x * x);
}

// Integrals of the taps' splines up to x.
fn tap_integrals(x: f32) -> Taps {
    let y = 1.0 - x;
    return Taps(
        1.0 - y * y * y * y * 0.041666667,
        0.5 + x * (0.66666667 - x * x * (0.33333333 - 0.125 * x)),
        0.5 - y * (0.66666667 - y * y * (0.33333333 - 0.125 * y)),
        x * x * x * x * 0.041666667,
    );
}
