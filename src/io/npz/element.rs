//! Types of array elements and their decoding.

/// Type of an array's elements, among those that popfit reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DType {
    kind: DTypeKind,
    is_big_endian: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum DTypeKind {
    Bool,
    /// Signed integers of so many bytes.
    Int(usize),
    /// Unsigned integers of so many bytes.
    Uint(usize),
    F16,
    F32,
    F64,
    /// Strings of so many bytes, padded with zeros.
    Bytes(usize),
    /// Strings of so many characters of four bytes, padded with zeros.
    Unicode(usize),
}

/// Maximum number of bytes or characters of a string.
const MAX_STRING_LENGTH: usize = 4096;

/// Decodes `$bytes` as elements of `$type`, converts each by `$convert`, and appends them to `$out`.
macro_rules! decode {
    ($type:ty, $is_big_endian:expr, $bytes:expr, $out:expr, $convert:expr) => {{
        let items = $bytes.chunks_exact(size_of::<$type>());
        let mut word = [0; size_of::<$type>()];
        $out.extend(items.map(|item| {
            word.copy_from_slice(item);
            $convert(if $is_big_endian {
                <$type>::from_be_bytes(word)
            } else {
                <$type>::from_le_bytes(word)
            })
        }));
    }};
}

/// Decodes integers of any kind, and converts each by `$convert`.
macro_rules! decode_int {
    ($dtype:expr, $bytes:expr, $out:expr, $convert:ident, $otherwise:expr) => {
        match $dtype.kind {
            DTypeKind::Int(1) => {
                decode!(i8, $dtype.is_big_endian, $bytes, $out, |x| $convert!(x))
            }
            DTypeKind::Int(2) => {
                decode!(i16, $dtype.is_big_endian, $bytes, $out, |x| $convert!(x))
            }
            DTypeKind::Int(4) => {
                decode!(i32, $dtype.is_big_endian, $bytes, $out, |x| $convert!(x))
            }
            DTypeKind::Int(_) => {
                decode!(i64, $dtype.is_big_endian, $bytes, $out, |x| $convert!(x))
            }
            DTypeKind::Uint(1) => {
                decode!(u8, $dtype.is_big_endian, $bytes, $out, |x| $convert!(x))
            }
            DTypeKind::Uint(2) => {
                decode!(u16, $dtype.is_big_endian, $bytes, $out, |x| $convert!(x))
            }
            DTypeKind::Uint(4) => {
                decode!(u32, $dtype.is_big_endian, $bytes, $out, |x| $convert!(x))
            }
            DTypeKind::Uint(_) => {
                decode!(u64, $dtype.is_big_endian, $bytes, $out, |x| $convert!(x))
            }
            _ => $otherwise,
        }
    };
}

impl DType {
    /// Parses numpy's description of an element type, such as `<f8`; fails on types that popfit does not read.
    pub(super) fn parse(descr: &str) -> Result<DType, String> {
        let unsupported = || {
            if descr.contains('O') {
                "arrays of Python objects are not supported".to_string()
            } else {
                format!("elements of type `{descr}` are not supported")
            }
        };
        // 1. Split it into byte order, kind and size.
        let mut characters = descr.chars();
        let byte_order = characters.next().ok_or_else(unsupported)?;
        let letter = characters.next().ok_or_else(unsupported)?;
        let size: usize = characters.as_str().parse().map_err(|_| unsupported())?;
        let kind = match (letter, size) {
            ('b', 1) => DTypeKind::Bool,
            ('i', 1 | 2 | 4 | 8) => DTypeKind::Int(size),
            ('u', 1 | 2 | 4 | 8) => DTypeKind::Uint(size),
            ('f', 2) => DTypeKind::F16,
            ('f', 4) => DTypeKind::F32,
            ('f', 8) => DTypeKind::F64,
            ('S', 1..=MAX_STRING_LENGTH) => DTypeKind::Bytes(size),
            ('U', 1..=MAX_STRING_LENGTH) => DTypeKind::Unicode(size),
            _ => return Err(unsupported()),
        };
        // 2. Only elements of single bytes may have no byte order.
        let has_single_bytes = matches!(
            kind,
            DTypeKind::Bool | DTypeKind::Int(1) | DTypeKind::Uint(1) | DTypeKind::Bytes(_)
        );
        let is_big_endian = match byte_order {
            '<' => false,
            '>' => true,
            '|' if has_single_bytes => false,
            _ => return Err(unsupported()),
        };
        Ok(DType {
            kind,
            is_big_endian,
        })
    }

    /// Returns the size of one element (bytes), at least one.
    pub(crate) fn bytes(&self) -> usize {
        match self.kind {
            DTypeKind::Bool => 1,
            DTypeKind::Int(n) | DTypeKind::Uint(n) | DTypeKind::Bytes(n) => n,
            DTypeKind::F16 => 2,
            DTypeKind::F32 => 4,
            DTypeKind::F64 => 8,
            DTypeKind::Unicode(n) => 4 * n,
        }
    }

    /// Returns whether elements are signed or unsigned integers.
    pub(crate) fn is_integer(&self) -> bool {
        matches!(self.kind, DTypeKind::Int(_) | DTypeKind::Uint(_))
    }

    /// Returns whether elements are unsigned integers of 64 bits, which may exceed i64.
    pub(crate) fn is_natural(&self) -> bool {
        self.kind == DTypeKind::Uint(8)
    }

    /// Returns whether elements are floats with the bytes that a float of so many has in memory.
    pub(super) fn is_float_in_memory(&self, bytes: usize) -> bool {
        let is_float = matches!(self.kind, DTypeKind::F32 | DTypeKind::F64);
        is_float && self.bytes() == bytes && self.is_big_endian == cfg!(target_endian = "big")
    }

    /// Returns whether elements are byte strings or Unicode text.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.kind, DTypeKind::Bytes(_) | DTypeKind::Unicode(_))
    }

    /// Returns whether elements are booleans or integers.
    pub(crate) fn is_flag(&self) -> bool {
        self.kind == DTypeKind::Bool || self.is_integer()
    }

    /// Decodes float or integer elements from `bytes` and appends them to `out` as f64; fails for other types.
    pub(crate) fn numbers(&self, bytes: &[u8], out: &mut Vec<f64>) -> Result<(), String> {
        macro_rules! float {
            ($x:expr) => {
                $x as f64
            };
        }
        match self.kind {
            DTypeKind::F16 => decode!(u16, self.is_big_endian, bytes, out, |x| {
                half::f16::from_bits(x).to_f64()
            }),
            DTypeKind::F32 => decode!(f32, self.is_big_endian, bytes, out, f64::from),
            DTypeKind::F64 => decode!(f64, self.is_big_endian, bytes, out, |x| x),
            _ => decode_int!(
                self,
                bytes,
                out,
                float,
                return Err("not numbers".to_string())
            ),
        }
        Ok(())
    }

    /// Decodes f16 or f32 elements from `bytes` and appends them to `out` as f32; fails for other types.
    pub(crate) fn singles(&self, bytes: &[u8], out: &mut Vec<f32>) -> Result<(), String> {
        match self.kind {
            DTypeKind::F16 => decode!(u16, self.is_big_endian, bytes, out, |x| {
                half::f16::from_bits(x).to_f32()
            }),
            DTypeKind::F32 => decode!(f32, self.is_big_endian, bytes, out, |x| x),
            _ => return Err("not f32".to_string()),
        }
        Ok(())
    }

    /// Decodes integer elements from `bytes` and appends them to `out` exactly; fails for other types and beyond i64.
    pub(crate) fn integers(&self, bytes: &[u8], out: &mut Vec<i64>) -> Result<(), String> {
        if self.is_natural() {
            let mut naturals = Vec::with_capacity(bytes.len() / 8);
            self.naturals(bytes, &mut naturals)?;
            for n in naturals {
                let integer = i64::try_from(n)
                    .map_err(|_| format!("{n} does not fit a signed 64-bit integer"))?;
                out.push(integer);
            }
            return Ok(());
        }
        macro_rules! integer {
            ($x:expr) => {
                $x as i64
            };
        }
        decode_int!(
            self,
            bytes,
            out,
            integer,
            return Err("not integers".to_string())
        );
        Ok(())
    }

    /// Decodes integer elements from `bytes` and appends their bits to `out`, zeros above those that an element has;
    /// fails for other types.
    pub(crate) fn bits(&self, bytes: &[u8], out: &mut Vec<u64>) -> Result<(), String> {
        let element_bits = u64::MAX >> (64 - 8 * self.bytes().clamp(1, 8));
        macro_rules! bits {
            ($x:expr) => {
                $x as u64 & element_bits
            };
        }
        decode_int!(
            self,
            bytes,
            out,
            bits,
            return Err("not integers".to_string())
        );
        Ok(())
    }

    /// Decodes unsigned integers of 64 bits from `bytes` and appends them to `out`; fails for other types.
    pub(crate) fn naturals(&self, bytes: &[u8], out: &mut Vec<u64>) -> Result<(), String> {
        if !self.is_natural() {
            return Err("not unsigned 64-bit integers".to_string());
        }
        decode!(u64, self.is_big_endian, bytes, out, |x| x);
        Ok(())
    }

    /// Decodes boolean or integer elements from `bytes` and appends to `out` true for each that is not zero; fails for
    /// other types.
    pub(crate) fn flags(&self, bytes: &[u8], out: &mut Vec<bool>) -> Result<(), String> {
        if !self.is_flag() {
            return Err("neither bool nor integers".to_string());
        }
        out.extend(
            bytes
                .chunks_exact(self.bytes())
                .map(|element| element.iter().any(|&byte| byte != 0)),
        );
        Ok(())
    }

    /// Decodes string elements from `bytes` and appends them to `out` without their zero padding; fails for other
    /// types.
    pub(crate) fn texts(&self, bytes: &[u8], out: &mut Vec<String>) -> Result<(), String> {
        for element in bytes.chunks_exact(self.bytes()) {
            let text = match self.kind {
                DTypeKind::Bytes(_) => {
                    let end = element
                        .iter()
                        .rposition(|&byte| byte != 0)
                        .map_or(0, |last| last + 1);
                    String::from_utf8(element.iter().take(end).copied().collect())
                        .map_err(|_| "a string is not UTF-8")?
                }
                DTypeKind::Unicode(_) => {
                    let mut codes: Vec<u32> = Vec::with_capacity(element.len() / 4);
                    decode!(u32, self.is_big_endian, element, codes, |x| x);
                    let end = codes
                        .iter()
                        .rposition(|&code| code != 0)
                        .map_or(0, |last| last + 1);
                    let characters = codes.iter().take(end).map(|&code| char::from_u32(code));
                    characters
                        .collect::<Option<String>>()
                        .ok_or("a string is not Unicode")?
                }
                _ => return Err("not strings".to_string()),
            };
            out.push(text);
        }
        Ok(())
    }
}
