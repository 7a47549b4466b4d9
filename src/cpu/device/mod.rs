//! The CPU device: whole rounds, tile by tile, rayon over tiles. A tile's rows stay in the cache from the first stage to the step.

mod linearise;
mod tile;

use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use super::whole::CpuWhole;
use super::{compact, halve, product, simplex, step};
use crate::error::{Error, Result};
use crate::rows::Real;
use crate::solver::device::{Batch, Device, Outcome, Pending, Population};
use crate::solver::member::Member;
use crate::solver::recording::{BufferId, Precision, Recording, Scope, Stage};
use crate::solver::simplex::{LANES, Simplex};
use crate::solver::whole::{Whole, WholeFits};
use crate::solver::{Method, NelderMead};
use linearise::linearise;
use tile::{Block, Inputs, Tile, local_buffers};

/// Bytes of rows that a tile of members may fill: about half of a core's L2 cache.
const TILE_BYTES: usize = 1 << 20;
/// Most members in a tile.
const TILE_MEMBERS: usize = 64;
/// Default memory for a population.
const MEMORY: u64 = 1 << 30;
/// Most members in a population; more would not make rounds any faster.
const CAPACITY: usize = 4096;

/// The processor's cores, through rayon's global pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuDevice;

impl Device for CpuDevice {
    fn name(&self) -> String {
        format!("cpu ({} threads)", rayon::current_num_threads())
    }

    fn capacity(&self, recording: &Recording, memory: Option<u64>) -> Result<usize> {
        let bytes = |scope| -> u64 { length(recording, scope) as u64 * 8 };
        let parameters = recording.parameters.len() as u64;
        let member = bytes(Scope::Spectrum) + 16 * (parameters + 2) * (parameters + 4);
        let fixed = bytes(Scope::Constant) + bytes(Scope::Batch) + bytes(Scope::Member) * TILE_MEMBERS as u64;
        let room = memory.unwrap_or(MEMORY.max(2 * fixed)).saturating_sub(fixed) / member.max(1);
        if room == 0 {
            let message = format!("one spectrum needs {} bytes", fixed + member);
            return Err(Error::OutOfMemory { device: self.name(), message });
        }
        Ok(usize::try_from(room).unwrap_or(CAPACITY).min(CAPACITY))
    }

    fn population(&self, recording: Arc<Recording>, method: &Method, _capacity: usize) -> Result<Box<dyn Population>> {
        Ok(match recording.precision {
            Precision::F32 => Box::new(CpuPopulation::<f32>::new(recording, *method)),
            Precision::F64 => Box::new(CpuPopulation::<f64>::new(recording, *method)),
        })
    }

    fn whole(&self, whole: Whole) -> Result<Option<Box<dyn WholeFits>>> {
        Ok(Some(Box::new(CpuWhole(whole))))
    }
}

/// Elements of all buffers of a scope.
fn length(recording: &Recording, scope: Scope) -> usize {
    recording.buffers.iter().filter(|b| b.scope == scope).map(|b| b.length).sum()
}

struct CpuPopulation<R> {
    method: Method,
    inputs: Inputs<R>,
    members: Vec<Member>,
    /// By slot; each has LANES members. Empty for Levenberg–Marquardt.
    simplices: Vec<Simplex>,
    active: usize,
    tile_members: usize,
    tiles: Mutex<Vec<Tile<R>>>,
}

impl<R: Real> CpuPopulation<R> {
    fn new(recording: Arc<Recording>, method: Method) -> CpuPopulation<R> {
        let blocks = recording.buffers.iter().map(|b| match &b.values {
            Some(values) => Block::new(b.kind, values),
            None => Block::Float(Vec::new()),
        });
        let mut blocks: Vec<Block<R>> = blocks.collect();
        for stage in &recording.stages {
            if let Stage::Product(stage) = stage
                && let Block::Float(weight) = &mut blocks[stage.weight.0]
            {
                *weight = product::pack(weight, stage.inner, stage.columns);
            }
        }
        let local = local_buffers(&recording);
        let shared = recording.buffers.iter().zip(&local).filter(|(b, local)| b.scope == Scope::Member && !**local);
        let member_bytes = shared.map(|(b, _)| b.length).sum::<usize>() * size_of::<R>();
        let tile_members = (TILE_BYTES / member_bytes.max(1)).clamp(1, TILE_MEMBERS);
        CpuPopulation {
            method,
            inputs: Inputs {
                blocks,
                recording,
                lower: Vec::new(),
                upper: Vec::new(),
                prior_mean: Vec::new(),
                prior_weight: Vec::new(),
            },
            members: Vec::new(),
            simplices: Vec::new(),
            active: 0,
            tile_members,
            tiles: Mutex::new(Vec::new()),
        }
    }

    fn borrow_tile(&self) -> Tile<R> {
        let spare = self.tiles.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| Tile::new(&self.inputs.recording, self.tile_members))
    }

    fn return_tile(&self, tile: Tile<R>) {
        self.tiles.lock().unwrap_or_else(PoisonError::into_inner).push(tile);
    }

    fn round(&mut self) {
        let mut members = std::mem::take(&mut self.members);
        let (inputs, method) = (&self.inputs, &self.method);
        members[..self.active].par_chunks_mut(self.tile_members).for_each(|members| {
            let mut tile = self.borrow_tile();
            linearise(inputs, &mut tile, members);
            if let Method::LevenbergMarquardt(settings) = method {
                for member in members {
                    step::step(member, inputs.bounds(member.spectrum), settings, R::COST_NOISE);
                }
            }
            self.return_tile(tile);
        });
        match self.method {
            Method::LevenbergMarquardt(_) => halve::halve(&mut members, self.active),
            Method::NelderMead(settings) => self.move_simplices(&mut members, &settings),
        }
        self.active = compact::compact(&mut members, self.active);
        self.members = members;
    }

    /// Runs the stages once, member by member, and keeps these buffers: (buffers), each (active members, its length).
    fn look(&mut self, buffers: &[BufferId]) -> Vec<Vec<f64>> {
        let mut members = std::mem::take(&mut self.members);
        members[..self.active].sort_by_key(|member| member.slot);
        let inputs = &self.inputs;
        let rows = |member: &mut [Member]| {
            let mut tile = Tile::new(&inputs.recording, 1);
            linearise(inputs, &mut tile, member);
            let row = |id: &BufferId| {
                let length = inputs.recording.block(*id).length;
                tile.rows[id.0][..length].iter().map(|x| x.to_f64()).collect::<Vec<f64>>()
            };
            buffers.iter().map(row).collect::<Vec<_>>()
        };
        let seen: Vec<Vec<Vec<f64>>> = members[..self.active].par_chunks_mut(1).map(rows).collect();
        self.members = members;
        (0..buffers.len()).map(|b| seen.iter().flat_map(|member| member[b].iter().copied()).collect()).collect()
    }

    fn move_simplices(&mut self, members: &mut [Member], settings: &NelderMead) {
        let marginalise = self.inputs.recording.marginalise;
        for trials in members[..self.active].chunks_exact_mut(LANES) {
            let moved = &mut self.simplices[trials[0].slot / LANES];
            simplex::simplex(
                moved,
                trials,
                self.inputs.bounds(trials[0].spectrum),
                settings,
                (marginalise, R::COST_NOISE),
            );
        }
    }

    /// One member a start, or a simplex with its members.
    fn make_members(&mut self, batch: &Batch) {
        let count = self.inputs.recording.parameters.len();
        let start = |slot: usize| &batch.starts[slot * count..(slot + 1) * count];
        let groups = batch.group.iter().map(|s| *s as usize).enumerate();
        self.simplices.clear();
        match self.method {
            Method::LevenbergMarquardt(settings) => {
                let member = |(slot, spectrum)| Member::new(slot, spectrum, start(slot), settings.initial_damping);
                self.members = groups.map(member).collect();
            }
            Method::NelderMead(settings) => {
                self.members = Vec::with_capacity(batch.members() * LANES);
                for (slot, spectrum) in groups {
                    let made = Simplex::new(slot, start(slot), self.inputs.bounds(spectrum), settings.size);
                    for (lane, vertex) in made.first_trials().chunks_exact(count).enumerate() {
                        self.members.push(Member::new(slot * LANES + lane, spectrum, vertex, 0.0));
                    }
                    self.simplices.push(made);
                }
            }
        }
        self.active = self.members.len();
    }
}

impl<R: Real> Population for CpuPopulation<R> {
    fn load<'a>(&'a mut self, batch: &'a Batch) -> Pending<'a, ()> {
        Box::pin(async move {
            for (id, values) in &batch.blocks {
                self.inputs.blocks[id.0] = Block::new(self.inputs.recording.block(*id).kind, values);
            }
            self.inputs.lower.clone_from(&batch.lower);
            self.inputs.upper.clone_from(&batch.upper);
            self.inputs.prior_mean.clone_from(&batch.prior_mean);
            self.inputs.prior_weight.clone_from(&batch.prior_weight);
            self.make_members(batch);
            Ok(())
        })
    }

    fn advance(&mut self, rounds: u32) -> Pending<'_, usize> {
        Box::pin(async move {
            for _ in 0..rounds {
                if self.active == 0 {
                    break;
                }
                self.round();
            }
            Ok(self.active)
        })
    }

    fn read(&mut self) -> Pending<'_, Vec<Outcome>> {
        Box::pin(async move {
            self.members.sort_by_key(|member| member.slot);
            let outcomes = match self.method {
                Method::LevenbergMarquardt(_) => self.members.iter().map(Member::outcome).collect(),
                Method::NelderMead(_) => {
                    let pairs = self.simplices.iter().zip(self.members.chunks_exact(LANES));
                    pairs.map(|(simplex, members)| simplex.outcome(members[0].status)).collect()
                }
            };
            let count = self.members.len();
            self.active = compact::compact(&mut self.members, count);
            Ok(outcomes)
        })
    }

    fn inspect(&mut self, buffer: BufferId) -> Pending<'_, Vec<f64>> {
        Box::pin(async move { Ok(self.look(&[buffer]).swap_remove(0)) })
    }

    fn inspect_all<'a>(&'a mut self, buffers: &'a [BufferId]) -> Pending<'a, Vec<Vec<f64>>> {
        Box::pin(async move { Ok(self.look(buffers)) })
    }
}
