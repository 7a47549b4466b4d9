//! Times of kernels on the device's own clock, and the number of members in every round.

use web_time::Instant;

use super::buffers::{self, Buffers};
use super::commands::Round;
use super::context::GpuContext;
use super::layout::LIST_HEADER_WORDS;
use super::pipelines::Pipeline;
use super::readback;
use crate::error::Result;

/// Maximum number of rounds per submission.
const MAX_ROUNDS_PER_SUBMISSION: usize = 16;
/// 32-bit words of a kernel's two timestamps.
const WORDS_PER_KERNEL: usize = 4;

/// Measurement of a submission of rounds: one pass per kernel, with timestamps around it where the device has them.
#[derive(Debug)]
pub(super) struct Timing {
    queries: Option<Queries>,
    /// Timestamps, then the header of the list of members after each round.
    readback: wgpu::Buffer,
    kernels: usize,
    /// Maximum number of rounds per submission.
    pub rounds: usize,
}

/// Timestamp queries, and the buffer into which they are resolved.
#[derive(Debug)]
struct Queries {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    /// Seconds per tick of the device's clock.
    tick: f64,
}

/// Measured times of one round.
pub(super) struct RoundTiming {
    /// By kernel; zero without timestamps.
    pub seconds: Vec<f64>,
    /// Number of members that take part in the next one, and of those that are active.
    pub header: [u32; LIST_HEADER_WORDS],
}

impl Queries {
    /// Returns where the times of a pass's beginning and end are written: query `first`, and the one after it.
    fn timestamp_writes(&self, first: u32) -> wgpu::ComputePassTimestampWrites<'_> {
        wgpu::ComputePassTimestampWrites {
            query_set: &self.set,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        }
    }
}

impl Timing {
    /// Prepares to time each kernel, by timestamps if the device has them, with as many rounds a submission as fit.
    pub fn new(context: &GpuContext, round: &Round) -> Result<Timing> {
        let kernels = round.all_kernels().count();
        let rounds = (wgpu::QUERY_SET_MAX_QUERIES as usize / (2 * kernels))
            .clamp(1, MAX_ROUNDS_PER_SUBMISSION);
        let count = 2 * kernels * rounds;
        let has_queries = context.has_timestamps() && count <= wgpu::QUERY_SET_MAX_QUERIES as usize;
        context.catch_errors(|| {
            let queries = has_queries.then(|| {
                let kind = wgpu::QueryType::Timestamp;
                let set = wgpu::QuerySetDescriptor {
                    label: Some("times"),
                    ty: kind,
                    count: count as u32,
                };
                let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
                Queries {
                    set: context.device.create_query_set(&set),
                    resolved: buffers::create_buffer(context, "times", 2 * count, usage),
                    tick: 1e-9 * f64::from(context.queue.get_timestamp_period()),
                }
            });
            Ok(Timing {
                queries,
                readback: buffers::create_readback(context, 2 * count + LIST_HEADER_WORDS * rounds),
                kernels,
                rounds,
            })
        })
    }

    /// Returns whether the device has timestamps, so that kernels are timed.
    pub fn has_times(&self) -> bool {
        self.queries.is_some()
    }

    /// Runs `rounds` rounds, at most [`rounds`](Self::rounds), and returns each one's seconds and numbers of active
    /// members.
    pub async fn time_kernels(
        &self,
        context: &GpuContext,
        buffers: &Buffers,
        round: &Round,
        rounds: usize,
    ) -> Result<Vec<RoundTiming>> {
        let mut encoder = context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let timestamp_bytes = 8 * (2 * self.kernels * rounds) as u64;
        // 1. Record each kernel in a pass of its own, and after each round the copy of the list's header.
        for r in 0..rounds {
            for (k, pipeline) in round.all_kernels().enumerate() {
                self.record_timed_kernel(&mut encoder, buffers, r * self.kernels + k, k, pipeline);
            }
            let header_offset = timestamp_bytes + (4 * LIST_HEADER_WORDS * r) as u64;
            context.record_buffer_copy(
                &mut encoder,
                &buffers.members,
                &self.readback,
                header_offset,
                4 * LIST_HEADER_WORDS as u64,
            );
        }
        // 2. Copy the timestamps before the headers.
        if let Some(Queries { set, resolved, .. }) = &self.queries {
            encoder.resolve_query_set(set, 0..(2 * self.kernels * rounds) as u32, resolved, 0);
            context.record_buffer_copy(&mut encoder, resolved, &self.readback, 0, timestamp_bytes);
        }
        context.counts.add_pass(&round.count_pass(rounds as u32));
        let submission = context.submit(encoder);
        let elements = (timestamp_bytes / 4) as usize + LIST_HEADER_WORDS * rounds;
        let words = readback::read_mapped(context, &self.readback, elements, submission).await?;
        Ok(self.convert_times(&words, rounds))
    }

    /// Runs `rounds` rounds in one pass, without `compact`, so that the same members take part in all of them, and
    /// without the kernel of number `left_out`; returns the seconds of a round. They are the device's, or, without
    /// timestamps, those from the submission to its end.
    pub async fn time_rounds(
        &self,
        context: &GpuContext,
        buffers: &Buffers,
        round: &Round,
        rounds: u32,
        left_out: Option<usize>,
    ) -> Result<f64> {
        let mut encoder = context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let timestamp_writes = self
            .queries
            .as_ref()
            .map(|queries| queries.timestamp_writes(0));
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes,
        });
        for _ in 0..rounds {
            for (k, pipeline) in round
                .sized_kernels()
                .enumerate()
                .filter(|(k, _)| Some(*k) != left_out)
            {
                pass.set_pipeline(&pipeline.pipeline);
                pass.set_bind_group(0, &pipeline.bind_group, &[]);
                pass.dispatch_workgroups_indirect(&buffers.arguments, 12 * k as u64);
            }
        }
        drop(pass);
        if let Some(Queries { set, resolved, .. }) = &self.queries {
            encoder.resolve_query_set(set, 0..2, resolved, 0);
            context.record_buffer_copy(
                &mut encoder,
                resolved,
                &self.readback,
                0,
                4 * WORDS_PER_KERNEL as u64,
            );
        }
        let begin = Instant::now();
        let submission = context.submit(encoder);
        let words: Vec<u32> =
            readback::read_mapped(context, &self.readback, WORDS_PER_KERNEL, submission).await?;
        let seconds = if self.has_times() {
            self.seconds_between(&words)
        } else {
            begin.elapsed().as_secs_f64()
        };
        Ok(seconds / f64::from(rounds))
    }

    /// Converts the words of two timestamps to the seconds between them; 0 without timestamps.
    fn seconds_between(&self, words: &[u32]) -> f64 {
        let ticks = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let begin = ticks(words[0], words[1]);
        let elapsed = ticks(words[2], words[3]).saturating_sub(begin);
        self.queries
            .as_ref()
            .map_or(0.0, |queries| elapsed as f64 * queries.tick)
    }

    /// Records one kernel in a compute pass of its own, with timestamps at its beginning and end. It is the `number`-th
    /// dispatch of the submission and the `kernel`-th of its round, both counted from 0.
    fn record_timed_kernel(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        buffers: &Buffers,
        number: usize,
        kernel: usize,
        pipeline: &Pipeline,
    ) {
        let timestamp_writes = self
            .queries
            .as_ref()
            .map(|queries| queries.timestamp_writes(2 * number as u32));
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes,
        });
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, &pipeline.bind_group, &[]);
        if kernel + 1 == self.kernels {
            pass.dispatch_workgroups(1, 1, 1);
        } else {
            pass.dispatch_workgroups_indirect(&buffers.arguments, 12 * kernel as u64);
        }
    }

    /// Converts the words read back (timestamps, then numbers of active members of each round) to seconds and numbers.
    fn convert_times(&self, words: &[u32], rounds: usize) -> Vec<RoundTiming> {
        let (times, headers) = words.split_at(WORDS_PER_KERNEL * self.kernels * rounds);
        times
            .chunks_exact(WORDS_PER_KERNEL * self.kernels)
            .zip(headers.as_chunks::<LIST_HEADER_WORDS>().0)
            .map(|(round_times, header)| RoundTiming {
                seconds: round_times
                    .chunks_exact(WORDS_PER_KERNEL)
                    .map(|timestamps| self.seconds_between(timestamps))
                    .collect(),
                header: *header,
            })
            .collect()
    }
}
