//! Executes a recording's stages for a tile of members.
//!
//! Products take the whole tile, and so do users' models that take many members at once (`many.rs`). The stages between
//! products run member by member, so that a member's rows are still in the cache, and buffers that only one such run of
//! stages touches have room for a single member.

use std::ops::Range;

use super::many::{self, many_function};
use super::row_cache::{CacheLookup, CacheableStages, RowCache};
use super::tile::{Inputs, MemberTile, run_member_by_member};
use crate::buffers::{BufferId, Parameter, Scope, Sums};
use crate::kernels::{Memory, Priors, Scratch, Stage};
use crate::math::Real;
use crate::math::product::Packed;
use crate::solver::member::Member;

/// Evaluates the model, and its cost, gradient and normal matrix, at the members' trial points by running all stages.
/// Products take the whole tile; the stages between two products run member by member, so that a member's rows are
/// still in the cache when the next stage reads them. Members whose rows are in the row cache at their starts skip the
/// stages that would compute them.
pub fn linearise<R: Real>(
    inputs: &Inputs<R>,
    row_cache: Option<&RowCache<R>>,
    tile: &mut MemberTile<R>,
    members: &mut [&mut Member],
) {
    // 1. Look up the rows of each member. Only the starts, at which members are in their first round, recur.
    let mut lookups: Vec<CacheLookup<R>> = members
        .iter()
        .map(|member| match row_cache {
            Some(cache) if member.rounds == 0 => cache.look_up(&member.trial),
            _ => CacheLookup::Miss,
        })
        .collect();
    let n_misses = lookups.iter().filter(|lookup| !lookup.is_hit()).count();
    let is_cacheable =
        |stage: usize| row_cache.is_some_and(|cache| cache.cacheable.is_cacheable(stage));
    // 2. Run the stages: for the whole tile, or all stages of a section for one member after another.
    let mut first_stage = 0;
    for section in inputs.recording.stages.chunk_by(run_member_by_member) {
        if let [stage @ Stage::Product(_)] = section {
            let rows = VisibleRows::Tile {
                members: if is_cacheable(first_stage) {
                    n_misses
                } else {
                    members.len()
                },
            };
            tile.time_stage(first_stage, |tile| {
                stage.run(&mut TileMemory {
                    inputs,
                    tile,
                    rows,
                    member: None,
                })
            });
        } else if let [stage] = section
            && let Some(model) = many_function(stage)
        {
            tile.time_stage(first_stage, |tile| {
                many::evaluate_tile(inputs, model, tile, members)
            });
        } else {
            let n_buffers = inputs.recording.buffers.len();
            let mut blocks: Vec<Range<usize>> = Vec::with_capacity(n_buffers);
            // Members whose rows are cached have none in the tile.
            let mut place = 0;
            for (member, lookup) in members.iter_mut().zip(&mut lookups) {
                blocks.clear();
                blocks.extend(
                    (0..n_buffers).map(|b| tile.block_range(&inputs.recording, BufferId(b), place)),
                );
                for (k, stage) in section
                    .iter()
                    .enumerate()
                    .map(|(k, stage)| (first_stage + k, stage))
                {
                    if lookup.is_hit() && is_cacheable(k) {
                        continue;
                    }
                    let rows = VisibleRows::Member {
                        blocks: &blocks,
                        cached: row_cache.map(|cache| (&cache.cacheable, &*lookup)),
                    };
                    let member = Some(&mut **member);
                    tile.time_stage(k, |tile| {
                        stage.run(&mut TileMemory {
                            inputs,
                            tile,
                            rows,
                            member,
                        })
                    });
                    if let (Some(id), CacheLookup::MissToStore(rows_to_store)) = (
                        row_cache.and_then(|cache| cache.cacheable.cached_output(k)),
                        &mut *lookup,
                    ) {
                        rows_to_store.extend_from_slice(&tile.rows(id)[blocks[id.0].clone()]);
                    }
                }
                place += usize::from(!lookup.is_hit());
            }
        }
        first_stage += section.len();
    }
    // 3. Cache the rows of starts that have come a second time.
    for (member, lookup) in members.iter().zip(lookups) {
        if let (Some(cache), CacheLookup::MissToStore(rows)) = (row_cache, lookup) {
            cache.store(&member.trial, rows);
        }
    }
    // 4. Count, for the profile, how many members each stage was run for.
    if let Some(tally) = &mut tile.tally {
        for stage in 0..first_stage {
            let evaluated = if is_cacheable(stage) {
                n_misses
            } else {
                members.len()
            };
            tally.count(stage, evaluated);
        }
    }
}

/// Evaluates the model at one member's trial point, and returns its rows in each of these buffers, as f64.
pub fn evaluate_rows<R: Real>(
    inputs: &Inputs<R>,
    buffers: &[BufferId],
    member: &mut [&mut Member],
) -> Vec<Vec<f64>> {
    let mut tile = MemberTile::without_sharing(&inputs.recording);
    linearise(inputs, None, &mut tile, member);
    buffers
        .iter()
        .map(|id| {
            let rows = &tile.rows(*id)[..inputs.recording.block(*id).length];
            rows.iter().map(|x| x.to_f64()).collect()
        })
        .collect()
}

/// The memory that stages see: of one member, or of the first members of a tile.
struct TileMemory<'a, R> {
    inputs: &'a Inputs<R>,
    tile: &'a mut MemberTile<R>,
    rows: VisibleRows<'a, R>,
    /// `None` where a stage sees the rows of several members.
    member: Option<&'a mut Member>,
}

/// Positions, in a tile, of the rows that a stage sees.
enum VisibleRows<'a, R> {
    /// One member's: by buffer, and its cached rows, which replace those in the tile.
    Member {
        blocks: &'a [Range<usize>],
        cached: Option<(&'a CacheableStages, &'a CacheLookup<R>)>,
    },
    /// Rows of the first members, one after another.
    Tile { members: usize },
}

impl<R: Real> TileMemory<'_, R> {
    /// Returns the range of a buffer's elements that the stage works on: one member's block, or those of a whole tile.
    fn element_range(&self, id: BufferId) -> Range<usize> {
        match &self.rows {
            VisibleRows::Member { blocks, .. } => blocks[id.0].clone(),
            VisibleRows::Tile { members } => 0..members * self.inputs.recording.block(id).length,
        }
    }

    /// Returns the index of the member's spectrum; 0 where a whole tile is evaluated.
    fn spectrum_index(&self) -> usize {
        self.member.as_ref().map_or(0, |member| member.spectrum)
    }
}

impl<R: Real> Memory<R> for TileMemory<'_, R> {
    fn parameters(&self) -> &[Parameter] {
        &self.inputs.recording.parameters
    }

    fn trial(&self) -> &[f64] {
        self.member.as_ref().map_or(&[], |member| &member.trial)
    }

    fn priors(&self) -> Priors<'_> {
        self.inputs.priors(self.spectrum_index())
    }

    fn floats(&self, id: BufferId) -> &[R] {
        if self.inputs.recording.block(id).scope != Scope::Member {
            return self.inputs.floats(id, self.spectrum_index());
        }
        let range = self.element_range(id);
        let cached_rows = match &self.rows {
            VisibleRows::Member {
                cached: Some((cacheable, lookup)),
                ..
            } => lookup.cached_rows(cacheable, id, range.len()),
            _ => None,
        };
        cached_rows.unwrap_or_else(|| &self.tile.rows(id)[range])
    }

    fn indices(&self, id: BufferId) -> &[i32] {
        self.inputs.indices(id, self.spectrum_index())
    }

    fn packed(&self, id: BufferId) -> Option<&Packed<R>> {
        self.inputs.packed_weights(id)
    }

    fn write(&mut self, id: BufferId, fill: impl FnOnce(&Self, &mut [R])) {
        let mut rows = self.tile.take_rows(id);
        fill(self, &mut rows[self.element_range(id)]);
        self.tile.give_rows_back(id, rows);
    }

    fn add(&mut self, add: impl FnOnce(&Self, &mut Sums)) {
        let Some(member) = &mut self.member else {
            return;
        };
        let mut sums = std::mem::replace(&mut member.trial_sums, Sums::poisoned(0));
        add(self, &mut sums);
        if let Some(member) = &mut self.member {
            member.trial_sums = sums;
        }
    }

    fn take_scratch(&mut self) -> Scratch<R> {
        std::mem::take(&mut self.tile.scratch)
    }

    fn give_scratch_back(&mut self, scratch: Scratch<R>) {
        self.tile.scratch = scratch;
    }
}
