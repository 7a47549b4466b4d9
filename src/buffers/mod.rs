//! Descriptions of memory and cost for kernels: the parameters and buffers that a recording declares, the sums that it
//! fills, costs, and the loss.

mod cost;
mod estimator;
mod residuals;
mod scatter;
mod sums;

pub use crate::math::triangle::{packed_index, packed_length, solve_lower, solve_upper};
pub use crate::math::values::Values;
pub use cost::{Cost, KernelCost, Work};
pub use estimator::{Estimator, Share};
pub(crate) use residuals::NormalMeans;
pub(crate) use scatter::ResidualScatter;
pub use sums::{LossSums, Sums};

/// Names a buffer of a [`Recording`](crate::recording::Recording).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(pub usize);

/// Number of blocks of `length` elements in a buffer, and their origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One block, filled when the population is made (network weights).
    Constant,
    /// One block, filled by every [`Batch`](crate::solver::backend::Batch) (a wavelength grid that all its spectra
    /// share).
    Batch,
    /// One block per spectrum, filled by every [`Batch`](crate::solver::backend::Batch).
    Spectrum,
    /// One block per active member, scratch that kernels write.
    Member,
}

/// The type of a buffer's elements on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// f32 on the GPU; on the CPU the recording's [`Precision`](crate::Precision).
    Float,
    /// i32.
    Index,
    /// f16 on the GPU, two in 32 bits; on the CPU a [`Float`](Kind::Float) that f16 could hold.
    Half,
}

/// A buffer of a recording.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub name: String,
    pub scope: Scope,
    pub kind: Kind,
    /// Elements in one block.
    pub length: usize,
    /// Contents of a [`Scope::Constant`].
    pub values: Option<Values>,
}

/// A parameter of the solver: the physical value is `origin + scale · u`, `u` what the solver steps in.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub origin: f64,
    pub scale: f64,
}

/// The parameters and buffers that a recording declares.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    pub parameters: &'a [Parameter],
    pub buffers: &'a [Buffer],
}

impl<'a> Declared<'a> {
    /// Returns the declaration of the buffer with this id.
    pub fn block(&self, id: BufferId) -> &'a Buffer {
        &self.buffers[id.0]
    }
}
