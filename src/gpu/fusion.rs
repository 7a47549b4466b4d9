//! Fusion of neighbouring stages into one kernel, so that intermediate results are never written.
//!
//! - The priors and the labels of a network, of which both read the trial point, share a kernel.
//! - A product in tiles activates the rows of whole members before it writes them, if they nearly fill its tile.
//! - The hidden layers of a network share a kernel, where workgroup memory holds their rows.
//! - `normal` solves for the continuum in a first sweep over the pixels.
//! - `normal` may also resample each pixel where it needs it.
//!
//! Which of these an adapter uses is in the table of `choice.rs` and is never measured, so that two runs make the
//! same kernels. A test checks that none changes a bit on llvmpipe. Software adapters have one kernel per stage: there
//! a sweep in two halves is a third slower. `inspect` refuses a buffer that is not written.

use std::ops::Range;

use crate::kernels::product::Products;
use crate::recording::{
    Activate, BufferId, Continuum, Labels, Normal, Prior, Product, Recording, Resample, Stage,
};

/// Number of storage buffers per kernel that WebGPU guarantees.
pub(super) const GUARANTEED_STORAGE_BUFFERS: u32 = 8;
/// Number of storage buffers of the kernel that resamples, solves for the continuum and sums.
const RESAMPLING_STORAGE_BUFFERS: u32 = GUARANTEED_STORAGE_BUFFERS + 1;
/// Maximum number of storage buffers of a kernel: six hidden layers have two each, besides three that they share.
pub(super) const MAX_STORAGE_BUFFERS: u32 = 15;
/// Maximum number of stages of a kernel.
const MAX_STAGES: usize = 12;

/// The kinds of stages that share a kernel on an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fused {
    /// A product activates its rows, hidden layers share a kernel, and so do the priors and the labels.
    pub layers: bool,
    /// The kernel of the sums solves for the continuum.
    pub sums: bool,
    /// The kernel of the sums resamples the rows, too.
    pub rows: bool,
}

impl Fused {
    /// One kernel per stage.
    pub const UNFUSED: Fused = Fused {
        layers: false,
        sums: false,
        rows: false,
    };

    /// Returns every choice, for tests.
    #[cfg(test)]
    pub fn all_choices() -> [Fused; 8] {
        std::array::from_fn(|k| Fused {
            layers: k & 1 > 0,
            sums: k & 2 > 0,
            rows: k & 4 > 0,
        })
    }
}

/// The fusions that a device allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllowedFusions {
    pub fused: Fused,
    pub storage_buffers: u32,
    pub workgroup_bytes: u32,
}

/// The stages that one kernel executes, in their order.
#[derive(Clone, Debug)]
pub(super) enum FusedStages<'a> {
    Single(&'a Stage),
    /// Penalties and labels at the trial point of a member.
    Point(&'a Prior, &'a Labels),
    /// Products, each with the activation of its rows while they are in registers.
    Layers(Vec<(&'a Product, &'a Activate)>),
    /// Sums over pixels: of rows that are resampled where they are needed, with a continuum that is solved first.
    Sums(Option<&'a Resample>, Option<&'a Continuum>, &'a Normal),
}

impl<'a> FusedStages<'a> {
    /// Returns the GPU kernel that runs these neighbouring stages, one or several fused; `None` if they cannot share
    /// one.
    pub fn from_stages(stages: &'a [Stage]) -> Option<FusedStages<'a>> {
        let fused_stages = match stages {
            [stage] => FusedStages::Single(stage),
            [Stage::Prior(prior), Stage::Labels(labels)] => FusedStages::Point(prior, labels),
            [Stage::Product(_), ..] => FusedStages::Layers(pair_layers(stages)?),
            [Stage::Continuum(continuum), Stage::Normal(normal)] => {
                FusedStages::Sums(None, Some(continuum), normal)
            }
            [Stage::Resample(resample), Stage::Normal(normal)] => {
                FusedStages::Sums(Some(resample), None, normal)
            }
            [
                Stage::Resample(resample),
                Stage::Continuum(continuum),
                Stage::Normal(normal),
            ] => FusedStages::Sums(Some(resample), Some(continuum), normal),
            _ => return None,
        };
        fused_stages.is_chained().then_some(fused_stages)
    }

    /// Returns whether each of the fused stages reads what the one before it writes, or what that reads.
    fn is_chained(&self) -> bool {
        match self {
            FusedStages::Single(_) | FusedStages::Point(..) => true,
            FusedStages::Layers(layers) => {
                let pairs = layers.windows(2);
                layers
                    .iter()
                    .all(|(product, activate)| product.output == activate.buffer)
                    && pairs
                        .into_iter()
                        .all(|pair| pair[1].0.input == pair[0].0.output)
            }
            FusedStages::Sums(resample, continuum, normal) => {
                let rows = normal.model;
                let solution = normal.continuum.map(|(_, solution)| solution);
                resample.is_none_or(|stage| stage.output == rows)
                    && continuum
                        .is_none_or(|stage| stage.model == rows && Some(stage.solution) == solution)
            }
        }
    }

    /// Returns the buffers between fused stages, which their kernel does not write.
    fn unwritten_buffers(&self) -> Vec<BufferId> {
        match self {
            FusedStages::Single(_) | FusedStages::Point(..) => Vec::new(),
            FusedStages::Layers(layers) => {
                let inner_layers = &layers[..layers.len() - 1];
                inner_layers
                    .iter()
                    .map(|(product, _)| product.output)
                    .collect()
            }
            FusedStages::Sums(resample, continuum, _) => {
                let rows = resample.map(|stage| stage.output);
                let solution = continuum.map(|stage| stage.solution);
                rows.into_iter().chain(solution).collect()
            }
        }
    }
}

/// Returns the stages as layers, each a product and its activation; `None` if they are not.
fn pair_layers(stages: &[Stage]) -> Option<Vec<(&Product, &Activate)>> {
    let layers = stages.chunks(2).map(|layer| match layer {
        [Stage::Product(product), Stage::Activate(activate)] => Some((product, activate)),
        _ => None,
    });
    layers.collect()
}

impl AllowedFusions {
    /// Splits a recording's stages into those of each kernel.
    pub fn group_stages(self, recording: &Recording, products: Products) -> Vec<Range<usize>> {
        let mut groups = Vec::new();
        let mut first = 0;
        while first < recording.stages.len() {
            // Fuse as many stages as possible.
            let count = (2..=MAX_STAGES)
                .rev()
                .find(|count| self.may_fuse(recording, first..first + count, products))
                .unwrap_or(1);
            groups.push(first..first + count);
            first += count;
        }
        groups
    }

    /// Returns whether a range of stages may run as one kernel: it fits the limits, is chosen, and no other stage reads
    /// what it leaves unwritten.
    fn may_fuse(self, recording: &Recording, stages: Range<usize>, products: Products) -> bool {
        let Some(fused_stages) = recording
            .stages
            .get(stages.clone())
            .and_then(FusedStages::from_stages)
        else {
            return false;
        };
        // 1. The device's class must want this fusion, and its limits allow it.
        let is_product_next = matches!(
            recording.stages.get(stages.end),
            Some(Stage::Product(_) | Stage::Split(_))
        );
        let is_allowed = match &fused_stages {
            FusedStages::Single(_) => true,
            FusedStages::Point(..) => self.fused.layers,
            FusedStages::Layers(layers) => {
                let declared = recording.declared();
                let may_share = match layers[..] {
                    [(product, _)] => products.may_activate(declared, product),
                    // The last layer is no hidden one, and often too wide.
                    _ => {
                        is_product_next
                            && products.may_chain(
                                declared,
                                layers,
                                self.workgroup_bytes,
                                self.storage_buffers,
                            )
                    }
                };
                self.fused.layers && may_share
            }
            FusedStages::Sums(resample, continuum, normal) => {
                let has_memory = normal.workgroup_bytes(*continuum) <= self.workgroup_bytes;
                let has_buffers =
                    resample.is_none() || self.storage_buffers >= RESAMPLING_STORAGE_BUFFERS;
                let is_chosen = if resample.is_some() {
                    self.fused.rows
                } else {
                    self.fused.sums
                };
                is_chosen && has_memory && has_buffers
            }
        };
        // 2. No stage outside may read a buffer that the fused kernel does not write.
        let before = &recording.stages[..stages.start];
        let after = &recording.stages[stages.end..];
        let is_read_elsewhere = |id: BufferId| {
            before
                .iter()
                .chain(after)
                .any(|stage| stage.member_buffers().contains(&id))
        };
        is_allowed
            && !fused_stages
                .unwritten_buffers()
                .into_iter()
                .any(is_read_elsewhere)
    }

    /// Returns the buffers that fused kernels neither write nor read, so that they need no memory.
    pub fn unwritten_buffers(self, recording: &Recording, products: Products) -> Vec<BufferId> {
        self.group_stages(recording, products)
            .into_iter()
            .filter_map(|group| FusedStages::from_stages(&recording.stages[group]))
            .flat_map(|fused_stages| fused_stages.unwritten_buffers())
            .collect()
    }
}
