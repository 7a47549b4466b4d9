//! A banded matrix applied to rows: output_j = Σ_d matrix\[d\]\[j + o_d\] input\[j + o_d\], o = diagonals/2, …,
//! −diagonals/2 (see `docs/src/equations.md`). Twin of `shaders/resolve.wgsl`.
//!
//! It serves twice: for the spectra's own resolution after resampling, one matrix per spectrum (Bolton & Schlegel
//! 2010), and for a Gaussian line spread on the template's pixels, one constant matrix (`model/spread.rs`).

use pulp::{Simd, WithSimd};

#[cfg(feature = "gpu")]
use super::shader::{Dispatch, Shader, ShaderContext};
use super::{Kernel, Memory};
use crate::buffers::{BufferId, Cost, Declared, Scope, Work};
#[cfg(feature = "gpu")]
use crate::error::Result;
use crate::math::Real;

/// A banded matrix applied to every row: output\[j\] = Σ_d matrix\[d\]\[j + o_d\] input\[j + o_d\], offsets o =
/// diagonals / 2, …, −diagonals / 2, zero beyond the ends. That is DESI's storage: R\[row\]\[column\] =
/// matrix\[d\]\[column\], row = column − o_d.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolve {
    pub input: BufferId,
    pub output: BufferId,
    pub rows: usize,
    /// Stride of both, and of `matrix`.
    pub pixels: usize,
    /// Odd.
    pub diagonals: usize,
    /// (diagonals, pixels)
    pub matrix: BufferId,
}

impl Kernel for Resolve {
    const WORK: Work = Work::Observe;

    fn member_buffers(&self) -> Vec<BufferId> {
        vec![self.input, self.output]
    }

    /// Returns 2 D R N operations for D diagonals and R rows of N pixels.
    fn cost(&self, declared: Declared<'_>) -> Cost {
        let rows = 2 * self.rows * self.pixels;
        let matrix = self.diagonals * self.pixels;
        let operations = self.diagonals * rows;
        if declared.block(self.matrix).scope == Scope::Constant {
            Cost::new(operations, rows).with_shared(matrix)
        } else {
            Cost::new(operations, rows + matrix)
        }
    }

    fn cacheable_output(&self, declared: Declared<'_>) -> Option<BufferId> {
        (declared.block(self.matrix).scope == Scope::Constant).then_some(self.output)
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        memory.write(self.output, |memory, output| {
            ResolvedRows {
                pixels: self.pixels,
                diagonals: self.diagonals,
                matrix: memory.floats(self.matrix),
                input: memory.floats(self.input),
                output,
            }
            .run_vectorised();
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let text = include_str!("../../shaders/resolve.wgsl");
        let dispatch = Dispatch {
            z: self.rows as u32,
            ..Dispatch::pixels(self.pixels)
        };
        let mut shader = context.start_shader("resolve", text, dispatch);
        shader.bind_block(context, "input", "f32", self.input, false);
        shader.bind_block(context, "output", "f32", self.output, true);
        shader.bind_block(context, "matrix", "f32", self.matrix, false);
        shader.constants.unsigned("ROWS", self.rows);
        shader.constants.unsigned("PIXELS", self.pixels);
        shader.constants.unsigned("DIAGONALS", self.diagonals);
        Ok(shader)
    }
}

/// Number of vectors that are summed together: enough to hide the latency of a chain of multiply-adds.
const VECTORS: usize = 4;

/// One member's rows.
struct ResolvedRows<'a, R> {
    pub pixels: usize,
    pub diagonals: usize,
    /// (diagonals, pixels)
    pub matrix: &'a [R],
    /// (rows, pixels)
    pub input: &'a [R],
    pub output: &'a mut [R],
}

impl<R: Real> ResolvedRows<'_, R> {
    /// Multiplies one member's rows by the banded resolution matrix, with the widest vectors that the machine has.
    pub fn run_vectorised(self) {
        pulp::Arch::new().dispatch(self);
    }

    /// Returns pixel j of the banded matrix times `input`, near an end, where the band is cut off.
    #[inline(always)]
    fn sum_near_end(&self, input: &[R], j: usize) -> R {
        let half = self.diagonals / 2;
        let mut sum = R::ZERO;
        for (d, row) in self.matrix.chunks_exact(self.pixels).enumerate() {
            if let Some(column) = (j + half)
                .checked_sub(d)
                .filter(|column| *column < self.pixels)
            {
                sum = row[column].fused(input[column], sum);
            }
        }
        sum
    }
}

impl<R: Real> WithSimd for ResolvedRows<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let pixels = self.pixels;
        let half = self.diagonals / 2;
        let lanes = VECTORS * R::lanes::<S>();
        let output = std::mem::take(&mut self.output);
        for (input, output) in self
            .input
            .chunks_exact(pixels)
            .zip(output.chunks_exact_mut(pixels))
        {
            let first = half.min(pixels);
            let last = first + pixels.saturating_sub(2 * half) / lanes * lanes;
            for j in (0..first).chain(last..pixels) {
                output[j] = self.sum_near_end(input, j);
            }
            // Plain loops, because a closure would leave the scope of the vector instructions.
            for start in (first..last).step_by(lanes) {
                let mut sum = [R::splat(simd, R::ZERO); VECTORS];
                for d in 0..self.diagonals {
                    let column = start + half - d;
                    let matrix =
                        &R::vectors::<S>(&self.matrix[d * pixels + column..][..lanes])[..VECTORS];
                    let input = &R::vectors::<S>(&input[column..column + lanes])[..VECTORS];
                    for v in 0..VECTORS {
                        sum[v] = R::multiply_add(simd, matrix[v], input[v], sum[v]);
                    }
                }
                output[start..start + lanes].copy_from_slice(R::elements::<S>(&sum));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_equal_plain_sums_for_all_sizes_of_rows_and_bands() {
        for pixels in [1usize, 2, 31, 32, 33, 63, 64, 65, 200] {
            for diagonals in [1usize, 3, 11, 75] {
                let wave = |i: usize| (i as f64 * 0.7).sin() + 0.3;
                let matrix: Vec<f64> = (0..diagonals * pixels).map(wave).collect();
                let input: Vec<f64> = (0..2 * pixels).map(|i| wave(3 * i)).collect();
                let mut output = vec![f64::NAN; 2 * pixels];
                ResolvedRows {
                    pixels,
                    diagonals,
                    matrix: &matrix,
                    input: &input,
                    output: &mut output,
                }
                .run_vectorised();
                let mut expected = vec![0.0; 2 * pixels];
                for (i, x) in input.iter().enumerate() {
                    let row = i / pixels;
                    let column = i % pixels;
                    for d in 0..diagonals {
                        // By definition R[column − offset][column], with offsets from diagonals / 2 downwards.
                        let Some(j) = (column + d)
                            .checked_sub(diagonals / 2)
                            .filter(|j| *j < pixels)
                        else {
                            continue;
                        };
                        expected[row * pixels + j] += matrix[d * pixels + column] * x;
                    }
                }
                let difference = output
                    .iter()
                    .zip(&expected)
                    .map(|(a, b)| (a - b).abs())
                    .fold(0.0, f64::max);
                assert!(
                    difference < 1e-12,
                    "{pixels} pixels, {diagonals} diagonals: {difference}"
                );
            }
        }
    }
}
