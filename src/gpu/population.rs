//! Members in flight on a GPU.

use std::ops::Range;
use std::sync::Arc;

use half::f16;
use rayon::prelude::*;
use web_time::Instant;

use super::buffers::{self, Buffers, Plan};
use super::cache::Cache;
use super::commands::{Round, record_alone};
use super::context::Context;
use super::entry::{Entry, check, limits};
use super::fusion::Allowed;
use super::layout::{HEAD, Layout, SPARE_SPECTRA};
use super::pipelines::Pipeline;
use super::timing::Timing;
use super::transfer::{Transfer, workgroups};
use super::{plausible, readback, stages};
use crate::buffers::Work;
use crate::error::{Error, Result};
use crate::kernels::shader::{MAX_MEMBERS, Shader, stride};
use crate::recording::{BufferId, Kind, Recording, Scope, Values};
use crate::solver::member::Active;
use crate::solver::profile::{Clock, Gauge, KernelTally, Meter};
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
    /// Puts members that enter into their slots.
    pub(super) enters: Pipeline,
    /// Collects members that leave.
    pub(super) leaves: Pipeline,
    /// Members as the host knows them.
    entry: Entry,
    /// The host's members differ from the device's: starts have entered since the last round.
    has_entered: bool,
    /// Rounds for whose end nobody has waited yet.
    submitted: Option<wgpu::SubmissionIndex>,
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
        let layout = Layout {
            parameters: recording.parameters.len(),
            capacity: slots,
        };
        let method = &match *method {
            Method::LevenbergMarquardt(lm) => Method::LevenbergMarquardt(LevenbergMarquardt {
                ftol: context.tolerance(lm.ftol),
                ..lm
            }),
            simplex => simplex,
        };
        let products = context.products(recording.has_halves());
        let groups = allowed.kernels(&recording, Some(products));
        let few_simplices = context.kernels.few_simplices;
        let shaders =
            stages::shaders(&recording, &groups, layout, method, products, few_simplices)?;
        let plan = Plan::new(
            &recording,
            layout,
            shaders.len() - 1,
            &allowed.unwritten(&recording),
        );
        let buffers = Buffers::new(&context, &recording, &plan)?;
        let shaders = shaders
            .into_iter()
            .chain(stages::transfers(&recording, layout, products));
        let shaders: Vec<Shader> = shaders.collect();
        let compile = |shader| Pipeline::new(&context, shader, &buffers);
        let mut pipelines =
            threads::in_pool(|| shaders.par_iter().map(compile).collect::<Result<Vec<_>>>())?;
        context.cache.iter().for_each(Cache::save);
        let last = [pipelines.pop(), pipelines.pop(), pipelines.pop()];
        let [Some(leaves), Some(enters), Some(compact)] = last else {
            return Err(context.failure("a round has no kernels"));
        };
        let moves = pipelines.split_off(groups.len());
        let round = Round {
            stages: pipelines,
            moves,
            compact,
        };
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
            enters,
            leaves,
            entry,
            has_entered: false,
            submitted: None,
            active: Active::default(),
            bytes,
            gauge: None,
        })
    }

    /// Checks the list of active members that was read after some rounds, and keeps it.
    fn take_list(&mut self, list: &[u32]) -> Result<()> {
        let before = &self.entry.members[HEAD..list.len()];
        let active = plausible::active(
            &self.context,
            [list[0], list[1]],
            Active {
                all: before.len(),
                ..self.active
            },
        )?;
        plausible::list(&self.context, &list[HEAD..HEAD + active.all], before)?;
        self.active = active;
        self.entry.members[..list.len()].copy_from_slice(list);
        Ok(())
    }

    /// Adds a copy of `bytes` bytes between host and device, since `begin`, to the profile, if one is kept.
    fn copied(&self, work: Work, bytes: usize, begin: Instant) {
        if let Some((gauge, _)) = &self.gauge {
            gauge.add_copy(work, bytes, begin);
        }
    }

    /// Runs `rounds` rounds as [`advance`](Population::advance) does, each kernel timed in a pass of its own.
    async fn measured(&mut self, rounds: u32) -> Result<()> {
        let Some((gauge, timing)) = &self.gauge else {
            return Ok(());
        };
        let stages = self.round.stages.len();
        let mut left = rounds as usize;
        while left > 0 && self.active.all > 0 {
            let (begin, now) = (Instant::now(), left.min(timing.rounds));
            let measured = timing
                .run(&self.context, &self.buffers, &self.round, now)
                .await?;
            let mut active = Vec::new();
            for one in measured {
                if self.active.all == 0 {
                    break;
                }
                let members = self.active.taking_part;
                let (own, moves) = one.seconds.split_at(stages);
                let (compact, moves) = moves
                    .split_last()
                    .map_or((0.0, moves), |(last, rest)| (*last, rest));
                let (calls, by_stage) = (vec![1; stages], vec![members as u64; stages]);
                gauge.add_kernels(&KernelTally {
                    seconds: own.to_vec(),
                    calls,
                    members: by_stage,
                });
                // `simplex` moves all simplices, whoever takes part
                let moved = if self.lanes() > 1 {
                    self.active.all / self.lanes()
                } else {
                    members
                };
                gauge.add_step(moved, moves.iter().sum());
                gauge.add_compaction(self.active.all, compact);
                active.push(members);
                self.active = plausible::active(&self.context, one.head, self.active)?;
            }
            gauge.add_submission(begin, active);
            left -= now;
        }
        Ok(())
    }

    /// Writes the data, bounds and priors of a batch to the device, at these places of its spectra.
    fn write_spectra(&self, batch: &Batch, spectra: &[usize]) {
        for (id, values) in &batch.blocks {
            let buffer = &self.buffers.blocks[id.0];
            match self.recording.block(*id).scope {
                Scope::Spectrum => {
                    buffers::upload_to(
                        &self.context,
                        &self.recording,
                        *id,
                        buffer,
                        values,
                        spectra,
                    );
                }
                _ if self.active.all == 0 => {
                    buffers::upload(&self.context, &self.recording, *id, buffer, values)
                }
                _ => {}
            }
        }
        let limits = limits(batch, self.layout.parameters);
        let length = 4 * self.layout.parameters;
        buffers::write(
            &self.context,
            &self.buffers.limits,
            &limits,
            length,
            length,
            spectra,
        );
    }

    /// Returns how many bytes a batch has copied to the device.
    fn bytes_of(&self, batch: &Batch) -> usize {
        let bytes = |(id, values): &(BufferId, Values)| {
            let block = self.recording.block(*id);
            let each = if block.kind == Kind::Half { 2 } else { 4 };
            if block.scope == Scope::Spectrum || self.active.all == 0 {
                each * values.len()
            } else {
                0
            }
        };
        16 * self.layout.parameters * batch.spectra + batch.blocks.iter().map(bytes).sum::<usize>()
    }

    /// Runs the stages once at the trial points, and returns the bits of the members' state.
    #[cfg(test)]
    pub async fn run_stages(&mut self) -> Result<Vec<u32>> {
        self.write_list();
        let commands = self.round.record_stages(&self.context, &self.buffers);
        let elements = self.layout.state_length() * self.layout.capacity;
        self.submit_and_read(commands, &self.buffers.state, elements)
            .await
    }

    /// Runs `step` alone on a full population, each member with a spectrum of its own, in this state and with these
    /// limits; returns the state and the control that it leaves.
    #[cfg(test)]
    pub async fn run_step(
        &self,
        state: &[u32],
        control: &[i32],
        limits: &[f32],
    ) -> Result<(Vec<u32>, Vec<i32>)> {
        let count = self.layout.capacity as u32;
        let members: Vec<u32> = [count, count]
            .into_iter()
            .chain(0..count)
            .chain(0..count)
            .collect();
        self.write(&self.buffers.state, state);
        self.write(&self.buffers.control, control);
        self.write(&self.buffers.members, &members);
        self.write(&self.buffers.limits, limits);
        let commands = self.round.record_step(&self.context, count);
        let state = self
            .submit_and_read(commands, &self.buffers.state, state.len())
            .await?;
        let nothing = self
            .context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        Ok((
            state,
            self.submit_and_read(nothing, &self.buffers.control, control.len())
                .await?,
        ))
    }

    /// Writes the list of members to the device if starts have entered since the last round.
    pub(super) fn write_list(&mut self) {
        if std::mem::take(&mut self.has_entered) {
            let begin = Instant::now();
            let arguments = self.round.arguments(self.active);
            self.write(&self.buffers.members, &self.entry.members);
            self.write(&self.buffers.arguments, &arguments);
            self.copied(
                Work::Upload,
                4 * (self.entry.members.len() + arguments.len()),
                begin,
            );
        }
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
        readback::fetch(
            &self.context,
            commands,
            buffer,
            &self.buffers.readback,
            elements,
        )
        .await
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
        let Ok(timing) = Timing::new(&self.context, &self.round) else {
            return;
        };
        let clock = if timing.has_times() {
            Clock::Timestamps
        } else {
            Clock::Submissions
        };
        let works = self
            .groups
            .iter()
            .map(|stages| self.recording.cost_of_kernel(stages.clone()))
            .collect();
        let mut gauge = Gauge::new(
            meter,
            works,
            self.layout.parameters,
            size_of::<f32>(),
            clock,
        );
        gauge.hold(self.bytes);
        self.gauge = Some((gauge, timing));
    }

    fn clear(&mut self) {
        self.entry = Entry::new(self.layout);
        self.active = Active::default();
        (self.has_entered, self.submitted) = (false, None);
    }

    fn spectra_capacity(&self) -> usize {
        self.capacity() + self.capacity() / SPARE_SPECTRA
    }

    fn upload(&mut self, batch: &Batch, spectra: &[usize]) -> Result<()> {
        check(&self.recording, batch, spectra, self.spectra_capacity())?;
        let begin = Instant::now();
        self.write_spectra(batch, spectra);
        self.context.flush();
        self.copied(Work::Upload, self.bytes_of(batch), begin);
        self.context.check()
    }

    fn enter_members(&mut self, batch: &Batch, places: &Places) -> Result<()> {
        let (begin, lanes) = (Instant::now(), self.lanes());
        if places.starts.iter().any(|start| *start >= self.capacity()) {
            let (starts, capacity) = (batch.members(), self.capacity());
            return Err(Error::Usage(format!(
                "{starts} starts in a population of {capacity}"
            )));
        }
        let transfer = Transfer::of_batch(self.layout.parameters, batch, places, self.method);
        let words = transfer.words(lanes);
        self.write(&self.buffers.transfer, &words);
        self.context.submit(record_alone(
            &self.context,
            &self.enters,
            workgroups(transfer.length(lanes)),
        ));
        self.active = self.entry.enter(batch, places, lanes, self.active);
        self.has_entered = true;
        self.copied(Work::Upload, 4 * words.len(), begin);
        self.context.check()
    }

    fn submit(&mut self, rounds: u32) -> Result<()> {
        // measured rounds are submitted one by one
        let is_idle = self.submitted.is_none() && self.gauge.is_none();
        if is_idle && self.active.all > 0 && rounds > 0 {
            self.write_list();
            let mut commands = self.round.record(&self.context, &self.buffers, rounds);
            let bytes = 4 * (HEAD + self.active.all) as u64;
            self.context.copy(
                &mut commands,
                &self.buffers.members,
                &self.buffers.readback,
                0,
                bytes,
            );
            self.submitted = Some(self.context.submit(commands));
        }
        Ok(())
    }

    fn advance(&mut self, rounds: u32) -> Pending<'_, usize> {
        Box::pin(async move {
            self.submit(rounds)?;
            let elements = HEAD + self.active.all;
            let list: Vec<u32> = match self.submitted.take() {
                Some(submission) => {
                    readback::read(&self.context, &self.buffers.readback, elements, submission)
                        .await?
                }
                None if self.active.all == 0 || rounds == 0 => return Ok(self.active.all),
                None => {
                    self.write_list();
                    self.measured(rounds).await?;
                    let nothing = self
                        .context
                        .device
                        .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                    self.submit_and_read(nothing, &self.buffers.members, elements)
                        .await?
                }
            };
            self.take_list(&list)?;
            Ok(self.active.all)
        })
    }

    fn active(&mut self) -> Pending<'_, Vec<usize>> {
        let lanes = self.lanes();
        let listed = &self.entry.members[HEAD..HEAD + self.active.all];
        let mut starts: Vec<usize> = listed.iter().map(|slot| *slot as usize / lanes).collect();
        starts.sort_unstable();
        starts.dedup();
        Box::pin(async { Ok(starts) })
    }

    fn read<'a>(&'a mut self, starts: &'a [usize]) -> Pending<'a, Vec<Outcome>> {
        Box::pin(async move {
            if starts.is_empty() {
                return Ok(Vec::new());
            }
            let (begin, lanes) = (Instant::now(), self.lanes());
            let slots = starts
                .iter()
                .flat_map(|start| start * lanes..(start + 1) * lanes)
                .collect();
            let mut transfer = Transfer::new(self.layout.parameters, slots);
            let (head, numbers) = (transfer.head(lanes), transfer.length(lanes));
            self.write(&self.buffers.transfer, &head);
            let commands = record_alone(&self.context, &self.leaves, workgroups(numbers));
            let elements = head.len() + numbers;
            let words: Vec<u32> = self
                .submit_and_read(commands, &self.buffers.transfer, elements)
                .await?;
            if words[..head.len()] != head {
                return Err(self
                    .context
                    .untrusted("other members than those that leave were read"));
            }
            transfer.take(&words[head.len()..]);
            let active = &self.entry.members[HEAD..HEAD + self.active.all];
            plausible::transfer(&self.context, &transfer, self.method, active)?;
            self.copied(Work::Readback, 4 * elements, begin);
            Ok(transfer.outcomes(self.method))
        })
    }

    fn inspect(&mut self, buffer: BufferId) -> Pending<'_, Vec<f64>> {
        Box::pin(async move {
            if self
                .context
                .allowed()
                .unwritten(&self.recording)
                .contains(&buffer)
            {
                let name = &self.recording.block(buffer).name;
                return Err(self.context.failure(format!(
                    "{name} is never written: its kernel also does what reads it"
                )));
            }
            self.write_list();
            let block = self.recording.block(buffer);
            let (length, stride) = (block.length, stride(block));
            let source = &self.buffers.blocks[buffer.0];
            let commands = self.round.record_stages(&self.context, &self.buffers);
            let elements = self.active.taking_part * stride;
            let target = self
                .context
                .guarded(|| Ok(buffers::readback(&self.context, elements.max(1))))?;
            let seen: Vec<u32> =
                readback::fetch(&self.context, commands, source, &target, elements).await?;
            let blocks = seen.chunks(stride.max(1));
            Ok(match self.recording.block(buffer).kind {
                Kind::Half => {
                    let halves = |pair: &u32| {
                        [*pair as u16, (pair >> 16) as u16].map(|x| f16::from_bits(x).to_f64())
                    };
                    blocks
                        .flat_map(|block| block.iter().flat_map(halves).take(length))
                        .collect()
                }
                _ => blocks
                    .flat_map(|block| &block[..length])
                    .map(|x| f64::from(f32::from_bits(*x)))
                    .collect(),
            })
        })
    }
}
