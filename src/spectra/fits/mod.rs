//! Spectra in FITS files: DESI coadds, SDSS spec files, APOGEE's apStar and apVisit, LAMOST's spectra, SDSS-V's mwmStar
//! and mwmVisit.
//!
//! `io/fits` reads FITS itself; this folder has the layouts of the surveys.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

mod apogee;
mod desi;
mod desi_arm;
mod lamost;
mod medium;
mod mwm;
mod sdss;
mod select;
mod single;
mod unknown;

use std::path::Path;

use super::reader::SpectraReader;
use crate::error::{Error, Result};
use crate::io::fits::hdu::Fits;
pub use select::Selection;
pub(super) use unknown::WAY_OUT;

/// A survey's layout of FITS files. A new layout is a file in this folder, its module and its line in
/// [`SURVEY_FORMATS`].
struct SurveyFormat {
    /// Name with its article, for messages.
    name: &'static str,
    /// True if spectra can be selected from such files. The message of [`Selection::refuse_rows`] names them.
    selects_rows: bool,
    /// Returns whether a file has the HDUs, columns, types and keywords that distinguish this layout from all others.
    matches: fn(&Fits) -> bool,
    /// Opens a file of this layout.
    open: fn(Fits, &Selection) -> Result<Box<dyn SpectraReader>>,
}

/// All layouts. A file that matches two of them is refused.
const SURVEY_FORMATS: &[SurveyFormat] = &[
    desi::COADD_FORMAT,
    sdss::SPEC_FORMAT,
    apogee::STAR_FORMAT,
    apogee::VISIT_FORMAT,
    lamost::IMAGE_FORMAT,
    lamost::TABLE_FORMAT,
    lamost::MEDIUM_FORMAT,
    mwm::MWM_FORMAT,
];

/// Highest bit of a mask that is read from FITS files, whose numbers are converted to f64.
const MAX_FITS_BIT: u8 = 52;

/// Opens a file of spectra (FITS, gzipped or not) of one of the known layouts, recognised by its HDUs.
pub(super) fn open(path: &Path, selection: &Selection) -> Result<Box<dyn SpectraReader>> {
    // 1. Refuse bits that FITS files cannot have.
    if let Some(bit) = selection
        .widen
        .iter()
        .flat_map(|widening| &widening.bits)
        .find(|bit| **bit > MAX_FITS_BIT)
    {
        return Err(Error::Usage(format!(
            "{}: `spectra.widen.bits` has {bit}, but of masks in FITS files popfit reads the bits 0 to {MAX_FITS_BIT}",
            path.display()
        )));
    }
    // 2. Find the only layout that matches.
    let fits = Fits::open(path)?;
    let matching: Vec<&SurveyFormat> = SURVEY_FORMATS
        .iter()
        .filter(|format| (format.matches)(&fits))
        .collect();
    let &[format] = matching.as_slice() else {
        return Err(unknown::refusal_error(&fits, &matching));
    };
    if !format.selects_rows {
        selection.refuse_rows(path)?;
    }
    (format.open)(fits, selection).map_err(|error| unknown::add_format(error, format))
}
