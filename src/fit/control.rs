//! Control of a run, and its summary.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use web_time::Instant;

use super::Profile;
use crate::setters::setters;

/// A function that receives the number of finished spectra or curves and their total. It is called from any thread, one
/// call at a time. A slow function delays the fits.
pub type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Reports the progress of a run, and stops it. Clones control the same runs.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Control {
    /// Receives the number of finished spectra or curves and their total, until the run is stopped.
    pub progress: Option<Progress>,
    /// Cancels the run when set: fits that are not finished end with [`Status::Interrupted`](crate::Status).
    pub cancel: Arc<AtomicBool>,
    /// Measures the times of all stages ([`Summary::profile`]) in calls that return a [`Summary`]. No bit of the rows
    /// changes.
    pub profile: bool,
    /// Maximum time of the run. Then the run stops as if `cancel` were set.
    pub timeout: Option<Duration>,
}

setters!(Control {
    cancel: Arc<AtomicBool>;
    profile: bool;
    timeout: Duration, Some;
});

impl Control {
    /// Sets the function that receives the number of finished spectra or curves and their total during a run.
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Control {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Returns whether a run that began at `begin` must stop, because it is cancelled or has taken too long.
    pub(crate) fn is_stopped(&self, begin: Instant) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.timeout.is_some_and(|timeout| begin.elapsed() >= timeout)
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Control { progress, cancel, profile, timeout } = self;
        let debug = &mut f.debug_struct("Control");
        debug.field("progress", &progress.is_some()).field("cancel", cancel);
        debug.field("profile", profile).field("timeout", timeout).finish()
    }
}

/// Number of rows that a device made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRows {
    /// Name of the device.
    pub device: String,
    /// Number of rows.
    pub rows: u64,
}

/// Summary of a run: rows, devices and times.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Number of rows.
    pub fits: u64,
    /// Number of rows whose fits were interrupted, because the run was cancelled or its time was up.
    pub interrupted: u64,
    /// Number of rows that each device made, including the CPU if it replaced a failed device. The other rows come from
    /// the journal.
    pub by_device: Vec<DeviceRows>,
    /// Devices that made the rows, in the order of the rows, each with a number of consecutive rows. They change only
    /// at the ends of batches.
    pub by_rows: Vec<DeviceRows>,
    /// Messages about failures of devices. Their batches were fitted again.
    pub failures: Vec<String>,
    /// Time of each stage (read, prepare, first guess, fit, finish, posterior, hash, write), summed over all threads,
    /// which overlap.
    pub stages: Vec<(String, Duration)>,
    /// Profile of the run, if [`Control::profile`] asks for one.
    pub profile: Option<Profile>,
}
