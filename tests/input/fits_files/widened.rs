//! Bits of the surveys' masks that widen errors.

use popfit::Widening;

use super::*;
use popfit_testing::fits_bytes::{COUNT, FitsBytes, f32s, i32s};

/// Returns masks and inverse variances of the first spectra of a file, its arms one after another.
#[track_caller]
fn read_arms(file: &FitsBytes, bits: &[u8], factor: f64) -> (Vec<bool>, Vec<f64>) {
    let folder = tempfile::tempdir().unwrap();
    let path = popfit_testing::file(folder.path(), "x.fits", &file.0);
    let mut selection = Selection::default();
    if !bits.is_empty() {
        selection.widen = Some(Widening::new(bits, factor));
    }
    let batches = read_batches(&path, &selection, COUNT).unwrap();
    let arms = || batches[0].arms.iter();
    (
        arms().flat_map(|arm| arm.mask.to_vec()).collect(),
        arms()
            .flat_map(|arm| arm.ivar.to_double().to_vec())
            .collect(),
    )
}

/// Asserts that pixels are masked as listed, and that the ivar of those listed as widened is 1/9 of the file's.
#[track_caller]
fn assert_widened(file: &FitsBytes, bits: &[u8], masked: &[usize], widened: &[usize]) {
    let (_, plain) = read_arms(file, &[], 1.0);
    let (mask, ivar) = read_arms(file, bits, 3.0);
    let masked_pixels: Vec<usize> = (0..mask.len()).filter(|k| mask[*k]).collect();
    assert_eq!(masked_pixels, masked, "{bits:?}");
    for (k, (value, plain)) in ivar.iter().zip(plain).enumerate() {
        let expected = if widened.contains(&k) {
            plain / 9.0
        } else {
            plain
        };
        assert_eq!(value.to_bits(), expected.to_bits(), "{bits:?}, pixel {k}");
    }
}

/// The masks are unsigned integers, whose bits 0, 1, 2 and 31 are set where row and pixel are equal.
#[test]
fn bits_of_desi_widen_errors() {
    let file = popfit_testing::fits_bytes::desi();
    let set = [0, 6, 12, 18, 20, 24, 28];
    assert_widened(&file, &[0, 1, 2, 31], &[], &set);
    assert_widened(&file, &[0, 1, 2], &set, &[]);
    assert_widened(&file, &[5], &set, &[]);
}

#[test]
fn bits_of_sdss_widen_errors() {
    let cell = |values: &[f32]| values.iter().map(|x| f32s(&[*x])).collect::<Vec<_>>();
    let bits = [0, 1 << 22, 1 << 22 | 1 << 23, 1 << 24, i32::MIN, -1];
    let file = FitsBytes::new(&[]).table(
        "COADD",
        &[
            ("flux", "E", cell(&[1.0; 6])),
            ("loglam", "E", cell(&[3.58, 3.59, 3.6, 3.61, 3.62, 3.63])),
            ("ivar", "E", cell(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6])),
            ("and_mask", "J", bits.iter().map(|b| i32s(&[*b])).collect()),
        ],
        &[],
    );
    assert_widened(&file, &[22, 23], &[3, 4, 5], &[1, 2]);
    assert_widened(&file, &[22, 31], &[2, 3, 5], &[1, 4]);
    // Bit 52 is beyond the file's integers, and bit 53 is beyond f64.
    assert_widened(&file, &[22, 52], &[2, 3, 4, 5], &[1]);
    let folder = tempfile::tempdir().unwrap();
    let path = popfit_testing::file(folder.path(), "x.fits", &file.0);
    let message = read_batches(
        &path,
        &Selection {
            widen: Some(Widening::new([53], 2.0)),
            ..Selection::default()
        },
        1,
    )
    .unwrap_err()
    .to_string();
    assert!(
        message.contains("x.fits") && message.contains("`spectra.widen.bits` has 53"),
        "{message}"
    );
}

/// Images of APOGEE's layout. Bit 12 masks and 9 and 13 do not, unless they are named; BLANK is no number.
#[test]
fn bits_of_apogee_widen_errors() {
    let grid = [
        "CRVAL1  = 4.179",
        "CDELT1  = 6E-06",
        "CRPIX1  = 1",
        "CTYPE1  = 'LOG-LINEAR'",
    ];
    let bits = [
        0,
        1 << 12,
        1 << 13,
        1 << 12 | 1 << 13,
        1 << 9 | 1 << 13,
        1 << 12 | 1,
    ];
    let star = FitsBytes::new(&[])
        .image("FLUX", -32, &[1, 6], &f32s(&[1.0; 6]), &grid)
        .image(
            "ERROR",
            -32,
            &[1, 6],
            &f32s(&[0.5, 0.25, 0.3, 0.7, 1e10, 2.0]),
            &grid,
        )
        .image("MASK", 32, &[1, 6], &i32s(&bits), &grid);
    assert_widened(&star, &[12], &[5], &[1, 3]);
    assert_widened(&star, &[13], &[1, 3, 5], &[2, 4]);
    assert_widened(&star, &[12, 13, 0], &[], &[1, 2, 3, 4, 5]);
    assert_widened(&star, &[20], &[1, 3, 5], &[]);
}
