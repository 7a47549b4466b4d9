//! Images: big-endian numbers of six types, scaled by BSCALE and BZERO, uncompressed or compressed by tiles.

use super::cards::Header;
use super::hdu::Fits;
use super::tiles::TiledImage;
use crate::error::{Error, Result};

/// Number of bytes that are read and decoded at once; a multiple of every element's size.
const DECODED_BYTES: usize = 1 << 16;

/// An image's shape and type.
#[derive(Clone, Debug)]
pub struct Image {
    /// The slowest axis first: (rows, pixels), as numpy has it.
    pub shape: Vec<usize>,
    bitpix: i64,
    scale: f64,
    zero: f64,
    /// Integer that means not-a-number.
    blank: Option<i64>,
    /// Its compression; `None` if it is not compressed.
    tiles: Option<TiledImage>,
}

impl Image {
    /// Reads the description of an image from its header; its shape is in C order, the slowest axis first. The keywords
    /// begin with `prefix`: "Z" for a compressed image, else empty.
    pub fn new(header: &Header, prefix: &str, shape: Vec<u64>) -> Result<Image, String> {
        let bitpix = header.integer(&format!("{prefix}BITPIX"));
        let bitpix = bitpix
            .filter(|bitpix| [8, 16, 32, 64, -32, -64].contains(bitpix))
            .ok_or("no valid BITPIX")?;
        let shape = shape
            .iter()
            .rev()
            .map(|&n| usize::try_from(n).map_err(|_| "it is too large".to_string()));
        Ok(Image {
            shape: shape.collect::<Result<_, _>>()?,
            bitpix,
            scale: header.float("BSCALE").unwrap_or(1.0),
            zero: header.float("BZERO").unwrap_or(0.0),
            blank: header
                .integer("ZBLANK")
                .or(header.integer("BLANK"))
                .filter(|_| bitpix > 0),
            tiles: None,
        })
    }

    /// Adds the compression of the image.
    pub fn with_tiles(self, tiles: TiledImage) -> Image {
        Image {
            tiles: Some(tiles),
            ..self
        }
    }

    /// Returns the compression of the image; `None` if it is not compressed.
    pub fn tiles(&self) -> Option<&TiledImage> {
        self.tiles.as_ref()
    }

    /// Returns whether the image is stored as integers, as masks are.
    pub fn is_integer(&self) -> bool {
        self.bitpix > 0
    }

    /// Returns the size of an element (bytes).
    pub fn element_bytes(&self) -> usize {
        (self.bitpix.unsigned_abs() / 8) as usize
    }

    /// Decodes the big-endian bytes of one element to its physical value; NaN if it is BLANK.
    fn decode_element(&self, bytes: &[u8]) -> f64 {
        let stored = match (self.bitpix, bytes) {
            (8, &[a]) => i64::from(a),
            (16, &[a, b]) => i64::from(i16::from_be_bytes([a, b])),
            (32, &[a, b, c, d]) => i64::from(i32::from_be_bytes([a, b, c, d])),
            (64, &[a, b, c, d, e, f, g, h]) => i64::from_be_bytes([a, b, c, d, e, f, g, h]),
            (-32, &[a, b, c, d]) => {
                return self.scale_value(f64::from(f32::from_be_bytes([a, b, c, d])));
            }
            (-64, &[a, b, c, d, e, f, g, h]) => {
                return self.scale_value(f64::from_be_bytes([a, b, c, d, e, f, g, h]));
            }
            _ => unreachable!("BITPIX was checked, and elements have its size"),
        };
        if self.blank == Some(stored) {
            f64::NAN
        } else {
            self.scale_value(stored as f64)
        }
    }

    /// Converts a stored value to BSCALE × value + BZERO; without scaling the value keeps its bits.
    fn scale_value(&self, stored: f64) -> f64 {
        if self.scale == 1.0 && self.zero == 0.0 {
            stored
        } else {
            self.scale * stored + self.zero
        }
    }
}

impl Fits {
    /// Reads `count` elements of an image HDU, from element `first` on, and appends their converted physical values to
    /// `out`.
    pub fn read_numbers<T>(
        &mut self,
        index: usize,
        first: usize,
        count: usize,
        out: &mut Vec<T>,
        convert: impl Fn(f64) -> T,
    ) -> Result<()> {
        // 1. Check the range, and reserve the memory.
        let image = self.image(index)?.clone();
        let total = image.shape.iter().product::<usize>();
        if image.shape.is_empty() || first.checked_add(count).is_none_or(|end| end > total) {
            return Err(self.fault(
                index,
                format!("has {total} values, not {count} from {first}"),
            ));
        }
        self.charge_memory(count, size_of::<T>())?;
        if out.try_reserve_exact(count).is_err() {
            let message = format!("{}: {count} values do not fit memory", self.label(index));
            return Err(Error::TooLarge {
                path: self.path.clone(),
                message,
            });
        }
        let element_bytes = image.element_bytes();
        // 2. A compressed image is decoded tile by tile.
        if let Some(tiles) = &image.tiles {
            let mut pixel = first;
            while pixel < first + count {
                let tile = tiles.tile_of_pixel(pixel);
                let bytes = self.read_tile(index, tiles, &tile, element_bytes)?;
                let needed = tile.pixels.end.min(first + count) - pixel;
                let elements = bytes
                    .chunks_exact(element_bytes)
                    .skip(pixel - tile.pixels.start)
                    .take(needed);
                out.extend(elements.map(|element| convert(image.decode_element(element))));
                pixel += needed;
            }
            return Ok(());
        }
        // 3. Any other one is read in pieces.
        let mut buffer = vec![0; DECODED_BYTES.min(count * element_bytes)];
        let mut offset = first as u64 * element_bytes as u64;
        let mut remaining = count * element_bytes;
        while remaining > 0 {
            let length = remaining.min(buffer.len());
            buffer.truncate(length);
            self.read_bytes(index, offset, &mut buffer)?;
            let elements = buffer.chunks_exact(element_bytes);
            out.extend(elements.map(|element| convert(image.decode_element(element))));
            offset += length as u64;
            remaining -= length;
        }
        Ok(())
    }
}
