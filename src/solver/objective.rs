//! *What* is fitted: the seam between the solver and a model. `model/objective.rs` is the spectral model,
//! `curves/routes/objective.rs` a curve, and `tests/curves/seams.rs` a decay in twenty lines.

use crate::recording::Recording;

/// A sum of squares (and priors) that a population minimises.
pub trait Objective {
    /// One linearisation of a round's members, as plain data for a device.
    fn record(&self) -> Recording;
}
