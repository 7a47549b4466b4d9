//! The CPU device, and the twins of the shaders that move a population: `step`, `halve`, `simplex`, `compact` and
//! `whole`.

mod compact;
mod device;
mod halve;
mod lanes;
pub(crate) mod simplex;
pub(crate) mod step;
mod whole;

pub use device::CpuDevice;
