//! Files that a run writes. They appear under their own names only when they are whole.

mod file;
mod options;
mod staged;

pub use file::OutputFile;
pub use options::{Metadata, WriteOptions};
pub(crate) use staged::{OutputRecord, Staged, WholeFile};
