//! The file's structure: header and data units, every size checked against the file before anything is allocated.

use std::ops::Range;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128;

use super::bytes::{self, Bytes};
use super::cards::{CARD_BYTES, Header};
use super::image::Image;
use super::sum::OnesSum;
use super::table::Table;
use super::tiles::TiledImage;
use crate::error::{Error, Result};
use crate::io::memory::most_inflated_bytes;

/// Number of bytes of a FITS block.
const BLOCK_BYTES: u64 = 2880;
/// Maximum number of bytes of all headers together. Those of a survey take 100 kB.
const MAX_HEADER_BYTES: u64 = 4 << 20;
/// Maximum number of axes, by the standard.
const MAX_AXES: i64 = 999;
/// Number of bytes that are read and summed at once.
const SUMMED_PIECE_BYTES: usize = 1 << 18;

/// Content of a unit.
#[derive(Debug)]
pub enum HduKind {
    Image(Image),
    Table(Table),
    /// An extension that popfit does not read, with a description for messages.
    Other(String),
}

/// One header and data unit.
#[derive(Debug)]
pub struct Hdu {
    /// EXTNAME in upper case; empty when there is none.
    pub name: String,
    pub header: Header,
    pub kind: HduKind,
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
    /// Bytes of memory that a batch may take.
    memory_per_batch: u64,
    /// Bytes of memory that this batch may still take.
    free_memory: u64,
}

impl Fits {
    /// Opens a FITS file, gzipped or not, and reads the headers of all its HDUs, but none of their data.
    ///
    /// # Errors
    /// `Format` when it is truncated anywhere, or a header contradicts itself or the file's length; `TooLarge`.
    pub fn open(path: &Path) -> Result<Fits> {
        let bytes = bytes::open(path)?;
        let memory = bytes.spare();
        let mut fits = Fits {
            path: path.to_path_buf(),
            bytes,
            hdus: Vec::new(),
            memory_per_batch: memory,
            free_memory: memory,
        };
        let mut offset = 0;
        let mut header_bytes_left = MAX_HEADER_BYTES;
        while offset < fits.bytes.length() || offset == 0 {
            offset = fits.read_hdu_header(offset, &mut header_bytes_left)?;
        }
        Ok(fits)
    }

    /// Resets the memory that may still be taken to the whole allowance, less what
    /// [`keep_charged_memory`](Self::keep_charged_memory) has made permanent, and opens the file again if it was
    /// closed.
    ///
    /// # Errors
    /// `Io`; [`Error::InputChanged`] if the file was replaced or written to while it was closed.
    pub fn begin_batch(&mut self) -> Result<()> {
        self.free_memory = self.memory_per_batch;
        self.bytes.reopen()
    }

    /// Closes the file until the next batch. A file that waits for its turn takes no handle.
    pub fn close(&mut self) {
        self.bytes.close();
    }

    /// Makes the memory taken so far permanent, so that [`begin_batch`](Self::begin_batch) does not give it back.
    pub fn keep_charged_memory(&mut self) {
        self.memory_per_batch = self.free_memory;
    }

    /// Subtracts `count` values of `size` bytes from the memory that may still be taken; fails if there is less.
    ///
    /// # Errors
    /// `TooLarge` when compressed data grow beyond what spectra do.
    pub fn charge_memory(&mut self, count: usize, size: usize) -> Result<()> {
        let remaining = (count as u64)
            .checked_mul(size as u64)
            .and_then(|bytes| self.free_memory.checked_sub(bytes));
        self.free_memory = remaining.ok_or_else(|| Error::TooLarge {
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
    /// Those of [`charge_memory`](Self::charge_memory).
    pub(super) fn check_memory(&mut self, bytes: usize) -> Result<()> {
        let before = self.free_memory;
        self.charge_memory(bytes, 1)?;
        self.free_memory = before;
        Ok(())
    }

    /// Reads the header of the HDU that begins at byte `offset`, appends it to `hdus`, and returns where the next one
    /// begins.
    fn read_hdu_header(&mut self, offset: u64, header_bytes_left: &mut u64) -> Result<u64> {
        let index = self.hdus.len();
        let blocks = self.read_header_blocks(offset, header_bytes_left, index)?;
        let fault = |message: String| Error::Format {
            path: self.path.clone(),
            offset: Some(offset),
            message: format!("HDU {index}: {message}"),
        };
        // 1. Parse the header.
        let header = Header::parse(&blocks).map_err(fault)?;
        let first_key = if index == 0 { "SIMPLE" } else { "XTENSION" };
        if !blocks.starts_with(format!("{first_key:<8}=").as_bytes()) {
            return Err(fault(format!("its header does not begin with {first_key}")));
        }
        let shape = read_shape(&header, "").map_err(fault)?;
        // 2. The data that it claims must lie in the file.
        let start = offset + blocks.len() as u64;
        let data_length = data_bytes(&header, &shape, index == 0)
            .ok_or_else(|| fault("its size overflows".into()))?;
        let end = data_length
            .checked_next_multiple_of(BLOCK_BYTES)
            .and_then(|padded_length| start.checked_add(padded_length))
            .filter(|end| *end <= self.bytes.length());
        let Some(end) = end else {
            let available = self.bytes.length().saturating_sub(start);
            return Err(fault(format!(
                "it claims {data_length} bytes of data, the file has {available} left"
            )));
        };
        // 3. Read the description of the data.
        let name = header.text("EXTNAME").unwrap_or("").trim().to_uppercase();
        let kind = read_kind(&header, shape, index == 0)
            .map_err(|message| fault(format!("{name}: {message}")))?;
        self.refuse_large_image(&kind, &name)?;
        self.hdus.push(Hdu {
            name,
            header,
            kind,
            start,
            span: offset..end,
            index,
        });
        Ok(end)
    }

    /// Fails if a compressed image claims to be larger than spectra in a file of this length can be. Before its tiles
    /// are read, its claim is all that is known.
    fn refuse_large_image(&self, kind: &HduKind, name: &str) -> Result<()> {
        let HduKind::Image(image) = kind else {
            return Ok(());
        };
        let max_pixels = most_inflated_bytes(self.bytes.length()) / 8;
        match image.tiles() {
            Some(tiles) if tiles.pixels() as u64 > max_pixels => Err(Error::TooLarge {
                path: self.path.clone(),
                message: format!(
                    "{name}: its compressed image is far larger than the file (is it a bomb?)"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Reads the header blocks from byte `offset` up to the one with END, and subtracts their bytes from
    /// `header_bytes_left`.
    fn read_header_blocks(
        &mut self,
        offset: u64,
        header_bytes_left: &mut u64,
        index: usize,
    ) -> Result<Vec<u8>> {
        let mut blocks = Vec::new();
        loop {
            let block_offset = offset + blocks.len() as u64;
            // 1. The block must be within the limit and inside the file.
            if *header_bytes_left < BLOCK_BYTES {
                let message = format!("the headers take more than {MAX_HEADER_BYTES} bytes");
                return Err(Error::TooLarge {
                    path: self.path.clone(),
                    message,
                });
            }
            if block_offset
                .checked_add(BLOCK_BYTES)
                .is_none_or(|end| end > self.bytes.length())
            {
                let message = format!("HDU {index}: the file ends inside its header");
                return Err(Error::Format {
                    path: self.path.clone(),
                    offset: Some(offset),
                    message,
                });
            }
            // 2. Read it, and count it towards the limit.
            *header_bytes_left -= BLOCK_BYTES;
            let mut block = [0; BLOCK_BYTES as usize];
            self.bytes
                .read_at(block_offset, &mut block)
                .map_err(Error::io(&self.path))?;
            blocks.extend(block);
            if block_offset == 0 && !blocks.starts_with(b"SIMPLE  =") {
                return Err(Error::format(
                    &self.path,
                    "not a FITS file: it does not begin with SIMPLE",
                ));
            }
            // 3. The block with END is the last one.
            if block
                .chunks_exact(CARD_BYTES)
                .any(|card| card.trim_ascii_end() == b"END")
            {
                return Ok(blocks);
            }
        }
    }

    /// Returns the index of the HDU of this name; `None` if there is none, an error if there are several.
    pub fn find_hdu(&self, name: &str) -> Result<Option<usize>> {
        let mut indices = self
            .hdus
            .iter()
            .enumerate()
            .filter(|(_, hdu)| hdu.name == name)
            .map(|(index, _)| index);
        match (indices.next(), indices.next()) {
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
            Some(HduKind::Image(image)) => Ok(image),
            Some(HduKind::Other(content)) => {
                Err(self.fault(index, format!("is {content}, which popfit does not read")))
            }
            _ => Err(self.fault(index, "is not an image")),
        }
    }

    /// Returns the description of a binary table HDU; fails if the HDU is something else.
    pub fn table(&self, index: usize) -> Result<&Table> {
        match self.hdus.get(index).map(|hdu| &hdu.kind) {
            Some(HduKind::Table(table)) => Ok(table),
            Some(HduKind::Other(content)) => {
                Err(self.fault(index, format!("is {content}, which popfit does not read")))
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

    /// Fills `into` with bytes of an HDU's data, from byte `offset` of the data on.
    pub fn read_bytes(&mut self, index: usize, offset: u64, into: &mut [u8]) -> Result<()> {
        let start = self.hdus.get(index).map(|hdu| hdu.start);
        let read = self
            .bytes
            .read_at(start.unwrap_or(u64::MAX).saturating_add(offset), into);
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                self.fault(index, "the file has shrunk since it was opened")
            }
            _ => Error::Io {
                path: self.path.clone(),
                source: error,
            },
        })
    }
}

/// Verdict of a unit's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumState {
    /// It has DATASUM and CHECKSUM, and both are right.
    Right,
    /// One or both are missing; the one that it may have is right.
    Missing,
    Wrong,
}

impl Fits {
    /// Computes the checksums of an HDU and returns whether DATASUM and CHECKSUM in its header are right, wrong or
    /// missing.
    pub fn checksums(&mut self, index: usize) -> Result<ChecksumState> {
        let Some(Hdu {
            header,
            start,
            span,
            ..
        }) = self.hdus.get(index)
        else {
            return Err(self.fault(index, "there is none"));
        };
        let start = *start;
        let span = span.clone();
        // 1. Find the sums that the header states.
        let expected = header
            .text("DATASUM")
            .map(|text| text.trim().parse::<u32>());
        let has_checksum = header
            .text("CHECKSUM")
            .is_some_and(|text| !text.trim().is_empty());
        if expected.is_none() && !has_checksum {
            return Ok(ChecksumState::Missing);
        }
        // 2. Sum the data, then the whole unit.
        let data = self.sum_bytes(start..span.end)?;
        let whole = self.sum_bytes(span.start..start)?.plus(data);
        // a sum of zero may be written as all ones, which are zero in this arithmetic
        let is_zero = |sum: u32| [0, u32::MAX].contains(&sum);
        let is_data_sum = |sum: u32| sum == data.value() || (is_zero(sum) && is_zero(data.value()));
        // 3. Compare. A wrong sum counts more than a missing one.
        Ok(match expected {
            Some(Ok(sum)) if !is_data_sum(sum) => ChecksumState::Wrong,
            Some(Err(_)) => ChecksumState::Wrong,
            _ if has_checksum && !whole.is_all_ones() => ChecksumState::Wrong,
            Some(_) if has_checksum => ChecksumState::Right,
            _ => ChecksumState::Missing,
        })
    }

    /// Computes the ones' complement sum of a range of the file's bytes, piece by piece.
    fn sum_bytes(&mut self, bytes: Range<u64>) -> Result<OnesSum> {
        let mut sum = OnesSum::default();
        self.read_pieces(bytes, |position, piece| sum.add(position, piece))?;
        Ok(sum)
    }

    /// Returns the XXH3 hash (128 bits) of all bytes of an HDU, header included, in the order of the file.
    pub fn digest(&mut self, index: usize) -> Result<u128> {
        let Some(Hdu { span, .. }) = self.hdus.get(index) else {
            return Err(self.fault(index, "there is none"));
        };
        let mut hash = XxHash3_128::new();
        self.read_pieces(span.clone(), |_, piece| hash.write(piece))?;
        Ok(hash.finish_128())
    }

    /// Hands a range of the file's bytes to `add_piece`, piece by piece, with the place of each piece in the range.
    fn read_pieces(
        &mut self,
        bytes: Range<u64>,
        mut add_piece: impl FnMut(u64, &[u8]),
    ) -> Result<()> {
        let mut piece = vec![0; SUMMED_PIECE_BYTES];
        let mut offset = bytes.start;
        while offset < bytes.end {
            let length = (bytes.end - offset).min(SUMMED_PIECE_BYTES as u64);
            piece.truncate(length as usize);
            self.bytes
                .read_at(offset, &mut piece)
                .map_err(Error::io(&self.path))?;
            add_piece(offset - bytes.start, &piece);
            offset += piece.len() as u64;
        }
        Ok(())
    }
}

/// Reads the lengths of the axes from NAXIS and NAXISn, in FITS order (NAXIS1, the fastest, first). The keywords begin
/// with `prefix`: "Z" for a compressed image, else empty.
pub(super) fn read_shape(header: &Header, prefix: &str) -> Result<Vec<u64>, String> {
    let axes = header
        .integer(&format!("{prefix}NAXIS"))
        .filter(|n| (0..=MAX_AXES).contains(n))
        .ok_or_else(|| format!("no valid {prefix}NAXIS"))?;
    let mut shape = Vec::new();
    for k in 1..=axes {
        let length = header
            .integer(&format!("{prefix}NAXIS{k}"))
            .and_then(|n| u64::try_from(n).ok())
            .ok_or_else(|| format!("no valid {prefix}NAXIS{k}"))?;
        shape.push(length);
    }
    Ok(shape)
}

/// Returns the size of an HDU's data, |BITPIX| / 8 × GCOUNT × (PCOUNT + Π NAXISn) bytes; `None` if it overflows or a
/// number is negative.
fn data_bytes(header: &Header, shape: &[u64], primary: bool) -> Option<u64> {
    if shape.is_empty() {
        return Some(0);
    }
    let parameters = match header.integer("PCOUNT") {
        Some(n) if !primary => u64::try_from(n).ok()?,
        _ => 0,
    };
    let groups = match header.integer("GCOUNT") {
        Some(n) if !primary => u64::try_from(n).ok()?,
        _ => 1,
    };
    let elements = shape
        .iter()
        .try_fold(1u64, |product, length| product.checked_mul(*length))?;
    let element_bytes = header.integer("BITPIX")?.unsigned_abs() / 8;
    elements
        .checked_add(parameters)?
        .checked_mul(groups)?
        .checked_mul(element_bytes)
}

/// Returns what an HDU is, judged by its header; fails on random groups and on images with PCOUNT or GCOUNT.
fn read_kind(header: &Header, shape: Vec<u64>, primary: bool) -> Result<HduKind, String> {
    let extension = if primary {
        "IMAGE"
    } else {
        header.text("XTENSION").unwrap_or("")
    };
    let is_one_array =
        header.integer("PCOUNT").unwrap_or(0) == 0 && header.integer("GCOUNT").unwrap_or(1) == 1;
    match extension {
        "IMAGE" if primary && header.logical("GROUPS") == Some(true) => Err("random groups".into()),
        "IMAGE" if primary || is_one_array => Ok(HduKind::Image(Image::new(header, "", shape)?)),
        "IMAGE" => Err("an image with PCOUNT or GCOUNT".into()),
        "BINTABLE" if header.logical("ZIMAGE") == Some(true) => {
            TiledImage::read_image(header, &Table::new(header, &shape)?)
        }
        "BINTABLE" => Ok(HduKind::Table(Table::new(header, &shape)?)),
        _ => Ok(HduKind::Other(format!(
            "an extension of type {extension:?}"
        ))),
    }
}

impl Fits {
    /// Returns `PATH, HDU 3 (B_FLUX)`, the file and the HDU, for messages.
    pub fn describe_hdu(&self, index: usize) -> String {
        format!("{}, {}", self.path.display(), self.label(index))
    }

    /// Makes a shape error with this message that names the file and the HDU.
    pub fn mismatch(&self, index: usize, message: impl std::fmt::Display) -> Error {
        Error::mismatch(self.describe_hdu(index), message.to_string())
    }

    /// Fails unless an HDU is an image of exactly this shape.
    pub fn expect_shape(&self, index: usize, shape: &[usize]) -> Result<()> {
        let image_shape = &self.image(index)?.shape;
        if image_shape == shape {
            return Ok(());
        }
        let message = format!("has the shape {image_shape:?}, not {shape:?}");
        Err(self.mismatch(index, message))
    }
}
