//! Small fits on a GPU, each by one invocation.

mod kernel;
mod source;
mod uploaded;

use std::ops::Range;
use std::sync::Arc;

use self::kernel::{FitBuffers, SentRows, SmallKernel, begin_parts, count_fits};
pub(super) use self::source::small_source;
use self::uploaded::GpuUploadedFits;
use super::context::GpuContext;
use crate::error::{Error, Result};
use crate::solver::small::{PART, Shape, SmallFitter, SmallParts, SmallProblem, UploadedFits};

/// Maximum number of parameters of a fit, whose sums are variables of an invocation.
pub(super) const MAX_SMALL_PARAMETERS: usize = 8;
/// Maximum number of points of a fit.
pub(super) const MAX_SMALL_POINTS: usize = 128;

/// Solver of small fits on one GPU. While the device makes some fits, the host packs the next ones.
pub(super) struct GpuSmallFitter {
    context: Arc<GpuContext>,
    problem: SmallProblem,
    /// Number of fits whose rows the buffers hold, a multiple of [`PART`].
    capacity: usize,
    ready: Option<ReadyKernel>,
}

/// A kernel, and two sets of buffers: for the fits that the device makes, and for those that are packed meanwhile.
struct ReadyKernel {
    kernel: SmallKernel,
    buffers: [FitBuffers; 2],
}

/// Parts whose fits the device is making.
struct FitsInFlight {
    /// Index of the buffers that hold their rows.
    buffers: usize,
    parts: Range<usize>,
    submission: wgpu::SubmissionIndex,
}

/// Outcome of sending some parts to a device.
enum Launch {
    Submitted(FitsInFlight),
    /// None of their fits are to be made.
    Nothing,
    /// The kernel must first be compiled for fits of this shape.
    NeedsKernel(Shape),
}

impl GpuSmallFitter {
    /// Makes a solver that fits small curves whole on the GPU; buffers and pipeline are created when first needed.
    pub fn new(context: Arc<GpuContext>, problem: SmallProblem) -> GpuSmallFitter {
        let capacity = problem.capacity.next_multiple_of(PART).max(PART);
        GpuSmallFitter {
            context,
            problem,
            capacity,
            ready: None,
        }
    }

    /// Compiles the kernel of fits of a shape, and creates buffers for as many fits as the present capacity.
    fn make_ready(&self, shape: Shape) -> Result<ReadyKernel> {
        let kernel = SmallKernel::new(self.context.clone(), &self.problem, shape, self.capacity)?;
        let buffers = [kernel.create_buffers()?, kernel.create_buffers()?];
        Ok(ReadyKernel { kernel, buffers })
    }

    /// Calls `make` with the present capacity, and again with half of it after each failure for want of memory.
    fn halve_capacity_until_it_fits<T>(
        &mut self,
        make: impl Fn(&GpuSmallFitter) -> Result<T>,
    ) -> Result<T> {
        let mut result = make(self);
        while self.capacity > PART && matches!(result, Err(Error::OutOfMemory { .. })) {
            self.capacity = (self.capacity / 2).next_multiple_of(PART);
            result = make(self);
        }
        result
    }

    /// Begins the parts in `range`, at most as many as the buffers hold, sends their fits to the device, and submits
    /// the kernel that makes them.
    fn launch(&self, parts: &dyn SmallParts, range: Range<usize>, index: usize) -> Result<Launch> {
        let Some(ReadyKernel { kernel, buffers }) = &self.ready else {
            return Ok(begin_parts(parts, range).map_or(Launch::Nothing, Launch::NeedsKernel));
        };
        let context = &self.context;
        let buffers = &buffers[index];
        let compiled = kernel.packing.shape;
        let fits = count_fits(parts, &range);
        match kernel.send_fits(buffers, parts, range.clone(), SentRows::All)? {
            None => {
                // Only a submission releases the staging memory, from which nothing is to be copied.
                context.submit_writes();
                return Ok(Launch::Nothing);
            }
            Some(shape) if shape.union(compiled) != compiled => {
                return Ok(Launch::NeedsKernel(shape.union(compiled)));
            }
            Some(_) => {}
        }
        let mut encoder = context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        kernel.record_fits(&mut encoder, buffers, fits);
        kernel.record_readback(&mut encoder, buffers, fits);
        Ok(Launch::Submitted(FitsInFlight {
            buffers: index,
            parts: range,
            submission: context.submit(encoder),
        }))
    }

    /// Waits for the fits in flight, copies their results to their columns, and ends their parts.
    fn receive(&self, parts: &dyn SmallParts, in_flight: FitsInFlight) -> Result<()> {
        let Some(ReadyKernel { kernel, buffers }) = &self.ready else {
            return Ok(());
        };
        kernel.receive_results(
            &buffers[in_flight.buffers],
            parts,
            in_flight.parts,
            in_flight.submission,
        )
    }
}

impl SmallFitter for GpuSmallFitter {
    fn fit(&mut self, parts: &dyn SmallParts) -> Result<()> {
        // Use no more memory than these parts need.
        self.capacity = self.capacity.min(parts.count().max(1) * PART);
        let mut first = 0;
        let mut in_flight = None::<FitsInFlight>;
        while first < parts.count() {
            let range = first..(first + self.capacity / PART).min(parts.count());
            // Pack into the buffers that the fits in flight do not use.
            let index = in_flight.as_ref().map_or(0, |flight| 1 - flight.buffers);
            match self.launch(parts, range.clone(), index)? {
                Launch::Submitted(launched) => {
                    if let Some(before) = in_flight.replace(launched) {
                        self.receive(parts, before)?;
                    }
                }
                Launch::Nothing => {}
                Launch::NeedsKernel(shape) => {
                    if let Some(before) = in_flight.take() {
                        self.receive(parts, before)?;
                    }
                    // Free the old buffers before the new ones are created, then launch the same parts again.
                    self.ready = None;
                    let ready =
                        self.halve_capacity_until_it_fits(|fitter| fitter.make_ready(shape))?;
                    ready.kernel.send_grid(parts, range);
                    self.ready = Some(ready);
                    continue;
                }
            }
            first = range.end;
        }
        in_flight.map_or(Ok(()), |flight| self.receive(parts, flight))
    }

    fn upload(
        mut self: Box<Self>,
        parts: &dyn SmallParts,
    ) -> Result<Option<Box<dyn UploadedFits>>> {
        self.capacity = self.capacity.min(parts.count().max(1) * PART);
        let uploaded = self.halve_capacity_until_it_fits(|fitter| {
            GpuUploadedFits::new(
                fitter.context.clone(),
                &fitter.problem,
                fitter.capacity,
                parts,
            )
        })?;
        Ok(uploaded.map(|uploaded| Box::new(uploaded) as Box<dyn UploadedFits>))
    }
}
