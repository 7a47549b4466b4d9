//! Numbers to 16 bits: output = input rounded to the nearest f16, ties to even. Twin of `shaders/narrow.wgsl`.

use half::f16;

#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
use super::{Kernel, Memory};
use crate::buffers::{BufferId, Cost, Declared, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;

/// output ← input, rounded to the nearest f16, ties to even: what a product of
/// [`Kind::Half`](crate::buffers::Kind::Half) reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Narrow {
    pub input: BufferId,
    pub output: BufferId,
    /// Numbers of a member, even.
    pub length: usize,
}

impl Kernel for Narrow {
    const WORK: Work = Work::Hidden;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.input, self.output]
    }

    /// Returns no operations.
    fn cost(&self, _: Declared<'_>) -> Cost {
        Cost::new(0, self.length + self.length / 2)
    }

    fn cacheable_output(&self, _: Declared<'_>) -> Option<BufferId> {
        Some(self.output)
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        memory.write(self.output, |memory, output| {
            round_to_halves(memory.floats(self.input), output)
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let mut shader = context.start_shader(
            "narrow",
            include_str!("../../shaders/narrow.wgsl"),
            Dispatch::pixels(self.length / 2),
        );
        shader.bind_block(context, "input", "f32", self.input, false);
        shader.bind_block(context, "output", "u32", self.output, true);
        shader.constants.unsigned("PAIRS", self.length / 2);
        Ok(shader)
    }
}

/// Rounds a number to the nearest f16.
pub fn round_to_half<R: Real>(x: R) -> R {
    R::of(f16::from_f64(x.to_f64()).to_f64())
}

/// Copies one member's numbers to `output`, rounded to the nearest f16.
fn round_to_halves<R: Real>(input: &[R], output: &mut [R]) {
    input
        .iter()
        .zip(output)
        .for_each(|(x, out)| *out = round_to_half(*x));
}
