// Activations: (value, derivative). The host emits `fn activation(x: f32) -> vec2<f32>` that calls one of them.

fn silu(x: f32) -> vec2<f32> {
    let s = sigmoid(x);
    return vec2<f32>(x * s, s * (1.0 + x * (1.0 - s)));
}

fn leaky_relu(x: f32) -> vec2<f32> {
    let slope = select(0.01, 1.0, x > 0.0);
    return vec2<f32>(slope * x, slope);
}

fn relu(x: f32) -> vec2<f32> {
    let value = select(0.0, x, x > 0.0);
    return vec2<f32>(select(value, x, is_nan(x)), select(0.0, 1.0, x > 0.0));
}

fn logistic(x: f32) -> vec2<f32> {
    let s = sigmoid(x);
    return vec2<f32>(s, s * sigmoid(-x));
}

fn hyperbolic_tangent(x: f32) -> vec2<f32> {
    let t = tanhf(x);
    return vec2<f32>(t, (1.0 - t) * (1.0 + t));
}

// x Phi(x), derivative Phi(x) + x phi(x).
fn gelu(x: f32) -> vec2<f32> {
    let cumulative = normal_cumulative(x);
    return vec2<f32>(x * cumulative, cumulative + x * 0.39894228 * expf(-0.5 * x * x));
}

fn identity(x: f32) -> vec2<f32> {
    return vec2<f32>(x, 1.0);
}

fn exp_clipped(x: f32, clip: f32) -> vec2<f32> {
    let value = expf(clamp(x, -clip, clip));
    let derivative = select(value, 0.0, abs(x) > clip);
    return select(vec2<f32>(value, derivative), vec2<f32>(x, x), is_nan(x));
}
