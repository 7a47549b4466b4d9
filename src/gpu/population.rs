//! Members in flight on a GPU.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use half::f16;
use rayon::prelude::*;
use web_time::Instant;

use super::buffers::{self, BufferPlan, Buffers};
use super::cache::Cache;
use super::commands::{Round, record_alone};
use super::context::GpuContext;
use super::fusion::AllowedFusions;
use super::layout::{LIST_HEADER_WORDS, Layout, SPARE_SPECTRA};
use super::member_list::{MemberList, check_batch, collect_limits};
use super::pipelines::Pipeline;
use super::timing::Timing;
use super::transfer::{Transfer, workgroups_for};
use super::{plausible, readback, stages};
use crate::buffers::Work;
use crate::error::{Error, Result};
use crate::kernels::shader::{MAX_MEMBERS, Shader, stride};
use crate::recording::{BufferId, Kind, Recording, Scope};
use crate::solver::member::Active;
use crate::solver::profile::{Clock, Gauge, KernelTally, Meter};
use crate::solver::{Batch, LevenbergMarquardt, Outcome, Pending, Places, Population};
use crate::threads;

/// Buffers, pipelines and the number of members of a population.
#[derive(Debug)]
pub(super) struct GpuPopulation {
    pub(super) context: Arc<GpuContext>,
    recording: Arc<Recording>,
    /// The stages of each kernel.
    stage_groups: Vec<Range<usize>>,
    settings: LevenbergMarquardt,
    layout: Layout,
    pub(super) buffers: Buffers,
    pub(super) round: Round,
    /// Kernel that puts members that enter into their slots.
    pub(super) enter_kernel: Pipeline,
    /// Kernel that collects members that leave.
    pub(super) leave_kernel: Pipeline,
    /// The host's copy of the list of members.
    member_list: MemberList,
    /// Whether the host's list differs from the device's, because starts have entered since the last round.
    list_has_changed: bool,
    /// Submitted rounds whose end has not been awaited yet.
    submitted: Option<wgpu::SubmissionIndex>,
    active: Active,
    /// By slot: the point of each member that is only evaluated, as the device was sent it.
    evaluated_points: BTreeMap<usize, Vec<f32>>,
    /// Size of the population's buffers.
    bytes: u64,
    gauge: Option<(Gauge, Timing)>,
}

impl GpuPopulation {
    /// Creates a population of `capacity` members with the kernels that the context allows to be fused.
    pub fn new(
        context: Arc<GpuContext>,
        recording: Arc<Recording>,
        settings: &LevenbergMarquardt,
        capacity: usize,
    ) -> Result<GpuPopulation> {
        let fusions = context.allowed_fusions();
        GpuPopulation::with_fusions(context, fusions, recording, settings, capacity)
    }

    /// Creates a population of `capacity` members with the kernels that `fusions` allows to be fused.
    pub fn with_fusions(
        context: Arc<GpuContext>,
        fusions: AllowedFusions,
        recording: Arc<Recording>,
        settings: &LevenbergMarquardt,
        capacity: usize,
    ) -> Result<GpuPopulation> {
        let layout = Layout {
            parameters: recording.parameters.len(),
            capacity: capacity.clamp(1, MAX_MEMBERS),
        };
        let settings = LevenbergMarquardt {
            ftol: context.tolerance(settings.ftol),
            ..*settings
        };
        // 1. Write the shaders of a round.
        let products = context.product_kernels(recording.has_halves());
        let stage_groups = fusions.group_stages(&recording, products);
        let round_shaders =
            stages::round_shaders(&recording, &stage_groups, layout, &settings, products)?;
        // 2. Create the buffers.
        let plan = BufferPlan::new(
            &recording,
            layout,
            round_shaders.len() - 1,
            &fusions.unwritten_buffers(&recording, products),
        );
        let buffers = Buffers::new(&context, &recording, &plan)?;
        // 3. Compile all kernels on all threads, and save them for later runs.
        let shaders: Vec<Shader> = round_shaders
            .into_iter()
            .chain(stages::transfer_shaders(&recording, layout, products))
            .collect();
        let mut pipelines = threads::in_pool(|| {
            shaders
                .par_iter()
                .map(|shader| Pipeline::new(&context, shader, &buffers))
                .collect::<Result<Vec<_>>>()
        })?;
        context.cache.iter().for_each(Cache::save);
        // 4. Take the kernels apart: the stages, those that move members, `compact`, and the two transfers.
        let last_three = [pipelines.pop(), pipelines.pop(), pipelines.pop()];
        let [Some(leave_kernel), Some(enter_kernel), Some(compact)] = last_three else {
            return Err(context.failure("a round has no kernels"));
        };
        let moves = pipelines.split_off(stage_groups.len());
        let round = Round {
            stages: pipelines,
            moves,
            compact,
        };
        Ok(GpuPopulation {
            context,
            recording,
            stage_groups,
            settings,
            layout,
            buffers,
            round,
            enter_kernel,
            leave_kernel,
            member_list: MemberList::new(layout),
            list_has_changed: false,
            submitted: None,
            active: Active::default(),
            evaluated_points: BTreeMap::new(),
            bytes: plan.total_bytes(),
            gauge: None,
        })
    }

    /// Checks the list of active members that was read after some rounds, and stores it as the host's list.
    fn store_list(&mut self, list: &[u32]) -> Result<()> {
        let slots_before = &self.member_list.members[LIST_HEADER_WORDS..list.len()];
        let active = plausible::check_counts(
            &self.context,
            [list[0], list[1]],
            Active {
                all: slots_before.len(),
                ..self.active
            },
        )?;
        plausible::check_slots(
            &self.context,
            &list[LIST_HEADER_WORDS..LIST_HEADER_WORDS + active.all],
            slots_before,
        )?;
        self.active = active;
        self.member_list.members[..list.len()].copy_from_slice(list);
        Ok(())
    }

    /// Adds a copy of `bytes` bytes between host and device, since `begin`, to the profile, if one is kept.
    fn record_copy(&self, work: Work, bytes: usize, begin: Instant) {
        if let Some((gauge, _)) = &self.gauge {
            gauge.add_copy(work, bytes, begin);
        }
    }

    /// Runs `rounds` rounds as [`advance`](Population::advance) does, each kernel timed in a pass of its own.
    async fn run_timed_rounds(&mut self, rounds: u32) -> Result<()> {
        let Some((gauge, timing)) = &self.gauge else {
            return Ok(());
        };
        let n_stages = self.round.stages.len();
        let mut remaining = rounds as usize;
        while remaining > 0 && self.active.all > 0 {
            // 1. Run as many rounds as one submission can time.
            let begin = Instant::now();
            let submitted = remaining.min(timing.rounds);
            let round_timings = timing
                .time_kernels(&self.context, &self.buffers, &self.round, submitted)
                .await?;
            // 2. Add each round's times to the profile: those of the stages, of the moves, and of `compact`.
            let mut members_per_round = Vec::new();
            for round_timing in round_timings {
                if self.active.all == 0 {
                    break;
                }
                let members = self.active.taking_part;
                let (stage_seconds, move_seconds) = round_timing.seconds.split_at(n_stages);
                let (compact_seconds, move_seconds) = move_seconds
                    .split_last()
                    .map_or((0.0, move_seconds), |(compact, moves)| (*compact, moves));
                gauge.add_kernels(&KernelTally {
                    seconds: stage_seconds.to_vec(),
                    calls: vec![1; n_stages],
                    members: vec![members as u64; n_stages],
                });
                gauge.add_step(members, move_seconds.iter().sum());
                gauge.add_compaction(self.active.all, compact_seconds);
                members_per_round.push(members);
                self.active =
                    plausible::check_counts(&self.context, round_timing.header, self.active)?;
            }
            gauge.add_submission(begin, members_per_round);
            remaining -= submitted;
        }
        Ok(())
    }

    /// Writes the data, bounds and priors of a batch to the device, at these places of its spectra.
    fn write_spectra(&self, batch: &Batch, spectra: &[usize]) {
        for (id, values) in &batch.blocks {
            let buffer = &self.buffers.blocks[id.0];
            match self.recording.block(*id).scope {
                Scope::Spectrum => {
                    buffers::upload_blocks(
                        &self.context,
                        &self.recording,
                        *id,
                        buffer,
                        values,
                        spectra,
                    );
                }
                _ if self.active.all == 0 => {
                    buffers::upload_first_block(&self.context, &self.recording, *id, buffer, values)
                }
                _ => {}
            }
        }
        let limits = collect_limits(batch, self.layout.parameters);
        let length = 4 * self.layout.parameters;
        buffers::write_blocks(
            &self.context,
            &self.buffers.limits,
            &limits,
            length,
            length,
            spectra,
        );
    }

    /// Returns the number of bytes of a batch that were copied to the device.
    fn count_uploaded_bytes(&self, batch: &Batch) -> usize {
        let mut bytes = 16 * self.layout.parameters * batch.spectra;
        for (id, values) in &batch.blocks {
            let block = self.recording.block(*id);
            let element_bytes = if block.kind == Kind::Half { 2 } else { 4 };
            if block.scope == Scope::Spectrum || self.active.all == 0 {
                bytes += element_bytes * values.len();
            }
        }
        bytes
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
        self.write_to_start(&self.buffers.state, state);
        self.write_to_start(&self.buffers.control, control);
        self.write_to_start(&self.buffers.members, &members);
        self.write_to_start(&self.buffers.limits, limits);
        let commands = self.round.record_step(&self.context, count);
        let state = self
            .submit_and_read(commands, &self.buffers.state, state.len())
            .await?;
        let no_commands = self
            .context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        Ok((
            state,
            self.submit_and_read(no_commands, &self.buffers.control, control.len())
                .await?,
        ))
    }

    /// Writes the list of members to the device if starts have entered since the last round.
    pub(super) fn write_list(&mut self) {
        if std::mem::take(&mut self.list_has_changed) {
            let begin = Instant::now();
            let arguments = self.round.workgroup_counts(self.active);
            self.write_to_start(&self.buffers.members, &self.member_list.members);
            self.write_to_start(&self.buffers.arguments, &arguments);
            self.record_copy(
                Work::Upload,
                4 * (self.member_list.members.len() + arguments.len()),
                begin,
            );
        }
    }

    /// Writes values to the start of a GPU buffer; does nothing if there are none.
    fn write_to_start(&self, buffer: &wgpu::Buffer, values: &[impl bytemuck::Pod]) {
        if !values.is_empty() {
            self.context
                .write_buffer(buffer, 0, bytemuck::cast_slice(values));
        }
    }

    /// Submits the commands, and reads `elements` of `buffer` when they are done.
    async fn submit_and_read<T: bytemuck::Pod>(
        &self,
        commands: wgpu::CommandEncoder,
        buffer: &wgpu::Buffer,
        elements: usize,
    ) -> Result<Vec<T>> {
        readback::copy_and_read(
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
        self.layout.capacity
    }

    fn measure(&mut self, meter: Arc<Meter>) {
        // If the buffers for the timestamps cannot be created, the run goes on without a profile.
        let Ok(timing) = Timing::new(&self.context, &self.round) else {
            return;
        };
        let clock = if timing.has_times() {
            Clock::Timestamps
        } else {
            Clock::Submissions
        };
        let costs = self
            .stage_groups
            .iter()
            .map(|stages| self.recording.cost_of_kernel(stages.clone()))
            .collect();
        let mut gauge = Gauge::new(
            meter,
            costs,
            self.layout.parameters,
            size_of::<f32>(),
            clock,
        );
        gauge.hold(self.bytes);
        self.gauge = Some((gauge, timing));
    }

    fn clear(&mut self) {
        self.member_list = MemberList::new(self.layout);
        self.active = Active::default();
        self.list_has_changed = false;
        self.submitted = None;
        self.evaluated_points.clear();
    }

    fn spectra_capacity(&self) -> usize {
        self.capacity() + self.capacity() / SPARE_SPECTRA
    }

    fn upload(&mut self, batch: &Batch, spectra: &[usize]) -> Result<()> {
        check_batch(&self.recording, batch, spectra, self.spectra_capacity())?;
        let begin = Instant::now();
        self.write_spectra(batch, spectra);
        self.context.submit_writes();
        self.record_copy(Work::Upload, self.count_uploaded_bytes(batch), begin);
        self.context.check_health()
    }

    fn enter_members(&mut self, batch: &Batch, places: &Places) -> Result<()> {
        let begin = Instant::now();
        if places.starts.iter().any(|start| *start >= self.capacity()) {
            return Err(Error::Usage(format!(
                "{} starts in a population of {}",
                batch.members(),
                self.capacity()
            )));
        }
        let transfer = Transfer::from_batch(self.layout.parameters, batch, places, self.settings);
        let words = transfer.upload_words();
        self.write_to_start(&self.buffers.transfer, &words);
        self.context.submit(record_alone(
            &self.context,
            &self.enter_kernel,
            workgroups_for(transfer.count_numbers()),
        ));
        self.active = self.member_list.add_members(batch, places, self.active);
        self.list_has_changed = true;
        for (k, slot) in places.starts.iter().enumerate() {
            self.evaluated_points.remove(slot);
            if batch.is_evaluation {
                let point = &batch.starts[k * self.layout.parameters..][..self.layout.parameters];
                let point = point.iter().map(|x| *x as f32).collect();
                self.evaluated_points.insert(*slot, point);
            }
        }
        self.record_copy(Work::Upload, 4 * words.len(), begin);
        self.context.check_health()
    }

    fn submit(&mut self, rounds: u32) -> Result<()> {
        // Rounds that are timed are submitted by `run_timed_rounds`.
        let is_idle = self.submitted.is_none() && self.gauge.is_none();
        if is_idle && self.active.all > 0 && rounds > 0 {
            self.write_list();
            let mut commands = self
                .round
                .record_rounds(&self.context, &self.buffers, rounds);
            let bytes = 4 * (LIST_HEADER_WORDS + self.active.all) as u64;
            self.context.record_buffer_copy(
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
            let elements = LIST_HEADER_WORDS + self.active.all;
            let list: Vec<u32> = match self.submitted.take() {
                Some(submission) => {
                    readback::read_mapped(
                        &self.context,
                        &self.buffers.readback,
                        elements,
                        submission,
                    )
                    .await?
                }
                None if self.active.all == 0 || rounds == 0 => return Ok(self.active.all),
                None => {
                    self.write_list();
                    self.run_timed_rounds(rounds).await?;
                    let no_commands = self
                        .context
                        .device
                        .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                    self.submit_and_read(no_commands, &self.buffers.members, elements)
                        .await?
                }
            };
            self.store_list(&list)?;
            Ok(self.active.all)
        })
    }

    fn active(&mut self) -> Pending<'_, Vec<usize>> {
        let active_slots =
            &self.member_list.members[LIST_HEADER_WORDS..LIST_HEADER_WORDS + self.active.all];
        let mut starts: Vec<usize> = active_slots.iter().map(|slot| *slot as usize).collect();
        starts.sort_unstable();
        Box::pin(async { Ok(starts) })
    }

    fn read<'a>(&'a mut self, starts: &'a [usize]) -> Pending<'a, Vec<Outcome>> {
        Box::pin(async move {
            if starts.is_empty() {
                return Ok(Vec::new());
            }
            // 1. Have the device collect the numbers of the members that leave.
            let begin = Instant::now();
            let mut transfer = Transfer::new(self.layout.parameters, starts.to_vec());
            let header = transfer.header();
            let numbers = transfer.count_numbers();
            self.write_to_start(&self.buffers.transfer, &header);
            let commands = record_alone(&self.context, &self.leave_kernel, workgroups_for(numbers));
            let elements = header.len() + numbers;
            let words: Vec<u32> = self
                .submit_and_read(commands, &self.buffers.transfer, elements)
                .await?;
            // 2. The header must come back as it was written, and the numbers must be plausible.
            if words[..header.len()] != header {
                return Err(self
                    .context
                    .untrusted("other members than those that leave were read"));
            }
            transfer.store_collected(&words[header.len()..]);
            let active_slots =
                &self.member_list.members[LIST_HEADER_WORDS..LIST_HEADER_WORDS + self.active.all];
            plausible::check_members(&self.context, &transfer, active_slots)?;
            plausible::check_points(&self.context, &transfer, &self.evaluated_points)?;
            self.record_copy(Work::Readback, 4 * elements, begin);
            Ok(transfer.outcomes())
        })
    }

    fn inspect(&mut self, buffer: BufferId) -> Pending<'_, Vec<f64>> {
        Box::pin(async move {
            if self
                .context
                .allowed_fusions()
                .unwritten_buffers(
                    &self.recording,
                    self.context.product_kernels(self.recording.has_halves()),
                )
                .contains(&buffer)
            {
                let name = &self.recording.block(buffer).name;
                return Err(self.context.failure(format!(
                    "{name} is never written: its kernel also does what reads it"
                )));
            }
            // 1. Run the stages, and read the buffer's blocks of all members that take part.
            self.write_list();
            let block = self.recording.block(buffer);
            let length = block.length;
            let stride = stride(block);
            let source = &self.buffers.blocks[buffer.0];
            let commands = self.round.record_stages(&self.context, &self.buffers);
            let elements = self.active.taking_part * stride;
            let target = self
                .context
                .catch_errors(|| Ok(buffers::create_readback(&self.context, elements.max(1))))?;
            let words: Vec<u32> =
                readback::copy_and_read(&self.context, commands, source, &target, elements).await?;
            // 2. Convert them to f64, without the padding behind each block.
            let blocks = words.chunks(stride.max(1));
            Ok(match block.kind {
                Kind::Half => blocks
                    .flat_map(|block| {
                        block
                            .iter()
                            .flat_map(|pair| unpack_halves(*pair))
                            .take(length)
                    })
                    .collect(),
                _ => blocks
                    .flat_map(|block| &block[..length])
                    .map(|x| f64::from(f32::from_bits(*x)))
                    .collect(),
            })
        })
    }
}

/// Converts the two halves of a word to f64, the lower one first.
fn unpack_halves(pair: u32) -> [f64; 2] {
    [pair as u16, (pair >> 16) as u16].map(|bits| f16::from_bits(bits).to_f64())
}
