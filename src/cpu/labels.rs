//! Scaled labels z = (transform(x) − mean) / std, x = origin + scale u, and their derivatives by u: a row of z, then a row for
//! each parameter that a label depends on. f64 inside. Twin of `shaders/labels.wgsl`.

use crate::rows::Real;
use crate::solver::recording::{LabelInput, Labels, Parameter, Transform, tangents};

/// z of one label at `u`, and its derivative by the label's physical value.
pub fn scaled(input: &LabelInput, parameters: &[Parameter], u: &[f64]) -> (f64, f64) {
    let x = input.source.value(|p| parameters[p].origin + parameters[p].scale * u[p]);
    match input.transform {
        Transform::Identity => ((x - input.mean) / input.std, 1.0 / input.std),
        Transform::Log10 => ((x.log10() - input.mean) / input.std, 1.0 / (x * std::f64::consts::LN_10 * input.std)),
    }
}

/// Fills one member's block.
pub fn labels<R: Real>(stage: &Labels, parameters: &[Parameter], u: &[f64], out: &mut [R]) {
    out.fill(R::ZERO);
    let rows = tangents(&stage.inputs);
    for (l, input) in stage.inputs.iter().enumerate() {
        let (z, slope) = scaled(input, parameters, u);
        out[l] = R::of(z);
        for (p, factor) in input.source.slopes().into_iter().filter(|_| stage.derivatives) {
            let row = 1 + rows.iter().position(|q| *q == p).unwrap_or_default();
            out[row * stage.stride + l] = R::of(slope * factor * parameters[p].scale);
        }
    }
}
