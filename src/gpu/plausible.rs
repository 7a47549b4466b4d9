//! Plausibility checks of a readback, whatever was fitted: the zeros or noise of a broken driver fail them.

use std::collections::{BTreeMap, BTreeSet};

use super::context::GpuContext;
use super::layout::{
    GAVE_WAY_CELL, LIST_HEADER_WORDS, PAUSE_CELL, ROUNDS_CELL, RUNNING_STATUS, STATUS_CELL,
    StateField, verdict_from_code,
};
use super::transfer::Transfer;
use crate::error::Result;
use crate::solver::member::Active;
use crate::solver::{Status, basin};

/// Checks the list's first numbers, of members that take part and of all active ones, of which there were `before` when
/// the rounds began.
pub(super) fn check_counts(
    context: &GpuContext,
    head: [u32; LIST_HEADER_WORDS],
    before: Active,
) -> Result<Active> {
    let [taking_part, all] = head.map(|count| count as usize);
    if all > before.all || taking_part > all {
        let message = format!(
            "{taking_part} of {all} members take part, {} were active before",
            before.all
        );
        return Err(context.untrusted(message));
    }
    Ok(Active { all, taking_part })
}

/// Checks the slots of active members after some rounds: each one, and no more than once, among those that were active
/// `before`.
pub(super) fn check_slots(context: &GpuContext, slots: &[u32], before: &[u32]) -> Result<()> {
    let mut remaining: BTreeSet<u32> = before.iter().copied().collect();
    match slots.iter().find(|slot| !remaining.remove(slot)) {
        Some(slot) => Err(context.untrusted(format!("slot {slot} in the list of active members"))),
        None => Ok(()),
    }
}

/// Checks the numbers of members that were read, of which those in the slots `active` have not ended. A round has run.
pub(super) fn check_members(context: &GpuContext, read: &Transfer, active: &[u32]) -> Result<()> {
    let active: BTreeSet<usize> = active.iter().map(|slot| *slot as usize).collect();
    for (k, slot) in read.slots.iter().enumerate() {
        let is_active = active.contains(slot);
        if !is_plausible_control(read, k, is_active) || !is_plausible_state(read, k) {
            return Err(context.untrusted(format!("what it says of slot {slot} cannot be")));
        }
    }
    Ok(())
}

/// Checks that the members that were only evaluated are at the points, by slot, to which they were sent.
pub(super) fn check_points(
    context: &GpuContext,
    read: &Transfer,
    points: &BTreeMap<usize, Vec<f32>>,
) -> Result<()> {
    for (k, slot) in read.slots.iter().enumerate() {
        let Some(point) = points.get(slot) else {
            continue;
        };
        let is_there = point.iter().enumerate().all(|(p, x)| {
            let index = read.layout.element_index(StateField::Accepted, p, k);
            let accepted = f32::from_bits(read.state[index]);
            // Devices may round denormal numbers to 0.
            accepted == *x || (accepted - x).abs() <= f32::MIN_POSITIVE
        });
        if !is_there {
            let message = format!("what it evaluated in slot {slot} is another point");
            return Err(context.untrusted(message));
        }
    }
    Ok(())
}

/// Returns whether a member's control cells are possible: a round has run, and the member has not ended if and only if
/// `is_active`.
fn is_plausible_control(read: &Transfer, k: usize, is_active: bool) -> bool {
    let cell = |field: usize| read.control[field * read.layout.capacity + k];
    let status = cell(STATUS_CELL);
    let gave_way = cell(GAVE_WAY_CELL);
    let has_ended = if gave_way == 0 {
        Status::from_code(status).is_some()
    } else {
        verdict_from_code(gave_way).is_some()
    };
    let pauses = 0..=basin::PAUSE_ROUNDS as i32 + 1;
    cell(ROUNDS_CELL) >= 1
        && pauses.contains(&cell(PAUSE_CELL))
        && if is_active {
            status == RUNNING_STATUS && gave_way == 0
        } else {
            has_ended
        }
}

/// Returns whether a member's trial point has no NaN, and its damping factor is at least 2.
fn is_plausible_state(read: &Transfer, k: usize) -> bool {
    let number =
        |field, index| f32::from_bits(read.state[read.layout.element_index(field, index, k)]);
    number(StateField::DampingFactor, 0) >= 2.0
        && (0..read.layout.parameters).all(|p| !number(StateField::TrialParameters, p).is_nan())
}
