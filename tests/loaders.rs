//! Files of emulators and spectra: good ones are read right, bad ones are errors, never a panic, never a shorter array.

mod common;

use std::collections::HashMap;
use std::path::Path;

use common::{bools, f32s, f64s, file, i64s, npy, npz, raw_npy, shared};
use popfit::emulator::{TemplateGrid, read_wavelength};
use popfit::spectra::{ArmSpectra, Ids, SpectraReader, Wavelength, open_reader};
use popfit::{Emulator, Error, Result, Spectra};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView, serialize};

fn le64(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn le32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7 % 11) as f32 - 5.0) / 8.0).collect()
}

/// One array of an NPZ file as f64, read with npyz: another reader than popfit's.
fn reference(path: &Path, key: &str) -> (Vec<u64>, Vec<f64>) {
    let mut zip = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut zip.by_name(&format!("{key}.npy")).unwrap(), &mut bytes).unwrap();
    let array = npyz::NpyFile::new(&bytes[..]).unwrap();
    let shape = array.shape().to_vec();
    let is_f32 = array.dtype().descr() == "'<f4'";
    let values = if is_f32 {
        array.into_vec::<f32>().unwrap().into_iter().map(f64::from).collect()
    } else {
        array.into_vec::<f64>().unwrap()
    };
    (shape, values)
}

// ---------------------------------------------------------------------------------------------------------------- emulators

#[test]
fn native_emulator_meets_rvspecfit() {
    let Some(shared) = shared() else { return };
    let emulator = Emulator::open(shared.join("data/synb/emulator.safetensors")).unwrap();
    let names: Vec<_> = emulator.labels().iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["teff", "logg", "feh", "alpha"]);
    assert_eq!((emulator.pixels(), emulator.wavelength().len(), emulator.hulls().len()), (3861, 3861, 2));
    assert_eq!(emulator.hash().len(), 64);
    let path = shared.join("data/synb/forward_ref.npz");
    let (_, labels) = reference(&path, "par");
    let (_, z) = reference(&path, "z");
    let (_, flux) = reference(&path, "flux");
    let (_, outside) = reference(&path, "outside");
    let scaled = emulator.scaled(&labels);
    let gap = scaled.iter().zip(&z).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(gap < 1e-5, "scaled labels differ by {gap}");
    let templates = emulator.templates(&labels);
    assert_eq!(templates.len(), flux.len());
    let gap = templates.iter().zip(&flux).map(|(&a, b)| (f64::from(a) / b - 1.0).abs()).fold(0.0, f64::max);
    println!("largest relative difference of templates {gap:.2e}");
    assert!(gap < 1e-5, "templates differ by {gap}");
    for (z, reference) in scaled.chunks_exact(4).zip(&outside) {
        let distance = emulator.outside(z).max(0.0);
        assert!((distance > 0.0) == (*reference > 0.0), "{distance} {reference}");
    }
    let grid = TemplateGrid::new(emulator.wavelength()).unwrap();
    assert_eq!(grid.segments.len(), 1);
}

#[test]
fn per_pixel_emulator_of_apogee() {
    let Some(shared) = shared() else { return };
    let folder = shared.join("data/apogee");
    let emulator = Emulator::open(folder.join("NN_normalized_spectra.npz")).unwrap();
    let wavelength = read_wavelength(folder.join("apogee_wavelength.npz")).unwrap();
    let names = ["teff", "logg", "feh", "mgfe", "vmacro"].map(String::from);
    let emulator = emulator.with_wavelength(wavelength).unwrap().with_label_names(&names).unwrap();
    assert_eq!((emulator.pixels(), emulator.labels().len()), (7214, 5));
    let grid = TemplateGrid::new(emulator.wavelength()).unwrap();
    assert_eq!(grid.segments.len(), 3);
    assert_eq!(grid.segments[2].end, 7214);
    for i in [0, 1000, 3000, 5000, 7213] {
        let (_, index) = grid.locate(emulator.wavelength()[i]).unwrap();
        assert!((index - i as f64).abs() < 1e-3);
    }
    // chi2 of the real star at the published answer, without its shift of 1 km/s: near the published 30653
    let star = Spectra::open(folder.join("2M13012770+5754582.npz")).unwrap();
    let flux = emulator.templates(&[4942.27, 4.5262, -0.1875, 0.1108, 16.108]);
    let arm = &star.arms[0];
    let chi2: f64 = (0..7214).map(|i| arm.ivar[i] * (arm.flux[i] - f64::from(flux[i])).powi(2)).sum();
    println!("chi2 {chi2:.0}");
    assert!((29000.0..36000.0).contains(&chi2), "{chi2}");
}

/// Labels 2, hidden 3 and 2, pixels 4.
fn payne(descr: fn(&[usize], &[f32]) -> Vec<u8>) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("w_array_0", descr(&[3, 2], &ramp(6))),
        ("w_array_1", descr(&[2, 3], &ramp(6))),
        ("w_array_2", descr(&[4, 2], &ramp(8))),
        ("b_array_0", descr(&[3], &ramp(3))),
        ("b_array_1", descr(&[2], &ramp(2))),
        ("b_array_2", descr(&[4], &ramp(4))),
        ("x_min", f64s(&[2], &[4000.0, 1.0])),
        ("x_max", f64s(&[2], &[7000.0, 5.0])),
    ]
}

fn wide(shape: &[usize], values: &[f32]) -> Vec<u8> {
    f64s(shape, &values.iter().map(|&x| f64::from(x)).collect::<Vec<_>>())
}

fn affine(weight: &[f32], bias: &[f32], x: &[f64]) -> Vec<f64> {
    let row = |(w, b): (&[f32], &f32)| w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>() + f64::from(*b);
    weight.chunks_exact(x.len()).zip(bias).map(row).collect()
}

#[test]
fn payne_is_evaluated_as_its_authors_do() {
    let folder = tempfile::tempdir().unwrap();
    let leaky = |x: Vec<f64>| x.into_iter().map(|x| if x > 0.0 { x } else { 0.01 * x }).collect::<Vec<_>>();
    let h = leaky(affine(&ramp(6), &ramp(3), &[0.1, -0.25]));
    let h = leaky(affine(&ramp(6), &ramp(2), &h));
    let expected = affine(&ramp(8), &ramp(4), &h);
    for (name, arrays) in [("f32.npz", payne(f32s)), ("f64.npz", payne(wide))] {
        let emulator = Emulator::open(file(folder.path(), name, &npz(&arrays, true))).unwrap();
        assert_eq!(emulator.labels()[1].name, "label1");
        assert_eq!((emulator.labels()[0].mean, emulator.labels()[0].std), (5500.0, 3000.0));
        assert_eq!(emulator.outside(&[0.0, 0.0]), f64::NEG_INFINITY);
        let rows = emulator.templates(&[5800.0, 2.0, 5800.0, 2.0]);
        assert_eq!(rows.len(), 8);
        for (row, expected) in rows.iter().zip(expected.iter().cycle()) {
            assert!((f64::from(*row) - expected).abs() < 1e-6);
        }
        assert!(matches!(emulator.clone().with_wavelength(vec![1.0; 3]), Err(Error::ShapeMismatch { .. })));
        let unsorted = emulator.clone().with_wavelength(vec![1.0, 2.0, 2.0, 3.0]);
        assert!(matches!(unsorted, Err(Error::BadWavelength { index: 2, .. })));
        assert!(emulator.clone().with_label_names(&["a".into(), "a".into()]).is_err());
        assert!(emulator.with_label_names(&["a".into()]).is_err());
    }
}

#[test]
fn per_pixel_in_fortran_order() {
    let folder = tempfile::tempdir().unwrap();
    // pixels 2, hidden 3, labels 2; w_array_0[p, h, l] stored with p fastest
    let w0: Vec<f32> = ramp(12);
    let mut fortran = vec![0.0; 12];
    for (i, w) in w0.iter().enumerate() {
        let (p, h, l) = (i / 6, i / 2 % 3, i % 2);
        fortran[p + 2 * (h + 3 * l)] = *w;
    }
    let header = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 2), }";
    let arrays = |w| {
        vec![
            ("w_array_0", w),
            ("w_array_1", f32s(&[2, 3], &ramp(6))),
            ("b_array_0", f32s(&[2, 3], &ramp(6))),
            ("b_array_1", f32s(&[2], &ramp(2))),
            ("x_min", f64s(&[2], &[0.0, 0.0])),
            ("x_max", f64s(&[2], &[1.0, 1.0])),
        ]
    };
    let c = Emulator::open(file(folder.path(), "c.npz", &npz(&arrays(f32s(&[2, 3, 2], &w0)), false))).unwrap();
    let f =
        Emulator::open(file(folder.path(), "f.npz", &npz(&arrays(raw_npy(header, &le32(&fortran))), false))).unwrap();
    assert_eq!(c.templates(&[0.9, 0.2]), f.templates(&[0.9, 0.2]));
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let h: Vec<f64> = affine(&w0[..6], &ramp(3), &[0.4, -0.3]).into_iter().map(sigmoid).collect();
    let expected = affine(&ramp(3), &ramp(1), &h)[0];
    assert!((f64::from(c.templates(&[0.9, 0.2])[0]) - expected).abs() < 1e-6);
}

const DESCRIPTION: &str = r#"{"version": 1, "activation": "ACT", "output": "exp", "clip": 2.0, "hull": [[1]],
    "labels": [{"name": "teff", "unit": "K", "transform": "log10", "mean": 3.7, "std": 0.1, "min": 4000, "max": 7000},
               {"name": "logg", "unit": "dex", "transform": "identity", "mean": 3, "std": 1, "min": 1, "max": 5}]}"#;

type Tensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

/// Labels 2, hidden 3 with a batch norm, pixels 4.
fn native(description: &str, change: impl Fn(&mut Vec<Tensor>)) -> Vec<u8> {
    let mut tensors = vec![
        ("layer.0.weight", Dtype::F32, vec![3, 2], le32(&ramp(6))),
        ("layer.0.bias", Dtype::F32, vec![3], le32(&ramp(3))),
        ("layer.0.scale", Dtype::F32, vec![3], le32(&ramp(3))),
        ("layer.0.offset", Dtype::F32, vec![3], le32(&ramp(3))),
        ("layer.1.weight", Dtype::F64, vec![4, 3], le64(&[0.5; 12])),
        ("layer.1.bias", Dtype::F32, vec![4], le32(&ramp(4))),
        ("hull.0", Dtype::F64, vec![2, 2], le64(&[1.0, -2.0, -1.0, -2.0])),
        ("wavelength", Dtype::F64, vec![4], le64(&[4000.0, 4001.0, 4002.0, 4003.0])),
    ];
    change(&mut tensors);
    let views = tensors.iter().map(|(n, d, s, b)| (*n, TensorView::new(*d, s.clone(), b).unwrap()));
    serialize(views, Some(HashMap::from([("popfit".to_string(), description.to_string())]))).unwrap()
}

#[test]
fn native_activations_and_batch_norm() {
    let folder = tempfile::tempdir().unwrap();
    let erf = |x: f64| libm::erf(x);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let functions: [(&str, &dyn Fn(f64) -> f64); 6] = [
        ("silu", &|x| x * sigmoid(x)),
        ("leaky_relu", &|x| if x > 0.0 { x } else { 0.01 * x }),
        ("relu", &|x| x.max(0.0)),
        ("sigmoid", &sigmoid),
        ("tanh", &f64::tanh),
        ("gelu", &|x| 0.5 * x * (1.0 + erf(x / 2f64.sqrt()))),
    ];
    for (name, function) in functions {
        let bytes = native(&DESCRIPTION.replace("ACT", name), |_| ());
        let emulator = Emulator::open(file(folder.path(), "n.safetensors", &bytes)).unwrap();
        let z = emulator.scaled(&[5500.0, 4.5]);
        assert!((z[0] - (5500f64.log10() - 3.7) / 0.1).abs() < 1e-12 && z[1] == 1.5);
        assert_eq!(emulator.outside(&z), -0.5);
        let h = affine(&ramp(6), &ramp(3), &z).into_iter().map(function);
        let h: Vec<f64> = h.zip(ramp(3)).map(|(h, s)| h * f64::from(s) + f64::from(s)).collect();
        let expected = affine(&[0.5; 12], &ramp(4), &h);
        for (flux, x) in emulator.templates(&[5500.0, 4.5]).iter().zip(expected) {
            assert!((f64::from(*flux) / x.clamp(-2.0, 2.0).exp() - 1.0).abs() < 1e-5, "{name}");
        }
    }
    let emulator = Emulator::open(folder.path().join("n.safetensors")).unwrap();
    assert_eq!(emulator.templates(&[]), Vec::<f32>::new());
}

#[test]
fn senseless_networks_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let good = DESCRIPTION.replace("ACT", "silu");
    let open = |bytes: &[u8]| Emulator::open(file(folder.path(), "n.safetensors", bytes));
    let texts = [
        ("silu", "swish"),
        ("\"version\": 1", "\"version\": 2"),
        ("\"std\": 0.1", "\"std\": 0"),
        ("\"min\": 4000", "\"min\": 9000"),
        ("\"min\": 4000", "\"min\": -1"),
        ("[[1]]", "[[2]]"),
        ("[[1]]", "[[0, 1]]"),
        ("[[1]]", "[[1], [0]]"),
        ("[[1]]", "[]"),
        ("logg", "teff"),
        ("\"clip\": 2.0", "\"clip\": -1"),
        ("exp", "log"),
    ];
    for (from, to) in texts {
        assert!(matches!(open(&native(&good.replace(from, to), |_| ())), Err(Error::Format { .. })), "{to}");
    }
    let changes: [fn(&mut Vec<Tensor>); 7] = [
        |t| t[0].3 = le32(&[f32::NAN; 6]),
        |t| t[4].3 = le64(&[1e300; 12]),
        |t| t[0] = ("layer.0.weight", Dtype::F32, vec![2, 3], le32(&ramp(6))),
        |t| drop(t.remove(1)),
        |t| drop(t.remove(2)),
        |t| t[4].0 = "layer.2.weight",
        |t| t[7] = ("wavelength", Dtype::F64, vec![3], le64(&[1.0, 2.0, 3.0])),
    ];
    for (k, change) in changes.into_iter().enumerate() {
        assert!(matches!(open(&native(&good, change)), Err(Error::Format { .. })), "change {k}");
    }
    let unsorted = native(&good, |t| t[7].3 = le64(&[1.0, 3.0, 2.0, 4.0]));
    assert!(matches!(open(&unsorted), Err(Error::BadWavelength { index: 2, .. })));
    let mut claim = native(&good, |_| ());
    claim[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(open(&claim), Err(Error::Format { .. })));
    assert!(matches!(open(b""), Err(Error::Format { .. })));
    assert!(matches!(Emulator::open(folder.path().join("none")), Err(Error::Io { .. })));
}

// ------------------------------------------------------------------------------------------------------------------ spectra

const GRID: [f64; 3] = [5000.0, 5001.0, 5002.5];

/// Five spectra of three pixels.
fn spectra_arrays() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("wavelength", f64s(&[3], &GRID)),
        ("flux", f32s(&[5, 3], &ramp(15))),
        ("ivar", f64s(&[5, 3], &[4.0; 15])),
        ("id", i64s(&[(1 << 53) + 1, -7, i64::MAX, 0, 39627])),
        ("mask", bools(&[5, 3], &[[true, false, false]; 5].concat())),
    ]
}

fn with(arrays: &[(&'static str, Vec<u8>)], key: &str, array: Vec<u8>) -> Vec<(&'static str, Vec<u8>)> {
    let replace = |(k, a): &(&'static str, Vec<u8>)| (*k, if *k == key { array.clone() } else { a.clone() });
    arrays.iter().map(replace).collect()
}

fn open(bytes: &[u8]) -> Result<Spectra> {
    let folder = tempfile::tempdir().unwrap();
    let mut spectra = Spectra::open(file(folder.path(), "s.npz", bytes))?;
    spectra.file = "".into();
    Ok(spectra)
}

#[test]
fn stored_deflated_and_big_endian_are_the_same() {
    let arrays = spectra_arrays();
    let expected = Spectra::from_arrays(
        GRID.to_vec(),
        ramp(15).into_iter().map(f64::from).collect(),
        vec![4.0; 15],
        Some([[true, false, false]; 5].concat()),
        Some(Ids::Integer(vec![(1 << 53) + 1, -7, i64::MAX, 0, 39627])),
    )
    .unwrap();
    assert_eq!(open(&npz(&arrays, true)).unwrap(), expected);
    assert_eq!(open(&npz(&arrays, false)).unwrap(), expected);
    let big: Vec<u8> = ramp(15).iter().flat_map(|x| x.to_be_bytes()).collect();
    assert_eq!(open(&npz(&with(&arrays, "flux", npy(">f4", &[5, 3], &big)), true)).unwrap(), expected);
    let sliced = expected.slice(1..3);
    assert_eq!((sliced.len(), sliced.first_row, sliced.arms[0].flux.len()), (2, 1, 6));
    assert_eq!(sliced.ids.text(0), "-7");
}

#[test]
fn sigma_own_grids_text_ids_and_rows() {
    let sigma = [2.0, f64::INFINITY, 0.0, -1.0, f64::NAN, 0.5];
    let own = [5000.0, 5001.0, 5002.0, 9.0, 8.0, f64::NAN];
    let unicode: Vec<u8> = ["M31", "αβ"]
        .iter()
        .flat_map(|s| s.chars().chain("\0\0\0".chars()).take(3))
        .flat_map(|c| (c as u32).to_le_bytes())
        .collect();
    let arrays = vec![
        ("wavelength", f64s(&[2, 3], &own)),
        ("flux", f64s(&[2, 3], &[1.0, f64::NAN, 3.0, 4.0, 5.0, 6.0])),
        ("sigma", f64s(&[2, 3], &sigma)),
        ("id", npy("<U3", &[2], &unicode)),
        ("note", npy("|O", &[1], b"pickle")),
    ];
    let spectra = open(&npz(&arrays, true)).unwrap();
    let arm = &spectra.arms[0];
    assert_eq!(arm.ivar[..2], [0.25, 0.0]);
    assert!(arm.ivar[2..5].iter().all(|x| x.is_nan()) && arm.ivar[5] == 4.0);
    assert_eq!((arm.grid(0), arm.grid(1)[0]), (&own[..3], 9.0));
    assert_eq!(spectra.ids, Ids::Text(vec!["M31".into(), "αβ".into()]));
    let bytes = open(&npz(&with(&arrays, "id", npy("|S4", &[2], b"ab\0\0cdef")), true)).unwrap();
    assert_eq!(bytes.ids, Ids::Text(vec!["ab".into(), "cdef".into()]));
    // one-dimensional: one spectrum, without ids
    let one = [("wavelength", f64s(&[3], &GRID)), ("flux", f64s(&[3], &[1.0; 3])), ("ivar", f64s(&[3], &[1.0; 3]))];
    assert_eq!(open(&npz(&one, true)).unwrap().ids, Ids::Integer(vec![0]));
    // none at all
    let none = [("wavelength", f64s(&[3], &GRID)), ("flux", f64s(&[0, 3], &[])), ("ivar", f64s(&[0, 3], &[]))];
    let none = open(&npz(&none, true)).unwrap();
    assert!(none.is_empty() && none.arms[0].pixels == 3);
}

#[test]
fn arms_by_prefix() {
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
    let arms: Vec<_> = spectra.arms.iter().map(|a| (a.name.as_str(), a.pixels)).collect();
    assert_eq!(arms, [("b", 3), ("r", 2)]);
    let unequal = with(&arrays, "r_flux", f64s(&[1, 2], &[1.0; 2]));
    assert!(matches!(open(&npz(&unequal, true)), Err(Error::ShapeMismatch { .. })));
    let missing: Vec<_> = arrays.iter().filter(|(k, _)| *k != "r_wavelength").cloned().collect();
    assert!(open(&npz(&missing, true)).unwrap_err().to_string().contains("r_wavelength"));
}

#[test]
fn senseless_spectra_are_errors() {
    let arrays = spectra_arrays();
    let try_with = |key: &str, array: Vec<u8>| open(&npz(&with(&arrays, key, array), true)).unwrap_err();
    assert!(matches!(try_with("ivar", f64s(&[5, 2], &[1.0; 10])), Error::ShapeMismatch { .. }));
    assert!(matches!(try_with("mask", bools(&[3], &[true; 3])), Error::ShapeMismatch { .. }));
    assert!(matches!(try_with("id", i64s(&[1])), Error::ShapeMismatch { .. }));
    assert!(matches!(try_with("wavelength", f64s(&[4], &[1.0; 4])), Error::ShapeMismatch { .. }));
    assert!(matches!(try_with("wavelength", f64s(&[3], &[1.0, 2.0, 2.0])), Error::BadWavelength { index: 2, .. }));
    assert!(matches!(try_with("wavelength", f64s(&[3], &[1.0, f64::NAN, 2.0])), Error::BadWavelength { index: 1, .. }));
    assert!(matches!(try_with("id", f64s(&[5], &[1.0; 5])), Error::Format { .. }));
    assert!(matches!(try_with("id", npy("<u8", &[5], &[255; 40])), Error::Format { .. }));
    assert!(matches!(try_with("id", npy("<U1", &[5], &[255; 20])), Error::Format { .. }));
    assert!(matches!(try_with("flux", npy("|O", &[5, 3], &[0; 15])), Error::Format { .. }));
    assert!(matches!(try_with("flux", npy("<c8", &[5, 3], &[0; 120])), Error::Format { .. }));
    assert!(matches!(try_with("mask", f64s(&[5, 3], &[0.0; 15])), Error::Format { .. }));
    for shape in
        ["(5, 4)", "(-5, 3)", "(9223372036854775807, 3)", "(18446744073709551615, 18446744073709551615)", "(5, 2)"]
    {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        assert!(matches!(try_with("flux", raw_npy(&header, &[0; 60])), Error::Format { .. }), "{shape}");
    }
    let fortran = raw_npy("{'descr': '<f4', 'fortran_order': True, 'shape': (5, 3), }", &[0; 60]);
    assert!(try_with("flux", fortran).to_string().contains("Fortran"));
    assert!(matches!(open(&npz(&[("x", i64s(&[1]))], true)), Err(Error::Format { .. })));
    assert!(matches!(open(b"SIMPLE  ="), Err(Error::Format { .. })));
}

#[test]
fn arrays_are_checked() {
    let arm = |flux: usize| ArmSpectra::new("b", 2, vec![1.0, 2.0].into(), vec![0.0; flux], vec![0.0; 4], None);
    assert_eq!(arm(4).unwrap().len(), 2);
    assert!(matches!(arm(3), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(arm(2), Err(Error::ShapeMismatch { .. })));
    assert!(Spectra::from_arms(vec![arm(4).unwrap(), arm(4).unwrap()], None).is_err());
    let own = |ids| Spectra::from_arrays(Wavelength::Own(vec![1.0; 4]), vec![0.0; 4], vec![0.0; 4], None, ids);
    assert!(matches!(own(None), Err(Error::Usage(_))));
    assert_eq!(own(Some(Ids::Integer(vec![5, 6]))).unwrap().arms[0].pixels, 2);
    let unsorted = Spectra::from_arrays(vec![2.0, 1.0], vec![0.0; 4], vec![0.0; 4], None, None);
    assert!(matches!(unsorted, Err(Error::BadWavelength { index: 1, .. })));
}

fn batches(mut reader: Box<dyn SpectraReader>, max: usize) -> Vec<Spectra> {
    std::iter::from_fn(|| reader.next_batch(max).unwrap()).collect()
}

#[test]
fn batches_equal_the_whole() {
    let Some(shared) = shared() else { return };
    for name in ["fixed_vsini", "free_vsini"] {
        let path = shared.join("data/synb").join(name).join("spectra.npz");
        let whole = Spectra::open(&path).unwrap();
        let (shape, flux) = reference(&path, "flux");
        assert_eq!(whole.len() as u64, shape[0]);
        assert_eq!(whole.arms[0].flux, flux);
        assert!(matches!(whole.arms[0].wavelength, Wavelength::Shared(_)));
        for max in [1, 7, 64, 1000] {
            let mut row = 0;
            for batch in batches(open_reader(&path).unwrap(), max) {
                assert_eq!(batch, whole.slice(row..row + batch.len()));
                row += batch.len();
            }
            assert_eq!(row, whole.len());
        }
    }
}

#[test]
fn large_arrays_stream() {
    // 3 000 × 500: several pieces an array, the last batch a partial one
    let (n, pixels) = (3000, 500);
    let grid: Vec<f64> = (0..pixels).map(|i| 4000.0 + i as f64).collect();
    let flux: Vec<f32> = (0..n * pixels).map(|i| i as f32).collect();
    let arrays = [
        ("wavelength", f64s(&[pixels], &grid)),
        ("flux", f32s(&[n, pixels], &flux)),
        ("ivar", f32s(&[n, pixels], &vec![1.0; n * pixels])),
        ("id", i64s(&(0..n as i64).map(|i| (1 << 60) + i).collect::<Vec<_>>())),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "s.npz", &npz(&arrays, true));
    let mut expected = 0;
    for batch in batches(open_reader(&path).unwrap(), 777) {
        assert_eq!(batch.first_row, expected as u64);
        assert_eq!(batch.ids.text(0), ((1i64 << 60) + expected as i64).to_string());
        assert!(batch.arms[0].flux.iter().zip(&flux[expected * pixels..]).all(|(a, b)| *a == f64::from(*b)));
        expected += batch.len();
    }
    assert_eq!(expected, n);
    drop(open_reader(&path).unwrap());
}

// ------------------------------------------------------------------------------------------------------------ hostile files

#[test]
fn zip_bombs_are_too_large() {
    let folder = tempfile::tempdir().unwrap();
    // a network of zeros: inflates by a thousand, far over what weights do
    let zeros = f32s(&[3, 40_000_000], &vec![0.0; 120_000_000]);
    let bomb = npz(&[("w_array_0", zeros)], true);
    assert!(bomb.len() < 1_000_000);
    assert!(matches!(Emulator::open(file(folder.path(), "b.npz", &bomb)), Err(Error::TooLarge { .. })));
    // a directory that lies about the size, in both places
    let mut liar = npz(&spectra_arrays(), true);
    for signature in [&b"PK\x03\x04"[..], b"PK\x01\x02"] {
        let offset = if signature[2] == 3 { 22 } else { 24 };
        for at in (0..liar.len() - 4).filter(|&i| liar[i..].starts_with(signature)).collect::<Vec<_>>() {
            liar[at + offset..at + offset + 4].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
        }
    }
    assert!(matches!(open(&liar), Err(Error::TooLarge { .. })));
}

#[test]
fn duplicate_and_overlapping_entries_are_errors() {
    let twice = |bytes: &[u8]| -> Vec<u8> {
        // rename `flux2` to a second `flux.`: same length, other name
        let mut bytes = bytes.to_vec();
        for i in 0..bytes.len() - 8 {
            if bytes[i..].starts_with(b"fluy.npy") {
                bytes[i + 3] = b'x';
            }
        }
        bytes
    };
    let mut arrays = spectra_arrays();
    arrays.push(("fluy", f32s(&[5, 3], &ramp(15))));
    let bytes = npz(&arrays, false);
    assert!(open(&bytes).is_ok());
    assert!(matches!(open(&twice(&bytes)), Err(Error::Format { .. })));
    // the second entry's directory record points at the first's data
    let mut overlap = bytes.clone();
    let records: Vec<_> = (0..overlap.len() - 4).filter(|&i| overlap[i..].starts_with(b"PK\x01\x02")).collect();
    let first: [u8; 4] = overlap[records[1] + 42..][..4].try_into().unwrap();
    overlap[records[5] + 42..][..4].copy_from_slice(&first);
    assert!(matches!(open(&overlap), Err(Error::Format { .. })));
}

#[test]
fn truncated_files_are_errors_at_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let network = npz(&payne(f32s), true);
    let native = native(&DESCRIPTION.replace("ACT", "silu"), |_| ());
    for deflate in [false, true] {
        let spectra = npz(&spectra_arrays(), deflate);
        for end in 0..spectra.len() {
            assert!(open(&spectra[..end]).is_err(), "spectra cut at {end}");
        }
    }
    for bytes in [network, native] {
        for end in 0..bytes.len() {
            assert!(Emulator::open(file(folder.path(), "n", &bytes[..end])).is_err(), "emulator cut at {end}");
        }
    }
}

#[test]
fn every_flipped_byte_of_an_npz_is_an_error_or_harmless() {
    for deflate in [false, true] {
        let good = npz(&spectra_arrays(), deflate);
        let expected = open(&good).unwrap();
        for at in 0..good.len() {
            for flip in [0xff, 0x01, 0x80] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                if let Ok(spectra) = open(&bad) {
                    assert_eq!(spectra, expected, "byte {at} ^ {flip:#x}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn damaged_emulators_never_panic(at in prop::collection::vec((0usize..4000, any::<u8>()), 1..4), cut in 0usize..4000, kind in 0..2) {
        let folder = tempfile::tempdir().unwrap();
        let good = match kind {
            0 => npz(&payne(f32s), true),
            _ => native(&DESCRIPTION.replace("ACT", "silu"), |_| ()),
        };
        let mut bad = good.clone();
        at.iter().for_each(|(i, b)| { let n = bad.len(); bad[i % n] ^= b; });
        if cut % 3 == 0 {
            bad.truncate(cut % good.len());
        }
        let expected = Emulator::open(file(folder.path(), "good", &good)).unwrap();
        if let Ok(found) = Emulator::open(file(folder.path(), "bad", &bad)) {
            prop_assert_eq!(found.pixels(), expected.pixels());
            prop_assert_eq!(found.labels().len(), expected.labels().len());
            prop_assert_eq!(found.templates(&[5000.0, 3.0]).len(), expected.pixels());
        }
    }

    #[test]
    fn damaged_spectra_never_panic(at in prop::collection::vec((0usize..4000, any::<u8>()), 2..6), deflate: bool) {
        let mut bad = npz(&spectra_arrays(), deflate);
        at.iter().for_each(|(i, b)| { let n = bad.len(); bad[i % n] ^= b; });
        if let Ok(spectra) = open(&bad) {
            prop_assert_eq!(spectra.len() * 3, spectra.arms[0].flux.len());
        }
    }

    #[test]
    fn any_batch_size_gives_the_same(n in 0usize..40, max in 1usize..50, deflate: bool) {
        let folder = tempfile::tempdir().unwrap();
        let arrays = [
            ("wavelength", f64s(&[3], &GRID)),
            ("flux", f32s(&[n, 3], &ramp(3 * n))),
            ("ivar", f32s(&[n, 3], &vec![1.0; 3 * n])),
        ];
        let path = file(folder.path(), "s.npz", &npz(&arrays, deflate));
        let whole = Spectra::open(&path).unwrap();
        let parts = batches(open_reader(&path).unwrap(), max);
        prop_assert_eq!(parts.iter().map(Spectra::len).sum::<usize>(), n);
        for part in parts {
            let row = part.first_row as usize;
            prop_assert_eq!(&part, &whole.slice(row..row + part.len()));
        }
    }
}
