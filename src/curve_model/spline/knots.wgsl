// Tabulated templates as cubic splines: amplitude S(x - shift) + offset. `fill` is generated for the axes; `table` has
// S's coefficients.

struct SplineKnots {
    cell: u32,
    value: vec4<f32>,
    slope: vec4<f32>,
}

fn spline_middle(f: f32) -> f32 {
    return (4.0 + f * f * (3.0 * f - 6.0)) * 0.16666667;
}

fn spline_turn(f: f32) -> f32 {
    return f * (1.5 * f - 2.0);
}

// The four B-splines that are not zero at t, in steps from the first of `count` points. Twin of Knots::at in table.rs.
fn spline_knots(t: f32, count: u32) -> SplineKnots {
    let inside = clamp(t, 0.0, f32(count - 1u));
    let cell = min(u32(inside), count - 2u);
    let f = inside - f32(cell);
    let g = 1.0 - f;
    let value = vec4<f32>(g * g * g * 0.16666667, spline_middle(f), spline_middle(g), f * f * f * 0.16666667);
    let slope = vec4<f32>(-0.5 * g * g, spline_turn(f), -spline_turn(g), 0.5 * f * f);
    return SplineKnots(cell, value + (t - inside) * slope, slope);
}
