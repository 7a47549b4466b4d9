//! Small fits on a GPU, one an invocation.

mod kernel;
mod source;
mod uploaded;

use std::ops::Range;
use std::sync::Arc;

use self::kernel::{Place, Sent, SmallKernel, fits_of, shape_of};
pub(super) use self::source::source;
use self::uploaded::GpuUploadedFits;
use super::context::Context;
use crate::error::{Error, Result};
use crate::solver::small::{PART, Shape, SmallFitter, SmallParts, SmallProblem, UploadedFits};

/// The largest fits: their sums are variables of an invocation.
pub(super) const MOST_PARAMETERS: usize = 8;
pub(super) const MOST_POINTS: usize = 128;

/// Small fits on one GPU. While some are fitted, the next ones are packed.
pub(super) struct GpuSmallFitter {
    context: Arc<Context>,
    problem: SmallProblem,
    /// Number of fits whose rows the buffers hold, a multiple of [`PART`].
    capacity: usize,
    ready: Option<Ready>,
}

/// A kernel, and the places of the fits that are made and of those that are next.
struct Ready {
    kernel: SmallKernel,
    places: [Place; 2],
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
        GpuSmallFitter {
            context,
            problem,
            capacity,
            ready: None,
        }
    }

    /// Compiles the kernel of fits of some shape, and creates buffers for as many as the present capacity.
    fn make_ready(&self, shape: Shape) -> Result<Ready> {
        let kernel = SmallKernel::new(self.context.clone(), &self.problem, shape, self.capacity)?;
        let places = [kernel.place()?, kernel.place()?];
        Ok(Ready { kernel, places })
    }

    /// Makes something for as many fits as the present capacity, and for half as many after each failure for want of
    /// memory.
    fn for_any_capacity<T>(&mut self, make: impl Fn(&GpuSmallFitter) -> Result<T>) -> Result<T> {
        let mut made = make(self);
        while self.capacity > PART && matches!(made, Err(Error::OutOfMemory { .. })) {
            self.capacity = (self.capacity / 2).next_multiple_of(PART);
            made = make(self);
        }
        made
    }

    /// Begins some parts, as many as the buffers hold at most, sends their fits to the device, and lets it make them.
    fn launch(&self, parts: &dyn SmallParts, some: Range<usize>, place: usize) -> Result<Launch> {
        let Some(Ready { kernel, places }) = &self.ready else {
            return Ok(shape_of(parts, some).map_or(Launch::Nothing, Launch::Needs));
        };
        let (context, compiled, fits) =
            (&self.context, kernel.packing.shape, fits_of(parts, &some));
        match kernel.send(&places[place], parts, some.clone(), Sent::All)? {
            None => {
                // the memory from which nothing is to be copied goes with a submission
                context.flush();
                return Ok(Launch::Nothing);
            }
            Some(shape) if shape.union(compiled) != compiled => {
                return Ok(Launch::Needs(shape.union(compiled)));
            }
            Some(_) => {}
        }
        let mut encoder = context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        kernel.fit(&mut encoder, &places[place], fits);
        kernel.copy_back(&mut encoder, &places[place], fits);
        Ok(Launch::Submitted(Flight {
            place,
            parts: some,
            submission: context.submit(encoder),
        }))
    }

    /// Waits for parts whose fits the device makes, copies their results to their columns, and ends them.
    fn land(&self, parts: &dyn SmallParts, flight: Flight) -> Result<()> {
        let Some(Ready { kernel, places }) = &self.ready else {
            return Ok(());
        };
        kernel.land(
            &places[flight.place],
            parts,
            flight.parts,
            flight.submission,
        )
    }
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
                    let ready = self.for_any_capacity(|fitter| fitter.make_ready(shape))?;
                    ready.kernel.send_grid(parts, some);
                    self.ready = Some(ready);
                    continue;
                }
            }
            first = some.end;
        }
        flight.map_or(Ok(()), |last| self.land(parts, last))
    }

    fn upload(
        mut self: Box<Self>,
        parts: &dyn SmallParts,
    ) -> Result<Option<Box<dyn UploadedFits>>> {
        self.capacity = self.capacity.min(parts.count().max(1) * PART);
        let uploaded = self.for_any_capacity(|fitter| {
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
