//! The header of a `.npy` array: `{'descr': '<f8', 'fortran_order': False, 'shape': (24, 4), }`.
//!
//! Parsed by hand: a general Python-literal parser recurses on hostile input and multiplies shapes unchecked.

use std::io::{self, Read};

use super::element::DType;

/// Maximum number of bytes of a dictionary. numpy itself refuses longer ones.
const MAX_HEADER_TEXT_BYTES: usize = 10_000;
const MAX_DIMENSIONS: usize = 32;

/// Type and shape of a `.npy` array.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ArrayHeader {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// The first axis is the fastest.
    pub(crate) fortran: bool,
}

impl ArrayHeader {
    /// Reads the npy header of an array; fails unless header and elements together have exactly `size` bytes, those of
    /// the zip entry.
    pub(super) fn read(reader: &mut impl Read, size: u64) -> io::Result<ArrayHeader> {
        // 1. Read the magic bytes, the version and the length of the dictionary.
        let mut start = [0; 8];
        reader.read_exact(&mut start)?;
        if &start[..6] != b"\x93NUMPY" {
            return Err(invalid_data("not an npy array"));
        }
        let (length, prefix_bytes) = match start[6] {
            1 => {
                let mut bytes = [0; 2];
                reader.read_exact(&mut bytes)?;
                (usize::from(u16::from_le_bytes(bytes)), 10)
            }
            2 | 3 => {
                let mut bytes = [0; 4];
                reader.read_exact(&mut bytes)?;
                (u32::from_le_bytes(bytes) as usize, 12)
            }
            version => return Err(invalid_data(format!("npy version {version} is unknown"))),
        };
        if length > MAX_HEADER_TEXT_BYTES {
            return Err(invalid_data(format!("a header of {length} bytes")));
        }
        // 2. Read the dictionary, and compare the size of the array with that of the entry.
        let mut text = vec![0; length];
        reader.read_exact(&mut text)?;
        let text =
            std::str::from_utf8(&text).map_err(|_| invalid_data("the header is not text"))?;
        let header = parse_dictionary(text).map_err(invalid_data)?;
        let element_bytes = header
            .checked_bytes()
            .ok_or_else(|| invalid_data("the shape overflows"))?;
        if element_bytes.checked_add((prefix_bytes + length) as u64) != Some(size) {
            return Err(invalid_data(format!(
                "the shape {:?} needs {element_bytes} bytes, the entry has {size}",
                header.shape
            )));
        }
        Ok(header)
    }

    /// Returns the number of elements in the array. Their product was checked when it was read.
    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether the file has the elements in Fortran order, first index fastest, and that differs from
    /// row-major.
    pub(crate) fn is_transposed(&self) -> bool {
        self.fortran && self.shape.iter().filter(|n| **n > 1).count() > 1
    }

    /// Returns the size of all elements (bytes); `None` if it overflows.
    fn checked_bytes(&self) -> Option<u64> {
        // The product is taken without zeros, which would hide an overflow of the other dimensions.
        let product = self
            .shape
            .iter()
            .map(|&n| n.max(1))
            .try_fold(self.dtype.bytes(), usize::checked_mul)?;
        let bytes = if self.shape.contains(&0) { 0 } else { product };
        isize::try_from(bytes).ok().map(|bytes| bytes as u64)
    }
}

/// Makes an I/O error of kind `InvalidData` with this message.
fn invalid_data(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// Parses the dictionary of an npy header, such as `{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}`.
fn parse_dictionary(text: &str) -> Result<ArrayHeader, String> {
    let mut text = HeaderText(text);
    let mut dtype = None;
    let mut fortran = None;
    let mut shape = None;
    // 1. Read the entries, each key once.
    text.expect('{')?;
    while !text.skip_if('}') {
        let key = text.read_string()?;
        text.expect(':')?;
        let is_repeated = match key {
            "descr" => {
                let description = text
                    .read_string()
                    .map_err(|_| "structured arrays are not supported")?;
                dtype.replace(DType::parse(description)?).is_some()
            }
            "fortran_order" => fortran.replace(text.read_boolean()?).is_some(),
            "shape" => shape.replace(text.read_shape()?).is_some(),
            _ => return Err(format!("unknown header key `{key}`")),
        };
        if is_repeated {
            return Err(format!("header key `{key}` twice"));
        }
        if !text.skip_if(',') {
            text.expect('}')?;
            break;
        }
    }
    // 2. All three are there, and nothing follows.
    match (dtype, shape, fortran, text.0.trim()) {
        (Some(dtype), Some(shape), Some(fortran), "") => Ok(ArrayHeader {
            dtype,
            fortran: fortran && shape.len() > 1,
            shape,
        }),
        _ => Err("incomplete header".to_string()),
    }
}

/// Remaining text of a header.
struct HeaderText<'a>(&'a str);

impl<'a> HeaderText<'a> {
    /// Skips spaces and then the character `character`; returns whether it was there.
    fn skip_if(&mut self, character: char) -> bool {
        self.0 = self.0.trim_start();
        match self.0.strip_prefix(character) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// Skips spaces and then the character `character`; fails if it is not there.
    fn expect(&mut self, character: char) -> Result<(), String> {
        if self.skip_if(character) {
            Ok(())
        } else {
            Err(format!("`{character}` missing in the header"))
        }
    }

    /// Reads a string in single or double quotes, and returns it without them.
    fn read_string(&mut self) -> Result<&'a str, String> {
        let quote = if self.skip_if('\'') {
            '\''
        } else {
            self.expect('"').map(|()| '"')?
        };
        let (string, rest) = self
            .0
            .split_once(quote)
            .ok_or("unfinished string in the header")?;
        self.0 = rest;
        Ok(string)
    }

    /// Reads the word `True` or `False`.
    fn read_boolean(&mut self) -> Result<bool, String> {
        self.0 = self.0.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.0.strip_prefix(word) {
                self.0 = rest;
                return Ok(value);
            }
        }
        Err("`fortran_order` is not a bool".to_string())
    }

    /// Reads a tuple of lengths such as `(3, 4)`.
    fn read_shape(&mut self) -> Result<Vec<usize>, String> {
        let mut shape = Vec::new();
        self.expect('(')?;
        while !self.skip_if(')') {
            self.0 = self.0.trim_start();
            let is_no_digit = |character: char| !character.is_ascii_digit();
            let digits = self.0.find(is_no_digit).unwrap_or(self.0.len());
            let (number, rest) = self.0.split_at(digits);
            let dimension = number
                .parse()
                .map_err(|_| "a dimension is no whole number or too large")?;
            shape.push(dimension);
            self.0 = rest;
            if shape.len() > MAX_DIMENSIONS {
                return Err("too many dimensions".to_string());
            }
            if !self.skip_if(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }
}

/// Row-major indices of elements that come in Fortran order.
pub(super) struct RowMajorIndices<'a> {
    shape: &'a [usize],
    index: Vec<usize>,
}

impl RowMajorIndices<'_> {
    /// Begins a walk over an array of this shape in Fortran order, at its first element.
    pub fn new(shape: &[usize]) -> RowMajorIndices<'_> {
        RowMajorIndices {
            shape,
            index: vec![0; shape.len()],
        }
    }

    /// Returns the row-major index of the next element in Fortran order, and moves on.
    pub fn next_row_major_index(&mut self) -> usize {
        let mut row_major_index = 0;
        for (&i, &length) in self.index.iter().zip(self.shape) {
            row_major_index = row_major_index * length + i;
        }
        // in Fortran order the first index moves fastest
        for (i, &length) in self.index.iter_mut().zip(self.shape) {
            *i += 1;
            if *i < length {
                break;
            }
            *i = 0;
        }
        row_major_index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_numpy_are_read() {
        let header =
            parse_dictionary("{'descr': '<f8', 'fortran_order': True, 'shape': (24, 4), }   \n")
                .unwrap();
        assert_eq!((header.shape, header.fortran), (vec![24, 4], true));
        assert_eq!(
            parse_dictionary("{'descr': '|b1', 'fortran_order': False, 'shape': ()}")
                .unwrap()
                .shape,
            Vec::<usize>::new()
        );
    }

    #[test]
    fn hostile_headers_are_errors() {
        let with_shape =
            |shape: &str| format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}");
        for bad in [
            "(-1,)",
            "(1",
            "5",
            "(99999999999999999999999,)",
            "(1 2)",
            "((1,),)",
        ] {
            assert!(parse_dictionary(&with_shape(bad)).is_err(), "{bad}");
        }
        for descr in ["|O", "<f8<", "<i16", "<U", "<c16", ""] {
            let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,), }}");
            assert!(parse_dictionary(&text).is_err(), "{descr}");
        }
        assert!(
            parse_dictionary(
                "{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (1,)}"
            )
            .is_err()
        );
        assert!(parse_dictionary(&"[".repeat(9000)).is_err());
        let overflow = parse_dictionary(&with_shape("(4294967296, 4294967296, 0)")).unwrap();
        assert_eq!(overflow.checked_bytes(), None);
    }

    #[test]
    fn fortran_order_is_undone() {
        let mut indices = RowMajorIndices::new(&[2, 3]);
        let placed = [1, 4, 2, 5, 3, 6].map(|value| (indices.next_row_major_index(), value));
        assert_eq!(placed, [(0, 1), (3, 4), (1, 2), (4, 5), (2, 3), (5, 6)]);
    }
}
