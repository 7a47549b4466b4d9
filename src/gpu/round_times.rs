//! Times of a round on a GPU and of its kernels, as they follow one another in a run. A kernel's time is what a round
//! without it saves.

use std::sync::Arc;

use super::GpuDevice;
use super::population::GpuPopulation;
use super::timing::Timing;
use crate::error::Result;
use crate::recording::Recording;
use crate::solver::{Batch, LevenbergMarquardt, Population as _};

/// Number of measurements of a time, of which the shortest counts.
const MEASUREMENTS_PER_TIME: usize = 2;

/// Time of a round of members that all take part in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RoundTimes {
    /// Seconds of a round, without the kernel that lists its members.
    pub seconds: f64,
    /// Name of each kernel's file in `shaders/`, and the seconds that a round without it saves.
    pub kernels: Vec<(&'static str, f64)>,
}

impl GpuDevice {
    /// Returns the time of a round of a batch's members, on the device's clock where it has one, as the mean of some
    /// `rounds` in one pass.
    ///
    /// # Errors
    /// Returns the errors of a population, and of the device.
    pub fn round_times(
        &self,
        recording: Arc<Recording>,
        settings: &LevenbergMarquardt,
        batch: &Batch,
        rounds: u32,
    ) -> Result<RoundTimes> {
        let context = self.context_of(&recording);
        let mut population = GpuPopulation::new(context, recording, settings, batch.members())?;
        pollster::block_on(population.load(batch))?;
        let stems: Vec<&'static str> = population
            .round
            .sized_kernels()
            .map(|kernel| kernel.stem)
            .collect();
        let timing = Timing::new(&population.context, &population.round)?;
        let mut measure_round = |left_out| -> Result<f64> {
            let mut shortest = f64::INFINITY;
            for _ in 0..MEASUREMENTS_PER_TIME {
                // Load the members again, because they have moved.
                pollster::block_on(population.load(batch))?;
                population.write_list();
                population.context.submit_writes();
                population.context.wait_for(None, None)?;
                let GpuPopulation {
                    context,
                    buffers,
                    round,
                    ..
                } = &population;
                let seconds = pollster::block_on(
                    timing.time_rounds(context, buffers, round, rounds, left_out),
                )?;
                shortest = shortest.min(seconds);
            }
            Ok(shortest)
        };
        let seconds = measure_round(None)?;
        let mut kernels = Vec::with_capacity(stems.len());
        for (k, stem) in stems.into_iter().enumerate() {
            kernels.push((stem, seconds - measure_round(Some(k))?));
        }
        Ok(RoundTimes { seconds, kernels })
    }
}
