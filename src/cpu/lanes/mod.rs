//! Parts of `cpu/small.rs`: the state of a block of fits, one lane per fit, and the parts of a round.

mod block;
mod descent;
mod doubt;
mod faces;
mod few;
mod function;
mod gram;
mod load;
mod share;
mod solve;
mod step;
#[cfg(test)]
mod tests;

pub use block::{Block, Model, ModelRows};
pub use doubt::Doubts;
pub use load::{Seat, Seated, Source, load, units, unload};
