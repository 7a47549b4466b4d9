//! Named arrays in an NPZ file.
//!
//! Opening reads every array through to its checksum and stores none. Batches then come from one stream per array, so
//! that memory holds a batch, never the whole file.

use std::borrow::Cow;
use std::path::Path;

use pulp::bytemuck::Pod;

use super::arm::{MIN_BYTES_FOR_TWO_THREADS, run_both};
use super::reader::ArraysReader;
use super::source::{ArrayHead, ArrayRows, ArraySource, ElementKind, SourcePlace};
use super::values::ArrayValues;
use crate::error::{Error, Result};
use crate::io::memory::most_inflated_bytes;
use crate::io::npz::{Archive, ArrayHeader, DType, Stream, too_large};
use crate::spectra::{Selection, SpectraReader};
use crate::values::Values;

/// Maximum number of arrays, each of which has a thread and memory to inflate it.
const MAX_ARRAYS: usize = 256;

/// Opens an NPZ file of spectra, checks its arrays, and reads each through to find damage.
pub fn open(path: &Path, selection: &Selection) -> Result<impl SpectraReader + use<>> {
    let archive = Archive::open(path)?;
    let count = archive.keys().len();
    if count > MAX_ARRAYS {
        return Err(too_large(
            path,
            format!("it has {count} arrays, more than the {MAX_ARRAYS} that popfit reads"),
        ));
    }
    // Shared grids are subtracted from it; each batch may take the rest.
    let budget = most_inflated_bytes(archive.file_length());
    ArraysReader::open(NpzFile { archive, budget }, selection.widen.as_ref())
}

/// An open NPZ file.
struct NpzFile {
    archive: Archive,
    /// Number of bytes that arrays may still take.
    budget: u64,
}

impl ElementKind {
    /// Returns the kind of elements of this type.
    fn from_dtype(dtype: &DType) -> ElementKind {
        match dtype {
            dtype if dtype.is_text() => ElementKind::Text,
            dtype if dtype.is_natural() => ElementKind::Natural,
            dtype if dtype.is_integer() => ElementKind::Integer,
            dtype if dtype.is_flag() => ElementKind::Bool,
            dtype if dtype.bytes() == 2 => ElementKind::Half,
            dtype if dtype.bytes() == 4 => ElementKind::Single,
            _ => ElementKind::Double,
        }
    }
}

impl ArraySource<'static> for NpzFile {
    type Rows = Stream;

    fn place(&self) -> SourcePlace {
        SourcePlace::File(self.archive.path().to_path_buf())
    }

    fn keys(&self) -> Vec<String> {
        self.archive.keys()
    }

    fn read_head(&mut self, key: &str) -> Result<Option<ArrayHead>> {
        let header = self.archive.header(key)?;
        Ok(header.map(|ArrayHeader { dtype, shape, .. }| ArrayHead {
            shape,
            kind: ElementKind::from_dtype(&dtype),
        }))
    }

    fn read_through_array(&mut self, key: &str) -> Result<()> {
        self.archive.check(key)
    }

    fn check_two_arrays(&mut self, first: &str, second: &str) -> Result<()> {
        if self.archive.file_length() <= MIN_BYTES_FOR_TWO_THREADS {
            return self
                .read_through_array(first)
                .and_then(|()| self.read_through_array(second));
        }
        let mut second_archive = Archive::open(self.archive.path())?;
        let (first, second) = run_both(
            true,
            || self.archive.check(first),
            || second_archive.check(second),
        );
        first.and(second)
    }

    fn values_fit_i64(&mut self, key: &str) -> Result<bool> {
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

    fn open_rows(&mut self, key: &str) -> Result<Stream> {
        self.archive.stream(key)
    }

    fn read_numbers(&mut self, key: &str, convert: &dyn Fn(f64) -> f64) -> Result<Vec<f64>> {
        let array = self.archive.read(key, &mut self.budget, convert)?;
        // The values are copied once, to be shared.
        let bytes = array.values.len() as u64 * size_of::<f64>() as u64;
        self.budget = self.budget.checked_sub(bytes).ok_or_else(|| {
            let message = format!(
                "`{key}` holds {bytes} bytes, more than this file should (is it a zip bomb?)"
            );
            too_large(self.archive.path(), message)
        })?;
        Ok(array.values)
    }

    fn read_text(&mut self, key: &str) -> Result<Option<String>> {
        self.archive.text(key)
    }

    /// An array in Fortran order is held whole.
    fn reserve_memory(&mut self, key: &str) -> Result<()> {
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

    fn max_bytes(&self) -> u64 {
        self.budget
    }

    fn missing_error(&self, key: &str) -> Error {
        self.archive.missing(key)
    }
}

impl ArrayRows<'static> for Stream {
    fn kind(&self) -> ElementKind {
        ElementKind::from_dtype(&self.dtype())
    }

    fn item_bytes(&self) -> usize {
        self.dtype().bytes()
    }

    fn take_elements(&mut self, elements: usize) -> Result<ArrayValues<'static>> {
        // Check that there is memory for the widest values.
        drop(reserve_memory::<u64>(elements, self.path())?);
        Ok(match ArrayRows::kind(self) {
            ElementKind::Bool => {
                ArrayValues::Bool(self.take_decoded(elements, DType::flags)?.into())
            }
            ElementKind::Integer => {
                ArrayValues::Int64(self.take_decoded(elements, DType::integers)?.into())
            }
            ElementKind::Natural => {
                ArrayValues::UInt64(self.take_decoded(elements, DType::naturals)?.into())
            }
            ElementKind::Single => {
                ArrayValues::Float32(self.take_decoded(elements, DType::singles)?.into())
            }
            ElementKind::Half | ElementKind::Double => {
                ArrayValues::Float64(self.take_decoded(elements, DType::numbers)?.into())
            }
            ElementKind::Text => ArrayValues::Text(self.take_decoded(elements, DType::texts)?),
        })
    }

    fn take_values(&mut self, elements: usize, spare: Values<'static>) -> Result<Values<'static>> {
        if !ArrayRows::kind(self).is_single() {
            return self.take_doubles(elements, spare).map(Values::from);
        }
        self.take_floats(elements, spare.into_single_memory(), DType::singles)
            .map(Values::from)
    }

    fn take_doubles(
        &mut self,
        elements: usize,
        spare: Values<'static>,
    ) -> Result<Cow<'static, [f64]>> {
        self.take_floats(elements, spare.into_double_memory(), DType::numbers)
            .map(Cow::from)
    }

    fn take_singles(&mut self, elements: usize) -> Result<Cow<'static, [f32]>> {
        let mut values: Vec<f32> = reserve_memory(elements, self.path())?;
        let mut doubles = Vec::new();
        Stream::take(self, elements, |dtype, bytes| {
            doubles.clear();
            dtype.numbers(bytes, &mut doubles)?;
            values.extend(doubles.iter().map(|x| *x as f32));
            Ok(())
        })?;
        Ok(values.into())
    }

    fn take_flags(&mut self, elements: usize) -> Result<Cow<'static, [bool]>> {
        let mut flags = reserve_memory(elements, self.path())?;
        Stream::take(self, elements, |dtype, bytes| {
            dtype.flags(bytes, &mut flags)
        })?;
        Ok(flags.into())
    }

    fn take_bits(&mut self, elements: usize, visit: &mut dyn FnMut(u64)) -> Result<()> {
        let mut bits = Vec::new();
        Stream::take(self, elements, |dtype, bytes| {
            bits.clear();
            dtype.bits(bytes, &mut bits)?;
            bits.iter().for_each(|bits| visit(*bits));
            Ok(())
        })
    }
}

/// Function that decodes elements from bytes and appends them.
type Decode<T> = fn(&DType, &[u8], &mut Vec<T>) -> std::result::Result<(), String>;

impl Stream {
    /// Reads the next elements with a function that decodes them.
    fn take_decoded<T>(&mut self, elements: usize, decode: Decode<T>) -> Result<Vec<T>> {
        let mut values = Vec::new();
        Stream::take(self, elements, |dtype, bytes| {
            decode(dtype, bytes, &mut values)
        })?;
        Ok(values)
    }

    /// Reads the next elements into the memory of `spare` if that is large enough. It decodes them unless the file
    /// stores them as memory does.
    fn take_floats<T: Pod>(
        &mut self,
        elements: usize,
        mut spare: Vec<T>,
        decode: Decode<T>,
    ) -> Result<Vec<T>> {
        if self.is_as_in_memory::<T>() {
            // The old values are overwritten, so only memory beyond them is filled with zeros.
            spare.truncate(elements);
            let additional = elements - spare.len();
            let mut values = with_capacity_for(spare, additional, self.path())?;
            values.resize(elements, T::zeroed());
            self.take_as_in_memory(&mut values)?;
            return Ok(values);
        }
        spare.clear();
        let mut values = with_capacity_for(spare, elements, self.path())?;
        Stream::take(self, elements, |dtype, bytes| {
            decode(dtype, bytes, &mut values)
        })?;
        Ok(values)
    }
}

/// Returns an empty vector with room for `elements`; fails if memory is short.
fn reserve_memory<T>(elements: usize, path: &Path) -> Result<Vec<T>> {
    with_capacity_for(Vec::new(), elements, path)
}

/// Returns the vector with room for `additional` elements; fails if memory is short.
fn with_capacity_for<T>(mut values: Vec<T>, additional: usize, path: &Path) -> Result<Vec<T>> {
    match values.try_reserve_exact(additional) {
        Ok(()) => Ok(values),
        Err(_) => Err(too_large(
            path,
            format!("{additional} values do not fit memory; read smaller batches"),
        )),
    }
}
