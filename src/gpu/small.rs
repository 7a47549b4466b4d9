//! Small fits on a GPU, one an invocation.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::buffers;
use super::context::Context;
use super::counts::Pass;
use super::layout::declare_statuses;
use super::pipelines::{self, Unbound};
use super::readback;
use super::step_constants::{declare_ends, declare_step};
use crate::error::{Error, Result};
use crate::kernels::source::{Constants, Source, UserCode};
use crate::solver::LevenbergMarquardt;
use crate::solver::small::packing::{BLOCK, MOST_ROUNDS, Packed, Packing, ROUNDS_SHIFT, SURE};
use crate::solver::small::{PART, Shape, SmallFitter, SmallParts, SmallProblem};
use crate::solver::thresholds::{LEAST_XTOL, LEGS};
use crate::threads;

/// The largest fits: their sums are variables of an invocation.
pub(super) const MOST_PARAMETERS: usize = 8;
pub(super) const MOST_POINTS: usize = 128;
/// Bytes of workgroup memory that every device has, and the most fits of a workgroup.
const WORKGROUP_BYTES: usize = 16_384;
const MOST_FITS: usize = 64;
/// Iterations that drivers let an invocation do, with a margin: software counts all its loops' together, to 65,535.
const MOST_ITERATIONS: usize = 60_000;
/// By how much more values may be rounded on a GPU than on the CPU: WGSL allows a division 2.5 units in the last place.
const ROUNDINGS: f32 = 1.5;
/// A `largest_step` of this much is no limit.
const LONGEST_STEP: f64 = 1e30;
/// Bytes that are copied to the device as one piece: a number of each fit of a block.
const PIECE: usize = 4 * BLOCK;

/// Small fits on one GPU. While some are fitted, the next ones are packed.
pub(super) struct GpuSmallFitter {
    context: Arc<Context>,
    problem: SmallProblem,
    /// Number of fits whose rows the buffers hold, a multiple of [`PART`].
    capacity: usize,
    ready: Option<Ready>,
}

/// Parts are whole blocks.
const _: () = assert!(PART.is_multiple_of(BLOCK));

/// A pipeline for fits of some shape, and the buffers of those that are fitted and of those that are next.
struct Ready {
    packing: Packing,
    pipeline: wgpu::ComputePipeline,
    grid: wgpu::Buffer,
    places: [Place; 2],
}

/// The buffers of some fits.
struct Place {
    group: wgpu::BindGroup,
    observed: wgpu::Buffer,
    given: wgpu::Buffer,
    result: wgpu::Buffer,
    readback: wgpu::Buffer,
}

/// Parts whose fits a device is making.
struct Flight {
    /// Index of the place that has their rows.
    place: usize,
    parts: Range<usize>,
    submission: wgpu::SubmissionIndex,
}

/// Outcome of sending some parts to a device.
enum Launch {
    Submitted(Flight),
    /// None of their fits are to be made.
    Nothing,
    /// The kernel must be one for fits of this shape first.
    Needs(Shape),
}

impl GpuSmallFitter {
    /// Makes a solver that fits small curves whole on the GPU; buffers and pipeline are created when first needed.
    pub fn new(context: Arc<Context>, problem: SmallProblem) -> GpuSmallFitter {
        let capacity = problem.capacity.next_multiple_of(PART).max(PART);
        GpuSmallFitter { context, problem, capacity, ready: None }
    }

    /// Compiles the kernel of fits of some shape, and creates buffers for as many as the present capacity.
    fn make_ready(&self, shape: Shape) -> Result<Ready> {
        let (context, capacity) = (&*self.context, self.capacity);
        let packing = Packing::new(&self.problem, shape);
        let [observed, given, result] =
            [packing.observed(), packing.given(), packing.result()].map(|numbers| numbers * capacity);
        let grid = if shape.own_grid { 1 } else { self.problem.predictors * self.problem.points };
        let largest = 4 * observed.max(given).max(result).max(grid) as u64;
        let workgroups = capacity / fits_per_workgroup(packing);
        if largest > context.limits.max_storage_buffer_binding_size
            || workgroups > context.limits.max_compute_workgroups_per_dimension as usize
        {
            return Err(context.too_large(format!("{capacity} small fits at a time are above the limits")));
        }
        let source = source(&self.problem, packing, context.tolerance(self.problem.tolerances.reduction))?;
        let writes = [false, false, false, true];
        let Unbound { pipeline, layout } = pipelines::compiled(context, "small", &source, &writes)?;
        context.guarded(|| {
            let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
            let grid = buffers::create(context, "grid", grid, usage);
            let place = || {
                let [observed, given, result] = [("observed", observed), ("given", given), ("result", result)]
                    .map(|(name, elements)| buffers::create(context, name, elements, usage));
                let group = pipelines::bind(context, &layout, [&observed, &given, &grid, &result].into_iter());
                let readback = buffers::readback(context, packing.result() * capacity);
                Place { group, observed, given, result, readback }
            };
            let places = [place(), place()];
            Ok(Ready { packing, pipeline, grid, places })
        })
    }

    /// Compiles the kernel and creates its buffers, for half as many fits after each failure for want of memory.
    fn make_any_ready(&mut self, shape: Shape) -> Result<Ready> {
        let mut ready = self.make_ready(shape);
        while self.capacity > PART && matches!(ready, Err(Error::OutOfMemory { .. })) {
            self.capacity = (self.capacity / 2).next_multiple_of(PART);
            ready = self.make_ready(shape);
        }
        ready
    }

    /// Begins some parts, as many as the buffers hold at most, sends their fits to the device, and lets it make them.
    fn launch(&self, parts: &dyn SmallParts, some: Range<usize>, place: usize) -> Result<Launch> {
        let Some(ready) = &self.ready else {
            let shapes =
                threads::in_pool(|| some.into_par_iter().filter_map(|k| parts.begin(k)).reduce_with(Shape::union));
            return Ok(shapes.map_or(Launch::Nothing, Launch::Needs));
        };
        let (context, packing) = (&self.context, ready.packing);
        let Place { group, result, readback, .. } = &ready.places[place];
        let fits = fits_of(parts, &some);
        match self.upload(packing, &ready.places[place], parts, some.clone(), fits)? {
            None => {
                // the memory from which nothing is to be copied goes with a submission
                context.flush();
                return Ok(Launch::Nothing);
            }
            Some(shape) if shape.union(packing.shape) != packing.shape => {
                return Ok(Launch::Needs(shape.union(packing.shape)));
            }
            Some(_) => {}
        }
        let mut encoder = context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&ready.pipeline);
        pass.set_bind_group(0, group, &[]);
        pass.dispatch_workgroups(fits.div_ceil(fits_per_workgroup(packing)) as u32, 1, 1);
        let mut counted = Pass::default();
        counted.dispatch(&[], false); // nothing of its pass comes before it
        context.counts.add_pass(&counted);
        drop(pass);
        context.copy(&mut encoder, result, readback, 0, 4 * results_of(packing, fits) as u64);
        Ok(Launch::Submitted(Flight { place, parts: some, submission: context.submit(encoder) }))
    }

    /// Begins some parts, packs their fits, and copies the rows to the buffers of a place. Returns what the fits have;
    /// where that is more than the packing's shape, their rows are not all there.
    fn upload(
        &self,
        packing: Packing,
        place: &Place,
        parts: &dyn SmallParts,
        some: Range<usize>,
        fits: usize,
    ) -> Result<Option<Shape>> {
        let blocks = fits.div_ceil(BLOCK);
        let [mut observed, mut given] = [
            self.context.staging(&place.observed, (blocks * packing.observed() * PIECE) as u64)?,
            self.context.staging(&place.given, (blocks * packing.given() * PIECE) as u64)?,
        ];
        let [observed, given] = [&mut observed, &mut given].map(|view| {
            let (pieces, _) = view.slice(..).into_chunks::<PIECE>();
            pieces.into_iter().collect::<Vec<Piece<'_>>>()
        });
        let of_part = PART / BLOCK;
        let rows = observed.into_par_iter().chunks(of_part * packing.observed());
        let rows = rows.zip(given.into_par_iter().chunks(of_part * packing.given())).zip(some);
        let begin = |((observed, given), part): ((Vec<Piece<'_>>, Vec<Piece<'_>>), usize)| {
            let shape = parts.begin(part)?;
            let (mut observed, mut given) = (observed.into_iter(), given.into_iter());
            if shape.union(packing.shape) == packing.shape {
                parts.lend(part, &mut |batch, columns| {
                    let (fits, mut packed) = (columns.status.len(), Packed::default());
                    for first in (0..fits).step_by(BLOCK) {
                        packing.pack(first..(first + BLOCK).min(fits), batch, &mut packed);
                        write(&mut observed, &packed.observed);
                        write(&mut given, &packed.given);
                    }
                });
            }
            Some(shape)
        };
        Ok(threads::in_pool(|| rows.filter_map(begin).reduce_with(Shape::union)))
    }

    /// Sends the grid that all fits share, which one of some parts that have begun knows.
    fn send_grid(&self, ready: &Ready, parts: &dyn SmallParts, some: Range<usize>) {
        if ready.packing.shape.own_grid {
            return;
        }
        let mut grid: Vec<f32> = Vec::new();
        for part in some {
            parts.lend(part, &mut |batch, _| grid = batch.x.iter().map(|x| *x as f32).collect());
            if !grid.is_empty() {
                self.context.write(&ready.grid, 0, bytemuck::cast_slice(&grid));
                return;
            }
        }
    }

    /// Waits for parts whose fits the device makes, copies their results to their columns, and ends them.
    fn land(&self, parts: &dyn SmallParts, flight: Flight) -> Result<()> {
        let Some(ready) = &self.ready else { return Ok(()) };
        let Flight { place, parts: some, submission } = flight;
        let packing = ready.packing;
        let fits = fits_of(parts, &some);
        let length = results_of(packing, fits);
        let results = readback::read(&self.context, &ready.places[place].readback, length, submission);
        let results: Vec<u32> = pollster::block_on(results)?;
        let landing = results.par_chunks(PART * packing.result()).zip(some);
        threads::in_pool(|| {
            landing.try_for_each(|(results, part)| {
                let mut unpacked = Ok(());
                parts.lend(part, &mut |_, columns| unpacked = packing.unpack(results, columns));
                let untrusted = |fit| format!("what it says of fit {} cannot be", part * PART + fit);
                unpacked.map_err(|fit| self.context.untrusted(untrusted(fit)))?;
                parts.end(part)
            })
        })
    }
}

/// Memory from which a piece is copied to the device.
type Piece<'a> = wgpu::WriteOnly<'a, [u8; PIECE]>;

/// Writes numbers to the next pieces.
fn write<'a>(pieces: &mut impl Iterator<Item = Piece<'a>>, numbers: &[f32]) {
    let (bytes, _) = bytemuck::cast_slice(numbers).as_chunks::<PIECE>();
    // the other way round, a piece would be lost where the bytes end
    bytes.iter().zip(pieces).for_each(|(bytes, piece)| piece.write(*bytes));
}

/// Returns the number of fits of some parts.
fn fits_of(parts: &dyn SmallParts, some: &Range<usize>) -> usize {
    (some.end * PART).min(parts.fits()) - some.start * PART
}

/// Returns how many numbers come back of so many fits.
fn results_of(packing: Packing, fits: usize) -> usize {
    packing.result() * fits.next_multiple_of(BLOCK)
}

/// Returns how many fits a workgroup makes: as many as have room for what their rounds read.
fn fits_per_workgroup(packing: Packing) -> usize {
    let bytes = 4 * stride(packing);
    let mut fits = MOST_FITS;
    while fits * bytes > WORKGROUP_BYTES {
        fits /= 2;
    }
    fits
}

/// Returns how far apart the data of a workgroup's fits are.
fn stride(packing: Packing) -> usize {
    packing.counted() | 1
}

/// Returns the WGSL source of small fits of a packing, which end at this tolerance.
///
/// # Errors
/// Returns [`Error::Model`] for a setting that f32 does not hold.
pub(super) fn source(problem: &SmallProblem, packing: Packing, tolerance: f64) -> Result<Source> {
    let SmallProblem { points, parameters, settings, .. } = problem;
    let Shape { is_bounded, .. } = packing.shape;
    let mut constants = Constants::default();
    let buffers = [("observed", "f32", "read"), ("given", "f32", "read"), ("grid", "f32", "read")];
    for (k, (name, element, access)) in buffers.into_iter().chain([("result", "u32", "read_write")]).enumerate() {
        constants.line(&format!("@group(0) @binding({k}) var<storage, {access}> {name}: array<{element}>;"));
    }
    let numbers = [
        ("PARAMETERS", *parameters),
        ("LAST", parameters - 1),
        ("POINTS", *points),
        ("ROWS", 1 + parameters),
        ("FITS", fits_per_workgroup(packing)),
        ("COUNTED", packing.counted()),
        ("STRIDE", stride(packing)),
        ("OBSERVED", packing.observed()),
        ("GIVEN", packing.given()),
        ("LOWER", packing.lower()),
        ("RESULT", packing.result()),
        ("BLOCK", BLOCK),
        ("ROUNDS_SHIFT", ROUNDS_SHIFT as usize),
        ("SURE", SURE as usize),
        ("PAIRS", packing.pairs()),
        ("CORRELATED", if problem.correlations { *parameters } else { 0 }),
    ];
    numbers.into_iter().for_each(|(name, value)| constants.unsigned(name, value));
    constants.float("TOLERANCE", tolerance);
    constants.float("LARGEST_COST", problem.tolerances.largest_cost.min(f64::from(f32::MAX)));
    constants.float("XTOL", problem.tolerances.step.max(LEAST_XTOL));
    constants.float("INITIAL_DAMPING", settings.initial_damping);
    declare_statuses(&mut constants);
    // what has not ended by then is fitted by the host
    let legs = if is_bounded { LEGS * parameters + 1 } else { 0 };
    let most_rounds = (MOST_ITERATIONS / (points + legs + 1)) as u32;
    let max_rounds = settings.max_rounds.min(most_rounds).min(MOST_ROUNDS);
    declare_step(&mut constants, &LevenbergMarquardt { max_rounds, ..*settings }, &problem.tolerances);
    declare_ends(&mut constants);
    constants.line(&format!("const SHORTENS: bool = {};", settings.largest_step < LONGEST_STEP));
    declare_access(&mut constants, problem, packing);
    declare_rounding(&mut constants, problem);
    if let Some(message) = constants.bad {
        return Err(Error::model(format!("small: {message}")));
    }
    let user = UserCode { name: "model".into(), text: problem.wgsl.clone() };
    let uses = ["functions", if is_bounded { "small_bounded" } else { "small_unbounded" }];
    Ok(Source::join(&constants, "small", include_str!("../../shaders/small.wgsl"), &uses, Some(&user)))
}

/// Adds the WGSL functions that read what fits of a shape have.
fn declare_access(constants: &mut Constants, problem: &SmallProblem, packing: Packing) {
    let SmallProblem { predictors, .. } = problem;
    let Shape { own_grid, is_weighted, own_units, .. } = packing.shape;
    let place = |d: usize| match own_grid {
        true => format!("observed[fit * OBSERVED + COUNTED + {d}u * POINTS + point]"),
        false => format!("grid[{d}u * POINTS + point]"),
    };
    let each: Vec<String> = (0..*predictors).map(place).collect();
    let (kind, value) = match predictors {
        1 => ("f32".to_owned(), each.concat()),
        count => (format!("array<f32, {count}>"), format!("array<f32, {count}>({})", each.join(", "))),
    };
    constants.line(&format!("fn predictors_at(point: u32, fit: u32) -> {kind} {{ return {value}; }}"));
    let weight = if is_weighted { "tile[lane * STRIDE + POINTS + point]" } else { "1.0" };
    constants.line(&format!("fn weight_at(point: u32, lane: u32) -> f32 {{ return {weight}; }}"));
    let unit = match own_units {
        true => "given[fit * GIVEN + PARAMETERS + parameter]",
        false => "unit_of(given[fit * GIVEN + parameter])",
    };
    constants.line(&format!("fn unit_at(fit: u32, parameter: u32) -> f32 {{ return {unit}; }}"));
}

/// Adds what is known of the rounding of the model's values by the sums of a fit.
fn declare_rounding(constants: &mut Constants, problem: &SmallProblem) {
    let sums = problem.rounding.as_ref().and_then(|rounding| rounding.sums);
    constants.line(&format!("const SUMS_TELL: bool = {};", sums.is_some()));
    let [of_exponent, others] = sums.map_or([0.0; 2], |sums| [sums.of_exponent, sums.others]);
    constants.float("ROUNDINGS_OF_EXPONENT", (ROUNDINGS * of_exponent).into());
    constants.float("OTHER_ROUNDINGS", (ROUNDINGS * others).into());
    let terms = sums.map_or(&[][..], |sums| sums.exponents).iter();
    let terms = terms.map(|(p, factor)| format!(" + {factor:?} * abs(accepted[{p}]) * sqrt(normal[{p}][{p}])"));
    constants.line(&format!("fn exponent_rounding() -> f32 {{ return 0.0{}; }}", terms.collect::<String>()));
}

impl SmallFitter for GpuSmallFitter {
    fn fit(&mut self, parts: &dyn SmallParts) -> Result<()> {
        // no more memory than these parts need
        self.capacity = self.capacity.min(parts.count().max(1) * PART);
        let (mut first, mut flight) = (0, None::<Flight>);
        while first < parts.count() {
            let some = first..(first + self.capacity / PART).min(parts.count());
            let place = flight.as_ref().map_or(0, |last| 1 - last.place);
            match self.launch(parts, some.clone(), place)? {
                Launch::Submitted(next) => {
                    if let Some(last) = flight.replace(next) {
                        self.land(parts, last)?;
                    }
                }
                Launch::Nothing => {}
                Launch::Needs(shape) => {
                    if let Some(last) = flight.take() {
                        self.land(parts, last)?;
                    }
                    // frees its buffers before the next ones are created
                    self.ready = None;
                    let ready = self.make_any_ready(shape)?;
                    self.send_grid(&ready, parts, some);
                    self.ready = Some(ready);
                    continue;
                }
            }
            first = some.end;
        }
        flight.map_or(Ok(()), |last| self.land(parts, last))
    }
}
