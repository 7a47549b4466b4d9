//! The end of a fit: its refinement in f64 where a search stopped, and the tests that it must pass to count as a
//! minimum.

pub mod coincident;
pub mod end;
pub mod factors;
pub mod plateau;
pub mod polish;
pub mod sums;
