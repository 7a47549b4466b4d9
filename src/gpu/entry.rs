//! The host's copy of what the members are: written to when starts enter, read when they leave.

use super::layout::{CONTROL, Field, HEAD, Layout, NO_VALUE, PENDING, POISON, RUNNING, STATUS};
use crate::solver::member::Active;
use crate::solver::simplex::Simplex;
use crate::solver::{Batch, Bounds, Method, Places};

/// The host's copies of the buffers that hold a population's members.
#[derive(Debug)]
pub(super) struct Entry {
    layout: Layout,
    /// Bits of f32: a NaN keeps its payload.
    pub state: Vec<u32>,
    pub control: Vec<i32>,
    pub members: Vec<u32>,
    /// Bits of f32: vertices, values, and the objective when a simplex was last spread.
    pub simplices: Vec<u32>,
    /// Slots that a member has entered.
    pub held: Vec<bool>,
    /// No round has run since these were written or read.
    pub is_current: bool,
}

impl Entry {
    /// Makes the host's copy of the state of a population without members; all numbers are poisoned (NaN).
    pub fn new(layout: Layout) -> Entry {
        Entry {
            layout,
            state: vec![POISON; layout.state_length() * layout.capacity],
            control: vec![POISON as i32; CONTROL.len() * layout.capacity],
            members: vec![0; layout.members_length()],
            simplices: vec![POISON; layout.simplex_length() * layout.simplices()],
            held: vec![false; layout.capacity],
            is_current: true,
        }
    }

    /// Replaces the host's copies by the state, control and list of members read from the device, and simplices if any.
    pub fn take(&mut self, read: Vec<Vec<u32>>) {
        if let Ok([state, control, members, simplices]) = <[Vec<u32>; 4]>::try_from(read) {
            self.state = state;
            self.control = control.into_iter().map(u32::cast_signed).collect();
            self.members = members;
            if !simplices.is_empty() {
                self.simplices = simplices;
            }
        }
    }

    /// Puts a batch's starts into their slots, to take part in the next round; returns how many members are active
    /// then.
    pub fn enter(&mut self, batch: &Batch, places: &Places, method: Method, active: Active) -> Active {
        let (count, lanes, capacity) = (self.layout.parameters, method.lanes(), self.layout.capacity);
        let sitting_out = self.members[HEAD + active.taking_part..HEAD + active.all].to_vec();
        let mut next = active.taking_part;
        for (k, &start) in places.starts.iter().enumerate() {
            let spectrum = batch.group[k] as usize;
            let parameters = &batch.starts[k * count..(k + 1) * count];
            let trials = match method {
                Method::LevenbergMarquardt(_) => parameters.to_vec(),
                Method::NelderMead(settings) => {
                    let of = |values: &[f64]| values[spectrum * count..(spectrum + 1) * count].to_vec();
                    let (lower, upper) = (of(&batch.lower), of(&batch.upper));
                    let simplex =
                        Simplex::new(start, parameters, Bounds { lower: &lower, upper: &upper }, settings.size);
                    let simplex = simplex.shaped(batch.simplex(k));
                    self.put_simplex(&simplex);
                    simplex.first_trials()
                }
            };
            for lane in 0..lanes {
                let slot = start * lanes + lane;
                self.put_member(slot, &trials[lane * count..(lane + 1) * count], method);
                self.members[HEAD + next] = slot as u32;
                self.members[HEAD + capacity + slot] = places.spectra[spectrum] as u32;
                next += 1;
            }
        }
        let entered = Active { all: next + sitting_out.len(), taking_part: next };
        self.members[HEAD + next..HEAD + entered.all].copy_from_slice(&sitting_out);
        self.members[..HEAD].copy_from_slice(&[entered.taking_part, entered.all].map(|count| count as u32));
        // a population of simplices has fewer starts than slots, and does not ask
        let length = places.ring.len().min(capacity);
        self.members[HEAD + 2 * capacity..][..length].copy_from_slice(&places.ring[..length]);
        entered
    }

    /// Sets the host's state of a slot to that of a new member whose first trial point is `trial`.
    fn put_member(&mut self, slot: usize, trial: &[f64], method: Method) {
        let layout = self.layout;
        self.held[slot] = true;
        (0..layout.state_length()).for_each(|k| self.state[k * layout.capacity + slot] = POISON);
        for (p, x) in trial.iter().enumerate() {
            let bits = (*x as f32).to_bits();
            self.state[layout.at(Field::TrialParameters, p, slot)] = bits;
            self.state[layout.at(Field::Accepted, p, slot)] = bits;
        }
        if let Method::LevenbergMarquardt(settings) = method {
            self.state[layout.at(Field::Damping, 0, slot)] = (settings.initial_damping as f32).to_bits();
            self.state[layout.at(Field::DampingFactor, 0, slot)] = 2.0f32.to_bits();
        }
        for cell in 0..CONTROL.len() {
            self.control[cell * layout.capacity + slot] = if cell == STATUS { RUNNING } else { 0 };
        }
    }

    /// Writes a new simplex's vertices, values and tolerance to its place in the host's copy.
    fn put_simplex(&mut self, simplex: &Simplex) {
        let (layout, count) = (self.layout, self.layout.simplices());
        let mut put = |field: usize, x: f32| self.simplices[field * count + simplex.slot] = x.to_bits();
        (0..layout.simplex_length()).for_each(|field| put(field, f32::from_bits(POISON)));
        simplex.vertices.iter().enumerate().for_each(|(k, x)| put(k, *x as f32));
        for (v, value) in simplex.values.iter().enumerate() {
            put(layout.values() + v, if value.is_nan() { PENDING } else { *value as f32 });
        }
        put(layout.spread_at(), NO_VALUE);
        put(layout.spread_at() + 1, NO_VALUE);
        put(layout.coarse_fatol(), simplex.coarse_fatol as f32);
    }
}
