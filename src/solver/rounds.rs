//! The loop of rounds, on any device: waiting spectra enter, rounds run, and spectra that have ended leave.
//!
//! A population has as many members as the device's memory (or `--memory`) allows, and no more than the batches of its
//! workers have starts. Where it has fewer, waiting spectra take the places that become free, after every submission
//! in which an eighth of the members ended.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use web_time::Instant;

use super::backend::{Batch, Outcome, Population};
use super::slots::Slots;
use super::status::Status;
use crate::error::{Error, Result};

/// Number of rounds per submission. The host waits for the number of active members only at its end.
const ROUNDS_PER_SUBMISSION: u32 = 4;
/// Duration above which submissions have only one round: a user who cancels a run waits for a submission of each
/// worker.
const SLOW_SUBMISSION: Duration = Duration::from_millis(500);
/// Places are filled again when 1 / `REFILL_DIVISOR` of a population has ended.
const REFILL_DIVISOR: usize = 8;

/// A queue of spectra that wait for places, which also takes their outcomes.
pub trait Queue {
    /// Returns the next spectra, at most `spectra` with at most `starts` starts; `None` when none waits, or the next
    /// one has more starts.
    fn next(&mut self, spectra: usize, starts: usize) -> Option<Batch>;

    /// Returns whether no spectrum waits.
    fn is_empty(&self) -> bool;

    /// Takes the outcomes, one per start, of the spectrum that entered as the `number`-th, from 0. Returns the points
    /// at which its objective is to be evaluated next, no more than there were outcomes; it leaves if there are none.
    fn end(&mut self, number: usize, outcomes: Vec<Outcome>) -> Vec<Vec<f64>>;

    /// Receives the number of active members after every submission.
    fn watch(&mut self, _active: usize) {}

    /// Returns whether the outcomes of all spectra in flight are needed together, so that none is waited for alone.
    fn is_one_piece(&self) -> bool {
        true
    }
}

/// The spectra in flight in a population, and the places that they take.
pub struct Flight {
    slots: Slots,
    /// Spectra whose data are on the device, and whose starts wait for places.
    uploaded: VecDeque<UploadedBatch>,
    /// Number of spectra that the queue has supplied.
    supplied: usize,
    /// Number of rounds of the next submission.
    rounds: u32,
    /// All members in flight end in their first round.
    only_evaluates: bool,
}

/// Spectra on a device, without members.
#[derive(Default)]
struct UploadedBatch {
    batch: Batch,
    /// Places of the spectra.
    spectra: Vec<usize>,
    /// Numbers of the spectra, in the order in which the queue supplied them.
    numbers: Vec<usize>,
}

impl UploadedBatch {
    /// Adds a spectrum with points at which its objective is to be evaluated.
    fn add(&mut self, number: usize, spectrum: usize, points: &[Vec<f64>]) {
        let index = self.batch.spectra as u32;
        self.batch.group.extend(vec![index; points.len()]);
        self.batch.starts.extend(points.iter().flatten());
        self.batch.spectra += 1;
        self.batch.is_evaluation = true;
        self.spectra.push(spectrum);
        self.numbers.push(number);
    }
}

impl Flight {
    /// Returns the places of an empty population.
    pub fn new(population: &dyn Population) -> Flight {
        let slots = Slots::new(population.capacity(), population.spectra_capacity());
        Flight {
            slots,
            uploaded: VecDeque::new(),
            supplied: 0,
            rounds: ROUNDS_PER_SUBMISSION,
            only_evaluates: true,
        }
    }

    /// Returns whether no spectrum is in flight.
    pub fn is_empty(&self) -> bool {
        self.uploaded.is_empty() && self.slots.open().len() == 0
    }

    /// Lets waiting spectra enter, submits rounds once, and hands spectra that have ended to the queue, if they are
    /// enough. Returns false if nothing was in flight.
    pub async fn advance(
        &mut self,
        population: &mut dyn Population,
        queue: &mut dyn Queue,
    ) -> Result<bool> {
        // 1. Waiting spectra take the free places, first those whose data are on the device.
        self.enter_uploaded(population)?;
        while self.uploaded.is_empty()
            && self.upload_next(population, queue, self.slots.free_places())?
        {
            self.enter_uploaded(population)?;
        }
        let open = self.slots.open().len();
        if open == 0 {
            return Ok(false);
        }
        // 2. One submission. Meanwhile the data of spectra that will enter are copied, some at a time.
        let begin = Instant::now();
        let rounds = if self.only_evaluates { 1 } else { self.rounds };
        population.submit(rounds)?;
        let upload_limit = population.capacity().div_ceil(REFILL_DIVISOR);
        loop {
            let (free_spectra, _) = self.slots.free_places();
            let limits = (free_spectra.min(upload_limit), upload_limit);
            if !self.upload_next(population, queue, limits)? {
                break;
            }
        }
        let active = population.advance(rounds).await?;
        self.rounds = if begin.elapsed() > SLOW_SUBMISSION {
            1
        } else {
            ROUNDS_PER_SUBMISSION
        };
        let waiting: usize = self
            .uploaded
            .iter()
            .map(|uploaded| uploaded.batch.members())
            .sum();
        queue.watch(active + waiting);
        // 3. Starts that have ended leave, unless they are too few to be worth a readback.
        let nothing_waits = queue.is_empty() && self.uploaded.is_empty();
        let enough = match (nothing_waits, queue.is_one_piece()) {
            (true, true) => open,
            (true, false) => open.div_ceil(REFILL_DIVISOR),
            (false, _) => population.capacity().div_ceil(REFILL_DIVISOR).min(open),
        };
        let ended_count = open - active;
        if ended_count >= enough {
            let active_slots = population.active().await?;
            let ended_slots = self
                .slots
                .open()
                .filter(|slot| active_slots.binary_search(slot).is_err())
                .collect();
            self.remove_starts(population, queue, ended_slots).await?;
        }
        Ok(true)
    }

    /// Uploads the next spectra of the queue, at most so many and with at most so many starts; returns whether there
    /// were any.
    fn upload_next(
        &mut self,
        population: &mut dyn Population,
        queue: &mut dyn Queue,
        (spectra, starts): (usize, usize),
    ) -> Result<bool> {
        let Some(mut batch) = queue.next(spectra, starts) else {
            return Ok(false);
        };
        let spectra = self.slots.take_spectra(batch.spectra);
        population.upload(&batch, &spectra)?;
        batch.blocks.clear();
        let numbers = (self.supplied..self.supplied + batch.spectra).collect();
        self.supplied += batch.spectra;
        self.uploaded.push_back(UploadedBatch {
            batch,
            spectra,
            numbers,
        });
        Ok(true)
    }

    /// Makes members of the uploaded batches, as far as there are free places for their starts.
    fn enter_uploaded(&mut self, population: &mut dyn Population) -> Result<()> {
        while let Some(next) = self.uploaded.front() {
            let (_, free_starts) = self.slots.free_places();
            if next.batch.members() > free_starts {
                break;
            }
            let Some(next) = self.uploaded.pop_front() else {
                break;
            };
            let was_empty = self.slots.open().len() == 0;
            self.only_evaluates = next.batch.is_evaluation && (was_empty || self.only_evaluates);
            let places = self
                .slots
                .assign_starts(&next.batch, next.spectra, &next.numbers);
            population.enter_members(&next.batch, &places)?;
        }
        Ok(())
    }

    /// Hands all spectra in flight to the queue as they are, and clears the population. Members that are still active
    /// end as [`Status::Interrupted`].
    pub async fn interrupt(
        &mut self,
        population: &mut dyn Population,
        queue: &mut dyn Queue,
    ) -> Result<()> {
        let open: Vec<usize> = self.slots.open().collect();
        if !open.is_empty() {
            self.remove_starts(population, queue, open).await?;
        }
        for waiting in self.uploaded.drain(..) {
            self.slots.free_spectra(waiting.spectra);
        }
        population.clear();
        Ok(())
    }

    /// Reads the outcomes of the starts in these slots and hands those of whole spectra to the queue. Spectra of which
    /// it wants more evaluations stay on the device, and enter before all others.
    async fn remove_starts(
        &mut self,
        population: &mut dyn Population,
        queue: &mut dyn Queue,
        slots: Vec<usize>,
    ) -> Result<()> {
        let outcomes = population.read(&slots).await?;
        let mut again = UploadedBatch::default();
        for (slot, mut outcome) in slots.into_iter().zip(outcomes) {
            if outcome.gave_way.is_none() {
                outcome.status.get_or_insert(Status::Interrupted);
            }
            if let Some(ended) = self.slots.record_outcome(slot, outcome) {
                let points = queue.end(ended.number, ended.outcomes);
                if points.is_empty() {
                    self.slots.free_spectra(vec![ended.spectrum]);
                } else {
                    again.add(ended.number, ended.spectrum, &points);
                }
            }
        }
        if again.batch.spectra > 0 {
            self.uploaded.push_front(again);
        }
        Ok(())
    }
}

/// Fits all starts that the queue supplies, refilling free slots, until none is left or `cancel` is set. When `cancel`
/// is set, nothing enters any more, and members that are still active end as [`Status::Interrupted`].
pub async fn stream(
    population: &mut dyn Population,
    queue: &mut dyn Queue,
    cancel: &AtomicBool,
) -> Result<()> {
    population.clear();
    let mut flight = Flight::new(population);
    while !cancel.load(Ordering::Relaxed) && flight.advance(population, queue).await? {}
    flight.interrupt(population, queue).await
}

/// Returns cost, gradient and normal matrix at each start of a batch, by one round of the population.
pub async fn linearise(population: &mut dyn Population, batch: &Batch) -> Result<Vec<Outcome>> {
    population.load(batch).await?;
    population.advance(1).await?;
    population
        .read(&(0..batch.members()).collect::<Vec<_>>())
        .await
}

/// Fits a batch that the population has room for, and returns an outcome for each start; none if `cancel` is set
/// before. `watch` receives the number of active members after every submission.
pub async fn optimise(
    population: &mut dyn Population,
    batch: &Batch,
    cancel: &AtomicBool,
    watch: &mut dyn FnMut(usize),
) -> Result<Vec<Outcome>> {
    let capacity = population.capacity();
    if batch.members() > capacity || batch.spectra > capacity {
        let message = format!(
            "{} starts of {} spectra in a population of {capacity}",
            batch.members(),
            batch.spectra
        );
        return Err(Error::Usage(message));
    }
    let mut queue = SingleBatch {
        batch: Some(batch),
        outcomes: vec![Vec::new(); batch.spectra],
        watch,
    };
    stream(population, &mut queue, cancel).await?;
    Ok(queue.outcomes.into_iter().flatten().collect())
}

/// A queue of one batch, which enters as a whole.
struct SingleBatch<'a> {
    batch: Option<&'a Batch>,
    outcomes: Vec<Vec<Outcome>>,
    watch: &'a mut dyn FnMut(usize),
}

impl Queue for SingleBatch<'_> {
    fn next(&mut self, _spectra: usize, _starts: usize) -> Option<Batch> {
        self.batch.take().cloned()
    }

    fn is_empty(&self) -> bool {
        self.batch.is_none()
    }

    fn end(&mut self, number: usize, outcomes: Vec<Outcome>) -> Vec<Vec<f64>> {
        self.outcomes[number] = outcomes;
        Vec::new()
    }

    fn watch(&mut self, active: usize) {
        (self.watch)(active);
    }
}
