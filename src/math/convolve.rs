//! Symmetric convolution of a row: out_j = w_0 t_j + Σ_k w_k (t_(j−k) + t_(j+k)), of the row's length. Beyond its ends
//! the row is continued by its end values.

use pulp::{Simd, WithSimd};

use super::Real;

/// Registers that are worked on together: enough to hide the latency of a chain of multiply-adds.
const VECTORS: usize = 4;
/// Pixels in them, at most.
const MOST_LANES: usize = 16 * VECTORS;

/// A row that is continued by its end values on either side; its memory is reused from row to row.
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
            values: vec![R::ZERO; pixels.next_multiple_of(MOST_LANES) + 2 * reach],
            reach,
            pixels,
        }
    }

    /// Copies a row (pixels), in place of the one before, and continues it by its end values.
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
        let lanes = VECTORS * R::lanes::<S>();
        let one = R::splat(simd, R::ONE);
        // plain loops: a closure would leave the vector instructions' scope
        for (block, output) in output.chunks_mut(lanes).enumerate() {
            let at = self.reach + block * lanes;
            let mut sum = [R::splat(simd, R::ZERO); VECTORS];
            let middle = R::vectors::<S>(&self.values[at..at + lanes]);
            let weight = R::splat(simd, weights[0]);
            for v in 0..VECTORS {
                sum[v] = R::multiply_add(simd, weight, middle[v], sum[v]);
            }
            for (k, weight) in weights.iter().enumerate().skip(1) {
                let weight = R::splat(simd, *weight);
                let left = &R::vectors::<S>(&self.values[at - k..at - k + lanes])[..VECTORS];
                let right = &R::vectors::<S>(&self.values[at + k..at + k + lanes])[..VECTORS];
                for v in 0..VECTORS {
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
    fn meets_plain_sums_on_awkward_sizes() {
        for pixels in [1usize, 2, 31, 32, 33, 65] {
            for reach in [0usize, 1, 5, 40] {
                let t: Vec<f64> = (0..pixels).map(|j| (j as f64 * 0.7).sin() + 1.0).collect();
                let weights: Vec<f64> = (0..=reach).map(|k| 1.0 / (1.0 + k as f64)).collect();
                let mut found = t.clone();
                Convolve {
                    rows: &mut found,
                    pixels,
                    weights: &weights,
                }
                .run();
                for (j, found) in found.iter().enumerate() {
                    let at = |i: i64| t[i.clamp(0, pixels as i64 - 1) as usize];
                    let (j, half) = (j as i64, reach as i64);
                    let exact: f64 = (-half..=half)
                        .map(|k| weights[k.unsigned_abs() as usize] * at(j + k))
                        .sum();
                    assert!((found - exact).abs() < 1e-12, "{pixels} {reach} {j}");
                }
            }
        }
    }
}
