//! popfit fits populations of parameter sets at once.
#![deny(unsafe_code)]
// a panic is no answer to bad input
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::unimplemented)
)]

#[cfg(feature = "argmin")]
pub mod argmin;
pub mod cpu;
mod curve_model;
pub mod emulator;
mod error;
mod fit;
mod formula;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod guide;
mod model;
pub mod npz;
#[cfg(feature = "cli")]
pub mod report;
mod rows;
pub mod solver;
pub mod spectra;
mod table;

pub use curve_model::{Closure, CurveModel, DerivativeCheck, Model, SplineAxis, check_jacobian};
pub use emulator::Emulator;
pub use error::{Error, Result};
pub use fit::{
    ArmFit, Control, CurveColumns, CurveFit, CurveFitter, Curves, Device, DeviceDescription, FitRow, FitTable, Fitter,
    Id, Interval, JacobianCheck, Journal, Progress, Sink, Solver, Summary, VelocityPosterior, flag,
};
pub use formula::Formula;
pub use model::{
    Arm, Continuum, ContinuumKind, Interpolation, LabelColumns, LabelSettings, LineSpread, ModelFile, Nonfinite,
    SpectraSettings, SpectralModel, SpectralModelBuilder, VelocityScan,
};
pub use solver::{Estimator, LevenbergMarquardt, NelderMead, SolverKind, Status};
pub use spectra::Spectra;
pub use table::{Metadata, RvTabWriter, Schema, TableReader, TableWriter};

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
