//! Data that kernels read and write: the population's inputs, and the rows of a tile of members.

use std::ops::Range;
use std::sync::Arc;

use web_time::Instant;

use super::block::{Block, scatter};
use super::made::Made;
use super::many::of_many;
use super::shelves::Shelves;
use crate::kernels::{Priors, Scratch};
use crate::math::Real;
use crate::math::aligned::Aligned;
use crate::math::product::Packed;
use crate::recording::{BufferId, Recording, Scope, Stage};
use crate::solver::profile::KernelTally;
use crate::solver::{Batch, Bounds};

/// Everything that the kernels read.
pub struct Inputs<R> {
    pub recording: Arc<Recording>,
    pub blocks: Vec<Block<R>>,
    pub made: Arc<Made<R>>,
    /// By the spectra's places: bounds and priors.
    limits: [Vec<f64>; 4],
}

impl<R: Real> Inputs<R> {
    /// Makes the inputs of a recording from the blocks of its buffers, without bounds and priors of parameters yet.
    pub fn new(recording: Arc<Recording>, blocks: Vec<Block<R>>, made: Arc<Made<R>>) -> Inputs<R> {
        Inputs {
            recording,
            blocks,
            made,
            limits: Default::default(),
        }
    }

    /// Removes the data, bounds and priors of all spectra and what the batch shares; constants stay.
    pub fn clear(&mut self) {
        for (block, buffer) in self.blocks.iter_mut().zip(&self.recording.buffers) {
            if matches!(buffer.scope, Scope::Batch | Scope::Spectrum) {
                block.clear();
            }
        }
        self.limits.iter_mut().for_each(Vec::clear);
    }

    /// Copies a batch's data, bounds and priors to the places `spectra` of its spectra; returns the number of bytes
    /// copied.
    pub fn enter(&mut self, batch: &Batch, spectra: &[usize]) -> usize {
        let is_first = self.limits[0].is_empty();
        let mut copied = 0;
        for (id, values) in &batch.blocks {
            let buffer = self.recording.block(*id);
            match buffer.scope {
                Scope::Spectrum => {
                    copied += self.blocks[id.0].put(buffer.kind, values, buffer.length, spectra)
                }
                _ if is_first => {
                    self.blocks[id.0] = Block::new(buffer.kind, values);
                    copied += self.blocks[id.0].own_bytes();
                }
                _ => {}
            }
        }
        let parameters = self.recording.parameters.len();
        let own = [
            &batch.lower,
            &batch.upper,
            &batch.prior_mean,
            &batch.prior_weight,
        ];
        for (all, own) in self.limits.iter_mut().zip(own) {
            scatter(all, own, parameters, spectra, f64::NAN);
            copied += size_of_val(own.as_slice());
        }
        copied
    }

    /// Returns the memory of a population's inputs in bytes, with its share of what several populations hold together.
    pub fn bytes(&self) -> usize {
        let limits: usize = self
            .limits
            .iter()
            .map(|limits| size_of_val(limits.as_slice()))
            .sum();
        // its share of what others have, too
        let made = self.made.bytes(&self.recording) / Arc::strong_count(&self.made);
        limits + made + self.blocks.iter().map(Block::bytes).sum::<usize>()
    }

    /// Returns where a spectrum's elements lie in a buffer; those of the whole buffer where all spectra share it.
    pub fn range(&self, id: BufferId, spectrum: usize) -> Range<usize> {
        let buffer = self.recording.block(id);
        let start = if buffer.scope == Scope::Spectrum {
            spectrum * buffer.length
        } else {
            0
        };
        start..start + buffer.length
    }

    /// Returns a spectrum's numbers in a buffer of floats; empty for a buffer of indices.
    pub fn float(&self, id: BufferId, spectrum: usize) -> &[R] {
        match &self.blocks[id.0] {
            Block::Float(v) => {
                let buffer = self.recording.block(id);
                v.block(
                    if buffer.scope == Scope::Spectrum {
                        spectrum
                    } else {
                        0
                    },
                    buffer.length,
                )
            }
            _ => &[],
        }
    }

    /// Returns the packed weights of the product whose weights are buffer `id`; `None` for other buffers.
    pub fn packed(&self, id: BufferId) -> Option<&Packed<R>> {
        self.made.packed(id.0)
    }

    /// Returns a spectrum's numbers in a buffer of indices; empty for a buffer of floats.
    pub fn index(&self, id: BufferId, spectrum: usize) -> &[i32] {
        match &self.blocks[id.0] {
            Block::Index(v) => &v[self.range(id, spectrum)],
            _ => &[],
        }
    }

    /// Returns the lower and upper bounds of a spectrum's parameters, in the solver's units u.
    pub fn bounds(&self, spectrum: usize) -> Bounds<'_> {
        Bounds {
            lower: self.limit(0, spectrum),
            upper: self.limit(1, spectrum),
        }
    }

    /// Returns the means and weights (1/σ) of the Gaussian priors of a spectrum's parameters, in the solver's units u.
    pub fn priors(&self, spectrum: usize) -> Priors<'_> {
        Priors {
            mean: self.limit(2, spectrum),
            weight: self.limit(3, spectrum),
        }
    }

    /// Returns, for a spectrum's P parameters, one kind of limit: 0 lower bound, 1 upper bound, 2 prior mean, 3 prior
    /// weight.
    fn limit(&self, kind: usize, spectrum: usize) -> &[f64] {
        let count = self.recording.parameters.len();
        &self.limits[kind][spectrum * count..(spectrum + 1) * count]
    }
}

/// Bytes of rows that a tile of members may fill: about half of a core's L2 cache.
const TILE_BYTES: usize = 1 << 20;
/// Most members in a tile.
const TILE_MEMBERS: usize = 64;
/// Bytes of rows and most members where a model takes many at once: a call has its price, but numbers that the model
/// makes for differences on both sides of each parameter, some ten times the rows, should stay in the cache. (With
/// 16 MiB a function of numpy took 87 to 101 µs per curve on two cores instead of 64 to 86.)
const MANY_BYTES: usize = 1 << 19;
const MANY_MEMBERS: usize = 1024;

/// Returns the number of elements of a tile of `members` members in which buffers share memory where they can.
pub fn elements(recording: &Recording, members: usize) -> usize {
    Shelves::new(recording).elements(members)
}

/// Rows of a tile's members.
pub struct Tile<R> {
    /// By shelf.
    rows: Vec<Aligned<R>>,
    shelves: Shelves,
    pub scratch: Scratch<R>,
    /// Record of the time spent, if it is measured.
    pub tally: Option<KernelTally>,
}

impl<R: Real> Tile<R> {
    /// Makes a tile for so many members, in which buffers that are not needed at the same time share memory.
    pub fn new(recording: &Recording, members: usize) -> Tile<R> {
        Tile::with(Shelves::new(recording), members)
    }

    /// Makes a tile for one member in which no buffer overwrites another, so that all rows can be read in the end.
    pub fn apart(recording: &Recording) -> Tile<R> {
        Tile::with(Shelves::apart(recording), 1)
    }

    /// Makes a tile of so many members in the given layout, filled with NaN.
    fn with(shelves: Shelves, members: usize) -> Tile<R> {
        let rows = shelves
            .all
            .iter()
            .map(|shelf| Aligned::new(shelf.elements(members), R::NAN))
            .collect();
        Tile {
            rows,
            shelves,
            scratch: Scratch::default(),
            tally: None,
        }
    }

    /// Returns how many members a tile evaluates together, so that their rows stay in the processor's cache.
    pub fn members(recording: &Recording) -> usize {
        let bytes = elements(recording, 1) - elements(recording, 0);
        let (most_bytes, most) = match recording
            .stages
            .iter()
            .any(|stage| of_many(stage).is_some())
        {
            true => (MANY_BYTES, MANY_MEMBERS),
            false => (TILE_BYTES, TILE_MEMBERS),
        };
        (most_bytes / (bytes * size_of::<R>()).max(1)).clamp(1, most)
    }

    /// Returns where the block of the tile's member number `place` lies among the rows of a buffer.
    pub fn block(&self, recording: &Recording, id: BufferId, place: usize) -> Range<usize> {
        let length = recording.block(id).length;
        let place = if self.shelves.is_local(id) { 0 } else { place };
        place * length..(place + 1) * length
    }

    /// Returns the rows of all the tile's members in a member buffer; empty for other buffers.
    pub fn rows(&self, id: BufferId) -> &[R] {
        self.shelves.of(id).map_or(&[], |shelf| &self.rows[shelf])
    }

    /// Runs `work` on the tile and, if the tile keeps a tally, adds the time it took to that stage's.
    #[inline(always)]
    pub fn timed(&mut self, stage: usize, work: impl FnOnce(&mut Self)) {
        if self.tally.is_none() {
            return work(self);
        }
        let begin = Instant::now();
        work(self);
        if let Some(tally) = &mut self.tally {
            tally.seconds[stage] += begin.elapsed().as_secs_f64();
        }
    }

    /// Moves the rows of a buffer out of the tile, so that others can be read while these are written;
    /// [`give_back`](Self::give_back) returns them.
    pub fn take(&mut self, id: BufferId) -> Aligned<R> {
        self.shelves.of(id).map_or(Aligned::default(), |shelf| {
            std::mem::take(&mut self.rows[shelf])
        })
    }

    /// Puts rows that [`take`](Tile::take) took out back into the tile.
    pub fn give_back(&mut self, id: BufferId, rows: Aligned<R>) {
        if let Some(shelf) = self.shelves.of(id) {
            self.rows[shelf] = rows;
        }
    }
}

/// Returns whether two neighbouring stages may both run member by member, that is, neither takes the whole tile.
pub fn together(a: &Stage, b: &Stage) -> bool {
    let takes_tile = |stage: &Stage| matches!(stage, Stage::Product(_)) || of_many(stage).is_some();
    !takes_tile(a) && !takes_tile(b)
}

/// Returns how many elements all buffers of a scope have together, for one member, spectrum or batch.
pub fn length(recording: &Recording, scope: Scope) -> usize {
    recording
        .buffers
        .iter()
        .filter(|b| b.scope == scope)
        .map(|b| b.length)
        .sum()
}
