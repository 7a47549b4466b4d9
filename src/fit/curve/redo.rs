//! Fits that a device could not make are made again, as [`Attempts`] says.

use super::CurveFitter;
use crate::error::Result;
use crate::fit::redo::Attempts;

impl CurveFitter {
    /// Whether what a GPU has failed to fit twice goes to the CPU, if the model runs there. Unless set it does where popfit chose the GPU
    /// (`auto`, `all`), and the failure is an error where the user did.
    #[must_use]
    pub fn cpu_fallback(self, cpu_fallback: bool) -> CurveFitter {
        CurveFitter { cpu_fallback: Some(cpu_fallback), ..self }
    }

    /// Does some work on the device, or on one that takes its place.
    pub(super) fn redoing<T>(&self, mut work: impl FnMut(&CurveFitter) -> Result<T>) -> Result<T> {
        let mut attempts = Attempts::default();
        let mut other: Option<CurveFitter> = None;
        loop {
            let fitter = other.as_ref().unwrap_or(self);
            let failure = match work(fitter) {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            let wanted = self.cpu_fallback.unwrap_or(self.device.is_chosen);
            let cpu = wanted && self.model.check_device(false).is_ok();
            let mut next = fitter.clone();
            next.device.inner = attempts.next(&fitter.device.inner, failure, cpu)?;
            other = Some(next);
        }
    }
}
