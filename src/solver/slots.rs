//! Allocation of a population's places: members that leave make room for those that wait.

use std::collections::{BTreeMap, BTreeSet};

use super::backend::{Batch, Outcome};

/// Places of the spectra and the starts of a batch.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The place of each spectrum.
    pub spectra: Vec<usize>,
    /// The slot of each start, ascending within a group.
    pub starts: Vec<usize>,
    /// By slot, for all starts in flight: the slot of the next start of its spectrum; after the last comes the first.
    pub ring: Vec<u32>,
}

impl Places {
    /// Returns the places 0, 1, 2, … for the spectra and the starts of a batch, in its order.
    pub fn in_order(batch: &Batch) -> Places {
        let mut slots = Slots::new(batch.members(), batch.spectra);
        let spectra = slots.take_spectra(batch.spectra);
        slots.assign_starts(batch, spectra, &Vec::from_iter(0..batch.spectra))
    }
}

/// The starts of a spectrum that is being fitted.
#[derive(Debug)]
struct StartGroup {
    /// Place of the spectrum.
    spectrum: usize,
    /// Slots of the starts that have not given way.
    slots: Vec<usize>,
    /// By start; `None` until it ends.
    outcomes: Vec<Option<Outcome>>,
}

/// A spectrum whose starts have all ended.
#[derive(Debug)]
pub struct EndedGroup {
    /// Number of the spectrum, and its place.
    pub number: usize,
    pub spectrum: usize,
    pub outcomes: Vec<Outcome>,
}

/// Places of starts and of spectra. A start that gave way leaves at once; the other starts of a spectrum leave
/// together, because those that go on are compared with those that have ended.
#[derive(Debug)]
pub struct Slots {
    free_starts: BTreeSet<usize>,
    free_spectra: BTreeSet<usize>,
    ring: Vec<u32>,
    /// By the number of spectra that entered before.
    groups: BTreeMap<usize, StartGroup>,
    /// By the slot of each start that has not ended: the number of its group, and its index there.
    open: BTreeMap<usize, (usize, usize)>,
}

impl Slots {
    /// Makes a table of so many free places for starts and for spectra.
    pub fn new(starts: usize, spectra: usize) -> Slots {
        Slots {
            free_starts: (0..starts).collect(),
            free_spectra: (0..spectra).collect(),
            ring: (0..starts as u32).collect(),
            groups: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    /// Returns how many more spectra and how many more starts can enter.
    pub fn free_places(&self) -> (usize, usize) {
        (self.free_spectra.len(), self.free_starts.len())
    }

    /// Takes free places for spectra, of which there must be enough.
    pub fn take_spectra(&mut self, count: usize) -> Vec<usize> {
        (0..count)
            .filter_map(|_| self.free_spectra.pop_first())
            .collect()
    }

    /// Frees the places of spectra none of whose starts is in flight.
    pub fn free_spectra(&mut self, spectra: Vec<usize>) {
        self.free_spectra.extend(spectra);
    }

    /// Returns the slots of the starts that have not ended.
    pub fn open(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.open.keys().copied()
    }

    /// Assigns free places to the starts of a batch, of which there must be enough, and returns all of its places. Its
    /// spectra have taken theirs, and have these numbers.
    pub fn assign_starts(
        &mut self,
        batch: &Batch,
        spectra: Vec<usize>,
        numbers: &[usize],
    ) -> Places {
        let mut places = Places {
            spectra,
            ..Places::default()
        };
        for (&number, group) in numbers.iter().zip(batch.group.chunk_by(|a, b| a == b)) {
            let slots: Vec<usize> = group
                .iter()
                .filter_map(|_| self.free_starts.pop_first())
                .collect();
            self.link_ring(&slots);
            for (index, slot) in slots.iter().enumerate() {
                self.open.insert(*slot, (number, index));
            }
            places.starts.extend_from_slice(&slots);
            let group = StartGroup {
                spectrum: places.spectra[group[0] as usize],
                outcomes: vec![None; slots.len()],
                slots,
            };
            self.groups.insert(number, group);
        }
        places.ring.clone_from(&self.ring);
        places
    }

    /// Stores a start's outcome; if it is the last of its group, frees the places of the starts and returns the group.
    /// The place of the spectrum stays taken.
    pub fn record_outcome(&mut self, slot: usize, outcome: Outcome) -> Option<EndedGroup> {
        let (number, index) = self.open.remove(&slot)?;
        let group = self.groups.get_mut(&number)?;
        // 1. A start that gave way leaves the ring, and its place is free at once.
        if outcome.gave_way.is_some() {
            group.slots.retain(|other| *other != slot);
            self.free_starts.insert(slot);
            let remaining_slots = group.slots.clone();
            self.link_ring(&remaining_slots);
        }
        let group = self.groups.get_mut(&number)?;
        group.outcomes[index] = Some(outcome);
        if group.outcomes.iter().any(Option::is_none) {
            return None;
        }
        // 2. All starts have ended, so the whole group leaves.
        let group = self.groups.remove(&number)?;
        self.free_starts.extend(group.slots);
        Some(EndedGroup {
            number,
            spectrum: group.spectrum,
            outcomes: group.outcomes.into_iter().flatten().collect(),
        })
    }

    /// Links slots to a ring: each one's successor in `ring` is the next slot, and the last one's is the first.
    fn link_ring(&mut self, slots: &[usize]) {
        for (slot, successor) in slots.iter().zip(slots.iter().cycle().skip(1)) {
            self.ring[*slot] = *successor as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::member::Member;
    use crate::solver::{GaveWay, Status};

    fn batch(groups: &[u32]) -> Batch {
        let spectra = groups.last().map_or(0, |last| *last as usize + 1);
        Batch {
            spectra,
            group: groups.to_vec(),
            ..Batch::default()
        }
    }

    fn ended_outcome(gave_way: Option<GaveWay>) -> Outcome {
        Outcome {
            gave_way,
            status: gave_way.is_none().then_some(Status::Ftol),
            ..Member::new(0, 0, &[], 0.0).outcome()
        }
    }

    #[test]
    fn places_are_free_when_a_start_gives_way_or_a_group_has_ended() {
        let mut slots = Slots::new(4, 4);
        let spectra = slots.take_spectra(2);
        let places = slots.assign_starts(&batch(&[0, 0, 1, 1]), spectra, &[0, 1]);
        assert_eq!(
            (places.starts, places.ring),
            (vec![0, 1, 2, 3], vec![1, 0, 3, 2])
        );
        assert_eq!(slots.free_places(), (2, 0));
        // One start ended; the other of its spectrum may still be compared with it.
        assert!(slots.record_outcome(0, ended_outcome(None)).is_none());
        assert_eq!(slots.free_places(), (2, 0));
        // One start gave way; its place is free at once.
        assert!(
            slots
                .record_outcome(3, ended_outcome(Some(GaveWay::SameBasin)))
                .is_none()
        );
        assert_eq!(slots.free_places(), (2, 1));
        let spectra = slots.take_spectra(1);
        let places = slots.assign_starts(&batch(&[0]), spectra, &[2]);
        assert_eq!(
            (places.spectra, places.starts, places.ring),
            (vec![2], vec![3], vec![1, 0, 2, 3])
        );
        let ended = slots.record_outcome(1, ended_outcome(None)).unwrap();
        assert_eq!((ended.number, ended.outcomes.len()), (0, 2));
        // The spectrum keeps its place until it leaves.
        assert_eq!(slots.free_places(), (1, 2));
        slots.free_spectra(vec![ended.spectrum]);
        assert_eq!(slots.free_places(), (2, 2));
        assert_eq!(slots.open().collect::<Vec<_>>(), [2, 3]);
    }
}
