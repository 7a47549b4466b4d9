// How a pixel counts by least squares, for normal.wgsl.

// Adds a pixel's residual to the cost, and returns the factor of its rows, and the residual times its own.
fn add_residual(r: f32) -> vec2<f32> {
    sums[0] += r * r;
    return vec2<f32>(1.0, r);
}

fn gradient_of(i: u32) -> f32 {
    return totals[FIRST + 1u + i];
}

fn curvature_ratio() -> f32 {
    return 1.0;
}

fn add_loss_sums(slot: u32) {
}
