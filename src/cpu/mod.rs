//! The CPU device, and one file a kernel: the twins of `shaders/`.

mod activate;
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
mod per_pixel;
mod prefilter;
pub mod prior;
mod product;
mod resample;
mod resolve;
pub(crate) mod simplex;
pub(crate) mod step;
mod whole;

pub use device::CpuDevice;
