//! Named arrays in an NPZ file.
//!
//! Opening reads every array through to its CRC and keeps none; batches then come from one stream an array, so that
//! memory holds a batch, never the file.

use std::borrow::Cow;
use std::path::Path;

use pulp::bytemuck::Pod;

use super::arm::{LARGE, join};
use super::reader::ArraysReader;
use super::source::{Head, Kind, Place, Rows, Source};
use super::values::ArrayValues;
use crate::error::{Error, Result};
use crate::io::memory::most_inflated_bytes;
use crate::io::npz::{Archive, ArrayHeader, DType, Stream, too_large};
use crate::spectra::{Selection, SpectraReader};
use crate::values::Values;

/// Most arrays: each that is used has a thread, and what that needs to inflate.
const MOST_ARRAYS: usize = 256;

/// Opens an NPZ file of spectra, checks its arrays, and reads each through to find damage.
pub fn open(path: &Path, selection: &Selection) -> Result<impl SpectraReader + use<>> {
    let archive = Archive::open(path)?;
    let count = archive.keys().len();
    if count > MOST_ARRAYS {
        return Err(too_large(
            path,
            format!("it has {count} arrays, more than the {MOST_ARRAYS} that popfit reads"),
        ));
    }
    // shared grids are taken from it, what is left is each batch's
    let budget = most_inflated_bytes(archive.file_length());
    ArraysReader::open(NpzFile { archive, budget }, selection.widen.as_ref())
}

/// An open file.
struct NpzFile {
    archive: Archive,
    /// Bytes that what is read may still take.
    budget: u64,
}

impl Kind {
    /// Returns the kind of elements of this type.
    fn of(dtype: &DType) -> Kind {
        match dtype {
            dtype if dtype.is_text() => Kind::Text,
            dtype if dtype.is_natural() => Kind::Natural,
            dtype if dtype.is_integer() => Kind::Integer,
            dtype if dtype.is_flag() => Kind::Bool,
            dtype if dtype.bytes() == 2 => Kind::Half,
            dtype if dtype.bytes() == 4 => Kind::Single,
            _ => Kind::Double,
        }
    }
}

impl Source<'static> for NpzFile {
    type Rows = Stream;

    fn place(&self) -> Place {
        Place::File(self.archive.path().to_path_buf())
    }

    fn keys(&self) -> Vec<String> {
        self.archive.keys()
    }

    fn head(&mut self, key: &str) -> Result<Option<Head>> {
        let head = |ArrayHeader { dtype, shape, .. }: ArrayHeader| Head {
            shape,
            kind: Kind::of(&dtype),
        };
        Ok(self.archive.header(key)?.map(head))
    }

    fn check(&mut self, key: &str) -> Result<()> {
        self.archive.check(key)
    }

    fn check_both(&mut self, first: &str, second: &str) -> Result<()> {
        if self.archive.file_length() <= LARGE {
            return self.check(first).and_then(|()| self.check(second));
        }
        let mut other = Archive::open(self.archive.path())?;
        let (first, second) = join(true, || self.archive.check(first), || other.check(second));
        first.and(second)
    }

    fn fits_signed(&mut self, key: &str) -> Result<bool> {
        let mut fits = true;
        let mut naturals = Vec::new();
        self.archive.scan(key, |dtype, bytes| {
            naturals.clear();
            dtype.naturals(bytes, &mut naturals)?;
            fits &= naturals
                .iter()
                .all(|natural| i64::try_from(*natural).is_ok());
            Ok(())
        })?;
        Ok(fits)
    }

    fn rows(&mut self, key: &str) -> Result<Stream> {
        self.archive.stream(key)
    }

    fn numbers(&mut self, key: &str, convert: &dyn Fn(f64) -> f64) -> Result<Vec<f64>> {
        let array = self.archive.read(key, &mut self.budget, convert)?;
        // it is copied once, to be shared
        let bytes = array.values.len() as u64 * size_of::<f64>() as u64;
        self.budget = self.budget.checked_sub(bytes).ok_or_else(|| {
            let message = format!(
                "`{key}` holds {bytes} bytes, more than this file should (is it a zip bomb?)"
            );
            too_large(self.archive.path(), message)
        })?;
        Ok(array.values)
    }

    fn text(&mut self, key: &str) -> Result<Option<String>> {
        self.archive.text(key)
    }

    /// An array in Fortran order is held whole.
    fn reserve(&mut self, key: &str) -> Result<()> {
        let Some(header) = self.archive.header(key)?.filter(ArrayHeader::is_transposed) else {
            return Ok(());
        };
        let bytes = (header.elements() as u64).saturating_mul(header.dtype.bytes() as u64);
        self.budget = self.budget.checked_sub(bytes).ok_or_else(|| {
            let message = format!(
                "`{key}` is in Fortran order, and holds {bytes} bytes, far more than the file has (is it a zip bomb?)"
            );
            too_large(self.archive.path(), message)
        })?;
        Ok(())
    }

    fn most_bytes(&self) -> u64 {
        self.budget
    }

    fn missing(&self, key: &str) -> Error {
        self.archive.missing(key)
    }
}

impl Rows<'static> for Stream {
    fn kind(&self) -> Kind {
        Kind::of(&self.dtype())
    }

    fn item(&self) -> usize {
        self.dtype().bytes()
    }

    fn take(&mut self, elements: usize) -> Result<ArrayValues<'static>> {
        // as much memory as the widest value takes
        drop(reserve::<u64>(elements, self.path())?);
        Ok(match Rows::kind(self) {
            Kind::Bool => ArrayValues::Bool(self.decoded(elements, DType::flags)?.into()),
            Kind::Integer => ArrayValues::Int64(self.decoded(elements, DType::integers)?.into()),
            Kind::Natural => ArrayValues::UInt64(self.decoded(elements, DType::naturals)?.into()),
            Kind::Single => ArrayValues::Float32(self.decoded(elements, DType::singles)?.into()),
            Kind::Half | Kind::Double => {
                ArrayValues::Float64(self.decoded(elements, DType::numbers)?.into())
            }
            Kind::Text => ArrayValues::Text(self.decoded(elements, DType::texts)?),
        })
    }

    fn take_values(&mut self, elements: usize, spare: Values<'static>) -> Result<Values<'static>> {
        if !Rows::kind(self).is_single() {
            return self.take_doubles(elements, spare).map(Values::from);
        }
        self.floats(elements, spare.into_single_memory(), DType::singles)
            .map(Values::from)
    }

    fn take_doubles(
        &mut self,
        elements: usize,
        spare: Values<'static>,
    ) -> Result<Cow<'static, [f64]>> {
        self.floats(elements, spare.into_double_memory(), DType::numbers)
            .map(Cow::from)
    }

    fn take_singles(&mut self, elements: usize) -> Result<Cow<'static, [f32]>> {
        let mut values: Vec<f32> = reserve(elements, self.path())?;
        let mut wide = Vec::new();
        Stream::take(self, elements, |dtype, bytes| {
            wide.clear();
            dtype.numbers(bytes, &mut wide)?;
            values.extend(wide.iter().map(|x| *x as f32));
            Ok(())
        })?;
        Ok(values.into())
    }

    fn take_flags(&mut self, elements: usize) -> Result<Cow<'static, [bool]>> {
        let mut flags = reserve(elements, self.path())?;
        Stream::take(self, elements, |dtype, bytes| {
            dtype.flags(bytes, &mut flags)
        })?;
        Ok(flags.into())
    }

    fn take_bits(&mut self, elements: usize, each: &mut dyn FnMut(u64)) -> Result<()> {
        let mut bits = Vec::new();
        Stream::take(self, elements, |dtype, bytes| {
            bits.clear();
            dtype.bits(bytes, &mut bits)?;
            bits.iter().for_each(|bits| each(*bits));
            Ok(())
        })
    }
}

/// Function that decodes elements from bytes and appends them.
type Decode<T> = fn(&DType, &[u8], &mut Vec<T>) -> std::result::Result<(), String>;

impl Stream {
    /// Reads the next elements with a function that decodes them.
    fn decoded<T>(&mut self, elements: usize, decode: Decode<T>) -> Result<Vec<T>> {
        let mut values = Vec::new();
        Stream::take(self, elements, |dtype, bytes| {
            decode(dtype, bytes, &mut values)
        })?;
        Ok(values)
    }

    /// Reads the next elements into the memory of `spare` if that has enough; decodes them unless they are in the file
    /// as they are in memory.
    fn floats<T: Pod>(
        &mut self,
        elements: usize,
        mut spare: Vec<T>,
        decode: Decode<T>,
    ) -> Result<Vec<T>> {
        if self.is_as_in_memory::<T>() {
            // what spare memory has is overwritten: no new zeros for it
            spare.truncate(elements);
            let more = elements - spare.len();
            let mut values = with_room(spare, more, self.path())?;
            values.resize(elements, T::zeroed());
            self.take_as_in_memory(&mut values)?;
            return Ok(values);
        }
        spare.clear();
        let mut values = with_room(spare, elements, self.path())?;
        Stream::take(self, elements, |dtype, bytes| {
            decode(dtype, bytes, &mut values)
        })?;
        Ok(values)
    }
}

/// Returns an empty vector with room for `elements`; fails if memory is short.
fn reserve<T>(elements: usize, path: &Path) -> Result<Vec<T>> {
    with_room(Vec::new(), elements, path)
}

/// Returns the vector with room for `more` elements; fails if memory is short.
fn with_room<T>(mut values: Vec<T>, more: usize, path: &Path) -> Result<Vec<T>> {
    match values.try_reserve_exact(more) {
        Ok(()) => Ok(values),
        Err(_) => Err(too_large(
            path,
            format!("{more} values do not fit memory; read smaller batches"),
        )),
    }
}
