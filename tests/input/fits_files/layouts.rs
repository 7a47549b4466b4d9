//! Layouts of LAMOST and SDSS-V, and files that resemble a known layout without being one.

use popfit::spectra::Ids;

use super::*;
use popfit_testing::fits_bytes::{FitsBytes, arm, desi, f32s, f64s, fibermap, i32s};

/// A column of a table: name, TFORM, cells.
type Column<'a> = (&'a str, &'a str, Vec<Vec<u8>>);

/// Number of pixels of most spectra in this file.
const PIXELS: usize = 4;

/// Returns a column of numbers.
fn floats<'a>(name: &'a str, values: &[f32]) -> Column<'a> {
    (name, "E", values.iter().map(|x| f32s(&[*x])).collect())
}

/// Returns a column of integers, as masks are.
fn bits<'a>(name: &'a str, values: &[i32]) -> Column<'a> {
    (name, "J", values.iter().map(|x| i32s(&[*x])).collect())
}

/// Returns a column whose cells are spectra.
fn arrays<'a>(name: &'a str, rows: &[[f32; PIXELS]]) -> Column<'a> {
    (name, "4E", rows.iter().map(|row| f32s(row)).collect())
}

/// Asserts that a file is refused with all these words and with the lines that write an NPZ file.
#[track_caller]
fn assert_refused(file: &FitsBytes, words: &[&str]) {
    let message = open(&file.0).unwrap_err().to_string();
    assert!(
        words
            .iter()
            .chain(&["np.savez("])
            .all(|word| message.contains(word)),
        "{message}"
    );
}

/// Adds the table of an arm of medium resolution with a row per pixel (DR6, DR7), whose second pixel is bad.
fn add_medium_arm(file: FitsBytes, name: &str, first: f32) -> FitsBytes {
    let columns = [
        floats("FLUX", &[1.0, 2.0, 3.0]),
        floats("IVAR", &[4.0, 5.0, 6.0]),
        floats("LOGLAM", &[first, first + 1e-3, first + 2e-3]),
        bits("PIXMASK", &[0, 4, 0]),
    ];
    file.table(name, &columns, &[])
}

#[test]
fn lamost_medium_resolution_is_read_as_two_arms_with_masks() {
    let primary = || FitsBytes::new(&["TELESCOP= 'LAMOST'", "OBSID   = 602905123"]);
    let file = add_medium_arm(add_medium_arm(primary(), "COADD_B", 3.7), "COADD_R", 3.8);
    // The table of an exposure is not read.
    let whole = open(&add_medium_arm(file, "B-84420148", 3.7).0).unwrap();
    assert_eq!(whole.ids, Ids::Text(vec!["602905123".into()]));
    let names: Vec<&str> = whole.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["b", "r"]);
    for (arm, first) in whole.arms.iter().zip([3.7f32, 3.8]) {
        assert_eq!((arm.pixels, &*arm.mask), (3, &[false, true, false][..]));
        assert_eq!(arm.grid(0)[0], 10f64.powf(f64::from(first)));
        assert_eq!(
            (&*arm.flux.to_double(), &*arm.ivar.to_double()),
            (&[1.0, 2.0, 3.0][..], &[4.0, 5.0, 6.0][..])
        );
    }
    // Some targets lack an arm, or have only its header.
    assert_eq!(
        open(&add_medium_arm(primary(), "COADD_R", 3.8).0)
            .unwrap()
            .arms
            .len(),
        1
    );
    let header = add_medium_arm(primary().image("COADD_B", 8, &[], &[], &[]), "COADD_R", 3.8);
    assert_eq!(open(&header.0).unwrap().arms[0].name, "r");
    // From DR8 on, a cell holds all pixels.
    let wave = [5000.0, 5001.0, 5002.0, 5003.0];
    let columns = [
        arrays("FLUX", &[[1.0; 4]]),
        arrays("IVAR", &[[2.0; 4]]),
        arrays("WAVELENGTH", &[wave]),
        ("PIXMASK", "4J", vec![i32s(&[0, 0, 0, 9])]),
    ];
    let vectors = open(&primary().table("COADD_B", &columns, &[]).0).unwrap();
    assert_eq!((*vectors.arms[0].grid(0)).to_vec(), wave.map(f64::from));
    assert_eq!(*vectors.arms[0].mask, [false, false, false, true]);
    let folder = tempfile::tempdir().unwrap();
    let path = popfit_testing::file(
        folder.path(),
        "x.fits",
        &add_medium_arm(primary(), "COADD_B", 3.7).0,
    );
    assert!(
        read_batches(
            &path,
            &Selection {
                arms: Some(vec!["r".into()]),
                ..Selection::default()
            },
            1
        )
        .is_err(),
        "no arm r"
    );
    let ragged = [
        floats("FLUX", &[1.0, 2.0]),
        floats("IVAR", &[1.0, 2.0]),
        arrays("LOGLAM", &[[3.7; 4]; 2]),
    ];
    assert_refused(
        &primary().table("COADD_B", &ragged, &[]),
        &["COADD_B", "pixels", "medium resolution"],
    );
}

/// Returns a spectrum of low resolution up to DR7, with this third row and these cards beside those of the grid.
fn low_resolution_image(third: [f32; PIXELS], cards: &[&str]) -> FitsBytes {
    let rows = [
        [1.0, 2.0, 3.0, 4.0],
        [0.5; 4],
        third,
        [0.0, 2.0, 0.0, 0.0],
        [9.0; 4],
    ];
    let mut all = vec![
        "SIMPLE  = T",
        "BITPIX  = -32",
        "NAXIS   = 2",
        "NAXIS1  = 4",
        "NAXIS2  = 5",
    ];
    all.extend(
        ["COEFF0  = 3.57", "COEFF1  = 0.0001", "OBSID   = 123"]
            .iter()
            .chain(cards),
    );
    FitsBytes::default().unit(&all, &f32s(rows.as_flattened()))
}

#[test]
fn lamost_low_resolution_is_read_from_an_image_and_a_table() {
    let wave = [0, 1, 2, 3].map(|j| 10f64.powf(3.57 + 1e-4 * f64::from(j)) as f32);
    let from_image = open(&low_resolution_image(wave, &["TELESCOP= 'LAMOST'"]).0).unwrap();
    assert_eq!(from_image.ids, Ids::Text(vec!["123".into()]));
    let arm = &from_image.arms[0];
    assert_eq!(
        (arm.name.as_str(), arm.grid(0).to_vec()),
        ("", wave.map(f64::from).to_vec())
    );
    assert_eq!(
        (&*arm.flux.to_double(), &*arm.ivar.to_double()),
        (&[1.0, 2.0, 3.0, 4.0][..], &[0.5; 4][..])
    );
    assert_eq!(
        *arm.mask,
        [false, true, false, false],
        "andmask, not ormask"
    );
    // An spSpec of SDSS DR7 has the same shape and keywords, but its third row is the error.
    assert_refused(
        &low_resolution_image([0.1; 4], &["TELESCOP= 'SDSS 2.5-M'"]),
        &["spSpec"],
    );
    assert_refused(
        &low_resolution_image([0.1; 4], &[]),
        &["third row", "low resolution"],
    );

    let columns = [
        arrays("FLUX", &[[1.0; 4]]),
        arrays("IVAR", &[[2.0; 4]]),
        arrays("WAVELENGTH", &[wave]),
        arrays("ANDMASK", &[[0.0, 0.0, 3.0, 0.0]]),
        arrays("ORMASK", &[[1.0; 4]]),
    ];
    let from_table = open(
        &FitsBytes::new(&["OBSID   = '7'"])
            .table("COADD", &columns, &[])
            .0,
    )
    .unwrap();
    assert_eq!(
        (from_table.ids, from_table.arms[0].mask.to_vec()),
        (Ids::Text(vec!["7".into()]), vec![false, false, true, false])
    );
    let nanometres = FitsBytes::new(&[]).table("COADD", &columns, &["TUNIT3  = 'nm'"]);
    assert_refused(&nanometres, &["in nm, not in Å"]);
}

/// Adds a table without rows as astra writes it: its cells of spectra have no elements.
fn add_empty_table(file: FitsBytes, name: &str) -> FitsBytes {
    let name = format!("EXTNAME = '{name}'");
    let columns = [
        "TTYPE1  = 'sdss_id'",
        "TFORM1  = 'K'",
        "TTYPE2  = 'flux'",
        "TFORM2  = '0E'",
    ];
    let mut cards = vec![
        "XTENSION= 'BINTABLE'",
        "BITPIX  = 8",
        "NAXIS   = 2",
        "NAXIS1  = 8",
        "NAXIS2  = 0",
    ];
    cards.extend(
        ["PCOUNT  = 0", "GCOUNT  = 1", "TFIELDS = 2"]
            .iter()
            .chain(&columns),
    );
    cards.push(&name);
    file.unit(&cards, &[])
}

/// Returns an SDSS-V file with these numbers of rows in its tables; flux is 10 × row + table.
fn mwm_file(rows: [usize; 4], is_visit: bool, cards: &[&str]) -> FitsBytes {
    let names = ["BOSS/APO", "BOSS/LCO", "APOGEE/APO", "APOGEE/LCO"];
    (0..4).fold(FitsBytes::new(&[]), |file, k| {
        if rows[k] == 0 {
            return add_empty_table(file, names[k]);
        }
        let spectra =
            |get: &dyn Fn(usize) -> [f32; PIXELS]| (0..rows[k]).map(get).collect::<Vec<_>>();
        let mut columns = vec![
            (
                "sdss_id",
                "K",
                vec![79_411_112i64.to_be_bytes().to_vec(); rows[k]],
            ),
            arrays("flux", &spectra(&|row| [(10 * row + k) as f32; 4])),
            arrays("ivar", &spectra(&|_| [1.0, 0.0, 2.0, 3.0])),
            arrays("pixel_flags", &spectra(&|_| [0.0, 1.0, 262_144.0, 4096.0])),
        ];
        if is_visit {
            columns.push(("mjd", "J", vec![i32s(&[59_000]); rows[k]]));
        }
        let start = if k < 2 {
            "CRVAL   = 3.5523"
        } else {
            "CRVAL   = 4.179"
        };
        let grid = [
            start,
            "CDELT   = 0.0001",
            "CRPIX   = 1",
            "CTYPE   = 'LOG-LINEAR'",
        ];
        file.table(
            names[k],
            &columns,
            &grid.iter().chain(cards).copied().collect::<Vec<_>>(),
        )
    })
}

#[test]
fn mwm_rows_are_spectra_of_one_arm_each() {
    let star = open(&mwm_file([1, 0, 0, 1], false, &[]).0).unwrap();
    assert_eq!(
        star.ids,
        Ids::Text(
            ["79411112/BOSS/APO", "79411112/APOGEE/LCO"]
                .map(String::from)
                .to_vec()
        )
    );
    let [boss, apogee] = star.arms.as_slice() else {
        panic!("two arms")
    };
    assert_eq!(
        (boss.name.as_str(), apogee.name.as_str()),
        ("boss", "apogee")
    );
    assert_eq!(
        (boss.grid(0)[1], apogee.grid(0)[0]),
        (10f64.powf(3.5524), 10f64.powf(4.179))
    );
    assert_eq!(
        *boss.ivar.to_double(),
        [1.0, 0.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0],
        "the other's spectrum has no data"
    );
    assert_eq!(apogee.flux.to_double()[4..], [3.0; 4]);
    // Bit 18 is bad in BOSS; bits 0 and 12 are bad in APOGEE.
    assert_eq!(
        (&boss.mask[..4], &apogee.mask[4..]),
        (
            &[false, false, true, false][..],
            &[false, true, false, true][..]
        )
    );

    let folder = tempfile::tempdir().unwrap();
    let path = popfit_testing::file(
        folder.path(),
        "x.fits",
        &mwm_file([2, 1, 3, 0], true, &[]).0,
    );
    let ids = |selection: &Selection| -> Vec<String> {
        let batches = read_batches(&path, selection, 2).unwrap();
        batches
            .iter()
            .flat_map(|batch| {
                (0..batch.len())
                    .map(|row| batch.ids.text(row))
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    let boss = [
        "79411112/BOSS/APO/visit1",
        "79411112/BOSS/APO/visit2",
        "79411112/BOSS/LCO/visit1",
    ];
    assert_eq!(
        ids(&Selection {
            arms: Some(vec!["boss".into()]),
            ..Selection::default()
        }),
        boss
    );
    assert_eq!(ids(&Selection::default()).len(), 6);
    assert_refused(&mwm_file([0; 4], false, &[]), &["no spectrum", "mwmStar"]);
    assert_refused(
        &mwm_file([1, 0, 0, 0], false, &["CUNIT   = 'nm'"]),
        &["in nm"],
    );
}

/// Returns masks, and ivar relative to the file's, of all arms of the first spectra if these bits widen errors.
fn read_widened(file: &FitsBytes, bits: &[u8]) -> (Vec<bool>, Vec<f64>) {
    let folder = tempfile::tempdir().unwrap();
    let path = popfit_testing::file(folder.path(), "x.fits", &file.0);
    let wide = read_batches(
        &path,
        &Selection {
            widen: Some(popfit::Widening::new(bits, 2.0)),
            ..Selection::default()
        },
        9,
    )
    .unwrap();
    let plain = read_batches(&path, &Selection::default(), 9).unwrap();
    let pairs = || wide[0].arms.iter().zip(&plain[0].arms);
    let ratios =
        |(wide, plain): (&popfit::spectra::ArmSpectra, &popfit::spectra::ArmSpectra)| -> Vec<f64> {
            (0..wide.ivar.len())
                .map(|k| wide.ivar.at(k) / plain.ivar.at(k))
                .collect()
        };
    (
        pairs().flat_map(|(wide, _)| wide.mask.to_vec()).collect(),
        pairs().flat_map(ratios).collect(),
    )
}

#[test]
fn bits_of_lamost_and_sdss_v_widen_errors() {
    // The mask is one row of an image of floats.
    let wave = [0, 1, 2, 3].map(|j| 10f64.powf(3.57 + 1e-4 * f64::from(j)) as f32);
    let image_file = low_resolution_image(wave, &[]);
    assert_eq!(
        read_widened(&image_file, &[1]),
        (vec![false; 4], vec![1.0, 0.25, 1.0, 1.0])
    );
    assert_eq!(
        read_widened(&image_file, &[2]),
        (vec![false, true, false, false], vec![1.0; 4])
    );
    // The mask is a column with a row per pixel, in two arms.
    let primary = || FitsBytes::new(&["TELESCOP= 'LAMOST'", "OBSID   = 602905123"]);
    let file = add_medium_arm(add_medium_arm(primary(), "COADD_B", 3.7), "COADD_R", 3.8);
    assert_eq!(
        read_widened(&file, &[2]),
        (vec![false; 6], vec![1.0, 0.25, 1.0, 1.0, 0.25, 1.0])
    );
    // 2^18 is bad in BOSS and harmless in APOGEE, where 1 and 2^12 are bad
    let star = mwm_file([1, 0, 0, 0], false, &[]);
    assert_eq!(read_widened(&star, &[18]).0, [false; 4]);
    assert_eq!(read_widened(&star, &[18]).1[2], 0.25);
    assert_eq!(read_widened(&star, &[12]).0, [false, false, true, false]);
    assert_eq!(read_widened(&star, &[12]).1[3], 0.25);
    let star = mwm_file([0, 0, 0, 1], false, &[]);
    assert_eq!(read_widened(&star, &[18]).0, [false, true, false, true]);
    assert_eq!(read_widened(&star, &[18]).1[2], 0.25);
}

/// Errors instead of inverse variances, and wavelengths in a column, as in files of older versions.
#[test]
fn mwm_files_with_errors_and_a_wavelength_column_are_read() {
    let wave = [5000.0, 5001.0, 5002.0, 5003.0];
    let file = |second: [f32; PIXELS], cards: &[&str]| {
        let columns = [
            arrays("flux", &[[1.0; 4], [2.0; 4]]),
            arrays("e_flux", &[[0.5, 0.0, f32::NAN, 2.0]; 2]),
            arrays("wavelength", &[wave, second]),
        ];
        FitsBytes::new(&["SDSS_ID = 42"]).table("BOSS/APO", &columns, cards)
    };
    let spectra = open(&file(wave, &[]).0).unwrap();
    assert_eq!(
        spectra.ids,
        Ids::Text(
            ["42/BOSS/APO/visit1", "42/BOSS/APO/visit2"]
                .map(String::from)
                .to_vec()
        )
    );
    assert_eq!(
        (
            spectra.arms[0].grid(1)[3],
            spectra.arms[0].ivar.to_double()[..4].to_vec()
        ),
        (5003.0, vec![4.0, 0.0, 0.0, 0.25])
    );
    assert_refused(
        &file([5000.0, 5001.0, 5002.0, 5004.0], &[]),
        &["WAVELENGTH of row 1"],
    );
    assert_refused(
        &file(wave, &["CRVAL   = 3.5523", "CDELT   = 0.0001"]),
        &["WAVELENGTH of row 0"],
    );
}

/// Returns images of APOGEE's layout; the third is a mask if `bitpix` is positive.
fn apogee_images(rows: usize, bitpix: i64, cards: &[&str]) -> FitsBytes {
    let shape = [rows, 3];
    let ones = f32s(&vec![1.0; rows * 3]);
    let third = vec![0; rows * 3 * bitpix.unsigned_abs() as usize / 8];
    FitsBytes::new(&[])
        .image("", -32, &shape, &ones, cards)
        .image("", -32, &shape, &ones, cards)
        .image("", bitpix, &shape, &third, cards)
}

#[test]
fn files_that_resemble_an_ap_star_are_refused_by_name() {
    let log = [
        "CRVAL1  = 4.179",
        "CDELT1  = 6E-06",
        "CTYPE1  = 'LOG-LINEAR'",
    ];
    assert_eq!(open(&apogee_images(1, 16, &log).0).unwrap().len(), 1);
    // The third image of an aspcapStar is the best fit, not a mask.
    assert_refused(&apogee_images(1, -32, &log), &["aspcapStar"]);
    // 10^15100 is no wavelength.
    assert_refused(
        &apogee_images(1, 16, &["CRVAL1  = 15100.0", "CDELT1  = 0.005"]),
        &["not uniform in log₁₀ λ"],
    );
    assert_refused(
        &apogee_images(
            1,
            16,
            &["CRVAL1  = 4.179", "CDELT1  = 6E-06", "CTYPE1  = 'WAVE'"],
        ),
        &["not uniform in log₁₀ λ"],
    );
    let micrometres = ["CRVAL1  = 2.1", "CDELT1  = 1E-05", "CUNIT1  = 'um'"];
    assert_refused(
        &apogee_images(1, 16, &micrometres),
        &["not uniform in log₁₀ λ"],
    );
    // An apStar of a star with one visit has as many rows as an apVisit has chips. Its fourth image is the sky.
    let sky = apogee_images(3, 16, &log).image("", -32, &[3, 3], &f32s(&[1.0; 9]), &[]);
    assert_eq!(open(&sky.0).unwrap().len(), 3);
}

#[test]
fn mixed_and_incomplete_layouts_are_refused() {
    let spec = |file: FitsBytes, name: &str, mask: Column| {
        let columns = [
            floats("flux", &[1.0, 2.0]),
            floats("ivar", &[1.0, 2.0]),
            floats("loglam", &[3.6, 3.7]),
            mask,
        ];
        file.table(name, &columns, &[])
    };
    assert!(open(&spec(FitsBytes::new(&[]), "COADD", bits("and_mask", &[0, 1])).0).is_ok());
    assert_refused(
        &spec(desi(), "COADD", bits("and_mask", &[0, 1])),
        &["a DESI coadd", " and an SDSS spec", "cannot tell"],
    );
    assert_refused(
        &spec(
            FitsBytes::new(&[]),
            "COADD",
            floats("and_mask", &[0.0, 1.0]),
        ),
        &["flux, ivar, loglam, and_mask"],
    );
    assert_refused(
        &spec(FitsBytes::new(&[]), "MODEL", bits("and_mask", &[0, 1])),
        &["HDU 1 (MODEL)"],
    );
    // A mask must not be of floats.
    let mut bad = arm(fibermap(FitsBytes::new(&[])), "B", 5).0;
    let offset = (0..bad.len())
        .find(|&i| bad[i..].starts_with(b"'B_MASK'"))
        .unwrap();
    bad[offset + 2] = b'X';
    assert_refused(
        &FitsBytes(bad).image("B_MASK", -32, &[4, 5], &f32s(&[0.0; 20]), &[]),
        &["B_MASK", "floats"],
    );
    let nanometres = fibermap(FitsBytes::new(&[]))
        .image(
            "B_WAVELENGTH",
            -64,
            &[1],
            &f64s(&[500.0]),
            &["BUNIT   = 'nm'"],
        )
        .image("B_FLUX", -32, &[4, 1], &f32s(&[0.0; 4]), &[])
        .image("B_IVAR", -32, &[4, 1], &f32s(&[0.0; 4]), &[]);
    assert_refused(&nanometres, &["in nm, not in Å", "DESI"]);
    assert!(
        open(b"wavelength,flux\n")
            .unwrap_err()
            .to_string()
            .contains("np.savez(")
    );
}

/// A file of 11,520 bytes that claims 10¹² pixels and no spectrum. There are no data to check the claim against.
#[test]
fn an_ap_star_without_spectra_is_refused_without_allocation() {
    let axes = [
        "XTENSION= 'IMAGE'",
        "BITPIX  = 16",
        "NAXIS   = 2",
        "NAXIS1  = 1000000000000",
        "NAXIS2  = 0",
    ];
    let cards: Vec<&str> = axes
        .into_iter()
        .chain(["CRVAL1  = 3.6", "CDELT1  = 0.0001"])
        .collect();
    let file = (0..3).fold(FitsBytes::new(&[]), |file, _| file.unit(&cards, &[]));
    assert_eq!(file.0.len(), 11_520);
    assert_refused(&file, &["0 spectra of 1000000000000 pixels"]);
}
