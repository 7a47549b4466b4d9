//! The CPU device: whole rounds, tile by tile, rayon over tiles. A tile's rows stay in the cache from the first stage
//! to the step (`linearise.rs`). All populations of a recording share packed weights, kept rows and
//! tiles (`made.rs`).

mod block;
mod known;
mod linearise;
mod made;
mod many;
mod shelves;
mod simplices;
mod tile;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rayon::prelude::*;
use web_time::Instant;

use super::small::CpuSmallFitter;
use crate::buffers::Work;
use crate::error::{Error, Result};
use crate::io::memory::{check, room};
use crate::math::Real;
use crate::recording::{Buffer, BufferId, Precision, Recording, Scope};
use crate::solver::device::{Batch, Device, Outcome, Pending, Population};
use crate::solver::member::{Active, Member};
use crate::solver::profile::{Clock, Gauge, Meter};
use crate::solver::round::compact::compact_members;
use crate::solver::round::step::Rules;
use crate::solver::round::{halve, step};
use crate::solver::simplex::{FirstSimplex, Simplex, TRIALS_PER_SIMPLEX as LANES};
use crate::solver::small::{SmallFitter, SmallProblem};
use crate::solver::{LevenbergMarquardt, Method, Places, Tolerances};
use crate::threads;
use block::Block;
use linearise::{linearise, rows_of};
use made::Made;
use tile::{Inputs, Tile};

/// Default memory for a population.
const MEMORY: u64 = 1 << 30;
/// Most members in a population; more would not make rounds any faster.
const CAPACITY: usize = 4096;

/// The processor's cores, through the run's pool of threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuDevice;

impl Device for CpuDevice {
    fn name(&self) -> String {
        let count = threads::count();
        format!("cpu ({count} thread{})", if count == 1 { "" } else { "s" })
    }

    fn capacity(&self, recording: &Recording, memory: Option<u64>) -> Result<usize> {
        let bytes = |scope| -> u64 { tile::length(recording, scope) as u64 * 8 };
        let parameters = recording.parameters.len() as u64;
        let member = bytes(Scope::Spectrum) + 16 * (parameters + 2) * (parameters + 4);
        let heads = known::Heads::new(recording);
        let (members, kept) = match recording.precision {
            Precision::F32 | Precision::Mixed => (
                Tile::<f32>::members(recording),
                heads.map_or(0, |heads| heads.bytes::<f32>()),
            ),
            Precision::F64 => (
                Tile::<f64>::members(recording),
                heads.map_or(0, |heads| heads.bytes::<f64>()),
            ),
        };
        let tile = 8 * tile::elements(recording, members) as u64;
        let fixed = bytes(Scope::Constant) + bytes(Scope::Batch) + tile;
        let left = memory
            .unwrap_or(MEMORY.max(2 * fixed))
            .saturating_sub(fixed);
        let room = known::members(left, member.max(1), kept as u64);
        if room == 0 {
            let message = format!("one spectrum needs {} bytes", fixed + member);
            return Err(Error::OutOfMemory {
                device: self.name(),
                message,
            });
        }
        let least = fixed + member + tile * (threads::count() as u64 - 1);
        // only a large model is worth the question
        if memory.is_none() && 2 * fixed > MEMORY {
            check(least, || "a single spectrum".into())?;
        }
        Ok(usize::try_from(room).unwrap_or(CAPACITY).min(CAPACITY))
    }

    fn population(
        &self,
        recording: Arc<Recording>,
        method: &Method,
        capacity: usize,
    ) -> Result<Box<dyn Population>> {
        let precision = recording.precision;
        let population: Option<Box<dyn Population>> = match precision {
            Precision::F32 | Precision::Mixed => {
                CpuPopulation::<f32>::new(recording, *method, capacity).map(|p| Box::new(p) as _)
            }
            Precision::F64 => {
                CpuPopulation::<f64>::new(recording, *method, capacity).map(|p| Box::new(p) as _)
            }
        };
        let message = || format!("no room for a population of {capacity}");
        population.ok_or_else(|| Error::OutOfMemory {
            device: self.name(),
            message: message(),
        })
    }

    fn small_fitter(&self, problem: SmallProblem) -> Result<Option<Box<dyn SmallFitter>>> {
        Ok(Some(Box::new(CpuSmallFitter::new(problem))))
    }
}

/// The slot of a start, and the place of its spectrum.
#[derive(Clone, Copy)]
struct Place {
    slot: usize,
    spectrum: usize,
}

struct CpuPopulation<R> {
    method: Method,
    capacity: usize,
    inputs: Inputs<R>,
    /// Members that take part in the next round, then those that sit it out, then those that have ended.
    members: Vec<Member>,
    /// By slot, each of LANES members. Empty for Levenberg–Marquardt.
    simplices: BTreeMap<usize, Mutex<Simplex>>,
    /// By slot: the next start of the group.
    ring: Vec<u32>,
    active: Active,
    tile_members: usize,
    gauge: Option<Gauge>,
}

impl<R: Real> CpuPopulation<R> {
    /// Makes an empty population; `None` when there is no memory for `capacity` spectra and one tile per thread.
    fn new(recording: Arc<Recording>, method: Method, capacity: usize) -> Option<CpuPopulation<R>> {
        let made = Made::of(&recording, capacity);
        let is_packed = |k: usize| made.packed(k).is_some();
        let block =
            |(k, buffer): (usize, &Buffer)| Block::of_buffer(buffer, is_packed(k), capacity);
        let blocks = recording
            .buffers
            .iter()
            .enumerate()
            .map(block)
            .collect::<Option<Vec<Block<R>>>>()?;
        let tile_members = Tile::<R>::members(&recording);
        let tiles = tile::elements(&recording, tile_members).checked_mul(threads::count())?;
        room::<R>(tiles).map(|_| CpuPopulation {
            method,
            capacity,
            inputs: Inputs::new(recording, blocks, made),
            members: Vec::new(),
            simplices: BTreeMap::new(),
            ring: Vec::new(),
            active: Active::default(),
            tile_members,
            gauge: None,
        })
    }

    /// Borrows a tile from the stock of all populations, with an empty tally if time is profiled.
    fn borrow_tile(&self) -> Tile<R> {
        let mut tile = self.inputs.made.borrow_tile(&self.inputs.recording);
        tile.tally = self.gauge.as_ref().map(Gauge::tally);
        tile
    }

    /// Gives a borrowed tile back, and adds the times in its tally to the profile, if one is kept.
    fn return_tile(&self, mut tile: Tile<R>) {
        if let (Some(gauge), Some(tally)) = (&self.gauge, tile.tally.take()) {
            gauge.add_kernels(&tally);
        }
        self.inputs.made.return_tile(tile);
    }

    /// Returns the current time if the population is profiled, else `None`.
    fn begin(&self) -> Option<Instant> {
        self.gauge.as_ref().map(|_| Instant::now())
    }

    /// Adds the time since `begin` to the profile, as a step of so many members; does nothing without a profile.
    fn moved(&self, members: usize, begin: Option<Instant>) {
        if let (Some(gauge), Some(begin)) = (&self.gauge, begin) {
            gauge.add_step(members, begin.elapsed().as_secs_f64());
        }
    }

    /// Adds a copy of `bytes` bytes since `begin` to the profile, under `work`; does nothing without a profile.
    fn copied(&self, work: Work, bytes: usize, begin: Option<Instant>) {
        if let (Some(gauge), Some(begin)) = (&self.gauge, begin) {
            gauge.add_copy(work, bytes, begin);
        }
    }

    /// Runs one round: evaluates the members that take part, sets their next trial points, and moves active ones to the
    /// front.
    fn round(&mut self) {
        let mut members = std::mem::take(&mut self.members);
        let active = &mut members[..self.active.taking_part];
        match self.method {
            Method::LevenbergMarquardt(settings) => {
                // few are shared out, too: a fit has the same bits in any tile
                let fair = active.len().div_ceil(threads::count()).max(1);
                let tile = self.tile_members.min(fair);
                let step = |members: &mut [Member]| self.step(members, &settings);
                threads::in_pool(|| active.par_chunks_mut(tile).for_each(step));
                let begin = self.begin();
                halve::halve_starts(&mut members, self.active.all, &self.ring);
                self.moved(0, begin);
            }
            Method::NelderMead(settings) => {
                // of each simplex one member is evaluated at a time
                let fair = (active.len() / LANES).div_ceil(threads::count()).max(1);
                let some = LANES * self.tile_members.min(fair);
                let step = |members: &mut [Member]| self.move_simplices(members, &settings);
                threads::in_pool(|| active.par_chunks_mut(some).for_each(step));
            }
        }
        let (begin, before) = (self.begin(), self.active.all);
        self.active = compact_members(&mut members, before);
        if let (Some(gauge), Some(begin)) = (&self.gauge, begin) {
            gauge.add_compaction(before, begin.elapsed().as_secs_f64());
        }
        self.members = members;
    }

    /// Evaluates all active members, in the order of slots, and returns these buffers: each (active members, its
    /// length).
    fn look(&mut self, buffers: &[BufferId]) -> Vec<Vec<f64>> {
        let mut members = std::mem::take(&mut self.members);
        let mut in_order: Vec<&mut Member> = members[..self.active.all].iter_mut().collect();
        in_order.sort_by_key(|member| member.slot);
        let inputs = &self.inputs;
        let rows = |one: &mut [&mut Member]| rows_of(inputs, buffers, one);
        let seen: Vec<Vec<Vec<f64>>> =
            threads::in_pool(|| in_order.par_chunks_mut(1).map(rows).collect());
        self.members = members;
        (0..buffers.len())
            .map(|b| {
                seen.iter()
                    .flat_map(|member| member[b].iter().copied())
                    .collect()
            })
            .collect()
    }

    /// Evaluates these members at their trial points and takes a Levenberg–Marquardt step of each.
    fn step(&self, members: &mut [Member], settings: &LevenbergMarquardt) {
        self.evaluate(members.iter_mut().collect());
        let (begin, count) = (self.begin(), members.len());
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
        self.moved(count, begin);
    }

    /// Evaluates the model and its sums at these members' trial points, a tile of members at a time.
    fn evaluate(&self, mut members: Vec<&mut Member>) {
        let mut tile = self.borrow_tile();
        // a simplex's members have no first round
        let known = self
            .inputs
            .made
            .known
            .as_ref()
            .filter(|_| self.method.lanes() == 1);
        for members in members.chunks_mut(self.tile_members) {
            linearise(&self.inputs, known, &mut tile, members);
        }
        self.return_tile(tile);
    }

    /// Returns the number of bytes of the members and the inputs, with a share of what several populations hold
    /// together.
    fn bytes(&self) -> u64 {
        let parameters = self.inputs.recording.parameters.len();
        let member = size_of::<Member>() + 16 * (parameters + 2) * (parameters + 4);
        (self.inputs.bytes() + self.members.len() * member) as u64
    }

    /// Makes the member of a start for its slot and spectrum or, for Nelder–Mead, its simplex and that one's members.
    fn make_members(
        &self,
        place: Place,
        start: &[f64],
        first: Option<&FirstSimplex>,
    ) -> (Option<Simplex>, Vec<Member>) {
        let Place { slot, spectrum } = place;
        match self.method {
            Method::LevenbergMarquardt(settings) => (
                None,
                vec![Member::new(slot, spectrum, start, settings.initial_damping)],
            ),
            Method::NelderMead(settings) => {
                let made = Simplex::new(slot, start, self.inputs.bounds(spectrum), settings.size)
                    .shaped(first);
                let trials = made.first_trials();
                let trial = |lane: usize| &trials[lane * start.len()..(lane + 1) * start.len()];
                let member = |lane| Member::new(slot * LANES + lane, spectrum, trial(lane), 0.0);
                (Some(made), (0..LANES).map(member).collect())
            }
        }
    }

    /// Returns the result of the start in a slot, given its first member; `None` where its simplex is missing.
    fn outcome(&self, slot: usize, member: &Member) -> Option<Outcome> {
        match self.method {
            Method::LevenbergMarquardt(_) => Some(member.outcome()),
            Method::NelderMead(_) => self
                .simplex(slot)
                .map(|simplex| simplex.outcome(member.status)),
        }
    }

    /// Returns, for each slot, the index of its member in the list; `usize::MAX` where the slot is empty.
    fn places(&self) -> Vec<usize> {
        let mut places =
            vec![usize::MAX; self.members.iter().map(|m| m.slot + 1).max().unwrap_or(0)];
        self.members
            .iter()
            .enumerate()
            .for_each(|(place, member)| places[member.slot] = place);
        places
    }
}

impl<R: Real> Population for CpuPopulation<R> {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn lanes(&self) -> usize {
        self.method.lanes()
    }

    fn measure(&mut self, meter: Arc<Meter>) {
        let clock = Clock::Threads(threads::count());
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
        self.simplices.clear();
        self.inputs.clear();
        self.active = Active::default();
    }

    fn upload(&mut self, batch: &Batch, spectra: &[usize]) -> Result<()> {
        let begin = self.begin();
        let copied = self.inputs.enter(batch, spectra);
        self.copied(Work::Upload, copied, begin);
        Ok(())
    }

    fn enter_members(&mut self, batch: &Batch, places: &Places) -> Result<()> {
        let begin = self.begin();
        self.ring.clone_from(&places.ring);
        let lanes = self.lanes();
        let mut taken = vec![false; places.ring.len()];
        places.starts.iter().for_each(|slot| taken[*slot] = true);
        // who had these places before has left
        let mut ended = self.members.split_off(self.active.all);
        let sitting_out = self.members.split_off(self.active.taking_part);
        ended.retain(|member| !taken.get(member.slot / lanes).copied().unwrap_or(false));
        let count = self.inputs.recording.parameters.len();
        for (k, (slot, spectrum)) in places.starts.iter().zip(&batch.group).enumerate() {
            let start = &batch.starts[k * count..(k + 1) * count];
            let place = Place {
                slot: *slot,
                spectrum: places.spectra[*spectrum as usize],
            };
            let (simplex, members) = self.make_members(place, start, batch.simplex(k));
            self.members
                .extend(members.into_iter().map(|member| Member {
                    phase: batch.first_phase(),
                    ..member
                }));
            self.simplices
                .extend(simplex.map(|simplex| (*slot, Mutex::new(simplex))));
        }
        let taking_part = self.members.len();
        self.members.extend(sitting_out);
        self.active = Active {
            all: self.members.len(),
            taking_part,
        };
        self.members.extend(ended);
        self.copied(Work::Upload, size_of_val(batch.starts.as_slice()), begin);
        Ok(())
    }

    fn advance(&mut self, rounds: u32) -> Pending<'_, usize> {
        Box::pin(async move {
            let (begin, mut active) = (self.begin(), Vec::new());
            for _ in 0..rounds {
                if self.active.all == 0 {
                    break;
                }
                active.push(self.active.taking_part);
                self.round();
            }
            let bytes = begin.map(|_| self.bytes());
            if let (Some(gauge), Some(begin), Some(bytes)) = (&mut self.gauge, begin, bytes) {
                gauge.add_submission(begin, active);
                gauge.hold(bytes);
            }
            Ok(self.active.all)
        })
    }

    fn active(&mut self) -> Pending<'_, Vec<usize>> {
        let lanes = self.lanes();
        let mut slots: Vec<usize> = self.members[..self.active.all]
            .iter()
            .map(|member| member.slot / lanes)
            .collect();
        slots.sort_unstable();
        slots.dedup();
        Box::pin(async move { Ok(slots) })
    }

    fn read<'a>(&'a mut self, starts: &'a [usize]) -> Pending<'a, Vec<Outcome>> {
        Box::pin(async move {
            let begin = self.begin();
            let (places, lanes) = (self.places(), self.lanes());
            let member = |slot: usize| {
                places
                    .get(slot * lanes)
                    .and_then(|place| self.members.get(*place))
            };
            let outcome = |slot: usize| self.outcome(slot, member(slot)?);
            let required = |slot: &usize| {
                outcome(*slot).ok_or_else(|| Error::Usage(format!("nobody is in slot {slot}")))
            };
            let outcomes: Result<Vec<Outcome>> = starts.iter().map(required).collect();
            let bytes = outcomes
                .as_ref()
                .map_or(0, |all| all.iter().map(Outcome::bytes).sum());
            self.copied(Work::Readback, bytes, begin);
            outcomes
        })
    }

    fn inspect(&mut self, buffer: BufferId) -> Pending<'_, Vec<f64>> {
        Box::pin(async move { Ok(self.look(&[buffer]).swap_remove(0)) })
    }

    fn inspect_all<'a>(&'a mut self, buffers: &'a [BufferId]) -> Pending<'a, Vec<Vec<f64>>> {
        Box::pin(async move { Ok(self.look(buffers)) })
    }
}
