//! What an open device was asked for, in exact numbers that depend on no clock and no driver.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernels::shader::Target;
use crate::solver::profile::DeviceCalls;

/// Counts since the device was opened, by all its populations.
#[derive(Debug, Default)]
pub(super) struct Counts {
    dispatches: AtomicU64,
    barriers: AtomicU64,
    submissions: AtomicU64,
    waits: AtomicU64,
    buffers: Transfers,
    uploads: Transfers,
    copies: Transfers,
}

/// A number of calls, and their bytes.
#[derive(Debug, Default)]
struct Transfers {
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl Transfers {
    /// Adds a call of so many bytes.
    fn add(&self, bytes: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the calls and the bytes.
    fn read(&self) -> [u64; 2] {
        [&self.calls, &self.bytes].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Counts {
    /// Counts the dispatches of a pass, and those of them that wait for earlier ones.
    pub fn pass(&self, pass: &Pass) {
        self.dispatches.fetch_add(pass.dispatches, Ordering::Relaxed);
        self.barriers.fetch_add(pass.barriers, Ordering::Relaxed);
    }

    /// Counts a submission.
    pub fn submission(&self) {
        self.submissions.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a wait of the host for the device.
    pub fn wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a new buffer of so many bytes.
    pub fn buffer(&self, bytes: u64) {
        self.buffers.add(bytes);
    }

    /// Counts a write of so many bytes by the host.
    pub fn upload(&self, bytes: u64) {
        self.uploads.add(bytes);
    }

    /// Counts a copy of so many bytes between two buffers.
    pub fn copy(&self, bytes: u64) {
        self.copies.add(bytes);
    }

    /// Returns all numbers.
    pub fn read(&self) -> DeviceCalls {
        let [buffers, buffer_bytes] = self.buffers.read();
        let [uploads, uploaded_bytes] = self.uploads.read();
        let [copies, copied_bytes] = self.copies.read();
        let [dispatches, barriers, submissions, waits] =
            [&self.dispatches, &self.barriers, &self.submissions, &self.waits].map(|n| n.load(Ordering::Relaxed));
        DeviceCalls {
            dispatches,
            barriers,
            submissions,
            waits,
            buffers,
            buffer_bytes,
            uploads,
            uploaded_bytes,
            copies,
            copied_bytes,
        }
    }
}

/// How a dispatch uses a buffer.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Read,
    Write,
    /// The numbers of workgroups are read from it.
    Indirect,
}

/// The dispatches of a compute pass. wgpu puts a barrier before a dispatch that uses a buffer otherwise than the one
/// before, or that may write a buffer that was used before (wgpu-core, `track/buffer.rs`). A Vulkan layer that counts
/// barriers found as many in every round after the first.
#[derive(Default)]
pub(super) struct Pass {
    dispatches: u64,
    barriers: u64,
    /// Last use of each buffer in this pass.
    uses: Vec<(Target, Use)>,
}

impl Pass {
    /// Counts a dispatch with these buffers, each with whether the kernel may write it; the numbers of workgroups of an
    /// indirect one are in [`Target::Arguments`]. A kernel's own table is never written.
    pub fn dispatch(&mut self, buffers: &[(Target, bool)], is_indirect: bool) {
        let bound = buffers.iter().map(|(target, writes)| (*target, if *writes { Use::Write } else { Use::Read }));
        let bound = bound.filter(|(target, _)| *target != Target::Table);
        let mut waits = false;
        for (target, now) in bound.chain(is_indirect.then_some((Target::Arguments, Use::Indirect))) {
            match self.uses.iter_mut().find(|(other, _)| *other == target) {
                Some((_, last)) => {
                    waits |= *last != now || now == Use::Write;
                    *last = now;
                }
                None => self.uses.push((target, now)),
            }
        }
        self.dispatches += 1;
        self.barriers += u64::from(waits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dispatch_waits_for_whom_it_shares_a_written_buffer_with() {
        let mut pass = Pass::default();
        let count = |pass: &Pass| (pass.dispatches, pass.barriers);
        // the first use of a buffer waits for nothing
        pass.dispatch(&[(Target::Members, false), (Target::State, true)], true);
        pass.dispatch(&[(Target::Members, false), (Target::Control, true)], true);
        assert_eq!(count(&pass), (2, 0));
        // written twice, read after it was written, written after it was read
        pass.dispatch(&[(Target::State, true)], true);
        pass.dispatch(&[(Target::State, false)], true);
        pass.dispatch(&[(Target::Members, true)], true);
        assert_eq!(count(&pass), (5, 3));
        // arguments that a kernel has written are read as such
        pass.dispatch(&[(Target::Arguments, true)], false);
        pass.dispatch(&[(Target::Limits, false)], true);
        assert_eq!(count(&pass), (7, 5));
        // tables are of one kernel alone
        pass.dispatch(&[(Target::Table, false)], true);
        assert_eq!(count(&pass), (8, 5));
    }
}
