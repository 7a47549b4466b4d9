//! The loop of rounds: one batch of members from their starts to their ends, on any device.

use std::sync::atomic::{AtomicBool, Ordering};

use super::device::{Batch, Outcome, Population};
use super::status::Status;
use crate::error::Result;

/// Rounds between two looks at the number of active members: the host waits only then.
const ROUNDS_A_SUBMISSION: u32 = 4;

/// Sums at the starts of the batch: one round, no step taken.
pub async fn linearise(population: &mut dyn Population, batch: &Batch) -> Result<Vec<Outcome>> {
    population.load(batch).await?;
    population.advance(1).await?;
    population.read().await
}

/// Fits the batch; members that are still active when `cancel` is set end as [`Status::Interrupted`]. `watch` is told how many
/// members are active, after every submission.
pub async fn optimise(
    population: &mut dyn Population,
    batch: &Batch,
    cancel: &AtomicBool,
    watch: &mut dyn FnMut(usize),
) -> Result<Vec<Outcome>> {
    population.load(batch).await?;
    let mut active = batch.members();
    while active > 0 && !cancel.load(Ordering::Relaxed) {
        active = population.advance(ROUNDS_A_SUBMISSION).await?;
        watch(active);
    }
    let mut outcomes = population.read().await?;
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.gave_way.is_none()) {
        outcome.status.get_or_insert(Status::Interrupted);
    }
    Ok(outcomes)
}
