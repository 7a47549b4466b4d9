//! [argmin](https://docs.rs/argmin) 0.11's solvers on popfit's devices.
//!
//! [`Problems`] takes the curves of a [`CurveFitter`](popfit::CurveFitter) or the spectra of a
//! [`SpectralFitter`](popfit::SpectralFitter); each of them is a [`Problem`], which implements argmin's `CostFunction`
//! (popfit's objective: χ², priors, hulls, ln det C), `Gradient`, `Operator` (weighted residuals) and `Jacobian`. A
//! swarm asks for its costs in bulk, which is one dispatch of the device:
//!
//! ```
//! use argmin::core::{CostFunction, Executor, State};
//! use argmin::solver::particleswarm::ParticleSwarm;
//! use popfit_argmin::Problems;
//! use popfit::{CurveFitter, Curves, Device, Formula};
//!
//! let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
//! let y: Vec<f64> = x.iter().map(|x| 3.0 * (-0.7 * x).exp()).collect();
//! let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)")?, Device::cpu());
//! let fitter = fitter.bounds("a", 0.0, 10.0).bounds("k", 0.0, 4.0);
//! let problem = Problems::of_curves(&fitter, &Curves::on_common_grid(x, y, vec![1.0, 1.0]))?.problem(0)?;
//!
//! let swarm = ParticleSwarm::new(problem.bounds(), 40);
//! let run = Executor::new(problem, swarm).configure(|state| state.max_iters(200)).run()?;
//! let problem = run.problem.problem.as_ref().ok_or("no problem")?;
//! let best = run.state.get_best_param().ok_or("no solution")?;
//! let found = problem.physical(&best.position);
//! assert!((found[0] - 3.0).abs() < 1e-3 && (found[1] - 0.7).abs() < 1e-3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - Parameters are in popfit's own units, in which they are of about the same size: [`Problem::physical`] and
//!   [`Problem::scaled`].
//! - The cost is ∞ outside the bounds, which [`Problem::bounds`] gives to solvers that know bounds. Derivatives are
//!   computed anywhere.
//! - `Jacobian` gives rows of vectors; [`Problem::jacobian_columns`] gives what any library's matrix is made of.
//! - Line searches begin with a whole gradient, far beyond the minimum where χ² is steep, and argmin's Moré–Thuente
//!   search gives up where the cost is not finite there (its L-BFGS does, from most starts): minimise in units of the
//!   errors, as `popfit-bench` does, or take Gauss–Newton, whose steps have a length of their own.
//! - Cost and gradient, or residuals and Jacobian, at the same point share one linearisation.
//! - Many spectra, one after another: [`Problem::turn_to`] keeps the device's buffers.
//!
//! A solver of argmin's takes one problem at a time; populations are fitted by
//! [`SpectralFitter::fit`](popfit::SpectralFitter::fit) and [`CurveFitter::fit`](popfit::CurveFitter::fit).
#![deny(unsafe_code)]
#![warn(missing_docs)]
// a panic is no answer to bad input
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

mod direct;
mod engine;
mod problem;
mod rows;

pub use problem::{Problem, Problems};
