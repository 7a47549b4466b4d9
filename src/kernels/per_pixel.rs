//! A tiny network for every pixel (El-Badry et al. 2018): value b1 + Σ_h w1 σ(b0 + Σ_l w0 z_l), tangents Σ_h w1 σ′ Σ_l
//! w0 ∂z_l. Weights have the pixel as their fastest axis. Twin of `shaders/per_pixel.wgsl`.

use pulp::NullaryFnOnce;

use super::activate::{self, Activation};
#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
use super::{Kernel, Memory};
use crate::buffers::{BufferId, Cost, Declared, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;

/// One tiny network a pixel (El-Badry et al. 2018): value b1 + Σ_h w1 σ(b0 + Σ_l w0 z_l), and its tangents. Weights are
/// stored with the pixel as the fastest axis: `w0` (hidden, labels, columns), `b0`, `w1` (hidden, columns), `b1`
/// (columns).
#[derive(Clone, Debug, PartialEq)]
pub struct PerPixel {
    pub input: BufferId,
    pub input_stride: usize,
    pub labels: usize,
    pub hidden: usize,
    pub w0: BufferId,
    pub b0: BufferId,
    pub w1: BufferId,
    pub b1: BufferId,
    pub activation: Activation,
    pub output: BufferId,
    pub rows: usize,
    pub columns: usize,
}

impl Kernel for PerPixel {
    const WORK: Work = Work::Template;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.input, self.output]
    }

    /// Returns 2 R H (L + 1) C operations for R rows, H hidden units, L labels and C columns.
    fn cost(&self, declared: Declared<'_>) -> Cost {
        let weights = [self.w0, self.b0, self.w1, self.b1]
            .into_iter()
            .map(|id| declared.block(id).length)
            .sum();
        let operations = 2 * self.rows * self.hidden * (self.labels + 1) * self.columns;
        Cost::new(operations, self.rows * (self.input_stride + self.columns)).with_shared(weights)
    }

    fn cacheable_output(&self, _: Declared<'_>) -> Option<BufferId> {
        Some(self.output)
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        memory.write(self.output, |memory, output| {
            let [w0, b0, w1, b1] = [self.w0, self.b0, self.w1, self.b1].map(|id| memory.floats(id));
            let PerPixel {
                rows,
                columns,
                hidden,
                labels,
                input_stride,
                activation,
                ..
            } = *self;
            let input = memory.floats(self.input);
            PerPixelRows {
                rows,
                columns,
                hidden,
                labels,
                input_stride,
                activation,
                input,
                w0,
                b0,
                w1,
                b1,
                output,
            }
            .run_vectorised();
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let mut shader = context.start_shader(
            "per_pixel",
            include_str!("../../shaders/per_pixel.wgsl"),
            Dispatch::pixels(self.columns),
        );
        shader.bind_block(context, "input", "f32", self.input, false);
        shader.bind_block(context, "w0", "f32", self.w0, false);
        shader.bind_block(context, "b0", "f32", self.b0, false);
        shader.bind_block(context, "w1", "f32", self.w1, false);
        shader.bind_block(context, "b1", "f32", self.b1, false);
        shader.bind_block(context, "output", "f32", self.output, true);
        activate::declare_activation(&mut shader.constants, self.activation, "");
        shader.constants.unsigned("ROWS", self.rows);
        shader.constants.unsigned("COLUMNS", self.columns);
        shader.constants.unsigned("INPUT_STRIDE", self.input_stride);
        shader.constants.unsigned("LABELS", self.labels);
        shader.constants.unsigned("HIDDEN", self.hidden);
        Ok(shader)
    }
}

/// Number of pixels that are computed together.
const PIXELS_AT_A_TIME: usize = 64;

/// One member's rows.
pub(crate) struct PerPixelRows<'a, R> {
    /// Number of rows: values and tangents.
    pub rows: usize,
    pub columns: usize,
    pub hidden: usize,
    pub labels: usize,
    pub input_stride: usize,
    pub activation: Activation,
    /// (rows, input_stride)
    pub input: &'a [R],
    /// (hidden, labels, columns)
    pub w0: &'a [R],
    /// (hidden, columns)
    pub b0: &'a [R],
    /// (hidden, columns)
    pub w1: &'a [R],
    /// (columns)
    pub b1: &'a [R],
    /// (rows, columns)
    pub output: &'a mut [R],
}

impl<R: Real> PerPixelRows<'_, R> {
    /// Evaluates a small network for every pixel of one member, with the widest vectors that the machine has.
    pub fn run_vectorised(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> NullaryFnOnce for PerPixelRows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let PerPixelRows {
            input_stride,
            labels,
            hidden,
            rows,
            columns,
            activation,
            ..
        } = self;
        let mut block = vec![R::ZERO; rows * PIXELS_AT_A_TIME];
        let zero = [R::ZERO; PIXELS_AT_A_TIME];
        for start in (0..columns).step_by(PIXELS_AT_A_TIME) {
            let count = PIXELS_AT_A_TIME.min(columns - start);
            let pixels = start..start + count;
            for (row, out) in self.output.chunks_exact_mut(columns).enumerate() {
                let out = &mut out[pixels.clone()];
                if row == 0 {
                    out.copy_from_slice(&self.b1[pixels.clone()])
                } else {
                    out.fill(R::ZERO)
                }
            }
            for h in 0..hidden {
                for row in 0..rows {
                    let sum = &mut block[row * PIXELS_AT_A_TIME..][..count];
                    if row == 0 {
                        sum.copy_from_slice(&self.b0[h * columns + start..][..count]);
                    } else {
                        sum.fill(R::ZERO);
                    }
                    for l in 0..labels {
                        let z = self.input[row * input_stride + l];
                        let weight = &self.w0[(h * labels + l) * columns + start..][..count];
                        for (s, w) in sum.iter_mut().zip(weight) {
                            *s = w.fused(z, *s);
                        }
                    }
                }
                activate::ActivationRows {
                    block: &mut block,
                    columns: PIXELS_AT_A_TIME,
                    bias: &zero,
                    affine: None,
                    activation,
                }
                .call();
                let weight = &self.w1[h * columns + start..][..count];
                for (row, out) in self.output.chunks_exact_mut(columns).enumerate() {
                    let hidden = &block[row * PIXELS_AT_A_TIME..][..count];
                    for ((o, h), w) in out[pixels.clone()].iter_mut().zip(hidden).zip(weight) {
                        *o = w.fused(*h, *o);
                    }
                }
            }
        }
    }
}
