//! Repetition of fits after a failure of the device, in the order of [`Attempts`].

use crate::curves::CurveRun;
use crate::curves::watch::Watch;
use crate::device::retry::Attempts;
use crate::error::Result;

impl CurveRun {
    /// Calls `work` on this device and, while it fails, on the devices that take its place; returns the first success
    /// or the last error.
    pub(crate) fn retry_on_devices<T>(
        &self,
        watch: &Watch,
        mut work: impl FnMut(&CurveRun) -> Result<T>,
    ) -> Result<T> {
        let mut attempts = Attempts::default();
        let mut replacement: Option<CurveRun> = None;
        let fits_ended_before = watch.ended();
        loop {
            let run = replacement.as_ref().unwrap_or(self);
            watch.reset_ended(fits_ended_before);
            self.failures.clear();
            let failure = match work(run) {
                Ok(result) => return Ok(result),
                Err(failure) => failure,
            };
            let allows_cpu = self.cpu_fallback.unwrap_or(self.device.is_chosen());
            let may_use_cpu = allows_cpu && self.model.device_fault(false).is_none();
            let mut next_run = run.clone();
            next_run.device.inner =
                attempts.next_device(&run.device.inner, failure, may_use_cpu)?;
            replacement = Some(next_run);
        }
    }
}
