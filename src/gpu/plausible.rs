//! Plausibility of a readback, whatever was fitted: a broken driver's rows of zeros or noise fail.

use super::context::Context;
use super::entry::Entry;
use super::layout::{EVALUATIONS, Field, GAVE_WAY, HEAD, Layout, PAUSE, ROUNDS, RUNNING, STATUS, verdict};
use crate::error::Result;
use crate::solver::member::Active;
use crate::solver::simplex::LANES;
use crate::solver::{Method, Status, basin};

/// Checks the list's first numbers, of members that take part and of all active ones, of which there were `before` when
/// the rounds began.
pub(super) fn active(context: &Context, head: [u32; HEAD], before: Active) -> Result<Active> {
    let [taking_part, all] = head.map(|count| count as usize);
    if all > before.all || taking_part > all {
        let message = format!("{taking_part} of {all} members take part, {} were active before", before.all);
        return Err(context.untrusted(message));
    }
    Ok(Active { all, taking_part })
}

/// Checks the state, the control and the list of members after some rounds against what the host knows; those in
/// `active` are still active.
pub(super) fn entry(context: &Context, entry: &Entry, layout: Layout, method: Method, active: Active) -> Result<()> {
    let told = entry.members[..HEAD].iter().map(|count| *count as usize);
    if !told.clone().eq([active.taking_part, active.all]) {
        return Err(context.untrusted(format!("{:?} members are active, not {active:?}", told.collect::<Vec<_>>())));
    }
    let mut runs = vec![false; layout.capacity];
    for &slot in &entry.members[HEAD..HEAD + active.all] {
        match runs.get_mut(slot as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(context.untrusted(format!("slot {slot} in the list of active members"))),
        }
    }
    for slot in (0..layout.capacity).filter(|slot| entry.held[*slot]) {
        if !is_control(entry, layout, slot, runs[slot]) || !is_state(entry, layout, method, slot) {
            return Err(context.untrusted(format!("what it says of slot {slot} cannot be")));
        }
    }
    let simplices = (0..layout.simplices()).filter(|simplex| entry.held[simplex * method.lanes()]);
    match method {
        Method::NelderMead(_) => match simplices.into_iter().find(|simplex| !is_simplex(entry, layout, *simplex)) {
            Some(simplex) => Err(context.untrusted(format!("what it says of simplex {simplex} cannot be"))),
            None => Ok(()),
        },
        Method::LevenbergMarquardt(_) => Ok(()),
    }
}

/// Returns whether a slot's control cells can be: a round has run, and it is active exactly where `runs` says so.
fn is_control(entry: &Entry, layout: Layout, slot: usize, runs: bool) -> bool {
    let cell = |field: usize| entry.control[field * layout.capacity + slot];
    let (status, gave_way) = (cell(STATUS), cell(GAVE_WAY));
    let ended = if gave_way == 0 { Status::from_code(status).is_some() } else { verdict(gave_way).is_some() };
    let pauses = 0..=basin::PAUSE as i32 + 1;
    cell(ROUNDS) >= 1 && pauses.contains(&cell(PAUSE)) && if runs { status == RUNNING && gave_way == 0 } else { ended }
}

/// Returns whether a slot's trial point has no NaN, and its damping factor is one that the method can have. A damping
/// factor must be at least 2, or, under a simplex, poison that nobody has overwritten.
fn is_state(entry: &Entry, layout: Layout, method: Method, slot: usize) -> bool {
    let number = |field, index| f32::from_bits(entry.state[layout.at(field, index, slot)]);
    let factor = number(Field::DampingFactor, 0);
    let damped = match method {
        Method::LevenbergMarquardt(_) => factor >= 2.0,
        Method::NelderMead(_) => factor.is_nan(),
    };
    damped && (0..layout.parameters).all(|p| !number(Field::TrialParameters, p).is_nan())
}

/// Returns whether the numbers of a simplex are neither poison nor all zero, and no more points count than it could
/// have evaluated.
fn is_simplex(entry: &Entry, layout: Layout, simplex: usize) -> bool {
    let cell = |field: usize| i64::from(entry.control[field * layout.capacity + simplex * LANES]);
    if !(1..=LANES as i64 * cell(ROUNDS)).contains(&cell(EVALUATIONS)) {
        return false;
    }
    let number = |field: usize| f32::from_bits(entry.simplices[field * layout.simplices() + simplex]);
    !number(layout.values()).is_nan() && (0..layout.simplex_length()).any(|field| number(field) != 0.0)
}
