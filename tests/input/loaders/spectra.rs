//! Spectra from NPZ files.

use popfit::Values;

use super::*;

pub const GRID: [f64; 3] = [5000.0, 5001.0, 5002.5];

/// Returns five spectra of three pixels.
pub fn spectra_arrays() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("wavelength", f64s(&[3], &GRID)),
        ("flux", f32s(&[5, 3], &ramp(15))),
        ("ivar", f64s(&[5, 3], &[4.0; 15])),
        ("id", i64s(&[(1 << 53) + 1, -7, i64::MAX, 0, 39627])),
        ("mask", bools(&[5, 3], &[[true, false, false]; 5].concat())),
    ]
}

/// Returns a copy of the arrays in which one is replaced.
pub fn replace_array(
    arrays: &[(&'static str, Vec<u8>)],
    key: &str,
    array: Vec<u8>,
) -> Vec<(&'static str, Vec<u8>)> {
    let mut replaced = arrays.to_vec();
    for (name, bytes) in &mut replaced {
        if *name == key {
            bytes.clone_from(&array);
        }
    }
    replaced
}

pub fn open(bytes: &[u8]) -> Result<Spectra<'static>> {
    open_bytes("s.npz", bytes)
}

#[test]
fn stored_deflated_and_big_endian_files_give_the_same_spectra() {
    let arrays = spectra_arrays();
    let expected = Spectra::from_arrays(
        GRID.to_vec(),
        popfit::Values::from_iter(ramp(15).into_iter().map(f64::from)),
        vec![4.0; 15],
        Some([[true, false, false]; 5].concat()),
        Some(Ids::Integer(vec![(1 << 53) + 1, -7, i64::MAX, 0, 39627])),
    )
    .unwrap();
    assert_eq!(open(&npz(&arrays, true)).unwrap(), expected);
    assert_eq!(open(&npz(&arrays, false)).unwrap(), expected);
    let big: Vec<u8> = ramp(15).iter().flat_map(|x| x.to_be_bytes()).collect();
    assert_eq!(
        open(&npz(
            &replace_array(&arrays, "flux", npy(">f4", &[5, 3], &big)),
            true
        ))
        .unwrap(),
        expected
    );
    let sliced = expected.slice(1..3);
    assert_eq!(
        (
            sliced.len(),
            sliced.rows.as_slice(),
            sliced.arms[0].flux.len()
        ),
        (2, [1, 2].as_slice(), 6)
    );
    assert_eq!(sliced.ids.text(0), "-7");
}

#[test]
fn sigma_own_grids_text_ids_and_single_spectra_are_read() {
    let sigma = [2.0, f64::INFINITY, 0.0, -1.0, f64::NAN, 0.5];
    let grids = [5000.0, 5001.0, 5002.0, 9.0, 8.0, f64::NAN];
    let unicode: Vec<u8> = ["M31", "αβ"]
        .iter()
        .flat_map(|s| s.chars().chain("\0\0\0".chars()).take(3))
        .flat_map(|c| (c as u32).to_le_bytes())
        .collect();
    let arrays = vec![
        ("wavelength", f64s(&[2, 3], &grids)),
        ("flux", f64s(&[2, 3], &[1.0, f64::NAN, 3.0, 4.0, 5.0, 6.0])),
        ("sigma", f64s(&[2, 3], &sigma)),
        ("id", npy("<U3", &[2], &unicode)),
        ("note", npy("|O", &[1], b"pickle")),
    ];
    let spectra = open(&npz(&arrays, true)).unwrap();
    let arm = &spectra.arms[0];
    assert_eq!(arm.ivar.to_double()[..2], [0.25, 0.0]);
    // These are no weights, but their sigmas can still be recognised.
    assert!(
        arm.ivar.to_double()[2..4] == [f64::INFINITY, -1.0]
            && arm.ivar.to_double()[4].is_nan()
            && arm.ivar.to_double()[5] == 4.0
    );
    assert_eq!((&*arm.grid(0), arm.grid(1)[0]), (&grids[..3], 9.0));
    assert_eq!(spectra.ids, Ids::Text(vec!["M31".into(), "αβ".into()]));
    let bytes = open(&npz(
        &replace_array(&arrays, "id", npy("|S4", &[2], b"ab\0\0cdef")),
        true,
    ))
    .unwrap();
    assert_eq!(bytes.ids, Ids::Text(vec!["ab".into(), "cdef".into()]));
    // one-dimensional: one spectrum, without ids
    let single = [
        ("wavelength", f64s(&[3], &GRID)),
        ("flux", f64s(&[3], &[1.0; 3])),
        ("ivar", f64s(&[3], &[1.0; 3])),
    ];
    assert_eq!(
        open(&npz(&single, true)).unwrap().ids,
        Ids::Integer(vec![0])
    );
    // none at all
    let empty = [
        ("wavelength", f64s(&[3], &GRID)),
        ("flux", f64s(&[0, 3], &[])),
        ("ivar", f64s(&[0, 3], &[])),
    ];
    let empty = open(&npz(&empty, true)).unwrap();
    assert!(empty.is_empty() && empty.arms[0].pixels == 3);
}

#[test]
fn arms_are_recognised_by_the_prefix_of_arrays() {
    let arrays = [
        ("b_wavelength", f64s(&[3], &GRID)),
        ("b_flux", f64s(&[2, 3], &[1.0; 6])),
        ("b_ivar", f64s(&[2, 3], &[1.0; 6])),
        ("r_wavelength", f32s(&[2], &[7000.0, 7001.0])),
        ("r_flux", f64s(&[2, 2], &[1.0; 4])),
        ("r_sigma", f64s(&[2, 2], &[1.0; 4])),
        ("id", i64s(&[1, 2])),
    ];
    let spectra = open(&npz(&arrays, true)).unwrap();
    let arms: Vec<_> = spectra
        .arms
        .iter()
        .map(|a| (a.name.as_str(), a.pixels))
        .collect();
    assert_eq!(arms, [("b", 3), ("r", 2)]);
    let unequal = replace_array(&arrays, "r_flux", f64s(&[1, 2], &[1.0; 2]));
    assert!(matches!(
        open(&npz(&unequal, true)),
        Err(Error::ShapeMismatch { .. })
    ));
    let missing: Vec<_> = arrays
        .iter()
        .filter(|(k, _)| *k != "r_wavelength")
        .cloned()
        .collect();
    assert!(
        open(&npz(&missing, true))
            .unwrap_err()
            .to_string()
            .contains("r_wavelength")
    );
}

#[test]
fn invalid_arrays_of_spectra_are_errors() {
    let arrays = spectra_arrays();
    let try_with = |key: &str, array: Vec<u8>| {
        open(&npz(&replace_array(&arrays, key, array), true)).unwrap_err()
    };
    assert!(matches!(
        try_with("ivar", f64s(&[5, 2], &[1.0; 10])),
        Error::ShapeMismatch { .. }
    ));
    assert!(matches!(
        try_with("mask", bools(&[3], &[true; 3])),
        Error::ShapeMismatch { .. }
    ));
    assert!(matches!(
        try_with("id", i64s(&[1])),
        Error::ShapeMismatch { .. }
    ));
    assert!(matches!(
        try_with("wavelength", f64s(&[4], &[1.0; 4])),
        Error::ShapeMismatch { .. }
    ));
    assert!(matches!(
        try_with("wavelength", f64s(&[3], &[1.0, 2.0, 2.0])),
        Error::BadWavelength { index: 2, .. }
    ));
    assert!(matches!(
        try_with("wavelength", f64s(&[3], &[1.0, f64::NAN, 2.0])),
        Error::BadWavelength { index: 1, .. }
    ));
    assert!(matches!(
        try_with("id", f64s(&[5], &[1.0; 5])),
        Error::Format { .. }
    ));
    assert!(matches!(
        try_with("id", npy("<U1", &[5], &[255; 20])),
        Error::Format { .. }
    ));
    assert!(matches!(
        try_with("flux", npy("|O", &[5, 3], &[0; 15])),
        Error::Format { .. }
    ));
    assert!(matches!(
        try_with("flux", npy("<c8", &[5, 3], &[0; 120])),
        Error::Format { .. }
    ));
    assert!(matches!(
        try_with("mask", f64s(&[5, 3], &[0.0; 15])),
        Error::Format { .. }
    ));
    for shape in [
        "(5, 4)",
        "(-5, 3)",
        "(9223372036854775807, 3)",
        "(18446744073709551615, 18446744073709551615)",
        "(5, 2)",
    ] {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        assert!(
            matches!(
                try_with("flux", raw_npy(&header, &[0; 60])),
                Error::Format { .. }
            ),
            "{shape}"
        );
    }
    assert!(matches!(
        open(&npz(&[("x", i64s(&[1]))], true)),
        Err(Error::Format { .. })
    ));
    assert!(matches!(open(b"SIMPLE  ="), Err(Error::Format { .. })));
}

#[test]
fn arrays_in_memory_are_checked() {
    let arm =
        |flux: usize| ArmSpectra::new("b", 2, vec![1.0, 2.0], vec![0.0; flux], vec![0.0; 4], None);
    assert_eq!(arm(4).unwrap().len(), 2);
    assert!(matches!(arm(3), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(arm(2), Err(Error::ShapeMismatch { .. })));
    assert!(Spectra::from_arms(vec![arm(4).unwrap(), arm(4).unwrap()], None).is_err());
    let own = |ids| {
        Spectra::from_arrays(
            Wavelength::Own(vec![1.0; 4].into()),
            vec![0.0; 4],
            vec![0.0; 4],
            None,
            ids,
        )
    };
    assert!(matches!(own(None), Err(Error::InvalidArgument { .. })));
    assert_eq!(
        own(Some(Ids::Integer(vec![5, 6]))).unwrap().arms[0].pixels,
        2
    );
    let unsorted = Spectra::from_arrays(vec![2.0, 1.0], vec![0.0; 4], vec![0.0; 4], None, None);
    assert!(matches!(
        unsorted,
        Err(Error::BadWavelength { index: 1, .. })
    ));
}

pub fn read_batches(mut reader: Box<dyn SpectraReader>, max: usize) -> Vec<Spectra<'static>> {
    std::iter::from_fn(|| reader.next_batch(max).unwrap()).collect()
}

#[test]
fn batches_are_slices_of_all_spectra() {
    for name in ["fixed_vsini", "free_vsini"] {
        let path = data_folder().join("synb").join(name).join("spectra.npz");
        let whole = Spectra::open(&path).unwrap();
        let (shape, flux) = array(&path, "flux");
        assert_eq!(whole.len(), shape[0]);
        assert_eq!(*whole.arms[0].flux.to_double(), flux);
        assert!(matches!(whole.arms[0].wavelength, Wavelength::Shared(_)));
        for max in [1, 7, 64, 1000] {
            let mut row = 0;
            for batch in read_batches(open_reader(&path).unwrap(), max) {
                assert_eq!(batch, whole.slice(row..row + batch.len()));
                row += batch.len();
            }
            assert_eq!(row, whole.len());
        }
    }
}

/// The memory of recycled batches is used for later ones, whose values do not depend on it.
#[test]
fn recycled_batches_lend_their_memory_and_no_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "s.npz", &npz(&spectra_arrays(), true));
    let mut first_reader = open_reader(&path).unwrap();
    let expected: Vec<Spectra> = [3, 1, 1]
        .map(|rows| first_reader.next_batch(rows).unwrap().unwrap())
        .into();
    let mut reader = open_reader(&path).unwrap();
    let mut addresses = Vec::new();
    for expected in &expected {
        let batch = reader.next_batch(expected.len()).unwrap().unwrap();
        assert_eq!(batch, *expected);
        let address_of = |values: &Values| {
            values
                .as_f32()
                .map(|x| x.as_ptr().addr())
                .or(values.as_f64().map(|x| x.as_ptr().addr()))
        };
        addresses.push([&batch.arms[0].flux, &batch.arms[0].ivar].map(address_of));
        reader.recycle(batch);
    }
    assert_eq!(addresses, [addresses[0]; 3]);
    assert!(reader.next_batch(1).unwrap().is_none());
}

#[test]
fn large_arrays_are_read_in_batches() {
    // Each array has several pieces, and the last batch is a partial one.
    let n = 3000;
    let pixels = 500;
    let grid: Vec<f64> = (0..pixels).map(|i| 4000.0 + i as f64).collect();
    let flux: Vec<f32> = (0..n * pixels).map(|i| i as f32).collect();
    let arrays = [
        ("wavelength", f64s(&[pixels], &grid)),
        ("flux", f32s(&[n, pixels], &flux)),
        ("ivar", f32s(&[n, pixels], &vec![1.0; n * pixels])),
        (
            "id",
            i64s(&(0..n as i64).map(|i| (1 << 60) + i).collect::<Vec<_>>()),
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "s.npz", &npz(&arrays, true));
    let mut expected = 0;
    for batch in read_batches(open_reader(&path).unwrap(), 777) {
        assert_eq!(batch.rows[0], expected as u64);
        assert_eq!(
            batch.ids.text(0),
            ((1i64 << 60) + expected as i64).to_string()
        );
        assert!(
            batch.arms[0]
                .flux
                .to_double()
                .iter()
                .zip(&flux[expected * pixels..])
                .all(|(a, b)| *a == f64::from(*b))
        );
        expected += batch.len();
    }
    assert_eq!(expected, n);
    drop(open_reader(&path).unwrap());
}
