//! Transfers of members between host and device: the numbers of those that enter or leave, and of no others.
//!
//! Twin of `shaders/transfer.wgsl`, which describes the order of the numbers.

use super::layout::{
    CONTROL_CELLS, EVALUATING_MODE, Layout, MODE_CELL, NO_VALUE, PENDING, POISON, RUNNING_STATUS,
    STATUS_CELL, StateField,
};
use crate::kernels::shader::{BindingTarget, Dispatch, Shader, ShaderContext};
use crate::solver::simplex::{Simplex, TRIALS_PER_SIMPLEX as LANES};
use crate::solver::{Batch, Bounds, Method, Outcome, Places};

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
    /// Bits of f32: vertices, values, and the objective when a simplex was last spread.
    pub simplices: Vec<u32>,
}

impl Transfer {
    /// Makes room for the members in these slots, which are whole simplices for Nelder–Mead; all numbers are poisoned
    /// (NaN).
    pub fn new(parameters: usize, slots: Vec<usize>) -> Transfer {
        let layout = Layout {
            parameters,
            capacity: slots.len(),
        };
        Transfer {
            layout,
            state: vec![POISON; layout.state_length() * layout.capacity],
            control: vec![POISON as i32; CONTROL_CELLS.len() * layout.capacity],
            simplices: Vec::new(),
            slots,
        }
    }

    /// Makes the members of the starts of a batch, which take part in the next round.
    pub fn from_batch(
        parameters: usize,
        batch: &Batch,
        places: &Places,
        method: Method,
    ) -> Transfer {
        let lanes = method.lanes();
        let slots = places
            .starts
            .iter()
            .flat_map(|start| start * lanes..(start + 1) * lanes)
            .collect();
        let mut transfer = Transfer::new(parameters, slots);
        if lanes > 1 {
            let layout = transfer.layout;
            transfer.simplices = vec![POISON; layout.simplex_length() * layout.simplex_capacity()];
        }
        for (k, &start) in places.starts.iter().enumerate() {
            let start_point = &batch.starts[k * parameters..(k + 1) * parameters];
            let trials = match method {
                Method::LevenbergMarquardt(_) => start_point.to_vec(),
                Method::NelderMead(settings) => {
                    let spectrum = batch.group[k] as usize;
                    let of_spectrum = spectrum * parameters..(spectrum + 1) * parameters;
                    let bounds = Bounds {
                        lower: &batch.lower[of_spectrum.clone()],
                        upper: &batch.upper[of_spectrum],
                    };
                    let simplex = Simplex::new(start, start_point, bounds, settings.size)
                        .shaped(batch.simplex(k));
                    transfer.set_simplex(k, &simplex);
                    simplex.first_trials()
                }
            };
            for lane in 0..lanes {
                let trial = &trials[lane * parameters..(lane + 1) * parameters];
                transfer.set_member(k * lanes + lane, trial, method, batch.is_evaluation);
            }
        }
        transfer
    }

    /// Sets the numbers of the `k`-th member to those of a new one whose first trial point is `trial`.
    fn set_member(&mut self, k: usize, trial: &[f64], method: Method, is_evaluation: bool) {
        let layout = self.layout;
        for (p, x) in trial.iter().enumerate() {
            let bits = (*x as f32).to_bits();
            self.state[layout.element_index(StateField::TrialParameters, p, k)] = bits;
            self.state[layout.element_index(StateField::Accepted, p, k)] = bits;
        }
        if let Method::LevenbergMarquardt(settings) = method {
            self.state[layout.element_index(StateField::Damping, 0, k)] =
                (settings.initial_damping as f32).to_bits();
            self.state[layout.element_index(StateField::DampingFactor, 0, k)] = 2.0f32.to_bits();
        }
        for cell in 0..CONTROL_CELLS.len() {
            self.control[cell * layout.capacity + k] = match cell {
                STATUS_CELL => RUNNING_STATUS,
                MODE_CELL if is_evaluation => EVALUATING_MODE,
                _ => 0,
            };
        }
    }

    /// Sets the numbers of the `k`-th simplex to those of a new one.
    fn set_simplex(&mut self, k: usize, simplex: &Simplex) {
        let layout = self.layout;
        let n_simplices = layout.simplex_capacity();
        let mut set = |field: usize, x: f32| self.simplices[field * n_simplices + k] = x.to_bits();
        for (field, coordinate) in simplex.vertices.iter().enumerate() {
            set(field, *coordinate as f32);
        }
        for (vertex, value) in simplex.values.iter().enumerate() {
            let value = if value.is_nan() {
                PENDING
            } else {
                *value as f32
            };
            set(layout.values_offset() + vertex, value);
        }
        set(layout.spread_offset(), NO_VALUE);
        set(layout.spread_offset() + 1, NO_VALUE);
        set(layout.coarse_fatol_offset(), simplex.coarse_fatol as f32);
    }

    /// Returns the header that the kernel needs to move members: the numbers of members and of simplices, and their
    /// places.
    pub fn header(&self, lanes: usize) -> Vec<u32> {
        let n_simplices = if lanes > 1 {
            self.layout.simplex_capacity()
        } else {
            0
        };
        let simplices = self
            .slots
            .iter()
            .step_by(LANES)
            .take(n_simplices)
            .map(|slot| (slot / LANES) as u32);
        let counts = [self.slots.len() as u32, n_simplices as u32];
        counts
            .into_iter()
            .chain(self.slots.iter().map(|slot| *slot as u32))
            .chain(simplices)
            .collect()
    }

    /// Returns all words that enter with the members, in the kernel's order.
    pub fn upload_words(&self, lanes: usize) -> Vec<u32> {
        let mut words = self.header(lanes);
        words.extend_from_slice(&self.state);
        words.extend(self.control.iter().map(|cell| cell.cast_unsigned()));
        words.extend_from_slice(&self.simplices);
        words
    }

    /// Stores the numbers that the kernel has collected, which follow the header.
    pub fn store_collected(&mut self, numbers: &[u32]) {
        let (state, behind_state) = numbers.split_at(self.state.len());
        let (control, simplices) = behind_state.split_at(self.control.len());
        self.state.copy_from_slice(state);
        self.control = control.iter().map(|cell| cell.cast_signed()).collect();
        self.simplices = simplices.to_vec();
    }

    /// Returns how many numbers all members have, which follow the header.
    pub fn count_numbers(&self, lanes: usize) -> usize {
        let simplex_numbers = if lanes > 1 {
            self.layout.simplex_length() * self.layout.simplex_capacity()
        } else {
            0
        };
        self.state.len() + self.control.len() + simplex_numbers
    }

    /// Returns the outcomes of the starts.
    pub fn outcomes(&self, method: Method) -> Vec<Outcome> {
        let starts: Vec<usize> = (0..self.slots.len() / method.lanes()).collect();
        match method {
            Method::LevenbergMarquardt(_) => readback::lm_outcomes(
                self.layout,
                &starts,
                bytemuck::cast_slice(&self.state),
                &self.control,
            ),
            Method::NelderMead(_) => readback::simplex_outcomes(
                self.layout,
                &starts,
                bytemuck::cast_slice(&self.simplices),
                &self.control,
            ),
        }
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
    shader.bind("simplices", "u32", BindingTarget::Simplices, true);
    let constants = &mut shader.constants;
    constants.line(&format!("const ENTERS: bool = {enters};"));
    constants.unsigned("STATE_LENGTH", layout.state_length());
    constants.unsigned("CONTROL_LENGTH", CONTROL_CELLS.len());
    constants.unsigned("SIMPLEX_LENGTH", layout.simplex_length());
    shader
}
