//! What every readback must look like, whatever was fitted: rows of zeros or noise from a broken driver do not.

use super::context::Context;
use super::entry::Entry;
use super::layout::{Field, GAVE_WAY, Layout, ROUNDS, RUNNING, STATUS, verdict};
use crate::error::Result;
use crate::solver::{Method, Status};

/// A number of active members, of which there were `before` when the rounds began.
pub(super) fn active(context: &Context, count: u32, before: usize) -> Result<usize> {
    let active = count as usize;
    if active > before {
        return Err(context.untrusted(format!("{active} members are active, of {before}")));
    }
    Ok(active)
}

/// State, control and list of members after some rounds, `active` of them still active, against what the host knows.
pub(super) fn entry(context: &Context, entry: &Entry, layout: Layout, method: Method, active: usize) -> Result<()> {
    let told = entry.members.first().copied().unwrap_or(0);
    if told as usize != active {
        return Err(context.untrusted(format!("{told} members are active, not {active}")));
    }
    let mut runs = vec![false; layout.capacity];
    for &slot in &entry.members[1..=active] {
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

/// Every round counts, and `compact` has listed the members that run, no others.
fn is_control(entry: &Entry, layout: Layout, slot: usize, runs: bool) -> bool {
    let cell = |field: usize| entry.control[field * layout.capacity + slot];
    let (status, gave_way) = (cell(STATUS), cell(GAVE_WAY));
    let ended = if gave_way == 0 { Status::from_code(status).is_some() } else { verdict(gave_way).is_some() };
    cell(ROUNDS) >= 1 && if runs { status == RUNNING && gave_way == 0 } else { ended }
}

/// Points are numbers. A damping factor is at least 2, or, under a simplex, poison that nobody has overwritten.
fn is_state(entry: &Entry, layout: Layout, method: Method, slot: usize) -> bool {
    let number = |field, index| f32::from_bits(entry.state[layout.at(field, index, slot)]);
    let factor = number(Field::DampingFactor, 0);
    let damped = match method {
        Method::LevenbergMarquardt(_) => factor >= 2.0,
        Method::NelderMead(_) => factor.is_nan(),
    };
    damped && (0..layout.parameters).all(|p| !number(Field::TrialParameters, p).is_nan())
}

/// Not poison, and not all zero.
fn is_simplex(entry: &Entry, layout: Layout, simplex: usize) -> bool {
    let number = |field: usize| f32::from_bits(entry.simplices[field * layout.simplices() + simplex]);
    !number(layout.values()).is_nan() && (0..layout.simplex_length()).any(|field| number(field) != 0.0)
}
