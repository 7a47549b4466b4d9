//! Files made to do harm: bombs, lies, truncation and flipped bytes.

use super::emulators::{DESCRIPTION, native_bytes, payne_arrays};
use super::spectra::{GRID, open, read_batches, spectra_arrays};
use super::*;

#[test]
fn zip_bombs_are_too_large() {
    let folder = tempfile::tempdir().unwrap();
    // a network of zeros: inflates by a thousand, far over what weights do
    let zeros = f32s(&[3, 40_000_000], &vec![0.0; 120_000_000]);
    let bomb = npz(&[("w_array_0", zeros)], true);
    assert!(bomb.len() < 1_000_000);
    assert!(matches!(
        Emulator::open(file(folder.path(), "b.npz", &bomb)),
        Err(Error::TooLarge { .. })
    ));
    // a directory that lies about the size, in both places
    let mut liar = npz(&spectra_arrays(), true);
    for signature in [&b"PK\x03\x04"[..], b"PK\x01\x02"] {
        let size_offset = if signature[2] == 3 { 22 } else { 24 };
        for record in (0..liar.len() - 4)
            .filter(|&i| liar[i..].starts_with(signature))
            .collect::<Vec<_>>()
        {
            let size = record + size_offset;
            liar[size..size + 4].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
        }
    }
    assert!(matches!(open(&liar), Err(Error::TooLarge { .. })));
}

#[test]
fn spectra_that_inflate_implausibly_are_too_large() {
    let zeros = |shape: &[usize]| f32s(shape, &vec![0.0; shape.iter().product()]);
    let grid = |pixels: usize| {
        f64s(
            &[pixels],
            &(0..pixels).map(|j| 4000.0 + j as f64).collect::<Vec<_>>(),
        )
    };
    let file = |pixels: usize, spectra: usize| {
        let shape = [spectra, pixels];
        npz(
            &[
                ("wavelength", grid(pixels)),
                ("flux", zeros(&shape)),
                ("ivar", zeros(&shape)),
            ],
            true,
        )
    };
    // (3000, 3000) f32 of zeros: 144 MB in f64 from a small file
    let bomb = file(3000, 3000);
    assert!(bomb.len() < 1_000_000);
    assert!(matches!(open(&bomb), Err(Error::TooLarge { .. })));
    assert_eq!(open(&file(3000, 300)).unwrap().len(), 300);
    // the grid alone
    let pixels = 12_000_000;
    let arrays = [
        ("wavelength", f64s(&[pixels], &vec![1.0; pixels])),
        ("flux", zeros(&[pixels])),
        ("ivar", zeros(&[pixels])),
    ];
    assert!(matches!(
        open(&npz(&arrays, true)),
        Err(Error::TooLarge { .. })
    ));
    // a thread for each array
    let mut many = spectra_arrays();
    let names: Vec<&'static str> = (0..1000).map(|k| &*format!("column{k}").leak()).collect();
    many.extend(names.into_iter().map(|name| (name, i64s(&[1, 2, 3, 4, 5]))));
    assert!(matches!(
        open(&npz(&many, false)),
        Err(Error::TooLarge { .. })
    ));
}

#[test]
fn duplicate_and_overlapping_entries_are_errors() {
    let twice = |bytes: &[u8]| -> Vec<u8> {
        // rename `flux2` to a second `flux.`: same length, other name
        let mut bytes = bytes.to_vec();
        for i in 0..bytes.len() - 8 {
            if bytes[i..].starts_with(b"fluy.npy") {
                bytes[i + 3] = b'x';
            }
        }
        bytes
    };
    let mut arrays = spectra_arrays();
    arrays.push(("fluy", f32s(&[5, 3], &ramp(15))));
    let bytes = npz(&arrays, false);
    assert!(open(&bytes).is_ok());
    assert!(matches!(open(&twice(&bytes)), Err(Error::Format { .. })));
    // the second entry's directory record points at the first's data
    let mut overlap = bytes.clone();
    let records: Vec<_> = (0..overlap.len() - 4)
        .filter(|&i| overlap[i..].starts_with(b"PK\x01\x02"))
        .collect();
    let first: [u8; 4] = overlap[records[1] + 42..][..4].try_into().unwrap();
    overlap[records[5] + 42..][..4].copy_from_slice(&first);
    assert!(matches!(open(&overlap), Err(Error::Format { .. })));
}

/// The bytes of a zip archive as Python writes it beyond 2 GB: with a zip64 end record and its locator.
fn with_zip64_end(bytes: &[u8], end: u32) -> Vec<u8> {
    let offset = bytes.len() - 22;
    let stated = |place: usize| {
        u64::from(u32::from_le_bytes(
            bytes[offset + place..][..4].try_into().unwrap(),
        ))
    };
    let entries = u64::from(u16::from_le_bytes(
        bytes[offset + 10..][..2].try_into().unwrap(),
    ));
    let mut all = bytes[..offset].to_vec();
    all.extend(
        [
            &b"PK\x06\x06"[..],
            &44u64.to_le_bytes(),
            &[45, 0, 45, 0],
            &[0; 8],
        ]
        .concat(),
    );
    all.extend(
        [entries, entries, stated(12), stated(16)]
            .map(u64::to_le_bytes)
            .concat(),
    );
    all.extend(
        [
            &b"PK\x06\x07"[..],
            &[0; 4],
            &(offset as u64).to_le_bytes(),
            &1u32.to_le_bytes(),
        ]
        .concat(),
    );
    all.extend(&bytes[offset..]);
    let offset = all.len() - 6;
    if end == u32::MAX {
        all[offset..offset + 4].copy_from_slice(&end.to_le_bytes());
    }
    all
}

#[test]
fn bytes_after_the_end_of_a_zip_archive_are_an_error() {
    let good = npz(&spectra_arrays(), false);
    let expected = open(&good).unwrap();
    let refused = |bytes: &[u8]| match open(bytes) {
        Err(Error::Format { message, .. }) => message,
        other => panic!("{other:?}"),
    };
    // 1. Bytes behind the end record; a comment that it states is none.
    refused(&[&good[..], &good].concat());
    for junk in [&b"j"[..], b"junk", &[0; 40]] {
        let message = refused(&[&good, junk].concat());
        assert!(message.contains("bytes follow its end"), "{message}");
    }
    let mut commented = [&good[..], b"a comment"].concat();
    commented[good.len() - 2] = 9;
    assert_eq!(open(&commented).unwrap(), expected);
    // 2. A directory that is not as long as the end record states.
    let size = u32::from_le_bytes(good[good.len() - 10..][..4].try_into().unwrap());
    for lie in [0xffff_fff0, u32::MAX, size - 1, size + 1, 0] {
        let mut liar = good.clone();
        let offset = liar.len() - 10;
        liar[offset..offset + 4].copy_from_slice(&lie.to_le_bytes());
        let message = refused(&liar);
        assert!(
            message.contains(&format!("a directory of {lie} bytes")),
            "{message}"
        );
    }
    let offset = good.len() - 22;
    refused(&[&good[..offset], b"junk", &good[offset..]].concat());
    // 3. The same with the end records of large archives.
    for end in [0, u32::MAX] {
        let large = with_zip64_end(&good, end);
        assert_eq!(open(&large).unwrap(), expected);
        refused(&[&large[..], b"junk"].concat());
        for place in [offset + 4, offset + 40, offset + 56 + 8, offset + 76 + 12] {
            let mut liar = large.clone();
            liar[place] ^= 4;
            refused(&liar);
        }
    }
}

#[test]
fn truncated_files_are_errors_at_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let network = npz(&payne_arrays(f32s), true);
    let native = native_bytes(&DESCRIPTION.replace("ACT", "silu"), |_| ());
    for deflate in [false, true] {
        let spectra = npz(&spectra_arrays(), deflate);
        for end in 0..spectra.len() {
            assert!(open(&spectra[..end]).is_err(), "spectra cut at {end}");
        }
    }
    for bytes in [network, native] {
        for end in 0..bytes.len() {
            assert!(
                Emulator::open(file(folder.path(), "n", &bytes[..end])).is_err(),
                "emulator cut at {end}"
            );
        }
    }
}

#[test]
fn every_flipped_byte_of_an_npz_is_an_error_or_changes_nothing() {
    for deflate in [false, true] {
        let good = npz(&spectra_arrays(), deflate);
        let expected = open(&good).unwrap();
        for offset in 0..good.len() {
            for flip in [0xff, 0x01, 0x80] {
                let mut bad = good.clone();
                bad[offset] ^= flip;
                if let Ok(spectra) = open(&bad) {
                    assert_eq!(spectra, expected, "byte {offset} ^ {flip:#x}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn damaged_emulators_never_panic(
        changes in prop::collection::vec((0usize..4000, any::<u8>()), 1..4),
        cut in 0usize..4000,
        kind in 0..2,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let good = match kind {
            0 => npz(&payne_arrays(f32s), true),
            _ => native_bytes(&DESCRIPTION.replace("ACT", "silu"), |_| ()),
        };
        let mut bad = good.clone();
        changes.iter().for_each(|(i, b)| { let n = bad.len(); bad[i % n] ^= b; });
        if cut % 3 == 0 {
            bad.truncate(cut % good.len());
        }
        let expected = Emulator::open(file(folder.path(), "good", &good)).unwrap();
        if let Ok(found) = Emulator::open(file(folder.path(), "bad", &bad)) {
            prop_assert_eq!(found.pixels(), expected.pixels());
            prop_assert_eq!(found.labels().len(), expected.labels().len());
            prop_assert_eq!(found.templates(&[5000.0, 3.0]).len(), expected.pixels());
        }
    }

    #[test]
    fn damaged_spectra_never_panic(changes in prop::collection::vec((0usize..4000, any::<u8>()), 2..6), deflate: bool) {
        let mut bad = npz(&spectra_arrays(), deflate);
        changes.iter().for_each(|(i, b)| { let n = bad.len(); bad[i % n] ^= b; });
        if let Ok(spectra) = open(&bad) {
            prop_assert_eq!(spectra.len() * 3, spectra.arms[0].flux.len());
        }
    }

    #[test]
    fn every_batch_size_gives_the_same_spectra(n in 0usize..40, max in 1usize..50, deflate: bool) {
        let folder = tempfile::tempdir().unwrap();
        let arrays = [
            ("wavelength", f64s(&[3], &GRID)),
            ("flux", f32s(&[n, 3], &ramp(3 * n))),
            ("ivar", f32s(&[n, 3], &vec![1.0; 3 * n])),
        ];
        let path = file(folder.path(), "s.npz", &npz(&arrays, deflate));
        let whole = Spectra::open(&path).unwrap();
        let parts = read_batches(open_reader(&path).unwrap(), max);
        prop_assert_eq!(parts.iter().map(Spectra::len).sum::<usize>(), n);
        for part in parts {
            let row = part.rows[0] as usize;
            prop_assert_eq!(&part, &whole.slice(row..row + part.len()));
        }
    }
}
