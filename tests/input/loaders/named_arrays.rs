//! Named arrays in memory give the spectra, the notes and the errors of the same arrays in an NPZ file.

use popfit::Widening;
use popfit::low_level::{ArrayValues, NamedArray};
use popfit::spectra::{ColumnValues, Selection, open_reader_with};

use super::*;

fn doubles(name: &str, shape: &[usize], values: &[f64]) -> NamedArray<'static> {
    NamedArray::new(name, shape, ArrayValues::Float64(values.to_vec().into()))
}

fn singles(name: &str, shape: &[usize], values: &[f32]) -> NamedArray<'static> {
    NamedArray::new(name, shape, ArrayValues::Float32(values.to_vec().into()))
}

fn flags(name: &str, shape: &[usize], values: &[bool]) -> NamedArray<'static> {
    NamedArray::new(name, shape, ArrayValues::Bool(values.to_vec().into()))
}

fn integers(name: &str, shape: &[usize], values: &[i64]) -> NamedArray<'static> {
    NamedArray::new(name, shape, ArrayValues::Int64(values.to_vec().into()))
}

fn naturals(name: &str, shape: &[usize], values: &[u64]) -> NamedArray<'static> {
    NamedArray::new(name, shape, ArrayValues::UInt64(values.to_vec().into()))
}

fn texts(name: &str, shape: &[usize], values: &[&str]) -> NamedArray<'static> {
    NamedArray::new(
        name,
        shape,
        ArrayValues::Text(values.iter().map(|text| text.to_string()).collect()),
    )
}

/// Returns the NPY file of an array.
fn to_npy(array: &NamedArray) -> Vec<u8> {
    let (descr, bytes): (&str, Vec<u8>) = match &array.values {
        ArrayValues::Bool(values) => ("|b1", values.iter().map(|x| u8::from(*x)).collect()),
        ArrayValues::Int64(values) => {
            ("<i8", values.iter().flat_map(|x| x.to_le_bytes()).collect())
        }
        ArrayValues::UInt64(values) => {
            ("<u8", values.iter().flat_map(|x| x.to_le_bytes()).collect())
        }
        ArrayValues::Float32(values) => ("<f4", le32(values)),
        ArrayValues::Float64(values) => ("<f8", le64(values)),
        ArrayValues::Text(values) => (
            "|S8",
            values
                .iter()
                .flat_map(|text| {
                    let mut bytes = text.as_bytes().to_vec();
                    bytes.resize(8, 0);
                    bytes
                })
                .collect(),
        ),
    };
    npy(descr, &array.shape, &bytes)
}

/// Returns the spectra and notes of an NPZ file of these arrays.
fn from_file(
    arrays: &[NamedArray],
    widening: Option<&Widening>,
) -> Result<(Spectra<'static>, Vec<String>)> {
    let folder = tempfile::tempdir().unwrap();
    let npy_files: Vec<(&str, Vec<u8>)> = arrays
        .iter()
        .map(|array| (array.name.as_str(), to_npy(array)))
        .collect();
    let path = file(folder.path(), "s.npz", &npz(&npy_files, true));
    let selection = Selection {
        widen: widening.cloned(),
        ..Selection::default()
    };
    let prefix = format!("{}: ", path.display());
    let mut reader = open_reader_with(&path, &selection)?;
    let notes = reader
        .notes()
        .iter()
        .map(|note| note.replace(&prefix, ""))
        .collect();
    let mut spectra = reader
        .next_batch(usize::MAX)?
        .unwrap_or_else(|| reader.empty());
    spectra.file = "".into();
    Ok((spectra, notes))
}

/// Asserts that memory and file give the same spectra and notes, and returns them.
fn open_both_ways(
    arrays: Vec<NamedArray<'static>>,
    widening: Option<&Widening>,
) -> (Spectra<'static>, Vec<String>) {
    let expected = from_file(&arrays, widening).unwrap();
    let in_memory = Spectra::from_named_arrays(arrays, widening).unwrap();
    // The comparison by text treats NaNs as equal.
    let text = |(spectra, notes): &(Spectra, Vec<String>)| format!("{spectra:?} {notes:?}");
    assert_eq!(text(&in_memory), text(&expected));
    in_memory
}

/// Returns two arms with arrays of every kind, ids and columns.
fn arrays_of_every_kind() -> Vec<NamedArray<'static>> {
    let own = [5000.0, 5001.0, 5002.0, 9.0, 8.0, f64::NAN];
    vec![
        singles("b_flux", &[2, 3], &[1.0, f32::NAN, 3.0, 4.0, 5.0, 6.0]),
        doubles(
            "b_sigma",
            &[2, 3],
            &[2.0, f64::INFINITY, 0.0, -1.0, f64::NAN, 0.5],
        ),
        doubles("b_wavelength", &[3], &[5000.0, 5001.0, 5002.5]),
        integers("b_mask", &[2, 3], &[0, 1, 2, -1, 0, 6]),
        singles("b_resolution", &[2, 3, 3], &ramp(18)),
        doubles("r_flux", &[2, 3], &own),
        integers("r_ivar", &[2, 3], &[1, 2, 3, 0, -4, 5]),
        doubles("r_wavelength", &[2, 3], &own),
        flags("r_mask", &[2, 3], &[true, false, false, true, true, false]),
        doubles(
            "r_resolution",
            &[2, 1, 3],
            &[1.0, 0.1, 1e-300, 1.0, 1.0, 1.0],
        ),
        texts("r_medium", &[], &["Air"]),
        texts("id", &[2], &["M31", "αβ"]),
        flags("good", &[2], &[true, false]),
        integers("run", &[2], &[-3, 4]),
        naturals("object", &[2], &[u64::MAX, 1]),
        singles("snr", &[2], &[1.5, 2.5]),
        doubles("teff", &[2], &[5000.0, f64::NAN]),
        texts("name", &[2], &["a", ""]),
        doubles("b_sky_flux", &[2, 3], &[0.0; 6]),
        flags("telluric", &[3], &[true, false, false]),
    ]
}

#[test]
fn arrays_in_memory_give_the_spectra_and_notes_of_a_file() {
    let (spectra, notes) = open_both_ways(arrays_of_every_kind(), None);
    assert_eq!(
        spectra
            .arms
            .iter()
            .map(|arm| arm.name.as_str())
            .collect::<Vec<_>>(),
        ["b", "r"]
    );
    assert_eq!((spectra.len(), spectra.columns.len()), (2, 6));
    assert_eq!(
        spectra.column("object").unwrap().values,
        ColumnValues::U64(vec![u64::MAX, 1])
    );
    assert!(
        notes.len() == 3 && notes[0].starts_with("wavelengths in air"),
        "{notes:?}"
    );
    assert!(
        notes[1].ends_with("not used: b_sky_flux") && notes[2].contains("not used: telluric;"),
        "{notes:?}"
    );
    // Bits of masks widen errors, the sign bit included.
    let (widened, _) = open_both_ways(arrays_of_every_kind(), Some(&Widening::new([1], 2.0)));
    assert_eq!(
        widened.arms[0].mask.to_vec(),
        [false, true, false, true, false, true]
    );
    // One spectrum in one dimension, ids beyond i64, and no spectra.
    for ids in [vec![7], vec![u64::MAX]] {
        let flat = |name| doubles(name, &[3], &[1.0, 2.0, 3.0]);
        open_both_ways(
            vec![
                flat("wavelength"),
                flat("flux"),
                flat("ivar"),
                naturals("id", &[1], &ids),
            ],
            None,
        );
    }
    let none = |name| doubles(name, &[0, 3], &[]);
    let (empty, _) = open_both_ways(
        vec![
            doubles("wavelength", &[3], &[1.0, 2.0, 3.0]),
            none("flux"),
            none("ivar"),
        ],
        None,
    );
    assert!(empty.is_empty() && empty.arms[0].pixels == 3);
}

/// Arrays stay borrowed if their types are those of spectra.
#[test]
fn borrowed_arrays_are_not_copied() {
    let flux = [1f32; 6];
    let ivar = [2f64; 6];
    let mask = [false; 6];
    let resolution = [1f32; 18];
    let grids = [1.0, 2.0, 3.0, 1.0, 2.0, 3.0];
    let arrays = vec![
        NamedArray::new(
            "wavelength",
            [2, 3],
            ArrayValues::Float64((&grids[..]).into()),
        ),
        NamedArray::new("flux", [2, 3], ArrayValues::Float32((&flux[..]).into())),
        NamedArray::new("ivar", [2, 3], ArrayValues::Float64((&ivar[..]).into())),
        NamedArray::new("mask", [2, 3], ArrayValues::Bool((&mask[..]).into())),
        NamedArray::new(
            "resolution",
            [2, 3, 3],
            ArrayValues::Float32((&resolution[..]).into()),
        ),
    ];
    let (spectra, _) = Spectra::from_named_arrays(arrays, None).unwrap();
    let arm = &spectra.arms[0];
    assert_eq!(arm.flux.as_f32().unwrap().as_ptr(), flux.as_ptr());
    assert_eq!(arm.ivar.as_f64().unwrap().as_ptr(), ivar.as_ptr());
    assert_eq!(arm.mask.as_ptr(), mask.as_ptr());
    assert_eq!(
        arm.resolution.as_ref().unwrap().values.as_ptr(),
        resolution.as_ptr()
    );
    let Wavelength::Own(own_grids) = &arm.wavelength else {
        panic!("shared")
    };
    assert_eq!(own_grids.as_f64().unwrap().as_ptr(), grids.as_ptr());
}

#[test]
fn errors_name_the_array_at_fault() {
    let valid_arrays = || {
        vec![
            doubles("wavelength", &[3], &[1.0, 2.0, 3.0]),
            doubles("flux", &[2, 3], &[1.0; 6]),
            doubles("ivar", &[2, 3], &[4.0; 6]),
        ]
    };
    let with_replaced = |array: NamedArray<'static>| {
        let mut arrays = valid_arrays();
        arrays.retain(|arm_r| arm_r.name != array.name);
        arrays.push(array);
        arrays
    };
    let without = |name: &str| {
        valid_arrays()
            .into_iter()
            .filter(|array| array.name != name)
            .collect::<Vec<_>>()
    };
    for (arrays, message) in [
        (
            with_replaced(doubles("ivar", &[2, 4], &[1.0; 8])),
            "ivar: it has the shape (2, 4), flux (2, 3)",
        ),
        (
            with_replaced(doubles("wavelength", &[4], &[1.0; 4])),
            "wavelength: it has the shape (4,), flux 3 pixels",
        ),
        (
            with_replaced(doubles("flux", &[1, 2, 3], &[1.0; 6])),
            "flux: it has the shape (1, 2, 3), not (spectra, pixels)",
        ),
        (
            with_replaced(doubles("id", &[2], &[1.0; 2])),
            "`id` is neither integers nor strings",
        ),
        (
            with_replaced(integers("id", &[3], &[1; 3])),
            "id: it has the shape (3,), not (2,)",
        ),
        (
            with_replaced(texts("flux", &[2, 3], &["a"; 6])),
            "flux: not numbers",
        ),
        (
            with_replaced(doubles("mask", &[2, 3], &[1.0; 6])),
            "`mask` is neither bool nor integers",
        ),
        (
            with_replaced(doubles("resolution", &[2, 2, 3], &[1.0; 12])),
            "resolution: it has the shape (2, 2, 3), not (2, odd",
        ),
        (
            with_replaced(doubles("sigma", &[2, 3], &[0.4; 6])),
            "`ivar` and `sigma` contradict each other: in row 0",
        ),
        (
            with_replaced(texts("medium", &[], &["water"])),
            "`medium` is neither the text",
        ),
        (
            with_replaced(flags("badmask", &[2, 3], &[true; 6])),
            "`badmask` is no array that popfit reads; did you mean `mask`?",
        ),
        (
            with_replaced(doubles("wavelength", &[3], &[1.0, 3.0, 2.0])),
            "wavelength: wavelength 2 (counted from 0)",
        ),
        (without("flux"), "no array `flux` (found: wavelength, ivar)"),
        (
            without("ivar"),
            "neither `ivar` nor `sigma` is in it (found: wavelength, flux)",
        ),
        (
            with_replaced(doubles("ivar", &[2, 3], &[1.0; 5])),
            "ivar: it has 5 elements, which are not of the shape (2, 3)",
        ),
        (
            [valid_arrays(), valid_arrays()].concat(),
            "two arrays named `wavelength`",
        ),
    ] {
        let in_memory = Spectra::from_named_arrays(arrays, None)
            .unwrap_err()
            .to_string();
        assert!(in_memory.starts_with(message), "{in_memory}");
    }
    let arm_r = [
        doubles("r_flux", &[1, 3], &[1.0; 3]),
        doubles("r_ivar", &[1, 3], &[1.0; 3]),
    ];
    let arm_r = arm_r
        .into_iter()
        .chain([doubles("r_wavelength", &[3], &[1.0, 2.0, 3.0])]);
    let arm_b = valid_arrays().into_iter().map(|array| NamedArray {
        name: format!("b_{}", array.name),
        ..array
    });
    let message = Spectra::from_named_arrays(arm_b.chain(arm_r).collect(), None).unwrap_err();
    assert_eq!(
        message.to_string(),
        "r_flux: 1 spectra in arm `r`, 2 in `b`"
    );
    let message =
        Spectra::from_named_arrays(valid_arrays(), Some(&Widening::new([1], 2.0))).unwrap_err();
    assert!(
        message
            .to_string()
            .starts_with("errors are to be widened by bits of masks"),
        "{message}"
    );
    let message =
        Spectra::from_named_arrays(valid_arrays(), Some(&Widening::new([1], 0.5))).unwrap_err();
    assert!(message.to_string().contains("`factor`"), "{message}");
}
