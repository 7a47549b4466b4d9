//! Places of named arrays: the seam between a file or memory, and what spectra are made of.

use std::borrow::Cow;
use std::path::PathBuf;

use super::values::ArrayValues;
use crate::error::{Error, Result};
use crate::suggest::{missing_name, shown_names};
use crate::values::Values;

/// Type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    /// Signed integers, or unsigned ones of less than 64 bits.
    Integer,
    /// Unsigned integers of 64 bits, which may exceed i64.
    Natural,
    /// Floats of 16 bits, which f32 holds without loss.
    Half,
    Single,
    Double,
    Text,
}

impl Kind {
    /// Returns whether elements are floats or integers.
    pub fn is_number(self) -> bool {
        !matches!(self, Kind::Bool | Kind::Text)
    }

    /// Returns whether elements are signed or unsigned integers.
    pub fn is_integer(self) -> bool {
        matches!(self, Kind::Integer | Kind::Natural)
    }

    /// Returns whether elements are booleans or integers.
    pub fn is_flag(self) -> bool {
        self == Kind::Bool || self.is_integer()
    }

    /// Returns whether f32 holds the elements without loss, and they are floats.
    pub fn is_single(self) -> bool {
        matches!(self, Kind::Half | Kind::Single)
    }
}

/// Shape and type of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    pub shape: Vec<usize>,
    pub kind: Kind,
}

impl Head {
    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Named arrays in a file or in memory. The lifetime is that of what memory lends.
pub trait Source<'a> {
    type Rows: Rows<'a>;

    /// Returns where the arrays are, for messages.
    fn place(&self) -> Place;

    /// Returns the names of the arrays in their order.
    fn keys(&self) -> Vec<String>;

    /// Returns the shape and type of an array; `None` if there is no array of this name. Fails for a type that popfit
    /// does not read.
    fn head(&mut self, key: &str) -> Result<Option<Head>>;

    /// Reads an array through to find damage.
    fn check(&mut self, key: &str) -> Result<()>;

    /// Reads two arrays through to find damage, at the same time if that is worth it.
    fn check_both(&mut self, first: &str, second: &str) -> Result<()>;

    /// Returns whether all elements of an array of unsigned integers fit an i64.
    fn fits_signed(&mut self, key: &str) -> Result<bool>;

    /// Returns an array's elements, to be taken row by row.
    fn rows(&mut self, key: &str) -> Result<Self::Rows>;

    /// Reads a whole array of numbers, and converts each.
    fn numbers(&mut self, key: &str, convert: &dyn Fn(f64) -> f64) -> Result<Vec<f64>>;

    /// Returns the text of an array that has one element, a text; `None` for any other array.
    fn text(&mut self, key: &str) -> Result<Option<String>>;

    /// Reserves the memory that an array takes besides its spectra while it is read.
    fn reserve(&mut self, _key: &str) -> Result<()> {
        Ok(())
    }

    /// Returns the maximum number of bytes of the spectra that are made at once.
    fn most_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Returns the head of an array; fails if there is none of this name.
    fn required(&mut self, key: &str) -> Result<Head> {
        match self.head(key)? {
            Some(head) => Ok(head),
            None => Err(self.missing(key)),
        }
    }

    /// Returns the error for an array that is not there: it suggests a near name and lists those that are there.
    fn missing(&self, key: &str) -> Error {
        self.place().fault(missing_name("array", key, &self.keys()))
    }

    /// Returns the error for two arrays of which one should be there: it lists those that are.
    fn missing_both(&self, one: &str, other: &str) -> Error {
        let found = shown_names("array", &self.keys());
        self.place().fault(format!(
            "neither `{one}` nor `{other}` is in it (found: {found})"
        ))
    }
}

/// The elements of one array, taken row by row.
pub trait Rows<'a>: Send {
    /// Returns the type of the elements.
    fn kind(&self) -> Kind;

    /// Returns the number of bytes of an element where it is stored.
    fn item(&self) -> usize;

    /// Takes the next elements: booleans, integers, floats (f16 as f64) or texts, as they are.
    fn take(&mut self, elements: usize) -> Result<ArrayValues<'a>>;

    /// Takes the next numbers: as f32 if f32 holds them without loss, else as f64. What is read is in the memory of
    /// `spare` if that has enough.
    fn take_values(&mut self, elements: usize, spare: Values<'static>) -> Result<Values<'a>>;

    /// Takes the next numbers as f64, with `spare` as in [`take_values`](Rows::take_values).
    fn take_doubles(&mut self, elements: usize, spare: Values<'static>) -> Result<Cow<'a, [f64]>>;

    /// Takes the next numbers as f32.
    fn take_singles(&mut self, elements: usize) -> Result<Cow<'a, [f32]>>;

    /// Takes the next booleans or integers, and returns true for each that is not 0.
    fn take_flags(&mut self, elements: usize) -> Result<Cow<'a, [bool]>>;

    /// Takes the next integers, and hands over the bits of each, zeros above those that an element has.
    fn take_bits(&mut self, elements: usize, each: &mut dyn FnMut(u64)) -> Result<()>;
}

/// Place of arrays, for messages.
#[derive(Clone, Debug)]
pub enum Place {
    /// The file at this path.
    File(PathBuf),
    Memory,
}

impl Place {
    /// Returns an error for the shape of an array, of which `said` says what is wrong ("has the shape …").
    pub fn shape_fault(&self, key: &str, said: impl std::fmt::Display) -> Error {
        let fault = match self {
            Place::File(path) => {
                Error::mismatch(path.display().to_string(), format!("{key} {said}"))
            }
            Place::Memory => Error::mismatch(key, format!("it {said}")),
        };
        fault.naming(key)
    }

    /// Returns an error for arrays of which `message` says what is wrong.
    pub fn fault(&self, message: impl Into<String>) -> Error {
        match self {
            Place::File(path) => Error::format(path, message),
            Place::Memory => Error::Usage(message.into()),
        }
    }

    /// Returns an error for spectra that need too much memory.
    pub fn too_large(&self, message: impl Into<String>) -> Error {
        match self {
            Place::File(path) => Error::TooLarge {
                path: path.clone(),
                message: message.into(),
            },
            Place::Memory => Error::OutOfMemory {
                device: "cpu".into(),
                message: message.into(),
            },
        }
    }

    /// Returns the path of the file as text; empty for memory.
    pub fn file(&self) -> String {
        match self {
            Place::File(path) => path.display().to_string(),
            Place::Memory => String::new(),
        }
    }

    /// Returns `name` with the file before it, for a message or a note.
    pub fn with_file(&self, name: &str) -> String {
        match self {
            Place::File(path) => format!("{}: {name}", path.display()),
            Place::Memory => name.to_string(),
        }
    }
}

/// Returns a shape as numpy writes it: `(64, 3741)`, `(5,)`.
pub fn shown(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
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
