//! FITS files of spectra and tables. Good ones are read correctly; bad ones give an error, never a panic or a shorter
//! array.

mod hostile;
mod layouts;
mod read;
mod tiles;
mod widened;
mod write;

use std::path::Path;

use popfit::spectra::{Selection, open_reader, open_reader_with};
use popfit::{Error, Result, Spectra};
use popfit_testing::fits::open_bytes;

/// Reads all spectra of a file with these bytes.
fn open(bytes: &[u8]) -> Result<Spectra<'static>> {
    open_bytes("spectra.fits", bytes)
}

/// Reads all batches of at most `max` spectra.
fn read_batches(path: &Path, selection: &Selection, max: usize) -> Result<Vec<Spectra<'static>>> {
    let mut reader = open_reader_with(path, selection)?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch(max)? {
        batches.push(batch);
    }
    assert_eq!(
        batches.iter().map(|batch| batch.len() as u64).sum::<u64>(),
        reader.len()
    );
    Ok(batches)
}
