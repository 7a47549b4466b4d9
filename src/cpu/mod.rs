//! The CPU device, and the twin of the shader that runs small fits (`small`).

mod device;
mod lanes;
pub(crate) mod small;

pub use device::CpuDevice;

/// Returns the name of the instruction set for which this processor's vector code is chosen, such as `x86_64-v3`.
///
/// Sums go over as many lanes as the processor's vectors have, and only some processors have fused multiply-adds, so
/// rows of two instruction sets differ in their last bits.
pub fn instruction_set() -> String {
    // the name of the variant, which differs between architectures
    let variant = format!("{:?}", pulp::Arch::new());
    let variant = variant.split('(').next().unwrap_or_default().to_lowercase();
    format!("{}-{variant}", std::env::consts::ARCH)
}
