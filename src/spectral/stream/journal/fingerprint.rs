//! Hash by which the journal detects that the spectra of a batch have changed.

use pulp::bytemuck::{NoUninit, cast_slice};
use twox_hash::XxHash3_128;

use crate::spectra::{ColumnValues, Ids, Spectra, Wavelength};
use crate::values::Values;

/// Numbers that are widened to f64 at a time, so few that they stay in a core's first cache.
const NUMBERS_PER_PART: usize = 512;

/// A hash by XXH3 with 128 bits. It detects changes, but not forgery, at the speed of memory.
pub type Hash = u128;

/// Returns the hash of all values of the spectra that a fit reads, with numbers in this machine's byte order.
pub fn fingerprint(spectra: &Spectra) -> Hash {
    let mut hash = XxHash3_128::new();
    hash_numbers(&mut hash, &spectra.rows);
    match &spectra.ids {
        Ids::Integer(ids) => hash_numbers(&mut hash, ids),
        Ids::Text(ids) => hash_texts(&mut hash, ids),
    }
    if let Some(exposures) = &spectra.exposures {
        let counts: Vec<usize> = (0..exposures.len()).map(|k| exposures.count(k)).collect();
        hash_numbers(&mut hash, &counts);
    }
    for arm in &spectra.arms {
        hash_texts(&mut hash, std::slice::from_ref(&arm.name));
        match &arm.wavelength {
            Wavelength::Shared(grid) => hash_numbers(&mut hash, grid),
            Wavelength::Own(grids) => hash_as_f64(&mut hash, grids),
        }
        hash_as_f64(&mut hash, &arm.flux);
        hash_as_f64(&mut hash, &arm.ivar);
        hash_numbers(&mut hash, &arm.mask);
        let resolution = arm.resolution.as_ref().map_or(&[][..], |r| &r.values);
        hash_numbers(&mut hash, resolution);
        // Spectra without a covariance have the hash that they had before there were any.
        if let Some(covariance) = &arm.covariance {
            hash_numbers(&mut hash, &[covariance.diagonals]);
            hash_as_f64(&mut hash, &covariance.values);
        }
    }
    for column in &spectra.columns {
        hash_texts(&mut hash, &[column.name.to_string()]);
        match &column.values {
            ColumnValues::Text(texts) => hash_texts(&mut hash, texts),
            numbers => hash.write(format!("{numbers:?}").as_bytes()),
        }
    }
    hash.finish_128()
}

/// Adds the length and the bytes of numbers to a hash.
fn hash_numbers<T: NoUninit>(hash: &mut XxHash3_128, values: &[T]) {
    hash.write(&(values.len() as u64).to_le_bytes());
    hash.write(cast_slice(values));
}

/// Adds the count of numbers of either precision, and the numbers as f64, to a hash, part by part.
fn hash_as_f64(hash: &mut XxHash3_128, values: &Values) {
    hash.write(&(values.len() as u64).to_le_bytes());
    let mut scratch = Vec::new();
    for start in (0..values.len()).step_by(NUMBERS_PER_PART) {
        let end = values.len().min(start + NUMBERS_PER_PART);
        hash.write(cast_slice(values.widen_range(start..end, &mut scratch)));
    }
}

/// Adds the number of texts, and the length and the bytes of each, to a hash.
fn hash_texts(hash: &mut XxHash3_128, texts: &[String]) {
    hash.write(&(texts.len() as u64).to_le_bytes());
    for text in texts {
        hash_numbers(hash, text.as_bytes());
    }
}
