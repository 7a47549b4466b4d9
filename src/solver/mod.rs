//! The solver: settings, statuses, the seam of devices, the steps of a round and the loop of rounds. It knows no GPU
//! and no network.

pub mod backend;
pub mod basin;
mod bounds;
mod choice;
mod damping;
pub mod first_simplex;
pub mod member;
pub mod metric;
mod objective;
pub mod profile;
pub(crate) mod round;
mod rounds;
pub mod search;
mod settings;
pub mod simplex;
mod slots;
pub mod small;
mod status;
pub mod surface;
pub mod thresholds;
mod tolerances;

pub use crate::buffers::{Estimator, Share};
pub use backend::{Backend, Batch, Outcome, Pending, Population};
pub use bounds::{Bounds, Interval};
pub use choice::Solver;
pub use damping::Damping;
pub use member::GaveWay;
pub use objective::Objective;
pub use rounds::{Flight, Queue, linearise, optimise, stream};
pub use settings::{LevenbergMarquardt, MOST_STARTS, NelderMead};
pub use slots::Places;
pub use status::Status;
pub use tolerances::Tolerances;
