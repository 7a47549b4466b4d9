//! Where a run's time goes.

use std::time::Duration;

use web_time::Instant;

/// What a run does with a batch, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Read,
    Prepare,
    FirstGuess,
    Fit,
    Finish,
    Posterior,
    Write,
}

const NAMES: [&str; 7] = ["read", "prepare", "first guess", "fit", "finish", "posterior", "write"];

/// Time by stage.
#[derive(Clone, Debug, Default)]
pub struct Stages([Duration; NAMES.len()]);

impl Stages {
    /// Runs `work` and adds its time.
    pub fn time<T>(&mut self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let out = work();
        self.spent(stage, begin);
        out
    }

    /// Adds the time since `begin`.
    pub fn spent(&mut self, stage: Stage, begin: Instant) {
        self.0[stage as usize] += begin.elapsed();
    }

    pub fn add(&mut self, other: &Stages) {
        self.0.iter_mut().zip(other.0).for_each(|(time, more)| *time += more);
    }

    pub fn list(&self) -> Vec<(String, Duration)> {
        NAMES.iter().zip(self.0).map(|(name, time)| (name.to_string(), time)).collect()
    }
}
