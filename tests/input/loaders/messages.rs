//! Messages about incomplete files, which name the missing array, its expected shape, and the existing ones.

use super::emulators::{DESCRIPTION, Tensor, native_bytes, payne_arrays};
use super::spectra::{open, spectra_arrays};
use super::*;

type Change = fn(&mut Vec<Tensor>);

/// Returns the message about a native file with changed tensors.
fn refused(change: Change) -> String {
    let folder = tempfile::tempdir().unwrap();
    let bytes = native_bytes(&DESCRIPTION.replace("ACT", "silu"), change);
    Emulator::open(file(folder.path(), "n.safetensors", &bytes))
        .unwrap_err()
        .to_string()
}

#[test]
fn a_missing_tensor_or_a_wrong_shape_is_described() {
    let cases: [(Change, &str); 11] = [
        (
            |t| drop(t.remove(1)),
            "no tensor `layer.0.bias`: expected a float32 list of 3 numbers, one for each output of layer 0",
        ),
        (
            |t| drop(t.remove(1)),
            "(found: hull.0 [2, 2], layer.0.offset [3], layer.0.scale [3], layer.0.weight [3, 2], ",
        ),
        (
            |t| t[1].0 = "layer.0.bais",
            "one for each output of layer 0; did you mean `layer.0.bais`? (found: hull.0",
        ),
        (
            |t| t[0].0 = "0.weight",
            "no tensor `layer.0.weight`: expected float32 numbers (outputs, inputs)",
        ),
        (
            |t| drop(t.remove(2)),
            "no tensor `layer.0.scale`: expected a float32 list of 3 numbers",
        ),
        (
            |t| t[1] = ("layer.0.bias", Dtype::F32, vec![3, 1], le32(&ramp(3))),
            "has the shape [3, 1]: expected a float32",
        ),
        (
            |t| t[1] = ("layer.0.bias", Dtype::F32, vec![2], le32(&ramp(2))),
            "layer 0 has 3 outputs, but its bias has 2 numbers: expected 3",
        ),
        (
            |t| t[0] = ("layer.0.weight", Dtype::F32, vec![3, 4], le32(&ramp(12))),
            "layer 0 is 4 → 3, but 2 numbers enter it, the labels",
        ),
        (
            |t| t.push(("layer.3.weight", Dtype::F32, vec![1, 1], le32(&[1.0]))),
            "tensor `layer.3.weight` belongs to no part of the network: without `layer.2.weight` the network ends with \
             layer 1",
        ),
        (
            |t| t[6] = ("hull.0", Dtype::F64, vec![1, 3], le64(&[1.0; 3])),
            "tensor `hull.0` has 3 columns: expected 2, for 1 labels and an offset",
        ),
        (
            |t| t[7].0 = "wavelengths",
            "tensor `wavelengths` belongs to no part of the network; did you mean `wavelength`?",
        ),
    ];
    for (change, expected) in cases {
        let message = refused(change);
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let transposed =
        refused(|t| t[4] = ("layer.1.weight", Dtype::F64, vec![3, 8], le64(&[0.5; 24])));
    assert!(
        transposed.contains("is the weight transposed? It must be (outputs, inputs)"),
        "{transposed}"
    );
}

#[test]
fn missing_metadata_are_described() {
    let folder = tempfile::tempdir().unwrap();
    let tensor = TensorView::new(Dtype::F32, vec![1], &[0; 4]).unwrap();
    let metadata = [("popfits".to_string(), String::new())]
        .into_iter()
        .collect();
    let bytes = serialize([("a", tensor)], Some(metadata)).unwrap();
    let message = Emulator::open(file(folder.path(), "n.safetensors", &bytes))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("no metadata `popfit`: expected a JSON text"),
        "{message}"
    );
    assert!(message.contains("did you mean `popfits`?"), "{message}");
}

/// A model file names its emulators, and its author may not be allowed to read the files of these names.
#[test]
fn a_file_that_is_no_emulator_is_not_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |bytes: &[u8]| {
        Emulator::open(file(folder.path(), "n", bytes))
            .unwrap_err()
            .to_string()
    };
    let message = refused(b"root:x:0:0:root:/root:/bin/bash\n");
    assert!(
        message.ends_with("neither NPZ nor safetensors: its header would end beyond the file"),
        "{message}"
    );
    let header = |json: &[u8]| [&(json.len() as u64).to_le_bytes(), json].concat();
    for json in [
        r#"{"password": "hunter2"}"#,
        r#"{"__metadata__": 31337}"#,
        r#"{"a": {"dtype": "hunter2"}}"#,
    ] {
        let message = refused(&header(json.as_bytes()));
        assert!(
            message.contains("it does not describe tensors as the format wants, line 1, column "),
            "{message}"
        );
        assert!(
            !message.contains("hunter2") && !message.contains("31337"),
            "{message}"
        );
    }
    let long = [&(3u64 << 20).to_le_bytes()[..], &vec![b' '; 4 << 20]].concat();
    let message = refused(&long);
    assert!(
        message.contains("more than the 1048576 bytes") && !message.contains("3145728"),
        "{message}"
    );
}

/// A template grid that no fit could use is refused when it is read.
#[test]
fn a_template_grid_that_is_not_uniform_is_refused_when_read() {
    let folder = tempfile::tempdir().unwrap();
    let linear: Vec<f64> = (0..8).map(|j| 4000.0 + 20.0 * f64::from(j)).collect();
    let refuse = |error: Error| {
        assert!(
            matches!(error, Error::BadWavelength { index: 1, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("uniform in ln λ"), "{error}");
    };
    let grid = linear.clone();
    let bytes = native_bytes(&DESCRIPTION.replace("ACT", "silu"), |t| {
        t[7].3 = le64(&grid)
    });
    refuse(Emulator::open(file(folder.path(), "n.safetensors", &bytes)).unwrap_err());
    let bare = native_bytes(&DESCRIPTION.replace("ACT", "silu"), |t| drop(t.remove(7)));
    let bare = Emulator::open(file(folder.path(), "bare.safetensors", &bare)).unwrap();
    refuse(bare.with_wavelength(linear.clone()).unwrap_err());
    let npz = file(
        folder.path(),
        "w.npz",
        &npz(&[("wavelength", f64s(&[8], &linear))], false),
    );
    refuse(read_wavelength(npz).unwrap_err());
}

#[test]
fn a_missing_array_is_named_with_the_existing_ones() {
    let folder = tempfile::tempdir().unwrap();
    let grid = npz(
        &[
            ("wavelengths", f64s(&[2], &[1.0, 2.0])),
            ("flux", f64s(&[1], &[1.0])),
        ],
        false,
    );
    let message = read_wavelength(file(folder.path(), "w.npz", &grid))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains(
            "no array `wavelength`; did you mean `wavelengths`? (found: wavelengths, flux)"
        ),
        "{message}"
    );
    let mut arrays = payne_arrays(f32s);
    arrays.retain(|(name, _)| *name != "b_array_1");
    let message = Emulator::open(file(folder.path(), "p.npz", &npz(&arrays, false)))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("no array `b_array_1`") && message.contains("x_min, x_max)"),
        "{message}"
    );
    let mut arrays = spectra_arrays();
    arrays
        .iter_mut()
        .for_each(|(name, _)| *name = if *name == "flux" { "Flux" } else { name });
    let message = open(&npz(&arrays, false)).unwrap_err().to_string();
    assert!(
        message.contains("no array `flux`; did you mean `Flux`? (found: "),
        "{message}"
    );
}
