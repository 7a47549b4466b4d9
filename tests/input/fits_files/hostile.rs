//! Files made to do harm: rows 24, 25 and 27 to 29 of the list of bad inputs.

use proptest::prelude::*;

use super::*;
use popfit_testing::fits_bytes::{ARMS, BLOCK, COUNT, FitsBytes, arm, desi, f64s, fibermap, gzip};

#[test]
fn files_truncated_at_any_byte_are_errors_or_have_fewer_arms() {
    let whole = desi().0;
    let expected = open(&whole).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for end in (0..whole.len()).filter(|end| end % 61 == 0 || (end + 1) % BLOCK < 3) {
        let path = popfit_testing::file(folder.path(), "x.fits", &whole[..end]);
        match Spectra::open(&path) {
            Err(Error::Format { message, .. }) => assert!(!message.is_empty()),
            Err(other) => panic!("cut at {end}: {other}"),
            // A file cut between two HDUs is a valid file of fewer HDUs. Its arrays are complete.
            Ok(spectra) => {
                assert!(
                    end % BLOCK == 0 && spectra.arms.len() < ARMS.len(),
                    "cut at {end}"
                );
                let arm = &spectra.arms[0];
                let whole = &expected.arms[0];
                assert_eq!((&arm.flux, &arm.ivar), (&whole.flux, &whole.ivar));
                assert!(arm.mask.is_empty() || arm.mask == whole.mask);
                let notes = open_reader(&path).unwrap().notes().join(" ");
                assert!(notes.contains("B_MASK") == arm.mask.is_empty(), "{notes}");
            }
        }
    }
    let compressed = gzip(&whole);
    for end in 0..compressed.len() {
        assert!(open(&compressed[..end]).is_err(), "gzip cut at {end}");
    }
}

#[test]
fn gzip_bombs_are_too_large() {
    let huge = 120 << 20;
    let cards = [
        "XTENSION= 'IMAGE'",
        "BITPIX  = 8",
        "NAXIS   = 1",
        "NAXIS1  = 125829120",
    ];
    let bomb = gzip(&FitsBytes::new(&[]).unit(&cards, &vec![0; huge]).0);
    assert!(bomb.len() < 1 << 20);
    assert!(matches!(open(&bomb), Err(Error::TooLarge { .. })));
    // The checksum detects a flipped bit in the compressed data.
    let mut packed = gzip(&desi().0);
    let middle = packed.len() / 2;
    packed[middle] ^= 1;
    assert!(matches!(open(&packed), Err(Error::Format { .. })));
}

#[test]
fn sizes_in_headers_are_checked_before_memory_is_allocated() {
    let image = |axes: &[&str]| {
        let mut cards = vec!["XTENSION= 'IMAGE'", "BITPIX  = -64"];
        cards.extend(axes);
        desi().unit(&cards, &[0; 8]).0
    };
    let table = |cards: &[&str]| {
        let mut all_cards = vec![
            "XTENSION= 'BINTABLE'",
            "BITPIX  = 8",
            "NAXIS   = 2",
            "PCOUNT  = 0",
            "GCOUNT  = 1",
        ];
        all_cards.extend(cards);
        desi().unit(&all_cards, &[0; 8]).0
    };
    let cases = [
        image(&["NAXIS   = 1", "NAXIS1  = 9223372036854775807"]),
        image(&[
            "NAXIS   = 2",
            "NAXIS1  = 4294967296",
            "NAXIS2  = 4294967296",
        ]),
        image(&["NAXIS   = 1", "NAXIS1  = -1"]),
        image(&["NAXIS   = 999999999", "NAXIS1  = 1"]),
        image(&["NAXIS   = -1"]),
        image(&["NAXIS   = 1", "NAXIS1  = 100000000"]),
        image(&["NAXIS   = 1", "NAXIS1  = 1", "NAXIS1  = 2"]),
        image(&["NAXIS   = 1", "NAXIS1  = 1", "BITPIX  = 7"]),
        table(&["NAXIS1  = 8", "NAXIS2  = 1", "TFIELDS = 99999999999"]),
        table(&["NAXIS1  = 8", "NAXIS2  = 1", "TFIELDS = -1"]),
        table(&[
            "NAXIS1  = 8",
            "NAXIS2  = 1",
            "TFIELDS = 1",
            "TFORM1  = '99999999999999999999J'",
        ]),
        table(&[
            "NAXIS1  = 8",
            "NAXIS2  = 1",
            "TFIELDS = 1",
            "TFORM1  = '2305843009213693953D'",
        ]),
        table(&["NAXIS1  = 8", "NAXIS2  = 1", "TFIELDS = 1", "TFORM1  = 'J'"]),
        table(&["NAXIS1  = 8", "NAXIS2  = 1", "TFIELDS = 1", "TFORM1  = 'Ü'"]),
        table(&[
            "NAXIS1  = 0",
            "NAXIS2  = 9223372036854775807",
            "TFIELDS = 0",
        ]),
    ];
    for (k, bytes) in cases.iter().enumerate() {
        match open(bytes) {
            Err(Error::Format { message, .. }) => {
                assert!(message.contains("HDU 12"), "case {k}: {message}")
            }
            other => panic!("case {k}: {other:?}"),
        }
    }
    for not_fits in [
        &b""[..],
        b"SIMPLE",
        b"SIMPLE  =                    T",
        &[0x1f, 0x8b],
        &gzip(b"no FITS"),
    ] {
        assert!(open(not_fits).is_err());
    }
}

#[test]
fn arrays_of_contradictory_shapes_are_named() {
    let with_image = |image: &str, shape: &[usize]| {
        let bytes = vec![0; shape.iter().product::<usize>() * 8];
        let bare = fibermap(FitsBytes::new(&[]));
        let mut file = arm(bare, "B", 5).0;
        // Rename the HDU of this name, and append another one.
        let name = format!("'B_{image}'");
        let offset = (0..file.len())
            .find(|&i| file[i..].starts_with(name.as_bytes()))
            .unwrap();
        file[offset + 2] = b'X';
        FitsBytes(file)
            .image(&format!("B_{image}"), -64, shape, &bytes, &[])
            .0
    };
    for (image, shape) in [
        ("IVAR", &[COUNT, 6][..]),
        ("MASK", &[COUNT - 1, 5]),
        ("WAVELENGTH", &[6]),
        ("RESOLUTION", &[COUNT, 3, 6]),
        ("FLUX", &[COUNT, 5, 1]),
    ] {
        match open(&with_image(image, shape)) {
            Err(Error::ShapeMismatch {
                what: named_image, ..
            }) => {
                assert!(
                    named_image.contains(if image == "FLUX" { "B_" } else { image }),
                    "{named_image}"
                );
            }
            result => panic!("{image}: {result:?}"),
        }
    }
    assert!(
        matches!(
            open(&with_image("RESOLUTION", &[COUNT, 4, 5])),
            Err(Error::Format { .. })
        ),
        "even diagonals"
    );
    assert!(matches!(
        open(&with_image("WAVELENGTH", &[5])),
        Err(Error::BadWavelength { index: 0, .. })
    ));
    let repeated = desi().image("B_FLUX", -64, &[1], &f64s(&[1.0]), &[]).0;
    assert!(open(&repeated).unwrap_err().to_string().contains("B_FLUX"));
    let maskless = arm(fibermap(FitsBytes::new(&[])), "B", 5)
        .image("R_WAVELENGTH", -64, &[1], &f64s(&[5000.0]), &[])
        .image("R_FLUX", -64, &[COUNT, 1], &[0; 32], &[])
        .image("R_IVAR", -64, &[COUNT, 1], &[0; 32], &[]);
    assert!(
        open(&maskless.0)
            .unwrap_err()
            .to_string()
            .contains("arm r has no MASK")
    );
    let unpaired = arm(fibermap(FitsBytes::new(&[])), "B", 5)
        .image("R_FLUX", -64, &[COUNT, 1], &[0; 32], &[])
        .0;
    assert!(open(&unpaired).unwrap_err().to_string().contains("R_IVAR"));
}

#[test]
fn every_flipped_byte_of_a_header_is_an_error_or_harmless() {
    let good = desi().0;
    for offset in 0..good.len() {
        // Only headers can do harm: data bytes are numbers.
        if good[offset].is_ascii_graphic() {
            let mut bad = good.clone();
            bad[offset] ^= 0x01;
            let _ = open(&bad);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damaged_files_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = desi().0;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = open(&bytes);
        let _ = open(&gzip(&bytes));
    }
}
