//! Summary of a run.

use std::time::Duration;

use crate::spectral::Profile;

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
    /// Warnings: batches that were fitted again, because a device failed or because their spectra have changed since
    /// the journal kept their rows.
    pub failures: Vec<String>,
    /// Time of each stage (read, prepare, first guess, fit, finish, posterior, hash, write), summed over all threads,
    /// which overlap.
    pub stages: Vec<(String, Duration)>,
    /// Profile of the run, if [`Control::profile`](crate::Control::profile) asks for one.
    pub profile: Option<Profile>,
}
