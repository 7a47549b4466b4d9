//! The loop of rounds, on any device: waiting spectra enter, rounds run, and what has ended leaves.
//!
//! A population has as many members as the device's memory (or `--memory`) allows, and no more than a batch has starts.
//! Where it has fewer, waiting spectra of the batch take the places that become free, after every submission in which
//! an eighth of the members ended. Batches do not share a population.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use web_time::Instant;

use super::device::{Batch, Outcome, Population};
use super::slots::Slots;
use super::status::Status;
use crate::error::{Error, Result};

/// Rounds between two looks at the number of active members: the host waits only then.
const ROUNDS_A_SUBMISSION: u32 = 4;
/// A slow device is looked at after every round: who cancels a run waits for a submission of each worker.
const SLOW: Duration = Duration::from_millis(500);
/// Places are filled anew when this share of a population has ended.
const REFILL: usize = 8;

/// A queue of spectra that wait for places, which also takes their outcomes.
pub trait Queue {
    /// Returns the next spectra, at most as many and with at most as many starts as asked for; `None` when none waits,
    /// or the next has more starts.
    fn next(&mut self, spectra: usize, starts: usize) -> Option<Batch>;

    /// Returns whether no spectrum waits.
    fn is_empty(&self) -> bool;

    /// Takes the outcomes, one per start, of the spectrum that entered as the `number`-th, from 0.
    fn end(&mut self, number: usize, outcomes: Vec<Outcome>);

    /// Receives the number of active members after every submission.
    fn watch(&mut self, _active: usize) {}
}

/// Fits all starts that the queue supplies, refilling free slots, until none is left or `cancel` is set. When `cancel`
/// is set, nothing enters any more, and members that are still active end as [`Status::Interrupted`].
pub async fn stream(population: &mut dyn Population, queue: &mut dyn Queue, cancel: &AtomicBool) -> Result<()> {
    population.clear();
    let mut slots = Slots::new(population.capacity());
    let mut rounds = ROUNDS_A_SUBMISSION;
    loop {
        let (spectra, starts) = slots.room();
        let cancelled = || cancel.load(Ordering::Relaxed);
        if !cancelled()
            && let Some(batch) = queue.next(spectra, starts)
        {
            let places = slots.enter(&batch);
            population.enter(&batch, &places).await?;
        }
        let open: Vec<usize> = slots.open().collect();
        if open.is_empty() {
            // the spectra's data are released
            population.clear();
            return Ok(());
        }
        let enough = if queue.is_empty() { open.len() } else { population.capacity().div_ceil(REFILL).min(open.len()) };
        let mut ended = 0;
        while ended < enough && !cancelled() {
            let begin = Instant::now();
            let active = population.advance(rounds).await?;
            rounds = if begin.elapsed() > SLOW { 1 } else { ROUNDS_A_SUBMISSION };
            queue.watch(active);
            ended = open.len() - active.div_ceil(population.lanes());
        }
        leave(population, queue, &mut slots, open, cancelled()).await?;
    }
}

/// Reads the outcomes of the starts that have ended and hands them to the queue; of all `open` ones when cancelled.
async fn leave(
    population: &mut dyn Population,
    queue: &mut dyn Queue,
    slots: &mut Slots,
    mut open: Vec<usize>,
    cancelled: bool,
) -> Result<()> {
    if !cancelled {
        let active = population.active().await?;
        open.retain(|slot| active.binary_search(slot).is_err());
    }
    let outcomes = population.read(&open).await?;
    for (slot, mut outcome) in open.into_iter().zip(outcomes) {
        if outcome.gave_way.is_none() {
            outcome.status.get_or_insert(Status::Interrupted);
        }
        if let Some((number, outcomes)) = slots.end(slot, outcome) {
            queue.end(number, outcomes);
        }
    }
    Ok(())
}

/// Returns cost, gradient and normal matrix at each start of a batch, by one round of the population.
pub async fn linearise(population: &mut dyn Population, batch: &Batch) -> Result<Vec<Outcome>> {
    population.load(batch).await?;
    population.advance(1).await?;
    population.read(&(0..batch.members()).collect::<Vec<_>>()).await
}

/// Fits a batch that the population has room for, an outcome for each start; none if `cancel` is set before. `watch` is
/// told how many members are active, after every submission.
pub async fn optimise(
    population: &mut dyn Population,
    batch: &Batch,
    cancel: &AtomicBool,
    watch: &mut dyn FnMut(usize),
) -> Result<Vec<Outcome>> {
    let capacity = population.capacity();
    if batch.members() > capacity || batch.spectra > capacity {
        let message = format!("{} starts of {} spectra in a population of {capacity}", batch.members(), batch.spectra);
        return Err(Error::Usage(message));
    }
    let mut queue = Whole { batch: Some(batch), outcomes: vec![Vec::new(); batch.spectra], watch };
    stream(population, &mut queue, cancel).await?;
    Ok(queue.outcomes.into_iter().flatten().collect())
}

/// A batch that enters as a whole.
struct Whole<'a> {
    batch: Option<&'a Batch>,
    outcomes: Vec<Vec<Outcome>>,
    watch: &'a mut dyn FnMut(usize),
}

impl Queue for Whole<'_> {
    fn next(&mut self, _spectra: usize, _starts: usize) -> Option<Batch> {
        self.batch.take().cloned()
    }

    fn is_empty(&self) -> bool {
        self.batch.is_none()
    }

    fn end(&mut self, number: usize, outcomes: Vec<Outcome>) {
        self.outcomes[number] = outcomes;
    }

    fn watch(&mut self, active: usize) {
        (self.watch)(active);
    }
}
