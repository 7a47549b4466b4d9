//! Wavelengths of spectra in air.

use std::path::Path;

pub use crate::math::air::to_vacuum;

/// Returns the note for the user that this file's wavelengths were in air and have been converted.
pub(super) fn note(path: &Path) -> String {
    format!("{}: wavelengths in air, converted to vacuum (Morton 1991)", path.display())
}
