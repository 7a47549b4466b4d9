//! Executes a recording's stages for a tile of members.
//!
//! Products take the whole tile, and so do users' models that take many members at once (`many.rs`). The stages between
//! products run member by member, so that a member's rows are still in the cache, and buffers that only one such run of
//! stages touches have room for a single member.

use std::ops::Range;

use super::known::{Head, Heads, Known};
use super::many::{self, of_many};
use super::tile::{Inputs, Tile, together};
use crate::buffers::{BufferId, Parameter, Scope, Sums};
use crate::kernels::{Memory, Priors, Scratch, Stage};
use crate::math::Real;
use crate::math::product::Packed;
use crate::solver::member::Member;

/// Evaluates the model, and its cost, gradient and normal matrix, at the members' trial points by running all stages.
/// Products take the whole tile; the stages between two products run member by member, so that a member's rows are
/// still in the cache when the next stage reads them. Members whose rows are known at their starts have no part in the
/// stages that would make them.
pub fn linearise<R: Real>(
    inputs: &Inputs<R>,
    known: Option<&Known<R>>,
    tile: &mut Tile<R>,
    members: &mut [&mut Member],
) {
    let first_round = |member: &Member| known.filter(|_| member.rounds == 0);
    let head = |member: &Member| {
        first_round(member).map_or(Head::Unknown, |known| known.head(&member.trial))
    };
    let mut heads: Vec<Head<R>> = members.iter().map(|member| head(member)).collect();
    let unknown = heads.iter().filter(|head| !head.is_known()).count();
    let is_head = |stage: usize| known.is_some_and(|known| known.heads.is_head(stage));
    let mut first = 0;
    for run in inputs.recording.stages.chunk_by(together) {
        if let [stage @ Stage::Product(_)] = run {
            let rows = Rows::Tile {
                members: if is_head(first) {
                    unknown
                } else {
                    members.len()
                },
            };
            tile.timed(first, |tile| {
                stage.run(&mut TileMemory {
                    inputs,
                    tile,
                    rows,
                    member: None,
                })
            });
        } else if let [stage] = run
            && let Some(model) = of_many(stage)
        {
            tile.timed(first, |tile| many::run(inputs, model, tile, members));
        } else {
            let mut blocks: Vec<Range<usize>> = Vec::with_capacity(inputs.recording.buffers.len());
            // those that are known have no rows in the tile
            let mut place = 0;
            for (member, head) in members.iter_mut().zip(&mut heads) {
                let block = |b| tile.block(&inputs.recording, BufferId(b), place);
                blocks.clear();
                blocks.extend((0..inputs.recording.buffers.len()).map(block));
                for (k, stage) in run.iter().enumerate().map(|(k, stage)| (first + k, stage)) {
                    if head.is_known() && is_head(k) {
                        continue;
                    }
                    let rows = Rows::Member {
                        blocks: &blocks,
                        known: known.map(|known| (&known.heads, &*head)),
                    };
                    let member = Some(&mut **member);
                    tile.timed(k, |tile| {
                        stage.run(&mut TileMemory {
                            inputs,
                            tile,
                            rows,
                            member,
                        })
                    });
                    if let (Some(id), Head::Again(made)) =
                        (known.and_then(|known| known.heads.end_of(k)), &mut *head)
                    {
                        made.extend_from_slice(&tile.rows(id)[blocks[id.0].clone()]);
                    }
                }
                place += usize::from(!head.is_known());
            }
        }
        first += run.len();
    }
    for (member, head) in members.iter().zip(heads) {
        if let (Some(known), Head::Again(rows)) = (known, head) {
            known.keep(&member.trial, rows);
        }
    }
    if let Some(tally) = &mut tile.tally {
        let members = |stage: usize| {
            if is_head(stage) {
                unknown
            } else {
                members.len()
            }
        };
        (0..first).for_each(|stage| tally.count(stage, members(stage)));
    }
}

/// Evaluates the model at one member's trial point, and returns its rows in each of these buffers, as f64.
pub fn rows_of<R: Real>(
    inputs: &Inputs<R>,
    buffers: &[BufferId],
    member: &mut [&mut Member],
) -> Vec<Vec<f64>> {
    let mut tile = Tile::apart(&inputs.recording);
    linearise(inputs, None, &mut tile, member);
    let rows = |id: BufferId| &tile.rows(id)[..inputs.recording.block(id).length];
    buffers
        .iter()
        .map(|id| rows(*id).iter().map(|x| x.to_f64()).collect())
        .collect()
}

/// The memory that stages see: of one member, or of the first members of a tile.
struct TileMemory<'a, R> {
    inputs: &'a Inputs<R>,
    tile: &'a mut Tile<R>,
    rows: Rows<'a, R>,
    /// Absent where rows of several members are shown.
    member: Option<&'a mut Member>,
}

/// Positions of members' rows in a tile.
enum Rows<'a, R> {
    /// One member's: by buffer, and what is known of it instead.
    Member {
        blocks: &'a [Range<usize>],
        known: Option<(&'a Heads, &'a Head<R>)>,
    },
    /// Rows of the first members, one after another.
    Tile { members: usize },
}

impl<R: Real> TileMemory<'_, R> {
    /// Returns the range of a buffer's elements that the stage works on: one member's block, or those of a whole tile.
    fn range(&self, id: BufferId) -> Range<usize> {
        match &self.rows {
            Rows::Member { blocks, .. } => blocks[id.0].clone(),
            Rows::Tile { members } => 0..members * self.inputs.recording.block(id).length,
        }
    }

    /// Returns the index of the member's spectrum; 0 where a whole tile is evaluated.
    fn spectrum(&self) -> usize {
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
        self.inputs.priors(self.spectrum())
    }

    fn floats(&self, id: BufferId) -> &[R] {
        if self.inputs.recording.block(id).scope != Scope::Member {
            return self.inputs.float(id, self.spectrum());
        }
        let range = self.range(id);
        let known = match &self.rows {
            Rows::Member {
                known: Some((heads, head)),
                ..
            } => head.rows(heads, id, range.len()),
            _ => None,
        };
        known.unwrap_or_else(|| &self.tile.rows(id)[range])
    }

    fn indices(&self, id: BufferId) -> &[i32] {
        self.inputs.index(id, self.spectrum())
    }

    fn packed(&self, id: BufferId) -> Option<&Packed<R>> {
        self.inputs.packed(id)
    }

    fn write(&mut self, id: BufferId, fill: impl FnOnce(&Self, &mut [R])) {
        let mut rows = self.tile.take(id);
        fill(self, &mut rows[self.range(id)]);
        self.tile.give_back(id, rows);
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
