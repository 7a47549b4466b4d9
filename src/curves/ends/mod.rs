//! The end of a fit: what is done in f64 where a search stopped, and what is looked at before it counts as a minimum.

pub mod coincident;
pub mod end;
pub mod factors;
pub mod plateau;
pub mod polish;
pub mod second_start;
pub mod sums;
