//! A population that the workers of a run share.
//!
//! Each fit of a batch ends with rounds in which few of its spectra are left. A GPU takes as long for such a round as
//! for one of many members, so the workers of a GPU share one population: their batches, and the probes and further
//! starts of these, fill each other's rounds. A worker puts its spectra in as a [`WaitingSpectra`] request. As long as
//! its request is not finished, it runs the population's rounds if no other worker does, and sleeps if one does. No
//! thread is needed for this. Populations of the CPU have one worker each.
//!
//! No bit of a fit depends on the other spectra in flight.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::device::retry::copy_failure;
use crate::error::{Error, Result};
use crate::model::Sampling;
use crate::solver::profile::Meter;
use crate::solver::{Batch, Flight, Outcome, Population, Queue};
use crate::spectral::search::waiting::{PassOutcomes, WaitingSpectra};

/// Number of submissions after which a waiting request counts as half as large, after twice as many as a third, and so
/// on.
const SUBMISSIONS_PER_HALVING: usize = 32;

/// A population, and the requests of the workers that share it.
pub struct SharedPopulation {
    /// Maximum number of starts in flight.
    pub capacity: usize,
    state: Mutex<State>,
    /// Notified after each submission.
    changed: Condvar,
}

/// The failure of a request.
pub struct RequestFailure {
    pub error: Error,
    /// The rounds that failed were run by this worker, and not by another one.
    pub is_own: bool,
}

/// The state that workers lock for a moment, never during rounds.
struct State {
    /// `None` while a worker runs its rounds.
    engine: Option<PopulationEngine>,
    /// Requests that the engine has not seen.
    arrived: Vec<FitRequest>,
    /// Upper limit of the number of members of each request that have not ended.
    remaining: BTreeMap<u64, usize>,
    finished: BTreeMap<u64, PassOutcomes>,
    /// The failure that ended the population.
    failure: Option<Error>,
    /// Some worker has seen that the run is cancelled.
    is_cancelled: bool,
    /// Number of the next request.
    next_number: u64,
    /// Meter that the population is to add its times to.
    meter: Option<Arc<Meter>>,
}

/// A population with the spectra that are in it.
struct PopulationEngine {
    population: Box<dyn Population>,
    flight: Flight,
    requests: RequestQueue,
    /// Meter that the population adds its times to.
    meter: Option<Arc<Meter>>,
}

/// A request of a worker to fit spectra.
struct FitRequest {
    number: u64,
    waiting: WaitingSpectra,
    /// Number of its spectra and of their starts in the population.
    spectra_in_flight: usize,
    starts_in_flight: usize,
}

/// The requests that are not finished, as the queue of a population.
#[derive(Default)]
struct RequestQueue {
    /// The requests in the order of their numbers.
    unfinished: Vec<FitRequest>,
    /// Number of the request of each spectrum in flight, and the spectrum's index there. The keys are the numbers of
    /// spectra that entered before.
    in_flight: BTreeMap<usize, (u64, usize)>,
    /// Number of spectra that have entered.
    entered_count: usize,
    /// Samplings of the spectra in flight.
    samplings: Vec<Option<Arc<Sampling>>>,
    /// Number of active members after the last submission.
    active_members: usize,
}

impl SharedPopulation {
    /// Makes a population ready for requests.
    pub fn new(population: Box<dyn Population>) -> SharedPopulation {
        let capacity = population.capacity();
        let flight = Flight::new(&*population);
        let engine = PopulationEngine {
            population,
            flight,
            requests: RequestQueue::default(),
            meter: None,
        };
        let state = State {
            engine: Some(engine),
            arrived: Vec::new(),
            remaining: BTreeMap::new(),
            finished: BTreeMap::new(),
            failure: None,
            is_cancelled: false,
            next_number: 0,
            meter: None,
        };
        SharedPopulation {
            capacity,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Fits the spectra of a request, or evaluates the objective at their starts, and returns the outcomes. `report`
    /// receives the number of the request's members that have not ended, after each submission.
    ///
    /// If `cancel` is set, all requests end, except evaluations: `cancel` is the flag of a run, to which all workers
    /// belong.
    ///
    /// # Errors
    /// Returns the failure of the device. All requests that are not finished then fail alike.
    pub fn complete_request(
        &self,
        waiting: WaitingSpectra,
        cancel: &AtomicBool,
        report: &mut dyn FnMut(usize),
    ) -> Result<PassOutcomes, RequestFailure> {
        if waiting.starts_left() == 0 {
            return Ok(waiting.finished);
        }
        let _guard = PanicGuard(self);
        let mut state = self.lock_state();
        let number = state.add_request(waiting);
        loop {
            // 1. Return if the request is finished, or if the population has failed.
            if let Some(finished) = state.finished.remove(&number) {
                drop(state);
                if !cancel.load(Ordering::Relaxed) {
                    report(0);
                }
                return Ok(finished);
            }
            if let Some(failure) = &state.failure {
                return Err(RequestFailure {
                    error: copy_failure(failure),
                    is_own: false,
                });
            }
            state.is_cancelled |= cancel.load(Ordering::Relaxed);
            // 2. Run some rounds, or wait for the end of those that another worker runs.
            state = match state.engine.take() {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(engine) => {
                    let arrived = mem::take(&mut state.arrived);
                    let is_cancelled = state.is_cancelled;
                    let meter = state.meter.clone();
                    drop(state);
                    let turn = EngineTurn {
                        shared: self,
                        engine: Some(engine),
                    };
                    turn.submit_rounds(arrived, is_cancelled, meter)
                        .map_err(|error| RequestFailure {
                            error,
                            is_own: true,
                        })?;
                    self.lock_state()
                }
            };
            // 3. Report the number of members that have not ended.
            if let Some(remaining) = state.remaining.get(&number).copied() {
                drop(state);
                report(remaining);
                state = self.lock_state();
            }
        }
    }

    /// Makes the population add its times to a meter from its next rounds on.
    pub fn measure(&self, meter: &Arc<Meter>) {
        self.lock_state().meter = Some(meter.clone());
    }

    /// Ends the population: all requests that are not finished fail alike.
    pub fn fail(&self, failure: &Error) {
        let mut state = self.lock_state();
        state.failure.get_or_insert_with(|| copy_failure(failure));
        let engine = state.engine.take();
        let arrived = mem::take(&mut state.arrived);
        drop(state);
        self.changed.notify_all();
        // Their memory is freed while the state is not locked.
        drop((engine, arrived));
    }

    /// Returns whether the population has failed, so that no request to it can succeed.
    pub fn has_failed(&self) -> bool {
        self.lock_state().failure.is_some()
    }

    /// Locks the state. A worker that panicked leaves it consistent.
    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds a request, and returns its number.
    fn add_request(&mut self, waiting: WaitingSpectra) -> u64 {
        let is_idle = self.arrived.is_empty() && self.remaining.is_empty() && self.engine.is_some();
        if is_idle {
            // A cancelled run may have left the population to another run.
            self.is_cancelled = false;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.arrived.push(FitRequest {
            number,
            waiting,
            spectra_in_flight: 0,
            starts_in_flight: 0,
        });
        number
    }
}

/// Ends the population if its worker panics, because nobody would collect the outcomes of that worker's request.
struct PanicGuard<'a>(&'a SharedPopulation);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0
                .fail(&Error::Internal("another worker panicked".into()));
        }
    }
}

/// The engine while a worker runs its rounds. Dropping the turn gives the engine back unless the population has failed.
struct EngineTurn<'a> {
    shared: &'a SharedPopulation,
    engine: Option<PopulationEngine>,
}

impl EngineTurn<'_> {
    /// Submits rounds once, with the requests that have arrived, and stores the outcomes of those that are finished.
    ///
    /// # Errors
    /// Returns the device's errors, with which the population has ended.
    fn submit_rounds(
        mut self,
        arrived: Vec<FitRequest>,
        is_cancelled: bool,
        meter: Option<Arc<Meter>>,
    ) -> Result<()> {
        let Some(engine) = &mut self.engine else {
            return Ok(());
        };
        engine.requests.unfinished.extend(arrived);
        if let Some(meter) = meter {
            engine.use_meter(meter);
        }
        let advanced = pollster::block_on(engine.advance(is_cancelled));
        let finished = match advanced {
            Ok(finished) => finished,
            Err(failure) => {
                // The memory must be free before other workers make a new population.
                drop(self.engine.take());
                self.shared.fail(&failure);
                return Err(failure);
            }
        };
        let mut state = self.shared.lock_state();
        state.finished.extend(finished);
        state.remaining = engine.requests.count_remaining();
        Ok(())
    }
}

impl Drop for EngineTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock_state();
        if state.failure.is_none() && !std::thread::panicking() {
            state.engine = self.engine.take();
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl PopulationEngine {
    /// Makes the population add its times to a meter, unless it does so already.
    fn use_meter(&mut self, meter: Arc<Meter>) {
        let is_same = self
            .meter
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, &meter));
        if !is_same {
            self.population.measure(meter.clone());
            self.meter = Some(meter);
        }
    }

    /// Submits rounds once, or ends all fits if the run is cancelled, and returns the outcomes of the requests that are
    /// finished.
    async fn advance(&mut self, is_cancelled: bool) -> Result<Vec<(u64, PassOutcomes)>> {
        let PopulationEngine {
            population,
            flight,
            requests,
            ..
        } = self;
        // 1. End the fits of a cancelled run. Evaluations are finished in any case.
        let has_fits = requests
            .unfinished
            .iter()
            .any(|request| !request.waiting.is_evaluation);
        if is_cancelled && has_fits {
            flight.interrupt(&mut **population, requests).await?;
            return Ok(requests.cancel());
        }
        // 2. Submit rounds, and release the data of the spectra when the population is empty.
        let was_empty = !flight.advance(&mut **population, requests).await?;
        if flight.is_empty() {
            population.clear();
        }
        // 3. End a request whose spectrum has more starts than there is room for. It would wait for ever.
        let stuck_request = if was_empty {
            requests
                .next_request()
                .map(|k| requests.unfinished[k].number)
        } else {
            None
        };
        Ok(requests.remove_finished(|request| {
            request.is_finished() || stuck_request == Some(request.number)
        }))
    }
}

impl FitRequest {
    /// Returns whether all spectra of the request have ended.
    fn is_finished(&self) -> bool {
        self.spectra_in_flight == 0 && self.waiting.starts_left() == 0
    }
}

impl RequestQueue {
    /// Removes the requests for which `is_chosen` returns true, and returns their numbers and outcomes.
    fn remove_finished(
        &mut self,
        is_chosen: impl Fn(&FitRequest) -> bool,
    ) -> Vec<(u64, PassOutcomes)> {
        let chosen = self.unfinished.extract_if(.., |request| is_chosen(request));
        chosen
            .map(|request| (request.number, request.waiting.finished))
            .collect()
    }

    /// Ends all requests but evaluations, which begin again, and returns their outcomes. Nothing may be in flight.
    fn cancel(&mut self) -> Vec<(u64, PassOutcomes)> {
        self.in_flight.clear();
        for request in &mut self.unfinished {
            if request.waiting.is_evaluation {
                request.waiting.begin_again();
            }
            request.spectra_in_flight = 0;
            request.starts_in_flight = 0;
        }
        self.remove_finished(|request| !request.waiting.is_evaluation)
    }

    /// Returns upper limits of the numbers of members of each request that have not ended.
    fn count_remaining(&self) -> BTreeMap<u64, usize> {
        let mut remaining = BTreeMap::new();
        for request in &self.unfinished {
            let mut in_flight = request.starts_in_flight;
            if !request.waiting.has_searches() {
                in_flight = in_flight.min(self.active_members);
            }
            let waiting = request.waiting.starts_left();
            remaining.insert(request.number, in_flight + waiting);
        }
        remaining
    }

    /// Returns the index of the request whose spectra enter next. This is the smallest one, so that the last spectra of
    /// a batch do not wait behind the first of other batches. A request that has waited long counts as smaller. Spectra
    /// on other wavelengths than those in flight wait until these have ended, and later requests wait behind them.
    fn next_request(&self) -> Option<usize> {
        // 1. The spectra in flight, or else those of the first request, decide which wavelengths may enter.
        let mut waiting_requests = self
            .unfinished
            .iter()
            .enumerate()
            .filter(|(_, request)| request.waiting.starts_left() > 0)
            .peekable();
        let samplings = match waiting_requests.peek() {
            Some((_, first)) if self.in_flight.is_empty() => first.waiting.samplings(),
            _ => self.samplings.clone(),
        };
        // 2. Choose the smallest of the first requests on these wavelengths.
        let candidates = waiting_requests
            .take_while(|(_, request)| share_samplings(&request.waiting.samplings(), &samplings));
        candidates
            .min_by_key(|(_, request)| {
                let halvings = request.waiting.submissions() / SUBMISSIONS_PER_HALVING;
                request.waiting.starts_left() / (1 + halvings)
            })
            .map(|(k, _)| k)
    }

    /// Records that spectra of a request have entered.
    fn record_entry(&mut self, request: usize, spectra: Range<usize>, starts: usize) {
        let request = &mut self.unfinished[request];
        if self.in_flight.is_empty() {
            self.samplings = request.waiting.samplings();
        }
        request.spectra_in_flight += spectra.len();
        request.starts_in_flight += starts;
        for spectrum in spectra {
            let entry = (request.number, spectrum);
            self.in_flight.insert(self.entered_count, entry);
            self.entered_count += 1;
        }
    }
}

impl Queue for RequestQueue {
    fn next(&mut self, max_spectra: usize, max_starts: usize) -> Option<Batch> {
        let request = self.next_request()?;
        let waiting = &mut self.unfinished[request].waiting;
        let (batch, spectra) = waiting.next_batch(max_spectra, max_starts)?;
        self.record_entry(request, spectra, batch.members());
        Some(batch)
    }

    fn is_empty(&self) -> bool {
        self.unfinished
            .iter()
            .all(|request| request.waiting.starts_left() == 0)
    }

    fn end(&mut self, entry: usize, outcomes: Vec<Outcome>) -> Vec<Vec<f64>> {
        let Some((number, spectrum)) = self.in_flight.get(&entry).copied() else {
            return Vec::new();
        };
        let request = self
            .unfinished
            .iter_mut()
            .find(|request| request.number == number);
        let mut points = Vec::new();
        if let Some(request) = request {
            request.starts_in_flight -= outcomes.len();
            points = request.waiting.record_outcomes(spectrum, outcomes);
            request.starts_in_flight += points.len();
            request.spectra_in_flight -= usize::from(points.is_empty());
        }
        if points.is_empty() {
            self.in_flight.remove(&entry);
        }
        points
    }

    fn watch(&mut self, active: usize) {
        self.active_members = active;
        for request in &mut self.unfinished {
            request.waiting.count_submission();
        }
    }

    fn is_one_piece(&self) -> bool {
        self.unfinished.len() <= 1
    }
}

/// Returns whether two requests share their samplings in all arms.
fn share_samplings(a: &[Option<Arc<Sampling>>], b: &[Option<Arc<Sampling>>]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.as_ref().map(Arc::as_ptr) == b.as_ref().map(Arc::as_ptr))
}

#[cfg(test)]
mod tests;
