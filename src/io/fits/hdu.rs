//! The file's structure: header and data units, every size checked against the file before anything is allocated.

use std::ops::Range;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128;

use super::bytes::{self, Bytes};
use super::cards::{CARD, Header};
use super::image::Image;
use super::sum::OnesSum;
use super::table::Table;
use super::tiles::Tiles;
use crate::error::{Error, Result};
use crate::io::memory::most_inflated_bytes;

/// FITS comes in blocks of this many bytes.
const BLOCK: u64 = 2880;
/// Headers beyond this are no spectra's (a survey's take 100 kB).
const MOST_HEADER: u64 = 4 << 20;
const MOST_AXES: i64 = 999;
/// Bytes that are summed in one go.
const PIECE: usize = 1 << 18;

/// Content of a unit.
#[derive(Debug)]
pub enum Kind {
    Image(Image),
    Table(Table),
    /// An extension that popfit does not read, and what it is.
    Other(String),
}

/// One header and data unit.
#[derive(Debug)]
pub struct Hdu {
    /// EXTNAME in upper case; empty when there is none.
    pub name: String,
    pub header: Header,
    pub kind: Kind,
    /// Offset at which the data begin.
    pub start: u64,
    /// Offsets at which the unit begins and ends.
    span: Range<u64>,
    index: usize,
}

impl Hdu {
    /// Returns `HDU 3 (B_FLUX)`, its index and name, for messages.
    pub fn label(&self) -> String {
        if self.name.is_empty() {
            format!("HDU {}", self.index)
        } else {
            format!("HDU {} ({})", self.index, self.name)
        }
    }
}

/// An open file whose structure has been validated to its last byte.
pub struct Fits {
    pub path: PathBuf,
    bytes: Box<dyn Bytes>,
    pub hdus: Vec<Hdu>,
    /// Bytes of memory that a batch may take, and that this one may still take.
    spare: u64,
    left: u64,
}

impl Fits {
    /// Opens a FITS file, gzipped or not, and reads the headers of all its HDUs, but none of their data.
    ///
    /// # Errors
    /// `Format` when it is truncated anywhere, or a header contradicts itself or the file's length; `TooLarge`.
    pub fn open(path: &Path) -> Result<Fits> {
        let bytes = bytes::open(path)?;
        let spare = bytes.spare();
        let mut fits = Fits {
            path: path.to_path_buf(),
            bytes,
            hdus: Vec::new(),
            spare,
            left: spare,
        };
        let (mut at, mut left) = (0, MOST_HEADER);
        while at < fits.bytes.length() || at == 0 {
            at = fits.walk(at, &mut left)?;
        }
        Ok(fits)
    }

    /// Resets the memory that may still be taken to the whole allowance, less what [`keep`](Self::keep) has made
    /// permanent, and opens the file again if it was closed.
    ///
    /// # Errors
    /// `Io`; [`Error::InputChanged`] if the file was replaced or written to while it was closed.
    pub fn begin_batch(&mut self) -> Result<()> {
        self.left = self.spare;
        self.bytes.reopen()
    }

    /// Closes the file until the next batch: one that waits for its turn takes no handle.
    pub fn close(&mut self) {
        self.bytes.close();
    }

    /// Makes the memory taken so far permanent, so that [`begin_batch`](Self::begin_batch) does not give it back.
    pub fn keep(&mut self) {
        self.spare = self.left;
    }

    /// Subtracts `count` values of `size` bytes from the memory that may still be taken; fails if there is not as much.
    ///
    /// # Errors
    /// `TooLarge` when compressed data grow beyond what spectra do.
    pub fn take(&mut self, count: usize, size: usize) -> Result<()> {
        let left = (count as u64)
            .checked_mul(size as u64)
            .and_then(|bytes| self.left.checked_sub(bytes));
        self.left = left.ok_or_else(|| Error::TooLarge {
            path: self.path.clone(),
            message:
                "its spectra take far more memory than the file has bytes (is it a gzip bomb?)"
                    .into(),
        })?;
        Ok(())
    }

    /// Fails if fewer than this many bytes of memory may still be taken; does not take them.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub(super) fn borrow(&mut self, bytes: usize) -> Result<()> {
        let left = self.left;
        self.take(bytes, 1)?;
        self.left = left;
        Ok(())
    }

    /// Reads the header of the HDU that begins at byte `at`, appends it to `hdus`, and returns where the next one
    /// begins.
    fn walk(&mut self, at: u64, left: &mut u64) -> Result<u64> {
        let index = self.hdus.len();
        let blocks = self.header_blocks(at, left, index)?;
        let fault = |message: String| Error::Format {
            path: self.path.clone(),
            offset: Some(at),
            message: format!("HDU {index}: {message}"),
        };
        let header = Header::parse(&blocks).map_err(fault)?;
        let first = if index == 0 { "SIMPLE" } else { "XTENSION" };
        if !blocks.starts_with(format!("{first:<8}=").as_bytes()) {
            return Err(fault(format!("its header does not begin with {first}")));
        }
        let shape = shape(&header, "").map_err(fault)?;
        let start = at + blocks.len() as u64;
        let data = data_bytes(&header, &shape, index == 0)
            .ok_or_else(|| fault("its size overflows".into()))?;
        let end = data
            .checked_next_multiple_of(BLOCK)
            .and_then(|padded| start.checked_add(padded));
        let Some(end) = end.filter(|end| *end <= self.bytes.length()) else {
            let held = self.bytes.length().saturating_sub(start);
            return Err(fault(format!(
                "it claims {data} bytes of data, the file has {held} left"
            )));
        };
        let name = header.text("EXTNAME").unwrap_or("").trim().to_uppercase();
        let kind = kind(&header, shape, index == 0).map_err(|m| fault(format!("{name}: {m}")))?;
        self.refuse_large_image(&kind, &name)?;
        self.hdus.push(Hdu {
            name,
            header,
            kind,
            start,
            span: at..end,
            index,
        });
        Ok(end)
    }

    /// Fails if a compressed image claims to be larger than spectra in a file of this length can be. Before its tiles
    /// are read, its claim is all that is known.
    fn refuse_large_image(&self, kind: &Kind, name: &str) -> Result<()> {
        let limit = most_inflated_bytes(self.bytes.length());
        match kind {
            Kind::Image(image)
                if image
                    .tiles()
                    .is_some_and(|tiles| tiles.pixels() as u64 > limit / 8) =>
            {
                let message = format!(
                    "{name}: its compressed image is far larger than the file (is it a bomb?)"
                );
                Err(Error::TooLarge {
                    path: self.path.clone(),
                    message,
                })
            }
            _ => Ok(()),
        }
    }

    /// Reads the header blocks from byte `at` up to the one with END, and subtracts their bytes from `left`.
    fn header_blocks(&mut self, at: u64, left: &mut u64, index: usize) -> Result<Vec<u8>> {
        let mut blocks = Vec::new();
        loop {
            let from = blocks.len();
            let here = at + from as u64;
            if *left < BLOCK {
                let message = format!("the headers take more than {MOST_HEADER} bytes");
                return Err(Error::TooLarge {
                    path: self.path.clone(),
                    message,
                });
            }
            if here
                .checked_add(BLOCK)
                .is_none_or(|end| end > self.bytes.length())
            {
                let message = format!("HDU {index}: the file ends inside its header");
                return Err(Error::Format {
                    path: self.path.clone(),
                    offset: Some(at),
                    message,
                });
            }
            *left -= BLOCK;
            let mut block = [0; BLOCK as usize];
            self.bytes
                .read_at(here, &mut block)
                .map_err(Error::io(&self.path))?;
            blocks.extend(block);
            if from == 0 && index == 0 && !blocks.starts_with(b"SIMPLE  =") {
                return Err(Error::format(
                    &self.path,
                    "not a FITS file: it does not begin with SIMPLE",
                ));
            }
            if block
                .chunks_exact(CARD)
                .any(|card| card.trim_ascii_end() == b"END")
            {
                return Ok(blocks);
            }
        }
    }

    /// Returns the index of the HDU of this name; `None` if there is none, an error if there are several.
    pub fn find(&self, name: &str) -> Result<Option<usize>> {
        let mut all = self
            .hdus
            .iter()
            .enumerate()
            .filter(|(_, hdu)| hdu.name == name)
            .map(|(k, _)| k);
        match (all.next(), all.next()) {
            (Some(_), Some(_)) => Err(Error::format(
                &self.path,
                format!("two HDUs are called {name}"),
            )),
            (first, _) => Ok(first),
        }
    }

    /// Returns the description of an image HDU; fails if the HDU is something else.
    pub fn image(&self, index: usize) -> Result<&Image> {
        match self.hdus.get(index).map(|hdu| &hdu.kind) {
            Some(Kind::Image(image)) => Ok(image),
            Some(Kind::Other(what)) => {
                Err(self.fault(index, format!("is {what}, which popfit does not read")))
            }
            _ => Err(self.fault(index, "is not an image")),
        }
    }

    /// Returns the description of a binary table HDU; fails if the HDU is something else.
    pub fn table(&self, index: usize) -> Result<&Table> {
        match self.hdus.get(index).map(|hdu| &hdu.kind) {
            Some(Kind::Table(table)) => Ok(table),
            Some(Kind::Other(what)) => {
                Err(self.fault(index, format!("is {what}, which popfit does not read")))
            }
            _ => Err(self.fault(index, "is not a binary table")),
        }
    }

    /// Makes a format error with this message that names the file and the HDU.
    pub fn fault(&self, index: usize, message: impl std::fmt::Display) -> Error {
        Error::format(&self.path, format!("{}: {message}", self.label(index)))
    }

    /// Returns the index and name of an HDU for messages, or that it is missing.
    pub fn label(&self, index: usize) -> String {
        self.hdus
            .get(index)
            .map_or_else(|| format!("HDU {index}, which is missing"), Hdu::label)
    }

    /// Returns the header of the HDU at this index; fails if there is none.
    pub fn header(&self, index: usize) -> Result<&Header> {
        self.hdus
            .get(index)
            .map(|hdu| &hdu.header)
            .ok_or_else(|| self.fault(index, "there is none"))
    }

    /// Fills `into` with bytes of an HDU's data, from byte `from` of the data on.
    pub fn read(&mut self, index: usize, from: u64, into: &mut [u8]) -> Result<()> {
        let start = self.hdus.get(index).map(|hdu| hdu.start);
        let read = self
            .bytes
            .read_at(start.unwrap_or(u64::MAX).saturating_add(from), into);
        read.map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                self.fault(index, "the file has shrunk since it was opened")
            }
            _ => Error::Io {
                path: self.path.clone(),
                source: e,
            },
        })
    }
}

/// Verdict of a unit's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// It has DATASUM and CHECKSUM, and both are right.
    Right,
    /// One or both are missing; the one that it may have is right.
    Missing,
    Wrong,
}

impl Fits {
    /// Computes the checksums of an HDU and returns whether DATASUM and CHECKSUM in its header are right, wrong or
    /// missing.
    pub fn checksums(&mut self, index: usize) -> Result<Checksums> {
        let Some(Hdu {
            header,
            start,
            span,
            ..
        }) = self.hdus.get(index)
        else {
            return Err(self.fault(index, "there is none"));
        };
        let (start, span) = (*start, span.clone());
        let expected = header
            .text("DATASUM")
            .map(|text| text.trim().parse::<u32>());
        let has_checksum = header
            .text("CHECKSUM")
            .is_some_and(|text| !text.trim().is_empty());
        if expected.is_none() && !has_checksum {
            return Ok(Checksums::Missing);
        }
        let data = self.sum(start..span.end)?;
        let whole = self.sum(span.start..start)?.plus(data);
        // a sum of zero may be written as all ones, which are zero in this arithmetic
        let is_same = |n: u32| {
            n == data.value() || [n, data.value()].iter().all(|n| [0, u32::MAX].contains(n))
        };
        Ok(match expected {
            Some(Ok(n)) if !is_same(n) => Checksums::Wrong,
            Some(Err(_)) => Checksums::Wrong,
            _ if has_checksum && !whole.is_all_ones() => Checksums::Wrong,
            Some(_) if has_checksum => Checksums::Right,
            _ => Checksums::Missing,
        })
    }

    /// Computes the ones' complement sum of a range of the file's bytes, piece by piece.
    fn sum(&mut self, bytes: Range<u64>) -> Result<OnesSum> {
        let mut sum = OnesSum::default();
        self.each_piece(bytes, |at, piece| sum.add(at, piece))?;
        Ok(sum)
    }

    /// Returns the XXH3 hash (128 bits) of all bytes of an HDU, header included, in the order of the file.
    pub fn digest(&mut self, index: usize) -> Result<u128> {
        let Some(Hdu { span, .. }) = self.hdus.get(index) else {
            return Err(self.fault(index, "there is none"));
        };
        let mut hash = XxHash3_128::new();
        self.each_piece(span.clone(), |_, piece| hash.write(piece))?;
        Ok(hash.finish_128())
    }

    /// Hands a range of the file's bytes to `each`, piece by piece, with the place of each piece in the range.
    fn each_piece(&mut self, bytes: Range<u64>, mut each: impl FnMut(u64, &[u8])) -> Result<()> {
        let (mut at, mut piece) = (bytes.start, vec![0; PIECE]);
        while at < bytes.end {
            piece.truncate((bytes.end - at).min(PIECE as u64) as usize);
            self.bytes
                .read_at(at, &mut piece)
                .map_err(Error::io(&self.path))?;
            each(at - bytes.start, &piece);
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// Reads the lengths of the axes from NAXIS and NAXISn, in FITS order (NAXIS1, the fastest, first). The keywords begin
/// with `prefix`: "Z" for a compressed image, else empty.
pub(super) fn shape(header: &Header, prefix: &str) -> Result<Vec<u64>, String> {
    let axes = header
        .integer(&format!("{prefix}NAXIS"))
        .filter(|n| (0..=MOST_AXES).contains(n));
    let one = |k: i64| {
        let length = header
            .integer(&format!("{prefix}NAXIS{k}"))
            .and_then(|n| u64::try_from(n).ok());
        length.ok_or_else(|| format!("no valid {prefix}NAXIS{k}"))
    };
    let axes = axes.ok_or_else(|| format!("no valid {prefix}NAXIS"))?;
    (1..=axes).map(one).collect()
}

/// Returns the size of an HDU's data, |BITPIX| / 8 × GCOUNT × (PCOUNT + Π NAXISn) bytes; `None` if it overflows or a
/// number is negative.
fn data_bytes(header: &Header, shape: &[u64], primary: bool) -> Option<u64> {
    if shape.is_empty() {
        return Some(0);
    }
    let count = |key, default| {
        header
            .integer(key)
            .map_or(Some(default), |n| u64::try_from(n).ok())
    };
    let (parameters, groups) = if primary {
        (0, 1)
    } else {
        (count("PCOUNT", 0)?, count("GCOUNT", 1)?)
    };
    let values = shape.iter().try_fold(1u64, |all, n| all.checked_mul(*n))?;
    let bytes = header.integer("BITPIX")?.unsigned_abs() / 8;
    values
        .checked_add(parameters)?
        .checked_mul(groups)?
        .checked_mul(bytes)
}

/// Returns what an HDU is, judged by its header; fails on random groups and on images with PCOUNT or GCOUNT.
fn kind(header: &Header, shape: Vec<u64>, primary: bool) -> Result<Kind, String> {
    let extension = if primary {
        "IMAGE"
    } else {
        header.text("XTENSION").unwrap_or("")
    };
    let plain =
        header.integer("PCOUNT").unwrap_or(0) == 0 && header.integer("GCOUNT").unwrap_or(1) == 1;
    match extension {
        "IMAGE" if primary && header.logical("GROUPS") == Some(true) => Err("random groups".into()),
        "IMAGE" if primary || plain => Ok(Kind::Image(Image::new(header, "", shape)?)),
        "IMAGE" => Err("an image with PCOUNT or GCOUNT".into()),
        "BINTABLE" if header.logical("ZIMAGE") == Some(true) => {
            Tiles::image(header, &Table::new(header, &shape)?)
        }
        "BINTABLE" => Ok(Kind::Table(Table::new(header, &shape)?)),
        other => Ok(Kind::Other(format!("an extension of type {other:?}"))),
    }
}

impl Fits {
    /// Returns `PATH, HDU 3 (B_FLUX)`, the file and the HDU, for messages.
    pub fn what(&self, index: usize) -> String {
        format!("{}, {}", self.path.display(), self.label(index))
    }

    /// Makes a shape error with this message that names the file and the HDU.
    pub fn mismatch(&self, index: usize, message: impl std::fmt::Display) -> Error {
        Error::mismatch(self.what(index), message.to_string())
    }

    /// Fails unless an HDU is an image of exactly this shape.
    pub fn expect_shape(&self, index: usize, shape: &[usize]) -> Result<()> {
        match &self.image(index)?.shape {
            found if found == shape => Ok(()),
            found => Err(self.mismatch(index, format!("has the shape {found:?}, not {shape:?}"))),
        }
    }
}
