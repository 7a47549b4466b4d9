//! Counts of the calls to an open device, in exact numbers that depend on no clock and no driver.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernels::shader::BindingTarget;
use crate::solver::profile::DeviceCalls;

/// Counts of calls since the device was opened, by all its populations.
#[derive(Debug, Default)]
pub(super) struct CallCounts {
    pub dispatches: Counter,
    pub barriers: Counter,
    pub submissions: Counter,
    pub waits: Counter,
    pub buffers: CallsAndBytes,
    pub uploads: CallsAndBytes,
    pub copies: CallsAndBytes,
}

/// A number that threads add to.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

/// A number of calls, and their bytes.
#[derive(Debug, Default)]
pub(super) struct CallsAndBytes {
    calls: Counter,
    bytes: Counter,
}

impl Counter {
    /// Adds `amount` to the number.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Returns the number.
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl CallsAndBytes {
    /// Adds a call of so many bytes.
    pub fn add(&self, bytes: u64) {
        self.calls.add(1);
        self.bytes.add(bytes);
    }
}

impl CallCounts {
    /// Counts the dispatches of a pass, and those of them that wait for earlier ones.
    pub fn add_pass(&self, pass: &PassCount) {
        self.dispatches.add(pass.dispatches);
        self.barriers.add(pass.barriers);
    }

    /// Returns all numbers.
    pub fn snapshot(&self) -> DeviceCalls {
        DeviceCalls {
            dispatches: self.dispatches.get(),
            barriers: self.barriers.get(),
            submissions: self.submissions.get(),
            waits: self.waits.get(),
            buffers: self.buffers.calls.get(),
            buffer_bytes: self.buffers.bytes.get(),
            uploads: self.uploads.calls.get(),
            uploaded_bytes: self.uploads.bytes.get(),
            copies: self.copies.calls.get(),
            copied_bytes: self.copies.bytes.get(),
        }
    }
}

/// Use of a buffer by a dispatch.
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
pub(super) struct PassCount {
    dispatches: u64,
    barriers: u64,
    /// Last use of each buffer in this pass.
    uses: Vec<(BindingTarget, Use)>,
}

impl PassCount {
    /// Counts a dispatch with these buffers, each with whether the kernel may write it; the numbers of workgroups
    /// of an indirect one are in [`BindingTarget::Arguments`]. A kernel's own table is never written.
    pub fn count_dispatch(&mut self, buffers: &[(BindingTarget, bool)], is_indirect: bool) {
        let bound = buffers
            .iter()
            .filter(|(target, _)| *target != BindingTarget::Table)
            .map(|(target, writes)| (*target, if *writes { Use::Write } else { Use::Read }));
        let arguments = is_indirect.then_some((BindingTarget::Arguments, Use::Indirect));
        let mut waits = false;
        for (target, new_use) in bound.chain(arguments) {
            match self.uses.iter_mut().find(|(used, _)| *used == target) {
                Some((_, last_use)) => {
                    waits |= *last_use != new_use || new_use == Use::Write;
                    *last_use = new_use;
                }
                None => self.uses.push((target, new_use)),
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
    fn a_dispatch_waits_for_earlier_ones_that_share_a_written_buffer() {
        let mut pass = PassCount::default();
        let count = |pass: &PassCount| (pass.dispatches, pass.barriers);
        // The first use of a buffer waits for nothing.
        pass.count_dispatch(
            &[
                (BindingTarget::Members, false),
                (BindingTarget::State, true),
            ],
            true,
        );
        pass.count_dispatch(
            &[
                (BindingTarget::Members, false),
                (BindingTarget::Control, true),
            ],
            true,
        );
        assert_eq!(count(&pass), (2, 0));
        // These wait: a buffer written twice, one read after a write, and one written after a read.
        pass.count_dispatch(&[(BindingTarget::State, true)], true);
        pass.count_dispatch(&[(BindingTarget::State, false)], true);
        pass.count_dispatch(&[(BindingTarget::Members, true)], true);
        assert_eq!(count(&pass), (5, 3));
        // An indirect dispatch waits for the kernel that wrote its arguments.
        pass.count_dispatch(&[(BindingTarget::Arguments, true)], false);
        pass.count_dispatch(&[(BindingTarget::Limits, false)], true);
        assert_eq!(count(&pass), (7, 5));
        // A table belongs to one kernel alone, so nothing waits for it.
        pass.count_dispatch(&[(BindingTarget::Table, false)], true);
        assert_eq!(count(&pass), (8, 5));
    }
}
