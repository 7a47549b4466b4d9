//! The CPU device, and the twin of the shader that runs small fits (`small`).

mod device;
mod lanes;
pub(crate) mod small;

pub use device::CpuDevice;
