//! A tiny network for every pixel (El-Badry et al. 2018): value b1 + Σ_h w1 σ(b0 + Σ_l w0 z_l), tangents Σ_h w1 σ′ Σ_l w0 ∂z_l.
//! Weights have the pixel as their fastest axis. Twin of `shaders/per_pixel.wgsl`.

use pulp::NullaryFnOnce;

use super::activate::Activate;
use crate::rows::Real;
use crate::solver::recording::Activation;

/// Pixels that are worked on together.
const CHUNK: usize = 64;

/// One member's rows.
pub struct PerPixel<'a, R> {
    /// Values, and the tangents that are wanted.
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

impl<R: Real> PerPixel<'_, R> {
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> NullaryFnOnce for PerPixel<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let PerPixel { input_stride, labels, hidden, rows, columns, activation, .. } = self;
        let mut block = vec![R::ZERO; rows * CHUNK];
        let zero = [R::ZERO; CHUNK];
        for start in (0..columns).step_by(CHUNK) {
            let count = CHUNK.min(columns - start);
            let pixels = start..start + count;
            for (row, out) in self.output.chunks_exact_mut(columns).enumerate() {
                let out = &mut out[pixels.clone()];
                if row == 0 { out.copy_from_slice(&self.b1[pixels.clone()]) } else { out.fill(R::ZERO) }
            }
            for h in 0..hidden {
                for row in 0..rows {
                    let sum = &mut block[row * CHUNK..][..count];
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
                Activate { block: &mut block, columns: CHUNK, bias: &zero, affine: None, activation }.call();
                let weight = &self.w1[h * columns + start..][..count];
                for (row, out) in self.output.chunks_exact_mut(columns).enumerate() {
                    let hidden = &block[row * CHUNK..][..count];
                    for ((o, h), w) in out[pixels.clone()].iter_mut().zip(hidden).zip(weight) {
                        *o = w.fused(*h, *o);
                    }
                }
            }
        }
    }
}
