//! Spectra in FITS files: DESI coadds, SDSS spec files, APOGEE's apStar and apVisit.
//!
//! `io/fits` reads FITS itself. What is here knows the layouts of the surveys.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

mod apogee;
mod columns;
mod desi;
mod desi_arm;
mod medium;
mod plain;
mod sdss;
mod select;
mod single;

use std::fmt::Display;
use std::path::Path;

use super::reader::SpectraReader;
use crate::error::{Error, Result};
use crate::io::fits::hdu::Fits;
use apogee::{ApogeeKind, StarReader};
use desi::DesiReader;
pub(crate) use plain::FitsTables;
pub use select::Selection;

/// Opens a DESI, SDSS or APOGEE file of spectra (FITS, gzipped or not), told apart by its HDUs.
pub(super) fn open(path: &Path, selection: &Selection) -> Result<Box<dyn SpectraReader>> {
    let fits = Fits::open(path)?;
    if DesiReader::matches(&fits) {
        return Ok(Box::new(DesiReader::open(fits, selection)?));
    }
    selection.refuse_rows(path)?;
    if sdss::matches(&fits) {
        return Ok(Box::new(sdss::open(fits)?));
    }
    match ApogeeKind::of(&fits) {
        Some(ApogeeKind::Star) => Ok(Box::new(StarReader::open(fits)?)),
        Some(ApogeeKind::Visit) => Ok(Box::new(apogee::open_visit(fits)?)),
        None => {
            let names: Vec<String> = fits.hdus.iter().map(|hdu| hdu.label()).collect();
            let message = "not a DESI coadd (FIBERMAP, B_FLUX, …), an SDSS spec (COADD), an APOGEE apStar or apVisit";
            Err(Error::format(path, format!("{message}; it has {}", names.join(", "))))
        }
    }
}

impl Fits {
    /// Returns `PATH, HDU 3 (B_FLUX)`, the file and the HDU, for messages.
    fn what(&self, index: usize) -> String {
        format!("{}, {}", self.path.display(), self.label(index))
    }

    /// Makes a shape error with this message that names the file and the HDU.
    fn mismatch(&self, index: usize, message: impl Display) -> Error {
        Error::ShapeMismatch { what: self.what(index), message: message.to_string() }
    }

    /// Fails unless an HDU is an image of exactly this shape.
    fn expect_shape(&self, index: usize, shape: &[usize]) -> Result<()> {
        match &self.image(index)?.shape {
            found if found == shape => Ok(()),
            found => Err(self.mismatch(index, format!("has the shape {found:?}, not {shape:?}"))),
        }
    }
}
