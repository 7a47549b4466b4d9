//! Spectra that wait take the places of those that have ended or given way, and no bit depends on it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use popfit::low_level::cpu::CpuDevice;
use popfit::low_level::solver::{Backend, Batch, LevenbergMarquardt, Outcome, Queue, stream};

use super::cases::{Case, Model};
use super::{fit, gpu, outcome_bits};

/// A queue that supplies the spectra of a case, two starts each, as places become free.
struct WaitingSpectra<'a> {
    case: &'a Case,
    next: usize,
    outcomes: Vec<Vec<Outcome>>,
    ended: usize,
    /// Maximum number of spectra in flight at once.
    most_in_flight: usize,
}

impl Queue for WaitingSpectra<'_> {
    fn next(&mut self, spectra: usize, starts: usize) -> Option<Batch> {
        let end = (self.next + spectra.min(starts / 2)).min(self.outcomes.len());
        let members: Vec<usize> = (2 * self.next..2 * end).collect();
        self.next = end;
        self.most_in_flight = self.most_in_flight.max(end - self.ended);
        (!members.is_empty()).then(|| self.case.select(&members).batch)
    }

    fn is_empty(&self) -> bool {
        self.next == self.outcomes.len()
    }

    fn end(&mut self, number: usize, outcomes: Vec<Outcome>) -> Vec<Vec<f64>> {
        self.outcomes[number] = outcomes;
        self.ended += 1;
        Vec::new()
    }
}

/// A queue of evaluations at the two starts of each spectrum, then at both in reverse or, for every third spectrum, at
/// the second one.
struct Evaluations<'a> {
    waiting: WaitingSpectra<'a>,
    /// Outcomes of the second evaluations.
    again: Vec<Vec<Outcome>>,
}

impl Queue for Evaluations<'_> {
    fn next(&mut self, spectra: usize, starts: usize) -> Option<Batch> {
        let mut batch = self.waiting.next(spectra, starts)?;
        batch.is_evaluation = true;
        Some(batch)
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn end(&mut self, number: usize, outcomes: Vec<Outcome>) -> Vec<Vec<f64>> {
        if !self.waiting.outcomes[number].is_empty() {
            self.again[number] = outcomes;
            return Vec::new();
        }
        let points = outcomes.iter().rev().map(|o| o.parameters.clone());
        let points = points.take(if number.is_multiple_of(3) { 1 } else { 2 });
        let points = points.collect();
        self.waiting.end(number, outcomes);
        points
    }
}

/// Makes a case of 130 starts in narrow bounds.
fn narrow_case(seed: u64) -> Case {
    let model = Model {
        terms: 4,
        narrow: true,
        ..Model::PLAIN
    };
    Case::new(model, 130, seed)
}

#[test]
fn spectra_stay_for_further_evaluations() {
    let Some(gpu) = gpu() else { return };
    let case = narrow_case(37);
    let settings = LevenbergMarquardt::default();
    for device in [&CpuDevice as &dyn Backend, &gpu] {
        let recording = Arc::new(case.recording.clone());
        for capacity in [2, 41] {
            let mut population = device
                .population(recording.clone(), &settings, capacity)
                .unwrap();
            let mut queue = Evaluations {
                waiting: WaitingSpectra {
                    case: &case,
                    next: 0,
                    outcomes: vec![Vec::new(); 65],
                    ended: 0,
                    most_in_flight: 0,
                },
                again: vec![Vec::new(); 65],
            };
            let never = AtomicBool::new(false);
            pollster::block_on(stream(&mut *population, &mut queue, &never)).unwrap();
            for (number, (first, again)) in
                queue.waiting.outcomes.iter().zip(&queue.again).enumerate()
            {
                assert_eq!(again.len(), if number.is_multiple_of(3) { 1 } else { 2 });
                for (a, b) in again.iter().zip(first.iter().rev()) {
                    assert_eq!(outcome_bits(a), outcome_bits(b), "{}", device.name());
                }
            }
        }
    }
}

#[test]
fn waiting_spectra_take_the_places_of_ended_starts_and_of_those_that_gave_way() {
    let Some(gpu) = gpu() else { return };
    let case = narrow_case(31);
    for device in [&CpuDevice as &dyn Backend, &gpu] {
        let whole = fit(device, &case, 130);
        let recording = Arc::new(case.recording.clone());
        let settings = LevenbergMarquardt::default();
        for capacity in [2, 12, 41] {
            let mut population = device
                .population(recording.clone(), &settings, capacity)
                .unwrap();
            let mut queue = WaitingSpectra {
                case: &case,
                next: 0,
                outcomes: vec![Vec::new(); 65],
                ended: 0,
                most_in_flight: 0,
            };
            pollster::block_on(stream(
                &mut *population,
                &mut queue,
                &AtomicBool::new(false),
            ))
            .unwrap();
            assert_eq!(queue.ended, 65);
            for (a, b) in queue.outcomes.iter().flatten().zip(&whole) {
                assert_eq!(
                    (outcome_bits(a), a.gave_way),
                    (outcome_bits(b), b.gave_way),
                    "{}, {capacity} starts",
                    device.name()
                );
            }
            // Without the places of starts that gave way, spectra of two starts each would fill the population.
            let reused = queue.most_in_flight > capacity / 2;
            assert!(
                reused || capacity < 12,
                "{}: {} spectra in {capacity} places",
                device.name(),
                queue.most_in_flight
            );
        }
    }
}
