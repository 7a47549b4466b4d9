//! Scaled labels as generated WGSL. The constants of z are folded in f64, so that f32 sees numbers of order one.

use std::f64::consts::LN_10;

use super::source::Constants;
use crate::solver::recording::{LabelInput, Parameter, Source, Transform};

/// Declares `fn NAME(slot: u32) -> vec2<f32>`: z and dz/du of a label.
pub(super) fn declare_label(constants: &mut Constants, parameters: &[Parameter], label: &LabelInput, name: &str) {
    let body = match (label.source, label.transform) {
        (Source::Fixed(x), transform) => {
            let value = if transform == Transform::Log10 { x.log10() } else { x };
            format!("vec2<f32>({}, 0.0)", constants.literal((value - label.mean) / label.std))
        }
        (Source::Parameter(p), Transform::Identity) => {
            let Parameter { origin, scale, .. } = &parameters[p];
            let first = constants.literal((origin - label.mean) / label.std);
            let slope = constants.literal(scale / label.std);
            format!("label_identity(trial({p}u, slot), {first}, {slope})")
        }
        (Source::Parameter(p), Transform::Log10) => {
            let Parameter { origin, scale, .. } = &parameters[p];
            let unit = 10f64.powf(label.mean);
            let (first, slope) = (constants.literal(origin / unit), constants.literal(scale / unit));
            let factor = constants.literal(1.0 / (label.std * LN_10));
            format!("label_log10(trial({p}u, slot), {first}, {slope}, {factor})")
        }
    };
    constants.line(&format!("fn {name}(slot: u32) -> vec2<f32> {{ return {body}; }}"));
}
