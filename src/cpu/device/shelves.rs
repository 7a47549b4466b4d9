//! Layout of a tile's rows: those that are not needed at the same time share one place in memory, so that more members
//! fit into the cache (the arms of a spectrum come one after another).

use super::tile::run_member_by_member;
use crate::recording::{BufferId, Recording, Scope, Stage};

/// Memory that buffers share, one after another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shelf {
    /// Number of elements per member.
    length: usize,
    /// Whether the shelf holds one member's rows only, because no later section of stages reads them.
    is_local: bool,
    /// The last section of stages that needs the rows on the shelf.
    last_section: usize,
}

impl Shelf {
    /// Returns how many elements the shelf (memory that buffers share) takes in a tile of so many members.
    pub fn elements(&self, members: usize) -> usize {
        self.length * if self.is_local { 1 } else { members }
    }
}

/// The shelves of a recording's member buffers.
pub struct Shelves {
    pub all: Vec<Shelf>,
    /// By buffer; `None` for buffers of other scopes than a member's.
    by_buffer: Vec<Option<usize>>,
}

impl Shelves {
    /// Lays out a tile's memory so that member buffers that are never needed at the same time share a shelf.
    pub fn new(recording: &Recording) -> Shelves {
        Shelves::assign_shelves(recording, true)
    }

    /// Lays out a tile's memory so that no member buffer shares a shelf, and none is overwritten.
    pub fn without_sharing(recording: &Recording) -> Shelves {
        Shelves::assign_shelves(recording, false)
    }

    /// Assigns each member buffer a shelf of the tile's memory; if `shared`, one whose earlier buffers are no longer
    /// needed.
    fn assign_shelves(recording: &Recording, shared: bool) -> Shelves {
        // 1. Take the member buffers in the order of their first use.
        let lifetimes = find_lifetimes(recording);
        let mut order: Vec<usize> = (0..recording.buffers.len())
            .filter(|&b| recording.buffers[b].scope == Scope::Member)
            .collect();
        order.sort_by_key(|&b| lifetimes[b].map_or(0, |(first, _)| first));
        let mut shelves = Shelves {
            all: Vec::new(),
            by_buffer: vec![None; recording.buffers.len()],
        };
        for b in order {
            let (first, last) = lifetimes[b].unwrap_or_default();
            let needed = Shelf {
                length: recording.buffers[b].length,
                is_local: first == last,
                last_section: last,
            };
            // 2. Among the free shelves choose that of the most similar length, else append a new one.
            let is_free = |shelf: &Shelf| {
                shared && shelf.is_local == needed.is_local && shelf.last_section < first
            };
            let chosen = (0..shelves.all.len())
                .filter(|&k| is_free(&shelves.all[k]))
                .min_by_key(|&k| shelves.all[k].length.abs_diff(needed.length))
                .unwrap_or(shelves.all.len());
            match shelves.all.get_mut(chosen) {
                Some(shelf) => {
                    *shelf = Shelf {
                        length: shelf.length.max(needed.length),
                        ..needed
                    }
                }
                None => shelves.all.push(needed),
            }
            shelves.by_buffer[b] = Some(chosen);
        }
        shelves
    }

    /// Returns the index of the shelf (memory that several buffers share) of a member's buffer; `None` for other
    /// buffers.
    pub fn shelf_of(&self, id: BufferId) -> Option<usize> {
        self.by_buffer[id.0]
    }

    /// Returns whether a buffer's shelf holds the rows of only one member at a time.
    pub fn is_local(&self, id: BufferId) -> bool {
        self.shelf_of(id)
            .is_some_and(|shelf| self.all[shelf].is_local)
    }

    /// Returns how many elements all shelves together take in a tile of so many members.
    pub fn elements(&self, members: usize) -> usize {
        self.all.iter().map(|shelf| shelf.elements(members)).sum()
    }
}

/// Returns the first and last section of stages (sections end at products) that use each buffer; `None` for those
/// unused.
fn find_lifetimes(recording: &Recording) -> Vec<Option<(usize, usize)>> {
    let mut lifetimes: Vec<Option<(usize, usize)>> = vec![None; recording.buffers.len()];
    for (section, stages) in recording.stages.chunk_by(run_member_by_member).enumerate() {
        for id in stages.iter().flat_map(Stage::member_buffers) {
            let first = lifetimes[id.0].map_or(section, |(first, _)| first);
            lifetimes[id.0] = Some((first, section));
        }
    }
    lifetimes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::recording::{Activate, Activation, Kind, Product, Values};

    /// Two arms, each x → hidden → template.
    #[test]
    fn buffers_of_different_arms_share_shelves_and_neighbours_do_not() {
        let mut recording = Recording::default();
        let mut buffer =
            |name: &str, length| recording.buffer(name, Scope::Member, Kind::Float, length);
        let [x, hidden, template, y] =
            [("x", 4), ("h", 16), ("t", 64), ("u", 48)].map(|(name, n)| buffer(name, n));
        let weight = recording.constant("w", Values::F32(Arc::new(vec![0.0; 16])));
        for (output, columns) in [(template, 64), (y, 48)] {
            for (input, output) in [(x, hidden), (hidden, output)] {
                let stage = Product {
                    input,
                    weight,
                    output,
                    rows: 1,
                    inner: 4,
                    columns,
                };
                recording.stages.push(Stage::Product(stage));
            }
            let (bias, activation) = (weight, Activation::Identity);
            let stage = Activate {
                buffer: output,
                bias,
                affine: None,
                activation,
                rows: 1,
                columns,
            };
            recording.stages.push(Stage::Activate(stage));
        }
        let shelves = Shelves::new(&recording);
        assert_eq!(shelves.shelf_of(template), shelves.shelf_of(y));
        assert!(
            shelves.shelf_of(hidden) != shelves.shelf_of(template)
                && shelves.shelf_of(x) != shelves.shelf_of(hidden)
        );
        assert_eq!(
            (shelves.shelf_of(weight), shelves.elements(3)),
            (None, 3 * (4 + 16 + 64))
        );
        assert_eq!(Shelves::without_sharing(&recording).all.len(), 4);
    }
}
