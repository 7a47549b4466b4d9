//! Layout of a tile's rows: those that are not needed at the same time share one place in memory, so that more members
//! fit into the cache (the arms of a spectrum come one after another).

use super::tile::together;
use crate::recording::{BufferId, Recording, Scope, Stage};

/// Room for one buffer at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shelf {
    /// Elements of a member.
    length: usize,
    /// One member's alone: nothing reads it after the member's run of stages.
    local: bool,
    /// The last run of stages that needs what lies there.
    until: usize,
}

impl Shelf {
    /// Returns how many elements the shelf (memory that buffers share) takes in a tile of so many members.
    pub fn elements(&self, members: usize) -> usize {
        self.length * if self.local { 1 } else { members }
    }
}

/// The shelves of a recording's member buffers.
pub struct Shelves {
    pub all: Vec<Shelf>,
    /// By buffer; none for those of other scopes.
    of: Vec<Option<usize>>,
}

impl Shelves {
    /// Lays out a tile's memory so that member buffers that are never needed at the same time share a shelf.
    pub fn new(recording: &Recording) -> Shelves {
        Shelves::placed(recording, true)
    }

    /// Lays out a tile's memory so that no member buffer shares a shelf, and none is overwritten.
    pub fn apart(recording: &Recording) -> Shelves {
        Shelves::placed(recording, false)
    }

    /// Assigns each member buffer a shelf of the tile's memory; if `shared`, one whose earlier buffers are no longer
    /// needed.
    fn placed(recording: &Recording, shared: bool) -> Shelves {
        let lives = lives(recording);
        let own = |b: &usize| recording.buffers[*b].scope == Scope::Member;
        let mut order: Vec<usize> = (0..recording.buffers.len()).filter(own).collect();
        order.sort_by_key(|&b| lives[b].map_or(0, |(first, _)| first));
        let mut shelves = Shelves {
            all: Vec::new(),
            of: vec![None; recording.buffers.len()],
        };
        for b in order {
            let (first, last) = lives[b].unwrap_or_default();
            let shelf = Shelf {
                length: recording.buffers[b].length,
                local: first == last,
                until: last,
            };
            let is_free =
                |other: &Shelf| shared && other.local == shelf.local && other.until < first;
            let free = (0..shelves.all.len()).filter(|&k| is_free(&shelves.all[k]));
            // that of the most alike length
            let place = free.min_by_key(|&k| shelves.all[k].length.abs_diff(shelf.length));
            let place = place.unwrap_or(shelves.all.len());
            match shelves.all.get_mut(place) {
                Some(before) => {
                    *before = Shelf {
                        length: before.length.max(shelf.length),
                        ..shelf
                    }
                }
                None => shelves.all.push(shelf),
            }
            shelves.of[b] = Some(place);
        }
        shelves
    }

    /// Returns the index of the shelf (memory that several buffers share) of a member's buffer; `None` for other
    /// buffers.
    pub fn of(&self, id: BufferId) -> Option<usize> {
        self.of[id.0]
    }

    /// Returns whether a buffer's shelf holds the rows of only one member at a time.
    pub fn is_local(&self, id: BufferId) -> bool {
        self.of(id).is_some_and(|shelf| self.all[shelf].local)
    }

    /// Returns how many elements all shelves together take in a tile of so many members.
    pub fn elements(&self, members: usize) -> usize {
        self.all.iter().map(|shelf| shelf.elements(members)).sum()
    }
}

/// Returns the first and last run of stages (runs end at products) that use each buffer; `None` for those unused.
fn lives(recording: &Recording) -> Vec<Option<(usize, usize)>> {
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; recording.buffers.len()];
    for (run, stages) in recording.stages.chunk_by(together).enumerate() {
        for id in stages.iter().flat_map(Stage::member_buffers) {
            lives[id.0] = Some((lives[id.0].map_or(run, |(first, _)| first), run));
        }
    }
    lives
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::recording::{Activate, Activation, Kind, Product, Values};

    /// Two arms, each x → hidden → template.
    #[test]
    fn arms_share_shelves_and_neighbours_do_not() {
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
        assert_eq!(shelves.of(template), shelves.of(y));
        assert!(shelves.of(hidden) != shelves.of(template) && shelves.of(x) != shelves.of(hidden));
        assert_eq!(
            (shelves.of(weight), shelves.elements(3)),
            (None, 3 * (4 + 16 + 64))
        );
        assert_eq!(Shelves::apart(&recording).all.len(), 4);
    }
}
