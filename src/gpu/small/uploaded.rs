//! Small fits whose data stay on a GPU, and whose results stay there until they are read.

use std::ops::Range;
use std::sync::Arc;

use super::super::context::GpuContext;
use super::kernel::{FitBuffers, SentRows, SmallKernel, begin_parts, count_fits};
use crate::error::Result;
use crate::solver::small::{SmallParts, SmallProblem, UploadedFits};

/// Fits whose rows are all on a GPU.
#[derive(Debug)]
pub(super) struct GpuUploadedFits {
    context: Arc<GpuContext>,
    kernel: SmallKernel,
    uploaded: Vec<UploadedParts>,
}

/// The fits of consecutive parts, and their buffers.
#[derive(Debug)]
struct UploadedParts {
    buffers: FitBuffers,
    parts: Range<usize>,
    fits: usize,
}

impl GpuUploadedFits {
    /// Sends all fits of all parts to the GPU, `capacity` per set of buffers; `None` if there are none.
    pub fn new(
        context: Arc<GpuContext>,
        problem: &SmallProblem,
        capacity: usize,
        parts: &dyn SmallParts,
    ) -> Result<Option<GpuUploadedFits>> {
        let Some(shape) = begin_parts(parts, 0..parts.count()) else {
            return Ok(None);
        };
        let kernel = SmallKernel::new(context.clone(), problem, shape, capacity)?;
        kernel.send_grid(parts, 0..parts.count());
        let mut uploaded = Vec::new();
        for first in (0..parts.count()).step_by(kernel.parts_per_buffers()) {
            let range = first..(first + kernel.parts_per_buffers()).min(parts.count());
            let buffers = kernel.create_buffers()?;
            kernel.send_fits(&buffers, parts, range.clone(), SentRows::All)?;
            // Let the device copy these rows while the next ones are packed.
            context.submit_writes();
            uploaded.push(UploadedParts {
                buffers,
                fits: count_fits(parts, &range),
                parts: range,
            });
        }
        context.check_health()?;
        Ok(Some(GpuUploadedFits {
            context,
            kernel,
            uploaded,
        }))
    }

    /// Submits the commands that `record` records for each set of buffers, and returns the submissions to wait for.
    fn submit_each(
        &self,
        record: impl Fn(&mut wgpu::CommandEncoder, &UploadedParts),
    ) -> Vec<wgpu::SubmissionIndex> {
        self.uploaded
            .iter()
            .map(|uploaded| {
                let mut encoder = self
                    .context
                    .device
                    .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                record(&mut encoder, uploaded);
                self.context.submit(encoder)
            })
            .collect()
    }
}

impl UploadedFits for GpuUploadedFits {
    fn restart(&mut self, parts: &dyn SmallParts) -> Result<bool> {
        let compiled = self.kernel.packing.shape;
        for uploaded in &self.uploaded {
            let shape = self.kernel.send_fits(
                &uploaded.buffers,
                parts,
                uploaded.parts.clone(),
                SentRows::Given,
            )?;
            self.context.submit_writes();
            if shape.is_some_and(|shape| shape.union(compiled) != compiled) {
                return Ok(false);
            }
        }
        self.context.check_health()?;
        Ok(true)
    }

    fn fit(&mut self) -> Result<()> {
        // Each set of buffers has a submission of its own, so that the time limit is that of one.
        let submissions = self.submit_each(|encoder, uploaded| {
            self.kernel
                .record_fits(encoder, &uploaded.buffers, uploaded.fits)
        });
        submissions
            .into_iter()
            .try_for_each(|submission| self.context.wait_for(Some(submission), None))
    }

    fn read(&mut self, parts: &dyn SmallParts) -> Result<()> {
        let submissions = self.submit_each(|encoder, uploaded| {
            self.kernel
                .record_readback(encoder, &uploaded.buffers, uploaded.fits)
        });
        for (uploaded, submission) in self.uploaded.iter().zip(submissions) {
            self.kernel.receive_results(
                &uploaded.buffers,
                parts,
                uploaded.parts.clone(),
                submission,
            )?;
        }
        Ok(())
    }
}
