//! The scalar of rows (f32 for networks, f64 for formulas) and elementary functions that vectorise.
//!
//! The f32 functions are polynomials without branches or library calls, so that a loop over them compiles to vector code
//! inside a `pulp` dispatch.

pub mod convolve;
pub mod functions;
pub mod gram;
pub mod hyperbolic;
pub mod lanes;
pub mod rotation;
pub mod scan;
pub mod taps;
pub mod vectors;

use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};
use std::sync::Arc;

use pulp::{Simd, bytemuck};

use crate::solver::recording::Values;

/// Where a grid is not finite, positive and strictly increasing, and why.
pub fn bad_wavelength(grid: &[f64]) -> Option<(usize, String)> {
    let mut previous = 0.0;
    for (index, &value) in grid.iter().enumerate() {
        if !(value.is_finite() && value > 0.0) {
            return Some((index, format!("{value} Å is no wavelength")));
        }
        if value <= previous {
            return Some((index, format!("{value} Å follows {previous} Å; wavelengths must increase")));
        }
        previous = value;
    }
    None
}

/// f32 or f64.
pub trait Real:
    faer::traits::ComplexField
    + Copy
    + Default
    + Debug
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + MulAssign
    + Sum
    + 'static
{
    const ZERO: Self;
    const ONE: Self;
    const NAN: Self;
    /// Relative error of a cost computed from rows of this precision, its sums being f64.
    const COST_NOISE: f64;
    /// The same, between points so near each other that most of it is the same for all: where a simplex has shrunk to what is known.
    const SIMPLEX_NOISE: f64;
    /// Largest argument of an exponential output.
    const LARGEST_CLIP: f64;

    fn of(x: f64) -> Self;
    fn to_f64(self) -> f64;
    fn bits(self) -> u64;
    fn fused(self, b: Self, c: Self) -> Self;
    fn e_to(self) -> Self;
    fn root(self) -> Self;
    fn tanh(self) -> Self;
    fn erf(self) -> Self;
    fn maximum(self, other: Self) -> Self;
    fn minimum(self, other: Self) -> Self;
    /// The values in this precision.
    fn convert(values: &Values) -> Vec<Self>;
    /// The values, where they are of this precision.
    fn share(values: &Values) -> Option<Arc<Vec<Self>>>;

    /// A register's worth of these, where autovectorised loops are not enough.
    type Vector<S: Simd>: Copy;
    fn lanes<S: Simd>() -> usize {
        size_of::<Self::Vector<S>>() / size_of::<Self>()
    }
    fn splat<S: Simd>(simd: S, x: Self) -> Self::Vector<S>;
    /// a b + c
    fn multiply_add<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;
    /// c − a b
    fn subtract_product<S: Simd>(
        simd: S,
        c: Self::Vector<S>,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
    ) -> Self::Vector<S>;
    fn multiply<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    fn plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    fn minus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    fn divide<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    fn absolute_each<S: Simd>(simd: S, a: Self::Vector<S>) -> Self::Vector<S>;
    /// e^x as formulas have it.
    fn exp_each<S: Simd, const W: usize>(simd: S, x: [Self::Vector<S>; W]) -> [Self::Vector<S>; W];
    /// 1 / a where a is above `least`, else NaN.
    fn inverse_above<S: Simd>(simd: S, least: Self::Vector<S>, a: Self::Vector<S>) -> Self::Vector<S>;
    /// The whole vectors at the front of a slice.
    fn vectors<S: Simd>(slice: &[Self]) -> &[Self::Vector<S>];
    fn vectors_mut<S: Simd>(slice: &mut [Self]) -> &mut [Self::Vector<S>];
    /// Sum of the lanes, as a tree.
    fn total<S: Simd>(simd: S, a: Self::Vector<S>) -> Self;
    fn elements<S: Simd>(vectors: &[Self::Vector<S>]) -> &[Self];

    /// The same numbers where they are f32; nothing where they are not.
    fn single(slice: &[Self]) -> Option<&[f32]>;
    fn single_mut(slice: &mut [Self]) -> Option<&mut [f32]>;

    #[inline(always)]
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).e_to())
    }
}

fn converted<R: Real>(values: &Values) -> Vec<R> {
    match values {
        Values::F32(v) => v.iter().map(|&x| R::of(f64::from(x))).collect(),
        Values::F64(v) => v.iter().map(|&x| R::of(x)).collect(),
        Values::I32(v) => v.iter().map(|&x| R::of(f64::from(x))).collect(),
    }
}

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
    fn absolute_each<S: Simd>(simd: S, a: S::f64s) -> S::f64s {
        simd.abs_f64s(a)
    }
    #[inline(always)]
    fn exp_each<S: Simd, const W: usize>(_: S, x: [S::f64s; W]) -> [S::f64s; W] {
        x.map(vectors::exp_f64s::<S>)
    }
    #[inline(always)]
    fn inverse_above<S: Simd>(simd: S, least: S::f64s, a: S::f64s) -> S::f64s {
        let inverse = simd.div_f64s(simd.splat_f64s(1.0), a);
        simd.select_f64s(simd.less_than_f64s(least, a), inverse, simd.splat_f64s(f64::NAN))
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
        converted(values)
    }
    fn share(values: &Values) -> Option<Arc<Vec<f64>>> {
        if let Values::F64(v) = values { Some(v.clone()) } else { None }
    }
}

impl Real for f32 {
    type Vector<S: Simd> = S::f32s;
    #[inline(always)]
    fn splat<S: Simd>(simd: S, x: f32) -> S::f32s {
        simd.splat_f32s(x)
    }
    #[inline(always)]
    fn multiply_add<S: Simd>(simd: S, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
        simd.mul_add_f32s(a, b, c)
    }
    #[inline(always)]
    fn subtract_product<S: Simd>(simd: S, c: S::f32s, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.mul_add_f32s(simd.neg_f32s(a), b, c)
    }
    #[inline(always)]
    fn multiply<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.mul_f32s(a, b)
    }
    #[inline(always)]
    fn plus<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.add_f32s(a, b)
    }
    #[inline(always)]
    fn minus<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.sub_f32s(a, b)
    }
    #[inline(always)]
    fn divide<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.div_f32s(a, b)
    }
    #[inline(always)]
    fn absolute_each<S: Simd>(simd: S, a: S::f32s) -> S::f32s {
        simd.abs_f32s(a)
    }
    #[inline(always)]
    fn exp_each<S: Simd, const W: usize>(simd: S, x: [S::f32s; W]) -> [S::f32s; W] {
        vectors::exp_f32s(simd, x)
    }
    #[inline(always)]
    fn inverse_above<S: Simd>(simd: S, least: S::f32s, a: S::f32s) -> S::f32s {
        let inverse = simd.div_f32s(simd.splat_f32s(1.0), a);
        simd.select_f32s(simd.less_than_f32s(least, a), inverse, simd.splat_f32s(f32::NAN))
    }
    #[inline(always)]
    fn vectors<S: Simd>(slice: &[f32]) -> &[S::f32s] {
        S::as_simd_f32s(slice).0
    }
    #[inline(always)]
    fn vectors_mut<S: Simd>(slice: &mut [f32]) -> &mut [S::f32s] {
        S::as_mut_simd_f32s(slice).0
    }
    #[inline(always)]
    fn total<S: Simd>(simd: S, a: S::f32s) -> f32 {
        simd.reduce_sum_f32s(a)
    }
    #[inline(always)]
    fn elements<S: Simd>(vectors: &[S::f32s]) -> &[f32] {
        bytemuck::cast_slice(vectors)
    }
    #[inline(always)]
    fn single(slice: &[f32]) -> Option<&[f32]> {
        Some(slice)
    }
    #[inline(always)]
    fn single_mut(slice: &mut [f32]) -> Option<&mut [f32]> {
        Some(slice)
    }

    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    const NAN: f32 = f32::NAN;
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
    #[inline(always)]
    fn fused(self, b: f32, c: f32) -> f32 {
        self.mul_add(b, c)
    }

    /// 2^n e^r with |r| ≤ ln 2 / 2, e^r by the minimax polynomial of Cephes' `expf`; relative error 1e-7.
    #[inline(always)]
    fn e_to(self) -> f32 {
        const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³: adding it rounds to an integer in the low bits
        let x = self.clamp(-87.0, 88.0);
        let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
        let n = shifted - ROUND;
        let r = n.mul_add(-0.693_359_4, x);
        let r = n.mul_add(2.121_944_4e-4, r);
        let p = 1.987_569_1e-4f32;
        let p = p.mul_add(r, 1.398_199_9e-3);
        let p = p.mul_add(r, 8.333_452e-3);
        let p = p.mul_add(r, 4.166_579_6e-2);
        let p = p.mul_add(r, 1.666_666_5e-1);
        let p = p.mul_add(r, 5e-1);
        let e = p.mul_add(r * r, r) + 1.0;
        let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
        // NaN went through the clamp and the polynomial
        e * f32::from_bits(exponent)
    }

    #[inline(always)]
    fn tanh(self) -> f32 {
        // the odd series where 1 − 2 / (1 + e^2x) would cancel
        let s = self * self;
        let p = (-0.053_968_254f32).mul_add(s, 0.133_333_33).mul_add(s, -0.333_333_33);
        let small = (p * s).mul_add(self, self);
        let large = 1.0 - 2.0 / (1.0 + (2.0 * self).e_to());
        if self.abs() < 0.2 { small } else { large }
    }
    #[inline(always)]
    fn erf(self) -> f32 {
        libm::erff(self)
    }
    #[inline(always)]
    fn root(self) -> f32 {
        self.sqrt()
    }
    #[inline(always)]
    fn maximum(self, other: f32) -> f32 {
        self.max(other)
    }
    #[inline(always)]
    fn minimum(self, other: f32) -> f32 {
        self.min(other)
    }
    fn convert(values: &Values) -> Vec<f32> {
        converted(values)
    }
    fn share(values: &Values) -> Option<Arc<Vec<f32>>> {
        if let Values::F32(v) = values { Some(v.clone()) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f32_functions_meet_f64() {
        for k in -8000..8000 {
            let x = k as f32 * 0.01;
            let exact = f64::from(x).exp();
            assert!((f64::from(x.e_to()) / exact - 1.0).abs() < 2e-7, "exp {x}");
            let y = x * 0.01;
            let exact = f64::from(y).tanh();
            assert!((f64::from(Real::tanh(y)) - exact).abs() <= 6e-7 * exact.abs().max(1e-30), "tanh {y}");
        }
        assert!(f32::NAN.e_to().is_nan());
        assert!((-1e30f32).e_to() < 1e-37);
    }
}
