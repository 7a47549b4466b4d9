//! The header of a `.npy` array: `{'descr': '<f8', 'fortran_order': False, 'shape': (24, 4), }`.
//!
//! Parsed by hand: a general Python-literal parser recurses on hostile input and multiplies shapes unchecked.

use std::io::{self, Read};

use super::element::DType;

/// numpy itself refuses longer ones.
const MAX_TEXT: usize = 10_000;
const MAX_DIMENSIONS: usize = 32;

/// Type and shape of a `.npy` array.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// The first axis is the fastest.
    pub(crate) fortran: bool,
}

impl Header {
    /// Reads the npy header of an array; fails unless header and elements together have exactly `size` bytes, those of
    /// the zip entry.
    pub(super) fn read(reader: &mut impl Read, size: u64) -> io::Result<Header> {
        let mut start = [0; 8];
        reader.read_exact(&mut start)?;
        if &start[..6] != b"\x93NUMPY" {
            return Err(invalid("not an npy array"));
        }
        let (length, prefix) = match start[6] {
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
            version => return Err(invalid(format!("npy version {version} is unknown"))),
        };
        if length > MAX_TEXT {
            return Err(invalid(format!("a header of {length} bytes")));
        }
        let mut text = vec![0; length];
        reader.read_exact(&mut text)?;
        let text = std::str::from_utf8(&text).map_err(|_| invalid("the header is not text"))?;
        let header = parse(text).map_err(invalid)?;
        let bytes = header
            .checked_bytes()
            .ok_or_else(|| invalid("the shape overflows"))?;
        if bytes.checked_add((prefix + length) as u64) != Some(size) {
            return Err(invalid(format!(
                "the shape {:?} needs {bytes} bytes, the entry has {size}",
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
        // A zero among the dimensions hides no overflow of the others.
        let nonzero = self
            .shape
            .iter()
            .map(|&n| n.max(1))
            .try_fold(self.dtype.bytes(), usize::checked_mul)?;
        let bytes = if self.shape.contains(&0) { 0 } else { nonzero };
        isize::try_from(bytes).ok().map(|b| b as u64)
    }
}

/// Makes an I/O error of kind `InvalidData` with this message.
fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// Parses the dictionary of an npy header, such as `{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}`.
fn parse(text: &str) -> Result<Header, String> {
    let mut text = Text(text);
    let (mut dtype, mut fortran, mut shape) = (None, None, None);
    text.expect('{')?;
    while !text.eat('}') {
        let key = text.string()?;
        text.expect(':')?;
        let repeated = match key {
            "descr" => dtype
                .replace(DType::parse(
                    text.string()
                        .map_err(|_| "structured arrays are not supported")?,
                )?)
                .is_some(),
            "fortran_order" => fortran.replace(text.boolean()?).is_some(),
            "shape" => shape.replace(text.shape()?).is_some(),
            other => return Err(format!("unknown header key `{other}`")),
        };
        if repeated {
            return Err(format!("header key `{key}` twice"));
        }
        if !text.eat(',') {
            text.expect('}')?;
            break;
        }
    }
    match (dtype, shape, fortran, text.0.trim()) {
        (Some(dtype), Some(shape), Some(fortran), "") => Ok(Header {
            dtype,
            fortran: fortran && shape.len() > 1,
            shape,
        }),
        _ => Err("incomplete header".to_string()),
    }
}

/// Remaining text of a header.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    /// Skips spaces and then the character `c`; returns whether it was there.
    fn eat(&mut self, c: char) -> bool {
        self.0 = self.0.trim_start();
        match self.0.strip_prefix(c) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// Skips spaces and then the character `c`; fails if it is not there.
    fn expect(&mut self, c: char) -> Result<(), String> {
        if self.eat(c) {
            Ok(())
        } else {
            Err(format!("`{c}` missing in the header"))
        }
    }

    /// Reads a string in single or double quotes, and returns it without them.
    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.eat('\'') {
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
    fn boolean(&mut self) -> Result<bool, String> {
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
    fn shape(&mut self) -> Result<Vec<usize>, String> {
        let mut shape = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            self.0 = self.0.trim_start();
            let digits = self.0.len()
                - self
                    .0
                    .trim_start_matches(|c: char| c.is_ascii_digit())
                    .len();
            let (number, rest) = self.0.split_at(digits);
            shape.push(
                number
                    .parse()
                    .map_err(|_| "a dimension is no whole number or too large")?,
            );
            self.0 = rest;
            if shape.len() > MAX_DIMENSIONS {
                return Err("too many dimensions".to_string());
            }
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }
}

/// The places in row-major order of elements that come in Fortran order.
pub(super) struct RowMajor<'a> {
    shape: &'a [usize],
    index: Vec<usize>,
}

impl RowMajor<'_> {
    /// Begins a walk over an array of this shape in Fortran order, at its first element.
    pub fn new(shape: &[usize]) -> RowMajor<'_> {
        RowMajor {
            shape,
            index: vec![0; shape.len()],
        }
    }

    /// Returns the row-major index of the next element in Fortran order, and moves on.
    pub fn next_place(&mut self) -> usize {
        let place = self
            .index
            .iter()
            .zip(self.shape)
            .fold(0, |sum, (&i, &n)| sum * n + i);
        for (i, &n) in self.index.iter_mut().zip(self.shape) {
            *i += 1;
            if *i < n {
                break;
            }
            *i = 0;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_numpy_are_read() {
        let header =
            parse("{'descr': '<f8', 'fortran_order': True, 'shape': (24, 4), }   \n").unwrap();
        assert_eq!((header.shape, header.fortran), (vec![24, 4], true));
        assert_eq!(
            parse("{'descr': '|b1', 'fortran_order': False, 'shape': ()}")
                .unwrap()
                .shape,
            Vec::<usize>::new()
        );
    }

    #[test]
    fn hostile_headers_are_errors() {
        let shape = |s: &str| format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {s}, }}");
        for bad in [
            "(-1,)",
            "(1",
            "5",
            "(99999999999999999999999,)",
            "(1 2)",
            "((1,),)",
        ] {
            assert!(parse(&shape(bad)).is_err(), "{bad}");
        }
        for descr in ["|O", "<f8<", "<i16", "<U", "<c16", ""] {
            let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,), }}");
            assert!(parse(&text).is_err(), "{descr}");
        }
        assert!(
            parse("{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (1,)}")
                .is_err()
        );
        assert!(parse(&"[".repeat(9000)).is_err());
        let overflow = parse(&shape("(4294967296, 4294967296, 0)")).unwrap();
        assert_eq!(overflow.checked_bytes(), None);
    }

    #[test]
    fn fortran_order_is_undone() {
        let mut places = RowMajor::new(&[2, 3]);
        let found = [1, 4, 2, 5, 3, 6].map(|value| (places.next_place(), value));
        assert_eq!(found, [(0, 1), (3, 4), (1, 2), (4, 5), (2, 3), (5, 6)]);
    }
}
