//! What tells a batch of spectra from another one.

use pulp::bytemuck::{NoUninit, cast_slice};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::spectra::{ColumnValues, Ids, Spectra, Wavelength};

/// SHA-256.
pub type Hash = [u8; 32];

/// SHA-256 of all that a fit reads of its spectra.
pub fn fingerprint(spectra: &Spectra) -> Hash {
    let mut hash = Sha256::new();
    numbers(&mut hash, &spectra.rows);
    match &spectra.ids {
        Ids::Integer(ids) => numbers(&mut hash, ids),
        Ids::Text(ids) => texts(&mut hash, ids),
    }
    for arm in &spectra.arms {
        texts(&mut hash, std::slice::from_ref(&arm.name));
        let grid = match &arm.wavelength {
            Wavelength::Shared(grid) => &grid[..],
            Wavelength::Own(grids) => grids,
        };
        for values in [grid, &arm.flux, &arm.ivar] {
            numbers(&mut hash, values);
        }
        numbers(&mut hash, &arm.mask);
        let resolution = arm.resolution.as_ref().map_or(&[][..], |r| &r.values);
        numbers(&mut hash, resolution);
    }
    for column in &spectra.columns {
        texts(&mut hash, &[column.name.to_string()]);
        match &column.values {
            ColumnValues::Text(all) => texts(&mut hash, all),
            other => hash.update(format!("{other:?}")),
        }
    }
    hash.finalize().into()
}

/// Numbers that are hashed by themselves.
const PIECE: usize = 1 << 16;

/// The count, then the hash of each piece of the numbers' bytes as this machine has them, by all cores.
fn numbers<T: NoUninit + Sync>(hash: &mut Sha256, values: &[T]) {
    hash.update((values.len() as u64).to_le_bytes());
    let digest = |piece: &[T]| Sha256::digest(cast_slice::<T, u8>(piece));
    for digest in values.par_chunks(PIECE).map(digest).collect::<Vec<_>>() {
        hash.update(digest);
    }
}

fn texts(hash: &mut Sha256, all: &[String]) {
    hash.update((all.len() as u64).to_le_bytes());
    for text in all {
        numbers(hash, text.as_bytes());
    }
}
