//! popfit fits populations of parameter sets at once: many spectra or many curves, each from its own starts, take their
//! Levenberg–Marquardt or Nelder–Mead steps in lockstep, on the CPU or, through wgpu, on a GPU.
//!
//! [`Error`] means that a run failed. A fit that failed is a row, or a result, with its [`Status`]: it changes no other
//! one. On one device a fit has the same bits alone, in any batch and in any order.
//!
//! # Stellar spectra and a network
//!
//! Labels and velocities of many stars, from an emulator of their spectra; more in the [guide](guide::spectroscopist).
//!
//! ```
//! use popfit::{Continuum, Device, Emulator, Spectra, SpectralFitter, SpectralModel};
//!
//! let emulator = Emulator::open("data/emulator.safetensors")?;
//! let model =
//!     SpectralModel::builder().arm("b", emulator).velocity(-500.0..=500.0).continuum(Continuum::rbf(10)).build()?;
//! let fitter = SpectralFitter::new(model, Device::auto()?);
//! let table = fitter.fit(&Spectra::open("data/spectra.npz")?.slice(0..2))?;
//! assert!(table.status().iter().all(|status| status.is_success()));
//! # Ok::<(), popfit::Error>(())
//! ```
//!
//! # Many small curves
//!
//! As with Gpufit ([guide](guide::gpufit)), or as scipy's `curve_fit` ([guide](guide::scipy)), for all curves at once:
//!
//! ```
//! use popfit::{CurveFitter, Curves, Device, Formula};
//!
//! let line = Formula::builtin("linear1d")?; // or Formula::parse("offset + slope*x")
//! let (x, y) = (vec![0.0, 1.0, 2.0], vec![1.0, 3.0, 5.0, 4.0, 3.0, 2.0]);
//! let starts = vec![0.0, 1.0, 0.0, 1.0]; // (curves, parameters), as y is (curves, points)
//! let fits = CurveFitter::new(line, Device::auto()?).fit(&Curves::on_common_grid(x, y, starts))?;
//! assert!((fits[0].parameters[1] - 2.0).abs() < 1e-9 && (fits[1].parameters[1] + 1.0).abs() < 1e-9);
//! # Ok::<(), popfit::Error>(())
//! ```
//!
//! A model may also be a [`Closure`], WGSL (`CurveModel::wgsl`) or a [table](CurveModel::spline); an [`Estimator`]
//! takes the place of least squares; millions of small fits go through [`CurveFitter::fit_columns`].
//!
//! # Features
//!
//! All three are default features; a program that fits curves alone needs neither of the last two.
//!
//! - `gpu`: devices through wgpu. Without it there is [`Device::cpu`] alone.
//! - `files`: spectra, networks and model files from disk (NPZ, FITS, safetensors, TOML), result tables in FITS and
//!   CSV, the HTML report.
//! - `parquet`: result tables in Parquet; includes `files`.
//!
//! The command `popfit` is the crate `popfit-cli`. argmin's solvers run on popfit's devices through `popfit-argmin`.
//! Items that these crates and the Python package share, and that may change in any release, are in [`low_level`], or
//! hidden from the documentation.
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs, missing_debug_implementations)]
#![cfg_attr(
    not(feature = "files"),
    allow(
        dead_code,
        reason = "some helpers serve the readers and writers of files alone"
    )
)]
// Bad input must give an error, never a panic.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented
    )
)]

mod control;
mod curve_model;
mod curves;
#[doc(hidden)]
pub mod demo_data;
mod device;
pub mod emulator;
mod error;
mod first_guess;
mod flag;
mod formula;
pub mod guide;
mod io;
pub mod low_level;
mod math;
mod model;
mod names;
#[cfg(feature = "files")]
mod report;
mod setters;
pub mod spectra;
mod spectral;
mod suggest;
#[cfg(feature = "files")]
mod table;
mod task;
mod threads;
mod values;
mod words;

#[cfg(feature = "gpu")]
use low_level::gpu;
use low_level::{buffers, cpu, kernels, recording, solver};

pub use buffers::Estimator;
pub use control::{Control, Progress};
pub use curve_model::{
    Closure, ClosureOutput, Context, CurveModel, DerivativeCheck, Failure, Model, SplineAxis,
};
pub use curves::{
    ColumnsOnDevice, CurveColumns, CurveFit, CurveFitter, Curves, CurvesOnDevice, FitStatistics,
    Interval, Starts,
};
pub use device::Device;
pub use emulator::Emulator;
pub use error::{Error, InvalidSetting, Result};
pub use flag::Flags;
pub use formula::Formula;
#[cfg(feature = "files")]
#[doc(hidden)]
pub use io::output::OutputFile;
#[cfg(feature = "files")]
pub use io::output::{Metadata, WriteOptions};
#[cfg(feature = "files")]
pub use model::ModelFile;
pub use model::{
    Arm, Continuum, ExposureVelocity, Interpolation, Jitter, LabelSettings, LineSpread, NonFinite,
    Pixels, SpectraSettings, SpectralModel, SpectralModelBuilder, VelocityScan,
};
pub use recording::Precision;
pub use solver::{LevenbergMarquardt, NelderMead, Solver, Status};
pub use spectra::{Spectra, Widening};
pub use spectral::{
    ArmFit, ArmPrediction, ExposureVelocities, FitColumn, FitRow, FitTable, FitValues, Guess,
    GuessedStart, Id, Objectives, Sink, SpectralFitter, Summary, VelocityPosterior,
};
#[cfg(feature = "files")]
pub use table::RvTabWriter;
pub use values::Values;

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the book's examples.
#[cfg(doctest)]
#[doc = include_str!("../docs/src/rust.md")]
struct Book;
