//! Members in flight on a GPU.

use std::ops::Range;
use std::sync::Arc;

use half::f16;
use rayon::prelude::*;
use web_time::Instant;

use super::buffers::{self, Buffers, Plan};
use super::cache::Cache;
use super::commands::Round;
use super::context::Context;
use super::entry::Entry;
use super::fusion::Allowed;
use super::layout::{HEAD, Layout};
use super::pipelines::Pipeline;
use super::readback::Front;
use super::timing::Timing;
use super::{plausible, readback, stages};
use crate::buffers::Work;
use crate::error::{Error, Result};
use crate::kernels::shader::{MAX_MEMBERS, stride};
use crate::recording::{BufferId, Kind, Recording, Scope, Values};
use crate::solver::member::Active;
use crate::solver::profile::{Clock, Gauge, Meter, Tally};
use crate::solver::{Batch, LevenbergMarquardt, Method, Outcome, Pending, Places, Population};
use crate::threads;

/// Buffers, pipelines and the number of members of a population.
#[derive(Debug)]
pub(super) struct GpuPopulation {
    pub(super) context: Arc<Context>,
    recording: Arc<Recording>,
    /// The stages of each kernel.
    groups: Vec<Range<usize>>,
    method: Method,
    layout: Layout,
    pub(super) buffers: Buffers,
    pub(super) round: Round,
    /// Members as the host knows them.
    entry: Entry,
    active: Active,
    /// Bytes of its buffers.
    bytes: u64,
    gauge: Option<(Gauge, Timing)>,
}

impl GpuPopulation {
    /// Creates a population of `capacity` members with the kernels that the context allows to be fused.
    pub fn new(
        context: Arc<Context>,
        recording: Arc<Recording>,
        method: &Method,
        capacity: usize,
    ) -> Result<GpuPopulation> {
        let allowed = context.allowed();
        GpuPopulation::with(context, allowed, recording, method, capacity)
    }

    /// Makes a population whose kernels join stages as `allowed` says.
    pub fn with(
        context: Arc<Context>,
        allowed: Allowed,
        recording: Arc<Recording>,
        method: &Method,
        capacity: usize,
    ) -> Result<GpuPopulation> {
        let slots = (capacity.max(1) * method.lanes()).min(MAX_MEMBERS);
        let layout = Layout { parameters: recording.parameters.len(), capacity: slots };
        let method = &match *method {
            Method::LevenbergMarquardt(lm) => {
                Method::LevenbergMarquardt(LevenbergMarquardt { ftol: context.tolerance(lm.ftol), ..lm })
            }
            simplex => simplex,
        };
        let products = context.products(recording.has_halves());
        let groups = allowed.kernels(&recording, Some(products));
        let few_simplices = context.kernels.few_simplices;
        let shaders = stages::shaders(&recording, &groups, layout, method, products, few_simplices)?;
        let plan = Plan::new(&recording, layout, shaders.len() - 1, &allowed.unwritten(&recording));
        let buffers = Buffers::new(&context, &recording, &plan)?;
        let compile = |shader| Pipeline::new(&context, shader, &buffers);
        let mut pipelines = threads::in_pool(|| shaders.par_iter().map(compile).collect::<Result<Vec<_>>>())?;
        context.cache.iter().for_each(Cache::save);
        let Some(compact) = pipelines.pop() else { return Err(context.failure("a round has no kernels")) };
        let moves = pipelines.split_off(groups.len());
        let round = Round { stages: pipelines, moves, compact };
        let entry = Entry::new(layout);
        let (method, bytes) = (*method, plan.bytes());
        Ok(GpuPopulation {
            context,
            recording,
            groups,
            method,
            layout,
            buffers,
            round,
            entry,
            active: Active::default(),
            bytes,
            gauge: None,
        })
    }

    /// Fails unless the places of a batch are within the population and its arrays have the lengths that they must.
    fn check(&self, batch: &Batch, places: &Places) -> Result<()> {
        let capacity = self.layout.capacity / self.method.lanes();
        if places.starts.iter().chain(&places.spectra).any(|place| *place >= capacity) {
            let (starts, spectra) = (batch.members(), batch.spectra);
            return Err(Error::Usage(format!("{starts} starts of {spectra} spectra in a population of {capacity}")));
        }
        let parameters = self.layout.parameters;
        for values in [&batch.lower, &batch.upper, &batch.prior_mean, &batch.prior_weight] {
            check_length("bounds and priors", values.len(), batch.spectra * parameters)?;
        }
        check_length("starts", batch.starts.len(), batch.members() * parameters)?;
        if batch.group.iter().any(|s| *s as usize >= batch.spectra) {
            return Err(Error::Usage("a member of a spectrum that is not in the batch".into()));
        }
        for (id, values) in &batch.blocks {
            let block = self.recording.block(*id);
            let blocks = if block.scope == Scope::Spectrum { batch.spectra } else { 1 };
            check_length(&block.name, values.len(), blocks * block.length)?;
            if let Values::Blocks(arrays) = values {
                arrays.iter().try_for_each(|array| check_length(&block.name, array.len(), block.length))?;
            }
            if (block.kind == Kind::Index) != matches!(values, Values::I32(_)) {
                return Err(Error::Usage(format!("{}: elements of another kind", block.name)));
            }
        }
        Ok(())
    }

    /// Reads state, control, list of members and any simplices from the device and checks them, unless the host's
    /// copies are current.
    async fn refresh(&mut self) -> Result<()> {
        if self.entry.is_current {
            return Ok(());
        }
        let begin = Instant::now();
        let encoder = self.context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let Buffers { state, control, members, simplices, readback, .. } = &self.buffers;
        let Entry { state: s, control: c, members: m, simplices: x, .. } = &self.entry;
        let x = if matches!(self.method, Method::NelderMead(_)) { x.len() } else { 0 };
        let (s, c, m) = (s.len(), c.len(), m.len());
        let fronts = [(state, s), (control, c), (members, m), (simplices, x)];
        let fronts = fronts.map(|(buffer, elements)| Front { buffer, elements });
        let read = readback::fetch_all(&self.context, encoder, &fronts, readback).await?;
        self.entry.take(read);
        plausible::entry(&self.context, &self.entry, self.layout, self.method, self.active)?;
        self.entry.is_current = true;
        self.copied(Work::Readback, 4 * (s + c + m + x), begin);
        Ok(())
    }

    /// Adds a copy of `bytes` bytes between host and device, since `begin`, to the profile, if one is kept.
    fn copied(&self, work: Work, bytes: usize, begin: Instant) {
        if let Some((gauge, _)) = &self.gauge {
            gauge.copied(work, bytes, begin);
        }
    }

    /// Runs `rounds` rounds as [`advance`](Population::advance) does, each kernel timed in a pass of its own.
    async fn measured(&mut self, rounds: u32) -> Result<()> {
        let Some((gauge, timing)) = &self.gauge else { return Ok(()) };
        let stages = self.round.stages.len();
        let mut left = rounds as usize;
        while left > 0 && self.active.all > 0 {
            let (begin, now) = (Instant::now(), left.min(timing.rounds));
            let measured = timing.run(&self.context, &self.buffers, &self.round, now).await?;
            let mut active = Vec::new();
            for one in measured {
                if self.active.all == 0 {
                    break;
                }
                let members = self.active.taking_part;
                let (own, moves) = one.seconds.split_at(stages);
                let (compact, moves) = moves.split_last().map_or((0.0, moves), |(last, rest)| (*last, rest));
                let (calls, by_stage) = (vec![1; stages], vec![members as u64; stages]);
                gauge.add(&Tally { seconds: own.to_vec(), calls, members: by_stage });
                // `simplex` moves all simplices, whoever takes part
                let moved = if self.lanes() > 1 { self.active.all / self.lanes() } else { members };
                gauge.step(moved, moves.iter().sum());
                gauge.compact(self.active.all, compact);
                active.push(members);
                self.active = plausible::active(&self.context, one.head, self.active)?;
            }
            gauge.look(begin, active);
            left -= now;
        }
        Ok(())
    }

    /// Writes the data, bounds and priors of a batch to the device, at the places of its spectra.
    fn upload(&self, batch: &Batch, places: &Places) {
        for (id, values) in &batch.blocks {
            let buffer = &self.buffers.blocks[id.0];
            match self.recording.block(*id).scope {
                Scope::Spectrum => {
                    buffers::upload_to(&self.context, &self.recording, *id, buffer, values, &places.spectra);
                }
                _ if self.active.all == 0 => buffers::upload(&self.context, &self.recording, *id, buffer, values),
                _ => {}
            }
        }
        let limits = limits(batch, self.layout.parameters);
        let length = 4 * self.layout.parameters;
        buffers::write(&self.context, &self.buffers.limits, &limits, length, length, &places.spectra);
    }

    /// Returns how many bytes a batch has copied to the device: its arrays, and the state of its members.
    fn bytes_of(&self, batch: &Batch) -> usize {
        let Entry { state, control, members, simplices, .. } = &self.entry;
        let own = state.len() + control.len() + members.len() + simplices.len();
        let is_alone = self.active.all == batch.members() * self.lanes();
        let bytes = |(id, values): &(BufferId, Values)| {
            let block = self.recording.block(*id);
            let each = if block.kind == Kind::Half { 2 } else { 4 };
            if block.scope == Scope::Spectrum || is_alone { each * values.len() } else { 0 }
        };
        4 * (own + 4 * self.layout.parameters * batch.spectra) + batch.blocks.iter().map(bytes).sum::<usize>()
    }

    /// Runs the stages once at the trial points, and returns the bits of the members' state.
    #[cfg(test)]
    pub async fn run_stages(&mut self) -> Result<Vec<u32>> {
        let commands = self.round.record_stages(&self.context, &self.buffers);
        self.submit_and_read(commands, &self.buffers.state, self.entry.state.len()).await
    }

    /// Runs `step` alone on a full population, each member with a spectrum of its own, in this state and with these
    /// limits; returns the state and the control that it leaves.
    #[cfg(test)]
    pub async fn run_step(&self, state: &[u32], control: &[i32], limits: &[f32]) -> Result<(Vec<u32>, Vec<i32>)> {
        let count = self.layout.capacity as u32;
        let members: Vec<u32> = [count, count].into_iter().chain(0..count).chain(0..count).collect();
        self.write(&self.buffers.state, state);
        self.write(&self.buffers.control, control);
        self.write(&self.buffers.members, &members);
        self.write(&self.buffers.limits, limits);
        let commands = self.round.record_step(&self.context, count);
        let state = self.submit_and_read(commands, &self.buffers.state, state.len()).await?;
        let nothing = self.context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        Ok((state, self.submit_and_read(nothing, &self.buffers.control, control.len()).await?))
    }

    /// Writes the members as the host knows them to the device.
    pub(super) fn write_members(&self) {
        let Buffers { state, control, members, simplices, arguments, .. } = &self.buffers;
        self.write(state, &self.entry.state);
        self.write(control, &self.entry.control);
        self.write(members, &self.entry.members);
        self.write(simplices, &self.entry.simplices);
        self.write(arguments, &self.round.arguments(self.active));
    }

    /// Writes values to the start of a GPU buffer; does nothing if there are none.
    fn write(&self, buffer: &wgpu::Buffer, values: &[impl bytemuck::Pod]) {
        if !values.is_empty() {
            self.context.write(buffer, 0, bytemuck::cast_slice(values));
        }
    }

    /// Submits the commands, and reads `elements` of `buffer` when they are done.
    async fn submit_and_read<T: bytemuck::Pod>(
        &self,
        commands: wgpu::CommandEncoder,
        buffer: &wgpu::Buffer,
        elements: usize,
    ) -> Result<Vec<T>> {
        readback::fetch(&self.context, commands, buffer, &self.buffers.readback, elements).await
    }
}

impl Population for GpuPopulation {
    fn capacity(&self) -> usize {
        self.layout.capacity / self.lanes()
    }

    fn lanes(&self) -> usize {
        self.method.lanes()
    }

    fn measure(&mut self, meter: Arc<Meter>) {
        // without buffers for it nothing is measured, and nothing else is lost
        let Ok(timing) = Timing::new(&self.context, &self.round) else { return };
        let clock = if timing.has_times() { Clock::Timestamps } else { Clock::Submissions };
        let works = self.groups.iter().map(|stages| self.recording.cost_of_kernel(stages.clone())).collect();
        let mut gauge = Gauge::new(meter, works, self.layout.parameters, size_of::<f32>(), clock);
        gauge.hold(self.bytes);
        self.gauge = Some((gauge, timing));
    }

    fn clear(&mut self) {
        self.entry = Entry::new(self.layout);
        self.active = Active::default();
    }

    fn enter<'a>(&'a mut self, batch: &'a Batch, places: &'a Places) -> Pending<'a, ()> {
        Box::pin(async move {
            self.check(batch, places)?;
            self.refresh().await?;
            let begin = Instant::now();
            self.upload(batch, places);
            self.active = self.entry.enter(batch, places, self.method, self.active);
            self.write_members();
            self.context.flush();
            self.copied(Work::Upload, self.bytes_of(batch), begin);
            self.context.check()
        })
    }

    fn advance(&mut self, rounds: u32) -> Pending<'_, usize> {
        Box::pin(async move {
            if self.active.all == 0 || rounds == 0 {
                return Ok(self.active.all);
            }
            if self.gauge.is_some() {
                self.measured(rounds).await?;
            } else {
                let commands = self.round.record(&self.context, &self.buffers, rounds);
                let head: Vec<u32> = self.submit_and_read(commands, &self.buffers.members, HEAD).await?;
                self.active = plausible::active(&self.context, [head[0], head[1]], self.active)?;
            }
            self.entry.is_current = false;
            Ok(self.active.all)
        })
    }

    fn active(&mut self) -> Pending<'_, Vec<usize>> {
        Box::pin(async move {
            self.refresh().await?;
            let lanes = self.lanes();
            let listed = &self.entry.members[HEAD..HEAD + self.active.all];
            let mut starts: Vec<usize> = listed.iter().map(|slot| *slot as usize / lanes).collect();
            starts.sort_unstable();
            starts.dedup();
            Ok(starts)
        })
    }

    fn read<'a>(&'a mut self, starts: &'a [usize]) -> Pending<'a, Vec<Outcome>> {
        Box::pin(async move {
            self.refresh().await?;
            let Entry { state, control, simplices, .. } = &self.entry;
            let simplices = bytemuck::cast_slice(simplices);
            Ok(match self.method {
                Method::LevenbergMarquardt(_) => {
                    readback::outcomes(self.layout, starts, bytemuck::cast_slice(state), control)
                }
                Method::NelderMead(_) => readback::simplex_outcomes(self.layout, starts, simplices, control),
            })
        })
    }

    fn inspect(&mut self, buffer: BufferId) -> Pending<'_, Vec<f64>> {
        Box::pin(async move {
            if self.context.allowed().unwritten(&self.recording).contains(&buffer) {
                let name = &self.recording.block(buffer).name;
                return Err(self
                    .context
                    .failure(format!("{name} is never written: its kernel also does what reads it")));
            }
            let block = self.recording.block(buffer);
            let (length, stride) = (block.length, stride(block));
            let source = &self.buffers.blocks[buffer.0];
            let commands = self.round.record_stages(&self.context, &self.buffers);
            let elements = self.active.taking_part * stride;
            let target = self.context.guarded(|| Ok(buffers::readback(&self.context, elements.max(1))))?;
            let seen: Vec<u32> = readback::fetch(&self.context, commands, source, &target, elements).await?;
            let blocks = seen.chunks(stride.max(1));
            Ok(match self.recording.block(buffer).kind {
                Kind::Half => {
                    let halves = |pair: &u32| [*pair as u16, (pair >> 16) as u16].map(|x| f16::from_bits(x).to_f64());
                    blocks.flat_map(|block| block.iter().flat_map(halves).take(length)).collect()
                }
                _ => blocks.flat_map(|block| &block[..length]).map(|x| f64::from(f32::from_bits(*x))).collect(),
            })
        })
    }
}

/// Fails with [`Error::ShapeMismatch`] unless the length of an array, called `what`, is the expected one.
fn check_length(what: &str, length: usize, expected: usize) -> Result<()> {
    if length == expected {
        return Ok(());
    }
    Err(Error::mismatch(what, format!("{length} numbers, not {expected}")).naming(what))
}

/// Returns each spectrum's lower and upper bounds, prior means and prior weights: (spectra, 4, parameters).
fn limits(batch: &Batch, parameters: usize) -> Vec<f32> {
    let kinds = [&batch.lower, &batch.upper, &batch.prior_mean, &batch.prior_weight];
    let of_spectrum = |s: usize| kinds.into_iter().flat_map(move |v| &v[s * parameters..(s + 1) * parameters]);
    (0..batch.spectra).flat_map(of_spectrum).map(|x| *x as f32).collect()
}
