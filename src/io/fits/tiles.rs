//! Images compressed by tiles, each in a cell of a table (FITS standard 4.0, §10), as fpack and astropy write them. The
//! lossless codes GZIP_1, GZIP_2 and RICE_1 are read.
//!
//! A tile must be a run of successive pixels of the image: part of a row, rows, or planes.

use std::io::Read;
use std::ops::Range;

use flate2::read::MultiGzDecoder;

use super::cards::Header;
use super::hdu::{Fits, Kind, shape};
use super::image::Image;
use super::rice;
use super::table::{Table, TableColumn};
use crate::error::{Error, Result};

/// Code of a tile's pixels.
#[derive(Clone, Copy, Debug)]
enum Codec {
    /// Verbatim.
    Plain,
    Gzip,
    /// The first bytes of all pixels, then the second bytes, and so on, in gzip.
    ShuffledGzip,
    Rice {
        width: u32,
        block: usize,
    },
}

/// A column of descriptors: its offset in a row (bytes), and whether they have 64 bits.
type Descriptors = (usize, bool);

/// The compression of an image.
#[derive(Clone, Debug)]
pub struct Tiles {
    codec: Codec,
    /// Number of pixels of the image.
    pixels: usize,
    /// Number of pixels of a tile.
    tile: usize,
    /// Number of pixels of a run that is divided into tiles; its last tile may be shorter.
    run: usize,
    row_bytes: usize,
    /// Offsets in the unit's data at which the heap begins and ends.
    heap: Range<u64>,
    compressed: Descriptors,
    /// Descriptors of tiles that `codec` could not compress: in gzip, or verbatim.
    fallbacks: [(Option<Descriptors>, Codec); 2],
}

/// One tile: its row of the table, and its pixels.
pub struct Tile {
    row: usize,
    pub pixels: Range<usize>,
}

impl Tiles {
    /// Reads the description of a compressed image from its header and table. An image whose compression popfit does
    /// not read is of another kind, with its name. Fails if the description contradicts itself.
    pub fn image(header: &Header, table: &Table) -> Result<Kind, String> {
        let axes = shape(header, "Z")?;
        let image = Image::new(header, "Z", axes.clone())?;
        let kind = header.text("ZCMPTYPE").unwrap_or("").trim();
        let column = |name: &str| table.column(name);
        let is_lossy = !image.is_integer()
            && (kind.starts_with("RICE")
                || column("ZSCALE").is_some()
                || header.float("ZSCALE").is_some());
        let codec = match kind {
            "GZIP_1" => Some(Codec::Gzip),
            "GZIP_2" => Some(Codec::ShuffledGzip),
            "RICE_1" | "RICE_ONE" => rice(header),
            "NOCOMPRESS" => Some(Codec::Plain),
            _ => None,
        };
        let Some(codec) = codec.filter(|_| !is_lossy) else {
            let what = if is_lossy {
                "an image of rounded floats that is"
            } else {
                "an image"
            };
            return Ok(Kind::Other(format!(
                "{what} compressed with {kind} (funpack it)"
            )));
        };
        let pixels = axes
            .iter()
            .try_fold(1u64, |all, n| all.checked_mul(*n))
            .and_then(|n| usize::try_from(n).ok());
        let pixels = pixels
            .filter(|n| *n > 0 && !axes.is_empty())
            .ok_or("a compressed image of no pixel, or of too many")?;
        let Some((tile, run)) = tile_and_run(header, &axes)? else {
            return Ok(Kind::Other(
                "an image compressed in tiles that are not runs of pixels (funpack it)".into(),
            ));
        };
        let count = pixels / run * run.div_ceil(tile);
        if count != table.rows {
            return Err(format!(
                "its image has {count} tiles, its table {} rows",
                table.rows
            ));
        }
        let descriptors = |name| column(name).and_then(TableColumn::descriptor);
        let rows = table.rows as u64 * table.row_bytes as u64; // lie in the file
        let heap = header
            .integer("THEAP")
            .map_or(Some(rows), |at| u64::try_from(at).ok());
        let end = header
            .integer("PCOUNT")
            .and_then(|n| rows.checked_add(u64::try_from(n).ok()?));
        let (Some(start), Some(end)) = (heap.filter(|at| *at >= rows), end) else {
            return Err("no valid THEAP or PCOUNT".into());
        };
        let tiles = Tiles {
            codec,
            pixels,
            tile,
            run,
            row_bytes: table.row_bytes,
            heap: start..end,
            compressed: descriptors("COMPRESSED_DATA")
                .ok_or("no column COMPRESSED_DATA of arrays")?,
            fallbacks: [
                (descriptors("GZIP_COMPRESSED_DATA"), Codec::Gzip),
                (descriptors("UNCOMPRESSED_DATA"), Codec::Plain),
            ],
        };
        Ok(Kind::Image(image.with_tiles(tiles)))
    }

    /// Returns the number of pixels of the image.
    pub fn pixels(&self) -> usize {
        self.pixels
    }

    /// Returns the tile that holds a pixel of the image.
    pub fn holding(&self, pixel: usize) -> Tile {
        let (run, within) = (pixel / self.run, pixel % self.run / self.tile);
        let start = run * self.run + within * self.tile;
        let end = (start + self.tile).min((run + 1) * self.run);
        Tile {
            row: run * self.run.div_ceil(self.tile) + within,
            pixels: start..end,
        }
    }
}

/// Reads the parameters of RICE_1 from ZNAMEn and ZVALn; `None` if popfit does not support them.
fn rice(header: &Header) -> Option<Codec> {
    let names = (1..10).map(|k| (header.text(&format!("ZNAME{k}")), format!("ZVAL{k}")));
    let (mut width, mut block) = (4, 32);
    for (name, value) in names {
        match name.map(str::trim) {
            Some("BYTEPIX") => width = header.integer(&value)?,
            Some("BLOCKSIZE") => block = header.integer(&value)?,
            _ => {}
        }
    }
    let width = u32::try_from(width)
        .ok()
        .filter(|width| [1, 2, 4].contains(width))?;
    Some(Codec::Rice {
        width,
        block: usize::try_from(block).ok().filter(|block| *block > 0)?,
    })
}

/// Reads the shape of the tiles (ZTILEn, rows by default). Returns the numbers of pixels of a tile and of the run that
/// is divided into tiles; `None` if a tile is not a run of pixels. They fit a `usize`, because that of the image does.
fn tile_and_run(header: &Header, axes: &[u64]) -> Result<Option<(usize, usize)>, String> {
    let (mut tile, mut run, mut is_cut) = (1, 1, false);
    for (k, length) in (1..).zip(axes) {
        let default = if k == 1 { *length } else { 1 };
        let part = header
            .integer(&format!("ZTILE{k}"))
            .map_or(Some(default), |n| u64::try_from(n).ok());
        let part = part
            .filter(|n| *n > 0)
            .ok_or_else(|| format!("no valid ZTILE{k}"))?
            .min(*length);
        if is_cut && part > 1 {
            return Ok(None);
        }
        if !is_cut {
            (tile, run) = (run * part as usize, run * *length as usize);
        }
        is_cut |= part < *length;
    }
    Ok(Some((tile, run)))
}

impl Fits {
    /// Reads a tile of an image HDU and returns its pixels as big-endian numbers of `size` bytes.
    pub(super) fn tile(
        &mut self,
        index: usize,
        tiles: &Tiles,
        tile: &Tile,
        size: usize,
    ) -> Result<Vec<u8>> {
        let columns = [(Some(tiles.compressed), tiles.codec)]
            .into_iter()
            .chain(tiles.fallbacks);
        for (descriptors, codec) in columns {
            // 1. Read the descriptor of the tile: its length and its place in the heap.
            let Some((offset, is_long)) = descriptors else {
                continue;
            };
            let mut cell = [0; 16];
            let at = tile.row as u64 * tiles.row_bytes as u64 + offset as u64;
            let half = if is_long { 8 } else { 4 };
            let (length, start) = cell.split_at_mut(half);
            self.read(index, at, length)?;
            self.read(index, at + half as u64, start.split_at_mut(half).0)?;
            let number = |bytes: &[u8]| {
                bytes
                    .iter()
                    .take(half)
                    .fold(0u64, |n, byte| n << 8 | u64::from(*byte))
            };
            let (length, start) = (number(length), number(start));
            if length == 0 {
                continue;
            }
            // 2. Check that it lies inside the heap and fits memory.
            let bytes = tile.pixels.len() * size; // of an image that was found to be small enough
            // the length of a verbatim tile is in bytes or in pixels
            let is_verbatim = matches!(codec, Codec::Plain)
                && [bytes, tile.pixels.len()].contains(&(length as usize));
            let length = if is_verbatim { bytes as u64 } else { length };
            let start = tiles.heap.start.checked_add(start);
            let end = start
                .and_then(|start| start.checked_add(length))
                .filter(|end| *end <= tiles.heap.end);
            let (Some(start), Some(_)) = (start, end) else {
                return Err(
                    self.fault(index, format!("tile {} lies outside of its heap", tile.row))
                );
            };
            self.refuse_little_memory(index, length, bytes)?;
            // 3. Read and decode it.
            let mut packed = vec![0; length as usize];
            self.read(index, start, &mut packed)?;
            return codec
                .decode(packed, tile.pixels.len(), size)
                .ok_or_else(|| self.fault(index, format!("tile {} is damaged", tile.row)));
        }
        Err(self.fault(index, format!("tile {} is empty", tile.row)))
    }

    /// Fails if decoding a tile of `packed` bytes into `unpacked` bytes takes more memory than is left for a batch. The
    /// memory is not charged, because it is released at once.
    fn refuse_little_memory(&mut self, index: usize, packed: u64, unpacked: usize) -> Result<()> {
        let taken = usize::try_from(packed)
            .ok()
            .and_then(|packed| packed.checked_add(2 * unpacked));
        match taken {
            Some(bytes) => self.borrow(bytes),
            None => Err(Error::TooLarge {
                path: self.path.clone(),
                message: self.label(index),
            }),
        }
    }
}

impl Codec {
    /// Decodes a tile of `count` pixels to big-endian numbers of `size` bytes; `None` if its bytes are damaged.
    fn decode(self, packed: Vec<u8>, count: usize, size: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(count * size);
        match self {
            Codec::Plain => bytes = packed,
            Codec::Gzip => {
                // one more byte shows that there are too many
                MultiGzDecoder::new(packed.as_slice())
                    .take((count * size) as u64 + 1)
                    .read_to_end(&mut bytes)
                    .ok()?;
            }
            Codec::ShuffledGzip => {
                let planes = Codec::Gzip.decode(packed, count, size)?;
                for pixel in 0..count {
                    bytes.extend(planes.iter().skip(pixel).step_by(count));
                }
            }
            Codec::Rice { width, block } => rice::decode(&packed, count, width, block, |x| {
                let wide = i64::from(x).to_be_bytes();
                bytes.extend(wide.iter().skip(wide.len() - size));
            })?,
        }
        (bytes.len() == count * size).then_some(bytes)
    }
}
