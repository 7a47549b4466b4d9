//! A banded matrix applied to rows: output_j = Σ_d matrix\[d\]\[j + o_d\] input\[j + o_d\], o = diagonals/2, …, −diagonals/2 (see
//! `docs/src/equations.md`): the spectra's own resolution (Bolton & Schlegel 2010), or a line spread on the template's pixels. Twin of
//! `shaders/resolve.wgsl`.

use pulp::{Simd, WithSimd};

use crate::rows::Real;

/// Registers that are worked on together: enough to hide the latency of a chain of multiply-adds.
const VECTORS: usize = 4;

/// One member's rows.
pub struct Resolve<'a, R> {
    pub pixels: usize,
    pub diagonals: usize,
    /// (diagonals, pixels)
    pub matrix: &'a [R],
    /// (rows, pixels)
    pub input: &'a [R],
    pub output: &'a mut [R],
}

impl<R: Real> Resolve<'_, R> {
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }

    /// One pixel near the ends, where the band is cut off.
    #[inline(always)]
    fn edge(&self, input: &[R], j: usize) -> R {
        let half = self.diagonals / 2;
        let mut sum = R::ZERO;
        for (d, row) in self.matrix.chunks_exact(self.pixels).enumerate() {
            if let Some(column) = (j + half).checked_sub(d).filter(|column| *column < self.pixels) {
                sum = row[column].fused(input[column], sum);
            }
        }
        sum
    }
}

impl<R: Real> WithSimd for Resolve<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let (pixels, half, lanes) = (self.pixels, self.diagonals / 2, VECTORS * R::lanes::<S>());
        let output = std::mem::take(&mut self.output);
        for (input, output) in self.input.chunks_exact(pixels).zip(output.chunks_exact_mut(pixels)) {
            let first = half.min(pixels);
            let last = first + pixels.saturating_sub(2 * half) / lanes * lanes;
            for j in (0..first).chain(last..pixels) {
                output[j] = self.edge(input, j);
            }
            // plain loops: a closure would leave the vector instructions' scope
            for start in (first..last).step_by(lanes) {
                let mut sum = [R::splat(simd, R::ZERO); VECTORS];
                for d in 0..self.diagonals {
                    let column = start + half - d;
                    let matrix = &R::vectors::<S>(&self.matrix[d * pixels + column..][..lanes])[..VECTORS];
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
    fn meets_plain_sums_on_awkward_sizes() {
        for pixels in [1usize, 2, 31, 32, 33, 63, 64, 65, 200] {
            for diagonals in [1usize, 3, 11, 75] {
                let wave = |i: usize| (i as f64 * 0.7).sin() + 0.3;
                let matrix: Vec<f64> = (0..diagonals * pixels).map(wave).collect();
                let input: Vec<f64> = (0..2 * pixels).map(|i| wave(3 * i)).collect();
                let mut output = vec![f64::NAN; 2 * pixels];
                Resolve { pixels, diagonals, matrix: &matrix, input: &input, output: &mut output }.run();
                let mut expected = vec![0.0; 2 * pixels];
                for (i, x) in input.iter().enumerate() {
                    let (row, column) = (i / pixels, i % pixels);
                    for d in 0..diagonals {
                        // the definition: R[column − offset][column], offset from diagonals / 2 downwards
                        let Some(j) = (column + d).checked_sub(diagonals / 2).filter(|j| *j < pixels) else { continue };
                        expected[row * pixels + j] += matrix[d * pixels + column] * x;
                    }
                }
                let gap = output.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(gap < 1e-12, "{pixels} pixels, {diagonals} diagonals: {gap}");
            }
        }
    }
}
