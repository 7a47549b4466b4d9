//! FITS images: rows that are appended one after another, and single lines.

use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::Path;

use super::cards::{BLOCK_BYTES, Cards};
use super::table::{Spool, write_unit};
use crate::error::Result;
use crate::io::fits::sum::OnesSum;

/// A number of an image.
pub trait ImageElement: Copy {
    /// FITS code of the type (keyword BITPIX).
    const BITPIX: i64;
    const NAN: Self;
    /// Appends the bytes that FITS stores.
    fn push_bytes(self, out: &mut Vec<u8>);
}

impl ImageElement for f32 {
    const BITPIX: i64 = -32;
    const NAN: f32 = f32::NAN;

    fn push_bytes(self, out: &mut Vec<u8>) {
        out.extend(self.to_be_bytes());
    }
}

impl ImageElement for f64 {
    const BITPIX: i64 = -64;
    const NAN: f64 = f64::NAN;

    fn push_bytes(self, out: &mut Vec<u8>) {
        out.extend(self.to_be_bytes());
    }
}

/// An image of rows under construction.
pub struct ImageUnit<T> {
    name: String,
    unit: &'static str,
    pixels: usize,
    rows: u64,
    spool: Spool,
    element: PhantomData<T>,
}

impl<T: ImageElement> ImageUnit<T> {
    /// Begins a FITS image extension of rows of `pixels` values, kept in a temporary file beside `target`.
    pub fn new(target: &Path, name: &str, pixels: usize) -> Result<ImageUnit<T>> {
        let spool = Spool::new(target)?;
        Ok(ImageUnit {
            name: name.into(),
            unit: "",
            pixels,
            rows: 0,
            spool,
            element: PhantomData,
        })
    }

    /// Sets the unit of the values (keyword BUNIT).
    #[must_use]
    pub fn unit(mut self, unit: &'static str) -> ImageUnit<T> {
        self.unit = unit;
        self
    }

    /// Appends one row to the image; a shorter one ends in NaN, and values beyond its number of pixels are dropped.
    pub fn append(&mut self, row: impl Iterator<Item = T>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(self.pixels * size_of::<T>());
        row.chain(std::iter::repeat(T::NAN))
            .take(self.pixels)
            .for_each(|value| value.push_bytes(&mut bytes));
        self.rows += 1;
        self.spool.append(&bytes)
    }

    /// Writes the image extension, header and all rows so far, to `out`.
    pub fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        let mut cards = Cards::extension("IMAGE", T::BITPIX, &[self.pixels as u64, self.rows], 0);
        cards.text("EXTNAME", &self.name);
        if !self.unit.is_empty() {
            cards.text("BUNIT", self.unit);
        }
        write_unit(cards, [&mut self.spool], out)
    }
}

/// Writes a FITS image extension with one axis of f64, with its name and unit, to `out`.
pub fn write_line(name: &str, unit: &str, values: &[f64], out: &mut impl Write) -> io::Result<()> {
    let mut cards = Cards::extension("IMAGE", -64, &[values.len() as u64], 0);
    cards.text("EXTNAME", name).text("BUNIT", unit);
    let mut bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_be_bytes())
        .collect();
    let mut sum = OnesSum::default();
    sum.add(0, &bytes);
    out.write_all(&cards.into_header(sum))?;
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    out.write_all(&bytes)
}
