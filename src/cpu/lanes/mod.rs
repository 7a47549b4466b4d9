//! What `whole` is made of: the state of a block of fits, a lane each, and the parts of a round.

mod block;
mod descent;
mod doubt;
mod faces;
mod few;
mod gram;
mod load;
mod share;
mod solve;
mod step;

pub use block::{Block, Model};
pub use doubt::Doubts;
pub use load::{Seat, Source, load, units, unload};
