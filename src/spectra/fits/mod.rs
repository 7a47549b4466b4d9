//! Spectra in FITS files: DESI coadds, SDSS spec files, APOGEE's apStar and apVisit, LAMOST's spectra, SDSS-V's mwmStar
//! and mwmVisit.
//!
//! `io/fits` reads FITS itself. What is here knows the layouts of the surveys.

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

/// A survey's layout of FITS files. A new one is a file here, its module and its line in [`FORMATS`].
struct Format {
    /// Name with its article, for messages.
    name: &'static str,
    /// Spectra can be selected from such files. The message of [`Selection::refuse_rows`] names them.
    selects_rows: bool,
    /// Returns whether a file has all that makes this layout and no other: HDUs, columns, types and keywords of a grid.
    matches: fn(&Fits) -> bool,
    /// Opens a file of this layout.
    open: fn(Fits, &Selection) -> Result<Box<dyn SpectraReader>>,
}

/// All layouts. A file that has two of them is refused.
const FORMATS: &[Format] = &[
    desi::FORMAT,
    sdss::FORMAT,
    apogee::STAR,
    apogee::VISIT,
    lamost::IMAGE,
    lamost::TABLE,
    lamost::MEDIUM,
    mwm::FORMAT,
];

/// Highest bit of a mask that is read: numbers of FITS files go through f64.
const MOST_BIT: u8 = 52;

/// Opens a file of spectra (FITS, gzipped or not) of one of the known layouts, told apart by its HDUs.
pub(super) fn open(path: &Path, selection: &Selection) -> Result<Box<dyn SpectraReader>> {
    if let Some(bit) = selection
        .widen
        .iter()
        .flat_map(|widening| &widening.bits)
        .find(|bit| **bit > MOST_BIT)
    {
        return Err(Error::Usage(format!(
            "{}: `spectra.widen.bits` has {bit}, but of masks in FITS files popfit reads the bits 0 to {MOST_BIT}",
            path.display()
        )));
    }
    let fits = Fits::open(path)?;
    let found: Vec<&Format> = FORMATS
        .iter()
        .filter(|format| (format.matches)(&fits))
        .collect();
    let &[format] = found.as_slice() else {
        return Err(unknown::refuse(&fits, &found));
    };
    if !format.selects_rows {
        selection.refuse_rows(path)?;
    }
    (format.open)(fits, selection).map_err(|error| unknown::explain(error, format))
}
