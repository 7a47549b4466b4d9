//! Arithmetic with one number per fit, for as many fits as a few registers hold.
#![expect(
    clippy::needless_range_loop,
    reason = "closures over arrays are not always inlined, and each operation is a call then"
)]

use std::ops::{Add, Mul, Sub};

use pulp::Simd;

use crate::math::Real;
use crate::math::lanes::{LANES, Lanes};

/// Number of registers that an operation takes: their instructions do not wait for each other.
pub const REGISTERS_PER_VECTOR: usize = 2;

/// Vector with one number per fit: a part of a row of lanes.
pub struct LaneVector<R: Real, S: Simd>(S, [R::Vector<S>; REGISTERS_PER_VECTOR]);

impl<R: Real, S: Simd> Clone for LaneVector<R, S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Real, S: Simd> Copy for LaneVector<R, S> {}

impl<R: Real, S: Simd> LaneVector<R, S> {
    /// Number of these vectors in a row of lanes.
    pub const PARTS_PER_ROW: usize =
        LANES / (size_of::<R::Vector<S>>() / size_of::<R>() * REGISTERS_PER_VECTOR);

    /// Makes a vector with the same number for every fit.
    #[inline(always)]
    pub fn splat(simd: S, x: R) -> Self {
        LaneVector(simd, [R::splat(simd, x); REGISTERS_PER_VECTOR])
    }
    /// Loads one part of a row that has one number per fit.
    #[inline(always)]
    pub fn load(simd: S, row: &Lanes<R>, part: usize) -> Self {
        let loaded =
            &R::vectors::<S>(&row.0)[part * REGISTERS_PER_VECTOR..][..REGISTERS_PER_VECTOR];
        let mut registers = [loaded[0]; REGISTERS_PER_VECTOR];
        registers.copy_from_slice(loaded);
        LaneVector(simd, registers)
    }
    /// Returns a part of a row minus this vector.
    #[inline(always)]
    pub fn subtract_from(self, row: &Lanes<R>, part: usize) -> Self {
        LaneVector::load(self.0, row, part) - self
    }
    /// Writes this vector into a part of a row that has one number per fit.
    #[inline(always)]
    pub fn store(self, row: &mut Lanes<R>, part: usize) {
        R::vectors_mut::<S>(&mut row.0)[part * REGISTERS_PER_VECTOR..][..REGISTERS_PER_VECTOR]
            .copy_from_slice(&self.1);
    }
    /// Combines each register of this with that of `b` by an operation.
    #[inline(always)]
    fn combine(
        self,
        b: Self,
        operation: impl Fn(R::Vector<S>, R::Vector<S>) -> R::Vector<S>,
    ) -> Self {
        let mut results = self.1;
        for k in 0..REGISTERS_PER_VECTOR {
            results[k] = operation(self.1[k], b.1[k]);
        }
        LaneVector(self.0, results)
    }
    /// Makes a vector with the constant x for every fit.
    #[inline(always)]
    pub fn splat_constant(self, x: f64) -> Self {
        LaneVector::splat(self.0, R::of(x))
    }
    /// Makes a vector with 1 for every fit.
    #[inline(always)]
    pub fn one(self) -> Self {
        self.splat_constant(1.0)
    }
    /// Returns 1 / this, fit by fit.
    #[inline(always)]
    pub fn inverse(self) -> Self {
        self.one().combine(self, |a, b| R::divide(self.0, a, b))
    }
    /// Returns this · b + c, fused into one rounding where the processor has the instruction.
    #[inline(always)]
    pub fn times_plus(self, b: Self, c: Self) -> Self {
        let mut results = self.1;
        for k in 0..REGISTERS_PER_VECTOR {
            results[k] = R::multiply_add(self.0, self.1[k], b.1[k], c.1[k]);
        }
        LaneVector(self.0, results)
    }
    /// Returns e to the power of this, fit by fit.
    #[inline(always)]
    pub fn exp(self) -> Self {
        LaneVector(
            self.0,
            R::exp_each::<S, REGISTERS_PER_VECTOR, false>(self.0, self.1),
        )
    }
    /// Returns e to the power of this, fit by fit; all numbers must be at most 0, or NaN.
    #[inline(always)]
    pub fn exp_not_positive(self) -> Self {
        LaneVector(
            self.0,
            R::exp_each::<S, REGISTERS_PER_VECTOR, true>(self.0, self.1),
        )
    }
    /// Returns this / 2.
    #[inline(always)]
    pub fn half(self) -> Self {
        self * self.splat_constant(0.5)
    }
    /// Returns −this.
    #[inline(always)]
    pub fn negative(self) -> Self {
        self * self.splat_constant(-1.0)
    }
}

impl<R: Real, S: Simd> Add for LaneVector<R, S> {
    type Output = Self;
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self.combine(b, |x, y| R::plus(self.0, x, y))
    }
}

impl<R: Real, S: Simd> Sub for LaneVector<R, S> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        self.combine(b, |x, y| R::minus(self.0, x, y))
    }
}

impl<R: Real, S: Simd> Mul for LaneVector<R, S> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self.combine(b, |x, y| R::multiply(self.0, x, y))
    }
}
