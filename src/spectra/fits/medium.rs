//! The medium and the unit of a file's wavelengths.

use crate::error::Result;
use crate::io::fits::hdu::Fits;

/// Units of wavelength, frequency and energy other than Å, in lower case.
const OTHER_UNITS: [&str; 15] = [
    "nm",
    "nanometer",
    "nanometers",
    "um",
    "micron",
    "microns",
    "micrometer",
    "micrometers",
    "m",
    "meter",
    "meters",
    "hz",
    "ghz",
    "ev",
    "kev",
];

/// Returns whether a unit is known and not Å.
pub(super) fn is_other_unit(unit: &str) -> bool {
    OTHER_UNITS.contains(&unit.trim().to_lowercase().as_str())
}

/// Fails if a unit that a header gives for wavelengths, such as TUNIT or BUNIT, is known and not Å.
pub(super) fn refuse_other_units(fits: &Fits, index: usize, unit: Option<&str>) -> Result<()> {
    match unit.filter(|unit| is_other_unit(unit)) {
        Some(unit) => Err(fits.fault(
            index,
            format!("its wavelengths are in {}, not in Å", unit.trim()),
        )),
        None => Ok(()),
    }
}

/// Returns whether the header of one of these HDUs says that wavelengths are in air: `AIRORVAC = 'air'`, `VACUUM = F`,
/// or an axis of type `AWAV`.
pub(super) fn is_in_air(fits: &Fits, indices: &[usize]) -> bool {
    let mut hdus = indices.iter().filter_map(|&index| fits.hdus.get(index));
    hdus.any(|hdu| {
        let header = &hdu.header;
        let starts_with = |key, start: &str| {
            header
                .text(key)
                .is_some_and(|text| text.trim_start().to_uppercase().starts_with(start))
        };
        starts_with("AIRORVAC", "AIR")
            || starts_with("CTYPE1", "AWAV")
            || header.logical("VACUUM") == Some(false)
    })
}
