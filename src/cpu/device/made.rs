//! Data that all populations of a recording share, among them those of the workers of a run: packed weights, and rows
//! of starts that recur ([`Recording::kin`](crate::recording::Recording)).

use std::sync::Arc;

use super::block::Block;
use super::known::Known;
use crate::recording::{Recording, Stage};
use crate::rows::Real;
use crate::rows::product::Packed;

pub struct Made<R> {
    /// By buffer: a product's weights.
    packed: Vec<Option<Packed<R>>>,
    /// `None` where nothing can be kept.
    pub known: Option<Known<R>>,
}

impl<R: Real> Made<R> {
    /// Returns the packed weights and the cache that populations of a recording share; makes them if none has them yet.
    pub fn of(recording: &Recording, capacity: usize) -> Arc<Made<R>> {
        recording.kin.share(|| {
            let mut packed: Vec<_> = recording.buffers.iter().map(|_| None).collect();
            for stage in &recording.stages {
                if let Stage::Product(stage) = stage
                    && let buffer = recording.block(stage.weight)
                    && let Some(values) = &buffer.values
                    && let Block::Float(weight) = Block::new(buffer.kind, values)
                {
                    packed[stage.weight.0] = Some(Packed::new(weight.all(), stage.inner, stage.columns));
                }
            }
            Made { packed, known: Known::new(recording, capacity) }
        })
    }

    /// Returns the weights in the buffer of this index, packed for products; `None` if no product uses it as weights.
    pub fn packed(&self, buffer: usize) -> Option<&Packed<R>> {
        self.packed[buffer].as_ref()
    }

    /// Returns the size of the packed weights and of the cached rows (bytes).
    pub fn bytes(&self) -> usize {
        let packed = self.packed.iter().flatten().map(Packed::bytes);
        packed.sum::<usize>() + self.known.as_ref().map_or(0, Known::bytes)
    }
}
