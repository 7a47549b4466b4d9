//! FITS files of spectra and tables: good ones are read right, bad ones are errors, never a panic, never a shorter
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

/// Reads bytes as a file, whole.
fn open(bytes: &[u8]) -> Result<Spectra<'static>> {
    open_bytes("spectra.fits", bytes)
}

/// All batches of at most `max` spectra.
fn batches(path: &Path, selection: &Selection, max: usize) -> Result<Vec<Spectra<'static>>> {
    let mut reader = open_reader_with(path, selection)?;
    let mut all = Vec::new();
    while let Some(batch) = reader.next_batch(max)? {
        all.push(batch);
    }
    assert_eq!(
        all.iter().map(|batch| batch.len() as u64).sum::<u64>(),
        reader.len()
    );
    Ok(all)
}
