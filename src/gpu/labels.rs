//! Scaled labels as generated WGSL. The constants of z are folded in f64, so that f32 sees numbers of order one.

use std::f64::consts::LN_10;

use super::source::Constants;
use crate::solver::recording::{LabelInput, Parameter, Source, Transform};

/// Declares `fn NAME(slot: u32) -> vec2<f32>`: z of a label, and dz by the label in units of its `std` (identity) or of 10^mean.
pub(super) fn declare_label(constants: &mut Constants, parameters: &[Parameter], label: &LabelInput, name: &str) {
    let body = match (&label.source, label.transform) {
        (Source::Fixed(x), transform) => {
            let value = if transform == Transform::Log10 { x.log10() } else { *x };
            format!("vec2<f32>({}, 0.0)", constants.literal((value - label.mean) / label.std))
        }
        (_, transform) => {
            // x / unit − offset = first + Σ ratio u
            let offset = if transform == Transform::Log10 { 0.0 } else { label.mean };
            let first = label.source.value(|p| parameters[p].origin) - offset;
            let mut sum = constants.literal(first / unit(label));
            for (p, ratio) in slope_ratios(parameters, label) {
                sum += &format!(" + {} * trial({p}u, slot)", constants.literal(ratio));
            }
            match transform {
                Transform::Identity => format!("vec2<f32>({sum}, 1.0)"),
                Transform::Log10 => {
                    format!("label_log10({sum}, {})", constants.literal(1.0 / (label.std * LN_10)))
                }
            }
        }
    };
    constants.line(&format!("fn {name}(slot: u32) -> vec2<f32> {{ return {body}; }}"));
}

/// What the label is measured in.
fn unit(label: &LabelInput) -> f64 {
    if label.transform == Transform::Log10 { 10f64.powf(label.mean) } else { label.std }
}

/// The label's derivative by the u of each parameter that it depends on, in the unit of [`declare_label`]'s derivative.
pub(super) fn slope_ratios(parameters: &[Parameter], label: &LabelInput) -> Vec<(usize, f64)> {
    let slopes = label.source.slopes().into_iter();
    slopes.map(|(p, factor)| (p, factor * parameters[p].scale / unit(label))).collect()
}
