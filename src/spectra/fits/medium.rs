//! The medium of a file's wavelengths.

use crate::io::fits::hdu::Fits;

/// Returns whether the header of one of these units says that wavelengths are in air: `AIRORVAC = 'air'`, `VACUUM = F`,
/// or an axis of type `AWAV`.
pub(super) fn is_air(fits: &Fits, units: &[usize]) -> bool {
    units.iter().filter_map(|&k| fits.hdus.get(k)).any(|hdu| {
        let header = &hdu.header;
        let is_text =
            |key, start: &str| header.text(key).is_some_and(|text| text.trim_start().to_uppercase().starts_with(start));
        is_text("AIRORVAC", "AIR") || is_text("CTYPE1", "AWAV") || header.logical("VACUUM") == Some(false)
    })
}
