//! NPZ files without compression that are large enough to be read by several threads.

use std::fs;

use super::spectra::{GRID, spectra_arrays};
use super::*;

const SPECTRA: usize = 2003;
const PIXELS: usize = 1499;

/// Numbers that differ from pixel to pixel and from spectrum to spectrum.
fn noise() -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 1e4
    };
    (0..SPECTRA * PIXELS).map(|_| next()).collect()
}

/// Returns an NPZ file of flux in f32 (12 MB), ivar in f64 (24 MB), and a mask.
fn large_npz(deflate: bool) -> Vec<u8> {
    let flux = noise();
    let shape = [SPECTRA, PIXELS];
    let ivar: Vec<f64> = flux.iter().rev().map(|x| f64::from(*x) / 3.0).collect();
    let mask: Vec<bool> = flux.iter().map(|x| (*x as u32).is_multiple_of(7)).collect();
    let grid: Vec<f64> = (0..PIXELS).map(|k| GRID[0] + k as f64).collect();
    let arrays = [
        ("wavelength", f64s(&[PIXELS], &grid)),
        ("flux", f32s(&shape, &flux)),
        ("ivar", f64s(&shape, &ivar)),
        ("mask", bools(&shape, &mask)),
    ];
    npz(&arrays, deflate)
}

/// Returns all spectra of a file, read in batches of the given sizes in turn.
fn read_in_batches(path: &std::path::Path, sizes: &[usize]) -> Result<Vec<Spectra<'static>>> {
    let mut reader = open_reader(path)?;
    let mut batches = Vec::new();
    for size in sizes.iter().cycle() {
        match reader.next_batch(*size)? {
            Some(batch) => batches.push(batch),
            None => break,
        }
        // Give every other batch back, so that its memory is used again.
        if batches.len() % 2 == 0 {
            let used: Spectra = batches[batches.len() - 1].clone();
            reader.recycle(used);
        }
    }
    Ok(batches)
}

#[test]
fn large_stored_and_deflated_files_give_the_same_spectra() {
    let folder = tempfile::tempdir().unwrap();
    let stored = file(folder.path(), "stored.npz", &large_npz(false));
    // The name is part of the spectra, so both files have the same one.
    let deflated = tempfile::tempdir().unwrap();
    let deflated = file(deflated.path(), "stored.npz", &large_npz(true));
    for sizes in [&[SPECTRA][..], &[1, 900, 13], &[2000, 1]] {
        let from_stored = read_in_batches(&stored, sizes).unwrap();
        let from_deflated = read_in_batches(&deflated, sizes).unwrap();
        assert_eq!(from_stored.iter().map(Spectra::len).sum::<usize>(), SPECTRA);
        for (from_stored, from_deflated) in from_stored.iter().zip(&from_deflated) {
            assert_eq!(
                (&from_stored.arms, &from_stored.rows),
                (&from_deflated.arms, &from_deflated.rows),
                "{sizes:?}"
            );
        }
    }
}

#[test]
fn a_changed_byte_anywhere_in_a_large_file_is_an_error() {
    let good = large_npz(false);
    let folder = tempfile::tempdir().unwrap();
    for part in 0..9 {
        let mut bad = good.clone();
        let offset = (bad.len() * (2 * part + 1)) / 18;
        bad[offset] ^= 1;
        let bad = file(folder.path(), "bad.npz", &bad);
        let Err(error) = open_reader(&bad).map(|_| ()) else {
            panic!("byte {offset}")
        };
        assert!(error.to_string().contains("checksum"), "{error}");
    }
    // A byte that changes after the file was opened and checked is an error, too.
    let path = file(folder.path(), "changed.npz", &good);
    let mut reader = open_reader(&path).unwrap();
    let mut bad = good;
    let offset = bad.len() / 2;
    bad[offset] ^= 1;
    fs::write(&path, &bad).unwrap();
    let error = loop {
        match reader.next_batch(800) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the change was not found"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("checksum"), "{error}");
}

#[test]
fn a_file_replaced_between_opening_and_reading_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for deflate in [false, true] {
        let path = file(
            folder.path(),
            "spectra.npz",
            &npz(&spectra_arrays(), deflate),
        );
        let mut reader = open_reader(&path).unwrap();
        // The other file has the same bytes, but the reader has not checked it.
        let other = file(folder.path(), "other.npz", &npz(&spectra_arrays(), deflate));
        fs::rename(other, &path).unwrap();
        let error = reader.next_batch(5).unwrap_err();
        assert!(
            matches!(&error, Error::InputChanged { path: named } if *named == path),
            "{error}"
        );
    }
}
