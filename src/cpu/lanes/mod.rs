//! State of a block of small fits, one fit per lane, and the steps of a round. `cpu/small.rs` runs them.

mod block;
mod descent;
mod faces;
mod function;
mod gram;
mod load;
mod registers;
mod solve;
mod step;
#[cfg(test)]
mod tests;
mod weighting;

pub use block::{BlockModel, FitBlock, RowSource};
pub use load::{FitSource, LaneSeat, SeatedLanes, choose_units, load_fits, unload_fits};
