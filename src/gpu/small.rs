//! Small fits on a GPU, one an invocation.

use std::sync::Arc;

use super::buffers;
use super::context::Context;
use super::counts::Pass;
use super::layout::{CONTROL, Field, Layout, ROUNDS, RUNNING, STATUS};
use super::pipelines::Unbound;
use super::step_constants::{declare_step, declare_trust};
use super::{pipelines, readback};
use crate::error::{Error, Result};
use crate::kernels::source::{Source, UserCode};
use crate::math::triangle::packed_length;
use crate::solver::Status;
use crate::solver::small::{SmallBatch, SmallColumns, SmallFitter, SmallProblem, WAITING};
use crate::solver::thresholds::{LEAST_FTOL, LEAST_XTOL};

/// The largest fits: their sums are variables of an invocation, and drivers count their loops.
pub(super) const MOST_PARAMETERS: usize = 8;
pub(super) const MOST_POINTS: usize = 128;
/// Fits side by side, below which there is too little memory.
const LEAST: usize = 64;
/// Rounds of a dispatch: with their loops a fifth of what drivers let an invocation do.
const SOME_ROUNDS: usize = 8;
/// Bounds that stand for none: infinities in comparisons are not safe on every GPU.
const FAR: f64 = 1e30;

/// A pipeline and its buffers: state, control, observed, grid, limits.
pub(super) struct GpuSmallFitter {
    context: Arc<Context>,
    problem: SmallProblem,
    layout: Layout,
    own_grid: Option<bool>,
    ready: Option<Ready>,
}

struct Ready {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    buffers: [wgpu::Buffer; 5],
    readback: wgpu::Buffer,
}

impl GpuSmallFitter {
    /// Makes a solver that fits small curves whole on the GPU; buffers and pipeline are created when first needed.
    pub fn new(context: Arc<Context>, problem: SmallProblem) -> GpuSmallFitter {
        let layout = Layout { parameters: problem.parameters, capacity: problem.capacity.max(1) };
        GpuSmallFitter { context, problem, layout, own_grid: None, ready: None }
    }

    /// Compiles the kernel of small fits, and creates buffers for as many fits as the present capacity.
    fn make_ready(&self, own_grid: bool) -> Result<Ready> {
        let SmallProblem { points, predictors, parameters, .. } = self.problem;
        let (context, capacity) = (&*self.context, self.layout.capacity);
        let grid = predictors * points * if own_grid { capacity } else { 1 };
        let state = self.layout.state_length() * capacity;
        let lengths = [state, CONTROL.len() * capacity, 2 * points * capacity, grid, 3 * parameters * capacity];
        let largest = 4 * lengths.into_iter().max().unwrap_or(0) as u64;
        if largest > context.limits.max_storage_buffer_binding_size {
            return Err(context.too_large(format!("a buffer of {largest} bytes is above the limits")));
        }
        let tolerance = context.tolerance(self.problem.tolerance.max(LEAST_FTOL));
        let source = source(&self.problem, capacity, own_grid, tolerance);
        let writes = [true, true, false, false, false];
        let Unbound { pipeline, layout } = pipelines::compiled(context, "small", &source, &writes)?;
        context.guarded(|| {
            let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
            let names = ["state", "control", "observed", "grid", "limits"];
            let buffers = std::array::from_fn(|k| buffers::create(context, names[k], lengths[k].max(1), usage));
            let group = pipelines::bind(context, &layout, buffers.iter());
            let readback = buffers::readback(context, state.max(CONTROL.len() * capacity));
            Ok(Ready { pipeline, group, buffers, readback })
        })
    }

    /// Compiles the kernel and creates its buffers, for half as many fits after each failure for want of memory.
    fn make_any_ready(&mut self, own_grid: bool) -> Result<Ready> {
        let mut ready = self.make_ready(own_grid);
        while self.layout.capacity > LEAST && matches!(ready, Err(Error::OutOfMemory { .. })) {
            self.layout.capacity /= 2;
            ready = self.make_ready(own_grid);
        }
        ready
    }

    /// Returns what the GPU's buffers hold before `fits` begin: state, control, data, grid and limits.
    fn contents(&self, fits: &[usize], batch: &SmallBatch<'_>, columns: &SmallColumns<'_>) -> Contents {
        let SmallProblem { points, predictors, parameters, settings, .. } = &self.problem;
        let (capacity, p) = (self.layout.capacity, *parameters);
        let mut state = vec![0.0f32; self.layout.state_length() * capacity];
        let mut control = vec![0i32; CONTROL.len() * capacity];
        let mut observed = vec![0.0f32; 2 * points * capacity];
        let mut limits = vec![0.0f32; 3 * p * capacity];
        let own = predictors * points;
        let mut grid = vec![0.0f32; if batch.own_grid { own * capacity } else { 0 }];
        for (slot, &fit) in fits.iter().enumerate() {
            control[STATUS * capacity + slot] = RUNNING;
            for j in 0..*points {
                let at = fit * points + j;
                let masked = batch.mask.is_some_and(|mask| mask[at]);
                let weight = if masked { 0.0 } else { 1.0 / batch.sigma.map_or(1.0, |sigma| sigma[at]) };
                observed[2 * j * capacity + slot] = batch.y[at] as f32;
                observed[(2 * j + 1) * capacity + slot] = weight as f32;
            }
            for i in 0..if batch.own_grid { own } else { 0 } {
                grid[i * capacity + slot] = batch.x[fit * own + i] as f32;
            }
            for q in 0..p {
                let unit = batch.unit(fit * p + q);
                let (lower, upper) = batch.bounds.map_or((-FAR, FAR), |(lower, upper)| {
                    let at = if lower.len() == p { q } else { fit * p + q };
                    ((lower[at] / unit).max(-FAR), (upper[at] / unit).min(FAR))
                });
                for (kind, value) in [lower, upper, unit].into_iter().enumerate() {
                    limits[(3 * q + kind) * capacity + slot] = value as f32;
                }
                let start = (columns.parameters[fit * p + q] / unit) as f32;
                state[self.layout.at(Field::TrialParameters, q, slot)] = start;
            }
            state[self.layout.at(Field::Damping, 0, slot)] = settings.initial_damping as f32;
            state[self.layout.at(Field::DampingFactor, 0, slot)] = 2.0;
        }
        if !batch.own_grid {
            grid = batch.x.iter().map(|x| *x as f32).collect();
        }
        Contents { state, control, observed, grid, limits }
    }

    /// Fits at most as many curves as the buffers hold: uploads them, runs rounds until none is running, and reads the
    /// results.
    async fn some(
        &self,
        ready: &Ready,
        fits: &[usize],
        batch: &SmallBatch<'_>,
        columns: &mut SmallColumns<'_>,
    ) -> Result<()> {
        let contents = self.contents(fits, batch, columns);
        let floats = [(0, &contents.state), (2, &contents.observed), (3, &contents.grid), (4, &contents.limits)];
        let context = &self.context;
        floats.iter().for_each(|(k, v)| context.write(&ready.buffers[*k], 0, bytemuck::cast_slice(v)));
        context.write(&ready.buffers[1], 0, bytemuck::cast_slice(&contents.control));
        let mut left = self.problem.settings.max_rounds as usize;
        let mut control: Vec<i32>;
        loop {
            self.dispatch(ready, fits.len());
            control = self.read(ready, 1, contents.control.len()).await?;
            left = left.saturating_sub(SOME_ROUNDS);
            if left == 0 || control[..fits.len()].iter().all(|status| *status != RUNNING) {
                break;
            }
        }
        let state: Vec<f32> = self.read(ready, 0, contents.state.len()).await?;
        self.check(fits.len(), &state, &control)?;
        self.unload(fits, &state, &control, batch, columns);
        Ok(())
    }

    /// Fails unless every fit has a status, at least one round, and a damping factor.
    fn check(&self, fits: usize, state: &[f32], control: &[i32]) -> Result<()> {
        let cell = |field: usize, slot| control[field * self.layout.capacity + slot];
        let told = |slot: &usize| {
            let status = cell(STATUS, *slot);
            let known = status == RUNNING || Status::from_code(status).is_some();
            known && cell(ROUNDS, *slot) >= 1 && state[self.layout.at(Field::DampingFactor, 0, *slot)] >= 2.0
        };
        match (0..fits).find(|slot| !told(slot)) {
            Some(slot) => Err(self.context.untrusted(format!("what it says of fit {slot} cannot be"))),
            None => Ok(()),
        }
    }

    /// Submits one dispatch of the kernel over `fits` fits, 64 per workgroup.
    fn dispatch(&self, ready: &Ready, fits: usize) {
        let mut encoder = self.context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&ready.pipeline);
        pass.set_bind_group(0, &ready.group, &[]);
        pass.dispatch_workgroups(fits.div_ceil(64) as u32, 1, 1);
        let mut counted = Pass::default();
        counted.dispatch(&[], false); // nothing of its pass comes before it
        self.context.counts.add_pass(&counted);
        drop(pass);
        self.context.submit(encoder);
    }

    /// Reads `elements` elements of the buffer of this index back to the host.
    async fn read<T: bytemuck::Pod>(&self, ready: &Ready, buffer: usize, elements: usize) -> Result<Vec<T>> {
        let encoder = self.context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        readback::fetch(&self.context, encoder, &ready.buffers[buffer], &ready.readback, elements).await
    }

    /// Copies parameters, χ², predicted reductions, statuses and rounds of the fits from the readback to their columns.
    fn unload(
        &self,
        fits: &[usize],
        state: &[f32],
        control: &[i32],
        batch: &SmallBatch<'_>,
        columns: &mut SmallColumns<'_>,
    ) {
        let (p, capacity) = (self.problem.parameters, self.layout.capacity);
        let number = |field, index, slot| f64::from(state[self.layout.at(field, index, slot)]);
        for (slot, &fit) in fits.iter().enumerate() {
            for q in 0..p {
                let unit = batch.unit(fit * p + q);
                columns.parameters[fit * p + q] = number(Field::Accepted, q, slot) * unit;
            }
            columns.chi2[fit] = number(Field::Chi2, 0, slot);
            columns.promises[fit] = number(Field::PredictedReduction, 0, slot);
            let status = Status::from_code(control[slot]).unwrap_or(Status::MaxRounds);
            columns.status[fit] = status.code() as i8;
            let rounds = control[ROUNDS * capacity + slot];
            columns.rounds[fit] = columns.rounds[fit].saturating_add(u16::try_from(rounds).unwrap_or(0));
        }
    }
}

struct Contents {
    state: Vec<f32>,
    control: Vec<i32>,
    observed: Vec<f32>,
    grid: Vec<f32>,
    limits: Vec<f32>,
}

/// Returns the WGSL source of small fits for `capacity` of them, with one grid for all or, if `own_grid`, one for
/// each; they end at this tolerance.
pub(super) fn source(problem: &SmallProblem, capacity: usize, own_grid: bool, tolerance: f64) -> Source {
    let SmallProblem { points, predictors, parameters, settings, .. } = problem;
    let mut constants = Layout { parameters: *parameters, capacity }.constants();
    for (k, (name, element, access)) in [
        ("state", "f32", "read_write"),
        ("control", "i32", "read_write"),
        ("observed", "f32", "read"),
        ("grid", "f32", "read"),
        ("limits", "f32", "read"),
    ]
    .into_iter()
    .enumerate()
    {
        constants.line(&format!("@group(0) @binding({k}) var<storage, {access}> {name}: array<{element}>;"));
    }
    constants.unsigned("POINTS", *points);
    constants.unsigned("ROWS", 1 + parameters);
    constants.unsigned("TRIANGLE", packed_length(*parameters));
    constants.unsigned("SOME_ROUNDS", SOME_ROUNDS);
    constants.float("TOLERANCE", tolerance);
    constants.float("LARGEST_COST", problem.largest_cost.min(f64::from(f32::MAX)));
    constants.float("XTOL", settings.xtol.max(LEAST_XTOL));
    declare_step(&mut constants, settings);
    declare_trust(&mut constants);
    let place = if own_grid { " * CAPACITY + slot" } else { "" };
    let each: Vec<String> = (0..*predictors).map(|d| format!("grid[({d}u * POINTS + point){place}]")).collect();
    let (kind, value) = match predictors {
        1 => ("f32".to_owned(), each.concat()),
        count => (format!("array<f32, {count}>"), format!("array<f32, {count}>({})", each.join(", "))),
    };
    constants.line(&format!("fn predictors_at(point: u32, slot: u32) -> {kind} {{ return {value}; }}"));
    let user = UserCode { name: "model".into(), text: problem.wgsl.clone() };
    Source::join(&constants, "small", include_str!("../../shaders/small.wgsl"), &["functions"], Some(&user))
}

impl SmallFitter for GpuSmallFitter {
    fn fit(&mut self, batch: &SmallBatch<'_>, columns: &mut SmallColumns<'_>) -> Result<()> {
        let waiting: Vec<usize> = (0..columns.status.len()).filter(|&i| columns.status[i] == WAITING).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        if batch.own_grid != *self.own_grid.get_or_insert(batch.own_grid) {
            return Err(Error::Usage("fits with and without a grid of their own".into()));
        }
        let ready = match self.ready.take() {
            Some(ready) => ready,
            None => self.make_any_ready(batch.own_grid)?,
        };
        for some in waiting.chunks(self.layout.capacity) {
            pollster::block_on(self.some(&ready, some, batch, columns))?;
        }
        self.ready = Some(ready);
        Ok(())
    }

    fn together(&self) -> Option<usize> {
        Some(self.layout.capacity)
    }
}
