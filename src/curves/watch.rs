//! Progress of a run, and its early end by cancel or timeout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use web_time::Instant;

use crate::control::Control;
use crate::curves::CurveFit;
use crate::solver::Status;

/// Maximum number of calls of the progress function, without the last.
const MAX_PROGRESS_CALLS: u64 = 1000;

/// Counts of fits that have ended.
#[derive(Debug, Default)]
struct FitCounts {
    ended: u64,
    /// Number with which the progress function was called last.
    shown: u64,
}

/// Watches a run for its user.
pub(crate) struct Watch<'a> {
    control: Option<&'a Control>,
    begin: Instant,
    total: u64,
    /// True if the run is a part of another one, which reports the progress.
    is_part: bool,
    counts: Mutex<FitCounts>,
    /// Set once the user's request to stop has been seen.
    stopped: AtomicBool,
}

impl<'a> Watch<'a> {
    /// Begins to count the ended fits of a run of `total` curves, with progress, cancel and timeout by `control`.
    pub fn new(control: Option<&'a Control>, total: usize) -> Watch<'a> {
        Watch {
            control,
            begin: Instant::now(),
            total: total as u64,
            is_part: false,
            counts: Mutex::default(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Returns the watch of a run that is a part of this one: it stops with it, and reports no progress.
    pub fn of_part(&self) -> Watch<'a> {
        Watch {
            begin: self.begin,
            is_part: true,
            ..Watch::new(self.control, 0)
        }
    }

    /// Returns whether the run has been cancelled or has taken too long; once true, it stays true.
    pub fn is_stopped(&self) -> bool {
        if self
            .control
            .is_some_and(|control| control.is_stopped(self.begin))
        {
            self.stopped.store(true, Ordering::Relaxed);
        }
        self.stopped.load(Ordering::Relaxed)
    }

    /// Returns the flag that is set once [`is_stopped`](Self::is_stopped) has been true.
    pub fn stop_flag(&self) -> &AtomicBool {
        &self.stopped
    }

    /// Counts a fit as ended, unless it was interrupted.
    pub fn count_fit(&self, fit: &CurveFit) {
        if fit.status != Status::Interrupted {
            self.add_ended(1);
        }
    }

    /// Adds `more` to the number of ended fits, and reports the progress.
    pub fn add_ended(&self, more: usize) {
        self.report_progress(more as u64, 0);
    }

    /// Reports progress with `arrived` fits of the current population, which [`add_ended`](Self::add_ended) counts
    /// later.
    pub fn report_in_flight(&self, arrived: usize) {
        self.report_progress(0, arrived as u64);
    }

    /// Returns the number of ended fits.
    pub fn ended(&self) -> u64 {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ended
    }

    /// Sets the number of ended fits back to what it was before an attempt. The progress that was shown stays.
    pub fn reset_ended(&self, ended: u64) {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ended = ended;
    }

    /// Adds `more` to the ended fits and, if these and the `arrived` ones have grown enough, calls the progress
    /// function. After a cancel there is none.
    fn report_progress(&self, more: u64, arrived: u64) {
        let control = self.control.filter(|_| !self.is_part);
        let Some(report_progress) = control.and_then(|control| control.progress.as_ref()) else {
            return;
        };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.ended += more;
        let finished = (counts.ended + arrived).min(self.total);
        let min_growth = (self.total / MAX_PROGRESS_CALLS).max(1);
        let has_grown_enough = finished >= counts.shown + min_growth
            || (finished == self.total && finished > counts.shown);
        if has_grown_enough && !self.is_stopped() {
            counts.shown = finished;
            report_progress(finished, self.total);
        }
    }
}
