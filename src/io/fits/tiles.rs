//! Images compressed by tiles, each in a cell of a table (FITS standard 4.0, §10), as fpack and astropy write them. The
//! lossless codes GZIP_1, GZIP_2 and RICE_1 are read.
//!
//! A tile must be a run of successive pixels of the image: part of a row, rows, or planes.

use std::io::Read;
use std::ops::Range;

use flate2::read::MultiGzDecoder;

use super::cards::Header;
use super::hdu::{Fits, HduKind, read_shape};
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
pub struct TiledImage {
    codec: Codec,
    /// Number of pixels of the image.
    pixels: usize,
    pixels_per_tile: usize,
    /// Number of pixels of a run that is divided into tiles; its last tile may be shorter.
    pixels_per_run: usize,
    row_bytes: usize,
    /// Offsets in the unit's data at which the heap begins and ends.
    heap: Range<u64>,
    compressed: Descriptors,
    /// Descriptors of tiles that `codec` could not compress: in gzip, or verbatim.
    fallbacks: [(Option<Descriptors>, Codec); 2],
}

/// One tile: its row of the table, and its pixels.
pub struct ImageTile {
    row: usize,
    pub pixels: Range<usize>,
}

impl TiledImage {
    /// Reads the description of a compressed image from its header and table. An image whose compression popfit does
    /// not read is of another kind, with its name. Fails if the description contradicts itself.
    pub fn read_image(header: &Header, table: &Table) -> Result<HduKind, String> {
        // 1. Find the code of the pixels.
        let axes = read_shape(header, "Z")?;
        let image = Image::new(header, "Z", axes.clone())?;
        let compression = header.text("ZCMPTYPE").unwrap_or("").trim();
        let is_scaled = table.column("ZSCALE").is_some() || header.float("ZSCALE").is_some();
        let is_lossy = !image.is_integer() && (compression.starts_with("RICE") || is_scaled);
        let codec = match compression {
            "GZIP_1" => Some(Codec::Gzip),
            "GZIP_2" => Some(Codec::ShuffledGzip),
            "RICE_1" | "RICE_ONE" => read_rice_parameters(header),
            "NOCOMPRESS" => Some(Codec::Plain),
            _ => None,
        };
        let Some(codec) = codec.filter(|_| !is_lossy) else {
            let image_kind = if is_lossy {
                "an image of rounded floats that is"
            } else {
                "an image"
            };
            return Ok(HduKind::Other(format!(
                "{image_kind} compressed with {compression} (funpack it)"
            )));
        };
        // 2. Divide the image into tiles, of which each has a row of the table.
        let pixels = axes
            .iter()
            .try_fold(1u64, |product, length| product.checked_mul(*length))
            .and_then(|pixels| usize::try_from(pixels).ok())
            .filter(|pixels| *pixels > 0 && !axes.is_empty())
            .ok_or("a compressed image of no pixel, or of too many")?;
        let Some((pixels_per_tile, pixels_per_run)) = read_tile_shape(header, &axes)? else {
            return Ok(HduKind::Other(
                "an image compressed in tiles that are not runs of pixels (funpack it)".into(),
            ));
        };
        let tile_count = pixels / pixels_per_run * pixels_per_run.div_ceil(pixels_per_tile);
        if tile_count != table.rows {
            return Err(format!(
                "its image has {tile_count} tiles, its table {} rows",
                table.rows
            ));
        }
        // 3. Find the heap behind the rows, in which the compressed tiles lie.
        let heap = table.heap(header)?;
        let descriptors = |name| table.column(name).and_then(TableColumn::descriptor);
        let tiles = TiledImage {
            codec,
            pixels,
            pixels_per_tile,
            pixels_per_run,
            row_bytes: table.row_bytes,
            heap,
            compressed: descriptors("COMPRESSED_DATA")
                .ok_or("no column COMPRESSED_DATA of arrays")?,
            fallbacks: [
                (descriptors("GZIP_COMPRESSED_DATA"), Codec::Gzip),
                (descriptors("UNCOMPRESSED_DATA"), Codec::Plain),
            ],
        };
        Ok(HduKind::Image(image.with_tiles(tiles)))
    }

    /// Returns the number of pixels of the image.
    pub fn pixels(&self) -> usize {
        self.pixels
    }

    /// Returns the tile that holds a pixel of the image.
    pub fn tile_of_pixel(&self, pixel: usize) -> ImageTile {
        let run = pixel / self.pixels_per_run;
        let tile_in_run = pixel % self.pixels_per_run / self.pixels_per_tile;
        let start = run * self.pixels_per_run + tile_in_run * self.pixels_per_tile;
        let end = (start + self.pixels_per_tile).min((run + 1) * self.pixels_per_run);
        ImageTile {
            row: run * self.pixels_per_run.div_ceil(self.pixels_per_tile) + tile_in_run,
            pixels: start..end,
        }
    }
}

/// Reads the parameters of RICE_1 from ZNAMEn and ZVALn; `None` if popfit does not support them.
fn read_rice_parameters(header: &Header) -> Option<Codec> {
    let mut width = 4;
    let mut block = 32;
    for k in 1..10 {
        let value_key = format!("ZVAL{k}");
        match header.text(&format!("ZNAME{k}")).map(str::trim) {
            Some("BYTEPIX") => width = header.integer(&value_key)?,
            Some("BLOCKSIZE") => block = header.integer(&value_key)?,
            _ => {}
        }
    }
    let width = u32::try_from(width)
        .ok()
        .filter(|width| [1, 2, 4].contains(width))?;
    let block = usize::try_from(block).ok().filter(|block| *block > 0)?;
    Some(Codec::Rice { width, block })
}

/// Reads the shape of the tiles (ZTILEn, rows by default). Returns the numbers of pixels of a tile and of the run that
/// is divided into tiles; `None` if a tile is not a run of pixels. They fit a `usize`, because that of the image does.
fn read_tile_shape(header: &Header, axes: &[u64]) -> Result<Option<(usize, usize)>, String> {
    let mut pixels_per_tile = 1;
    let mut pixels_per_run = 1;
    // true behind the first axis that is divided: a tile has a length of one along all later axes
    let mut is_divided = false;
    for (k, axis_length) in (1..).zip(axes) {
        let default = if k == 1 { *axis_length } else { 1 };
        let tile_length = header
            .integer(&format!("ZTILE{k}"))
            .map_or(Some(default), |n| u64::try_from(n).ok())
            .filter(|n| *n > 0)
            .ok_or_else(|| format!("no valid ZTILE{k}"))?
            .min(*axis_length);
        if is_divided && tile_length > 1 {
            return Ok(None);
        }
        if !is_divided {
            pixels_per_tile = pixels_per_run * tile_length as usize;
            pixels_per_run *= *axis_length as usize;
        }
        is_divided |= tile_length < *axis_length;
    }
    Ok(Some((pixels_per_tile, pixels_per_run)))
}

impl Fits {
    /// Reads a tile of an image HDU and returns its pixels as big-endian numbers of `size` bytes.
    pub(super) fn read_tile(
        &mut self,
        index: usize,
        tiles: &TiledImage,
        tile: &ImageTile,
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
            let cell_offset = tile.row as u64 * tiles.row_bytes as u64 + offset as u64;
            let number_bytes = if is_long { 8 } else { 4 };
            let (length_bytes, start_bytes) = cell.split_at_mut(number_bytes);
            let start_bytes = start_bytes.split_at_mut(number_bytes).0;
            self.read_bytes(index, cell_offset, length_bytes)?;
            self.read_bytes(index, cell_offset + number_bytes as u64, start_bytes)?;
            let length = from_big_endian(length_bytes);
            let start = from_big_endian(start_bytes);
            if length == 0 {
                continue;
            }
            // 2. Check that it lies inside the heap and fits memory.
            let decoded_bytes = tile.pixels.len() * size; // does not overflow: the size of the image was checked
            // the length of a verbatim tile is in bytes or in pixels
            let is_verbatim = matches!(codec, Codec::Plain)
                && [decoded_bytes, tile.pixels.len()].contains(&(length as usize));
            let length = if is_verbatim {
                decoded_bytes as u64
            } else {
                length
            };
            let start = tiles.heap.start.checked_add(start);
            let end = start
                .and_then(|start| start.checked_add(length))
                .filter(|end| *end <= tiles.heap.end);
            let (Some(start), Some(_)) = (start, end) else {
                return Err(
                    self.fault(index, format!("tile {} lies outside of its heap", tile.row))
                );
            };
            self.check_tile_memory(index, length, decoded_bytes)?;
            // 3. Read and decode it.
            let mut packed = vec![0; length as usize];
            self.read_bytes(index, start, &mut packed)?;
            return codec
                .decode(packed, tile.pixels.len(), size)
                .ok_or_else(|| self.fault(index, format!("tile {} is damaged", tile.row)));
        }
        Err(self.fault(index, format!("tile {} is empty", tile.row)))
    }

    /// Fails if decoding a tile of `packed` bytes into `unpacked` bytes takes more memory than is left for a batch. The
    /// memory is not charged, because it is released at once.
    fn check_tile_memory(&mut self, index: usize, packed: u64, unpacked: usize) -> Result<()> {
        let needed = usize::try_from(packed)
            .ok()
            .and_then(|packed| packed.checked_add(2 * unpacked));
        match needed {
            Some(bytes) => self.check_memory(bytes),
            None => Err(Error::TooLarge {
                path: self.path.clone(),
                message: self.label(index),
            }),
        }
    }
}

/// Returns the number that these big-endian bytes are, at most eight of them.
pub(super) fn from_big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0u64, |number, byte| number << 8 | u64::from(*byte))
}

impl Codec {
    /// Decodes a tile of `count` pixels to big-endian numbers of `size` bytes; `None` if its bytes are damaged.
    fn decode(self, packed: Vec<u8>, count: usize, size: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(count * size);
        match self {
            Codec::Plain => bytes = packed,
            Codec::Gzip => {
                // one byte more than needed reveals a tile that is too long
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
            Codec::Rice { width, block } => {
                rice::decode_rice(&packed, count, width, block, |value| {
                    let wide = i64::from(value).to_be_bytes();
                    bytes.extend(wide.iter().skip(wide.len() - size));
                })?
            }
        }
        (bytes.len() == count * size).then_some(bytes)
    }
}
