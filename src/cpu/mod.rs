//! The CPU device: whole rounds, tile by tile, rayon over tiles. A tile's rows stay in the cache from the first stage to the step.

mod activate;
mod compact;
mod continuum;
mod custom;
mod labels;
mod normal;
mod per_pixel;
mod prefilter;
mod prior;
mod product;
mod resample;
mod step;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::rows::Real;
use crate::solver::LevenbergMarquardt;
use crate::solver::device::{Batch, Device, Outcome, Pending, Population};
use crate::solver::member::Member;
use crate::solver::recording::{Basis, BufferId, Kind, Precision, Recording, Scope, Stage, Values};

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

    fn population(
        &self,
        recording: Arc<Recording>,
        settings: &LevenbergMarquardt,
        _capacity: usize,
    ) -> Result<Box<dyn Population>> {
        Ok(match recording.precision {
            Precision::F32 => Box::new(CpuPopulation::<f32>::new(recording, *settings)),
            Precision::F64 => Box::new(CpuPopulation::<f64>::new(recording, *settings)),
        })
    }
}

/// Elements of all buffers of a scope.
fn length(recording: &Recording, scope: Scope) -> usize {
    recording.buffers.iter().filter(|b| b.scope == scope).map(|b| b.length).sum()
}

/// Contents of a buffer that kernels read.
enum Block<R> {
    Float(Vec<R>),
    Index(Arc<[i32]>),
}

impl<R: Real> Block<R> {
    fn new(kind: Kind, values: &Values) -> Block<R> {
        match (kind, values) {
            (Kind::Index, Values::I32(v)) => Block::Index(v.clone()),
            _ => Block::Float(R::convert(values)),
        }
    }
}

/// Everything that the kernels read.
struct Inputs<R> {
    recording: Arc<Recording>,
    blocks: Vec<Block<R>>,
    /// (spectra, parameters)
    lower: Vec<f64>,
    upper: Vec<f64>,
    prior_mean: Vec<f64>,
    prior_weight: Vec<f64>,
}

impl<R: Real> Inputs<R> {
    fn range(&self, id: BufferId, spectrum: usize) -> Range<usize> {
        let buffer = self.recording.block(id);
        let start = if buffer.scope == Scope::Spectrum { spectrum * buffer.length } else { 0 };
        start..start + buffer.length
    }

    fn float(&self, id: BufferId, spectrum: usize) -> &[R] {
        match &self.blocks[id.0] {
            Block::Float(v) => &v[self.range(id, spectrum)],
            Block::Index(_) => &[],
        }
    }

    /// A product's weights, packed.
    fn packed(&self, id: BufferId) -> &[R] {
        match &self.blocks[id.0] {
            Block::Float(v) => v,
            Block::Index(_) => &[],
        }
    }

    fn index(&self, id: BufferId, spectrum: usize) -> &[i32] {
        match &self.blocks[id.0] {
            Block::Index(v) => &v[self.range(id, spectrum)],
            Block::Float(_) => &[],
        }
    }

    fn of_spectrum<'a>(&self, values: &'a [f64], spectrum: usize) -> &'a [f64] {
        let count = self.recording.parameters.len();
        &values[spectrum * count..(spectrum + 1) * count]
    }
}

/// Rows of a tile's members, by buffer; empty for buffers of other scopes.
struct Tile<R> {
    rows: Vec<Vec<R>>,
    /// Buffers with room for a single member, because nothing reads them after its run of stages.
    local: Vec<bool>,
}

impl<R: Real> Tile<R> {
    fn new(recording: &Recording, members: usize) -> Tile<R> {
        let local = local_buffers(recording);
        let rows = recording.buffers.iter().zip(&local).map(|(b, local)| match b.scope {
            Scope::Member => vec![R::NAN; b.length * if *local { 1 } else { members }],
            _ => Vec::new(),
        });
        Tile { rows: rows.collect(), local }
    }

    /// A member's block of a buffer.
    fn block(&self, recording: &Recording, id: BufferId, place: usize) -> Range<usize> {
        let length = recording.block(id).length;
        let place = if self.local[id.0] { 0 } else { place };
        place * length..(place + 1) * length
    }

    fn take(&mut self, id: BufferId) -> Vec<R> {
        std::mem::take(&mut self.rows[id.0])
    }
}

struct CpuPopulation<R> {
    settings: LevenbergMarquardt,
    inputs: Inputs<R>,
    members: Vec<Member>,
    active: usize,
    tile_members: usize,
    tiles: Mutex<Vec<Tile<R>>>,
}

impl<R: Real> CpuPopulation<R> {
    fn new(recording: Arc<Recording>, settings: LevenbergMarquardt) -> CpuPopulation<R> {
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
            settings,
            inputs: Inputs {
                blocks,
                recording,
                lower: Vec::new(),
                upper: Vec::new(),
                prior_mean: Vec::new(),
                prior_weight: Vec::new(),
            },
            members: Vec::new(),
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
        let (inputs, settings) = (&self.inputs, &self.settings);
        members[..self.active].par_chunks_mut(self.tile_members).for_each(|members| {
            let mut tile = self.borrow_tile();
            linearise(inputs, &mut tile, members);
            for member in members {
                let lower = inputs.of_spectrum(&inputs.lower, member.spectrum);
                let upper = inputs.of_spectrum(&inputs.upper, member.spectrum);
                step::step(member, lower, upper, settings, R::COST_NOISE);
            }
            self.return_tile(tile);
        });
        self.active = compact::compact(&mut members, self.active);
        self.members = members;
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
            let count = self.inputs.recording.parameters.len();
            let start = |slot: usize| &batch.starts[slot * count..(slot + 1) * count];
            let groups = batch.group.iter().enumerate();
            self.members =
                groups.map(|(slot, &s)| Member::new(slot, s as usize, start(slot), &self.settings)).collect();
            self.active = self.members.len();
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
            let outcomes = self.members.iter().map(Member::outcome).collect();
            let count = self.members.len();
            self.active = compact::compact(&mut self.members, count);
            Ok(outcomes)
        })
    }

    fn inspect(&mut self, buffer: BufferId) -> Pending<'_, Vec<f64>> {
        Box::pin(async move {
            let mut members = std::mem::take(&mut self.members);
            members[..self.active].sort_by_key(|member| member.slot);
            let length = self.inputs.recording.block(buffer).length;
            let mut seen = Vec::with_capacity(self.active * length);
            for members in members[..self.active].chunks_mut(1) {
                let mut tile = Tile::new(&self.inputs.recording, 1);
                linearise(&self.inputs, &mut tile, members);
                seen.extend(tile.rows[buffer.0][..length].iter().map(|x| x.to_f64()));
            }
            self.members = members;
            Ok(seen)
        })
    }
}

/// Stages that are run for one member after the other: all but products.
fn together(a: &Stage, b: &Stage) -> bool {
    !matches!(a, Stage::Product(_)) && !matches!(b, Stage::Product(_))
}

/// Which buffers only one run of stages touches.
fn local_buffers(recording: &Recording) -> Vec<bool> {
    let mut runs: Vec<Option<usize>> = vec![None; recording.buffers.len()];
    let mut local = vec![true; recording.buffers.len()];
    for (run, stages) in recording.stages.chunk_by(together).enumerate() {
        for id in stages.iter().flat_map(Stage::buffers) {
            local[id.0] &= runs[id.0].is_none_or(|other| other == run);
            runs[id.0] = Some(run);
        }
    }
    local
}

/// Runs the stages for a tile of members. Products take the whole tile; the stages between two products run member by member,
/// so that a member's rows are still in the cache when the next stage reads them.
fn linearise<R: Real>(inputs: &Inputs<R>, tile: &mut Tile<R>, members: &mut [Member]) {
    let stages = &inputs.recording.stages;
    for run in stages.chunk_by(together) {
        if let [Stage::Product(stage)] = run {
            let count = members.len();
            let mut output = tile.take(stage.output);
            let input = &tile.rows[stage.input.0][..count * stage.rows * stage.inner];
            let weight = inputs.packed(stage.weight);
            let used = &mut output[..count * stage.rows * stage.columns];
            product::Product { input, packed: weight, output: used, inner: stage.inner, columns: stage.columns }.run();
            tile.rows[stage.output.0] = output;
            continue;
        }
        for (place, member) in members.iter_mut().enumerate() {
            for stage in run {
                run_stage(inputs, tile, stage, place, member);
            }
        }
    }
}

/// One stage for the member at `place` of the tile.
fn run_stage<R: Real>(inputs: &Inputs<R>, tile: &mut Tile<R>, stage: &Stage, place: usize, member: &mut Member) {
    let recording = &*inputs.recording;
    let spectrum = member.spectrum;
    let blocks: Vec<Range<usize>> =
        (0..recording.buffers.len()).map(|b| tile.block(recording, BufferId(b), place)).collect();
    let at = |id: BufferId| blocks[id.0].clone();
    match stage {
        Stage::Prior(stage) => {
            let mean = inputs.of_spectrum(&inputs.prior_mean, spectrum);
            let weight = inputs.of_spectrum(&inputs.prior_weight, spectrum);
            prior::prior(stage, &recording.parameters, &member.trial, mean, weight, &mut member.trial_sums);
        }
        Stage::Labels(stage) => {
            labels::labels(
                stage,
                &recording.parameters,
                &member.trial,
                &mut tile.rows[stage.output.0][at(stage.output)],
            );
        }
        Stage::Product(_) => {}
        Stage::Activate(stage) => activate::Activate {
            block: &mut tile.rows[stage.buffer.0][at(stage.buffer)],
            columns: stage.columns,
            bias: inputs.float(stage.bias, 0),
            affine: stage.affine.map(|(scale, offset)| (inputs.float(scale, 0), inputs.float(offset, 0))),
            activation: stage.activation,
        }
        .run(),
        Stage::PerPixel(stage) => {
            let mut output = tile.take(stage.output);
            per_pixel::PerPixel {
                stage,
                input: &tile.rows[stage.input.0][at(stage.input)],
                w0: inputs.float(stage.w0, 0),
                b0: inputs.float(stage.b0, 0),
                w1: inputs.float(stage.w1, 0),
                b1: inputs.float(stage.b1, 0),
                output: &mut output[at(stage.output)],
            }
            .run();
            tile.rows[stage.output.0] = output;
        }
        Stage::Prefilter(stage) => {
            let mut output = tile.take(stage.output);
            let input = &tile.rows[stage.input.0][at(stage.input)];
            let rows = input.chunks_exact(stage.columns).zip(output[at(stage.output)].chunks_exact_mut(stage.columns));
            for (input, output) in rows {
                prefilter::Prefilter { input, output, segments: &stage.segments }.run();
            }
            tile.rows[stage.output.0] = output;
        }
        Stage::Resample(stage) => {
            let mut output = tile.take(stage.output);
            resample::Resample {
                stage,
                parameters: &recording.parameters,
                u: &member.trial,
                input: &tile.rows[stage.input.0][at(stage.input)],
                index: inputs.index(stage.index, spectrum),
                fraction: inputs.float(stage.fraction, spectrum),
                output: &mut output[at(stage.output)],
            }
            .run();
            tile.rows[stage.output.0] = output;
        }
        Stage::Continuum(stage) => {
            let mut solution = tile.take(stage.solution);
            let Basis { terms, basis, transform } = stage.basis;
            member.trial_sums.ln_det += continuum::Continuum {
                terms,
                pixels: stage.pixels,
                value: &tile.rows[stage.model.0][at(stage.model)][..stage.pixels],
                data: inputs.float(stage.data, spectrum),
                weight: inputs.float(stage.weight, spectrum),
                basis: inputs.float(basis, spectrum),
                transform: inputs.float(transform, spectrum),
                solution: &mut solution[at(stage.solution)],
            }
            .run();
            tile.rows[stage.solution.0] = solution;
        }
        Stage::Normal(stage) => {
            let continuum = stage.continuum.map(|(basis, solution)| normal::Projection {
                terms: basis.terms,
                basis: inputs.float(basis.basis, spectrum),
                transform: inputs.float(basis.transform, spectrum),
                solution: &tile.rows[solution.0][at(solution)],
            });
            normal::Normal {
                pixels: stage.pixels,
                columns: &stage.columns,
                model: &tile.rows[stage.model.0][at(stage.model)],
                data: inputs.float(stage.data, spectrum),
                weight: inputs.float(stage.weight, spectrum),
                continuum,
                sums: &mut member.trial_sums,
            }
            .run();
        }
        Stage::Custom(stage) => {
            let output = &mut tile.rows[stage.output.0][at(stage.output)];
            custom::custom(stage, &member.trial, inputs.float(stage.predictor, spectrum), output);
        }
    }
}
