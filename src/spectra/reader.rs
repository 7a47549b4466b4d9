//! The readers' seam: a file yields batches.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

#[cfg(feature = "files")]
use std::{io::Read, path::Path};

use super::Spectra;
#[cfg(feature = "files")]
use super::fits::{self, Selection};
#[cfg(feature = "files")]
use super::npz::NpzReader;
use crate::error::Result;
#[cfg(feature = "files")]
use crate::{error::Error, files::File};

/// A validated file that yields its spectra in order.
pub trait SpectraReader: Send {
    /// Spectra in the file, those already yielded included.
    fn len(&self) -> u64;

    /// Returns whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next `max` spectra (at least one), or as many as are left; `None` at the end.
    ///
    /// # Errors
    /// `Io` or `Format` when the file changed since it was opened; `TooLarge` when `max` spectra do not fit memory.
    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>>;

    /// No spectra, with the file's arms and grids.
    fn empty(&self) -> Spectra<'static>;

    /// Takes back a batch that nobody needs any more: its memory may serve for the next.
    fn recycle(&mut self, _used: Spectra<'static>) {}

    /// Returns notes for the user: wavelengths converted, columns left out.
    fn notes(&self) -> &[String] {
        &[]
    }
}

/// Opens a file of spectra and validates it; the contents decide about the format, not the name.
///
/// # Errors
/// `Io`, `Format`, `TooLarge`, `ShapeMismatch`, and `BadWavelength` for a shared grid.
#[cfg(feature = "files")]
pub fn open_reader(path: impl AsRef<Path>) -> Result<Box<dyn SpectraReader>> {
    open_reader_with(path, &Selection::default())
}

/// Opens a file of spectra, of which only the selected ones are read.
///
/// # Errors
/// The errors of [`open_reader`]; `Usage` for a selection from a file that has no fibre map.
#[cfg(feature = "files")]
pub fn open_reader_with(path: impl AsRef<Path>, selection: &Selection) -> Result<Box<dyn SpectraReader>> {
    let path = path.as_ref();
    let mut start = Vec::new();
    let file = File::open(path).map_err(Error::io(path))?;
    file.take(4).read_to_end(&mut start).map_err(Error::io(path))?;
    match start.as_slice() {
        crate::npz::MAGIC => {
            all_rows(path, selection)?;
            Ok(Box::new(NpzReader::open(path)?))
        }
        start if start == fits::MAGIC || start.starts_with(fits::GZIP) => fits::open(path, selection),
        _ => Err(Error::format(path, "not a file of spectra that popfit reads (NPZ, FITS, FITS in gzip)")),
    }
}

/// Fails for a selection from a file that cannot be selected from.
#[cfg(feature = "files")]
pub(super) fn all_rows(path: &Path, selection: &Selection) -> Result<()> {
    match selection.selects_rows() {
        false => Ok(()),
        true => Err(Error::Usage(format!("{}: spectra can be selected from DESI files only", path.display()))),
    }
}

/// Everything at once.
#[cfg(feature = "files")]
pub(super) fn read_all(path: &Path) -> Result<Spectra<'static>> {
    let mut reader = open_reader(path)?;
    let all = usize::try_from(reader.len()).unwrap_or(usize::MAX);
    Ok(reader.next_batch(all)?.unwrap_or_else(|| reader.empty()))
}
