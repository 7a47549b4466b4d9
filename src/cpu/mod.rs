//! The CPU device, and one file a kernel: the twins of `shaders/`.

pub(crate) mod activate;
mod broaden;
mod compact;
mod continuum;
mod custom;
mod device;
mod estimate;
mod halve;
mod labels;
mod lanes;
mod narrow;
mod normal;
pub(crate) mod per_pixel;
mod prefilter;
pub mod prior;
pub mod product;
mod resample;
mod resolve;
pub(crate) mod simplex;
pub(crate) mod step;
mod whole;

pub use device::CpuDevice;
