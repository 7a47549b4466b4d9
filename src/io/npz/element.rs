//! Types of array elements and their decoding.

/// A type that popfit reads; `big` is big-endian.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DType {
    kind: Kind,
    big: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Bool,
    /// Bytes.
    Int(usize),
    /// Bytes.
    Uint(usize),
    F16,
    F32,
    F64,
    /// Bytes, zero padded.
    Bytes(usize),
    /// Characters of four bytes, zero padded.
    Unicode(usize),
}

const MAX_STRING: usize = 4096;

/// `$bytes` as `$type`, each converted by `$convert`, appended to `$out`.
macro_rules! decode {
    ($type:ty, $big:expr, $bytes:expr, $out:expr, $convert:expr) => {{
        let items = $bytes.chunks_exact(size_of::<$type>());
        let mut word = [0; size_of::<$type>()];
        $out.extend(items.map(|item| {
            word.copy_from_slice(item);
            $convert(if $big {
                <$type>::from_be_bytes(word)
            } else {
                <$type>::from_le_bytes(word)
            })
        }));
    }};
}

/// The integer kinds, each converted by `$convert`.
macro_rules! decode_int {
    ($dtype:expr, $bytes:expr, $out:expr, $convert:ident, $otherwise:expr) => {
        match $dtype.kind {
            Kind::Int(1) => decode!(i8, $dtype.big, $bytes, $out, |x| $convert!(x)),
            Kind::Int(2) => decode!(i16, $dtype.big, $bytes, $out, |x| $convert!(x)),
            Kind::Int(4) => decode!(i32, $dtype.big, $bytes, $out, |x| $convert!(x)),
            Kind::Int(_) => decode!(i64, $dtype.big, $bytes, $out, |x| $convert!(x)),
            Kind::Uint(1) => decode!(u8, $dtype.big, $bytes, $out, |x| $convert!(x)),
            Kind::Uint(2) => decode!(u16, $dtype.big, $bytes, $out, |x| $convert!(x)),
            Kind::Uint(4) => decode!(u32, $dtype.big, $bytes, $out, |x| $convert!(x)),
            Kind::Uint(_) => decode!(u64, $dtype.big, $bytes, $out, |x| $convert!(x)),
            _ => $otherwise,
        }
    };
}

impl DType {
    /// Parses numpy's description of an element type, such as `<f8`; fails on types that popfit does not read.
    pub(super) fn parse(descr: &str) -> Result<DType, String> {
        let is_object = descr.contains('O');
        let what = if is_object {
            "arrays of Python objects".to_string()
        } else {
            format!("elements of type `{descr}`")
        };
        let unknown = || format!("{what} are not supported");
        let mut characters = descr.chars();
        let (order, kind) = (
            characters.next().ok_or_else(unknown)?,
            characters.next().ok_or_else(unknown)?,
        );
        let size: usize = characters.as_str().parse().map_err(|_| unknown())?;
        let kind = match (kind, size) {
            ('b', 1) => Kind::Bool,
            ('i', 1 | 2 | 4 | 8) => Kind::Int(size),
            ('u', 1 | 2 | 4 | 8) => Kind::Uint(size),
            ('f', 2) => Kind::F16,
            ('f', 4) => Kind::F32,
            ('f', 8) => Kind::F64,
            ('S', 1..=MAX_STRING) => Kind::Bytes(size),
            ('U', 1..=MAX_STRING) => Kind::Unicode(size),
            _ => return Err(unknown()),
        };
        let single = matches!(
            kind,
            Kind::Bool | Kind::Int(1) | Kind::Uint(1) | Kind::Bytes(_)
        );
        match order {
            '<' => Ok(DType { kind, big: false }),
            '>' => Ok(DType { kind, big: true }),
            '|' if single => Ok(DType { kind, big: false }),
            _ => Err(unknown()),
        }
    }

    /// Returns the size of one element (bytes), at least one.
    pub(crate) fn bytes(&self) -> usize {
        match self.kind {
            Kind::Bool => 1,
            Kind::Int(n) | Kind::Uint(n) | Kind::Bytes(n) => n,
            Kind::F16 => 2,
            Kind::F32 => 4,
            Kind::F64 => 8,
            Kind::Unicode(n) => 4 * n,
        }
    }

    /// Returns whether elements are signed or unsigned integers.
    pub(crate) fn is_integer(&self) -> bool {
        matches!(self.kind, Kind::Int(_) | Kind::Uint(_))
    }

    /// Returns whether elements are unsigned integers of 64 bits, which may exceed i64.
    pub(crate) fn is_natural(&self) -> bool {
        self.kind == Kind::Uint(8)
    }

    /// Returns whether elements are floats with the bytes that a float of so many has in memory.
    pub(super) fn is_float_in_memory(&self, bytes: usize) -> bool {
        let is_float = matches!(self.kind, Kind::F32 | Kind::F64);
        is_float && self.bytes() == bytes && self.big == cfg!(target_endian = "big")
    }

    /// Returns whether elements are byte strings or Unicode text.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.kind, Kind::Bytes(_) | Kind::Unicode(_))
    }

    /// Returns whether elements are booleans or integers.
    pub(crate) fn is_flag(&self) -> bool {
        self.kind == Kind::Bool || self.is_integer()
    }

    /// Decodes float or integer elements from `bytes` and appends them to `out` as f64; fails for other types.
    pub(crate) fn numbers(&self, bytes: &[u8], out: &mut Vec<f64>) -> Result<(), String> {
        macro_rules! float {
            ($x:expr) => {
                $x as f64
            };
        }
        match self.kind {
            Kind::F16 => decode!(u16, self.big, bytes, out, |x| half::f16::from_bits(x)
                .to_f64()),
            Kind::F32 => decode!(f32, self.big, bytes, out, f64::from),
            Kind::F64 => decode!(f64, self.big, bytes, out, |x| x),
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
            Kind::F16 => decode!(u16, self.big, bytes, out, |x| half::f16::from_bits(x)
                .to_f32()),
            Kind::F32 => decode!(f32, self.big, bytes, out, |x| x),
            _ => return Err("not f32".to_string()),
        }
        Ok(())
    }

    /// Decodes integer elements from `bytes` and appends them to `out` exactly; fails for other types and beyond i64.
    pub(crate) fn integers(&self, bytes: &[u8], out: &mut Vec<i64>) -> Result<(), String> {
        if self.is_natural() {
            let mut wide = Vec::with_capacity(bytes.len() / 8);
            self.naturals(bytes, &mut wide)?;
            for x in wide {
                out.push(
                    i64::try_from(x)
                        .map_err(|_| format!("{x} does not fit a signed 64-bit integer"))?,
                );
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
        let own_bits = u64::MAX >> (64 - 8 * self.bytes().clamp(1, 8));
        macro_rules! bits {
            ($x:expr) => {
                $x as u64 & own_bits
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
        decode!(u64, self.big, bytes, out, |x| x);
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
                .map(|item| item.iter().any(|&b| b != 0)),
        );
        Ok(())
    }

    /// Decodes string elements from `bytes` and appends them to `out` without their zero padding; fails for other
    /// types.
    pub(crate) fn texts(&self, bytes: &[u8], out: &mut Vec<String>) -> Result<(), String> {
        for item in bytes.chunks_exact(self.bytes()) {
            let text = match self.kind {
                Kind::Bytes(_) => {
                    let end = item.iter().rposition(|&b| b != 0).map_or(0, |i| i + 1);
                    String::from_utf8(item.iter().take(end).copied().collect())
                        .map_err(|_| "a string is not UTF-8")?
                }
                Kind::Unicode(_) => {
                    let mut codes: Vec<u32> = Vec::with_capacity(item.len() / 4);
                    decode!(u32, self.big, item, codes, |x| x);
                    let end = codes.iter().rposition(|&c| c != 0).map_or(0, |i| i + 1);
                    let characters = codes.iter().take(end).map(|&c| char::from_u32(c));
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
