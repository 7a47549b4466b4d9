//! Spectra that wait take the places of those that have ended or given way, and no bit depends on it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use popfit::low_level::cpu::CpuDevice;
use popfit::low_level::solver::{
    Backend, Batch, LevenbergMarquardt, Method, Outcome, Queue, stream,
};

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

    fn end(&mut self, number: usize, outcomes: Vec<Outcome>) {
        self.outcomes[number] = outcomes;
        self.ended += 1;
    }
}

#[test]
fn waiting_spectra_take_the_places_of_ended_starts_and_of_those_that_gave_way() {
    let Some(gpu) = gpu() else { return };
    let case = Case::new(
        Model {
            terms: 4,
            narrow: true,
            ..Model::PLAIN
        },
        130,
        31,
    );
    for device in [&CpuDevice as &dyn Backend, &gpu] {
        let whole = fit(device, &case, 130);
        let recording = Arc::new(case.recording.clone());
        let method = Method::LevenbergMarquardt(LevenbergMarquardt::default());
        for capacity in [2, 12, 41] {
            let mut population = device
                .population(recording.clone(), &method, capacity)
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
