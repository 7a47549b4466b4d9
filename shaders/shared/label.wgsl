// A scaled label and its derivative. The host folds origin, scale, mean and std in f64, so that z carries a few
// roundings and not the absolute error of a temperature.

// z = log10(ratio) / std, ratio = x / 10^mean, factor = 1 / (std ln 10); and dz/dratio.
fn label_log10(ratio: f32, factor: f32) -> vec2<f32> {
    return vec2<f32>(logf(ratio) * factor, factor / ratio);
}
