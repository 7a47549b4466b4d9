//! The kernel of small fits of one shape, and what is sent to it and read from it.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::super::context::GpuContext;
use super::super::counts::PassCount;
use super::super::pipelines::{self, Unbound};
use super::super::{buffers, readback};
use super::source::{fits_per_workgroup, small_source};
use crate::error::Result;
use crate::solver::small::packing::{FITS_PER_BLOCK as BLOCK, Packing};
use crate::solver::small::{PART, Shape, SmallParts, SmallProblem};
use crate::threads;

/// Number of bytes that are copied to the device as one piece: one number of each fit of a block.
const STAGING_PIECE_BYTES: usize = 4 * BLOCK;

/// Parts are whole blocks.
const _: () = assert!(PART.is_multiple_of(BLOCK));

/// Staging memory from which a piece is copied to the device.
type StagingPiece<'a> = wgpu::WriteOnly<'a, [u8; STAGING_PIECE_BYTES]>;

/// A pipeline for fits of some shape, and the grid that they share.
#[derive(Debug)]
pub(super) struct SmallKernel {
    context: Arc<GpuContext>,
    pub packing: Packing,
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
    grid: wgpu::Buffer,
    /// Number of fits whose rows a set of buffers holds, a multiple of [`PART`].
    capacity: usize,
}

/// The buffers of a number of fits.
#[derive(Debug)]
pub(super) struct FitBuffers {
    group: wgpu::BindGroup,
    observed: wgpu::Buffer,
    given: wgpu::Buffer,
    result: wgpu::Buffer,
    readback: wgpu::Buffer,
}

/// Rows of fits that are sent to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentRows {
    All,
    /// The start values, units and bounds of their parameters only. The device has their points already.
    Given,
}

impl SmallKernel {
    /// Compiles the kernel of fits of a shape, for buffers of `capacity` fits.
    pub fn new(
        context: Arc<GpuContext>,
        problem: &SmallProblem,
        shape: Shape,
        capacity: usize,
    ) -> Result<SmallKernel> {
        let packing = Packing::new(problem, shape);
        // 1. Check the limits of the device.
        let grid_elements = if shape.own_grid {
            1
        } else {
            problem.predictors * problem.points
        };
        let largest_elements = [packing.observed(), packing.given(), packing.result()]
            .into_iter()
            .map(|numbers| numbers * capacity)
            .fold(grid_elements, usize::max);
        let largest_bytes = 4 * largest_elements as u64;
        let workgroups = capacity / fits_per_workgroup(packing);
        if largest_bytes > context.limits.max_storage_buffer_binding_size
            || workgroups > context.limits.max_compute_workgroups_per_dimension as usize
        {
            return Err(context.too_large(format!(
                "{capacity} small fits at a time are above the limits"
            )));
        }
        // 2. Compile the kernel.
        let source = small_source(
            problem,
            packing,
            context.tolerance(problem.tolerances.reduction),
        )?;
        let writes = [false, false, false, true];
        let Unbound { pipeline, layout } =
            pipelines::compile_or_reuse(&context, "small", &source, &writes)?;
        let grid = context.catch_errors(|| Ok(create_storage(&context, "grid", grid_elements)))?;
        Ok(SmallKernel {
            context,
            packing,
            pipeline,
            layout,
            grid,
            capacity,
        })
    }

    /// Returns how many parts have room in a set of buffers.
    pub fn parts_per_buffers(&self) -> usize {
        self.capacity / PART
    }

    /// Creates a set of buffers for as many fits as the capacity.
    pub fn create_buffers(&self) -> Result<FitBuffers> {
        let SmallKernel {
            context,
            packing,
            capacity,
            ..
        } = self;
        context.catch_errors(|| {
            let make =
                |name: &str, numbers: usize| create_storage(context, name, numbers * capacity);
            let observed = make("observed", packing.observed());
            let given = make("given", packing.given());
            let result = make("result", packing.result());
            let group = pipelines::bind_buffers(
                context,
                &self.layout,
                [&observed, &given, &self.grid, &result].into_iter(),
            );
            let readback = buffers::create_readback(context, packing.result() * capacity);
            Ok(FitBuffers {
                group,
                observed,
                given,
                result,
                readback,
            })
        })
    }

    /// Sends the grid that all fits share, read from the first part in `range` that lends its batch. The parts have
    /// begun.
    pub fn send_grid(&self, parts: &dyn SmallParts, range: Range<usize>) {
        if self.packing.shape.own_grid {
            return;
        }
        let mut grid: Vec<f32> = Vec::new();
        for part in range {
            parts.lend(part, &mut |batch, _| {
                grid = batch.x.iter().map(|x| *x as f32).collect()
            });
            if !grid.is_empty() {
                self.context
                    .write_buffer(&self.grid, 0, bytemuck::cast_slice(&grid));
                return;
            }
        }
    }

    /// Begins the parts in `range`, packs their fits, and copies the rows to the buffers, which have room for them.
    /// Returns the shape of the fits, or `None` if none are to be made. If that shape has more than the packing's, not
    /// all rows were packed.
    pub fn send_fits(
        &self,
        buffers: &FitBuffers,
        parts: &dyn SmallParts,
        range: Range<usize>,
        rows: SentRows,
    ) -> Result<Option<Shape>> {
        // 1. Get the staging memory, and divide it among the parts.
        let packing = self.packing;
        let blocks = count_fits(parts, &range).div_ceil(BLOCK);
        let staging = |buffer, numbers: usize| {
            self.context
                .staging_memory(buffer, (blocks * numbers * STAGING_PIECE_BYTES) as u64)
        };
        let mut observed = match rows {
            SentRows::All => Some(staging(&buffers.observed, packing.observed())?),
            SentRows::Given => None,
        };
        let mut given = Some(staging(&buffers.given, packing.given())?);
        let observed_pieces = divide_among_parts(&mut observed, packing.observed(), range.len());
        let given_pieces = divide_among_parts(&mut given, packing.given(), range.len());
        // 2. Begin and pack the parts on all threads.
        let pack_part = |((observed, given), part): ((Vec<_>, Vec<_>), usize)| {
            let shape = parts.begin(part)?;
            if shape.union(packing.shape) == packing.shape {
                self.pack_part(parts, part, rows, (observed, given));
            }
            Some(shape)
        };
        Ok(threads::in_pool(|| {
            observed_pieces
                .into_par_iter()
                .zip(given_pieces)
                .zip(range)
                .filter_map(pack_part)
                .reduce_with(Shape::union)
        }))
    }

    /// Packs the fits of a part, block by block, into pieces of staging memory for the points and for the parameters.
    fn pack_part(
        &self,
        parts: &dyn SmallParts,
        part: usize,
        rows: SentRows,
        (observed, given): (Vec<StagingPiece<'_>>, Vec<StagingPiece<'_>>),
    ) {
        let mut observed = observed.into_iter();
        let mut given = given.into_iter();
        parts.lend(part, &mut |batch, columns| {
            let fits = columns.status.len();
            let mut packed = Vec::new();
            for first in (0..fits).step_by(BLOCK) {
                let block = first..(first + BLOCK).min(fits);
                if rows == SentRows::All {
                    self.packing
                        .pack_observed(block.clone(), batch, &mut packed);
                    write_pieces(&mut observed, &packed);
                }
                self.packing.pack_given(block, batch, &mut packed);
                write_pieces(&mut given, &packed);
            }
        });
    }

    /// Records the kernel that makes the fits in a set of buffers.
    pub fn record_fits(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        buffers: &FitBuffers,
        fits: usize,
    ) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &buffers.group, &[]);
        pass.dispatch_workgroups(fits.div_ceil(fits_per_workgroup(self.packing)) as u32, 1, 1);
        let mut pass_count = PassCount::default();
        pass_count.count_dispatch(&[], false); // the only dispatch of its pass
        self.context.counts.add_pass(&pass_count);
    }

    /// Records the copy of the results to the buffer that the host reads.
    pub fn record_readback(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        buffers: &FitBuffers,
        fits: usize,
    ) {
        self.context.record_buffer_copy(
            encoder,
            &buffers.result,
            &buffers.readback,
            0,
            4 * self.count_results(fits) as u64,
        );
    }

    /// Waits for the results of the parts in `range`, unpacks them into their columns, and ends the parts. Parts that
    /// have not begun are begun first.
    pub fn receive_results(
        &self,
        buffers: &FitBuffers,
        parts: &dyn SmallParts,
        range: Range<usize>,
        submission: wgpu::SubmissionIndex,
    ) -> Result<()> {
        let length = self.count_results(count_fits(parts, &range));
        let results: Vec<u32> = pollster::block_on(readback::read_mapped(
            &self.context,
            &buffers.readback,
            length,
            submission,
        ))?;
        let results_by_part = results.par_chunks(PART * self.packing.result()).zip(range);
        threads::in_pool(|| {
            results_by_part.try_for_each(|(results, part)| {
                if parts.begin(part).is_none() {
                    return Ok(());
                }
                let mut unpacked = Ok(());
                parts.lend(part, &mut |_, columns| {
                    unpacked = self.packing.unpack(results, columns)
                });
                unpacked.map_err(|fit| {
                    let fit = part * PART + fit;
                    self.context
                        .untrusted(format!("what it says of fit {fit} cannot be"))
                })?;
                parts.finish_part(part)
            })
        })
    }

    /// Returns how many numbers the results of so many fits have.
    fn count_results(&self, fits: usize) -> usize {
        self.packing.result() * fits.next_multiple_of(BLOCK)
    }
}

/// Creates a buffer of so many 32-bit elements, for kernels and copies.
fn create_storage(context: &GpuContext, name: &str, elements: usize) -> wgpu::Buffer {
    let usage =
        wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
    buffers::create_buffer(context, name, elements, usage)
}

/// Divides staging memory for rows of so many numbers per fit among parts. Without memory, each part gets no pieces.
fn divide_among_parts(
    view: &mut Option<wgpu::QueueWriteBufferView>,
    numbers: usize,
    parts: usize,
) -> Vec<Vec<StagingPiece<'_>>> {
    let Some(view) = view else {
        return (0..parts).map(|_| Vec::new()).collect();
    };
    let (pieces, _) = view.slice(..).into_chunks::<STAGING_PIECE_BYTES>();
    let mut pieces = pieces.into_iter();
    (0..parts)
        .map(|_| pieces.by_ref().take(PART / BLOCK * numbers).collect())
        .collect()
}

/// Writes numbers to the next pieces.
fn write_pieces<'a>(pieces: &mut impl Iterator<Item = StagingPiece<'a>>, numbers: &[f32]) {
    let (bytes, _) = bytemuck::cast_slice(numbers).as_chunks::<STAGING_PIECE_BYTES>();
    // `pieces` comes second in the zip: if it came first, a piece would be taken and lost where the bytes end.
    bytes
        .iter()
        .zip(pieces)
        .for_each(|(bytes, piece)| piece.write(*bytes));
}

/// Returns the number of fits of the parts in `range`.
pub(super) fn count_fits(parts: &dyn SmallParts, range: &Range<usize>) -> usize {
    (range.end * PART).min(parts.fits()) - range.start * PART
}

/// Begins the parts in `range`, and returns the shape of their fits; `None` if none are to be made.
pub(super) fn begin_parts(parts: &dyn SmallParts, range: Range<usize>) -> Option<Shape> {
    threads::in_pool(|| {
        range
            .into_par_iter()
            .filter_map(|part| parts.begin(part))
            .reduce_with(Shape::union)
    })
}
