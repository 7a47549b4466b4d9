//! Files, memory, and the formats that popfit reads and writes.
//!
//! Spectra are read and results are written through `files`, where tests make any operation fail (`faults`). No reader
//! trusts a size that a file claims.

pub mod column;
#[doc(hidden)]
pub mod faults;
pub mod files;
#[cfg(feature = "files")]
pub mod fits;
pub mod memory;
#[cfg(feature = "files")]
pub mod npz;
#[cfg(feature = "files")]
mod opened;
#[cfg(feature = "files")]
pub mod output;
