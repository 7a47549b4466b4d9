//! Bits of masks that widen errors. Fits are those of a file whose errors were widened by hand, and a mask without bits
//! is refused.

use std::path::Path;

use popfit::low_level::checks::{check_spectra, list_notes};
use popfit::spectra::{ArmSpectra, FilesReader, Selection, Wavelength, open_reader_with};
use popfit::{Error, FitTable, Result, Spectra, SpectraSettings, SpectralModel, Widening};
use popfit_testing::fits::{devices, fitter, same_bits};
use popfit_testing::{bools, f32s, f64s, file, npy, npz, tiny};

type Arrays = Vec<(&'static str, Vec<u8>)>;

/// Bits of a pixel, of which 2 and 3 widen errors, whether it is masked, and whether its error is widened.
const BITS: [(i64, bool, bool); 6] = [
    (0, false, false),
    (1 << 2, false, true),
    (1 << 2 | 1 << 3, false, true),
    (1 << 5, true, false),
    (1 << 2 | 1 << 5, true, false),
    (1 << 6, true, false),
];

fn widening() -> Widening {
    Widening::new([2, 3], 3.0)
}

fn selection() -> Selection {
    Selection {
        widen: Some(widening()),
        ..Selection::default()
    }
}

/// Reads the first spectrum of a file, and the others in a second batch.
fn read_first(path: &Path, selection: &Selection) -> Result<Spectra<'static>> {
    let mut reader = open_reader_with(path, selection)?;
    let first = reader.next_batch(1)?.unwrap();
    let second = reader.next_batch(8)?;
    assert!(second.is_none_or(|second| second.arms[0].ivar.len() == first.arms[0].ivar.len()));
    Ok(first)
}

fn read_arrays(
    arrays: &[(&'static str, Vec<u8>)],
    selection: &Selection,
) -> Result<Spectra<'static>> {
    let folder = tempfile::tempdir().unwrap();
    read_first(&file(folder.path(), "s.npz", &npz(arrays, true)), selection)
}

/// Returns the arrays of two spectra of six pixels. Those of the second are unmasked.
fn make_arrays(mask: Vec<u8>, weight: (&'static str, Vec<u8>)) -> Arrays {
    let grid: Vec<f64> = (0..6).map(|j| 5000.0 + j as f64).collect();
    vec![
        ("wavelength", f64s(&[6], &grid)),
        ("flux", f64s(&[2, 6], &[1.0; 12])),
        ("mask", mask),
        weight,
    ]
}

/// Returns a mask of integers of this numpy type and number of bytes, in little-endian order.
fn integer_mask(descr: &str, bytes: usize) -> Vec<u8> {
    let all = BITS.iter().map(|(bits, ..)| *bits).chain([0; 6]);
    npy(
        descr,
        &[2, 6],
        &all.flat_map(|bits| bits.to_le_bytes()[..bytes].to_vec())
            .collect::<Vec<u8>>(),
    )
}

#[test]
fn integer_masks_of_npz_files_divide_ivar_exactly() {
    let ivar = [0.7f64, 0.3, 1.1, 2.3, 0.1, 5.9];
    let ivars = [ivar, ivar].concat();
    let single_ivars: Vec<f32> = ivars.iter().map(|w| *w as f32).collect();
    let sigma: Vec<f64> = ivars.iter().map(|w| 1.0 / w.sqrt()).collect();
    for (descr, bytes) in [
        ("|u1", 1),
        ("|i1", 1),
        ("<i2", 2),
        ("<u4", 4),
        ("<i8", 8),
        ("<u8", 8),
    ] {
        let weights = [
            ("ivar", f64s(&[2, 6], &ivars)),
            ("ivar", f32s(&[2, 6], &single_ivars)),
            ("sigma", f64s(&[2, 6], &sigma)),
        ];
        for weight in weights {
            let arrays = make_arrays(integer_mask(descr, bytes), weight);
            let plain = &read_arrays(&arrays, &Selection::default()).unwrap().arms[0];
            let widened = &read_arrays(&arrays, &selection()).unwrap().arms[0];
            assert_eq!(*plain.mask, BITS.map(|(bits, ..)| bits != 0), "{descr}");
            assert_eq!(
                *widened.mask,
                BITS.map(|(_, is_masked, _)| is_masked),
                "{descr}"
            );
            assert_eq!(
                widened.ivar.as_f32().is_some(),
                plain.ivar.as_f32().is_some()
            );
            for (k, (.., is_widened)) in BITS.into_iter().enumerate() {
                let divided = match plain.ivar.as_f32() {
                    Some(ivar) => f64::from(ivar[k] / 9.0),
                    None => plain.ivar.at(k) / 9.0,
                };
                let expected = if is_widened {
                    divided
                } else {
                    plain.ivar.at(k)
                };
                assert_eq!(
                    widened.ivar.at(k).to_bits(),
                    expected.to_bits(),
                    "{descr}, pixel {k}"
                );
            }
        }
    }
    // The highest bit is the sign of a signed integer, and only the bits of its own width count.
    let read_highest_bit = |descr, byte: u8, length: usize| {
        let number: Vec<u8> = (0..length)
            .map(|k| if k + 1 == length { byte } else { 0 })
            .collect();
        let arrays = make_arrays(
            npy(descr, &[2, 6], &number.repeat(12)),
            ("ivar", f64s(&[2, 6], &[9.0; 12])),
        );
        let bit = 8 * length as u8 - 1;
        let spectra = read_arrays(
            &arrays,
            &Selection {
                widen: Some(Widening::new([bit], 3.0)),
                ..Selection::default()
            },
        )
        .unwrap();
        (spectra.arms[0].mask[0], spectra.arms[0].ivar.at(0))
    };
    for (descr, length) in [("|i1", 1), ("<i2", 2), ("<i4", 4), ("<i8", 8), ("<u8", 8)] {
        assert_eq!(
            read_highest_bit(descr, 0x80, length),
            (false, 1.0),
            "{descr}"
        );
        assert_eq!(
            read_highest_bit(descr, 0xc0, length),
            (true, 9.0),
            "{descr}"
        );
    }
}

/// Returns a tiny model with this rule.
fn model(widen: Option<Widening>) -> SpectralModel {
    let settings = match widen {
        Some(widen) => SpectraSettings::default().widen(widen),
        None => SpectraSettings::default(),
    };
    tiny::builder(tiny::linear(&["a", "b"], tiny::wave), 0.5)
        .spectra(settings)
        .build()
        .unwrap()
}

/// Fits with widened errors have the bits of fits of a file with larger errors, and widened pixels count in `dof`.
#[test]
fn fits_have_the_bits_of_errors_widened_by_hand() {
    let emulator = tiny::linear(&["a", "b"], tiny::wave);
    let spectra = tiny::spectra(&emulator, &[1.0, -2.0, 3.0, 0.5], 0.01);
    let arm = &spectra.arms[0];
    let count = arm.flux.len();
    let bits: Vec<i64> = (0..count).map(|k| BITS[k * 7 % 11 % 6].0).collect();
    let pixel_case = |k: usize| BITS[k * 7 % 11 % 6];
    let shape = [2, tiny::PIXELS];
    let grid = ("wavelength", f64s(&[tiny::PIXELS], &tiny::wavelength()));
    let flux = ("flux", f64s(&shape, &arm.flux.to_double()));
    let ivar: Vec<f64> = (0..count).map(|k| 1e4 + k as f64).collect();
    let widened_ivar: Vec<f64> = (0..count)
        .map(|k| {
            if pixel_case(k).2 {
                ivar[k] / 9.0
            } else {
                ivar[k]
            }
        })
        .collect();
    let with_bits = vec![
        grid.clone(),
        flux.clone(),
        ("ivar", f64s(&shape, &ivar)),
        (
            "mask",
            npy(
                "<i8",
                &shape,
                &bits
                    .iter()
                    .flat_map(|b| b.to_le_bytes())
                    .collect::<Vec<u8>>(),
            ),
        ),
    ];
    let mask: Vec<bool> = (0..count).map(|k| pixel_case(k).1).collect();
    let by_hand = vec![
        grid,
        flux,
        ("ivar", f64s(&shape, &widened_ivar)),
        ("mask", bools(&shape, &mask)),
    ];
    let folder = tempfile::tempdir().unwrap();
    let [bits_file, hand_file] = [("bits.npz", &with_bits), ("hand.npz", &by_hand)]
        .map(|(name, arrays)| file(folder.path(), name, &npz(arrays, true)));
    let read_both = |path: &Path, selection: &Selection| {
        open_reader_with(path, selection)
            .unwrap()
            .next_batch(2)
            .unwrap()
            .unwrap()
    };
    let widened_by_bits = read_both(&bits_file, &selection());
    let widened_by_hand = read_both(&hand_file, &Selection::default());
    let mask_bits: Vec<u64> = bits.iter().map(|bits| *bits as u64).collect();
    let in_memory = ArmSpectra::new(
        "",
        tiny::PIXELS,
        arm.wavelength.clone(),
        arm.flux.clone(),
        ivar,
        None,
    )
    .unwrap();
    let in_memory = in_memory.with_mask_bits(&mask_bits, &widening()).unwrap();
    let in_memory = Spectra::from_arms(vec![in_memory], None).unwrap();
    for device in devices() {
        let fit = |widen, spectra: &Spectra| -> FitTable {
            fitter(model(widen), &device).fit(spectra).unwrap()
        };
        let expected = fit(None, &widened_by_hand);
        for table in [
            fit(Some(widening()), &widened_by_bits),
            fit(Some(widening()), &in_memory),
        ] {
            for (n, (row, expected_row)) in table
                .to_rows()
                .into_iter()
                .zip(expected.to_rows())
                .enumerate()
            {
                assert!(row.status.is_success(), "{row:?}");
                let unmasked = (0..tiny::PIXELS)
                    .filter(|j| !pixel_case(n * tiny::PIXELS + j).1)
                    .count();
                assert_eq!(row.dof, unmasked as i64 - 2);
                same_bits(row, expected_row, "widened by bits and by hand");
            }
        }
    }
}

/// Asserts that a result is an error of usage whose message has all these words.
#[track_caller]
fn assert_usage_error<T>(result: Result<T>, words: &[&str]) {
    let Err(Error::Usage(message)) = result else {
        panic!("no error of usage")
    };
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
}

#[test]
fn masks_without_bits_are_an_error_unless_another_file_has_bits() {
    let folder = tempfile::tempdir().unwrap();
    let weight = || ("ivar", f64s(&[2, 6], &[1.0; 12]));
    let ints = make_arrays(integer_mask("<i4", 4), weight());
    let flags = make_arrays(bools(&[2, 6], &[false; 12]), weight());
    let unmasked: Arrays = flags
        .iter()
        .filter(|(name, _)| *name != "mask")
        .cloned()
        .collect();
    let write = |name: &str, all: &Arrays| file(folder.path(), name, &npz(all, true));
    let [ints, flags, unmasked] = [
        ("ints.npz", &ints),
        ("flags.npz", &flags),
        ("none.npz", &unmasked),
    ]
    .map(|(name, arrays)| write(name, arrays));
    for (path, name) in [(&flags, "flags.npz"), (&unmasked, "none.npz")] {
        assert_usage_error(
            open_reader_with(path, &selection()),
            &[name, "spectra.widen", "booleans"],
        );
    }
    assert_usage_error(
        FilesReader::open(&[&flags, &unmasked], &selection()),
        &["flags.npz and 1 more", "spectra.widen"],
    );
    let reader = FilesReader::open(&[&flags, &ints, &unmasked], &selection()).unwrap();
    let fitter = fitter(model(Some(widening())), &popfit::Device::cpu());
    let notes: Vec<Vec<String>> = reader
        .files()
        .iter()
        .map(|file| list_notes(&fitter, file))
        .collect();
    assert_eq!(
        notes.iter().map(Vec::len).collect::<Vec<_>>(),
        [1, 0, 1],
        "{notes:?}"
    );
    assert!(
        notes[0][0].contains("flags.npz") && notes[0][0].contains("spectra.widen"),
        "{notes:?}"
    );
    // Spectra that were read without the rule, or with another one, are refused.
    let plain = Spectra::open(&ints).unwrap();
    assert_usage_error(
        fitter.fit(&plain),
        &["ints.npz", "spectra.widen", "Selection::widen"],
    );
    assert_usage_error(
        check_spectra(&fitter, [&plain]),
        &["ints.npz", "spectra.widen"],
    );
    let read_by_other_rule = read_first(
        &ints,
        &Selection {
            widen: Some(Widening::new([2, 3], 2.0)),
            ..Selection::default()
        },
    )
    .unwrap();
    assert_usage_error(fitter.fit(&read_by_other_rule), &["another rule"]);
    let without_rule = popfit_testing::fits::fitter(model(None), &popfit::Device::cpu());
    assert_usage_error(without_rule.fit(&read_by_other_rule), &["another rule"]);
}

#[test]
fn invalid_rules_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        folder.path(),
        "s.npz",
        &npz(
            &make_arrays(integer_mask("<i4", 4), ("ivar", f64s(&[2, 6], &[1.0; 12]))),
            true,
        ),
    );
    let arm = || {
        ArmSpectra::new(
            "",
            2,
            Wavelength::Shared([5000.0, 5001.0].into()),
            [1.0, 1.0],
            [1.0, 1.0],
            None,
        )
        .unwrap()
    };
    for (bits, factor, word) in [
        (vec![], 2.0, "must name a bit"),
        (vec![64], 2.0, "from 0 to 63, not 64"),
        (vec![1, 2, 1], 2.0, "bit 1 twice"),
        (vec![1], 0.5, "not 0.5"),
        (vec![1], f64::INFINITY, "not inf"),
        (vec![1], f64::NAN, "not NaN"),
    ] {
        let rule = Widening::new(bits, factor);
        assert_usage_error(
            open_reader_with(
                &path,
                &Selection {
                    widen: Some(rule.clone()),
                    ..Selection::default()
                },
            ),
            &[word],
        );
        assert_usage_error(arm().with_mask_bits(&[0, 0], &rule), &[word]);
        let settings = SpectraSettings::default().widen(rule);
        let built = tiny::builder(tiny::linear(&["a"], tiny::wave), 0.5)
            .spectra(settings)
            .build();
        let Err(Error::Model { message, .. }) = built else {
            panic!("a model with {word}")
        };
        assert!(
            message.contains("spectra.widen.") && message.contains(word),
            "{message}"
        );
    }
    assert!(matches!(
        arm().with_mask_bits(&[0], &widening()),
        Err(Error::ShapeMismatch { .. })
    ));
    let widened = arm().with_mask_bits(&[4, 0], &widening()).unwrap();
    assert_eq!(
        (widened.ivar.at(0), &*widened.mask),
        (1.0 / 9.0, &[false, false][..])
    );
    assert_usage_error(widened.with_mask_bits(&[4, 0], &widening()), &["twice"]);
}
