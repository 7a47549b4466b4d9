//! One number of each of many fits, side by side, for loops that are vectorised across fits.

use super::Real;

/// Number of fits in a [`Lanes`].
pub const LANES: usize = 64;

/// One number per fit, aligned so that no vector straddles two cache lines.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct Lanes<R>(pub [R; LANES]);

impl<R: Copy> Lanes<R> {
    /// Returns lanes that all hold x.
    #[inline(always)]
    pub fn splat(x: R) -> Lanes<R> {
        Lanes([x; LANES])
    }
}

/// Returns `yes` if the condition holds, else `no`, by a select instruction. For an `if`, a compiler may emit a branch,
/// and a loop with a branch does not become vector code.
#[inline(always)]
pub fn pick<T>(condition: bool, yes: T, no: T) -> T {
    std::hint::select_unpredictable(condition, yes, no)
}

/// Returns the absolute value of x.
#[inline(always)]
pub fn absolute<R: Real>(x: R) -> R {
    x.maximum(-x)
}
