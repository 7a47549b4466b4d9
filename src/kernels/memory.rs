//! The memory that a kernel's Rust twin sees.

use super::custom::ModelScratch;
use super::robust::Weighing;
use crate::buffers::{BufferId, Parameter, Sums};
use crate::math::Real;
use crate::math::aligned::Aligned;
use crate::math::product::Packed;

/// Gaussian priors of one spectrum, by parameter.
#[derive(Clone, Copy, Debug)]
pub struct Priors<'a> {
    /// Means in the solver's u.
    pub mean: &'a [f64],
    /// 1 / standard deviation; 0 without a prior.
    pub weight: &'a [f64],
}

/// Working space that stays between calls, because allocating it would cost as much as some kernels.
#[derive(Debug, Default)]
pub struct Scratch<R> {
    /// Working space of a user's own model.
    pub(super) model: ModelScratch,
    /// Memory for a block of rows whose products are summed.
    pub(super) products: Aligned<R>,
    /// Cached weighing of residuals, under the last loss.
    pub(super) weighing: Option<Weighing>,
}

/// The memory of one member and its spectrum, or, for products, the rows of many members one after another.
pub trait Memory<R: Real> {
    /// Returns the parameters of the recording.
    fn parameters(&self) -> &[Parameter];

    /// Returns the trial point in the solver's u.
    fn trial(&self) -> &[f64];

    /// Returns the priors of the member's spectrum.
    fn priors(&self) -> Priors<'_>;

    /// Returns a buffer of numbers: a constant, the batch's, the spectrum's, or rows of the members.
    fn floats(&self, id: BufferId) -> &[R];

    /// Returns a buffer of whole numbers: a constant, the batch's, or the spectrum's.
    fn indices(&self, id: BufferId) -> &[i32];

    /// Returns a product's weights, packed.
    fn packed(&self, id: BufferId) -> Option<&Packed<R>>;

    /// Calls `fill` with the members' rows in a buffer, to be written while it reads other buffers.
    fn write(&mut self, id: BufferId, fill: impl FnOnce(&Self, &mut [R]));

    /// Calls `add` with the member's sums, to be changed while it reads rows.
    fn add(&mut self, add: impl FnOnce(&Self, &mut Sums));

    /// Takes the working space out of the memory.
    fn take_scratch(&mut self) -> Scratch<R>;

    /// Puts the working space back.
    fn give_scratch_back(&mut self, scratch: Scratch<R>);
}
