//! Data that kernels read and write: the population's inputs, and the rows of a tile of members.

use std::ops::Range;
use std::sync::Arc;

use web_time::Instant;

use super::block::{BufferElements, scatter_blocks};
use super::many::many_function;
use super::shared::SharedModelData;
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
    pub blocks: Vec<BufferElements<R>>,
    pub shared: Arc<SharedModelData<R>>,
    /// Lower bounds, upper bounds, prior means and prior weights, each by the spectra's places.
    limits: [Vec<f64>; 4],
}

impl<R: Real> Inputs<R> {
    /// Makes the inputs of a recording from the blocks of its buffers, without bounds and priors of parameters yet.
    pub fn new(
        recording: Arc<Recording>,
        blocks: Vec<BufferElements<R>>,
        shared: Arc<SharedModelData<R>>,
    ) -> Inputs<R> {
        Inputs {
            recording,
            blocks,
            shared,
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
    pub fn copy_batch(&mut self, batch: &Batch, spectra: &[usize]) -> usize {
        let is_first = self.limits[0].is_empty();
        let mut copied = 0;
        for (id, values) in &batch.blocks {
            let buffer = self.recording.block(*id);
            match buffer.scope {
                Scope::Spectrum => {
                    copied +=
                        self.blocks[id.0].store_blocks(buffer.kind, values, buffer.length, spectra)
                }
                _ if is_first => {
                    self.blocks[id.0] = BufferElements::new(buffer.kind, values);
                    copied += self.blocks[id.0].own_bytes();
                }
                _ => {}
            }
        }
        let parameters = self.recording.parameters.len();
        let batch_limits = [
            &batch.lower,
            &batch.upper,
            &batch.prior_mean,
            &batch.prior_weight,
        ];
        for (limits, batch_limits) in self.limits.iter_mut().zip(batch_limits) {
            scatter_blocks(limits, batch_limits, parameters, spectra, f64::NAN);
            copied += size_of_val(batch_limits.as_slice());
        }
        copied
    }

    /// Returns the memory of a population's inputs in bytes, with its share of what several populations hold together.
    pub fn bytes(&self) -> usize {
        let limits_bytes: usize = self
            .limits
            .iter()
            .map(|limits| size_of_val(limits.as_slice()))
            .sum();
        let shared_bytes = self.shared.bytes(&self.recording) / Arc::strong_count(&self.shared);
        limits_bytes + shared_bytes + self.blocks.iter().map(BufferElements::bytes).sum::<usize>()
    }

    /// Returns where a spectrum's elements lie in a buffer; those of the whole buffer where all spectra share it.
    pub fn element_range(&self, id: BufferId, spectrum: usize) -> Range<usize> {
        let buffer = self.recording.block(id);
        let start = if buffer.scope == Scope::Spectrum {
            spectrum * buffer.length
        } else {
            0
        };
        start..start + buffer.length
    }

    /// Returns a spectrum's numbers in a buffer of floats; empty for a buffer of indices.
    pub fn floats(&self, id: BufferId, spectrum: usize) -> &[R] {
        match &self.blocks[id.0] {
            BufferElements::Float(floats) => {
                let buffer = self.recording.block(id);
                let place = if buffer.scope == Scope::Spectrum {
                    spectrum
                } else {
                    0
                };
                floats.block_at(place, buffer.length)
            }
            _ => &[],
        }
    }

    /// Returns the packed weights of the product whose weights are buffer `id`; `None` for other buffers.
    pub fn packed_weights(&self, id: BufferId) -> Option<&Packed<R>> {
        self.shared.packed_weights(id.0)
    }

    /// Returns a spectrum's numbers in a buffer of indices; empty for a buffer of floats.
    pub fn indices(&self, id: BufferId, spectrum: usize) -> &[i32] {
        match &self.blocks[id.0] {
            BufferElements::Index(indices) => &indices[self.element_range(id, spectrum)],
            _ => &[],
        }
    }

    /// Returns the lower and upper bounds of a spectrum's parameters, in the solver's units u.
    pub fn bounds(&self, spectrum: usize) -> Bounds<'_> {
        Bounds {
            lower: self.limits_of(0, spectrum),
            upper: self.limits_of(1, spectrum),
        }
    }

    /// Returns the means and weights (1/σ) of the Gaussian priors of a spectrum's parameters, in the solver's units u.
    pub fn priors(&self, spectrum: usize) -> Priors<'_> {
        Priors {
            mean: self.limits_of(2, spectrum),
            weight: self.limits_of(3, spectrum),
        }
    }

    /// Returns, for a spectrum's P parameters, one kind of limit: 0 lower bound, 1 upper bound, 2 prior mean, 3 prior
    /// weight.
    fn limits_of(&self, kind: usize, spectrum: usize) -> &[f64] {
        let count = self.recording.parameters.len();
        &self.limits[kind][spectrum * count..(spectrum + 1) * count]
    }
}

/// Maximum number of bytes of a tile's rows: about half of a core's L2 cache.
const MAX_TILE_BYTES: usize = 1 << 20;
/// Maximum number of members in a tile.
const MAX_TILE_MEMBERS: usize = 64;
/// Maximum number of bytes of a tile's rows where a user's function takes many members at once. Each call has a cost,
/// so tiles should be large. But the numbers that the model makes for differences on both sides of each parameter, some
/// ten times the rows, should stay in the cache. (With 16 MiB a function of numpy took 87 to 101 µs per curve on two
/// cores instead of 64 to 86.)
const MAX_MANY_TILE_BYTES: usize = 1 << 19;
/// Maximum number of members in such a tile.
const MAX_MANY_TILE_MEMBERS: usize = 1024;

/// Returns the number of elements of a tile of `members` members in which buffers share memory where they can.
pub fn tile_elements(recording: &Recording, members: usize) -> usize {
    Shelves::new(recording).elements(members)
}

/// Rows of a tile's members.
pub struct MemberTile<R> {
    /// By shelf.
    rows: Vec<Aligned<R>>,
    shelves: Shelves,
    pub scratch: Scratch<R>,
    /// Record of the time spent in each stage, if it is measured.
    pub tally: Option<KernelTally>,
}

impl<R: Real> MemberTile<R> {
    /// Makes a tile for so many members, in which buffers that are not needed at the same time share memory.
    pub fn new(recording: &Recording, members: usize) -> MemberTile<R> {
        MemberTile::with_layout(Shelves::new(recording), members)
    }

    /// Makes a tile for one member in which no buffer overwrites another, so that all rows can be read in the end.
    pub fn without_sharing(recording: &Recording) -> MemberTile<R> {
        MemberTile::with_layout(Shelves::without_sharing(recording), 1)
    }

    /// Makes a tile of so many members in the given layout, filled with NaN.
    fn with_layout(shelves: Shelves, members: usize) -> MemberTile<R> {
        let rows = shelves
            .all
            .iter()
            .map(|shelf| Aligned::new(shelf.elements(members), R::NAN))
            .collect();
        MemberTile {
            rows,
            shelves,
            scratch: Scratch::default(),
            tally: None,
        }
    }

    /// Returns how many members a tile evaluates together, so that their rows stay in the processor's cache.
    pub fn members_per_tile(recording: &Recording) -> usize {
        let elements_per_member = tile_elements(recording, 1) - tile_elements(recording, 0);
        let takes_many = recording
            .stages
            .iter()
            .any(|stage| many_function(stage).is_some());
        let (max_bytes, max_members) = if takes_many {
            (MAX_MANY_TILE_BYTES, MAX_MANY_TILE_MEMBERS)
        } else {
            (MAX_TILE_BYTES, MAX_TILE_MEMBERS)
        };
        (max_bytes / (elements_per_member * size_of::<R>()).max(1)).clamp(1, max_members)
    }

    /// Returns where the block of the tile's member number `place` lies among the rows of a buffer.
    pub fn block_range(&self, recording: &Recording, id: BufferId, place: usize) -> Range<usize> {
        let length = recording.block(id).length;
        let place = if self.shelves.is_local(id) { 0 } else { place };
        place * length..(place + 1) * length
    }

    /// Returns the rows of all the tile's members in a member buffer; empty for other buffers.
    pub fn rows(&self, id: BufferId) -> &[R] {
        self.shelves
            .shelf_of(id)
            .map_or(&[], |shelf| &self.rows[shelf])
    }

    /// Runs `work` on the tile and, if the tile keeps a tally, adds the time it took to that stage's.
    #[inline(always)]
    pub fn time_stage(&mut self, stage: usize, work: impl FnOnce(&mut Self)) {
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
    /// [`give_rows_back`](Self::give_rows_back) returns them.
    pub fn take_rows(&mut self, id: BufferId) -> Aligned<R> {
        self.shelves
            .shelf_of(id)
            .map_or(Aligned::default(), |shelf| {
                std::mem::take(&mut self.rows[shelf])
            })
    }

    /// Puts rows that [`take_rows`](Self::take_rows) took out back into the tile.
    pub fn give_rows_back(&mut self, id: BufferId, rows: Aligned<R>) {
        if let Some(shelf) = self.shelves.shelf_of(id) {
            self.rows[shelf] = rows;
        }
    }
}

/// Returns whether two neighbouring stages may both run member by member, that is, neither takes the whole tile.
pub fn run_member_by_member(first: &Stage, second: &Stage) -> bool {
    let takes_tile =
        |stage: &Stage| matches!(stage, Stage::Product(_)) || many_function(stage).is_some();
    !takes_tile(first) && !takes_tile(second)
}

/// Returns how many elements all buffers of a scope have together, for one member, spectrum or batch.
pub fn count_elements(recording: &Recording, scope: Scope) -> usize {
    recording
        .buffers
        .iter()
        .filter(|b| b.scope == scope)
        .map(|b| b.length)
        .sum()
}
