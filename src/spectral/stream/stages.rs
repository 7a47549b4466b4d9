//! Stages of a run, and the time that each takes.

use std::time::Duration;

use web_time::Instant;

/// A stage of the work on a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchStage {
    Read,
    Prepare,
    FirstGuess,
    Fit,
    Finish,
    Posterior,
    Hash,
    Write,
}

/// Names of the stages in their order.
pub const STAGE_NAMES: [&str; 8] = [
    "read",
    "prepare",
    "first guess",
    "fit",
    "finish",
    "posterior",
    "hash",
    "write",
];

/// One stage of one batch in the trace of a run.
#[derive(Clone, Debug)]
pub struct Span {
    pub stage: &'static str,
    /// Index of the batch.
    pub batch: usize,
    /// Time since the run began.
    pub begin: Duration,
    pub time: Duration,
    /// Bytes that were read or hashed; 0 for other stages.
    pub bytes: u64,
}

/// The spans of one thread since a time.
#[derive(Clone, Debug)]
struct Trace {
    begin: Instant,
    spans: Vec<Span>,
}

/// The time that one thread spent in each stage.
#[derive(Clone, Debug, Default)]
pub struct StageTimes {
    times: [Duration; STAGE_NAMES.len()],
    /// Index of the current batch.
    pub batch: usize,
    trace: Option<Trace>,
}

impl StageTimes {
    /// Returns times of zero. With a `begin`, each span is recorded, too, with its time since then.
    pub fn recording_since(begin: Option<Instant>) -> StageTimes {
        StageTimes {
            trace: begin.map(|begin| Trace {
                begin,
                spans: Vec::new(),
            }),
            ..StageTimes::default()
        }
    }

    /// Runs `work`, adds the time that it took to a stage, and returns its result.
    pub fn time<T>(&mut self, stage: BatchStage, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = work();
        self.add_time_since(stage, begin);
        result
    }

    /// Adds the time since `begin` to a stage, and records its span if spans are recorded.
    pub fn add_time_since(&mut self, stage: BatchStage, begin: Instant) {
        let time = begin.elapsed();
        self.times[stage as usize] += time;
        if let Some(trace) = &mut self.trace {
            let begin = begin.duration_since(trace.begin);
            trace.spans.push(Span {
                stage: STAGE_NAMES[stage as usize],
                batch: self.batch,
                begin,
                time,
                bytes: 0,
            });
        }
    }

    /// Adds a number of bytes to the span that was recorded last, if any.
    pub fn add_bytes(&mut self, bytes: usize) {
        let trace = self.trace.as_mut();
        if let Some(span) = trace.and_then(|trace| trace.spans.last_mut()) {
            span.bytes += bytes as u64;
        }
    }

    /// Adds the times that another thread spent in each stage to these.
    pub fn add_times_of(&mut self, other: &StageTimes) {
        for (time, other_time) in self.times.iter_mut().zip(other.times) {
            *time += other_time;
        }
    }

    /// Returns the name of each stage and the time spent in it.
    pub fn list(&self) -> Vec<(String, Duration)> {
        STAGE_NAMES
            .iter()
            .zip(self.times)
            .map(|(name, time)| (name.to_string(), time))
            .collect()
    }

    /// Returns the recorded spans in the order in which they ended; none if they are not recorded.
    pub fn spans(&self) -> &[Span] {
        self.trace.as_ref().map_or(&[], |trace| &trace.spans)
    }
}
