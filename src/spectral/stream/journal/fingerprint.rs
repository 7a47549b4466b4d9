//! Hash by which the journal detects that the spectra of a batch have changed.

use pulp::bytemuck::{NoUninit, cast_slice};
use twox_hash::XxHash3_128;

use crate::spectra::{ColumnValues, Ids, Spectra, Wavelength};
use crate::values::Values;

/// Numbers that are widened to f64 at a time: they stay in a core's first cache.
const PART: usize = 512;

/// A hash by XXH3 with 128 bits. It detects changes, but not forgery, at the speed of memory.
pub type Hash = u128;

/// Returns the hash of all values of the spectra that a fit reads, with numbers in this machine's byte order.
pub fn fingerprint(spectra: &Spectra) -> Hash {
    let mut hash = XxHash3_128::new();
    numbers(&mut hash, &spectra.rows);
    match &spectra.ids {
        Ids::Integer(ids) => numbers(&mut hash, ids),
        Ids::Text(ids) => texts(&mut hash, ids),
    }
    for arm in &spectra.arms {
        texts(&mut hash, std::slice::from_ref(&arm.name));
        match &arm.wavelength {
            Wavelength::Shared(grid) => numbers(&mut hash, grid),
            Wavelength::Own(grids) => doubles(&mut hash, grids),
        }
        doubles(&mut hash, &arm.flux);
        doubles(&mut hash, &arm.ivar);
        numbers(&mut hash, &arm.mask);
        let resolution = arm.resolution.as_ref().map_or(&[][..], |r| &r.values);
        numbers(&mut hash, resolution);
    }
    for column in &spectra.columns {
        texts(&mut hash, &[column.name.to_string()]);
        match &column.values {
            ColumnValues::Text(all) => texts(&mut hash, all),
            other => hash.write(format!("{other:?}").as_bytes()),
        }
    }
    hash.finish_128()
}

/// Adds the length and the bytes of numbers to a hash.
fn numbers<T: NoUninit>(hash: &mut XxHash3_128, values: &[T]) {
    hash.write(&(values.len() as u64).to_le_bytes());
    hash.write(cast_slice(values));
}

/// Adds the count of numbers and the numbers as f64, whatever their precision, to a hash, a part at a time.
fn doubles(hash: &mut XxHash3_128, values: &Values) {
    hash.write(&(values.len() as u64).to_le_bytes());
    let mut scratch = Vec::new();
    for start in (0..values.len()).step_by(PART) {
        let end = values.len().min(start + PART);
        hash.write(cast_slice(values.widen_range(start..end, &mut scratch)));
    }
}

/// Adds the number of texts, and the length and the bytes of each, to a hash.
fn texts(hash: &mut XxHash3_128, all: &[String]) {
    hash.write(&(all.len() as u64).to_le_bytes());
    for text in all {
        numbers(hash, text.as_bytes());
    }
}
