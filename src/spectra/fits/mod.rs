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
pub(crate) use plain::FitsTables;
pub use select::Selection;

/// A survey's layout of FITS files. A new one is a file here, its module and its line in [`FORMATS`].
struct Format {
    /// Name and HDUs, for messages.
    name: &'static str,
    /// Whether spectra can be selected from such files.
    selects_rows: bool,
    /// Returns whether a file has this layout.
    matches: fn(&Fits) -> bool,
    open: fn(Fits, &Selection) -> Result<Box<dyn SpectraReader>>,
}

/// All layouts, in the order in which they are tried.
const FORMATS: [Format; 4] = [desi::FORMAT, sdss::FORMAT, apogee::STAR, apogee::VISIT];

/// Opens a file of spectra (FITS, gzipped or not) of one of the known layouts, told apart by its HDUs.
pub(super) fn open(path: &Path, selection: &Selection) -> Result<Box<dyn SpectraReader>> {
    let fits = Fits::open(path)?;
    let Some(format) = FORMATS.iter().find(|format| (format.matches)(&fits)) else {
        let names = FORMATS.map(|format| format.name).join(", ");
        let hdus: Vec<String> = fits.hdus.iter().map(|hdu| hdu.label()).collect();
        return Err(Error::format(path, format!("not {names}; it has {}", hdus.join(", "))));
    };
    if !format.selects_rows {
        selection.refuse_rows(path)?;
    }
    (format.open)(fits, selection)
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
