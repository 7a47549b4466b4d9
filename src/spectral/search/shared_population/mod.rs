//! A population that the workers of a run share.
//!
//! Each fit of a batch ends with rounds in which few of its spectra are left. A GPU takes as long for such a round as
//! for one of many members, so the workers of a GPU share one population: their batches, and the probes and further
//! starts of these, fill each other's rounds. A worker puts its spectra in as a [`Waiting`] request. As long as its
//! request is not finished, it runs the population's rounds if no other worker does, and sleeps if one does. No thread
//! is needed for this. Populations of the CPU have one worker each.
//!
//! No bit of a fit depends on what else is in flight.

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
use crate::spectral::search::waiting::{PassOutcomes, Waiting};

/// Number of submissions after which a request counts as half as large.
const PATIENCE: usize = 32;

/// A population, and the requests of the workers that share it.
pub struct SharedPopulation {
    /// Maximum number of starts in flight.
    pub capacity: usize,
    /// Members per start.
    pub lanes: usize,
    state: Mutex<State>,
    /// Notified after each submission.
    changed: Condvar,
}

/// The failure of a request.
pub struct Failure {
    pub error: Error,
    /// The worker's own rounds failed, and not those of another worker.
    pub is_own: bool,
}

/// The state that workers lock for a moment, never during rounds.
struct State {
    /// `None` while a worker runs its rounds.
    engine: Option<Engine>,
    /// Requests that the engine has not seen.
    arrived: Vec<Request>,
    /// Members of each request that have not ended, at most.
    remaining: BTreeMap<u64, usize>,
    finished: BTreeMap<u64, PassOutcomes>,
    /// The failure that ended the population.
    failure: Option<Error>,
    /// The run is cancelled, as some worker has seen.
    is_cancelled: bool,
    /// Number of the next request.
    next: u64,
    /// Meter that the population is to add its times to.
    meter: Option<Arc<Meter>>,
}

/// A population with the spectra that are in it.
struct Engine {
    population: Box<dyn Population>,
    flight: Flight,
    requests: Requests,
    /// Meter that the population adds its times to.
    meter: Option<Arc<Meter>>,
}

/// Spectra that a worker wants fitted.
struct Request {
    number: u64,
    waiting: Waiting,
    /// Number of its spectra and of their starts in the population.
    spectra_in_flight: usize,
    starts_in_flight: usize,
}

/// The requests that are not finished, as the queue of a population.
#[derive(Default)]
struct Requests {
    /// In the order of their numbers.
    all: Vec<Request>,
    /// By the number of spectra that entered before: the request of a spectrum in flight, and its index there.
    entered: BTreeMap<usize, (u64, usize)>,
    /// Number of spectra that have entered.
    count: usize,
    /// Samplings of the spectra in flight.
    samplings: Vec<Option<Arc<Sampling>>>,
    /// Number of active members after the last submission.
    active: usize,
}

impl SharedPopulation {
    /// Makes a population ready for requests.
    pub fn new(population: Box<dyn Population>) -> SharedPopulation {
        let (capacity, lanes) = (population.capacity(), population.lanes());
        let flight = Flight::new(&*population);
        let engine = Engine {
            population,
            flight,
            requests: Requests::default(),
            meter: None,
        };
        let state = State {
            engine: Some(engine),
            arrived: Vec::new(),
            remaining: BTreeMap::new(),
            finished: BTreeMap::new(),
            failure: None,
            is_cancelled: false,
            next: 0,
            meter: None,
        };
        SharedPopulation {
            capacity,
            lanes,
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
    pub fn run(
        &self,
        waiting: Waiting,
        cancel: &AtomicBool,
        report: &mut dyn FnMut(usize),
    ) -> Result<PassOutcomes, Failure> {
        if waiting.starts_left() == 0 {
            return Ok(waiting.finished);
        }
        let _guard = PanicGuard(self);
        let mut state = self.lock();
        let number = state.add(waiting);
        loop {
            // 1. The request may be finished, or the population may have failed.
            if let Some(finished) = state.finished.remove(&number) {
                drop(state);
                if !cancel.load(Ordering::Relaxed) {
                    report(0);
                }
                return Ok(finished);
            }
            if let Some(failure) = &state.failure {
                return Err(Failure {
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
                    let (is_cancelled, meter) = (state.is_cancelled, state.meter.clone());
                    drop(state);
                    let turn = Turn {
                        shared: self,
                        engine: Some(engine),
                    };
                    turn.run(arrived, is_cancelled, meter)
                        .map_err(|error| Failure {
                            error,
                            is_own: true,
                        })?;
                    self.lock()
                }
            };
            // 3. Report what is left.
            if let Some(remaining) = state.remaining.get(&number).copied() {
                drop(state);
                report(remaining);
                state = self.lock();
            }
        }
    }

    /// Makes the population add its times to a meter from its next rounds on.
    pub fn measure(&self, meter: &Arc<Meter>) {
        self.lock().meter = Some(meter.clone());
    }

    /// Ends the population: all requests that are not finished fail alike.
    pub fn fail(&self, failure: &Error) {
        let mut state = self.lock();
        state.failure.get_or_insert_with(|| copy_failure(failure));
        let freed = (state.engine.take(), mem::take(&mut state.arrived));
        drop(state);
        self.changed.notify_all();
        drop(freed);
    }

    /// Returns whether the population has failed, so that no request to it can succeed.
    pub fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Locks the state, which a worker that panicked has left whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds a request, and returns its number.
    fn add(&mut self, waiting: Waiting) -> u64 {
        if self.arrived.is_empty() && self.remaining.is_empty() && self.engine.is_some() {
            // a cancelled run has left the population to another one
            self.is_cancelled = false;
        }
        let number = self.next;
        self.next += 1;
        self.arrived.push(Request {
            number,
            waiting,
            spectra_in_flight: 0,
            starts_in_flight: 0,
        });
        number
    }
}

/// Ends the population if its worker panics, whose request nobody would take out of it.
struct PanicGuard<'a>(&'a SharedPopulation);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(&Error::Usage("another worker panicked".into()));
        }
    }
}

/// The engine while a worker runs rounds, which is given back at the end unless the population has failed.
struct Turn<'a> {
    shared: &'a SharedPopulation,
    engine: Option<Engine>,
}

impl Turn<'_> {
    /// Submits rounds once, with the requests that have arrived, and stores the outcomes of those that are finished.
    ///
    /// # Errors
    /// Returns the device's errors, with which the population has ended.
    fn run(
        mut self,
        arrived: Vec<Request>,
        is_cancelled: bool,
        meter: Option<Arc<Meter>>,
    ) -> Result<()> {
        let Some(engine) = &mut self.engine else {
            return Ok(());
        };
        engine.requests.all.extend(arrived);
        if let Some(meter) = meter.filter(|meter| {
            engine
                .meter
                .as_ref()
                .is_none_or(|own| !Arc::ptr_eq(own, meter))
        }) {
            engine.population.measure(meter.clone());
            engine.meter = Some(meter);
        }
        let advanced = pollster::block_on(engine.advance(is_cancelled));
        let finished = match advanced {
            Ok(finished) => finished,
            Err(failure) => {
                // its memory is free before other workers make a new one
                drop(self.engine.take());
                self.shared.fail(&failure);
                return Err(failure);
            }
        };
        let mut state = self.shared.lock();
        state.finished.extend(finished);
        state.remaining = engine.requests.remaining(self.shared.lanes);
        Ok(())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.failure.is_none() && !std::thread::panicking() {
            state.engine = self.engine.take();
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Engine {
    /// Submits rounds once, or ends all fits if the run is cancelled, and returns the outcomes of the requests that are
    /// finished.
    async fn advance(&mut self, is_cancelled: bool) -> Result<Vec<(u64, PassOutcomes)>> {
        let Engine {
            population,
            flight,
            requests,
            ..
        } = self;
        if is_cancelled
            && requests
                .all
                .iter()
                .any(|request| !request.waiting.is_evaluation)
        {
            flight.interrupt(&mut **population, requests).await?;
            return Ok(requests.cancel());
        }
        let was_empty = !flight.advance(&mut **population, requests).await?;
        if flight.is_empty() {
            // the spectra's data are released
            population.clear();
        }
        // a spectrum with more starts than there is room for would wait for ever
        let stuck = if was_empty {
            requests.next_request().map(|k| requests.all[k].number)
        } else {
            None
        };
        Ok(
            requests
                .take_finished(|request| request.is_finished() || stuck == Some(request.number)),
        )
    }
}

impl Request {
    /// Returns whether all spectra of the request have ended.
    fn is_finished(&self) -> bool {
        self.spectra_in_flight == 0 && self.waiting.starts_left() == 0
    }
}

impl Requests {
    /// Removes the requests for which `is_chosen` returns true, and returns their outcomes.
    fn take_finished(&mut self, is_chosen: impl Fn(&Request) -> bool) -> Vec<(u64, PassOutcomes)> {
        let chosen = self.all.extract_if(.., |request| is_chosen(request));
        chosen
            .map(|request| (request.number, request.waiting.finished))
            .collect()
    }

    /// Ends all requests but evaluations, which begin again, and returns their outcomes. Nothing may be in flight.
    fn cancel(&mut self) -> Vec<(u64, PassOutcomes)> {
        self.entered.clear();
        for request in &mut self.all {
            if request.waiting.is_evaluation {
                request.waiting.begin_again();
            }
            (request.spectra_in_flight, request.starts_in_flight) = (0, 0);
        }
        self.take_finished(|request| !request.waiting.is_evaluation)
    }

    /// Returns the number of members of each request that have not ended, at most.
    fn remaining(&self, lanes: usize) -> BTreeMap<u64, usize> {
        let of_one = |request: &Request| {
            let in_flight = (request.starts_in_flight * lanes).min(self.active);
            (
                request.number,
                in_flight + request.waiting.starts_left() * lanes,
            )
        };
        self.all.iter().map(of_one).collect()
    }

    /// Returns the index of the request whose spectra enter next: the smallest, so that the last spectra of a batch do
    /// not wait behind the first of others. A request that has waited long counts as smaller. Spectra on other
    /// wavelengths than those in flight wait until these have ended, and later requests wait behind them.
    fn next_request(&self) -> Option<usize> {
        let mut waiting = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, request)| request.waiting.starts_left() > 0)
            .peekable();
        let samplings = match waiting.peek() {
            Some((_, first)) if self.entered.is_empty() => first.waiting.samplings(),
            _ => self.samplings.clone(),
        };
        let candidates =
            waiting.take_while(|(_, request)| are_same(&request.waiting.samplings(), &samplings));
        let size = |request: &Request| {
            request.waiting.starts_left() / (1 + request.waiting.submissions() / PATIENCE)
        };
        candidates
            .min_by_key(|(_, request)| size(request))
            .map(|(k, _)| k)
    }

    /// Records that spectra of a request have entered.
    fn add_entered(&mut self, request: usize, spectra: Range<usize>, starts: usize) {
        let request = &mut self.all[request];
        if self.entered.is_empty() {
            self.samplings = request.waiting.samplings();
        }
        request.spectra_in_flight += spectra.len();
        request.starts_in_flight += starts;
        for spectrum in spectra {
            self.entered.insert(self.count, (request.number, spectrum));
            self.count += 1;
        }
    }
}

impl Queue for Requests {
    fn next(&mut self, spectra: usize, starts: usize) -> Option<Batch> {
        let request = self.next_request()?;
        let (batch, entering) = self.all[request].waiting.next(spectra, starts)?;
        self.add_entered(request, entering, batch.members());
        Some(batch)
    }

    fn is_empty(&self) -> bool {
        self.all
            .iter()
            .all(|request| request.waiting.starts_left() == 0)
    }

    fn end(&mut self, number: usize, outcomes: Vec<Outcome>) {
        let Some((request, spectrum)) = self.entered.remove(&number) else {
            return;
        };
        if let Some(request) = self.all.iter_mut().find(|other| other.number == request) {
            request.spectra_in_flight -= 1;
            request.starts_in_flight -= outcomes.len();
            request.waiting.end(spectrum, outcomes);
        }
    }

    fn watch(&mut self, active: usize) {
        self.active = active;
        self.all
            .iter_mut()
            .for_each(|request| request.waiting.count_submission());
    }

    fn is_one_piece(&self) -> bool {
        self.all.len() <= 1
    }
}

/// Returns whether spectra share the same samplings in all arms.
fn are_same(a: &[Option<Arc<Sampling>>], b: &[Option<Arc<Sampling>>]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.as_ref().map(Arc::as_ptr) == b.as_ref().map(Arc::as_ptr))
}

#[cfg(test)]
mod tests;
