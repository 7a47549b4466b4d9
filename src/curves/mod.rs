//! Many similar small problems of one model: the general optimiser. `routes/engine.rs` has the way of curves through a
//! run, `routes/small_fits/mod.rs` that of small fits, and `routes/populations/mod.rs` that of populations.
//!
//! Fits step in parameters divided by the power of two nearest their starts, so that scaling rounds nothing
//! (`input/units.rs`). The damping has a floor relative to the largest diagonal element, and steps have a largest
//! length: a parameter on which the model hardly depends at the start would otherwise be thrown far away. Results of
//! Levenberg–Marquardt are refined on the host in f64 (`ends/polish.rs`, `ends/factors.rs`), and covariances come from
//! there. What GPUs do not take whole the CPU does.

mod check;
mod ends;
mod fitter;
mod input;
mod on_device;
mod results;
mod routes;
mod task;
mod watch;

pub use fitter::CurveFitter;
pub use input::data::{Curves, Starts};
pub use on_device::{ColumnsOnDevice, CurvesOnDevice};
pub use results::columns::CurveColumns;
pub use results::interval::Interval;
pub use results::result::CurveFit;
pub use results::statistics::FitStatistics;
use routes::run::{CurveRun, CurveSolver};
