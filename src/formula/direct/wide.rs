//! Arithmetic with the numbers of some fits, in a few registers at a time.
#![expect(
    clippy::needless_range_loop,
    reason = "closures over arrays are not always inlined, and each operation is a call then"
)]

use std::ops::{Add, Mul, Sub};

use pulp::Simd;

use crate::math::Real;
use crate::math::lanes::{LANES, Lanes};

/// Number of registers in an operation: their instructions do not wait for each other.
pub const WIDE: usize = 2;

/// One number of each of some fits.
pub struct V<R: Real, S: Simd>(S, [R::Vector<S>; WIDE]);

impl<R: Real, S: Simd> Clone for V<R, S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Real, S: Simd> Copy for V<R, S> {}

impl<R: Real, S: Simd> V<R, S> {
    /// Number of these in a row of lanes.
    pub const COUNT: usize = LANES / (size_of::<R::Vector<S>>() / size_of::<R>() * WIDE);

    /// Makes a vector with the same number for every fit.
    #[inline(always)]
    pub fn splat(simd: S, x: R) -> Self {
        V(simd, [R::splat(simd, x); WIDE])
    }
    /// Loads part number `v` of a row that has one number per fit.
    #[inline(always)]
    pub fn load(simd: S, row: &Lanes<R>, v: usize) -> Self {
        let own = &R::vectors::<S>(&row.0)[v * WIDE..][..WIDE];
        let mut all = [own[0]; WIDE];
        all.copy_from_slice(own);
        V(simd, all)
    }
    /// Returns part `v` of a row minus this.
    #[inline(always)]
    pub fn below(self, row: &Lanes<R>, v: usize) -> Self {
        V::load(self.0, row, v) - self
    }
    /// Writes this vector into part `v` of a row that has one number per fit.
    #[inline(always)]
    pub fn store(self, row: &mut Lanes<R>, v: usize) {
        R::vectors_mut::<S>(&mut row.0)[v * WIDE..][..WIDE].copy_from_slice(&self.1);
    }
    /// Combines each register of this with that of `b` by an operation.
    #[inline(always)]
    fn with(self, b: Self, each: impl Fn(R::Vector<S>, R::Vector<S>) -> R::Vector<S>) -> Self {
        let mut all = self.1;
        for k in 0..WIDE {
            all[k] = each(self.1[k], b.1[k]);
        }
        V(self.0, all)
    }
    /// Makes a vector with the constant x for every fit.
    #[inline(always)]
    pub fn number(self, x: f64) -> Self {
        V::splat(self.0, R::of(x))
    }
    /// Makes a vector with 1 for every fit.
    #[inline(always)]
    pub fn one(self) -> Self {
        self.number(1.0)
    }
    /// Returns 1 / this, fit by fit.
    #[inline(always)]
    pub fn inverse(self) -> Self {
        self.one().with(self, |a, b| R::divide(self.0, a, b))
    }
    /// Returns this · b + c, fused into one rounding where the processor has the instruction.
    #[inline(always)]
    pub fn times_plus(self, b: Self, c: Self) -> Self {
        let mut all = self.1;
        for k in 0..WIDE {
            all[k] = R::multiply_add(self.0, self.1[k], b.1[k], c.1[k]);
        }
        V(self.0, all)
    }
    /// Returns e to the power of this, fit by fit.
    #[inline(always)]
    pub fn exp(self) -> Self {
        V(self.0, R::exp_each::<S, WIDE, false>(self.0, self.1))
    }
    /// Returns e to the power of this, fit by fit; all numbers must be at most 0, or NaN.
    #[inline(always)]
    pub fn exp_below(self) -> Self {
        V(self.0, R::exp_each::<S, WIDE, true>(self.0, self.1))
    }
    /// Returns this / 2.
    #[inline(always)]
    pub fn half(self) -> Self {
        self * self.number(0.5)
    }
    /// Returns −this.
    #[inline(always)]
    pub fn negative(self) -> Self {
        self * self.number(-1.0)
    }
}

impl<R: Real, S: Simd> Add for V<R, S> {
    type Output = Self;
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self.with(b, |x, y| R::plus(self.0, x, y))
    }
}

impl<R: Real, S: Simd> Sub for V<R, S> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        self.with(b, |x, y| R::minus(self.0, x, y))
    }
}

impl<R: Real, S: Simd> Mul for V<R, S> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self.with(b, |x, y| R::multiply(self.0, x, y))
    }
}
