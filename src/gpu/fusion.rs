//! Fusion of neighbouring stages into one kernel, so that intermediate results are never written.
//!
//! - A product in tiles activates the rows of whole members before it writes them, if they nearly fill its tile.
//! - `normal` solves for the continuum in a first sweep over the pixels.
//! - `normal` may also resample each pixel where it needs it.
//!
//! Which of the three an adapter uses is in the table of `choice.rs` and is never measured, so that two runs make the
//! same kernels. A test checks that none changes a bit on llvmpipe. Software adapters have one kernel per stage: there
//! a sweep in two halves is a third slower. `inspect` refuses a buffer that is not written.

use std::ops::Range;

use crate::kernels::product::Products;
use crate::recording::{
    Activate, BufferId, Continuum, Normal, Product, Recording, Resample, Stage,
};

/// Storage buffers of a kernel that WebGPU promises.
pub(super) const PROMISED_BUFFERS: u32 = 8;
/// Storage buffers of the kernel that resamples, solves for the continuum and sums.
pub(super) const MOST_BUFFERS: u32 = PROMISED_BUFFERS + 1;

/// The kinds of stages that share a kernel on an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fused {
    /// A product activates what it makes.
    pub layers: bool,
    /// The continuum is solved for where the sums are made.
    pub sums: bool,
    /// The rows are resampled there, too.
    pub rows: bool,
}

impl Fused {
    /// A kernel a stage.
    pub const NONE: Fused = Fused {
        layers: false,
        sums: false,
        rows: false,
    };

    /// Returns every choice, for tests.
    #[cfg(test)]
    pub fn all() -> [Fused; 8] {
        std::array::from_fn(|k| Fused {
            layers: k & 1 > 0,
            sums: k & 2 > 0,
            rows: k & 4 > 0,
        })
    }
}

/// Fusion that a device allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub fused: Fused,
    pub storage_buffers: u32,
    pub workgroup_bytes: u32,
}

/// The stages that one kernel executes, in their order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task<'a> {
    One(&'a Stage),
    /// The activation of what the product has in registers.
    Layer(&'a Product, &'a Activate),
    /// Sums over pixels: of rows that are resampled where they are needed, with a continuum that is solved first.
    Sums(Option<&'a Resample>, Option<&'a Continuum>, &'a Normal),
}

impl<'a> Task<'a> {
    /// Returns the GPU kernel that runs these neighbouring stages, one or several fused; `None` if they cannot share
    /// one.
    pub fn of(stages: &'a [Stage]) -> Option<Task<'a>> {
        let task = match stages {
            [one] => Task::One(one),
            [Stage::Product(product), Stage::Activate(activate)] => Task::Layer(product, activate),
            [Stage::Continuum(continuum), Stage::Normal(normal)] => {
                Task::Sums(None, Some(continuum), normal)
            }
            [Stage::Resample(resample), Stage::Normal(normal)] => {
                Task::Sums(Some(resample), None, normal)
            }
            [
                Stage::Resample(resample),
                Stage::Continuum(continuum),
                Stage::Normal(normal),
            ] => Task::Sums(Some(resample), Some(continuum), normal),
            _ => return None,
        };
        task.hands_on().then_some(task)
    }

    /// Returns whether each of the fused stages reads what the one before it writes.
    fn hands_on(&self) -> bool {
        match self {
            Task::One(_) => true,
            Task::Layer(product, activate) => product.output == activate.buffer,
            Task::Sums(resample, continuum, normal) => {
                let rows = normal.model;
                let solution = normal.continuum.map(|(_, solution)| solution);
                resample.is_none_or(|stage| stage.output == rows)
                    && continuum
                        .is_none_or(|stage| stage.model == rows && Some(stage.solution) == solution)
            }
        }
    }

    /// Returns the buffers between fused stages, which their kernel does not write.
    fn unwritten(&self) -> impl Iterator<Item = BufferId> + use<> {
        let (rows, solution) = match self {
            Task::Sums(resample, continuum, _) => (
                resample.map(|stage| stage.output),
                continuum.map(|stage| stage.solution),
            ),
            _ => (None, None),
        };
        rows.into_iter().chain(solution)
    }
}

impl Allowed {
    /// Splits a recording's stages into those of each kernel; product and activation join only where `products` is
    /// given.
    pub fn kernels(self, recording: &Recording, products: Option<Products>) -> Vec<Range<usize>> {
        let mut kernels = Vec::new();
        let mut first = 0;
        while first < recording.stages.len() {
            let count = (2..=3)
                .rev()
                .find(|count| self.are_one(recording, first..first + count, products));
            let count = count.unwrap_or(1);
            kernels.push(first..first + count);
            first += count;
        }
        kernels
    }

    /// Returns whether a range of stages may run as one kernel: it fits the limits, is chosen, and no other stage reads
    /// what it leaves unwritten.
    fn are_one(
        self,
        recording: &Recording,
        stages: Range<usize>,
        products: Option<Products>,
    ) -> bool {
        let Some(task) = recording.stages.get(stages.clone()).and_then(Task::of) else {
            return false;
        };
        let (before, after) = (
            &recording.stages[..stages.start],
            &recording.stages[stages.end..],
        );
        let is_wanted = |id: BufferId| {
            before
                .iter()
                .chain(after)
                .any(|stage| stage.member_buffers().contains(&id))
        };
        let fits = match task {
            Task::One(_) => true,
            Task::Layer(product, _) => {
                self.fused.layers
                    && products.is_some_and(|products| {
                        products.may_activate(recording.declared(), product)
                    })
            }
            Task::Sums(resample, continuum, normal) => {
                let has_room = normal.workgroup_bytes(continuum) <= self.workgroup_bytes;
                let has_buffers = resample.is_none() || self.storage_buffers >= MOST_BUFFERS;
                let is_better = if resample.is_some() {
                    self.fused.rows
                } else {
                    self.fused.sums
                };
                is_better && has_room && has_buffers
            }
        };
        fits && !task.unwritten().any(is_wanted)
    }

    /// Returns the buffers that fused kernels neither write nor read, so that they need no memory.
    pub fn unwritten(self, recording: &Recording) -> Vec<BufferId> {
        let kernels = self.kernels(recording, None);
        let tasks = kernels
            .iter()
            .filter_map(|stages| Task::of(&recording.stages[stages.clone()]));
        tasks.flat_map(|task| task.unwritten()).collect()
    }
}
