//! Members on their way to the device or from it: the numbers of those that enter or leave, and of no others.
//!
//! Twin of `shaders/transfer.wgsl`, which says how the numbers are arranged.

use super::layout::{
    CONTROL, EVALUATING, Field, Layout, MODE, NO_VALUE, PENDING, POISON, RUNNING, STATUS,
};
use crate::kernels::shader::{BindingTarget, Dispatch, Shader, ShaderContext};
use crate::solver::simplex::{Simplex, TRIALS_PER_SIMPLEX as LANES};
use crate::solver::{Batch, Bounds, Method, Outcome, Places};

use super::readback;

/// Invocations of a workgroup of the kernel.
const WORKGROUP: usize = 64;
/// Maximum number of workgroups along x.
const MOST_GROUPS: usize = 65_535;

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
            control: vec![POISON as i32; CONTROL.len() * layout.capacity],
            simplices: Vec::new(),
            slots,
        }
    }

    /// Makes the members of the starts of a batch, which take part in the next round.
    pub fn of_batch(parameters: usize, batch: &Batch, places: &Places, method: Method) -> Transfer {
        let lanes = method.lanes();
        let slots = places
            .starts
            .iter()
            .flat_map(|start| start * lanes..(start + 1) * lanes)
            .collect();
        let mut transfer = Transfer::new(parameters, slots);
        if lanes > 1 {
            let layout = transfer.layout;
            transfer.simplices = vec![POISON; layout.simplex_length() * layout.simplices()];
        }
        for (k, &start) in places.starts.iter().enumerate() {
            let spectrum = batch.group[k] as usize;
            let point = &batch.starts[k * parameters..(k + 1) * parameters];
            let trials = match method {
                Method::LevenbergMarquardt(_) => point.to_vec(),
                Method::NelderMead(settings) => {
                    let of = |values: &[f64]| {
                        values[spectrum * parameters..(spectrum + 1) * parameters].to_vec()
                    };
                    let (lower, upper) = (of(&batch.lower), of(&batch.upper));
                    let bounds = Bounds {
                        lower: &lower,
                        upper: &upper,
                    };
                    let simplex =
                        Simplex::new(start, point, bounds, settings.size).shaped(batch.simplex(k));
                    transfer.put_simplex(k, &simplex);
                    simplex.first_trials()
                }
            };
            for lane in 0..lanes {
                let trial = &trials[lane * parameters..(lane + 1) * parameters];
                transfer.put_member(k * lanes + lane, trial, method, batch.is_evaluation);
            }
        }
        transfer
    }

    /// Sets the numbers of the `k`-th member to those of a new one whose first trial point is `trial`.
    fn put_member(&mut self, k: usize, trial: &[f64], method: Method, is_evaluation: bool) {
        let layout = self.layout;
        for (p, x) in trial.iter().enumerate() {
            let bits = (*x as f32).to_bits();
            self.state[layout.at(Field::TrialParameters, p, k)] = bits;
            self.state[layout.at(Field::Accepted, p, k)] = bits;
        }
        if let Method::LevenbergMarquardt(settings) = method {
            self.state[layout.at(Field::Damping, 0, k)] =
                (settings.initial_damping as f32).to_bits();
            self.state[layout.at(Field::DampingFactor, 0, k)] = 2.0f32.to_bits();
        }
        for cell in 0..CONTROL.len() {
            self.control[cell * layout.capacity + k] = match cell {
                STATUS => RUNNING,
                MODE if is_evaluation => EVALUATING,
                _ => 0,
            };
        }
    }

    /// Sets the numbers of the `k`-th simplex to those of a new one.
    fn put_simplex(&mut self, k: usize, simplex: &Simplex) {
        let (layout, count) = (self.layout, self.layout.simplices());
        let mut put = |field: usize, x: f32| self.simplices[field * count + k] = x.to_bits();
        simplex
            .vertices
            .iter()
            .enumerate()
            .for_each(|(field, x)| put(field, *x as f32));
        for (v, value) in simplex.values.iter().enumerate() {
            put(
                layout.values() + v,
                if value.is_nan() {
                    PENDING
                } else {
                    *value as f32
                },
            );
        }
        put(layout.spread_at(), NO_VALUE);
        put(layout.spread_at() + 1, NO_VALUE);
        put(layout.coarse_fatol(), simplex.coarse_fatol as f32);
    }

    /// Returns the numbers of members and of simplices, with their places: what the kernel needs to collect them.
    pub fn head(&self, lanes: usize) -> Vec<u32> {
        let simplices = self.slots.iter().step_by(LANES).take(if lanes > 1 {
            self.layout.simplices()
        } else {
            0
        });
        let simplices: Vec<u32> = simplices.map(|slot| (slot / LANES) as u32).collect();
        let counts = [self.slots.len() as u32, simplices.len() as u32];
        counts
            .into_iter()
            .chain(self.slots.iter().map(|slot| *slot as u32))
            .chain(simplices)
            .collect()
    }

    /// Returns all words that enter with the members, in the kernel's order.
    pub fn words(&self, lanes: usize) -> Vec<u32> {
        let mut words = self.head(lanes);
        words.extend_from_slice(&self.state);
        words.extend(self.control.iter().map(|cell| cell.cast_unsigned()));
        words.extend_from_slice(&self.simplices);
        words
    }

    /// Takes the numbers that the kernel has collected, which follow the head.
    pub fn take(&mut self, numbers: &[u32]) {
        let (state, rest) = numbers.split_at(self.state.len());
        let (control, simplices) = rest.split_at(self.control.len());
        self.state.copy_from_slice(state);
        self.control = control.iter().map(|cell| cell.cast_signed()).collect();
        self.simplices = simplices.to_vec();
    }

    /// Returns the number of numbers of all members, which follow the head.
    pub fn length(&self, lanes: usize) -> usize {
        let simplices = if lanes > 1 {
            self.layout.simplex_length() * self.layout.simplices()
        } else {
            0
        };
        self.state.len() + self.control.len() + simplices
    }

    /// Returns the outcomes of the starts.
    pub fn outcomes(&self, method: Method) -> Vec<Outcome> {
        let starts: Vec<usize> = (0..self.slots.len() / method.lanes()).collect();
        match method {
            Method::LevenbergMarquardt(_) => readback::outcomes(
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
pub(super) fn workgroups(numbers: usize) -> [u32; 2] {
    let groups = numbers.div_ceil(WORKGROUP);
    let y = groups.div_ceil(MOST_GROUPS).max(1);
    [groups.div_ceil(y) as u32, y as u32]
}

/// Returns the shader that puts members into their slots, or collects them.
pub(super) fn shader(context: &ShaderContext<'_>, layout: Layout, enters: bool) -> Shader {
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
    constants.unsigned("CONTROL_LENGTH", CONTROL.len());
    constants.unsigned("SIMPLEX_LENGTH", layout.simplex_length());
    shader
}
