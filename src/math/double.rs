//! Implementation of [`Real`] for f64.

use std::sync::Arc;

use pulp::{Simd, bytemuck};

use super::values::Values;
use super::{Real, convert_values, vectors};

impl Real for f64 {
    type Vector<S: Simd> = S::f64s;
    #[inline(always)]
    fn splat<S: Simd>(simd: S, x: f64) -> S::f64s {
        simd.splat_f64s(x)
    }
    #[inline(always)]
    fn multiply_add<S: Simd>(simd: S, a: S::f64s, b: S::f64s, c: S::f64s) -> S::f64s {
        simd.mul_add_f64s(a, b, c)
    }
    #[inline(always)]
    fn subtract_product<S: Simd>(simd: S, c: S::f64s, a: S::f64s, b: S::f64s) -> S::f64s {
        simd.mul_add_f64s(simd.neg_f64s(a), b, c)
    }
    #[inline(always)]
    fn multiply<S: Simd>(simd: S, a: S::f64s, b: S::f64s) -> S::f64s {
        simd.mul_f64s(a, b)
    }
    #[inline(always)]
    fn plus<S: Simd>(simd: S, a: S::f64s, b: S::f64s) -> S::f64s {
        simd.add_f64s(a, b)
    }
    #[inline(always)]
    fn minus<S: Simd>(simd: S, a: S::f64s, b: S::f64s) -> S::f64s {
        simd.sub_f64s(a, b)
    }
    #[inline(always)]
    fn divide<S: Simd>(simd: S, a: S::f64s, b: S::f64s) -> S::f64s {
        simd.div_f64s(a, b)
    }
    #[inline(always)]
    fn exp_each<S: Simd, const W: usize, const NOT_POSITIVE: bool>(
        _: S,
        mut x: [S::f64s; W],
    ) -> [S::f64s; W] {
        for x_k in &mut x {
            *x_k = vectors::exp_f64s::<S>(*x_k);
        }
        x
    }
    #[inline(always)]
    fn larger<S: Simd>(simd: S, a: S::f64s, b: S::f64s) -> S::f64s {
        simd.max_f64s(a, b)
    }
    #[inline(always)]
    fn choose_less<S: Simd>(simd: S, a: S::f64s, b: S::f64s, yes: S::f64s, no: S::f64s) -> S::f64s {
        simd.select_f64s(simd.less_than_f64s(a, b), yes, no)
    }
    #[inline(always)]
    fn inverse_above<S: Simd>(simd: S, limit: S::f64s, a: S::f64s) -> S::f64s {
        let inverse = simd.div_f64s(simd.splat_f64s(1.0), a);
        simd.select_f64s(
            simd.less_than_f64s(limit, a),
            inverse,
            simd.splat_f64s(f64::NAN),
        )
    }
    #[inline(always)]
    fn vectors<S: Simd>(slice: &[f64]) -> &[S::f64s] {
        S::as_simd_f64s(slice).0
    }
    #[inline(always)]
    fn vectors_mut<S: Simd>(slice: &mut [f64]) -> &mut [S::f64s] {
        S::as_mut_simd_f64s(slice).0
    }
    #[inline(always)]
    fn total<S: Simd>(simd: S, a: S::f64s) -> f64 {
        simd.reduce_sum_f64s(a)
    }
    #[inline(always)]
    fn elements<S: Simd>(vectors: &[S::f64s]) -> &[f64] {
        bytemuck::cast_slice(vectors)
    }
    fn single(_: &[f64]) -> Option<&[f32]> {
        None
    }
    fn single_mut(_: &mut [f64]) -> Option<&mut [f32]> {
        None
    }

    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    const NAN: f64 = f64::NAN;
    const COST_NOISE: f64 = 1e-13;
    const SIMPLEX_NOISE: f64 = 1e-13;
    const LARGEST_CLIP: f64 = 700.0;

    #[inline(always)]
    fn of(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn bits(self) -> u64 {
        self.to_bits()
    }
    #[inline(always)]
    fn fused(self, b: f64, c: f64) -> f64 {
        self.mul_add(b, c)
    }
    #[inline(always)]
    fn root(self) -> f64 {
        self.sqrt()
    }
    #[inline(always)]
    fn e_to(self) -> f64 {
        self.exp()
    }
    #[inline(always)]
    fn tanh(self) -> f64 {
        f64::tanh(self)
    }
    #[inline(always)]
    fn erf(self) -> f64 {
        libm::erf(self)
    }
    #[inline(always)]
    fn maximum(self, other: f64) -> f64 {
        self.max(other)
    }
    #[inline(always)]
    fn minimum(self, other: f64) -> f64 {
        self.min(other)
    }
    fn convert(values: &Values) -> Vec<f64> {
        convert_values(values)
    }
    fn share(values: &Values) -> Option<Arc<Vec<f64>>> {
        if let Values::F64(v) = values {
            Some(v.clone())
        } else {
            None
        }
    }

    fn blocks(_: &Values) -> Option<&[Arc<Vec<f64>>]> {
        None
    }
}
