//! Spectra whose noise is correlated between pixels: generalised least squares (see `docs/src/equations.md`, section
//! 17).
//!
//! Populations fit such spectra with the variances alone, on any device. That estimate is consistent, and its end lies
//! in the basin of the minimum. From there the CPU takes steps of Levenberg–Marquardt in f64 with the whole
//! covariance.

mod fit;
mod sums;

pub use fit::CorrelatedFit;
pub use sums::{ArmPoint, solve_continuum};
