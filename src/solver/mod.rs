//! The solver: settings, statuses, the two seams (recording and device) and the loop of rounds. It knows no GPU and no network.

pub mod device;
pub mod recording;
mod settings;
mod status;

pub use device::{Batch, Device, Outcome, Pending, Population};
pub use settings::LevenbergMarquardt;
pub use status::Status;
