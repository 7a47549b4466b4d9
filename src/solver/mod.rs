//! The solver: settings, statuses, the two seams (recording and device) and the loop of rounds. It knows no GPU and no network.

pub mod basin;
mod choice;
pub mod cost;
mod damping;
pub mod device;
mod estimator;
pub mod member;
mod objective;
pub mod profile;
pub mod recording;
mod rounds;
mod settings;
pub mod simplex;
mod slots;
mod status;
pub mod triangle;
pub mod whole;

pub use choice::Solver;
pub use damping::Damping;
pub use device::{Batch, Device, Outcome, Pending, Population};
pub use estimator::{Estimator, Share};
pub use member::GaveWay;
pub use objective::Objective;
pub use rounds::{Queue, linearise, optimise, stream};
pub use settings::{LevenbergMarquardt, MOST_STARTS, Method, NelderMead};
pub use slots::Places;
pub use status::Status;
