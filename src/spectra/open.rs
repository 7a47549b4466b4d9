//! Opens files of spectra, whose formats are recognised by their contents.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::io::Read;
use std::path::Path;

use super::arrays::open_npz;
use super::batch::Spectra;
use super::fits::{self, Selection, WAY_OUT};
use super::joined::JoinedReader;
use super::reader::SpectraReader;
use super::widening::require_mask_bits;
use crate::error::{Error, Result};
use crate::io::files::File;
use crate::io::fits::FITS_MAGIC;
use crate::io::fits::bytes::GZIP;

/// Opens and checks a file of spectra (NPZ or FITS, recognised by its content), to be read in batches.
///
/// # Errors
/// `Io`, `Format`, `TooLarge`, `ShapeMismatch`, and `BadWavelength` for a shared grid.
pub fn open_reader(path: impl AsRef<Path>) -> Result<Box<dyn SpectraReader>> {
    open_reader_with(path, &Selection::default())
}

/// Opens and checks a file of spectra, whose batches have only the arms and spectra in `selection`.
///
/// # Errors
/// The errors of [`open_reader`]; `Usage` for a selection from a file that has no fibre map, and where errors are to be
/// widened by bits of masks that the file does not have.
pub fn open_reader_with(
    path: impl AsRef<Path>,
    selection: &Selection,
) -> Result<Box<dyn SpectraReader>> {
    let path = path.as_ref();
    let reader = open_any(path, selection)?;
    require_mask_bits(
        &path.display().to_string(),
        &[reader.empty()],
        selection.widen.as_ref(),
    )?;
    Ok(reader)
}

/// Opens and checks a file of spectra whose masks may have no bits, and joins exposures if the selection asks for it.
pub(super) fn open_any(path: &Path, selection: &Selection) -> Result<Box<dyn SpectraReader>> {
    let reader = open_format(path, selection)?;
    if selection.join_exposures {
        Ok(Box::new(JoinedReader::new(reader)?))
    } else {
        Ok(reader)
    }
}

/// Opens and checks a file of spectra of one of the formats, whose masks may have no bits.
fn open_format(path: &Path, selection: &Selection) -> Result<Box<dyn SpectraReader>> {
    if let Some(widening) = &selection.widen {
        widening.check()?;
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(Error::io(path))?;
    file.take(4)
        .read_to_end(&mut start)
        .map_err(Error::io(path))?;
    match start.as_slice() {
        crate::io::npz::ZIP_MAGIC => {
            selection.refuse_rows(path)?;
            Ok(Box::new(open_npz(path, selection)?))
        }
        start if start == FITS_MAGIC || start.starts_with(GZIP) => fits::open(path, selection),
        _ => {
            let message = "not a file of spectra that popfit reads (NPZ, FITS, FITS in gzip)";
            // FITS also begins with text, but was recognised above.
            let is_text = !start.is_empty()
                && start
                    .iter()
                    .all(|byte| byte.is_ascii_graphic() || b" \t\r\n".contains(byte));
            let hint = if is_text {
                "; np.loadtxt reads a table of text"
            } else {
                ""
            };
            Err(Error::format(path, format!("{message}{hint}; {WAY_OUT}")))
        }
    }
}

impl Spectra<'_> {
    /// Reads all spectra of a file into memory; use [`open_reader`] to read a large file in batches.
    ///
    /// # Errors
    /// The errors of [`open_reader`] and of reading; `TooLarge` if the spectra do not fit memory.
    pub fn open(path: impl AsRef<Path>) -> Result<Spectra<'static>> {
        let mut reader = open_reader(path)?;
        let count = usize::try_from(reader.len()).unwrap_or(usize::MAX);
        Ok(reader.next_batch(count)?.unwrap_or_else(|| reader.empty()))
    }
}
