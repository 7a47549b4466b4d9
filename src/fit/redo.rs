//! Work that a device could not do is done again: once on the same device made anew, then, where that is allowed, on
//! the CPU.

use std::sync::Arc;

use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::solver::Device;

/// Half the members that so many spectra need, if a spectrum's starts still enter together.
pub fn half(capacity: usize, spectra: usize, starts: usize) -> Option<usize> {
    // and a canary's
    let half = capacity.min(spectra * starts + 1) / 2;
    (half >= starts).then_some(half)
}

/// Attempts that have been made for one piece of work.
#[derive(Debug, Default)]
pub struct Attempts {
    renewed: bool,
}

impl Attempts {
    /// The device to try after `failure` on `device`; the failure itself where it was not the device's, or no other is
    /// left.
    pub fn next(&mut self, device: &Arc<dyn Device>, failure: Error, cpu: bool) -> Result<Arc<dyn Device>> {
        if !failure.is_of_device() {
            return Err(failure);
        }
        if !std::mem::replace(&mut self.renewed, true) && matches!(device.renew(&failure), Ok(true)) {
            return Ok(device.clone());
        }
        // what does not run WGSL is the CPU already
        if cpu && device.runs_wgsl() { Ok(Arc::new(CpuDevice)) } else { Err(failure) }
    }
}
