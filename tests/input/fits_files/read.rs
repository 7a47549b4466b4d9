//! Contents of good files. The numbers of real files come from astropy.

use popfit::spectra::{ColumnValues, Ids, Wavelength};

use super::*;
use popfit_testing::fits_bytes::{
    ARMS, COUNT, FitsBytes, LARGE_ID, arm, desi, f32s, f64s, flux, gzip, i32s,
};

#[test]
fn desi_arrays_are_read_by_the_names_of_hdus() {
    let spectra = open(&desi().0).unwrap();
    assert_eq!(
        spectra.ids,
        Ids::Integer((0..COUNT as i64).map(|k| LARGE_ID + k).collect())
    );
    assert_eq!(spectra.rows, [0, 1, 2, 3]);
    for (arm, (name, pixels)) in spectra.arms.iter().zip(ARMS) {
        assert_eq!(
            (arm.name.as_str(), arm.pixels),
            (name.to_lowercase().as_str(), pixels)
        );
        assert!(matches!(&arm.wavelength, Wavelength::Shared(grid) if grid[1] == 5001.0));
        for row in 0..COUNT {
            for j in 0..pixels {
                assert_eq!(
                    arm.flux.to_double()[row * pixels + j],
                    f64::from(flux(row, j))
                );
                assert_eq!(arm.mask[row * pixels + j], row == j);
            }
        }
        assert_eq!(arm.ivar.to_double()[pixels], 50.0);
        let resolution = arm.resolution.as_ref().unwrap();
        assert_eq!((resolution.diagonals, resolution.values[7]), (3, 7.0));
    }
    let flags = spectra.column("FLAGS").unwrap();
    assert_eq!((&*flags.table, &*flags.unit), ("FIBERMAP", "bits"));
    assert_eq!(flags.values, ColumnValues::U32((0..COUNT as u32).collect()));
    assert_eq!(spectra.column("OBJTYPE").unwrap().values.len(), COUNT);
    assert!(spectra.column("VECTOR").is_none());
    assert_eq!(
        open_bytes("packed", &gzip(&desi().0)).unwrap(),
        spectra,
        "gzip, by its contents"
    );
}

#[test]
fn notes_name_unread_columns_and_conversions() {
    let folder = tempfile::tempdir().unwrap();
    let notes = |file: FitsBytes| {
        let path = popfit_testing::file(folder.path(), "x.fits", &file.0);
        open_reader(&path).unwrap().notes().join("\n")
    };
    assert!(notes(desi()).contains("VECTOR"));
    assert!(notes(ap_star_file(&["AIRORVAC= 'air'"])).contains("air"));
    assert_eq!(notes(ap_star_file(&[])), "");
}

/// A coadd whose mask has another name than in SDSS is read without the mask, with a note.
#[test]
fn notes_name_masks_that_are_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let notes = |name: &str| {
        let singles = |x: f32| {
            (0..4)
                .map(|k| f32s(&[x + 1e-4 * k as f32]))
                .collect::<Vec<_>>()
        };
        let mask: Vec<Vec<u8>> = (0..4).map(|k| i32s(&[k])).collect();
        let columns = [
            ("flux", "E", singles(1.0)),
            ("loglam", "E", singles(3.6)),
            ("ivar", "E", singles(4.0)),
        ];
        let columns = [&columns[..], &[(name, "J", mask)]].concat();
        let path = popfit_testing::file(
            folder.path(),
            "spec.fits",
            &FitsBytes::new(&[]).table("COADD", &columns, &[]).0,
        );
        open_reader(&path).unwrap().notes().to_vec()
    };
    assert_eq!(notes("and_mask"), [""; 0]);
    for (name, words) in [
        ("or_mask", ", and or_mask is not used"),
        ("MASK", ", and MASK is not used"),
        ("sky", "its ivar"),
    ] {
        let messages = notes(name);
        assert!(
            messages.len() == 1
                && messages[0].contains("no column and_mask")
                && messages[0].ends_with(words),
            "{messages:?}"
        );
    }
}

/// The error for a file of another survey lists the layouts that popfit reads, also if rows are selected.
#[test]
fn an_unknown_layout_is_refused_with_the_known_ones() {
    let unknown = FitsBytes::new(&[]).unit(
        &[
            "XTENSION= 'IMAGE'",
            "BITPIX  = 8",
            "NAXIS   = 1",
            "NAXIS1  = 5",
        ],
        &[0; 5],
    );
    let folder = tempfile::tempdir().unwrap();
    let path = popfit_testing::file(folder.path(), "x.fits", &unknown.0);
    for selection in [
        Selection::default(),
        Selection {
            objtype: Some("TGT".into()),
            ..Selection::default()
        },
    ] {
        let message = open_reader_with(&path, &selection)
            .map(|reader| reader.len())
            .unwrap_err()
            .to_string();
        let phrases = [
            "it has HDU 0, HDU 1: an image of [5]",
            "a DESI coadd",
            "an SDSS spec",
            "an APOGEE apStar, an APOGEE apVisit",
            "a LAMOST spectrum of medium resolution",
            "an SDSS-V mwmStar",
            "np.savez(",
        ];
        assert!(
            phrases.iter().all(|phrase| message.contains(phrase)),
            "{message}"
        );
    }
}

#[test]
fn selections_choose_rows_and_arms() {
    let folder = tempfile::tempdir().unwrap();
    let path = popfit_testing::file(folder.path(), "x.fits", &desi().0);
    let everything = Selection::default();
    let rows = |selection: &Selection, max| -> Vec<u64> {
        read_batches(&path, selection, max)
            .unwrap()
            .into_iter()
            .flat_map(|batch| batch.rows)
            .collect()
    };
    assert_eq!(rows(&everything, 3), [0, 1, 2, 3]);
    let targets = Selection {
        target_ids: Some(vec![LARGE_ID + 3, LARGE_ID, 5]),
        ..everything.clone()
    };
    assert_eq!(rows(&targets, 1), [0, 3]);
    let targets = &read_batches(&path, &targets, 10).unwrap()[0];
    assert_eq!(targets.ids, Ids::Integer(vec![LARGE_ID, LARGE_ID + 3]));
    assert_eq!(
        targets.arms[0].flux.to_double()[5..],
        [30.5, 31.5, 32.5, 33.5, 34.5]
    );
    assert_eq!(
        targets.arms[1].resolution.as_ref().unwrap().values[9..12],
        [27.0, 28.0, 29.0]
    );
    assert_eq!(targets.slice(1..2).rows, [3]);
    let stars = Selection {
        objtype: Some("TGT".into()),
        ..everything.clone()
    };
    assert_eq!(rows(&stars, 10), [0, 2, 3]);
    // The medians of arm B are 2.5 · 10, 12.5 · √50, 22.5 · √33.3, 32.5 · 5
    let bright = Selection {
        min_signal_to_noise: Some(120.0),
        ..everything.clone()
    };
    assert_eq!(rows(&bright, 10), [2, 3]);
    let one_arm = Selection {
        arms: Some(vec!["r".into()]),
        ..everything.clone()
    };
    assert_eq!(read_batches(&path, &one_arm, 10).unwrap()[0].arms.len(), 1);
    let no_arm = Selection {
        arms: Some(vec!["x".into()]),
        ..everything
    };
    assert!(read_batches(&path, &no_arm, 10).is_err());
    let ap_star = popfit_testing::file(folder.path(), "apogee.fits", &ap_star_file(&[]).0);
    let objtype = Selection {
        objtype: Some("TGT".into()),
        ..Selection::default()
    };
    assert!(matches!(
        read_batches(&ap_star, &objtype, 10),
        Err(Error::Usage(_))
    ));
}

/// Bits 3 and 20 are no fault, as for rvspecfit; a bit more, or another, is.
#[test]
fn fibres_with_a_bad_status_are_left_out_on_request() {
    let statuses = [1 << 3 | 1 << 20, 0, 1 << 3 | 1 << 9, 1 << 30];
    for name in ["FIBERSTATUS", "COADD_FIBERSTATUS"] {
        let cells = |k: usize| (LARGE_ID + k as i64).to_be_bytes().to_vec();
        let columns = [
            ("TARGETID", "K", (0..COUNT).map(cells).collect()),
            (
                name,
                "J",
                statuses
                    .map(|status: i32| status.to_be_bytes().to_vec())
                    .to_vec(),
            ),
        ];
        let file = FitsBytes::new(&[]).table("FIBERMAP", &columns, &[]);
        let file = ARMS.iter().fold(file, |file, (arm_name, pixels)| {
            arm(file, arm_name, *pixels)
        });
        let folder = tempfile::tempdir().unwrap();
        let path = popfit_testing::file(folder.path(), "x.fits", &file.0);
        let read = |selection: Selection| {
            let mut reader = open_reader_with(&path, &selection).unwrap();
            let rows = reader
                .next_batch(10)
                .unwrap()
                .map_or(Vec::new(), |batch| batch.rows);
            (rows, reader.notes().to_vec())
        };
        assert_eq!(read(Selection::default()), (vec![0, 1, 2, 3], Vec::new()));
        let (rows, notes) = read(Selection {
            good_fibres: true,
            ..Selection::default()
        });
        assert_eq!(rows, [0, 1]);
        assert!(
            notes[0].contains("of 4 fibres 2 with a bad FIBERSTATUS"),
            "{notes:?}"
        );
    }
    // a file without statuses has no bad fibres
    let folder = tempfile::tempdir().unwrap();
    let path = popfit_testing::file(folder.path(), "x.fits", &desi().0);
    let good = Selection {
        good_fibres: true,
        ..Selection::default()
    };
    assert_eq!(open_reader_with(&path, &good).unwrap().len(), 4);
}

/// Returns an apStar of three rows.
fn ap_star_file(cards: &[&str]) -> FitsBytes {
    let grid: Vec<&str> = ["CRVAL1  = 4.179", "CDELT1  = 6.0D-06", "CRPIX1  = 1"]
        .iter()
        .chain(cards)
        .copied()
        .collect();
    let flux: Vec<f32> = (0..12).map(|k| k as f32).collect();
    let mask: Vec<u8> = [0i16, 1, 1 << 8, 1 << 12]
        .repeat(3)
        .iter()
        .flat_map(|x| x.to_be_bytes())
        .collect();
    FitsBytes::new(&["OBJID   = '2M1'"])
        .image("", -32, &[3, 4], &f32s(&flux), &grid)
        .image(
            "",
            -32,
            &[3, 4],
            &f32s(&[0.5, 0.0, f32::INFINITY, f32::NAN].repeat(3)),
            &[],
        )
        .image("", 16, &[3, 4], &mask, &[])
}

#[test]
fn rows_of_an_ap_star_are_spectra() {
    let spectra = open(&ap_star_file(&[]).0).unwrap();
    let ids = ["2M1/combined", "2M1/combined_global", "2M1/visit1"];
    assert_eq!(spectra.ids, Ids::Text(ids.map(String::from).to_vec()));
    let arm = &spectra.arms[0];
    assert_eq!(arm.grid(2)[3], 10f64.powf(4.179 + 3.0 * 6e-6));
    assert_eq!(
        (&arm.ivar.to_double()[4..8], &arm.mask[8..]),
        (&[4.0, 0.0, 0.0, 0.0][..], &[false, true, false, true][..])
    );
    let air = open(&ap_star_file(&["CTYPE1  = 'AWAV-LOG'"]).0).unwrap();
    let ratio = air.arms[0].grid(0)[0] / arm.grid(0)[0];
    assert!((ratio - 1.000_274_1).abs() < 1e-7, "{ratio}");
}

/// A file is closed between opening and reading, and FITS has no checksums by which a change would be found.
#[test]
fn a_file_changed_between_opening_and_reading_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("apogee.fits", ap_star_file(&[]).0),
        ("desi.fits", desi().0),
    ] {
        let path = popfit_testing::file(folder.path(), name, &bytes);
        let refuse = |mut reader: Box<dyn popfit::spectra::SpectraReader>| {
            let error = reader.next_batch(5).unwrap_err();
            assert!(
                matches!(&error, Error::InputChanged { path: named } if *named == path),
                "{error}"
            );
        };
        assert_eq!(
            open_reader(&path)
                .unwrap()
                .next_batch(1)
                .unwrap()
                .unwrap()
                .len(),
            1
        );
        // Another file with the same bytes takes its place.
        let reader = open_reader(&path).unwrap();
        let other = popfit_testing::file(folder.path(), "other.fits", &bytes);
        std::fs::rename(other, &path).unwrap();
        refuse(reader);
        // The file has another modification time.
        let reader = open_reader(&path).unwrap();
        let written = std::fs::File::options().write(true).open(&path).unwrap();
        written
            .set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(5))
            .unwrap();
        refuse(reader);
    }
}

/// Returns an apVisit whose chips have these wavelengths, two pixels each.
fn ap_visit_file(chips: [[f64; 2]; 3]) -> FitsBytes {
    let flux = f32s(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    FitsBytes::new(&["OBJID   = '2M1'"])
        .image("", -32, &[3, 2], &flux, &[])
        .image("", -32, &[3, 2], &f32s(&[0.5; 6]), &[])
        .image("", 16, &[3, 2], &[0; 12], &[])
        .image("", -64, &[3, 2], &f64s(&chips.concat()), &[])
}

#[test]
fn chips_of_an_ap_visit_are_sorted_by_wavelength() {
    let spectra =
        open(&ap_visit_file([[16900.0, 16800.0], [16400.0, 16300.0], [15800.0, 15700.0]]).0)
            .unwrap();
    let arm = &spectra.arms[0];
    assert_eq!(
        *arm.grid(0),
        [15700.0, 15800.0, 16300.0, 16400.0, 16800.0, 16900.0]
    );
    assert_eq!(*arm.flux.to_double(), [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]);
    // Overlapping chips are a fault of the spectrum, not of the file.
    let overlap =
        open(&ap_visit_file([[16900.0, 16300.0], [16400.0, 16200.0], [15800.0, 15700.0]]).0)
            .unwrap();
    assert!(!overlap.arms[0].grid(0).is_sorted());
}

#[test]
fn a_complete_desi_file_has_the_sums_of_astropy() {
    let coadd =
        Spectra::open(popfit_testing::data_folder().join("desi/coadd-synth-505.fits.gz")).unwrap();
    assert_eq!(
        coadd.ids,
        Ids::Integer((0..24).map(|k| 39_627_000_000_505_000 + k).collect())
    );
    let expected = [
        (
            "b",
            2751,
            12_929_700.0,
            451_417.722_616_320_5,
            3_486_794.895_555_675,
            638,
            66_024.000_738_893_75,
        ),
        (
            "r",
            2326,
            15_560_940.0,
            568_655.511_909_663_7,
            1_090_653.737_791_478_6,
            513,
            55_824.000_624_319_83,
        ),
        (
            "z",
            2881,
            24_984_032.0,
            896_469.978_147_625_9,
            864_276.553_792_379_8,
            693,
            69_144.000_772_866_94,
        ),
    ];
    for (arm, (name, pixels, wave, flux, ivar, masked, resolution)) in
        coadd.arms.iter().zip(expected)
    {
        let close = |sum: f64, astropy: f64| {
            assert!(
                (sum - astropy).abs() < 1e-11 * astropy,
                "{name}: {sum} {astropy}"
            )
        };
        assert_eq!((arm.name.as_str(), arm.pixels), (name, pixels));
        close(arm.grid(0).iter().sum(), wave);
        close(arm.flux.to_double().iter().sum(), flux);
        close(arm.ivar.to_double().iter().sum(), ivar);
        assert_eq!(arm.mask.iter().filter(|bad| **bad).count(), masked);
        close(
            arm.resolution
                .as_ref()
                .unwrap()
                .values
                .iter()
                .map(|x| f64::from(*x))
                .sum(),
            resolution,
        );
    }
    let snr = coadd.column("MEDIAN_COADD_SNR_B").unwrap();
    assert_eq!(&*snr.table, "SCORES");
    assert!((snr.values.number(1).unwrap() - coadd.arms[0].signal_to_noise(1)).abs() < 1e-6);
}

/// COADD has the pixels, of which `and_mask` masks some, and SPECOBJ the properties of the object.
#[test]
fn an_sdss_spec_file_is_read() {
    let pixels = 50;
    let cell = |f: &dyn Fn(usize) -> Vec<u8>| (0..pixels).map(f).collect::<Vec<_>>();
    let one = |bytes: &[u8]| vec![bytes.to_vec()];
    let file = FitsBytes::new(&[])
        .table(
            "COADD",
            &[
                ("flux", "E", cell(&|j| f32s(&[2.0 + 0.1 * j as f32]))),
                ("loglam", "E", cell(&|j| f32s(&[3.58 + 1e-4 * j as f32]))),
                ("ivar", "E", cell(&|j| f32s(&[j as f32]))),
                (
                    "and_mask",
                    "J",
                    cell(&|j| i32s(&[if j % 7 == 3 { 1 << 22 } else { 0 }])),
                ),
                ("or_mask", "J", cell(&|_| i32s(&[1]))),
            ],
            &[],
        )
        .table(
            "SPECOBJ",
            &[
                ("SPECOBJID", "22A", one(b"299497923312379904    ")),
                ("PLATE", "J", one(&i32s(&[266]))),
                ("Z", "E", one(&f32s(&[-3.5e-5]))),
            ],
            &[],
        );
    let sdss = open(&file.0).unwrap();
    assert_eq!(sdss.ids, Ids::Text(vec!["299497923312379904".into()]));
    let arm = &sdss.arms[0];
    assert_eq!(
        (
            arm.pixels,
            arm.flux.to_double()[10],
            arm.ivar.to_double()[49]
        ),
        (pixels, 3.0, 49.0)
    );
    assert!((arm.grid(0)[20] / 10f64.powf(3.582) - 1.0).abs() < 1e-6);
    assert!(
        (0..pixels).all(|j| arm.mask[j] == (j % 7 == 3)),
        "or_mask does not count"
    );
    assert_eq!(
        sdss.column("PLATE").unwrap().values,
        ColumnValues::I32(vec![266])
    );
    assert_eq!(
        sdss.column("Z").unwrap().values.number(0),
        Some(f64::from(-3.5e-5_f32))
    );
}

#[test]
fn a_real_sdss_spectrum_has_the_sums_of_astropy() {
    let Some(folder) = popfit_testing::real_data() else {
        return;
    };
    let sdss = Spectra::open(folder.join("sdss/spec-0266-51602-0031.fits")).unwrap();
    assert_eq!(sdss.ids, Ids::Text(vec!["299497923312379904".into()]));
    let arm = &sdss.arms[0];
    assert!((arm.grid(0)[0] - 3_800.142_571_43).abs() < 1e-7);
    assert!((arm.flux.to_double().iter().sum::<f64>() - 30_643.741_797_430_906).abs() < 1e-7);
    assert!((arm.ivar.to_double().iter().sum::<f64>() - 4_411.534_795_423_97).abs() < 1e-8);
    assert_eq!(arm.mask.iter().filter(|bad| **bad).count(), 222);
    assert_eq!(
        sdss.column("PLATE").unwrap().values,
        ColumnValues::I32(vec![266])
    );
    assert!((sdss.column("Z").unwrap().values.number(0).unwrap() + 3.691_450_2e-5).abs() < 1e-11);
}
