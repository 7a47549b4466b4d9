//! Small fits whose data stay on a GPU, and whose results stay there until they are read.

use std::ops::Range;
use std::sync::Arc;

use super::super::context::Context;
use super::kernel::{Place, Sent, SmallKernel, fits_of, shape_of};
use crate::error::Result;
use crate::solver::small::{SmallParts, SmallProblem, UploadedFits};

/// Fits of which a GPU has all rows.
#[derive(Debug)]
pub(super) struct GpuUploadedFits {
    context: Arc<Context>,
    kernel: SmallKernel,
    places: Vec<Held>,
}

/// Fits of some parts, and their place.
#[derive(Debug)]
struct Held {
    place: Place,
    parts: Range<usize>,
    fits: usize,
}

impl GpuUploadedFits {
    /// Sends all fits of all parts to the GPU, `capacity` to a place; `None` if there are none.
    pub fn new(
        context: Arc<Context>,
        problem: &SmallProblem,
        capacity: usize,
        parts: &dyn SmallParts,
    ) -> Result<Option<GpuUploadedFits>> {
        let Some(shape) = shape_of(parts, 0..parts.count()) else {
            return Ok(None);
        };
        let kernel = SmallKernel::new(context.clone(), problem, shape, capacity)?;
        kernel.send_grid(parts, 0..parts.count());
        let mut places = Vec::new();
        for first in (0..parts.count()).step_by(kernel.parts_per_place()) {
            let some = first..(first + kernel.parts_per_place()).min(parts.count());
            let place = kernel.place()?;
            kernel.send(&place, parts, some.clone(), Sent::All)?;
            // the device copies these rows while the next ones are packed
            context.flush();
            places.push(Held {
                place,
                fits: fits_of(parts, &some),
                parts: some,
            });
        }
        context.check()?;
        Ok(Some(GpuUploadedFits {
            context,
            kernel,
            places,
        }))
    }

    /// Submits one command for each place, and returns by what to wait for them.
    fn submit(
        &self,
        command: impl Fn(&mut wgpu::CommandEncoder, &Held),
    ) -> Vec<wgpu::SubmissionIndex> {
        let submit = |held: &Held| {
            let mut encoder = self
                .context
                .device
                .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            command(&mut encoder, held);
            self.context.submit(encoder)
        };
        self.places.iter().map(submit).collect()
    }
}

impl UploadedFits for GpuUploadedFits {
    fn restart(&mut self, parts: &dyn SmallParts) -> Result<bool> {
        let compiled = self.kernel.packing.shape;
        for held in &self.places {
            let shape = self
                .kernel
                .send(&held.place, parts, held.parts.clone(), Sent::Given)?;
            self.context.flush();
            if shape.is_some_and(|shape| shape.union(compiled) != compiled) {
                return Ok(false);
            }
        }
        self.context.check()?;
        Ok(true)
    }

    fn fit(&mut self) -> Result<()> {
        // each place by itself, so that the time limit of an answer is that of one
        let submissions =
            self.submit(|encoder, held| self.kernel.fit(encoder, &held.place, held.fits));
        submissions
            .into_iter()
            .try_for_each(|submission| self.context.wait(Some(submission), None))
    }

    fn read(&mut self, parts: &dyn SmallParts) -> Result<()> {
        let submissions =
            self.submit(|encoder, held| self.kernel.copy_back(encoder, &held.place, held.fits));
        let landing = self.places.iter().zip(submissions);
        landing.into_iter().try_for_each(
            |(
                Held {
                    place, parts: some, ..
                },
                submission,
            )| { self.kernel.land(place, parts, some.clone(), submission) },
        )
    }
}
