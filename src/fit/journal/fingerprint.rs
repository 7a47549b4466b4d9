//! What tells a batch of spectra from another one.

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::spectra::{ColumnValues, Ids, Spectra, Wavelength};

/// SHA-256.
pub type Hash = [u8; 32];

/// SHA-256 of all that a fit reads of its spectra.
pub fn fingerprint(spectra: &Spectra) -> Hash {
    let mut hash = Sha256::new();
    numbers(&mut hash, &spectra.rows, |row| row.to_le_bytes());
    match &spectra.ids {
        Ids::Integer(ids) => numbers(&mut hash, ids, |id| id.to_le_bytes()),
        Ids::Text(ids) => texts(&mut hash, ids),
    }
    for arm in &spectra.arms {
        texts(&mut hash, std::slice::from_ref(&arm.name));
        let grid = match &arm.wavelength {
            Wavelength::Shared(grid) => &grid[..],
            Wavelength::Own(grids) => grids,
        };
        for values in [grid, &arm.flux, &arm.ivar] {
            numbers(&mut hash, values, |x| x.to_le_bytes());
        }
        numbers(&mut hash, &arm.mask, |bad| [u8::from(*bad)]);
        let resolution = arm.resolution.as_ref().map_or(&[][..], |r| &r.values);
        numbers(&mut hash, resolution, |x| x.to_le_bytes());
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

/// The count, then the hash of each piece of the numbers' bytes, by all cores.
fn numbers<T: Sync, const N: usize>(hash: &mut Sha256, values: &[T], bytes: impl Fn(&T) -> [u8; N] + Sync) {
    hash.update((values.len() as u64).to_le_bytes());
    let digest = |piece: &[T]| {
        let mut hash = Sha256::new();
        for some in piece.chunks(1024) {
            hash.update(some.iter().flat_map(&bytes).collect::<Vec<u8>>());
        }
        hash.finalize()
    };
    for digest in values.par_chunks(PIECE).map(digest).collect::<Vec<_>>() {
        hash.update(digest);
    }
}

fn texts(hash: &mut Sha256, all: &[String]) {
    hash.update((all.len() as u64).to_le_bytes());
    for text in all {
        numbers(hash, text.as_bytes(), |byte| [*byte]);
    }
}
