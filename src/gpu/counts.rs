//! What an open device was asked for, in exact numbers that depend on no clock and no driver.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernels::shader::BindingTarget;
use crate::solver::profile::DeviceCalls;

/// Counts since the device was opened, by all its populations.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub dispatches: Count,
    pub barriers: Count,
    pub submissions: Count,
    pub waits: Count,
    pub buffers: Transfers,
    pub uploads: Transfers,
    pub copies: Transfers,
}

/// A number that threads add to.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

/// A number of calls, and their bytes.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    calls: Count,
    bytes: Count,
}

impl Count {
    /// Adds `more` to the number.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the number.
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Transfers {
    /// Adds a call of so many bytes.
    pub fn add(&self, bytes: u64) {
        self.calls.add(1);
        self.bytes.add(bytes);
    }
}

impl Counts {
    /// Counts the dispatches of a pass, and those of them that wait for earlier ones.
    pub fn add_pass(&self, pass: &Pass) {
        self.dispatches.add(pass.dispatches);
        self.barriers.add(pass.barriers);
    }

    /// Returns all numbers.
    pub fn read(&self) -> DeviceCalls {
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
    uses: Vec<(BindingTarget, Use)>,
}

impl Pass {
    /// Counts a dispatch with these buffers, each with whether the kernel may write it; the numbers of workgroups of an
    /// indirect one are in [`BindingTarget::Arguments`]. A kernel's own table is never written.
    pub fn dispatch(&mut self, buffers: &[(BindingTarget, bool)], is_indirect: bool) {
        let bound = buffers
            .iter()
            .map(|(target, writes)| (*target, if *writes { Use::Write } else { Use::Read }));
        let bound = bound.filter(|(target, _)| *target != BindingTarget::Table);
        let mut waits = false;
        for (target, now) in
            bound.chain(is_indirect.then_some((BindingTarget::Arguments, Use::Indirect)))
        {
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
        pass.dispatch(
            &[
                (BindingTarget::Members, false),
                (BindingTarget::State, true),
            ],
            true,
        );
        pass.dispatch(
            &[
                (BindingTarget::Members, false),
                (BindingTarget::Control, true),
            ],
            true,
        );
        assert_eq!(count(&pass), (2, 0));
        // written twice, read after it was written, written after it was read
        pass.dispatch(&[(BindingTarget::State, true)], true);
        pass.dispatch(&[(BindingTarget::State, false)], true);
        pass.dispatch(&[(BindingTarget::Members, true)], true);
        assert_eq!(count(&pass), (5, 3));
        // arguments that a kernel has written are read as such
        pass.dispatch(&[(BindingTarget::Arguments, true)], false);
        pass.dispatch(&[(BindingTarget::Limits, false)], true);
        assert_eq!(count(&pass), (7, 5));
        // tables are of one kernel alone
        pass.dispatch(&[(BindingTarget::Table, false)], true);
        assert_eq!(count(&pass), (8, 5));
    }
}
