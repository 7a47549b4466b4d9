//! Stages of a run, and the time that each takes.

use std::time::Duration;

use web_time::Instant;

/// Stages in which a run works on a batch, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Read,
    Prepare,
    FirstGuess,
    Fit,
    Finish,
    Posterior,
    Hash,
    Write,
}

pub const NAMES: [&str; 8] = ["read", "prepare", "first guess", "fit", "finish", "posterior", "hash", "write"];

/// One stage of one batch.
#[derive(Clone, Debug)]
pub struct Span {
    pub stage: &'static str,
    pub batch: usize,
    /// Since the run began.
    pub begin: Duration,
    pub time: Duration,
    /// Moved in it, where that is known.
    pub bytes: u64,
}

/// Spans since a time.
#[derive(Clone, Debug)]
struct Trace {
    begin: Instant,
    spans: Vec<Span>,
}

/// Time by stage, of one thread.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    times: [Duration; NAMES.len()],
    /// The batch that is in hand.
    pub batch: usize,
    trace: Option<Trace>,
}

impl Stages {
    /// Keeps every span, too, where a run's `begin` is given.
    pub fn since(begin: Option<Instant>) -> Stages {
        Stages { trace: begin.map(|begin| Trace { begin, spans: Vec::new() }), ..Stages::default() }
    }

    /// Runs `work` and adds its time.
    pub fn time<T>(&mut self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let out = work();
        self.spent(stage, begin);
        out
    }

    /// Adds the time since `begin`.
    pub fn spent(&mut self, stage: Stage, begin: Instant) {
        let time = begin.elapsed();
        self.times[stage as usize] += time;
        if let Some(trace) = &mut self.trace {
            let begin = begin.duration_since(trace.begin);
            trace.spans.push(Span { stage: NAMES[stage as usize], batch: self.batch, begin, time, bytes: 0 });
        }
    }

    /// The last span has moved so many bytes.
    pub fn moved(&mut self, bytes: usize) {
        let last = self.trace.as_mut().and_then(|trace| trace.spans.last_mut());
        last.into_iter().for_each(|span| span.bytes += bytes as u64);
    }

    pub fn add(&mut self, other: &Stages) {
        self.times.iter_mut().zip(other.times).for_each(|(time, more)| *time += more);
    }

    pub fn list(&self) -> Vec<(String, Duration)> {
        NAMES.iter().zip(self.times).map(|(name, time)| (name.to_string(), time)).collect()
    }

    /// Returns the spans in the order in which they ended.
    pub fn spans(&self) -> &[Span] {
        self.trace.as_ref().map_or(&[], |trace| &trace.spans)
    }
}
