//! What kernels read and write: the population's inputs, and the rows of a tile of members.

use std::ops::Range;
use std::sync::Arc;

use crate::rows::Real;
use crate::solver::recording::{BufferId, Kind, Recording, Scope, Stage, Values};

/// Contents of a buffer that kernels read.
pub enum Block<R> {
    Float(Vec<R>),
    Index(Arc<[i32]>),
}

impl<R: Real> Block<R> {
    pub fn new(kind: Kind, values: &Values) -> Block<R> {
        match (kind, values) {
            (Kind::Index, Values::I32(v)) => Block::Index(v.clone()),
            _ => Block::Float(R::convert(values)),
        }
    }
}

/// Everything that the kernels read.
pub struct Inputs<R> {
    pub recording: Arc<Recording>,
    pub blocks: Vec<Block<R>>,
    /// (spectra, parameters)
    pub lower: Vec<f64>,
    pub upper: Vec<f64>,
    pub prior_mean: Vec<f64>,
    pub prior_weight: Vec<f64>,
}

impl<R: Real> Inputs<R> {
    pub fn range(&self, id: BufferId, spectrum: usize) -> Range<usize> {
        let buffer = self.recording.block(id);
        let start = if buffer.scope == Scope::Spectrum { spectrum * buffer.length } else { 0 };
        start..start + buffer.length
    }

    pub fn float(&self, id: BufferId, spectrum: usize) -> &[R] {
        match &self.blocks[id.0] {
            Block::Float(v) => &v[self.range(id, spectrum)],
            Block::Index(_) => &[],
        }
    }

    /// A product's weights, packed.
    pub fn packed(&self, id: BufferId) -> &[R] {
        match &self.blocks[id.0] {
            Block::Float(v) => v,
            Block::Index(_) => &[],
        }
    }

    pub fn index(&self, id: BufferId, spectrum: usize) -> &[i32] {
        match &self.blocks[id.0] {
            Block::Index(v) => &v[self.range(id, spectrum)],
            Block::Float(_) => &[],
        }
    }

    /// Lower and upper.
    pub fn bounds(&self, spectrum: usize) -> (&[f64], &[f64]) {
        (self.of_spectrum(&self.lower, spectrum), self.of_spectrum(&self.upper, spectrum))
    }

    pub fn of_spectrum<'a>(&self, values: &'a [f64], spectrum: usize) -> &'a [f64] {
        let count = self.recording.parameters.len();
        &values[spectrum * count..(spectrum + 1) * count]
    }
}

/// Rows of a tile's members, by buffer; empty for buffers of other scopes.
pub struct Tile<R> {
    pub rows: Vec<Vec<R>>,
    /// Buffers with room for a single member, because nothing reads them after its run of stages.
    pub local: Vec<bool>,
}

impl<R: Real> Tile<R> {
    pub fn new(recording: &Recording, members: usize) -> Tile<R> {
        let local = local_buffers(recording);
        let rows = recording.buffers.iter().zip(&local).map(|(b, local)| match b.scope {
            Scope::Member => vec![R::NAN; b.length * if *local { 1 } else { members }],
            _ => Vec::new(),
        });
        Tile { rows: rows.collect(), local }
    }

    /// A member's block of a buffer.
    pub fn block(&self, recording: &Recording, id: BufferId, place: usize) -> Range<usize> {
        let length = recording.block(id).length;
        let place = if self.local[id.0] { 0 } else { place };
        place * length..(place + 1) * length
    }

    pub fn take(&mut self, id: BufferId) -> Vec<R> {
        std::mem::take(&mut self.rows[id.0])
    }
}

/// Stages that are run for one member after the other: all but products.
pub fn together(a: &Stage, b: &Stage) -> bool {
    !matches!(a, Stage::Product(_)) && !matches!(b, Stage::Product(_))
}

/// Which buffers only one run of stages touches.
pub fn local_buffers(recording: &Recording) -> Vec<bool> {
    let mut runs: Vec<Option<usize>> = vec![None; recording.buffers.len()];
    let mut local = vec![true; recording.buffers.len()];
    for (run, stages) in recording.stages.chunk_by(together).enumerate() {
        for id in stages.iter().flat_map(Stage::buffers) {
            local[id.0] &= runs[id.0].is_none_or(|other| other == run);
            runs[id.0] = Some(run);
        }
    }
    local
}
