//! Retries of work that a device failed to do: once on the same device, which is opened anew, and then on the CPU if
//! that is allowed.

use std::sync::Arc;

use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::solver::Backend;

/// Returns half of the starts in flight that the capacity allows and these spectra need; `None` if the starts of one
/// spectrum would not fit.
pub fn halve_capacity(capacity: usize, spectra: usize, starts: usize) -> Option<usize> {
    let half = capacity.min(spectra.saturating_mul(starts)) / 2;
    (half >= starts).then_some(half)
}

/// Calls `make` with a capacity, which is lowered in place by a quarter while memory is short, and returns the result.
/// A device may have less memory than it reports. No capacity up to 6 is skipped, because a few starts must enter
/// together.
pub fn lower_until_it_fits<T>(
    capacity: &mut usize,
    mut make: impl FnMut(usize) -> Result<T>,
) -> Result<T> {
    loop {
        match make(*capacity) {
            Err(Error::OutOfMemory { .. }) if *capacity > 1 => *capacity -= (*capacity / 4).max(1),
            result => return result,
        }
    }
}

/// Copies a failure for another worker, whose spectra were on the device, too.
pub fn copy_failure(failure: &Error) -> Error {
    match failure {
        Error::Device { device, message } => Error::Device {
            device: device.clone(),
            message: message.clone(),
        },
        Error::DeviceLost { device, message } => Error::DeviceLost {
            device: device.clone(),
            message: message.clone(),
        },
        Error::DeviceUntrusted { device, message } => Error::DeviceUntrusted {
            device: device.clone(),
            message: message.clone(),
        },
        Error::OutOfMemory { device, message } => Error::OutOfMemory {
            device: device.clone(),
            message: message.clone(),
        },
        Error::Internal(message) => Error::Internal(message.clone()),
        failure => Error::Internal(failure.to_string()),
    }
}

/// Attempts at one piece of work.
#[derive(Debug, Default)]
pub struct Attempts {
    /// Whether the device has been opened anew.
    renewed: bool,
    /// Number of failures of other workers, whose spectra were on the device, too.
    failures_of_others: usize,
}

/// Maximum number of failures of other workers that do not count as an attempt.
const MAX_FAILURES_OF_OTHERS: usize = 8;

impl Attempts {
    /// Returns the device for another attempt after a failure of another worker, as [`next_device`](Self::next_device)
    /// does. It does not count as an attempt, unless there are many.
    ///
    /// # Errors
    /// Returns `failure` as [`next_device`](Self::next_device) does.
    pub fn next_device_after_other(
        &mut self,
        device: &Arc<dyn Backend>,
        failure: Error,
        may_use_cpu: bool,
    ) -> Result<Arc<dyn Backend>> {
        self.failures_of_others += 1;
        let was_renewed = self.renewed;
        if self.failures_of_others <= MAX_FAILURES_OF_OTHERS {
            self.renewed = false;
        }
        let next_device = self.next_device(device, failure, may_use_cpu);
        self.renewed = was_renewed;
        next_device
    }

    /// Returns the device for the next attempt: `device`, renewed for once, or the CPU if `may_use_cpu`; else the
    /// `failure`.
    ///
    /// # Errors
    /// Returns `failure` if the device did not cause it, or if no other device is left.
    pub fn next_device(
        &mut self,
        device: &Arc<dyn Backend>,
        failure: Error,
        may_use_cpu: bool,
    ) -> Result<Arc<dyn Backend>> {
        if !failure.is_of_device() {
            return Err(failure);
        }
        let may_renew = !std::mem::replace(&mut self.renewed, true);
        if may_renew && matches!(device.renew(&failure), Ok(true)) {
            return Ok(device.clone());
        }
        // A device that does not run WGSL is the CPU.
        if may_use_cpu && device.runs_wgsl() {
            Ok(Arc::new(CpuDevice))
        } else {
            Err(failure)
        }
    }
}
