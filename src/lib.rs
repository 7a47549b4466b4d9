//! popfit fits populations of parameter sets at once.
#![deny(unsafe_code)]

pub mod cpu;
mod error;
#[cfg(feature = "gpu")]
pub mod gpu;
mod rows;
pub mod solver;

pub use error::{Error, Result};
pub use solver::{LevenbergMarquardt, Status};
