//! popfit fits populations of parameter sets at once.
#![deny(unsafe_code)]

pub mod emulator;
mod error;
mod npz;
pub mod solver;
pub mod spectra;

pub use emulator::Emulator;
pub use error::{Error, Result};
pub use solver::{LevenbergMarquardt, Status};
pub use spectra::Spectra;
