//! Members in flight on a GPU.

use std::sync::Arc;

use super::buffers::{self, Buffers, MAX_MEMBERS, Plan};
use super::commands::Round;
use super::context::Context;
use super::layout::{CONTROL, Field, Layout, NO_VALUE, PENDING, POISON, RUNNING, STATUS};
use super::pipelines::Pipeline;
use super::{readback, stages};
use crate::error::{Error, Result};
use crate::solver::recording::{BufferId, Kind, Recording, Scope, Values};
use crate::solver::simplex::Simplex;
use crate::solver::{Batch, Method, Outcome, Pending, Population};

/// Buffers, pipelines and the number of members of a population.
#[derive(Debug)]
pub(super) struct GpuPopulation {
    context: Arc<Context>,
    recording: Arc<Recording>,
    method: Method,
    layout: Layout,
    buffers: Buffers,
    round: Round,
    members: usize,
    active: usize,
}

impl GpuPopulation {
    pub fn new(
        context: Arc<Context>,
        recording: Arc<Recording>,
        method: &Method,
        capacity: usize,
    ) -> Result<GpuPopulation> {
        let slots = (capacity.max(1) * method.lanes()).min(MAX_MEMBERS);
        let layout = Layout { parameters: recording.parameters.len(), capacity: slots };
        let kernels = stages::kernels(&recording, layout, method)?;
        let plan = Plan::new(&recording, layout, kernels.len() - 1);
        let buffers = Buffers::new(&context, &recording, &plan)?;
        let pipelines = kernels.iter().map(|kernel| Pipeline::new(&context, kernel, &buffers));
        let mut pipelines = pipelines.collect::<Result<Vec<_>>>()?;
        let Some(compact) = pipelines.pop() else { return Err(context.failure("a round has no kernels")) };
        let moves = pipelines.split_off(recording.stages.len());
        let round = Round { stages: pipelines, moves, compact };
        Ok(GpuPopulation { context, recording, method: *method, layout, buffers, round, members: 0, active: 0 })
    }

    /// Fails unless the batch fits the population and its arrays belong together.
    fn check(&self, batch: &Batch) -> Result<()> {
        let (members, capacity) = (batch.members() * self.method.lanes(), self.layout.capacity);
        if members > capacity || batch.spectra > capacity {
            let message = format!("{members} members of {} spectra in a population of {capacity}", batch.spectra);
            return Err(Error::Usage(message));
        }
        let shape = |what: &str, length: usize, expected: usize| {
            if length == expected {
                return Ok(());
            }
            Err(Error::ShapeMismatch { what: what.to_owned(), message: format!("{length} numbers, not {expected}") })
        };
        let parameters = self.layout.parameters;
        for values in [&batch.lower, &batch.upper, &batch.prior_mean, &batch.prior_weight] {
            shape("bounds and priors", values.len(), batch.spectra * parameters)?;
        }
        shape("starts", batch.starts.len(), batch.members() * parameters)?;
        if batch.group.iter().any(|s| *s as usize >= batch.spectra) {
            return Err(Error::Usage("a member of a spectrum that is not in the batch".into()));
        }
        for (id, values) in &batch.blocks {
            let block = self.recording.block(*id);
            let blocks = if block.scope == Scope::Spectrum { batch.spectra } else { 1 };
            shape(&block.name, values.len(), blocks * block.length)?;
            if (block.kind == Kind::Index) != matches!(values, Values::I32(_)) {
                return Err(Error::Usage(format!("{}: elements of another kind", block.name)));
            }
        }
        Ok(())
    }

    /// State of the members at their starts, everything else poisoned.
    fn initial_state(&self, starts: &[f64], members: usize) -> Vec<f32> {
        let layout = self.layout;
        let mut state = vec![f32::from_bits(POISON); layout.state_length() * layout.capacity];
        for slot in 0..members {
            for p in 0..layout.parameters {
                let start = starts[slot * layout.parameters + p] as f32;
                state[layout.at(Field::TrialParameters, p, slot)] = start;
                state[layout.at(Field::Accepted, p, slot)] = start;
            }
            if let Method::LevenbergMarquardt(settings) = self.method {
                state[layout.at(Field::Damping, 0, slot)] = settings.initial_damping as f32;
                state[layout.at(Field::DampingFactor, 0, slot)] = 2.0;
            }
        }
        state
    }

    /// The simplices of a Nelder–Mead batch; none for Levenberg–Marquardt.
    fn initial_simplices(&self, batch: &Batch) -> Vec<Simplex> {
        let Method::NelderMead(settings) = self.method else { return Vec::new() };
        let count = self.layout.parameters;
        let of = |values: &'_ [f64], k: usize| values[k * count..(k + 1) * count].to_vec();
        let make = |(slot, spectrum): (usize, &u32)| {
            let (lower, upper) = (of(&batch.lower, *spectrum as usize), of(&batch.upper, *spectrum as usize));
            Simplex::new(slot, &of(&batch.starts, slot), (&lower, &upper), settings.size)
        };
        batch.group.iter().enumerate().map(make).collect()
    }

    fn initial_control(&self, members: usize) -> Vec<i32> {
        let capacity = self.layout.capacity;
        let mut control = vec![POISON as i32; CONTROL.len() * capacity];
        for slot in 0..members {
            for cell in 0..CONTROL.len() {
                control[cell * capacity + slot] = if cell == STATUS { RUNNING } else { 0 };
            }
        }
        control
    }

    /// The list of members: all active, in the order of the batch.
    fn initial_members(&self, batch: &Batch) -> Vec<u32> {
        // slots without a member belong to no group
        let mut list = vec![u32::MAX; self.layout.members_length()];
        let lanes = self.method.lanes();
        list[0] = (batch.members() * lanes) as u32;
        for slot in 0..batch.members() * lanes {
            list[1 + slot] = slot as u32;
            list[1 + self.layout.capacity + slot] = batch.group[slot / lanes];
        }
        list
    }

    /// Bounds and priors, (spectra, 4, parameters).
    fn limits(&self, batch: &Batch) -> Vec<f32> {
        let parameters = self.layout.parameters;
        let kinds = [&batch.lower, &batch.upper, &batch.prior_mean, &batch.prior_weight];
        let of_spectrum = |s: usize| kinds.into_iter().flat_map(move |v| &v[s * parameters..(s + 1) * parameters]);
        (0..batch.spectra).flat_map(of_spectrum).map(|x| *x as f32).collect()
    }

    fn write(&self, buffer: &wgpu::Buffer, values: &[impl bytemuck::Pod]) {
        if !values.is_empty() {
            self.context.queue.write_buffer(buffer, 0, bytemuck::cast_slice(values));
        }
    }

    /// Submits the commands, and reads `elements` of `buffer` when they are done.
    async fn submit_and_read<T: bytemuck::Pod>(
        &self,
        mut encoder: wgpu::CommandEncoder,
        buffer: &wgpu::Buffer,
        elements: usize,
    ) -> Result<Vec<T>> {
        let target = &self.buffers.readback;
        encoder.copy_buffer_to_buffer(buffer, 0, target, 0, Some(4 * elements as u64));
        self.context.queue.submit([encoder.finish()]);
        readback::read(&self.context, target, elements).await
    }
}

impl Population for GpuPopulation {
    fn load<'a>(&'a mut self, batch: &'a Batch) -> Pending<'a, ()> {
        Box::pin(async move {
            self.check(batch)?;
            self.members = batch.members() * self.method.lanes();
            self.active = self.members;
            for (id, values) in &batch.blocks {
                buffers::upload(&self.context, &self.recording, *id, &self.buffers.blocks[id.0], values);
            }
            let simplices = self.initial_simplices(batch);
            let vertices: Vec<f64> = simplices.iter().flat_map(Simplex::first_trials).collect();
            let starts = if simplices.is_empty() { &batch.starts } else { &vertices };
            self.write(&self.buffers.state, &self.initial_state(starts, self.members));
            self.write(&self.buffers.simplices, &simplex_fields(self.layout, &simplices));
            self.write(&self.buffers.control, &self.initial_control(self.members));
            self.write(&self.buffers.members, &self.initial_members(batch));
            self.write(&self.buffers.limits, &self.limits(batch));
            self.write(&self.buffers.arguments, &self.round.arguments(self.members));
            self.context.queue.submit([]);
            self.context.check()
        })
    }

    fn advance(&mut self, rounds: u32) -> Pending<'_, usize> {
        Box::pin(async move {
            if self.active > 0 && rounds > 0 {
                let commands = self.round.record(&self.context, &self.buffers, rounds);
                let count: Vec<u32> = self.submit_and_read(commands, &self.buffers.members, 1).await?;
                self.active = count[0] as usize;
            }
            Ok(self.active)
        })
    }

    fn read(&mut self) -> Pending<'_, Vec<Outcome>> {
        Box::pin(async move {
            let Buffers { state, control, .. } = &self.buffers;
            let encoder = || self.context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let length = self.layout.state_length() * self.layout.capacity;
            let state: Vec<f32> = self.submit_and_read(encoder(), state, length).await?;
            let length = CONTROL.len() * self.layout.capacity;
            let control: Vec<i32> = self.submit_and_read(encoder(), control, length).await?;
            if let Method::LevenbergMarquardt(_) = self.method {
                return Ok(readback::outcomes(self.layout, self.members, &state, &control));
            }
            let length = self.layout.simplex_length() * self.layout.simplices();
            let fields: Vec<f32> = self.submit_and_read(encoder(), &self.buffers.simplices, length).await?;
            Ok(readback::simplex_outcomes(self.layout, self.members, &fields, &control))
        })
    }

    fn inspect(&mut self, buffer: BufferId) -> Pending<'_, Vec<f64>> {
        Box::pin(async move {
            let (length, stride) = (self.recording.block(buffer).length, buffers::stride(&self.recording, buffer));
            let source = &self.buffers.blocks[buffer.0];
            let mut encoder = self.round.record_stages(&self.context, &self.buffers);
            let elements = self.active * stride;
            let target = self.context.guarded(|| Ok(buffers::readback(&self.context, elements.max(1))))?;
            encoder.copy_buffer_to_buffer(source, 0, &target, 0, Some(4 * elements as u64));
            self.context.queue.submit([encoder.finish()]);
            let seen: Vec<f32> = readback::read(&self.context, &target, elements).await?;
            Ok(seen.chunks(stride.max(1)).flat_map(|block| &block[..length]).map(|x| f64::from(*x)).collect())
        })
    }
}

/// The simplices' buffer: vertices, values, and the objective when they were last spread.
fn simplex_fields(layout: Layout, simplices: &[Simplex]) -> Vec<f32> {
    let count = layout.simplices();
    let mut fields = vec![f32::from_bits(POISON); layout.simplex_length() * count];
    for simplex in simplices {
        for (k, x) in simplex.vertices.iter().enumerate() {
            fields[k * count + simplex.slot] = *x as f32;
        }
        for v in 0..simplex.values.len() {
            fields[(layout.values() + v) * count + simplex.slot] = PENDING;
        }
        fields[layout.spread_at() * count + simplex.slot] = NO_VALUE;
    }
    fields
}
