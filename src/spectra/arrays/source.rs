//! The interface to named arrays, which are in a file or in memory.

use std::borrow::Cow;
use std::path::PathBuf;

use super::values::ArrayValues;
use crate::error::{Error, Result};
use crate::suggest::{join_names, missing_name_message};
use crate::values::Values;

/// Type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementKind {
    /// Booleans.
    Bool,
    /// Signed integers, or unsigned ones of less than 64 bits.
    Integer,
    /// Unsigned integers of 64 bits, which may exceed i64.
    Natural,
    /// Floats of 16 bits, which f32 holds without loss.
    Half,
    /// Floats of 32 bits.
    Single,
    /// Floats of 64 bits.
    Double,
    /// Strings.
    Text,
}

impl ElementKind {
    /// Returns whether elements are floats or integers.
    pub fn is_number(self) -> bool {
        !matches!(self, ElementKind::Bool | ElementKind::Text)
    }

    /// Returns whether elements are signed or unsigned integers.
    pub fn is_integer(self) -> bool {
        matches!(self, ElementKind::Integer | ElementKind::Natural)
    }

    /// Returns whether elements are booleans or integers.
    pub fn is_flag(self) -> bool {
        self == ElementKind::Bool || self.is_integer()
    }

    /// Returns whether elements are floats that f32 represents without loss.
    pub fn is_single(self) -> bool {
        matches!(self, ElementKind::Half | ElementKind::Single)
    }
}

/// Shape and type of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayHead {
    pub shape: Vec<usize>,
    pub kind: ElementKind,
}

impl ArrayHead {
    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Named arrays in a file or in memory. The lifetime is that of arrays borrowed from memory.
pub trait ArraySource<'a> {
    type Rows: ArrayRows<'a>;

    /// Returns the place of the arrays, for messages.
    fn place(&self) -> SourcePlace;

    /// Returns the names of the arrays in their order.
    fn keys(&self) -> Vec<String>;

    /// Returns the shape and type of an array; `None` if there is no array of this name. Fails for a type that popfit
    /// does not read.
    fn read_head(&mut self, key: &str) -> Result<Option<ArrayHead>>;

    /// Reads an array through to find damage.
    fn read_through_array(&mut self, key: &str) -> Result<()>;

    /// Reads two arrays through to find damage, at the same time if they are large.
    fn check_two_arrays(&mut self, first: &str, second: &str) -> Result<()>;

    /// Returns whether all elements of an array of unsigned integers fit an i64.
    fn values_fit_i64(&mut self, key: &str) -> Result<bool>;

    /// Returns a reader of an array's elements.
    fn open_rows(&mut self, key: &str) -> Result<Self::Rows>;

    /// Reads a whole array of numbers, and converts each of them.
    fn read_numbers(&mut self, key: &str, convert: &dyn Fn(f64) -> f64) -> Result<Vec<f64>>;

    /// Returns the text of an array that has one element, a text; `None` for any other array.
    fn read_text(&mut self, key: &str) -> Result<Option<String>>;

    /// Reserves the memory that an array takes besides its spectra while it is read.
    fn reserve_memory(&mut self, _key: &str) -> Result<()> {
        Ok(())
    }

    /// Returns the maximum number of bytes of the spectra that are made at once.
    fn max_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Returns the head of an array; fails if there is none of this name.
    fn require_head(&mut self, key: &str) -> Result<ArrayHead> {
        match self.read_head(key)? {
            Some(head) => Ok(head),
            None => Err(self.missing_error(key)),
        }
    }

    /// Returns the error for a missing array, which suggests a similar name and lists the names of all arrays.
    fn missing_error(&self, key: &str) -> Error {
        self.place()
            .error(missing_name_message("array", key, &self.keys()))
    }

    /// Returns the error for two missing arrays, one of which is needed. It lists the names of all arrays.
    fn missing_both_error(&self, first: &str, second: &str) -> Error {
        let names = join_names("array", &self.keys());
        self.place().error(format!(
            "neither `{first}` nor `{second}` is in it (found: {names})"
        ))
    }
}

/// The elements of one array, taken row by row.
pub trait ArrayRows<'a>: Send {
    /// Returns the type of the elements.
    fn kind(&self) -> ElementKind;

    /// Returns the number of bytes of a stored element.
    fn item_bytes(&self) -> usize;

    /// Takes the next elements without conversion, except that f16 becomes f64.
    fn take_elements(&mut self, elements: usize) -> Result<ArrayValues<'a>>;

    /// Takes the next numbers, as f32 if f32 represents them without loss, else as f64. They are read into the memory
    /// of `spare` if that is large enough.
    fn take_values(&mut self, elements: usize, spare: Values<'static>) -> Result<Values<'a>>;

    /// Takes the next numbers as f64, with `spare` as in [`take_values`](ArrayRows::take_values).
    fn take_doubles(&mut self, elements: usize, spare: Values<'static>) -> Result<Cow<'a, [f64]>>;

    /// Takes the next numbers as f32.
    fn take_singles(&mut self, elements: usize) -> Result<Cow<'a, [f32]>>;

    /// Takes the next booleans or integers, and returns true for each that is not 0.
    fn take_flags(&mut self, elements: usize) -> Result<Cow<'a, [bool]>>;

    /// Takes the next integers, and passes the bits of each to `visit`, with zeros above those of an element.
    fn take_bits(&mut self, elements: usize, visit: &mut dyn FnMut(u64)) -> Result<()>;
}

/// Place of arrays, for messages.
#[derive(Clone, Debug)]
pub enum SourcePlace {
    /// A file at this path.
    File(PathBuf),
    /// The caller's memory.
    Memory,
}

impl SourcePlace {
    /// Returns an error for the shape of an array, with a description of the fault ("has the shape …").
    pub fn shape_error(&self, key: &str, description: impl std::fmt::Display) -> Error {
        let error = match self {
            SourcePlace::File(path) => {
                Error::mismatch(path.display().to_string(), format!("{key} {description}"))
            }
            SourcePlace::Memory => Error::mismatch(key, format!("it {description}")),
        };
        error.naming(key)
    }

    /// Returns an error for faulty arrays.
    pub fn error(&self, message: impl Into<String>) -> Error {
        match self {
            SourcePlace::File(path) => Error::format(path, message),
            SourcePlace::Memory => Error::Usage(message.into()),
        }
    }

    /// Returns an error for spectra that need too much memory.
    pub fn too_large_error(&self, message: impl Into<String>) -> Error {
        match self {
            SourcePlace::File(path) => Error::TooLarge {
                path: path.clone(),
                message: message.into(),
            },
            SourcePlace::Memory => Error::OutOfMemory {
                device: "cpu".into(),
                message: message.into(),
            },
        }
    }

    /// Returns the path of the file as text; empty for memory.
    pub fn file(&self) -> String {
        match self {
            SourcePlace::File(path) => path.display().to_string(),
            SourcePlace::Memory => String::new(),
        }
    }

    /// Returns `name` with the path of the file in front, for a message or a note.
    pub fn with_file(&self, name: &str) -> String {
        match self {
            SourcePlace::File(path) => format!("{}: {name}", path.display()),
            SourcePlace::Memory => name.to_string(),
        }
    }
}

/// Returns a shape as numpy writes it: `(64, 3741)`, `(5,)`.
pub fn format_shape(shape: &[usize]) -> String {
    match shape {
        [length] => format!("({length},)"),
        _ => format!(
            "({})",
            shape
                .iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}
