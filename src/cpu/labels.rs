//! Scaled labels z = (transform(x) − mean) / std, x = origin + scale u, and their derivatives by u: a row of z, then a row for
//! each input that is a parameter. f64 inside. Twin of `shaders/labels.wgsl`.

use crate::rows::Real;
use crate::solver::recording::{LabelInput, Labels, Parameter, Source, Transform};

/// z and ∂z/∂u of one label at `u`.
pub fn scaled(input: &LabelInput, parameters: &[Parameter], u: &[f64]) -> (f64, f64) {
    let (x, dx) = match input.source {
        Source::Fixed(x) => (x, 0.0),
        Source::Parameter(p) => (parameters[p].origin + parameters[p].scale * u[p], parameters[p].scale),
    };
    match input.transform {
        Transform::Identity => ((x - input.mean) / input.std, dx / input.std),
        Transform::Log10 => ((x.log10() - input.mean) / input.std, dx / (x * std::f64::consts::LN_10 * input.std)),
    }
}

/// Fills one member's block.
pub fn labels<R: Real>(stage: &Labels, parameters: &[Parameter], u: &[f64], out: &mut [R]) {
    out.fill(R::ZERO);
    let mut row = 0;
    for (l, input) in stage.inputs.iter().enumerate() {
        let (z, slope) = scaled(input, parameters, u);
        out[l] = R::of(z);
        if matches!(input.source, Source::Parameter(_)) {
            row += 1;
            out[row * stage.stride + l] = R::of(slope);
        }
    }
}
