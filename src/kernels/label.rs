//! Labels: where a value comes from, how it is scaled, and the same as generated WGSL.
//!
//! In WGSL the constants of z are folded in f64, so that f32 sees numbers of order one.

#[cfg(feature = "gpu")]
use std::f64::consts::LN_10;
use std::ops::RangeInclusive;

#[cfg(feature = "gpu")]
use super::source::Constants;
use crate::buffers::Parameter;

/// An emulator's label: where its value comes from and how it is scaled, z = (transform(x) − mean) / std.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelInput {
    pub source: Source,
    pub transform: Transform,
    pub mean: f64,
    pub std: f64,
}

/// A label's physical value.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Index into [`Recording::parameters`](crate::recording::Recording::parameters).
    Parameter(usize),
    Fixed(f64),
    /// Tied: constant + Σ factor · parameter, both physical.
    Linear {
        constant: f64,
        terms: Vec<(usize, f64)>,
    },
}

impl Source {
    /// Returns the label's physical value, given the physical value `at(p)` of each parameter p.
    pub fn value(&self, at: impl Fn(usize) -> f64) -> f64 {
        match self {
            Source::Parameter(p) => at(*p),
            Source::Fixed(x) => *x,
            Source::Linear { constant, terms } => terms
                .iter()
                .fold(*constant, |sum, (p, factor)| sum + factor * at(*p)),
        }
    }

    /// Returns the range of the label's physical value while each parameter p is within `bounds(p)`.
    pub fn range(&self, bounds: impl Fn(usize) -> RangeInclusive<f64>) -> RangeInclusive<f64> {
        self.end_of_range(false, &bounds)..=self.end_of_range(true, &bounds)
    }

    /// Returns the label's highest value (if `is_upper`, else lowest) while each parameter p is within `bounds(p)`.
    fn end_of_range(&self, is_upper: bool, bounds: &impl Fn(usize) -> RangeInclusive<f64>) -> f64 {
        let slopes = self.slopes();
        self.value(|p| {
            let rises = slopes
                .iter()
                .find(|(q, _)| *q == p)
                .is_none_or(|(_, slope)| *slope >= 0.0);
            let bounds = bounds(p);
            if rises == is_upper {
                *bounds.end()
            } else {
                *bounds.start()
            }
        })
    }

    /// Returns the parameters on which the label depends, each with the label's derivative by its physical value.
    pub fn slopes(&self) -> Vec<(usize, f64)> {
        match self {
            Source::Parameter(p) => vec![(*p, 1.0)],
            Source::Fixed(_) => Vec::new(),
            Source::Linear { terms, .. } => terms.clone(),
        }
    }
}

/// Returns the parameter of each tangent row of some labels: those that they depend on, in the order in which they
/// appear.
pub fn tangents(inputs: &[LabelInput]) -> Vec<usize> {
    let mut parameters = Vec::new();
    for (p, _) in inputs.iter().flat_map(|input| input.source.slopes()) {
        if !parameters.contains(&p) {
            parameters.push(p);
        }
    }
    parameters
}

/// Function of a label before its scaling.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Transform {
    Identity,
    Log10,
}

crate::words::named!(Transform, "transform", ["identity" => Identity, "log10" => Log10]);

/// Returns z, the network's scaled input, of one label at `u`, and its derivative by the label's physical value.
pub fn scale_label(input: &LabelInput, parameters: &[Parameter], u: &[f64]) -> (f64, f64) {
    let x = input
        .source
        .value(|p| parameters[p].origin + parameters[p].scale * u[p]);
    match input.transform {
        Transform::Identity => ((x - input.mean) / input.std, 1.0 / input.std),
        Transform::Log10 => (
            (x.log10() - input.mean) / input.std,
            1.0 / (x * std::f64::consts::LN_10 * input.std),
        ),
    }
}

/// Declares `fn NAME(slot: u32) -> vec2<f32>`: z of a label, and dz by the label in units of its `std` (identity) or of
/// 10^mean.
#[cfg(feature = "gpu")]
pub(super) fn declare_label(
    constants: &mut Constants,
    parameters: &[Parameter],
    label: &LabelInput,
    name: &str,
) {
    let body = match (&label.source, label.transform) {
        (Source::Fixed(x), transform) => {
            let value = if transform == Transform::Log10 {
                x.log10()
            } else {
                *x
            };
            format!(
                "vec2<f32>({}, 0.0)",
                constants.literal((value - label.mean) / label.std)
            )
        }
        (_, transform) => {
            // (x − offset) / unit as a sum of its value at u = 0 and Σ ratio u
            let offset = if transform == Transform::Log10 {
                0.0
            } else {
                label.mean
            };
            let at_origin = label.source.value(|p| parameters[p].origin) - offset;
            let mut sum = constants.literal(at_origin / shader_unit(label));
            for (p, ratio) in slope_ratios(parameters, label) {
                sum += &format!(" + {} * trial({p}u, slot)", constants.literal(ratio));
            }
            match transform {
                Transform::Identity => format!("vec2<f32>({sum}, 1.0)"),
                Transform::Log10 => {
                    format!(
                        "label_log10({sum}, {})",
                        constants.literal(1.0 / (label.std * LN_10))
                    )
                }
            }
        }
    };
    constants.line(&format!(
        "fn {name}(slot: u32) -> vec2<f32> {{ return {body}; }}"
    ));
}

/// Returns the unit in which shaders count the label: 10^mean if it is transformed by log10, else its `std`.
#[cfg(feature = "gpu")]
fn shader_unit(label: &LabelInput) -> f64 {
    if label.transform == Transform::Log10 {
        10f64.powf(label.mean)
    } else {
        label.std
    }
}

/// Returns the label's derivative by the u of each parameter that it depends on, in the unit of [`declare_label`]'s
/// derivative.
#[cfg(feature = "gpu")]
pub(super) fn slope_ratios(parameters: &[Parameter], label: &LabelInput) -> Vec<(usize, f64)> {
    label
        .source
        .slopes()
        .into_iter()
        .map(|(p, slope)| (p, slope * parameters[p].scale / shader_unit(label)))
        .collect()
}
