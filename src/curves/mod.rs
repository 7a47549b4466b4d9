//! Many similar small problems of one model: the general optimiser. `engine.rs` has the way of curves through a run,
//! `passage.rs` that of whole fits, `passes.rs` that of populations.
//!
//! Fits step in parameters divided by the power of two nearest their starts, so that scaling rounds nothing
//! (`units.rs`). The damping has a floor relative to the largest diagonal element, and steps have a largest length: a
//! parameter on which the model hardly depends at the start would otherwise be thrown far away. Results of
//! Levenberg–Marquardt are refined on the host in f64 (`polish.rs`, `factors.rs`), and covariances come from there.
//! What GPUs do not take whole the CPU does.

mod begin;
mod check;
mod coincident;
mod columns;
mod data;
mod end;
mod engine;
mod factors;
mod fitter;
mod interval;
mod objective;
mod passage;
mod passes;
mod plateau;
mod polish;
mod report;
mod result;
mod retry;
mod run;
mod search;
mod second_start;
mod settings;
mod sizes;
mod sound;
mod sums;
mod task;
mod tie;
mod twin;
mod units;
mod watch;
mod witness;

pub use columns::CurveColumns;
pub use data::Curves;
pub use fitter::CurveFitter;
pub use interval::Interval;
pub use result::CurveFit;
use run::{CurveRun, CurveSolver};
