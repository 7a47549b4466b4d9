//! Numbers to 16 bits: output = input rounded to the nearest f16, ties to even. Twin of `shaders/narrow.wgsl`.

use half::f16;

use crate::rows::Real;

/// The nearest number that f16 has.
pub fn rounded<R: Real>(x: R) -> R {
    R::of(f16::from_f64(x.to_f64()).to_f64())
}

/// A member's numbers.
pub fn narrow<R: Real>(input: &[R], output: &mut [R]) {
    input.iter().zip(output).for_each(|(x, out)| *out = rounded(*x));
}
