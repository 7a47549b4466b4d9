//! Spectra that wait take the places of those that have ended or given way, and no bit depends on it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use popfit::low_level::cpu::CpuDevice;
use popfit::low_level::solver::{
    Batch, Device, LevenbergMarquardt, Method, Outcome, Queue, stream,
};

use super::cases::{Case, Model};
use super::{bits, fit, gpu};

/// Groups of a case, as they find room.
struct Groups<'a> {
    case: &'a Case,
    next: usize,
    outcomes: Vec<Vec<Outcome>>,
    ended: usize,
    /// Most spectra in flight at once.
    most: usize,
}

impl Queue for Groups<'_> {
    fn next(&mut self, spectra: usize, starts: usize) -> Option<Batch> {
        let end = (self.next + spectra.min(starts / 2)).min(self.outcomes.len());
        let members: Vec<usize> = (2 * self.next..2 * end).collect();
        self.next = end;
        self.most = self.most.max(end - self.ended);
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
    for device in [&CpuDevice as &dyn Device, &gpu] {
        let whole = fit(device, &case, 130);
        let recording = Arc::new(case.recording.clone());
        let method = Method::LevenbergMarquardt(LevenbergMarquardt::default());
        for capacity in [2, 12, 41] {
            let mut population = device
                .population(recording.clone(), &method, capacity)
                .unwrap();
            let mut groups = Groups {
                case: &case,
                next: 0,
                outcomes: vec![Vec::new(); 65],
                ended: 0,
                most: 0,
            };
            pollster::block_on(stream(
                &mut *population,
                &mut groups,
                &AtomicBool::new(false),
            ))
            .unwrap();
            assert_eq!(groups.ended, 65);
            for (a, b) in groups.outcomes.iter().flatten().zip(&whole) {
                assert_eq!(
                    (bits(a), a.gave_way),
                    (bits(b), b.gave_way),
                    "{}, {capacity} starts",
                    device.name()
                );
            }
            // without the places of those that gave way, groups of two would fill it
            let reused = groups.most > capacity / 2;
            assert!(
                reused || capacity < 12,
                "{}: {} spectra in {capacity} places",
                device.name(),
                groups.most
            );
        }
    }
}
