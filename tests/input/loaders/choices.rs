//! Variants of NPZ files: types and orders of arrays, ivar and sigma, air and vacuum.

use super::spectra::{GRID, open, read_batches, replace_array, spectra_arrays};
use super::*;

/// Returns the NPY file of numpy's `asfortranarray` of elements in row-major order.
fn fortran_npy(descr: &str, shape: &[usize], elements: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for k in 0..elements.len() {
        // Find the k-th element of the file, whose first index moves fastest.
        let mut remainder = k;
        let mut index = 0;
        let mut strides: Vec<usize> = vec![1; shape.len()];
        for axis in (0..shape.len() - 1).rev() {
            strides[axis] = strides[axis + 1] * shape[axis + 1];
        }
        for (n, stride) in shape.iter().zip(strides) {
            index += (remainder % n) * stride;
            remainder /= n;
        }
        bytes.extend(&elements[index]);
    }
    let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
    raw_npy(
        &format!(
            "{{'descr': '{descr}', 'fortran_order': True, 'shape': ({}), }}",
            shape.join(", ")
        ),
        &bytes,
    )
}

fn element_bytes(values: &[f64]) -> Vec<Vec<u8>> {
    values.iter().map(|x| x.to_le_bytes().to_vec()).collect()
}

#[test]
fn fortran_order_is_read_in_batches_of_any_size() {
    let n = 5;
    let pixels = 3;
    let diagonals = 3;
    let count = n * pixels;
    let flux: Vec<f64> = (0..count).map(|k| k as f64).collect();
    let matrices: Vec<f64> = (0..count * diagonals).map(|k| 0.5 * k as f64).collect();
    let grids: Vec<f64> = (0..count).map(|k| 5000.0 + k as f64).collect();
    let mask: Vec<bool> = (0..count).map(|k| k % 4 == 0).collect();
    let mask_bytes: Vec<Vec<u8>> = mask.iter().map(|m| vec![u8::from(*m)]).collect();
    let shape = [n, pixels];
    let matrix_shape = [n, diagonals, pixels];
    let in_row_order = [
        ("wavelength", f64s(&shape, &grids)),
        ("flux", f64s(&shape, &flux)),
        ("ivar", f64s(&shape, &flux)),
        ("mask", bools(&shape, &mask)),
        ("resolution", f64s(&matrix_shape, &matrices)),
    ];
    let in_column_order = [
        (
            "wavelength",
            fortran_npy("<f8", &shape, &element_bytes(&grids)),
        ),
        ("flux", fortran_npy("<f8", &shape, &element_bytes(&flux))),
        ("ivar", fortran_npy("<f8", &shape, &element_bytes(&flux))),
        ("mask", fortran_npy("|b1", &shape, &mask_bytes)),
        (
            "resolution",
            fortran_npy("<f8", &matrix_shape, &element_bytes(&matrices)),
        ),
    ];
    let expected = open(&npz(&in_row_order, true)).unwrap();
    assert_eq!(open(&npz(&in_column_order, true)).unwrap(), expected);
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "f.npz", &npz(&in_column_order, false));
    let mut row = 0;
    for mut batch in read_batches(open_reader(&path).unwrap(), 2) {
        batch.file = "".into();
        assert_eq!(batch, expected.slice(row..row + batch.len()));
        row += batch.len();
    }
    assert_eq!(row, n);
}

/// The arrays are read in several pieces, and their shapes are no powers of two.
#[test]
fn large_arrays_in_fortran_order_are_read() {
    let n = 301;
    let pixels = 997;
    let flux: Vec<f64> = (0..n * pixels).map(|k| (k % 65_521) as f64).collect();
    let grid: Vec<f64> = (0..pixels).map(|k| 4000.0 + k as f64).collect();
    let arrays = |flux: Vec<u8>, ivar: Vec<u8>| {
        [
            ("wavelength", f64s(&[pixels], &grid)),
            ("flux", flux),
            ("ivar", ivar),
        ]
    };
    let ones = f32s(&[n, pixels], &vec![1.0; n * pixels]);
    let expected = open(&npz(&arrays(f64s(&[n, pixels], &flux), ones.clone()), true)).unwrap();
    let spectra = open(&npz(
        &arrays(
            fortran_npy("<f8", &[n, pixels], &element_bytes(&flux)),
            ones,
        ),
        true,
    ))
    .unwrap();
    assert!(spectra == expected);
}

#[test]
fn half_floats_of_both_byte_orders_are_read() {
    // 1, −2, 0.5, 65504, the smallest subnormal, infinity, and other numbers
    let bits: [u16; 15] = [
        0x3c00, 0xc000, 0x3800, 0x7bff, 0x0001, 0x7c00, 0x3555, 0, 0x8000, 0x3c01, 0x4000, 0x4200,
        0x4400, 0x4500, 0x4600,
    ];
    let third = 0.333_251_953_125;
    let expected = [
        1.0,
        -2.0,
        0.5,
        65504.0,
        2f64.powi(-24),
        f64::INFINITY,
        third,
        0.0,
        -0.0,
        1.0009765625,
        2.0,
        3.0,
        4.0,
        5.0,
        6.0,
    ];
    let little: Vec<u8> = bits.iter().flat_map(|x| x.to_le_bytes()).collect();
    let big: Vec<u8> = bits.iter().flat_map(|x| x.to_be_bytes()).collect();
    for (descr, bytes) in [("<f2", little), (">f2", big)] {
        let spectra = open(&npz(
            &replace_array(&spectra_arrays(), "flux", npy(descr, &[5, 3], &bytes)),
            true,
        ))
        .unwrap();
        assert_eq!(*spectra.arms[0].flux.to_double(), expected, "{descr}");
    }
}

#[test]
fn ivar_and_sigma_must_agree() {
    let arrays = spectra_arrays();
    let open_with_sigma = |sigma: &[f64]| {
        let mut with_sigma = arrays.clone();
        with_sigma.push(("sigma", f64s(&[5, 3], sigma)));
        open(&npz(&with_sigma, true))
    };
    let expected = open(&npz(&arrays, true)).unwrap();
    assert_eq!(open_with_sigma(&[0.5; 15]).unwrap(), expected);
    let rounded: Vec<f64> = (0..15).map(|k| 0.5 + 1e-4 * f64::from(k % 2)).collect();
    assert_eq!(
        open_with_sigma(&rounded).unwrap(),
        expected,
        "rounding is no contradiction"
    );
    let mut sigma = [0.5; 15];
    sigma[7] = 2.0;
    let message = open_with_sigma(&sigma).unwrap_err().to_string();
    for part in [
        "`ivar` and `sigma` contradict each other",
        "row 2 at pixel 1",
        "ivar is 4",
        "sigma 2",
        "0.25",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let masked = replace_array(&arrays, "ivar", f64s(&[5, 3], &[0.0; 15]));
    let placeholder = [
        masked.as_slice(),
        &[("sigma", f64s(&[5, 3], &[f64::INFINITY; 15]))],
    ]
    .concat();
    assert!(open(&npz(&placeholder, true)).is_ok());
    let mut wrong_shape = arrays.clone();
    wrong_shape.push(("sigma", f64s(&[3], &[0.5; 3])));
    assert!(matches!(
        open(&npz(&wrong_shape, true)),
        Err(Error::ShapeMismatch { .. })
    ));
}

#[test]
fn wavelengths_in_air_are_converted_to_vacuum() {
    let text = |word: &str| {
        let bytes: Vec<u8> = word
            .chars()
            .flat_map(|c| (c as u32).to_le_bytes())
            .collect();
        raw_npy(
            &format!(
                "{{'descr': '<U{}', 'fortran_order': False, 'shape': (), }}",
                word.len()
            ),
            &bytes,
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let read = |arrays: &[(&'static str, Vec<u8>)]| {
        let path = file(folder.path(), "s.npz", &npz(arrays, true));
        let mut reader = open_reader(path)?;
        let notes = reader.notes().to_vec();
        Ok::<_, Error>((reader.next_batch(5)?.unwrap(), notes))
    };
    let with_medium = |word: &str| [spectra_arrays(), vec![("medium", text(word))]].concat();
    let (vacuum, notes) = read(&with_medium("vacuum")).unwrap();
    assert_eq!((&*vacuum.arms[0].grid(0), notes.len()), (&GRID[..], 0));
    assert!(vacuum.columns.is_empty(), "it is no column");
    let (air, notes) = read(&with_medium("air")).unwrap();
    assert!(
        notes.len() == 1 && notes[0].contains("in air, converted to vacuum"),
        "{notes:?}"
    );
    // n − 1 = 2.735182e-4 + 131.4182/λ² + 2.76249e8/λ⁴ is 2.7922e-4 at 5000 Å (Morton 1991)
    let shift = air.arms[0].grid(0)[0] - GRID[0];
    assert!((shift - 1.396).abs() < 0.001, "{shift}");
    let own_grids = f64s(&[5, 3], &GRID.repeat(5));
    let (with_own_grids, _) =
        read(&replace_array(&with_medium("air"), "wavelength", own_grids)).unwrap();
    assert_eq!(with_own_grids.arms[0].grid(4), air.arms[0].grid(0));
    let message = read(&with_medium("water")).unwrap_err().to_string();
    assert!(
        message.contains("`medium`") && message.contains("\"air\""),
        "{message}"
    );
    // The medium of an arm takes precedence over that of the file.
    let arms: Vec<(&'static str, Vec<u8>)> = vec![
        ("b_wavelength", f64s(&[3], &GRID)),
        ("b_flux", f32s(&[5, 3], &ramp(15))),
        ("b_ivar", f64s(&[5, 3], &[4.0; 15])),
        ("b_medium", text("vacuum")),
        ("medium", text("air")),
    ];
    assert_eq!(*read(&arms).unwrap().0.arms[0].grid(0), GRID);
}
