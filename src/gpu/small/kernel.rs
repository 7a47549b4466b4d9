//! The kernel of small fits of one shape, and what is sent to it and read from it.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::super::context::Context;
use super::super::counts::Pass;
use super::super::pipelines::{self, Unbound};
use super::super::{buffers, readback};
use super::source::{fits_per_workgroup, source};
use crate::error::Result;
use crate::solver::small::packing::{FITS_PER_BLOCK as BLOCK, Packing};
use crate::solver::small::{PART, Shape, SmallParts, SmallProblem};
use crate::threads;

/// Bytes that are copied to the device as one piece: a number of each fit of a block.
const PIECE: usize = 4 * BLOCK;

/// Parts are whole blocks.
const _: () = assert!(PART.is_multiple_of(BLOCK));

/// Memory from which a piece is copied to the device.
type Piece<'a> = wgpu::WriteOnly<'a, [u8; PIECE]>;

/// A pipeline for fits of some shape, and the grid that they share.
#[derive(Debug)]
pub(super) struct SmallKernel {
    context: Arc<Context>,
    pub packing: Packing,
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
    grid: wgpu::Buffer,
    /// Number of fits whose rows a place holds, a multiple of [`PART`].
    capacity: usize,
}

/// The buffers of some fits.
#[derive(Debug)]
pub(super) struct Place {
    group: wgpu::BindGroup,
    observed: wgpu::Buffer,
    given: wgpu::Buffer,
    result: wgpu::Buffer,
    readback: wgpu::Buffer,
}

/// Rows of fits that are sent to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    All,
    /// What is given of their parameters. The device has their points.
    Given,
}

impl SmallKernel {
    /// Compiles the kernel of fits of some shape, for places of `capacity` fits.
    pub fn new(
        context: Arc<Context>,
        problem: &SmallProblem,
        shape: Shape,
        capacity: usize,
    ) -> Result<SmallKernel> {
        let packing = Packing::new(problem, shape);
        let grid = if shape.own_grid {
            1
        } else {
            problem.predictors * problem.points
        };
        let largest = [packing.observed(), packing.given(), packing.result()]
            .map(|numbers| numbers * capacity);
        let largest = 4 * largest.into_iter().fold(grid, usize::max) as u64;
        let workgroups = capacity / fits_per_workgroup(packing);
        if largest > context.limits.max_storage_buffer_binding_size
            || workgroups > context.limits.max_compute_workgroups_per_dimension as usize
        {
            return Err(context.too_large(format!(
                "{capacity} small fits at a time are above the limits"
            )));
        }
        let source = source(
            problem,
            packing,
            context.tolerance(problem.tolerances.reduction),
        )?;
        let writes = [false, false, false, true];
        let Unbound { pipeline, layout } =
            pipelines::compiled(&context, "small", &source, &writes)?;
        let grid = context.guarded(|| Ok(storage(&context, "grid", grid)))?;
        Ok(SmallKernel {
            context,
            packing,
            pipeline,
            layout,
            grid,
            capacity,
        })
    }

    /// Returns how many parts a place holds.
    pub fn parts_per_place(&self) -> usize {
        self.capacity / PART
    }

    /// Creates the buffers of a place.
    pub fn place(&self) -> Result<Place> {
        let SmallKernel {
            context,
            packing,
            capacity,
            ..
        } = self;
        context.guarded(|| {
            let rows = |name: &str, numbers: usize| storage(context, name, numbers * capacity);
            let observed = rows("observed", packing.observed());
            let given = rows("given", packing.given());
            let result = rows("result", packing.result());
            let group = pipelines::bind(
                context,
                &self.layout,
                [&observed, &given, &self.grid, &result].into_iter(),
            );
            let readback = buffers::readback(context, packing.result() * capacity);
            Ok(Place {
                group,
                observed,
                given,
                result,
                readback,
            })
        })
    }

    /// Sends the grid that all fits share, which one of some parts that have begun knows.
    pub fn send_grid(&self, parts: &dyn SmallParts, some: Range<usize>) {
        if self.packing.shape.own_grid {
            return;
        }
        let mut grid: Vec<f32> = Vec::new();
        for part in some {
            parts.lend(part, &mut |batch, _| {
                grid = batch.x.iter().map(|x| *x as f32).collect()
            });
            if !grid.is_empty() {
                self.context
                    .write(&self.grid, 0, bytemuck::cast_slice(&grid));
                return;
            }
        }
    }

    /// Begins some parts, packs their fits, and copies the rows to the buffers of a place, which have room for them.
    /// Returns what the fits have, or `None` if none are to be made. Where they have more than the packing's shape,
    /// their rows are not all there.
    pub fn send(
        &self,
        place: &Place,
        parts: &dyn SmallParts,
        some: Range<usize>,
        sent: Sent,
    ) -> Result<Option<Shape>> {
        let (packing, blocks) = (self.packing, fits_of(parts, &some).div_ceil(BLOCK));
        let staging = |buffer, numbers: usize| {
            self.context
                .staging(buffer, (blocks * numbers * PIECE) as u64)
        };
        let mut observed = match sent {
            Sent::All => Some(staging(&place.observed, packing.observed())?),
            Sent::Given => None,
        };
        let mut given = Some(staging(&place.given, packing.given())?);
        let observed = pieces_of_parts(&mut observed, packing.observed(), some.len());
        let rows = observed
            .into_par_iter()
            .zip(pieces_of_parts(&mut given, packing.given(), some.len()))
            .zip(some);
        let begin = |((observed, given), part): ((Vec<Piece<'_>>, Vec<Piece<'_>>), usize)| {
            let shape = parts.begin(part)?;
            let (mut observed, mut given) = (observed.into_iter(), given.into_iter());
            if shape.union(packing.shape) == packing.shape {
                parts.lend(part, &mut |batch, columns| {
                    let (fits, mut rows) = (columns.status.len(), Vec::new());
                    for first in (0..fits).step_by(BLOCK) {
                        let block = first..(first + BLOCK).min(fits);
                        if sent == Sent::All {
                            packing.pack_observed(block.clone(), batch, &mut rows);
                            write(&mut observed, &rows);
                        }
                        packing.pack_given(block, batch, &mut rows);
                        write(&mut given, &rows);
                    }
                });
            }
            Some(shape)
        };
        Ok(threads::in_pool(|| {
            rows.filter_map(begin).reduce_with(Shape::union)
        }))
    }

    /// Has the device make the fits of a place, after what was submitted before.
    pub fn fit(&self, encoder: &mut wgpu::CommandEncoder, place: &Place, fits: usize) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &place.group, &[]);
        pass.dispatch_workgroups(fits.div_ceil(fits_per_workgroup(self.packing)) as u32, 1, 1);
        let mut counted = Pass::default();
        counted.dispatch(&[], false); // nothing of its pass comes before it
        self.context.counts.add_pass(&counted);
    }

    /// Has the device copy the results of a place to where the host reads them.
    pub fn copy_back(&self, encoder: &mut wgpu::CommandEncoder, place: &Place, fits: usize) {
        self.context.copy(
            encoder,
            &place.result,
            &place.readback,
            0,
            4 * self.results_of(fits) as u64,
        );
    }

    /// Begins some parts if that has not been done, waits for the copy of their results, puts these into their columns,
    /// and ends the parts.
    pub fn land(
        &self,
        place: &Place,
        parts: &dyn SmallParts,
        some: Range<usize>,
        submission: wgpu::SubmissionIndex,
    ) -> Result<()> {
        let length = self.results_of(fits_of(parts, &some));
        let results: Vec<u32> = pollster::block_on(readback::read(
            &self.context,
            &place.readback,
            length,
            submission,
        ))?;
        let landing = results.par_chunks(PART * self.packing.result()).zip(some);
        threads::in_pool(|| {
            landing.try_for_each(|(results, part)| {
                if parts.begin(part).is_none() {
                    return Ok(());
                }
                let mut unpacked = Ok(());
                parts.lend(part, &mut |_, columns| {
                    unpacked = self.packing.unpack(results, columns)
                });
                let untrusted =
                    |fit| format!("what it says of fit {} cannot be", part * PART + fit);
                unpacked.map_err(|fit| self.context.untrusted(untrusted(fit)))?;
                parts.end(part)
            })
        })
    }

    /// Returns how many numbers come back of so many fits.
    fn results_of(&self, fits: usize) -> usize {
        self.packing.result() * fits.next_multiple_of(BLOCK)
    }
}

/// Creates a buffer of so many 32-bit elements, for kernels and copies.
fn storage(context: &Context, name: &str, elements: usize) -> wgpu::Buffer {
    let usage =
        wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
    buffers::create(context, name, elements, usage)
}

/// Divides the memory of rows of so many numbers among parts. Without memory, parts have none.
fn pieces_of_parts(
    view: &mut Option<wgpu::QueueWriteBufferView>,
    numbers: usize,
    parts: usize,
) -> Vec<Vec<Piece<'_>>> {
    let Some(view) = view else {
        return (0..parts).map(|_| Vec::new()).collect();
    };
    let (pieces, _) = view.slice(..).into_chunks::<PIECE>();
    let mut pieces = pieces.into_iter();
    (0..parts)
        .map(|_| pieces.by_ref().take(PART / BLOCK * numbers).collect())
        .collect()
}

/// Writes numbers to the next pieces.
fn write<'a>(pieces: &mut impl Iterator<Item = Piece<'a>>, numbers: &[f32]) {
    let (bytes, _) = bytemuck::cast_slice(numbers).as_chunks::<PIECE>();
    // the other way round, a piece would be lost where the bytes end
    bytes
        .iter()
        .zip(pieces)
        .for_each(|(bytes, piece)| piece.write(*bytes));
}

/// Returns the number of fits of some parts.
pub(super) fn fits_of(parts: &dyn SmallParts, some: &Range<usize>) -> usize {
    (some.end * PART).min(parts.fits()) - some.start * PART
}

/// Begins some parts, and returns what their fits have; `None` if none are to be made.
pub(super) fn shape_of(parts: &dyn SmallParts, some: Range<usize>) -> Option<Shape> {
    threads::in_pool(|| {
        some.into_par_iter()
            .filter_map(|part| parts.begin(part))
            .reduce_with(Shape::union)
    })
}
