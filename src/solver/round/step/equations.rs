//! Equations of a damped step, for one number. The step of a member (`step.rs`, in f64) and the steps of small fits,
//! many side by side (`cpu/lanes`, in f32 or f64), use them and [`Interval`](crate::solver::Interval). None has a
//! branch, so that a loop over lanes becomes vector code. Their twins are in
//! `shaders/shared/{judge,box,faces}.wgsl` for members, and in `shaders/small.wgsl` and
//! `shaders/shared/small_bounded.wgsl` for small fits.

use crate::math::Real;
use crate::math::lanes::{absolute, pick};
use crate::solver::thresholds::SMALLEST_MAGNITUDE;

/// Returns the factor on the damping after a step with gain ratio ρ: max(⅓, 1 − (2ρ − 1)³). (Nielsen 1999, eq. 2.21)
#[inline(always)]
pub fn relaxation<R: Real>(gain_ratio: R) -> R {
    let centred = R::of(2.0) * gain_ratio - R::ONE;
    R::of(1.0 / 3.0).maximum(R::ONE - centred * centred * centred)
}

/// Returns the ratio of the predicted reductions of two successive steps, between `best`, the smallest credible one,
/// and 1. The step after the next is expected to gain this share of what the next one gains.
#[inline(always)]
pub fn contraction<R: Real>(next: R, previous: R, best: R) -> R {
    (next / previous).maximum(best).minimum(R::ONE)
}

/// Returns the square of the distance that all remaining steps cover together, in errors, from the reductions that two
/// successive steps predict: ‖δ‖²/(1 − q)². Here ‖δ‖² = δᵀAδ is the reduction that a Gauss–Newton step predicts, and q
/// the ratio of the steps' lengths. Where steps grow, it is the square of the shorter one's length: a fit that was near
/// its minimum is led away from it by rounding alone.
#[inline(always)]
pub fn squared_remaining_distance<R: Real>(next: R, previous: R) -> R {
    let shrinkage = R::ONE - (next / previous).root();
    pick(
        shrinkage > R::ZERO,
        next / (shrinkage * shrinkage),
        previous,
    )
}

/// Returns the reduction that a `share` of a step δ predicts, from `linear` = 2 gᵀδ and `quadratic` = δᵀAδ.
#[inline(always)]
pub fn shortened_reduction<R: Real>(linear: R, quadratic: R, share: R) -> R {
    share * (linear - share * quadratic)
}

/// Returns the magnitude of a parameter, by which its steps are limited: |x|, but at least a share of its unit.
#[inline(always)]
pub fn magnitude<R: Real>(x: R, unit: R) -> R {
    absolute(x).maximum(R::of(SMALLEST_MAGNITUDE) * unit)
}

/// Returns the point after a `share` of the way from `from` to `to`; `to` itself, to the bit, where the share is 1.
#[inline(always)]
pub fn interpolate<R: Real>(from: R, to: R, share: R) -> R {
    pick(share < R::ONE, from + share * (to - from), to)
}
