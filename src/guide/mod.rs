//! Guides by where you come from.
//!
//! - [`spectroscopist`]: stellar parameters from spectra and a network.
//! - [`gpufit`]: many small fits of one model, as with Gpufit.
//! - [`scipy`]: `least_squares`, `curve_fit` and lmfit, for many curves at once.

#[doc = include_str!("spectroscopist.md")]
pub mod spectroscopist {}

#[doc = include_str!("gpufit.md")]
#[doc = include_str!("../formula/builtin.md")]
pub mod gpufit {}

#[doc = include_str!("scipy.md")]
pub mod scipy {}
