//! Arithmetic on rows of numbers: their scalar type (f32 for networks, f64 for formulas), elementary functions that
//! vectorise, products, sums and correlations. This room also has covariances and tail probabilities of fits, and
//! wavelengths in air.
//!
//! The f32 functions are polynomials without branches or library calls, so that a loop over them compiles to vector
//! code inside a `pulp` dispatch.

pub mod air;
pub mod aligned;
mod arithmetic;
pub mod banded;
pub mod convolve;
pub mod covariance;
mod double;
pub mod faddeeva;
pub mod functions;
pub mod gamma;
pub mod gram;
pub mod hyperbolic;
pub mod lanes;
pub mod logarithms;
pub mod probability;
pub mod product;
pub mod rotation;
pub mod scan;
mod single;
pub mod taps;
pub mod triangle;
pub mod trigonometry;
pub mod values;
pub mod vectors;

use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};
use std::sync::Arc;

use pulp::Simd;

use values::Values;

/// Returns whether all values are finite.
pub fn all_finite(values: &[f64]) -> bool {
    values.iter().all(|x| x.is_finite())
}

/// Returns the median, for an even number of values the upper of the two in the middle; `None` if there are no values.
/// Reorders the values.
pub fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// Returns the index and a message for the first wavelength of a grid (Å) that is not finite, positive and above its
/// predecessor; `None` if there is none.
pub fn bad_wavelength(grid: &[f64]) -> Option<(usize, String)> {
    let mut previous = 0.0;
    for (index, &value) in grid.iter().enumerate() {
        if !(value.is_finite() && value > 0.0) {
            return Some((index, format!("{value} Å is no wavelength")));
        }
        if value <= previous {
            return Some((
                index,
                format!("{value} Å follows {previous} Å; wavelengths must increase"),
            ));
        }
        previous = value;
    }
    None
}

/// f32 or f64.
pub trait Real:
    Copy
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
    /// Relative error of a cost computed from rows of this precision with sums in f64.
    const COST_NOISE: f64;
    /// Relative error of the difference of such costs between points that are close together, as in a shrunken simplex:
    /// most of the error is the same for all of them.
    const SIMPLEX_NOISE: f64;
    /// Largest argument of an exponential output.
    const LARGEST_CLIP: f64;

    /// Converts a number from f64.
    fn of(x: f64) -> Self;
    /// Converts the number to f64.
    fn to_f64(self) -> f64;
    /// Returns the bit pattern of the number.
    fn bits(self) -> u64;
    /// Returns self · b + c, rounded once.
    fn fused(self, b: Self, c: Self) -> Self;
    /// Returns e^self.
    fn e_to(self) -> Self;
    /// Returns the square root.
    fn root(self) -> Self;
    /// Returns the hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Returns the error function.
    fn erf(self) -> Self;
    /// Returns the larger of two numbers.
    fn maximum(self, other: Self) -> Self;
    /// Returns the smaller of two numbers.
    fn minimum(self, other: Self) -> Self;
    /// Converts values to this precision.
    fn convert(values: &Values) -> Vec<Self>;
    /// Returns the values without a copy, if they are of this precision.
    fn share(values: &Values) -> Option<Arc<Vec<Self>>>;
    /// Returns the blocks of [`Values::Blocks`], if they are of this precision.
    fn blocks(values: &Values) -> Option<&[Arc<Vec<Self>>]>;

    /// Vector register of these numbers, for loops that the compiler does not vectorise well enough.
    type Vector<S: Simd>: Copy;
    /// Returns how many numbers of this precision a vector register of the instruction set S holds.
    fn lanes<S: Simd>() -> usize {
        size_of::<Self::Vector<S>>() / size_of::<Self>()
    }
    /// Returns a vector that holds x in every lane.
    fn splat<S: Simd>(simd: S, x: Self) -> Self::Vector<S>;
    /// Returns a b + c.
    fn multiply_add<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// Returns c − a b.
    fn subtract_product<S: Simd>(
        simd: S,
        c: Self::Vector<S>,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// Returns a b.
    fn multiply<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// Returns a + b.
    fn plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// Returns a − b.
    fn minus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// Returns a / b.
    fn divide<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// Returns e^x as formulas compute it. With `NOT_POSITIVE`, all x must be at most 0, or NaN.
    fn exp_each<S: Simd, const W: usize, const NOT_POSITIVE: bool>(
        simd: S,
        x: [Self::Vector<S>; W],
    ) -> [Self::Vector<S>; W];
    /// Returns the larger of a and b; either if one is NaN.
    fn larger<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// Returns `yes` where a is less than b, else `no`.
    fn choose_less<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        yes: Self::Vector<S>,
        no: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// Returns 1 / a where a is above `limit`, else NaN.
    fn inverse_above<S: Simd>(
        simd: S,
        limit: Self::Vector<S>,
        a: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// Returns the whole vectors at the front of a slice.
    fn vectors<S: Simd>(slice: &[Self]) -> &[Self::Vector<S>];
    /// Returns the whole vectors at the front of a slice, to be changed.
    fn vectors_mut<S: Simd>(slice: &mut [Self]) -> &mut [Self::Vector<S>];
    /// Returns the sum of the lanes, added pairwise.
    fn total<S: Simd>(simd: S, a: Self::Vector<S>) -> Self;
    /// Returns the elements of vectors as a slice.
    fn elements<S: Simd>(vectors: &[Self::Vector<S>]) -> &[Self];

    /// Returns the same slice if its numbers are f32, else `None`.
    fn single(slice: &[Self]) -> Option<&[f32]>;
    /// Returns the same slice, to be changed, if its numbers are f32, else `None`.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "only the vector code of x86-64 calls it")
    )]
    fn single_mut(slice: &mut [Self]) -> Option<&mut [f32]>;

    /// Returns 1 / (1 + e^−x).
    #[inline(always)]
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).e_to())
    }
}

/// Converts values to this precision one by one.
fn convert_values<R: Real>(values: &Values) -> Vec<R> {
    match values {
        Values::F32(v) => v.iter().map(|&x| R::of(f64::from(x))).collect(),
        Values::F64(v) => v.iter().map(|&x| R::of(x)).collect(),
        Values::I32(v) => v.iter().map(|&x| R::of(f64::from(x))).collect(),
        Values::Blocks(blocks) => blocks
            .iter()
            .flat_map(|block| block.iter())
            .map(|&x| R::of(f64::from(x)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_and_tanh_in_f32_agree_with_f64() {
        for k in -8000..8000 {
            let x = k as f32 * 0.01;
            let exact = f64::from(x).exp();
            assert!((f64::from(x.e_to()) / exact - 1.0).abs() < 2e-7, "exp {x}");
            let y = x * 0.01;
            let exact = f64::from(y).tanh();
            assert!(
                (f64::from(Real::tanh(y)) - exact).abs() <= 6e-7 * exact.abs().max(1e-30),
                "tanh {y}"
            );
        }
        assert!(f32::NAN.e_to().is_nan());
        assert!((-1e30f32).e_to() < 1e-37);
    }
}
