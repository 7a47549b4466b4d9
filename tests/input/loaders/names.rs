//! Names of arrays in NPZ files. Misspelt names are errors, unused arrays are noted, and columns may have any name.

use popfit::spectra::ColumnValues;

use super::spectra::{GRID, open, spectra_arrays};
use super::*;

type Arrays = Vec<(&'static str, Vec<u8>)>;

/// Returns the notes of a file of these arrays.
fn read_notes(arrays: &[(&'static str, Vec<u8>)]) -> Result<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    open_reader(file(folder.path(), "s.npz", &npz(arrays, true)))
        .map(|reader| reader.notes().to_vec())
}

fn renamed(arrays: &[(&'static str, Vec<u8>)], from: &str, to: &'static str) -> Arrays {
    arrays
        .iter()
        .map(|(key, bytes)| (if *key == from { to } else { *key }, bytes.clone()))
        .collect()
}

/// Returns five spectra of arms b and r, both with masks.
fn two_arms() -> Arrays {
    let names = [
        ["b_wavelength", "b_flux", "b_ivar", "b_mask"],
        ["r_wavelength", "r_flux", "r_ivar", "r_mask"],
    ];
    let one = |[wavelength, flux, ivar, mask]: [&'static str; 4]| {
        let values = f64s(&[5, 3], &[4.0; 15]);
        let mask = (mask, bools(&[5, 3], &[[true, false, false]; 5].concat()));
        [
            (wavelength, f64s(&[3], &GRID)),
            (flux, values.clone()),
            (ivar, values),
            mask,
        ]
    };
    names.into_iter().flat_map(one).collect()
}

fn word(text: &str) -> Vec<u8> {
    let bytes: Vec<u8> = text
        .chars()
        .flat_map(|c| (c as u32).to_le_bytes())
        .collect();
    raw_npy(
        &format!(
            "{{'descr': '<U{}', 'fortran_order': False, 'shape': (), }}",
            text.len()
        ),
        &bytes,
    )
}

#[test]
fn misspelt_names_are_errors_with_a_suggestion() {
    let refuse = |arrays: &[(&'static str, Vec<u8>)], name: &str, suggestion: &str| {
        let message = read_notes(arrays).unwrap_err().to_string();
        assert!(
            message.contains(&format!("`{name}`"))
                && message.contains(&format!("did you mean `{suggestion}`?")),
            "{message}"
        );
    };
    for (suggestion, names) in [
        (
            "mask",
            &[
                "MASK", "Mask", "masks", "badmask", "bad_mask", "b_mask", "mask_",
            ][..],
        ),
        (
            "id",
            &["ID", "ids", "Id", "TARGETID", "target_id", "TargetIDs"],
        ),
        ("ivar", &["IVAR", "weights", "b_ivar", "ivars"]),
        (
            "wavelength",
            &["wave", "Wavelength", "WAVELENGTH", "lambda", "wavelenght"],
        ),
    ] {
        for name in names {
            refuse(
                &renamed(&spectra_arrays(), suggestion, name),
                name,
                suggestion,
            );
        }
    }
    for (existing, name, suggestion) in [
        ("b_mask", "mask", "b_mask"),
        ("r_mask", "mask", "r_mask"),
        ("r_mask", "r_MASK", "r_mask"),
        ("b_mask", "B_mask", "b_mask"),
        ("b_mask", "mask_b", "b_mask"),
        ("r_ivar", "r_error", "r_sigma"),
        ("r_wavelength", "wavelength", "r_wavelength"),
    ] {
        refuse(&renamed(&two_arms(), existing, name), name, suggestion);
    }
    for name in ["Medium", "MEDIUM", "b_medium", "AIRORVAC", "vacuum"] {
        refuse(
            &[spectra_arrays(), vec![(name, word("air"))]].concat(),
            name,
            "medium",
        );
    }
}

/// A column may have any name. The unused arrays of a complete file are named in one note.
#[test]
fn unused_arrays_are_noted_and_columns_are_not() {
    assert_eq!(read_notes(&spectra_arrays()).unwrap(), [""; 0]);
    let column = f64s(&[5], &[1.0; 5]);
    let columns: Arrays = ["TV", "ID", "MASK", "teff_sigma", "air", "b_mask"]
        .map(|name| (name, column.clone()))
        .to_vec();
    let mut with_columns = [spectra_arrays(), columns].concat();
    with_columns.push(("OBJ", npy("<u8", &[5], &[255; 40])));
    let (spectra, messages) = (
        open(&npz(&with_columns, true)).unwrap(),
        read_notes(&with_columns).unwrap(),
    );
    assert_eq!(
        (spectra.columns.len(), messages.len()),
        (7, 0),
        "{messages:?}"
    );
    assert_eq!(
        spectra.column("OBJ").unwrap().values,
        ColumnValues::U64(vec![u64::MAX; 5])
    );
    let wide = f64s(&[5, 3], &[0.0; 15]);
    let unused: Arrays = [
        "b_sky_flux",
        "b_sky_ivar",
        "model_flux",
        "telluric",
        "b_MASK",
    ]
    .map(|n| (n, wide.clone()))
    .to_vec();
    let other_arrays = vec![
        ("cube", f64s(&[5, 2, 3], &[0.0; 30])),
        ("grid", f64s(&[3], &GRID)),
        ("TV", column),
    ];
    let arrays = [two_arms(), unused, other_arrays].concat();
    let messages = read_notes(&arrays).unwrap();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0]
            .ends_with("not used: b_sky_flux, b_sky_ivar, model_flux, telluric, b_MASK, cube"),
        "{}",
        messages[0]
    );
    let names: Vec<String> = open(&npz(&arrays, true))
        .unwrap()
        .arms
        .into_iter()
        .map(|arm| arm.name)
        .collect();
    assert_eq!(names, ["b", "r"]);
    // An incomplete arm is an error nevertheless.
    let incomplete: Arrays = two_arms()
        .into_iter()
        .filter(|(name, _)| *name != "r_wavelength")
        .collect();
    assert!(
        read_notes(&incomplete)
            .unwrap_err()
            .to_string()
            .contains("r_wavelength")
    );
    // One spectrum in one dimension.
    let flat = |name| (name, f64s(&[3], &[1.0; 3]));
    let column = [
        ("wavelength", f64s(&[3], &GRID)),
        flat("flux"),
        flat("ivar"),
        flat("sky"),
    ];
    assert!(read_notes(&column).unwrap()[0].ends_with("not used: sky"));
    let misspelt = [
        ("wavelength", f64s(&[3], &GRID)),
        flat("flux"),
        flat("ivar"),
        flat("MASK"),
    ];
    assert!(
        read_notes(&misspelt)
            .unwrap_err()
            .to_string()
            .contains("did you mean `mask`?")
    );
    // Beside an id, a TARGETID is a column.
    let targets = [spectra_arrays(), vec![("TARGETID", i64s(&[1, 2, 3, 4, 5]))]].concat();
    assert_eq!(read_notes(&targets).unwrap(), [""; 0]);
    assert!(
        open(&npz(&targets, true))
            .unwrap()
            .column("TARGETID")
            .is_some()
    );
}

/// A mask of one row for all spectra is never ignored silently.
#[test]
fn masks_of_one_row_for_all_spectra_are_refused_or_noted() {
    let row = bools(&[3], &[true, false, false]);
    let with_row = super::spectra::replace_array(&spectra_arrays(), "mask", row.clone());
    let message = read_notes(&with_row).unwrap_err().to_string();
    assert!(
        message.contains("mask has the shape (3,), flux (5, 3)")
            && message.contains("np.broadcast_to(mask,"),
        "{message}"
    );
    // in place of a mask
    let message = read_notes(&renamed(&with_row, "mask", "badmask"))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("`badmask`") && message.contains("did you mean `mask`?"),
        "{message}"
    );
    // beside one
    for (name, array) in [
        ("badmask", row.clone()),
        ("telluric", row.clone()),
        ("sky_flags", npy("<i4", &[3], &[0; 12])),
        ("mask_lines", f64s(&[3], &[1.0; 3])),
    ] {
        let message = read_notes(&[spectra_arrays(), vec![(name, array)]].concat())
            .unwrap()
            .join("\n");
        assert!(
            message.contains("(spectra, pixels)")
                && message.contains(&format!("not used: {name};")),
            "{message}"
        );
    }
    // without a mask, a name that is like none
    let without_mask: Arrays = spectra_arrays()
        .into_iter()
        .filter(|(name, _)| *name != "mask")
        .collect();
    let message = read_notes(&[without_mask, vec![("telluric", row)]].concat())
        .unwrap()
        .join("\n");
    assert!(message.contains("not used: telluric;"), "{message}");
    // Other arrays of one row are ignored, and one value per spectrum is a column.
    let other_arrays = [
        ("grid", f64s(&[3], &GRID)),
        ("index", npy("<i4", &[3], &[0; 12])),
        ("good", bools(&[5], &[true; 5])),
    ];
    assert_eq!(
        read_notes(&[spectra_arrays(), other_arrays.to_vec()].concat()).unwrap(),
        [""; 0]
    );
}

#[test]
fn ids_beyond_i64_become_texts_of_their_digits() {
    let ids = [
        17_000_000_000_000_000_001u64,
        5,
        1 << 63,
        u64::MAX,
        16_891_238_904_321,
    ];
    let bytes = |big: bool| {
        ids.iter()
            .flat_map(|n| {
                if big {
                    n.to_be_bytes()
                } else {
                    n.to_le_bytes()
                }
            })
            .collect::<Vec<u8>>()
    };
    for (descr, bytes) in [("<u8", bytes(false)), (">u8", bytes(true))] {
        let arrays =
            super::spectra::replace_array(&spectra_arrays(), "id", npy(descr, &[5], &bytes));
        let folder = tempfile::tempdir().unwrap();
        let mut reader = open_reader(file(folder.path(), "s.npz", &npz(&arrays, true))).unwrap();
        assert!(
            matches!(reader.empty().ids, Ids::Text(_)),
            "before the first row: it decides the table's column"
        );
        let first = reader.next_batch(2).unwrap().unwrap().ids;
        assert_eq!(
            first,
            Ids::Text(vec!["17000000000000000001".into(), "5".into()])
        );
    }
    let small: Vec<u8> = [0u64, 1, 2, 3, i64::MAX as u64]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    let arrays = super::spectra::replace_array(&spectra_arrays(), "id", npy("<u8", &[5], &small));
    assert_eq!(
        open(&npz(&arrays, true)).unwrap().ids,
        Ids::Integer(vec![0, 1, 2, 3, i64::MAX])
    );
}

/// A network's grid in air is converted as that of spectra, and words other than air and vacuum are refused.
#[test]
fn the_grid_of_a_network_in_air_is_converted() {
    // Morton 1991. Over so short a range the grid stays uniform in ln λ.
    let index = |w: f64| 1.0 + 2.735_182e-4 + 131.4182 / w.powi(2) + 2.762_49e8 / w.powi(4);
    let vacuum: Vec<f64> = (0..40).map(|j| 5000.0 * (j as f64 * 1e-4).exp()).collect();
    let air: Vec<f64> = vacuum.iter().map(|w| w / index(*w)).collect();
    let folder = tempfile::tempdir().unwrap();
    let read = |medium: &'static str, value: &str| {
        let arrays = [("wavelength", f64s(&[40], &air)), (medium, word(value))];
        read_wavelength(file(folder.path(), "w.npz", &npz(&arrays, false)))
    };
    let converted = read("medium", "air").unwrap();
    assert!(
        converted
            .iter()
            .zip(&vacuum)
            .all(|(a, b)| (a - b).abs() < 1e-9 * b),
        "{converted:?}"
    );
    assert_eq!(read("medium", "vacuum").unwrap(), air);
    let message = read("medium", "water").unwrap_err().to_string();
    assert!(
        message.contains("`medium` is neither the text \"air\" nor \"vacuum\""),
        "{message}"
    );
    let misspelt = read("Medium", "air").unwrap_err().to_string();
    assert!(misspelt.contains("did you mean `medium`?"), "{misspelt}");
}
