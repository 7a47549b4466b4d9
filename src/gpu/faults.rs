//! Faults that tests inject. The calls by which memory, work and results pass between host and device are counted here,
//! and one of them, or all from one on, fail as a test asks. Without a test this costs a look at an empty `Option`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Kind of a call's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device is destroyed: at a buffer's creation, after a submission, before a readback.
    Lost,
    /// No memory for a buffer, or for a submission.
    OutOfMemory,
    /// A buffer cannot be mapped.
    Mapping,
    /// A readback holds zeros.
    Zeros,
    /// A readback holds NaN.
    Garbage,
    /// A readback's numbers are 1 % off, which is seen only where they are computed again.
    Wrong,
    /// A submission does not come back within the limit.
    Stall,
    /// `wgpu` panics while it waits, as it does when the driver loses the device then.
    Crash,
    /// Levenberg–Marquardt's fits end with success where a step could still halve their cost. This is a fault of the
    /// device, not of a call.
    Early,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 9] = [
        Fault::Lost,
        Fault::OutOfMemory,
        Fault::Mapping,
        Fault::Zeros,
        Fault::Garbage,
        Fault::Wrong,
        Fault::Stall,
        Fault::Crash,
        Fault::Early,
    ];
}

/// Call that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Buffer,
    Submission,
    Readback,
}

/// Calls that are made to fail in tests; shared by a device and those that are opened in its place.
#[derive(Debug)]
pub struct Faults {
    fault: Fault,
    first: AtomicU64,
    lasting: AtomicBool,
    calls: AtomicU64,
}

impl Faults {
    /// Makes a fault that the `first` suitable call meets, counted from 1, and if `lasting` all later ones.
    pub fn new(fault: Fault, first: u64, lasting: bool) -> Arc<Faults> {
        Arc::new(Faults {
            fault,
            first: first.into(),
            lasting: lasting.into(),
            calls: AtomicU64::new(0),
        })
    }

    /// Counts calls from 0 again, so that the `first` one from now on meets the fault, and if `lasting` all later
    /// ones.
    pub fn arm(&self, first: u64, lasting: bool) {
        self.first.store(first, Ordering::Relaxed);
        self.lasting.store(lasting, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
    }

    /// Returns the number of calls so far that could have met the fault.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns the share of the cost at which fits end: `honest`, or 0.5 where the fault is to end them early.
    pub(super) fn tolerance(&self, honest: f64) -> f64 {
        if self.fault == Fault::Early {
            0.5
        } else {
            honest
        }
    }

    /// Counts a call if the fault concerns its kind, and returns the fault if this call is to meet it.
    pub(super) fn fault_at_call(&self, call: Call) -> Option<Fault> {
        let can_fail = match self.fault {
            Fault::Lost => true,
            Fault::OutOfMemory => call != Call::Readback,
            Fault::Early => false,
            _ => call == Call::Readback,
        };
        if !can_fail {
            return None;
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let first = self.first.load(Ordering::Relaxed);
        let lasting = self.lasting.load(Ordering::Relaxed);
        (number == first || lasting && number > first).then_some(self.fault)
    }
}
