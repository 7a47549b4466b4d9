//! Numbers as 16-bit ones: what products of f16 numbers read. Twin of `shaders/split.wgsl`.
//!
//! A product of two f32 numbers is a sum of products of f16 numbers. With x = h + l / 2¹¹, where h and l are f16 and h
//! is x rounded, x w = h_x h_w + (l_x h_w + h_x l_w) / 2¹¹, but for a term of 2⁻²² of it. The rows of values are
//! multiplied in this way, and have the error of f32. Rows of derivatives are h_x h_w alone, with an error of 2⁻¹¹. It
//! moves the point where the gradient vanishes by far less than the errors, unless residuals are large.

use half::f16;

#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
use super::{Kernel, Memory};
use crate::buffers::{BufferId, Cost, Declared, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;

/// Factor of what rounding to f16 leaves of a number, so that it is a number of the same size.
pub const REMAINDER_SCALE: f32 = 2048.0;

/// halves ← factor · input, rounded to the nearest f16, ties to even; remainder ← what rounding leaves of the first
/// row, times [`REMAINDER_SCALE`], followed by that row's halves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    pub input: BufferId,
    /// (rows, columns)
    pub halves: BufferId,
    /// (2 · columns)
    pub remainder: BufferId,
    pub rows: usize,
    /// Even.
    pub columns: usize,
    /// Factor of the input, a power of two that brings its numbers into f16's range.
    pub factor: f32,
}

impl Kernel for Split {
    const WORK: Work = Work::Hidden;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.input, self.halves, self.remainder]
    }

    /// Returns no operations.
    fn cost(&self, _: Declared<'_>) -> Cost {
        let halves = (self.rows + 2) * self.columns;
        Cost::new(0, self.rows * self.columns + halves / 2)
    }

    fn cacheable_output(&self, _: Declared<'_>) -> Option<BufferId> {
        Some(self.halves)
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        let factor = R::of(f64::from(self.factor));
        memory.write(self.halves, |memory, halves| {
            for (x, half) in memory.floats(self.input).iter().zip(halves) {
                *half = round_to_half(factor * *x);
            }
        });
        memory.write(self.remainder, |memory, remainder| {
            let value = &memory.floats(self.input)[..self.columns];
            let (left, halves) = remainder.split_at_mut(self.columns);
            for ((x, left), half) in value.iter().zip(left).zip(halves) {
                let scaled = factor * *x;
                *half = round_to_half(scaled);
                *left = round_to_half((scaled - *half) * R::of(f64::from(REMAINDER_SCALE)));
            }
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let pairs = self.rows * self.columns / 2;
        let mut shader = context.start_shader(
            "split",
            include_str!("../../shaders/split.wgsl"),
            Dispatch::pixels(pairs),
        );
        shader.bind_block(context, "input", "f32", self.input, false);
        shader.bind_block(context, "halves", "u32", self.halves, true);
        shader.bind_block(context, "remainder", "u32", self.remainder, true);
        shader.constants.unsigned("PAIRS", pairs);
        shader.constants.unsigned("ROW_PAIRS", self.columns / 2);
        shader.constants.float("FACTOR", f64::from(self.factor));
        shader
            .constants
            .float("REMAINDER_SCALE", f64::from(REMAINDER_SCALE));
        Ok(shader)
    }
}

/// Returns the weights (2 · inner, columns) by which [`Split::remainder`] is multiplied: the weights rounded to f16,
/// and what rounding left of them, times [`REMAINDER_SCALE`].
pub fn remainder_weights(weights: &[f32]) -> Vec<f32> {
    let rounded = weights.iter().map(|weight| round_to_half(*weight));
    let left = weights
        .iter()
        .zip(rounded.clone())
        .map(|(weight, rounded)| REMAINDER_SCALE * (weight - rounded));
    rounded.chain(left).collect()
}

/// Rounds a number to the nearest f16.
pub fn round_to_half<R: Real>(x: R) -> R {
    R::of(f16::from_f64(x.to_f64()).to_f64())
}
