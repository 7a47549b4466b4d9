//! Which neighbouring stages one kernel does, so that what passes between them is never written.

use std::ops::Range;

use super::product::Products;
use super::sums;
use crate::solver::recording::{Activate, BufferId, Continuum, Normal, Product, Recording, Resample, Stage};

/// Buffers of the kernel for `normal` that also resamples and solves for the continuum: one more than every adapter has.
pub(super) const MOST_BUFFERS: u32 = 9;

/// What a kernel does, stages in their order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task<'a> {
    One(&'a Stage),
    /// The activation of what the product has in registers.
    Layer(&'a Product, &'a Activate),
    /// Sums over pixels: of rows that are resampled where they are needed, with a continuum that is solved first.
    Sums(Option<&'a Resample>, Option<&'a Continuum>, &'a Normal),
}

/// What is worth it on an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fused {
    pub layers: bool,
    pub sums: bool,
}

impl Fused {
    pub const ALL: [Fused; 4] = [
        Fused { layers: false, sums: false },
        Fused { layers: true, sums: false },
        Fused { layers: false, sums: true },
        Fused { layers: true, sums: true },
    ];
    /// A kernel a stage.
    pub const NONE: Fused = Fused::ALL[0];
}

/// What a device allows of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub fused: Fused,
    pub storage_buffers: u32,
    pub workgroup_bytes: u32,
}

impl Allowed {
    /// The stages of each kernel of a round; the activation with its product where `products` says how that is made.
    pub fn kernels(self, recording: &Recording, products: Option<Products>) -> Vec<Range<usize>> {
        let mut kernels = Vec::new();
        let mut first = 0;
        while first < recording.stages.len() {
            let count = (2..=3).rev().find(|count| self.is_one(recording, first..first + count, products)).unwrap_or(1);
            kernels.push(first..first + count);
            first += count;
        }
        kernels
    }

    fn is_one(self, recording: &Recording, stages: Range<usize>, products: Option<Products>) -> bool {
        let Some(together) = recording.stages.get(stages) else { return false };
        let has_room = |rows: &BufferId, continuum: Option<&Continuum>, normal: &Normal| {
            let passes_on = sums::workgroup_bytes(continuum, normal) <= self.workgroup_bytes;
            self.fused.sums
                && passes_on
                && *rows == normal.model
                && continuum.is_none_or(|continuum| continuum.model == *rows)
        };
        match together {
            [Stage::Product(product), Stage::Activate(activate)] => {
                let activates = products.is_some_and(|products| products.activate(recording, product));
                self.fused.layers && activates && product.output == activate.buffer
            }
            [Stage::Continuum(continuum), Stage::Normal(normal)] => has_room(&continuum.model, Some(continuum), normal),
            [Stage::Resample(resample), Stage::Normal(normal)] => {
                self.storage_buffers >= MOST_BUFFERS && has_room(&resample.output, None, normal)
            }
            [Stage::Resample(resample), Stage::Continuum(continuum), Stage::Normal(normal)] => {
                self.storage_buffers >= MOST_BUFFERS && has_room(&resample.output, Some(continuum), normal)
            }
            _ => false,
        }
    }

    /// Buffers that no kernel writes or reads.
    pub fn unwritten(self, recording: &Recording) -> Vec<BufferId> {
        let kernels = self.kernels(recording, None);
        let inside = kernels.iter().filter_map(|stages| match task(&recording.stages[stages.clone()]) {
            Some(Task::Sums(resample, continuum, _)) => {
                Some(resample.map(|stage| stage.output).into_iter().chain(continuum.map(|stage| stage.solution)))
            }
            _ => None,
        });
        inside.flatten().collect()
    }
}

/// What the kernel of these stages does; `None` if there is no such kernel.
pub(super) fn task(stages: &[Stage]) -> Option<Task<'_>> {
    match stages {
        [one] => Some(Task::One(one)),
        [Stage::Product(product), Stage::Activate(activate)] => Some(Task::Layer(product, activate)),
        [Stage::Continuum(continuum), Stage::Normal(normal)] => Some(Task::Sums(None, Some(continuum), normal)),
        [Stage::Resample(resample), Stage::Normal(normal)] => Some(Task::Sums(Some(resample), None, normal)),
        [Stage::Resample(resample), Stage::Continuum(continuum), Stage::Normal(normal)] => {
            Some(Task::Sums(Some(resample), Some(continuum), normal))
        }
        _ => None,
    }
}
