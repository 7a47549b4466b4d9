//! B-spline coefficients of template rows: c_j = Σ_k √3 (√3−2)^|k| t_(j+k), k = −12…12, the inverse of (1, 4, 1)/6,
//! inside each segment with its edges replicated. (rows, columns), flux units. Twin of `shaders/prefilter.wgsl`.

use pulp::NullaryFnOnce;

#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
use super::{Kernel, Memory, Segment};
use crate::buffers::{BufferId, Cost, Declared, Work};
#[cfg(feature = "gpu")]
use crate::error::{Error, Result};
use crate::math::Real;

/// Pixels to B-spline coefficients inside each segment: 25 taps √3 (√3−2)^|k|, edges replicated.
#[derive(Clone, Debug, PartialEq)]
pub struct Prefilter {
    pub input: BufferId,
    pub output: BufferId,
    pub rows: usize,
    pub columns: usize,
    pub segments: Vec<Segment>,
}

impl Kernel for Prefilter {
    const WORK: Work = Work::Observe;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.input, self.output]
    }

    /// Returns 2 · 25 R C operations for R rows of C columns.
    fn cost(&self, _: Declared<'_>) -> Cost {
        Cost::new(50 * self.rows * self.columns, 2 * self.rows * self.columns)
    }

    fn cacheable_output(&self, _: Declared<'_>) -> Option<BufferId> {
        Some(self.output)
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        memory.write(self.output, |memory, output| {
            let input = memory.floats(self.input);
            PrefilteredRows {
                input,
                output,
                columns: self.columns,
                segments: &self.segments,
            }
            .run_vectorised();
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        if !self.columns.is_multiple_of(4) {
            return Err(Error::model(format!(
                "rows of {} pixels are not padded",
                self.columns
            )));
        }
        let dispatch = Dispatch {
            z: self.rows as u32,
            ..Dispatch::pixels(self.columns / 4)
        };
        let mut shader = context.start_shader(
            "prefilter",
            include_str!("../../shaders/prefilter.wgsl"),
            dispatch,
        );
        shader.bind_block(context, "input", "vec4<f32>", self.input, false);
        shader.bind_block(context, "output", "vec4<f32>", self.output, true);
        shader.constants.unsigned("COLUMNS", self.columns);
        for i in 0..=12 {
            let root = 3f64.sqrt();
            shader
                .constants
                .float(&format!("TAP_{i}"), root * (root - 2.0).powi(12 - i));
        }
        let mut body = String::new();
        for segment in &self.segments {
            let Segment { start, end, .. } = *segment;
            body += &format!(
                "if pixel >= {start}u && pixel < {end}u {{ return vec2<u32>({start}u, {end}u); }}\n"
            );
        }
        shader.constants.line(&format!(
            "fn segment_of(pixel: u32) -> vec2<u32> {{\n{body}return vec2<u32>();\n}}"
        ));
        Ok(shader)
    }
}

/// Number of taps on either side of a pixel.
pub const TAPS_PER_SIDE: usize = 12;

/// Returns the weights of the taps, √3 (√3−2)^k, k = 0…12.
pub fn tap_weights() -> [f64; TAPS_PER_SIDE + 1] {
    let root = 3f64.sqrt();
    std::array::from_fn(|k| root * (root - 2.0).powi(k as i32))
}

/// The rows of one member.
struct PrefilteredRows<'a, R> {
    /// (rows, columns)
    pub input: &'a [R],
    pub output: &'a mut [R],
    pub columns: usize,
    /// Ascending.
    pub segments: &'a [Segment],
}

impl<R: Real> PrefilteredRows<'_, R> {
    /// Computes the spline coefficients of one member's rows, with the widest vectors that the machine has.
    pub fn run_vectorised(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> NullaryFnOnce for PrefilteredRows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let taps = tap_weights().map(R::of);
        let mut sums = [[R::ZERO; INPUT_PIXELS_PER_BLOCK]; 4];
        let rows = self
            .input
            .chunks_exact(self.columns)
            .zip(self.output.chunks_exact_mut(self.columns));
        for (input, output) in rows {
            let mut end = 0;
            for segment in self.segments {
                output[end..segment.start].fill(R::ZERO);
                end = segment.end;
                let input = &input[segment.start..end];
                let output = &mut output[segment.start..end];
                let count = input.len();
                let first = TAPS_PER_SIDE.min(count);
                let last = count.saturating_sub(TAPS_PER_SIDE).max(first);
                for j in (0..first).chain(last..count) {
                    output[j] = filter_near_end(input, j, &taps);
                }
                filter_interior(input, &mut output[first..last], &mut sums);
            }
            output[end..].fill(R::ZERO);
        }
    }
}

/// Returns the coefficient of pixel `j` near an end of a segment, whose edge pixels are replicated.
#[inline(always)]
fn filter_near_end<R: Real>(input: &[R], j: usize, taps: &[R; TAPS_PER_SIDE + 1]) -> R {
    let mut sum = taps[0] * input[j];
    for (k, tap) in taps.iter().enumerate().skip(1) {
        let left = input[j.saturating_sub(k)];
        let right = input[(j + k).min(input.len() - 1)];
        sum = tap.fused(left + right, sum);
    }
    sum
}

/// Number of pixels that are filtered together, so that intermediate sums stay in the cache.
const PIXELS_PER_BLOCK: usize = 1024;
/// Number of pixels that a block reads.
const INPUT_PIXELS_PER_BLOCK: usize = PIXELS_PER_BLOCK + 2 * TAPS_PER_SIDE;

/// Computes the spline coefficients of the pixels with `TAPS_PER_SIDE` others on both sides. `output[0]` is pixel
/// `TAPS_PER_SIDE` of `input`. With z = √3 − 2 and S a shift by one pixel, Σ z^k S^k over k = 0…11 is (1 + z S) (1 + z²
/// S²) (1 + z⁴ S⁴ + z⁸ S⁸): a few sums to each side instead of twelve. The arrays are memory for the sums over 2 and 4
/// pixels, from each pixel to the left and to the right.
#[inline(always)]
fn filter_interior<R: Real>(
    input: &[R],
    output: &mut [R],
    [left_2, left_4, right_2, right_4]: &mut [[R; INPUT_PIXELS_PER_BLOCK]; 4],
) {
    let root = 3f64.sqrt();
    let power = |k: i32| R::of((root - 2.0).powi(k));
    let [z1, z2, z4, z8, z12] = [1, 2, 4, 8, 12].map(power);
    let root = R::of(root);
    for (block, out) in output.chunks_mut(PIXELS_PER_BLOCK).enumerate() {
        let count = out.len() + 2 * TAPS_PER_SIDE;
        let template = &input[block * PIXELS_PER_BLOCK..][..count];
        add_scaled(
            &template[1..],
            &template[..count - 1],
            z1,
            &mut left_2[1..count],
        );
        add_scaled(
            &left_2[3..count],
            &left_2[1..count - 2],
            z2,
            &mut left_4[3..count],
        );
        add_scaled(
            &template[..count - 1],
            &template[1..],
            z1,
            &mut right_2[..count - 1],
        );
        add_scaled(
            &right_2[..count - 3],
            &right_2[2..count - 1],
            z2,
            &mut right_4[..count - 3],
        );
        for (out, j) in out.iter_mut().zip(TAPS_PER_SIDE..) {
            let nearest = left_4[j] + right_4[j] - template[j];
            let sum = z4.fused(left_4[j - 4] + right_4[j + 4], nearest);
            let sum = z8.fused(left_4[j - 8] + right_4[j + 8], sum);
            *out = root * z12.fused(template[j - 12] + template[j + 12], sum);
        }
    }
}

/// Sets each element of `out` to a + z b.
#[inline(always)]
fn add_scaled<R: Real>(a: &[R], b: &[R], z: R, out: &mut [R]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = z.fused(*b, *a);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filtered_pixels_are_sums_over_their_taps_in_blocks_and_near_ends() {
        for count in [1, 5, 24, 25, 1047, 1048, 1049, 2500] {
            let input: Vec<f64> = (0..count)
                .map(|k| ((k * 7919) % 101) as f64 / 101.0)
                .collect();
            let mut output = vec![f64::NAN; count];
            let segments = [Segment {
                start: 0,
                end: count,
                inverse_step: 1.0,
            }];
            PrefilteredRows {
                input: &input,
                output: &mut output,
                columns: count,
                segments: &segments,
            }
            .run_vectorised();
            let taps = tap_weights();
            for (j, out) in output.iter().enumerate() {
                assert!(
                    (out - filter_near_end(&input, j, &taps)).abs() < 1e-13,
                    "{count}: {j}"
                );
            }
        }
    }
}
