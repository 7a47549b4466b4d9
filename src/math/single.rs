//! Implementation of [`Real`] for f32.

use std::sync::Arc;

use pulp::{Simd, bytemuck};

use super::arithmetic::real_arithmetic;
use super::values::Values;
use super::{Real, convert_values, vectors};

impl Real for f32 {
    real_arithmetic!(
        f32, f32s, splat: splat_f32s, multiply_add: mul_add_f32s, negative: neg_f32s, multiply: mul_f32s, plus: add_f32s,
        minus: sub_f32s, divide: div_f32s, larger: max_f32s, select: select_f32s, less_than: less_than_f32s,
        vectors: as_simd_f32s, vectors_mut: as_mut_simd_f32s, total: reduce_sum_f32s
    );

    #[inline(always)]
    fn exp_each<S: Simd, const W: usize, const NOT_POSITIVE: bool>(
        simd: S,
        x: [S::f32s; W],
    ) -> [S::f32s; W] {
        vectors::exp_f32s::<S, W, NOT_POSITIVE>(simd, x)
    }
    #[inline(always)]
    fn single(slice: &[f32]) -> Option<&[f32]> {
        Some(slice)
    }
    #[inline(always)]
    fn single_mut(slice: &mut [f32]) -> Option<&mut [f32]> {
        Some(slice)
    }

    const COST_NOISE: f64 = 1e-6;
    const SIMPLEX_NOISE: f64 = 2e-7;
    const LARGEST_CLIP: f64 = 80.0;

    #[inline(always)]
    fn of(x: f64) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn bits(self) -> u64 {
        self.to_bits().into()
    }

    /// 2^n e^r with |r| ≤ ln 2 / 2, e^r by the minimax polynomial of Cephes' `expf`; relative error 1e-7.
    #[inline(always)]
    fn e_to(self) -> f32 {
        const ROUNDING_SHIFT: f32 = 12_582_912.0; // 1.5 · 2²³: adding it rounds to an integer in the low bits.
        let x = self.clamp(-87.0, 88.0);
        let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUNDING_SHIFT);
        let n = shifted - ROUNDING_SHIFT;
        let remainder = n.mul_add(-0.693_359_4, x);
        let remainder = n.mul_add(2.121_944_4e-4, remainder);
        let polynomial = 1.987_569_1e-4f32;
        let polynomial = polynomial.mul_add(remainder, 1.398_199_9e-3);
        let polynomial = polynomial.mul_add(remainder, 8.333_452e-3);
        let polynomial = polynomial.mul_add(remainder, 4.166_579_6e-2);
        let polynomial = polynomial.mul_add(remainder, 1.666_666_5e-1);
        let polynomial = polynomial.mul_add(remainder, 5e-1);
        let e = polynomial.mul_add(remainder * remainder, remainder) + 1.0;
        let exponent = shifted
            .to_bits()
            .wrapping_sub(ROUNDING_SHIFT.to_bits())
            .wrapping_add(127)
            << 23;
        // NaN passes through the clamp and the polynomial.
        e * f32::from_bits(exponent)
    }

    #[inline(always)]
    fn tanh(self) -> f32 {
        // The odd series is used where 1 − 2 / (1 + e^2x) would cancel.
        let square = self * self;
        let series = (-0.053_968_254f32)
            .mul_add(square, 0.133_333_33)
            .mul_add(square, -0.333_333_33);
        let small = (series * square).mul_add(self, self);
        let large = 1.0 - 2.0 / (1.0 + (2.0 * self).e_to());
        if self.abs() < 0.2 { small } else { large }
    }
    #[inline(always)]
    fn erf(self) -> f32 {
        libm::erff(self)
    }
    fn share(values: &Values) -> Option<Arc<Vec<f32>>> {
        match values {
            Values::F32(v) => Some(v.clone()),
            Values::Blocks(blocks) if blocks.len() == 1 => blocks.first().cloned(),
            _ => None,
        }
    }

    fn blocks(values: &Values) -> Option<&[Arc<Vec<f32>>]> {
        if let Values::Blocks(blocks) = values {
            Some(blocks)
        } else {
            None
        }
    }
}
