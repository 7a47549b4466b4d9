//! Profile of a device's time: a population that is measured adds to its device's [`Meter`].
//!
//! The CPU sums times by stage in each tile. A GPU takes timestamps around a pass per kernel and copies the count of
//! members of each round (`gpu/timing.rs`). What a stage costs on paper is said by the kernel itself (`Kernel::cost`),
//! and `spectral/stream/profile.rs` joins both with the spans of the host's threads. A kernel of several stages counts
//! as its last one, without what it need not write or read twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use web_time::Instant;

use crate::buffers::{Cost, KernelCost, Work};

/// Clock by which a device's seconds are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Clock {
    /// The wall clock around submissions, because the device does not report times of its kernels.
    #[default]
    Submissions,
    /// The device's timestamps around every kernel.
    Timestamps,
    /// The sum over this many threads.
    Threads(usize),
}

/// Number of calls, seconds, operations and bytes of one kind of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Calls of kernels, for a tile of members on the CPU, for all members of a round on a GPU.
    pub calls: u64,
    pub seconds: f64,
    pub operations: f64,
    pub bytes: f64,
}

/// Rounds that a device ran without interruption by the host.
#[derive(Clone, Debug)]
pub struct SubmittedRounds {
    /// Seconds since the meter was made.
    pub begin: f64,
    pub seconds: f64,
    /// Members that took part, by round.
    pub active: Vec<usize>,
}

/// Time, work and memory of a device.
#[derive(Clone, Debug, Default)]
pub struct Spending {
    pub clock: Clock,
    /// By [`Work`].
    pub works: [Spent; Work::ALL.len()],
    pub submissions: Vec<SubmittedRounds>,
    /// Number of bytes that populations hold now.
    pub held: u64,
    /// Maximum number of bytes that they held at once.
    pub most_held: u64,
}

/// Numbers of calls and bytes of a device: exact, and independent of any clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeviceCalls {
    /// Number of kernels that were recorded; those for members that have all ended by then count, too.
    pub dispatches: u64,
    /// Number of these that wait until earlier ones of their pass have ended.
    pub barriers: u64,
    /// Number of submissions.
    pub submissions: u64,
    /// Number of times that the host waited for a readback.
    pub waits: u64,
    /// Number of buffers that were made, and their bytes.
    pub buffers: u64,
    pub buffer_bytes: u64,
    /// Number of writes by the host, and their bytes.
    pub uploads: u64,
    pub uploaded_bytes: u64,
    /// Number of copies between buffers of the device, those of readbacks included, and their bytes.
    pub copies: u64,
    pub copied_bytes: u64,
}

impl std::ops::Sub for DeviceCalls {
    type Output = DeviceCalls;

    /// Returns the calls since `earlier`.
    fn sub(self, earlier: DeviceCalls) -> DeviceCalls {
        DeviceCalls {
            dispatches: self.dispatches - earlier.dispatches,
            barriers: self.barriers - earlier.barriers,
            submissions: self.submissions - earlier.submissions,
            waits: self.waits - earlier.waits,
            buffers: self.buffers - earlier.buffers,
            buffer_bytes: self.buffer_bytes - earlier.buffer_bytes,
            uploads: self.uploads - earlier.uploads,
            uploaded_bytes: self.uploaded_bytes - earlier.uploaded_bytes,
            copies: self.copies - earlier.copies,
            copied_bytes: self.copied_bytes - earlier.copied_bytes,
        }
    }
}

/// Adds up what a device's populations did.
#[derive(Debug)]
pub struct Meter {
    begin: Instant,
    spending: Mutex<Spending>,
}

impl Meter {
    /// Makes an empty account of spent time, in which times of submissions count from `begin`.
    pub fn new(begin: Instant) -> Meter {
        Meter {
            begin,
            spending: Mutex::default(),
        }
    }

    /// Returns a copy of the time, operations and bytes that have been spent so far.
    pub fn spending(&self) -> Spending {
        self.lock().clone()
    }

    /// Locks the account; a panic of another thread does not poison it.
    fn lock(&self) -> MutexGuard<'_, Spending> {
        self.spending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds, calls, and the members of all calls, by kernel of a round.
#[derive(Clone, Debug)]
pub struct KernelTally {
    pub seconds: Vec<f64>,
    pub calls: Vec<u64>,
    pub members: Vec<u64>,
}

impl KernelTally {
    /// Adds a call of the kernel of this index for `members` members to the tally; no call for none.
    pub fn count(&mut self, kernel: usize, members: usize) {
        self.calls[kernel] += u64::from(members > 0);
        self.members[kernel] += members as u64;
    }
}

/// The part of a population in its device's profile.
#[derive(Debug)]
pub struct Gauge {
    meter: Arc<Meter>,
    kernels: Vec<KernelCost>,
    step: Cost,
    bytes_per_number: f64,
    held: u64,
}

impl Gauge {
    /// Makes a gauge that adds a population's work to `meter`, by the cost of its kernels.
    pub fn new(
        meter: Arc<Meter>,
        kernels: Vec<KernelCost>,
        parameters: usize,
        bytes_per_number: usize,
        clock: Clock,
    ) -> Gauge {
        meter.lock().clock = clock;
        Gauge {
            meter,
            kernels,
            step: Cost::of_step(parameters),
            bytes_per_number: bytes_per_number as f64,
            held: 0,
        }
    }

    /// Returns a tally with no calls, members or seconds of any kernel yet.
    pub fn tally(&self) -> KernelTally {
        let count = self.kernels.len();
        KernelTally {
            seconds: vec![0.0; count],
            calls: vec![0; count],
            members: vec![0; count],
        }
    }

    /// Adds the calls, members and seconds of each kernel in the tally to the account, under its kind of work.
    pub fn add_kernels(&self, tally: &KernelTally) {
        let mut spending = self.meter.lock();
        for (k, KernelCost { work, cost }) in self.kernels.iter().enumerate() {
            let spent = &mut spending.works[*work as usize];
            self.charge(
                spent,
                *cost,
                tally.calls[k],
                tally.members[k],
                tally.seconds[k],
            );
        }
    }

    /// Adds one step of `members` members, which took `seconds`, to the account.
    pub fn add_step(&self, members: usize, seconds: f64) {
        let spent = &mut self.meter.lock().works[Work::Step as usize];
        self.charge(spent, self.step, 1, members as u64, seconds);
    }

    /// Adds one compaction of the list of `members` active members, which took `seconds`, to the account.
    pub fn add_compaction(&self, members: usize, seconds: f64) {
        let spent = &mut self.meter.lock().works[Work::Compact as usize];
        self.charge(spent, Cost::COMPACT, 1, members as u64, seconds);
    }

    /// Adds calls of a kernel for `members` members, at `cost` for each, to what its kind of work has spent.
    fn charge(&self, spent: &mut Spent, cost: Cost, calls: u64, members: u64, seconds: f64) {
        spent.calls += calls;
        spent.seconds += seconds;
        spent.operations += members as f64 * cost.operations;
        let numbers = members as f64 * cost.numbers + calls as f64 * cost.shared;
        spent.bytes += self.bytes_per_number * numbers;
    }

    /// Adds a copy of `bytes` bytes between host and device, from `begin` to now, to the account.
    pub fn add_copy(&self, work: Work, bytes: usize, begin: Instant) {
        let spent = &mut self.meter.lock().works[work as usize];
        spent.calls += 1;
        spent.seconds += begin.elapsed().as_secs_f64();
        spent.bytes += bytes as f64;
    }

    /// Records a submission of rounds from `begin` to now, with the number of members in each of them.
    pub fn add_submission(&self, begin: Instant, active: Vec<usize>) {
        let seconds = begin.elapsed().as_secs_f64();
        let begin = begin.duration_since(self.meter.begin).as_secs_f64();
        self.meter.lock().submissions.push(SubmittedRounds {
            begin,
            seconds,
            active,
        });
    }

    /// Sets the number of bytes that the population holds until it is dropped.
    pub fn hold(&mut self, bytes: u64) {
        let mut spending = self.meter.lock();
        spending.held = (spending.held + bytes).saturating_sub(self.held);
        spending.most_held = spending.most_held.max(spending.held);
        self.held = bytes;
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_counts_only_populations_that_exist_at_once() {
        let meter = Arc::new(Meter::new(Instant::now()));
        let new_gauge = || Gauge::new(meter.clone(), Vec::new(), 1, 4, Clock::Submissions);
        let mut first = new_gauge();
        let mut second = new_gauge();
        first.hold(100);
        second.hold(30);
        second.hold(50);
        drop(first);
        assert_eq!(
            (meter.spending().held, meter.spending().most_held),
            (50, 150)
        );
        new_gauge().hold(70);
        assert_eq!(
            (meter.spending().held, meter.spending().most_held),
            (50, 150)
        );
    }
}
