//! Data that kernels read and write: the population's inputs, and the rows of a tile of members.

use std::ops::Range;
use std::sync::Arc;

use web_time::Instant;

use super::block::{Block, scatter};
use super::made::Made;
use super::shelves::Shelves;
use crate::kernels::Scratch;
use crate::recording::{BufferId, Recording, Scope, Stage};
use crate::rows::Real;
use crate::rows::aligned::Aligned;
use crate::rows::product::Packed;
use crate::solver::Batch;
use crate::solver::profile::Tally;

/// Everything that the kernels read.
pub struct Inputs<R> {
    pub recording: Arc<Recording>,
    pub blocks: Vec<Block<R>>,
    pub made: Arc<Made<R>>,
    /// By the spectra's places: bounds and priors.
    limits: [Vec<f64>; 4],
}

impl<R: Real> Inputs<R> {
    pub fn new(recording: Arc<Recording>, blocks: Vec<Block<R>>, made: Arc<Made<R>>) -> Inputs<R> {
        Inputs { recording, blocks, made, limits: Default::default() }
    }

    /// Forgets all spectra.
    pub fn clear(&mut self) {
        for (block, buffer) in self.blocks.iter_mut().zip(&self.recording.buffers) {
            if matches!(buffer.scope, Scope::Batch | Scope::Spectrum) {
                block.clear();
            }
        }
        self.limits.iter_mut().for_each(Vec::clear);
    }

    /// Takes the spectra of a batch to their places; returns the bytes that it copied.
    pub fn enter(&mut self, batch: &Batch, spectra: &[usize]) -> usize {
        let is_first = self.limits[0].is_empty();
        let mut copied = 0;
        for (id, values) in &batch.blocks {
            let buffer = self.recording.block(*id);
            match buffer.scope {
                Scope::Spectrum => copied += self.blocks[id.0].put((buffer.kind, values), buffer.length, spectra),
                _ if is_first => {
                    self.blocks[id.0] = Block::new(buffer.kind, values);
                    copied += self.blocks[id.0].own_bytes();
                }
                _ => {}
            }
        }
        let parameters = self.recording.parameters.len();
        let own = [&batch.lower, &batch.upper, &batch.prior_mean, &batch.prior_weight];
        for (all, own) in self.limits.iter_mut().zip(own) {
            scatter(all, own, parameters, spectra, f64::NAN);
            copied += size_of_val(own.as_slice());
        }
        copied
    }

    pub fn bytes(&self) -> usize {
        let limits: usize = self.limits.iter().map(|limits| size_of_val(limits.as_slice())).sum();
        // its share of what others have, too
        let made = self.made.bytes() / Arc::strong_count(&self.made);
        limits + made + self.blocks.iter().map(Block::bytes).sum::<usize>()
    }

    pub fn range(&self, id: BufferId, spectrum: usize) -> Range<usize> {
        let buffer = self.recording.block(id);
        let start = if buffer.scope == Scope::Spectrum { spectrum * buffer.length } else { 0 };
        start..start + buffer.length
    }

    pub fn float(&self, id: BufferId, spectrum: usize) -> &[R] {
        match &self.blocks[id.0] {
            Block::Float(v) => &v.all()[self.range(id, spectrum)],
            _ => &[],
        }
    }

    /// A product's weights, packed.
    pub fn packed(&self, id: BufferId) -> Option<&Packed<R>> {
        self.made.packed(id.0)
    }

    pub fn index(&self, id: BufferId, spectrum: usize) -> &[i32] {
        match &self.blocks[id.0] {
            Block::Index(v) => &v[self.range(id, spectrum)],
            _ => &[],
        }
    }

    /// Lower and upper.
    pub fn bounds(&self, spectrum: usize) -> (&[f64], &[f64]) {
        (self.limit(0, spectrum), self.limit(1, spectrum))
    }

    /// Means and weights.
    pub fn priors(&self, spectrum: usize) -> (&[f64], &[f64]) {
        (self.limit(2, spectrum), self.limit(3, spectrum))
    }

    fn limit(&self, kind: usize, spectrum: usize) -> &[f64] {
        let count = self.recording.parameters.len();
        &self.limits[kind][spectrum * count..(spectrum + 1) * count]
    }
}

/// Bytes of rows that a tile of members may fill: about half of a core's L2 cache.
const TILE_BYTES: usize = 1 << 20;
/// Most members in a tile.
const TILE_MEMBERS: usize = 64;

/// Elements of a tile of so many members.
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
    pub tally: Option<Tally>,
}

impl<R: Real> Tile<R> {
    pub fn new(recording: &Recording, members: usize) -> Tile<R> {
        Tile::with(Shelves::new(recording), members)
    }

    /// For one member whose rows can all be looked at in the end.
    pub fn apart(recording: &Recording) -> Tile<R> {
        Tile::with(Shelves::apart(recording), 1)
    }

    fn with(shelves: Shelves, members: usize) -> Tile<R> {
        let rows = shelves.all.iter().map(|shelf| Aligned::new(shelf.elements(members), R::NAN)).collect();
        Tile { rows, shelves, scratch: Scratch::default(), tally: None }
    }

    /// Returns how many members a tile has: what they fill stays in the cache.
    pub fn members(recording: &Recording) -> usize {
        let bytes = elements(recording, 1) - elements(recording, 0);
        (TILE_BYTES / (bytes * size_of::<R>()).max(1)).clamp(1, TILE_MEMBERS)
    }

    /// A member's block of a buffer.
    pub fn block(&self, recording: &Recording, id: BufferId, place: usize) -> Range<usize> {
        let length = recording.block(id).length;
        let place = if self.shelves.is_local(id) { 0 } else { place };
        place * length..(place + 1) * length
    }

    /// The rows of all members in a buffer; none in those of other scopes.
    pub fn rows(&self, id: BufferId) -> &[R] {
        self.shelves.of(id).map_or(&[], |shelf| &self.rows[shelf])
    }

    /// Runs a stage, with a look at the clock where the tile keeps a tally.
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

    pub fn bytes(&self) -> usize {
        self.rows.iter().map(|rows| rows.len() * size_of::<R>()).sum()
    }

    /// The rows of a buffer, for as long as others are read; then they are given back.
    pub fn take(&mut self, id: BufferId) -> Aligned<R> {
        self.shelves.of(id).map_or(Aligned::default(), |shelf| std::mem::take(&mut self.rows[shelf]))
    }

    pub fn give_back(&mut self, id: BufferId, rows: Aligned<R>) {
        if let Some(shelf) = self.shelves.of(id) {
            self.rows[shelf] = rows;
        }
    }
}

/// Stages that are run for one member after the other: all but products.
pub fn together(a: &Stage, b: &Stage) -> bool {
    !matches!(a, Stage::Product(_)) && !matches!(b, Stage::Product(_))
}
