// A scaled label and its derivative by the parameter u. The host folds origin, scale, mean and std in f64, so that z carries
// two roundings and not the absolute error of a temperature.

// z = first + slope u
fn label_identity(u: f32, first: f32, slope: f32) -> vec2<f32> {
    return vec2<f32>(first + slope * u, slope);
}

// z = log10(x / 10^mean) / std, x / 10^mean = first + slope u, factor = 1 / (std ln 10)
fn label_log10(u: f32, first: f32, slope: f32, factor: f32) -> vec2<f32> {
    let ratio = first + slope * u;
    return vec2<f32>(logf(ratio) * factor, slope / ratio * factor);
}
