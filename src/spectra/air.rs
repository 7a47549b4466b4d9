//! Wavelengths of spectra in air.

#[cfg(feature = "files")]
use std::path::Path;

pub use crate::math::air::{is_air, to_vacuum};

/// Note for the user that wavelengths were in air and have been converted.
pub(super) const CONVERSION_NOTE: &str = "wavelengths in air, converted to vacuum (Morton 1991)";

/// Returns the note for the user that this file's wavelengths were in air and have been converted.
#[cfg(feature = "files")]
pub(super) fn conversion_note(path: &Path) -> String {
    format!("{}: {CONVERSION_NOTE}", path.display())
}
