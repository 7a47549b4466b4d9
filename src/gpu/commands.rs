//! Command buffers: rounds of dispatches sized by `compact`, in one pass.

use super::buffers::Buffers;
use super::context::GpuContext;
use super::counts::PassCount;
use super::pipelines::Pipeline;
use crate::solver::member::Active;

/// The pipelines of a round, in order.
#[derive(Debug)]
pub(super) struct Round {
    pub stages: Vec<Pipeline>,
    /// Kernels that move the members: `step` and `halve`.
    pub moves: Vec<Pipeline>,
    pub compact: Pipeline,
}

impl Round {
    /// Returns the kernels whose numbers of workgroups are read from a device buffer: stages, and those that move
    /// members.
    pub fn sized_kernels(&self) -> impl Iterator<Item = &Pipeline> {
        self.stages.iter().chain(&self.moves)
    }

    /// Returns all kernels of a round in their order, `compact` last.
    pub fn all_kernels(&self) -> impl Iterator<Item = &Pipeline> {
        self.sized_kernels().chain([&self.compact])
    }

    /// Returns the numbers of workgroups (x, y, z) of all sized kernels of a round with so many active members.
    pub fn workgroup_counts(&self, active: Active) -> Vec<u32> {
        self.sized_kernels()
            .flat_map(|kernel| {
                let dispatch = kernel.dispatch;
                let members = if dispatch.of_all {
                    active.all
                } else {
                    active.taking_part
                };
                [dispatch.x(members), dispatch.y, dispatch.z]
            })
            .collect()
    }

    /// Returns the dispatches of `rounds` rounds in one pass, to be counted.
    pub fn count_pass(&self, rounds: u32) -> PassCount {
        let mut pass_count = PassCount::default();
        for _ in 0..rounds {
            for kernel in self.sized_kernels() {
                pass_count.count_dispatch(&kernel.uses, true);
            }
            pass_count.count_dispatch(&self.compact.uses, false);
        }
        pass_count
    }

    /// Records all kernels of `rounds` rounds into a new command encoder, which it returns.
    pub fn record_rounds(
        &self,
        context: &GpuContext,
        buffers: &Buffers,
        rounds: u32,
    ) -> wgpu::CommandEncoder {
        let mut encoder = context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for _ in 0..rounds {
            dispatch_sized(&mut pass, self.sized_kernels(), buffers);
            pass.set_pipeline(&self.compact.pipeline);
            pass.set_bind_group(0, &self.compact.bind_group, &[]);
            pass.dispatch_workgroups(1, 1, 1);
        }
        drop(pass);
        context.counts.add_pass(&self.count_pass(rounds));
        encoder
    }

    /// Returns commands that run the stages once, without the kernels that move members.
    pub fn record_stages(&self, context: &GpuContext, buffers: &Buffers) -> wgpu::CommandEncoder {
        let mut encoder = context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        dispatch_sized(&mut pass, self.stages.iter(), buffers);
        drop(pass);
        encoder
    }

    /// Returns commands that run the first kernel that moves members, for `members` of them.
    #[cfg(test)]
    pub fn record_step(&self, context: &GpuContext, members: u32) -> wgpu::CommandEncoder {
        let step = &self.moves[0];
        record_alone(
            context,
            step,
            [step.dispatch.x(members as usize), step.dispatch.y],
        )
    }
}

/// Returns commands that run one kernel with so many workgroups along x and y.
pub(super) fn record_alone(
    context: &GpuContext,
    kernel: &Pipeline,
    [x, y]: [u32; 2],
) -> wgpu::CommandEncoder {
    let mut encoder = context
        .device
        .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&kernel.pipeline);
    pass.set_bind_group(0, &kernel.bind_group, &[]);
    pass.dispatch_workgroups(x, y, 1);
    drop(pass);
    let mut pass_count = PassCount::default();
    pass_count.count_dispatch(&kernel.uses, false);
    context.counts.add_pass(&pass_count);
    encoder
}

/// Records kernels that read their numbers of workgroups from the buffer of arguments when they run.
fn dispatch_sized<'a>(
    pass: &mut wgpu::ComputePass<'_>,
    pipelines: impl Iterator<Item = &'a Pipeline>,
    buffers: &Buffers,
) {
    for (i, pipeline) in pipelines.enumerate() {
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, &pipeline.bind_group, &[]);
        pass.dispatch_workgroups_indirect(&buffers.arguments, 12 * i as u64);
    }
}
