//! Wavelengths of spectra in air.

#[cfg(feature = "files")]
use std::path::Path;

pub use crate::math::air::{is_air, to_vacuum};

/// Note for the user that wavelengths were in air and have been converted.
pub(super) const CONVERTED: &str = "wavelengths in air, converted to vacuum (Morton 1991)";

/// Returns the note for the user that this file's wavelengths were in air and have been converted.
#[cfg(feature = "files")]
pub(super) fn note(path: &Path) -> String {
    format!("{}: {CONVERTED}", path.display())
}
