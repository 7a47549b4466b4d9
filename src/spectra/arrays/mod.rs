//! Spectra made of named arrays, which are in an NPZ file or in memory.
//!
//! An [`ArraySource`](source::ArraySource) has the arrays. What is done with them (names, shapes, weights, masks,
//! grids, ids and columns) is the same wherever they are. Opening validates everything and keeps no large array;
//! batches then come from [`ArrayRows`](source::ArrayRows), one for each array.

#![deny(clippy::indexing_slicing)] // whatever a file or a user gives is no index

mod arm;
mod columns;
mod memory;
mod names;
#[cfg(feature = "files")]
mod npz;
mod reader;
mod source;
mod values;
mod weights;

pub use memory::NamedArray;
#[cfg(feature = "files")]
pub(super) use npz::open as open_npz;
pub use values::ArrayValues;
