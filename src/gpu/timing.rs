//! Times of kernels on the device's own clock, and the members of every round.

use web_time::Instant;

use super::buffers::{self, Buffers};
use super::commands::Round;
use super::context::Context;
use super::layout::HEAD;
use super::pipelines::Pipeline;
use super::readback;
use crate::error::Result;

/// Most rounds of a submission.
const ROUNDS: usize = 16;
/// 32-bit words of a kernel's two timestamps.
const WORDS: usize = 4;

/// Measurement of a submission of rounds: one pass per kernel, with timestamps around it where the device has them.
#[derive(Debug)]
pub(super) struct Timing {
    queries: Option<Queries>,
    /// Timestamps, then the head of the list of members a round.
    readback: wgpu::Buffer,
    kernels: usize,
    /// Maximum number of rounds of a submission.
    pub rounds: usize,
}

#[derive(Debug)]
struct Queries {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    /// Seconds of a tick.
    tick: f64,
}

/// Measured times of one round.
pub(super) struct Measured {
    /// By kernel; zero where the device does not tell.
    pub seconds: Vec<f64>,
    /// Number of members that take part in the next one, and of those that are active.
    pub head: [u32; HEAD],
}

impl Queries {
    /// Returns where the times of a pass's beginning and end are written: query `first`, and the one after it.
    fn writes(&self, first: u32) -> wgpu::ComputePassTimestampWrites<'_> {
        wgpu::ComputePassTimestampWrites {
            query_set: &self.set,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        }
    }
}

impl Timing {
    /// Prepares to time each kernel, by timestamps if the device has them, with as many rounds a submission as fit.
    pub fn new(context: &Context, round: &Round) -> Result<Timing> {
        let kernels = round.all().count();
        let rounds = (wgpu::QUERY_SET_MAX_QUERIES as usize / (2 * kernels)).clamp(1, ROUNDS);
        let count = 2 * kernels * rounds;
        let is_told = context.has_timestamps() && count <= wgpu::QUERY_SET_MAX_QUERIES as usize;
        context.guarded(|| {
            let queries = is_told.then(|| {
                let kind = wgpu::QueryType::Timestamp;
                let set = wgpu::QuerySetDescriptor {
                    label: Some("times"),
                    ty: kind,
                    count: count as u32,
                };
                let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
                Queries {
                    set: context.device.create_query_set(&set),
                    resolved: buffers::create(context, "times", 2 * count, usage),
                    tick: 1e-9 * f64::from(context.queue.get_timestamp_period()),
                }
            });
            Ok(Timing {
                queries,
                readback: buffers::readback(context, 2 * count + HEAD * rounds),
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
    pub async fn run(
        &self,
        context: &Context,
        buffers: &Buffers,
        round: &Round,
        rounds: usize,
    ) -> Result<Vec<Measured>> {
        let mut encoder = context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let times = 8 * (2 * self.kernels * rounds) as u64;
        for r in 0..rounds {
            for (k, pipeline) in round.all().enumerate() {
                self.dispatch(&mut encoder, buffers, r * self.kernels + k, k, pipeline);
            }
            let place = times + (4 * HEAD * r) as u64;
            context.copy(
                &mut encoder,
                &buffers.members,
                &self.readback,
                place,
                4 * HEAD as u64,
            );
        }
        if let Some(Queries { set, resolved, .. }) = &self.queries {
            encoder.resolve_query_set(set, 0..(2 * self.kernels * rounds) as u32, resolved, 0);
            context.copy(&mut encoder, resolved, &self.readback, 0, times);
        }
        context.counts.add_pass(&round.pass(rounds as u32));
        let submission = context.submit(encoder);
        let elements = (times / 4) as usize + HEAD * rounds;
        let words = readback::read(context, &self.readback, elements, submission).await?;
        Ok(self.measured(&words, rounds))
    }

    /// Runs `rounds` rounds in one pass, without `compact`, so that the same members take part in all of them, and
    /// without the kernel of number `left_out`; returns the seconds of a round. They are the device's, or, without
    /// timestamps, those from the submission to its end.
    pub async fn time_rounds(
        &self,
        context: &Context,
        buffers: &Buffers,
        round: &Round,
        rounds: u32,
        left_out: Option<usize>,
    ) -> Result<f64> {
        let mut encoder = context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let timestamp_writes = self.queries.as_ref().map(|queries| queries.writes(0));
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes,
        });
        for _ in 0..rounds {
            for (k, pipeline) in round
                .sized()
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
            context.copy(&mut encoder, resolved, &self.readback, 0, 4 * WORDS as u64);
        }
        let begin = Instant::now();
        let submission = context.submit(encoder);
        let words: Vec<u32> = readback::read(context, &self.readback, WORDS, submission).await?;
        let seconds = if self.has_times() {
            self.seconds(&words)
        } else {
            begin.elapsed().as_secs_f64()
        };
        Ok(seconds / f64::from(rounds))
    }

    /// Converts the words of two timestamps to the seconds between them; 0 where the device does not tell.
    fn seconds(&self, words: &[u32]) -> f64 {
        let time = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let ticks = time(words[2], words[3]).saturating_sub(time(words[0], words[1]));
        self.queries
            .as_ref()
            .map_or(0.0, |queries| ticks as f64 * queries.tick)
    }

    /// Records one kernel in a compute pass of its own, with timestamps at its beginning and end. It is the `number`-th
    /// dispatch of the submission and the `kernel`-th of its round, both counted from 0.
    fn dispatch(
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
            .map(|queries| queries.writes(2 * number as u32));
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
    fn measured(&self, words: &[u32], rounds: usize) -> Vec<Measured> {
        let (times, heads) = words.split_at(WORDS * self.kernels * rounds);
        let seconds = |times: &[u32]| {
            times
                .chunks_exact(WORDS)
                .map(|pair| self.seconds(pair))
                .collect()
        };
        let rounds = times
            .chunks_exact(WORDS * self.kernels)
            .map(seconds)
            .zip(heads.as_chunks::<HEAD>().0);
        rounds
            .map(|(seconds, head)| Measured {
                seconds,
                head: *head,
            })
            .collect()
    }
}
