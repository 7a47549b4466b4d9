//! Convolution of a row with a symmetric kernel: out_j = w_0 t_j + Σ_k w_k (t_(j−k) + t_(j+k)), of the row's length.
//! Beyond its ends the row is continued by its end values.

use pulp::{Simd, WithSimd};

use super::Real;

/// Number of registers that are computed together: enough to hide the latency of a chain of multiply-adds.
const VECTORS_PER_BLOCK: usize = 4;
/// Maximum number of pixels in them.
const MAX_PIXELS_PER_BLOCK: usize = 16 * VECTORS_PER_BLOCK;

/// Row that is continued by its end values on either side. Its memory is reused for other rows.
#[derive(Clone, Debug)]
pub struct Padded<R> {
    values: Vec<R>,
    reach: usize,
    pixels: usize,
}

impl<R: Real> Padded<R> {
    /// Makes room for a row of `pixels`, for kernels that reach `reach` pixels to either side.
    pub fn new(pixels: usize, reach: usize) -> Padded<R> {
        Padded {
            values: vec![R::ZERO; pixels.next_multiple_of(MAX_PIXELS_PER_BLOCK) + 2 * reach],
            reach,
            pixels,
        }
    }

    /// Copies a row (pixels) in place of the previous one, and continues it by its end values.
    pub fn set(&mut self, row: &[R]) {
        let (Some(first), Some(last)) = (row.first(), row.last()) else {
            return;
        };
        let end = self.reach + self.pixels;
        self.values[..self.reach].fill(*first);
        self.values[self.reach..end].copy_from_slice(row);
        self.values[end..end + self.reach].fill(*last);
    }

    /// Writes the row's convolution with a symmetric kernel, whose half is `weights`, into `output` (pixels). The first
    /// weight is that of the centre; there are at most `reach` + 1.
    #[inline(always)]
    pub fn convolve<S: Simd>(&self, simd: S, weights: &[R], output: &mut [R]) {
        let block_pixels = VECTORS_PER_BLOCK * R::lanes::<S>();
        let one = R::splat(simd, R::ONE);
        // These are loops, because a closure would leave the scope of the vector instructions.
        for (block, output) in output.chunks_mut(block_pixels).enumerate() {
            let start = self.reach + block * block_pixels;
            let mut sum = [R::splat(simd, R::ZERO); VECTORS_PER_BLOCK];
            let middle = R::vectors::<S>(&self.values[start..start + block_pixels]);
            let weight = R::splat(simd, weights[0]);
            for v in 0..VECTORS_PER_BLOCK {
                sum[v] = R::multiply_add(simd, weight, middle[v], sum[v]);
            }
            for (k, weight) in weights.iter().enumerate().skip(1) {
                let weight = R::splat(simd, *weight);
                let left = &R::vectors::<S>(&self.values[start - k..start - k + block_pixels])
                    [..VECTORS_PER_BLOCK];
                let right = &R::vectors::<S>(&self.values[start + k..start + k + block_pixels])
                    [..VECTORS_PER_BLOCK];
                for v in 0..VECTORS_PER_BLOCK {
                    let pair = R::multiply_add(simd, one, left[v], right[v]);
                    sum[v] = R::multiply_add(simd, weight, pair, sum[v]);
                }
            }
            output.copy_from_slice(&R::elements::<S>(&sum)[..output.len()]);
        }
    }
}

/// Rows (n, pixels) convolved in place, compiled to vector code.
pub struct Convolve<'a, R> {
    pub rows: &'a mut [R],
    pub pixels: usize,
    pub weights: &'a [R],
}

impl<R: Real> Convolve<'_, R> {
    /// Convolves several rows with one kernel, with the widest vectors that the machine has.
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> WithSimd for Convolve<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut padded = Padded::new(self.pixels, self.weights.len().saturating_sub(1));
        for row in self.rows.chunks_exact_mut(self.pixels) {
            padded.set(row);
            padded.convolve(simd, self.weights, row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn convolutions_of_awkward_sizes_agree_with_plain_sums() {
        for pixels in [1usize, 2, 31, 32, 33, 65] {
            for reach in [0usize, 1, 5, 40] {
                let t: Vec<f64> = (0..pixels).map(|j| (j as f64 * 0.7).sin() + 1.0).collect();
                let weights: Vec<f64> = (0..=reach).map(|k| 1.0 / (1.0 + k as f64)).collect();
                let mut convolved_row = t.clone();
                Convolve {
                    rows: &mut convolved_row,
                    pixels,
                    weights: &weights,
                }
                .run();
                for (j, convolved) in convolved_row.iter().enumerate() {
                    let continued = |i: i64| t[i.clamp(0, pixels as i64 - 1) as usize];
                    let j = j as i64;
                    let half_width = reach as i64;
                    let exact: f64 = (-half_width..=half_width)
                        .map(|k| weights[k.unsigned_abs() as usize] * continued(j + k))
                        .sum();
                    assert!((convolved - exact).abs() < 1e-12, "{pixels} {reach} {j}");
                }
            }
        }
    }
}
