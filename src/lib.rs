//! popfit fits populations of parameter sets at once.
#![deny(unsafe_code)]

mod error;
pub mod solver;

pub use error::{Error, Result};
pub use solver::{LevenbergMarquardt, Status};
