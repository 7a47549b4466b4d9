//! FITS files: a reader that trusts no header, and a writer. The layouts of surveys are read in `spectra/fits`.
//!
//! `Bytes` is a trait of two methods, length and bytes at an offset, which the disk and inflated gzip implement.
//!
//! The reader was written for popfit. Of the maintained crates, `fitsio-pure` 0.25 allocates by NAXIS and TFIELDS
//! before it looks at the length of the file, takes a damaged HDU after the first for the end of the file, and inflates
//! gzip without a limit. `tests/input/fits_files` reads back what popfit writes, and `tests/python` does both
//! directions with astropy.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

pub mod bytes;
pub mod cards;
pub mod columns;
pub mod hdu;
pub mod image;
pub mod lists;
mod rice;
pub mod sum;
pub mod table;
pub mod tables;
pub mod tiles;
pub mod writer;

/// First bytes of every FITS file.
pub const FITS_MAGIC: &[u8] = b"SIMP";
