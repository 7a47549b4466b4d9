//! FITS images: rows that are appended one after another, and single lines.

use std::io::{self, Write};
use std::path::Path;

use super::cards::{BLOCK, Cards};
use super::table::Spool;
use crate::error::Result;
use crate::io::fits::sum::OnesSum;

/// An image of rows under construction, f32.
pub struct ImageUnit {
    name: String,
    pixels: usize,
    spool: Spool,
}

impl ImageUnit {
    /// Begins a FITS image extension of rows of `pixels` f32 values, kept in a temporary file beside `target`.
    pub fn new(target: &Path, name: &str, pixels: usize) -> Result<ImageUnit> {
        Ok(ImageUnit { name: name.into(), pixels, spool: Spool::new(target)? })
    }

    /// Appends one row to the image; values beyond its number of pixels are dropped.
    pub fn append(&mut self, row: impl Iterator<Item = f32>) -> io::Result<()> {
        let bytes: Vec<u8> = row.take(self.pixels).flat_map(f32::to_be_bytes).collect();
        self.spool.append(&bytes)
    }

    /// Writes the image extension, header and all rows so far, to `out`.
    pub fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        let rows = self.spool.length / (4 * self.pixels as u64).max(1);
        let mut cards = Cards::extension("IMAGE", -32, &[self.pixels as u64, rows]);
        cards.text("EXTNAME", &self.name);
        self.spool.copy(cards, out)
    }
}

/// Writes a FITS image extension with one axis of f64, with its name and unit, to `out`.
pub fn write_line(name: &str, unit: &str, values: &[f64], out: &mut impl Write) -> io::Result<()> {
    let mut cards = Cards::extension("IMAGE", -64, &[values.len() as u64]);
    cards.text("EXTNAME", name).text("BUNIT", unit);
    let mut bytes: Vec<u8> = values.iter().flat_map(|x| x.to_be_bytes()).collect();
    let mut sum = OnesSum::default();
    sum.add(0, &bytes);
    out.write_all(&cards.finish(sum))?;
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    out.write_all(&bytes)
}
