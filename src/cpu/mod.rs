//! The CPU device, and the twin of the shader that runs whole fits (`whole`).

mod device;
mod lanes;
mod whole;

pub use device::CpuDevice;
