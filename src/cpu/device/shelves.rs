//! Layout of a tile's rows: those that are not needed at the same time share one place in memory, so that more members
//! fit into the cache. The arms of a spectrum come one after another, and so do the exposures of an arm.

use super::tile::run_member_by_member;
use crate::recording::{BufferId, Recording, Scope, Stage};

/// Memory that buffers share, one after another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shelf {
    /// Number of elements per member.
    length: usize,
    /// Whether the shelf holds one member's rows only, because no later section of stages reads them.
    is_local: bool,
    /// When the rows on the shelf are needed.
    lifetime: Lifetime,
}

/// The stages between which the rows of a buffer are needed. Sections of stages end at products.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Lifetime {
    first_section: usize,
    last_section: usize,
    first_stage: usize,
    last_stage: usize,
}

impl Lifetime {
    /// Returns whether all of it lies in one section, which runs member by member.
    fn is_local(&self) -> bool {
        self.first_section == self.last_section
    }

    /// Returns whether it ends before another one begins, for buffers of which both are local or neither. Rows of a
    /// whole tile are needed until their section has run for all members.
    fn ends_before(&self, other: &Lifetime) -> bool {
        if self.is_local() {
            self.last_stage < other.first_stage
        } else {
            self.last_section < other.first_section
        }
    }
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
        let lifetime_of = |b: usize| lifetimes[b].unwrap_or_default();
        order.sort_by_key(|&b| (lifetime_of(b).first_section, lifetime_of(b).first_stage));
        let mut shelves = Shelves {
            all: Vec::new(),
            by_buffer: vec![None; recording.buffers.len()],
        };
        for b in order {
            let lifetime = lifetime_of(b);
            let needed = Shelf {
                length: recording.buffers[b].length,
                is_local: lifetime.is_local(),
                lifetime,
            };
            // 2. Among the free shelves choose that of the most similar length, else append a new one.
            let is_free = |shelf: &Shelf| {
                shared && shelf.is_local == needed.is_local && shelf.lifetime.ends_before(&lifetime)
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

/// Returns the lifetime of each buffer; `None` for those unused.
fn find_lifetimes(recording: &Recording) -> Vec<Option<Lifetime>> {
    let mut lifetimes: Vec<Option<Lifetime>> = vec![None; recording.buffers.len()];
    let mut stage = 0;
    for (section, stages) in recording.stages.chunk_by(run_member_by_member).enumerate() {
        for buffers in stages.iter().map(Stage::member_buffers) {
            for id in buffers {
                let begin = Lifetime {
                    first_section: section,
                    first_stage: stage,
                    ..Lifetime::default()
                };
                let lifetime = lifetimes[id.0].get_or_insert(begin);
                lifetime.last_section = section;
                lifetime.last_stage = stage;
            }
            stage += 1;
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
                    factor: 1.0,
                    added_to: None,
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
