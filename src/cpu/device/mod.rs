//! The CPU device. It runs whole rounds tile by tile, with rayon over tiles. A tile's rows stay in the cache from the
//! first stage to the step (`linearise.rs`). All populations of a recording share packed weights, cached rows and
//! tiles (`shared.rs`).

mod block;
mod linearise;
mod many;
mod row_cache;
mod shared;
mod shelves;
mod tile;

use std::sync::Arc;

use rayon::prelude::*;
use web_time::Instant;

use super::instruction_set;
use super::small::CpuSmallFitter;
use crate::buffers::Work;
use crate::error::{Error, Result};
use crate::io::memory::{check, try_with_capacity};
use crate::math::Real;
use crate::recording::{BufferId, Precision, Recording, Scope};
use crate::solver::backend::{Backend, Batch, Outcome, Pending, Population};
use crate::solver::member::{Active, Member};
use crate::solver::profile::{Clock, Gauge, Meter};
use crate::solver::round::compact::compact_members;
use crate::solver::round::step::Rules;
use crate::solver::round::{halve, step};
use crate::solver::small::{SmallFitter, SmallProblem};
use crate::solver::{LevenbergMarquardt, Places, Tolerances};
use crate::threads;
use block::BufferElements;
use linearise::{evaluate_rows, linearise};
use shared::SharedModelData;
use tile::{Inputs, MemberTile};

/// Default memory for a population, in bytes.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// Maximum number of members in a population; more would not make rounds any faster.
const MAX_CPU_MEMBERS: usize = 4096;

/// The processor's cores, through the run's pool of threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuDevice;

impl Backend for CpuDevice {
    fn name(&self) -> String {
        let count = threads::thread_count();
        format!("cpu ({count} thread{})", if count == 1 { "" } else { "s" })
    }

    /// Returns the instruction set instead of the number of threads, on which no row depends.
    fn maker(&self) -> String {
        format!("cpu ({})", instruction_set())
    }

    fn capacity(&self, recording: &Recording, memory: Option<u64>) -> Result<usize> {
        // 1. Memory per member: its spectrum and its state. Each member may also have a start in the row cache.
        let bytes_in = |scope| -> u64 { tile::count_elements(recording, scope) as u64 * 8 };
        let parameters = recording.parameters.len() as u64;
        let member_bytes = bytes_in(Scope::Spectrum) + 16 * (parameters + 2) * (parameters + 4);
        let cacheable = row_cache::CacheableStages::new(recording);
        let (tile_members, cached_bytes) = match recording.precision {
            Precision::F32 | Precision::Mixed => (
                MemberTile::<f32>::members_per_tile(recording),
                cacheable.map_or(0, |cacheable| cacheable.bytes_per_start::<f32>()),
            ),
            Precision::F64 => (
                MemberTile::<f64>::members_per_tile(recording),
                cacheable.map_or(0, |cacheable| cacheable.bytes_per_start::<f64>()),
            ),
        };
        // 2. Memory that does not depend on the number of members: the model's constants, what a batch shares, a tile.
        let tile_bytes = 8 * tile::tile_elements(recording, tile_members) as u64;
        let fixed_bytes = bytes_in(Scope::Constant) + bytes_in(Scope::Batch) + tile_bytes;
        let available_bytes = memory
            .unwrap_or(DEFAULT_MEMORY_BYTES.max(2 * fixed_bytes))
            .saturating_sub(fixed_bytes);
        let capacity =
            row_cache::max_members(available_bytes, member_bytes.max(1), cached_bytes as u64);
        if capacity == 0 {
            let message = format!("one spectrum needs {} bytes", fixed_bytes + member_bytes);
            return Err(Error::OutOfMemory {
                device: self.name(),
                message,
            });
        }
        // 3. Only for a large model is it worth asking whether the machine has the memory for a single spectrum.
        if memory.is_none() && 2 * fixed_bytes > DEFAULT_MEMORY_BYTES {
            let other_tiles_bytes = tile_bytes * (threads::thread_count() as u64 - 1);
            let least_bytes = fixed_bytes + member_bytes + other_tiles_bytes;
            check(least_bytes, || "a single spectrum".into())?;
        }
        Ok(usize::try_from(capacity)
            .unwrap_or(MAX_CPU_MEMBERS)
            .min(MAX_CPU_MEMBERS))
    }

    fn population(
        &self,
        recording: Arc<Recording>,
        settings: &LevenbergMarquardt,
        capacity: usize,
    ) -> Result<Box<dyn Population>> {
        let precision = recording.precision;
        let population: Option<Box<dyn Population>> = match precision {
            Precision::F32 | Precision::Mixed => {
                CpuPopulation::<f32>::new(recording, *settings, capacity).map(|p| Box::new(p) as _)
            }
            Precision::F64 => {
                CpuPopulation::<f64>::new(recording, *settings, capacity).map(|p| Box::new(p) as _)
            }
        };
        population.ok_or_else(|| Error::OutOfMemory {
            device: self.name(),
            message: format!("no room for a population of {capacity}"),
        })
    }

    fn small_fitter(&self, problem: SmallProblem) -> Result<Option<Box<dyn SmallFitter>>> {
        Ok(Some(Box::new(CpuSmallFitter::new(problem))))
    }
}

/// The members in flight on the CPU, with their inputs and results.
struct CpuPopulation<R> {
    settings: LevenbergMarquardt,
    capacity: usize,
    inputs: Inputs<R>,
    /// Members that take part in the next round, then those that pause, then those that have ended.
    members: Vec<Member>,
    /// By slot: the next start of the same group.
    ring: Vec<u32>,
    active: Active,
    tile_members: usize,
    gauge: Option<Gauge>,
}

impl<R: Real> CpuPopulation<R> {
    /// Makes an empty population; `None` when there is no memory for `capacity` spectra and one tile per thread.
    fn new(
        recording: Arc<Recording>,
        settings: LevenbergMarquardt,
        capacity: usize,
    ) -> Option<CpuPopulation<R>> {
        let shared = SharedModelData::for_recording(&recording, capacity);
        let blocks = recording
            .buffers
            .iter()
            .enumerate()
            .map(|(k, buffer)| {
                BufferElements::from_buffer(buffer, shared.packed_weights(k).is_some(), capacity)
            })
            .collect::<Option<Vec<BufferElements<R>>>>()?;
        let tile_members = MemberTile::<R>::members_per_tile(&recording);
        let elements_of_tiles =
            tile::tile_elements(&recording, tile_members).checked_mul(threads::thread_count())?;
        try_with_capacity::<R>(elements_of_tiles).map(|_| CpuPopulation {
            settings,
            capacity,
            inputs: Inputs::new(recording, blocks, shared),
            members: Vec::new(),
            ring: Vec::new(),
            active: Active::default(),
            tile_members,
            gauge: None,
        })
    }

    /// Borrows a tile from the stock of all populations, with an empty tally if time is profiled.
    fn borrow_tile(&self) -> MemberTile<R> {
        let mut tile = self.inputs.shared.borrow_tile(&self.inputs.recording);
        tile.tally = self.gauge.as_ref().map(Gauge::tally);
        tile
    }

    /// Gives a borrowed tile back, and adds the times in its tally to the profile, if one is kept.
    fn return_tile(&self, mut tile: MemberTile<R>) {
        if let (Some(gauge), Some(tally)) = (&self.gauge, tile.tally.take()) {
            gauge.add_kernels(&tally);
        }
        self.inputs.shared.return_tile(tile);
    }

    /// Returns the current time if the population is profiled, else `None`.
    fn start_clock(&self) -> Option<Instant> {
        self.gauge.as_ref().map(|_| Instant::now())
    }

    /// Adds the time since `begin` to the profile, as a step of so many members; does nothing without a profile.
    fn record_step_time(&self, members: usize, begin: Option<Instant>) {
        if let (Some(gauge), Some(begin)) = (&self.gauge, begin) {
            gauge.add_step(members, begin.elapsed().as_secs_f64());
        }
    }

    /// Adds a copy of `bytes` bytes since `begin` to the profile, under `work`; does nothing without a profile.
    fn record_copy(&self, work: Work, bytes: usize, begin: Option<Instant>) {
        if let (Some(gauge), Some(begin)) = (&self.gauge, begin) {
            gauge.add_copy(work, bytes, begin);
        }
    }

    /// Runs one round: evaluates the members that take part, sets their next trial points, and moves active ones to the
    /// front.
    fn run_round(&mut self) {
        let mut members = std::mem::take(&mut self.members);
        let taking_part = &mut members[..self.active.taking_part];
        // 1. Step the members, a tile per task. Few members are shared among all threads, which changes no bits: a
        //    fit has the same bits in any tile.
        let members_per_thread = taking_part.len().div_ceil(threads::thread_count()).max(1);
        let members_per_task = self.tile_members.min(members_per_thread);
        let step = |members: &mut [Member]| self.step_members(members);
        threads::in_pool(|| taking_part.par_chunks_mut(members_per_task).for_each(step));
        let begin = self.start_clock();
        halve::halve_starts(&mut members, self.active.all, &self.ring);
        self.record_step_time(0, begin);
        // 2. Move the members that are still active to the front.
        let begin = self.start_clock();
        let active_before = self.active.all;
        self.active = compact_members(&mut members, active_before);
        if let (Some(gauge), Some(begin)) = (&self.gauge, begin) {
            gauge.add_compaction(active_before, begin.elapsed().as_secs_f64());
        }
        self.members = members;
    }

    /// Evaluates all active members, in the order of slots, and returns these buffers: each (active members, its
    /// length).
    fn evaluate_buffers(&mut self, buffers: &[BufferId]) -> Vec<Vec<f64>> {
        let mut members = std::mem::take(&mut self.members);
        let mut in_order: Vec<&mut Member> = members[..self.active.all].iter_mut().collect();
        in_order.sort_by_key(|member| member.slot);
        let inputs = &self.inputs;
        let rows_by_member: Vec<Vec<Vec<f64>>> = threads::in_pool(|| {
            in_order
                .par_chunks_mut(1)
                .map(|member| evaluate_rows(inputs, buffers, member))
                .collect()
        });
        self.members = members;
        (0..buffers.len())
            .map(|b| {
                rows_by_member
                    .iter()
                    .flat_map(|rows| rows[b].iter().copied())
                    .collect()
            })
            .collect()
    }

    /// Evaluates these members at their trial points and takes a Levenberg–Marquardt step of each.
    fn step_members(&self, members: &mut [Member]) {
        let settings = &self.settings;
        self.evaluate(members.iter_mut().collect());
        let begin = self.start_clock();
        let count = members.len();
        let recording = &self.inputs.recording;
        let tolerances = Tolerances::of_members(settings, recording.caps_cost, R::COST_NOISE);
        let trusts_last_step = recording.trusts_steps();
        for member in members {
            let bounds = self.inputs.bounds(member.spectrum);
            step::step_member(
                member,
                &Rules {
                    bounds,
                    settings,
                    tolerances,
                    trusts_last_step,
                },
            );
        }
        self.record_step_time(count, begin);
    }

    /// Evaluates the model and its sums at these members' trial points, a tile of members at a time.
    fn evaluate(&self, mut members: Vec<&mut Member>) {
        let mut tile = self.borrow_tile();
        let row_cache = self.inputs.shared.row_cache.as_ref();
        for members in members.chunks_mut(self.tile_members) {
            linearise(&self.inputs, row_cache, &mut tile, members);
        }
        self.return_tile(tile);
    }

    /// Returns the number of bytes of the members and the inputs, with a share of what several populations hold
    /// together.
    fn count_bytes(&self) -> u64 {
        let parameters = self.inputs.recording.parameters.len();
        let bytes_per_member = size_of::<Member>() + 16 * (parameters + 2) * (parameters + 4);
        (self.inputs.bytes() + self.members.len() * bytes_per_member) as u64
    }

    /// Returns, for each slot, the index of its member in the list; `usize::MAX` where the slot is empty.
    fn indices_by_slot(&self) -> Vec<usize> {
        let n_slots = self
            .members
            .iter()
            .map(|member| member.slot + 1)
            .max()
            .unwrap_or(0);
        let mut indices = vec![usize::MAX; n_slots];
        for (index, member) in self.members.iter().enumerate() {
            indices[member.slot] = index;
        }
        indices
    }
}

impl<R: Real> Population for CpuPopulation<R> {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn measure(&mut self, meter: Arc<Meter>) {
        let clock = Clock::Threads(threads::thread_count());
        let recording = &self.inputs.recording;
        let kernels = (0..recording.stages.len())
            .map(|k| recording.cost_of_kernel(k..k + 1))
            .collect();
        self.gauge = Some(Gauge::new(
            meter,
            kernels,
            recording.parameters.len(),
            size_of::<R>(),
            clock,
        ));
    }

    fn clear(&mut self) {
        self.members.clear();
        self.inputs.clear();
        self.active = Active::default();
    }

    fn upload(&mut self, batch: &Batch, spectra: &[usize]) -> Result<()> {
        let begin = self.start_clock();
        let copied = self.inputs.copy_batch(batch, spectra);
        self.record_copy(Work::Upload, copied, begin);
        Ok(())
    }

    fn enter_members(&mut self, batch: &Batch, places: &Places) -> Result<()> {
        let begin = self.start_clock();
        self.ring.clone_from(&places.ring);
        // 1. Remove the ended members whose slots the new starts take.
        let mut is_reused = vec![false; places.ring.len()];
        places
            .starts
            .iter()
            .for_each(|slot| is_reused[*slot] = true);
        let mut ended = self.members.split_off(self.active.all);
        let pausing = self.members.split_off(self.active.taking_part);
        ended.retain(|member| !is_reused.get(member.slot).copied().unwrap_or(false));
        // 2. Append the new members to those that take part.
        let count = self.inputs.recording.parameters.len();
        for (k, (slot, spectrum)) in places.starts.iter().zip(&batch.group).enumerate() {
            let start = &batch.starts[k * count..(k + 1) * count];
            let spectrum = places.spectra[*spectrum as usize];
            self.members.push(Member {
                phase: batch.first_phase(),
                ..Member::new(*slot, spectrum, start, self.settings.initial_damping)
            });
        }
        // 3. Behind them come those that pause, then those that have ended.
        let taking_part = self.members.len();
        self.members.extend(pausing);
        self.active = Active {
            all: self.members.len(),
            taking_part,
        };
        self.members.extend(ended);
        self.record_copy(Work::Upload, size_of_val(batch.starts.as_slice()), begin);
        Ok(())
    }

    fn advance(&mut self, rounds: u32) -> Pending<'_, usize> {
        Box::pin(async move {
            let begin = self.start_clock();
            let mut members_per_round = Vec::new();
            for _ in 0..rounds {
                if self.active.all == 0 {
                    break;
                }
                members_per_round.push(self.active.taking_part);
                self.run_round();
            }
            let bytes = begin.map(|_| self.count_bytes());
            if let (Some(gauge), Some(begin), Some(bytes)) = (&mut self.gauge, begin, bytes) {
                gauge.add_submission(begin, members_per_round);
                gauge.hold(bytes);
            }
            Ok(self.active.all)
        })
    }

    fn active(&mut self) -> Pending<'_, Vec<usize>> {
        let mut slots: Vec<usize> = self.members[..self.active.all]
            .iter()
            .map(|member| member.slot)
            .collect();
        slots.sort_unstable();
        Box::pin(async move { Ok(slots) })
    }

    fn read<'a>(&'a mut self, starts: &'a [usize]) -> Pending<'a, Vec<Outcome>> {
        Box::pin(async move {
            let begin = self.start_clock();
            let indices = self.indices_by_slot();
            let outcomes: Result<Vec<Outcome>> = starts
                .iter()
                .map(|&slot| {
                    indices
                        .get(slot)
                        .and_then(|index| self.members.get(*index))
                        .map(Member::outcome)
                        .ok_or_else(|| Error::Internal(format!("nobody is in slot {slot}")))
                })
                .collect();
            let bytes = outcomes
                .as_ref()
                .map_or(0, |outcomes| outcomes.iter().map(Outcome::bytes).sum());
            self.record_copy(Work::Readback, bytes, begin);
            outcomes
        })
    }

    fn inspect(&mut self, buffer: BufferId) -> Pending<'_, Vec<f64>> {
        Box::pin(async move { Ok(self.evaluate_buffers(&[buffer]).swap_remove(0)) })
    }

    fn inspect_all<'a>(&'a mut self, buffers: &'a [BufferId]) -> Pending<'a, Vec<Vec<f64>>> {
        Box::pin(async move { Ok(self.evaluate_buffers(buffers)) })
    }
}
