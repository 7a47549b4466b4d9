//! Guides by where you come from.
//!
//! - [`spectroscopist`]: stellar parameters from spectra and a network.
//! - [`gpufit`]: many small fits of one model, as with Gpufit.
//! - [`scipy`]: `least_squares`, `curve_fit` and lmfit, for many curves at once.
//! - argmin's solvers on popfit's devices are in the crate `popfit-argmin`.

#[doc = include_str!("spectroscopist.md")]
#[doc = include_str!("others.md")]
pub mod spectroscopist {}

#[doc = include_str!("gpufit.md")]
#[doc = include_str!("../formula/builtin.md")]
#[doc = include_str!("others.md")]
pub mod gpufit {}

#[doc = include_str!("scipy.md")]
#[doc = include_str!("others.md")]
pub mod scipy {}
