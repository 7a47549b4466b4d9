//! Implementation of [`Real`] for f64.

use std::sync::Arc;

use pulp::{Simd, bytemuck};

use super::arithmetic::real_arithmetic;
use super::values::Values;
use super::{Real, convert_values, vectors};

impl Real for f64 {
    real_arithmetic!(
        f64, f64s, splat: splat_f64s, multiply_add: mul_add_f64s, negative: neg_f64s, multiply: mul_f64s, plus: add_f64s,
        minus: sub_f64s, divide: div_f64s, larger: max_f64s, select: select_f64s, less_than: less_than_f64s,
        vectors: as_simd_f64s, vectors_mut: as_mut_simd_f64s, total: reduce_sum_f64s
    );

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
    fn single(_: &[f64]) -> Option<&[f32]> {
        None
    }
    fn single_mut(_: &mut [f64]) -> Option<&mut [f32]> {
        None
    }

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
