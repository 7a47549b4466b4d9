//! Scaled labels z = (transform(x) − mean) / std, x = origin + scale u, and their derivatives by u: a row of z, then a
//! row for each parameter that a label depends on. f64 inside. Twin of `shaders/labels.wgsl`.

use super::label::{LabelInput, scale_label, tangents};
#[cfg(feature = "gpu")]
use super::label::{declare_label, slope_ratios};
#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
use super::{Kernel, Memory};
use crate::buffers::{BufferId, Cost, Declared, Parameter, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;

/// Scaled labels and their derivatives by the parameters: output `1 + tangents` rows of `stride` ≥ `inputs.len()`, zero
/// padded. A tangent row belongs to a parameter ([`tangents`] of the inputs), so that a tied label costs no row of its
/// own.
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    pub inputs: Vec<LabelInput>,
    pub output: BufferId,
    pub stride: usize,
    /// False for the row of values alone.
    pub derivatives: bool,
}

impl Kernel for Labels {
    const WORK: Work = Work::Hidden;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.output]
    }

    /// Returns R L operations for R rows of L labels.
    fn cost(&self, _: Declared<'_>) -> Cost {
        let rows = if self.derivatives {
            1 + tangents(&self.inputs).len()
        } else {
            1
        };
        Cost::new(rows * self.inputs.len(), rows * self.stride)
    }

    fn cacheable_output(&self, _: Declared<'_>) -> Option<BufferId> {
        Some(self.output)
    }

    fn cacheable_parameters(&self) -> Vec<usize> {
        tangents(&self.inputs)
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        memory.write(self.output, |memory, output| {
            write_labels(self, memory.parameters(), memory.trial(), output)
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let mut shader = context.start_shader(
            "labels",
            include_str!("../../shaders/labels.wgsl"),
            Dispatch::MEMBERS,
        );
        shader.bind_state(false);
        self.declare_rows(&mut shader, context);
        Ok(shader)
    }
}

impl Labels {
    /// Adds to a shader the output and the statements that the shared file `label_rows` needs.
    #[cfg(feature = "gpu")]
    pub(crate) fn declare_rows(&self, shader: &mut Shader, context: &ShaderContext<'_>) {
        shader.uses.push("label_rows");
        shader.bind_block(context, "output", "f32", self.output, true);
        // One statement per label, and one per derivative.
        let tangent_parameters = tangents(&self.inputs);
        let mut body = String::new();
        for (i, label) in self.inputs.iter().enumerate() {
            declare_label(
                &mut shader.constants,
                context.parameters(),
                label,
                &format!("label_value_{i}"),
            );
            body += &format!(
                "let label_{i} = label_value_{i}(slot);\noutput[base + {i}u] = label_{i}.x;\n"
            );
            for (p, ratio) in slope_ratios(context.parameters(), label)
                .into_iter()
                .filter(|_| self.derivatives)
            {
                let row = 1 + tangent_parameters
                    .iter()
                    .position(|q| *q == p)
                    .unwrap_or_default();
                let ratio = shader.constants.literal(ratio);
                body += &format!(
                    "output[base + {}u] = label_{i}.y * {ratio};\n",
                    row * self.stride + i
                );
            }
        }
        shader
            .constants
            .line(&format!("fn fill(slot: u32, base: u32) {{\n{body}}}"));
        shader.constants.unsigned(
            "ROWS",
            if self.derivatives {
                1 + tangent_parameters.len()
            } else {
                1
            },
        );
        shader.constants.unsigned("STRIDE", self.stride);
    }
}

/// Writes one member's scaled labels z into its block and, with `derivatives`, their derivatives by u into the rows
/// below.
fn write_labels<R: Real>(stage: &Labels, parameters: &[Parameter], u: &[f64], out: &mut [R]) {
    out.fill(R::ZERO);
    let tangent_parameters = tangents(&stage.inputs);
    for (l, input) in stage.inputs.iter().enumerate() {
        let (z, slope) = scale_label(input, parameters, u);
        out[l] = R::of(z);
        for (p, factor) in input
            .source
            .slopes()
            .into_iter()
            .filter(|_| stage.derivatives)
        {
            let row = 1 + tangent_parameters
                .iter()
                .position(|q| *q == p)
                .unwrap_or_default();
            out[row * stage.stride + l] = R::of(slope * factor * parameters[p].scale);
        }
    }
}
