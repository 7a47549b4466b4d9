//! The file system, and the formats of files and of columns: everything that is read or written goes through here.
//!
//! Tests let any operation on files fail (`faults`). Readers trust no size that a file claims.

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
pub mod output;
