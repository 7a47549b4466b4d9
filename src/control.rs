//! Control of a run: progress, cancel and timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use web_time::Instant;

use crate::error::Result;
use crate::threads;

/// A function that receives the number of finished spectra or curves and their total. It is called from any thread, one
/// call at a time. A slow function delays the fits. It must not call popfit, because the thread belongs to the run.
pub type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Reports the progress of a run, and stops it. Clones control the same runs. Fields may be added: end a literal with
/// `..Control::default()`.
#[derive(Clone, Default)]
pub struct Control {
    /// Receives the number of finished spectra or curves and their total, until the run is stopped.
    pub progress: Option<Progress>,
    /// Cancels the run when set: fits that are not finished end with [`Status::Interrupted`](crate::Status).
    pub cancel: Arc<AtomicBool>,
    /// Measures the times of all stages ([`Summary::profile`](crate::Summary::profile)) in calls that return a
    /// [`Summary`](crate::Summary). No bit of the rows changes.
    pub profile: bool,
    /// Maximum time of the run. Then the run stops as if `cancel` were set.
    pub timeout: Option<Duration>,
    /// Number of threads that compute, at least 1. Unless it is set, they are those of the rayon pool in which the call
    /// is made, or of the global pool. Runs with the same number share one pool, except for a stream that begins in a
    /// worker of rayon, which starts threads of its own. No bit of a result depends on this number.
    pub threads: Option<usize>,
}

impl Control {
    /// Runs `work` with the [`threads`](Control#structfield.threads) of this control, on which popfit computes the
    /// calls that `work` makes. Use it for calls that take no `Control` themselves.
    ///
    /// ```
    /// use popfit::{Control, Device};
    ///
    /// let name = Control { threads: Some(2), ..Control::default() }.scope(|| Device::cpu().name())?;
    /// assert_eq!(name, "cpu (2 threads)");
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidSettings`](crate::Error::InvalidSettings) for 0 threads, and
    /// [`Error::System`](crate::Error::System) if the system refuses to start them.
    pub fn scope<R>(&self, work: impl FnOnce() -> R) -> Result<R> {
        let pool = self.threads.map(threads::shared_pool).transpose()?;
        Ok(threads::with_pool(pool, work))
    }

    /// Returns whether a run that began at `begin` must stop, because it is cancelled or has taken too long.
    pub(crate) fn is_stopped(&self, begin: Instant) -> bool {
        self.cancel.load(Ordering::Relaxed)
            || self
                .timeout
                .is_some_and(|timeout| begin.elapsed() >= timeout)
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Control {
            progress,
            cancel,
            profile,
            timeout,
            threads,
        } = self;
        let debug = &mut f.debug_struct("Control");
        debug
            .field("progress", &progress.is_some())
            .field("cancel", cancel);
        debug.field("profile", profile).field("timeout", timeout);
        debug.field("threads", threads).finish()
    }
}
