//! Transfers of members between host and device: the numbers of those that enter or leave, and of no others.
//!
//! Twin of `shaders/transfer.wgsl`, which describes the order of the numbers.

use super::layout::{
    CONTROL_CELLS, EVALUATING_MODE, Layout, MODE_CELL, POISON, RUNNING_STATUS, STATUS_CELL,
    StateField,
};
use crate::kernels::shader::{BindingTarget, Dispatch, Shader, ShaderContext};
use crate::solver::{Batch, LevenbergMarquardt, Outcome, Places};

use super::readback;

/// Number of invocations per workgroup of the kernel.
const INVOCATIONS_PER_WORKGROUP: usize = 64;
/// Maximum number of workgroups along x.
const MAX_WORKGROUPS_X: usize = 65_535;

/// The numbers of some members, field by field.
#[derive(Debug)]
pub(super) struct Transfer {
    /// Layout of a population of these members alone.
    pub layout: Layout,
    /// Their slots in the population.
    pub slots: Vec<usize>,
    /// Bits of f32: a NaN keeps its payload.
    pub state: Vec<u32>,
    pub control: Vec<i32>,
}

impl Transfer {
    /// Makes room for the members in these slots; all numbers are poisoned (NaN).
    pub fn new(parameters: usize, slots: Vec<usize>) -> Transfer {
        let layout = Layout {
            parameters,
            capacity: slots.len(),
        };
        Transfer {
            layout,
            state: vec![POISON; layout.state_length() * layout.capacity],
            control: vec![POISON as i32; CONTROL_CELLS.len() * layout.capacity],
            slots,
        }
    }

    /// Makes the members of the starts of a batch, which take part in the next round.
    pub fn from_batch(
        parameters: usize,
        batch: &Batch,
        places: &Places,
        settings: LevenbergMarquardt,
    ) -> Transfer {
        let mut transfer = Transfer::new(parameters, places.starts.clone());
        for k in 0..places.starts.len() {
            let start = &batch.starts[k * parameters..(k + 1) * parameters];
            transfer.set_member(k, start, settings, batch.is_evaluation);
        }
        transfer
    }

    /// Sets the numbers of the `k`-th member to those of a new one whose first trial point is `trial`.
    fn set_member(
        &mut self,
        k: usize,
        trial: &[f64],
        settings: LevenbergMarquardt,
        is_evaluation: bool,
    ) {
        let layout = self.layout;
        for (p, x) in trial.iter().enumerate() {
            let bits = (*x as f32).to_bits();
            self.state[layout.element_index(StateField::TrialParameters, p, k)] = bits;
            self.state[layout.element_index(StateField::Accepted, p, k)] = bits;
        }
        self.state[layout.element_index(StateField::Damping, 0, k)] =
            (settings.initial_damping as f32).to_bits();
        self.state[layout.element_index(StateField::DampingFactor, 0, k)] = 2.0f32.to_bits();
        for cell in 0..CONTROL_CELLS.len() {
            self.control[cell * layout.capacity + k] = match cell {
                STATUS_CELL => RUNNING_STATUS,
                MODE_CELL if is_evaluation => EVALUATING_MODE,
                _ => 0,
            };
        }
    }

    /// Returns the header that the kernel needs to move members: their number, and their slots.
    pub fn header(&self) -> Vec<u32> {
        let count = self.slots.len() as u32;
        let slots = self.slots.iter().map(|slot| *slot as u32);
        std::iter::once(count).chain(slots).collect()
    }

    /// Returns all words that enter with the members, in the kernel's order.
    pub fn upload_words(&self) -> Vec<u32> {
        let mut words = self.header();
        words.extend_from_slice(&self.state);
        words.extend(self.control.iter().map(|cell| cell.cast_unsigned()));
        words
    }

    /// Stores the numbers that the kernel has collected, which follow the header.
    pub fn store_collected(&mut self, numbers: &[u32]) {
        let (state, control) = numbers.split_at(self.state.len());
        self.state.copy_from_slice(state);
        self.control = control.iter().map(|cell| cell.cast_signed()).collect();
    }

    /// Returns how many numbers all members have, which follow the header.
    pub fn count_numbers(&self) -> usize {
        self.state.len() + self.control.len()
    }

    /// Returns the outcomes of the starts.
    pub fn outcomes(&self) -> Vec<Outcome> {
        readback::lm_outcomes(
            self.layout,
            &Vec::from_iter(0..self.slots.len()),
            bytemuck::cast_slice(&self.state),
            &self.control,
        )
    }
}

/// Returns the numbers of workgroups along x and y that move so many numbers.
pub(super) fn workgroups_for(numbers: usize) -> [u32; 2] {
    let groups = numbers.div_ceil(INVOCATIONS_PER_WORKGROUP);
    let y = groups.div_ceil(MAX_WORKGROUPS_X).max(1);
    [groups.div_ceil(y) as u32, y as u32]
}

/// Returns the shader that puts members into their slots, or collects them.
pub(super) fn transfer_shader(context: &ShaderContext<'_>, layout: Layout, enters: bool) -> Shader {
    let mut shader = context.start_shader(
        "transfer",
        include_str!("../../shaders/transfer.wgsl"),
        Dispatch::WORKGROUPS,
    );
    shader.bind("transfer", "u32", BindingTarget::Transfer, true);
    shader.bind("state", "u32", BindingTarget::State, true);
    shader.bind("control", "u32", BindingTarget::Control, true);
    let constants = &mut shader.constants;
    constants.line(&format!("const ENTERS: bool = {enters};"));
    constants.unsigned("STATE_LENGTH", layout.state_length());
    constants.unsigned("CONTROL_LENGTH", CONTROL_CELLS.len());
    shader
}
