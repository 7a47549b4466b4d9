//! Any tables of a FITS file, by the names of their HDUs.

use std::ops::Range;
use std::path::Path;

use super::columns::TableColumns;
use crate::error::{Error, Result};
use crate::io::column::Column;
use crate::io::fits::hdu::{ChecksumState, Fits};
use crate::io::fits::lists::ListColumn;

/// An open file of tables.
pub struct FitsTables {
    fits: Fits,
}

impl FitsTables {
    /// Opens a FITS file of any tables and reads its headers.
    pub fn open(path: &Path) -> Result<FitsTables> {
        Ok(FitsTables {
            fits: Fits::open(path)?,
        })
    }

    /// Returns each HDU's name, the primary one first, with whether its checksums are right, wrong or missing.
    pub fn checksums(&mut self) -> Result<Vec<(String, ChecksumState)>> {
        let mut states = Vec::new();
        for index in 0..self.fits.hdus.len() {
            states.push((self.fits.label(index), self.fits.checksums(index)?));
        }
        Ok(states)
    }

    /// Returns the XXH3 hash (128 bits) of all bytes of the HDU of this name, header included, in their order.
    pub fn digest(&mut self, name: &str) -> Result<u128> {
        let index = self.index_of(name)?;
        self.fits.digest(index)
    }

    /// Returns whether the header of the HDU of this name has a keyword with a text.
    pub fn has_text(&self, name: &str, key: &str) -> Result<bool> {
        Ok(self.fits.header(self.index_of(name)?)?.text(key).is_some())
    }

    /// Returns whether another program than popfit has written the CHECKSUM of the HDU of this name.
    pub fn has_foreign_checksum(&self, name: &str) -> Result<bool> {
        Ok(self
            .fits
            .header(self.index_of(name)?)?
            .has_foreign_checksum())
    }

    /// Returns the number of rows of the table HDU of this name.
    pub fn len(&self, name: &str) -> Result<usize> {
        Ok(self.fits.table(self.index_of(name)?)?.rows)
    }

    /// Reads a range of rows of a table: all columns that have one number or text per row.
    pub fn columns(&mut self, name: &str, rows: Range<usize>) -> Result<Vec<Column>> {
        let index = self.index_of(name)?;
        self.fits.begin_batch()?;
        let table = TableColumns::new(&self.fits, index, &mut Vec::new())?;
        if rows.is_empty() {
            return Ok(table.empty());
        }
        let mut columns = Vec::new();
        table.read(&mut self.fits, &rows.collect::<Vec<_>>(), &mut columns)?;
        Ok(columns)
    }

    /// Reads a range of rows of a table: all columns of lists of floats.
    pub fn list_columns(&mut self, name: &str, rows: Range<usize>) -> Result<Vec<ListColumn>> {
        let index = self.index_of(name)?;
        self.fits.begin_batch()?;
        self.fits.read_list_columns(index, rows)
    }

    /// Returns the position of the HDU of this name; fails if there is none.
    fn index_of(&self, name: &str) -> Result<usize> {
        self.fits
            .find_hdu(name)?
            .ok_or_else(|| Error::format(&self.fits.path, format!("no HDU {name}")))
    }
}
