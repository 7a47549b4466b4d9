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
            MemberRows {
                input,
                output,
                columns: self.columns,
                segments: &self.segments,
            }
            .run();
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
        let mut shader = context.start(
            "prefilter",
            include_str!("../../shaders/prefilter.wgsl"),
            dispatch,
        );
        shader.block(context, "input", "vec4<f32>", self.input, false);
        shader.block(context, "output", "vec4<f32>", self.output, true);
        shader.constants.unsigned("COLUMNS", self.columns);
        for i in 0..=12 {
            let root = 3f64.sqrt();
            shader
                .constants
                .float(&format!("TAP_{i}"), root * (root - 2.0).powi(12 - i));
        }
        let mut body = String::new();
        for segment in &self.segments {
            let (start, end) = (segment.start, segment.end);
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

/// Taps on either side.
pub const REACH: usize = 12;

/// √3 (√3−2)^k, k = 0…12.
pub fn taps() -> [f64; REACH + 1] {
    let root = 3f64.sqrt();
    std::array::from_fn(|k| root * (root - 2.0).powi(k as i32))
}

/// The rows of one member.
struct MemberRows<'a, R> {
    /// (rows, columns)
    pub input: &'a [R],
    pub output: &'a mut [R],
    pub columns: usize,
    /// Ascending.
    pub segments: &'a [Segment],
}

impl<R: Real> MemberRows<'_, R> {
    /// Computes the spline coefficients of one member's rows, with the widest vectors that the machine has.
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> NullaryFnOnce for MemberRows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let taps = taps().map(R::of);
        let mut sums = [[R::ZERO; BLOCK_INPUT]; 4];
        let rows = self
            .input
            .chunks_exact(self.columns)
            .zip(self.output.chunks_exact_mut(self.columns));
        for (input, output) in rows {
            let mut end = 0;
            for segment in self.segments {
                output[end..segment.start].fill(R::ZERO);
                end = segment.end;
                let (input, output) = (&input[segment.start..end], &mut output[segment.start..end]);
                let count = input.len();
                let first = REACH.min(count);
                let last = count.saturating_sub(REACH).max(first);
                for j in (0..first).chain(last..count) {
                    output[j] = edge(input, j, &taps);
                }
                interior(input, &mut output[first..last], &mut sums);
            }
            output[end..].fill(R::ZERO);
        }
    }
}

/// Returns the coefficient of pixel `j` near an end of a segment, whose edge pixels are replicated.
#[inline(always)]
fn edge<R: Real>(input: &[R], j: usize, taps: &[R; REACH + 1]) -> R {
    let mut sum = taps[0] * input[j];
    for (k, tap) in taps.iter().enumerate().skip(1) {
        let (left, right) = (j.saturating_sub(k), (j + k).min(input.len() - 1));
        sum = tap.fused(input[left] + input[right], sum);
    }
    sum
}

/// Pixels that are worked on together, so that what is between stays in the cache.
const BLOCK: usize = 1024;
/// Pixels that a block reads.
const BLOCK_INPUT: usize = BLOCK + 2 * REACH;

/// Computes the spline coefficients of the pixels with `REACH` others on both sides. `output[0]` is pixel `REACH` of
/// `input`. With z = √3 − 2 and S a shift by one pixel, Σ z^k S^k over k = 0…11 is (1 + z S) (1 + z² S²) (1 + z⁴ S⁴ +
/// z⁸ S⁸): a few sums to each side instead of twelve. `sums` is memory for them.
#[inline(always)]
fn interior<R: Real>(
    input: &[R],
    output: &mut [R],
    [one, two, from, to]: &mut [[R; BLOCK_INPUT]; 4],
) {
    let root = 3f64.sqrt();
    let power = |k: i32| R::of((root - 2.0).powi(k));
    let (z1, z2, z4, z8, z12, root) = (
        power(1),
        power(2),
        power(4),
        power(8),
        power(12),
        R::of(root),
    );
    for (block, out) in output.chunks_mut(BLOCK).enumerate() {
        let count = out.len() + 2 * REACH;
        let t = &input[block * BLOCK..][..count];
        chain(&t[1..], &t[..count - 1], z1, &mut one[1..count]);
        chain(&one[3..count], &one[1..count - 2], z2, &mut two[3..count]);
        chain(&t[..count - 1], &t[1..], z1, &mut from[..count - 1]);
        chain(
            &from[..count - 3],
            &from[2..count - 1],
            z2,
            &mut to[..count - 3],
        );
        for (out, j) in out.iter_mut().zip(REACH..) {
            let near = two[j] + to[j] - t[j];
            let sum = z4.fused(two[j - 4] + to[j + 4], near);
            let sum = z8.fused(two[j - 8] + to[j + 8], sum);
            *out = root * z12.fused(t[j - 12] + t[j + 12], sum);
        }
    }
}

/// Sets each element of `out` to a + z b.
#[inline(always)]
fn chain<R: Real>(a: &[R], b: &[R], z: R, out: &mut [R]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = z.fused(*b, *a);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_edges_are_the_sums_of_their_taps() {
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
            MemberRows {
                input: &input,
                output: &mut output,
                columns: count,
                segments: &segments,
            }
            .run();
            let taps = taps();
            for (j, out) in output.iter().enumerate() {
                assert!((out - edge(&input, j, &taps)).abs() < 1e-13, "{count}: {j}");
            }
        }
    }
}
