//! Elementwise part of a layer, in place, with its tangents: h = scale · σ(z + bias) + offset, ∂h = scale · σ′(z + bias) ∂z
//! (rows, columns). Twin of `shaders/activate.wgsl`.

use pulp::NullaryFnOnce;

use crate::rows::Real;
use crate::solver::recording::Activation;

/// One member's block and the layer's constants.
pub struct Activate<'a, R> {
    pub block: &'a mut [R],
    pub columns: usize,
    pub bias: &'a [R],
    pub affine: Option<(&'a [R], &'a [R])>,
    pub activation: Activation,
}

impl<R: Real> Activate<'_, R> {
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> NullaryFnOnce for Activate<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let one = R::ONE;
        match self.activation {
            Activation::Identity => self.apply(|z| (z, one)),
            Activation::Relu => self.apply(|z| if z > R::ZERO { (z, one) } else { (R::ZERO, R::ZERO) }),
            Activation::LeakyRelu => {
                let slope = R::of(0.01);
                self.apply(|z| if z > R::ZERO { (z, one) } else { (slope * z, slope) });
            }
            Activation::Sigmoid => self.apply(|z| {
                let s = z.sigmoid();
                (s, s * (one - s))
            }),
            Activation::Tanh => self.apply(|z| {
                let t = Real::tanh(z);
                (t, one - t * t)
            }),
            Activation::Silu => self.apply(|z| {
                let s = z.sigmoid();
                (z * s, s * (one + z * (one - s)))
            }),
            Activation::Gelu => {
                let (half, root) = (R::of(0.5), R::of(std::f64::consts::FRAC_1_SQRT_2));
                let density = R::of(0.398_942_280_401_432_7);
                self.apply(|z| {
                    let phi = half * (one + (z * root).erf());
                    (z * phi, phi + z * density * (-(half * z * z)).e_to())
                });
            }
            Activation::Exp { clip } => {
                let clip = R::of(clip.min(R::LARGEST_CLIP));
                self.apply(|z| {
                    let inside = z >= -clip && z <= clip;
                    let e = z.maximum(-clip).minimum(clip).e_to();
                    // NaN passes through
                    if inside || z != z { (if z != z { z } else { e }, e) } else { (e, R::ZERO) }
                });
            }
        }
    }
}

/// Columns that are worked on together: a few vectors.
const CHUNK: usize = 64;

impl<R: Real> Activate<'_, R> {
    #[inline(always)]
    fn apply(self, function: impl Fn(R) -> (R, R)) {
        let (values, tangents) = self.block.split_at_mut(self.columns);
        let mut slope = [R::ZERO; CHUNK];
        for start in (0..self.columns).step_by(CHUNK) {
            let range = start..self.columns.min(start + CHUNK);
            for ((v, b), s) in values[range.clone()].iter_mut().zip(&self.bias[range.clone()]).zip(&mut slope) {
                (*v, *s) = function(*v + *b);
            }
            if let Some((scale, offset)) = self.affine {
                let constants = scale[range.clone()].iter().zip(&offset[range.clone()]);
                for ((v, s), (scale, offset)) in values[range.clone()].iter_mut().zip(&mut slope).zip(constants) {
                    *v = *scale * *v + *offset;
                    *s = *scale * *s;
                }
            }
            for row in tangents.chunks_exact_mut(self.columns) {
                for (t, s) in row[range.clone()].iter_mut().zip(&slope) {
                    *t *= *s;
                }
            }
        }
    }
}
