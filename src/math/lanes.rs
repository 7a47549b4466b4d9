//! One number of each of many fits, side by side: what vectorised loops across fits work on.

use super::Real;

/// Fits in a [`Lanes`].
pub const LANES: usize = 64;

/// A number a fit, aligned so that no vector straddles two lines of the cache.
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

/// Returns `yes` if the condition holds, else `no`, by a select instruction. With an `if`, compilers may branch around
/// what only one of the two needs, and a loop with a branch is no vector code.
#[inline(always)]
pub fn pick<T>(condition: bool, yes: T, no: T) -> T {
    std::hint::select_unpredictable(condition, yes, no)
}

/// Returns the absolute value of x.
#[inline(always)]
pub fn absolute<R: Real>(x: R) -> R {
    x.maximum(-x)
}
