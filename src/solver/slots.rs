//! Allocation of a population's places: those that leave make room for those that wait.

use std::collections::{BTreeMap, BTreeSet};

use super::device::{Batch, Outcome};

/// Places of the spectra and the starts of a batch.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The place of each spectrum.
    pub spectra: Vec<usize>,
    /// The slot of each start, ascending within a group.
    pub starts: Vec<usize>,
    /// By slot, of all starts in flight: the next one of its group, the first one after the last.
    pub ring: Vec<u32>,
}

impl Places {
    /// Returns the places 0, 1, 2, … for the spectra and the starts of a batch, in its order.
    pub fn in_order(batch: &Batch) -> Places {
        let mut slots = Slots::new(batch.members(), batch.spectra);
        let spectra = slots.take_spectra(batch.spectra);
        slots.enter(batch, spectra, 0)
    }
}

/// A spectrum that is being fitted.
#[derive(Debug)]
struct Group {
    spectrum: usize,
    slots: Vec<usize>,
    outcomes: Vec<Option<Outcome>>,
}

/// Places of starts and of spectra. A start that gave way leaves at once; the others of a group leave together, as
/// those that go on are judged by those that have ended.
#[derive(Debug)]
pub struct Slots {
    /// Free places.
    starts: BTreeSet<usize>,
    spectra: BTreeSet<usize>,
    ring: Vec<u32>,
    /// By the number of spectra that entered before.
    groups: BTreeMap<usize, Group>,
    /// The group of each start that has not ended, and its index there.
    open: BTreeMap<usize, (usize, usize)>,
}

impl Slots {
    /// Makes a table of so many free places for starts and for spectra.
    pub fn new(starts: usize, spectra: usize) -> Slots {
        Slots {
            starts: (0..starts).collect(),
            spectra: (0..spectra).collect(),
            ring: (0..starts as u32).collect(),
            groups: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    /// Returns how many more spectra and how many more starts can enter.
    pub fn room(&self) -> (usize, usize) {
        (self.spectra.len(), self.starts.len())
    }

    /// Takes free places for spectra, which must be there.
    pub fn take_spectra(&mut self, count: usize) -> Vec<usize> {
        (0..count)
            .filter_map(|_| self.spectra.pop_first())
            .collect()
    }

    /// Frees the places of spectra none of whose starts has entered.
    pub fn give_back(&mut self, spectra: Vec<usize>) {
        self.spectra.extend(spectra);
    }

    /// Returns the slots of the starts that have not ended.
    pub fn open(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.open.keys().copied()
    }

    /// Assigns free places to the starts of a batch, for which there must be room, and returns all of its places. Its
    /// spectra have taken theirs, and are counted from `first`.
    pub fn enter(&mut self, batch: &Batch, spectra: Vec<usize>, first: usize) -> Places {
        let mut places = Places {
            spectra,
            ..Places::default()
        };
        for (number, group) in (first..).zip(batch.group.chunk_by(|a, b| a == b)) {
            let slots: Vec<usize> = group
                .iter()
                .filter_map(|_| self.starts.pop_first())
                .collect();
            self.link(&slots);
            self.open.extend(
                slots
                    .iter()
                    .enumerate()
                    .map(|(k, slot)| (*slot, (number, k))),
            );
            places.starts.extend_from_slice(&slots);
            let spectrum = places.spectra[group[0] as usize];
            self.groups.insert(
                number,
                Group {
                    spectrum,
                    outcomes: vec![None; slots.len()],
                    slots,
                },
            );
        }
        places.ring.clone_from(&self.ring);
        places
    }

    /// Stores a start's outcome; if it is the last of its group, frees the places and returns the group's number and
    /// outcomes.
    pub fn end(&mut self, slot: usize, outcome: Outcome) -> Option<(usize, Vec<Outcome>)> {
        let (number, index) = self.open.remove(&slot)?;
        let group = self.groups.get_mut(&number)?;
        if outcome.gave_way.is_some() {
            group.slots.retain(|other| *other != slot);
            self.starts.insert(slot);
            let rest = group.slots.clone();
            self.link(&rest);
        }
        let group = self.groups.get_mut(&number)?;
        group.outcomes[index] = Some(outcome);
        if group.outcomes.iter().any(Option::is_none) {
            return None;
        }
        let group = self.groups.remove(&number)?;
        self.starts.extend(group.slots);
        self.spectra.insert(group.spectrum);
        Some((number, group.outcomes.into_iter().flatten().collect()))
    }

    /// Links slots to a ring: each one's successor in `ring` is the next slot, and the last one's is the first.
    fn link(&mut self, slots: &[usize]) {
        let after = slots.iter().cycle().skip(1);
        slots
            .iter()
            .zip(after)
            .for_each(|(slot, next)| self.ring[*slot] = *next as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::member::Member;
    use crate::solver::{GaveWay, Status};

    fn batch(groups: &[u32]) -> Batch {
        let spectra = groups.last().map_or(0, |s| *s as usize + 1);
        Batch {
            spectra,
            group: groups.to_vec(),
            ..Batch::default()
        }
    }

    fn ended(gave_way: Option<GaveWay>) -> Outcome {
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
        let places = slots.enter(&batch(&[0, 0, 1, 1]), spectra, 0);
        assert_eq!(
            (places.starts, places.ring),
            (vec![0, 1, 2, 3], vec![1, 0, 3, 2])
        );
        assert_eq!(slots.room(), (2, 0));
        // one ended: the other of its group may still be judged by it
        assert!(slots.end(0, ended(None)).is_none());
        assert_eq!(slots.room(), (2, 0));
        // one gave way: its place is free at once
        assert!(slots.end(3, ended(Some(GaveWay::SameBasin))).is_none());
        assert_eq!(slots.room(), (2, 1));
        let spectra = slots.take_spectra(1);
        let places = slots.enter(&batch(&[0]), spectra, 2);
        assert_eq!(
            (places.spectra, places.starts, places.ring),
            (vec![2], vec![3], vec![1, 0, 2, 3])
        );
        let (number, outcomes) = slots.end(1, ended(None)).unwrap();
        assert_eq!((number, outcomes.len()), (0, 2));
        assert_eq!(slots.room(), (2, 2));
        assert_eq!(slots.open().collect::<Vec<_>>(), [2, 3]);
    }
}
