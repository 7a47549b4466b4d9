//! Spectra in FITS files: DESI coadds, SDSS spec files, APOGEE's apStar and apVisit.
//!
//! `io/fits` reads FITS itself. What is here knows the layouts of the surveys.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

mod apogee;
mod desi;
mod desi_arm;
mod medium;
mod sdss;
mod select;
mod single;

use std::path::Path;

use super::reader::SpectraReader;
use crate::error::{Error, Result};
use crate::io::fits::hdu::Fits;
pub use select::Selection;

/// A survey's layout of FITS files. A new one is a file here, its module and its line in [`FORMATS`].
struct Format {
    /// Name with its article, for messages.
    name: &'static str,
    /// Spectra can be selected from such files. The message of [`Selection::refuse_rows`] names them.
    selects_rows: bool,
    /// Returns whether a file has this layout.
    matches: fn(&Fits) -> bool,
    /// Opens a file of this layout.
    open: fn(Fits, &Selection) -> Result<Box<dyn SpectraReader>>,
}

/// All layouts, in the order in which they are tried.
const FORMATS: &[Format] = &[desi::FORMAT, sdss::FORMAT, apogee::STAR, apogee::VISIT];

/// Opens a file of spectra (FITS, gzipped or not) of one of the known layouts, told apart by its HDUs.
pub(super) fn open(path: &Path, selection: &Selection) -> Result<Box<dyn SpectraReader>> {
    let fits = Fits::open(path)?;
    let Some(format) = FORMATS.iter().find(|format| (format.matches)(&fits)) else {
        let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
        let hdus: Vec<String> = fits.hdus.iter().map(|hdu| hdu.label()).collect();
        return Err(Error::format(path, format!("not {}; it has {}", names.join(" or "), hdus.join(", "))));
    };
    if !format.selects_rows {
        selection.refuse_rows(path)?;
    }
    (format.open)(fits, selection)
}
