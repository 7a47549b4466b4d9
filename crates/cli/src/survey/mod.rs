//! Runs in parts: a plan divides a run over files into parts, any number of workers fit them, and a merge makes of the
//! parts the table that one run would have made, byte for byte.
//!
//! The output is idempotent, so an engine only has to start work, and may start it several times. A folder holds
//!
//! - `_manifest.json`, which comes first: the model, the settings, the files with the hashes of their contents, and the
//!   parts in their order;
//! - `part-KKKKK-HASH.parquet`, the rows of part K. The hash is that of everything that the rows depend on. A part
//!   appears under its name only when it is whole, and never replaces another, so a part that is there is done;
//! - `.lease-KKKKK`, while a worker that looked for a free part fits it; its time of modification is the heartbeat;
//! - `.failed-KKKKK`, the errors of a part, and `_failed.json`, the parts that failed too often, with their causes;
//! - `_SUCCESS`, once the merged table is written.

mod failures;
mod lease;
mod manifest;
mod merge;
mod plan;
mod planning;
mod range;
mod worker;

use std::path::Path;

use popfit::Error;

pub use failures::FailedPart;
pub use manifest::{Manifest, Part, PartSegment, PlannedFile};
pub use merge::{MergeOptions, MergeSummary, merge};
pub use plan::Plan;
pub use planning::{PartSize, plan};
pub use worker::{FittedPart, PartOutcome, TakeOptions, TakeSummary, Worker};

/// Returns the error for a file of a plan's folder that is damaged, or not what its name says.
fn format_error(path: &Path, message: impl Into<String>) -> Error {
    Error::Format {
        path: path.into(),
        offset: None,
        message: message.into(),
    }
}

/// Returns the error for a file that is not the one that the plan was made with.
fn changed(path: &Path) -> Error {
    let message = "differs from the file that the plan was made with: bring that file back, or make a new plan in \
                   another folder";
    format_error(path, message)
}
