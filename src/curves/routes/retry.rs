//! Repetition of fits after a failure of the device, as [`Attempts`] says.

use crate::curves::CurveRun;
use crate::curves::watch::Watch;
use crate::device::retry::Attempts;
use crate::error::Result;

impl CurveRun {
    /// Calls `work` on this device and, while it fails, on the devices that take its place; returns the first success
    /// or the last error.
    pub(crate) fn with_attempts<T>(
        &self,
        watch: &Watch,
        mut work: impl FnMut(&CurveRun) -> Result<T>,
    ) -> Result<T> {
        let mut attempts = Attempts::default();
        let mut other: Option<CurveRun> = None;
        let ended = watch.ended();
        loop {
            let fitter = other.as_ref().unwrap_or(self);
            watch.restart(ended);
            self.failures.clear();
            let failure = match work(fitter) {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            let wanted = self.cpu_fallback.unwrap_or(self.device.is_chosen());
            let cpu = wanted && self.model.device_fault(false).is_none();
            let mut next = fitter.clone();
            next.device.inner = attempts.next_device(&fitter.device.inner, failure, cpu)?;
            other = Some(next);
        }
    }
}
