//! Emulators from files: native, The Payne's, per-pixel.

use super::*;

#[test]
fn native_emulator_agrees_with_rvspecfit() {
    let emulator = Emulator::open(popfit_testing::demo_emulator()).unwrap();
    let names: Vec<_> = emulator.labels().iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["teff", "logg", "feh", "alpha"]);
    assert_eq!(
        (
            emulator.pixels(),
            emulator.wavelength().len(),
            emulator.hulls().len()
        ),
        (3861, 3861, 2)
    );
    assert_eq!(emulator.hash().len(), 64);
    let path = data_folder().join("synb/forward_ref.npz");
    let (_, labels) = array(&path, "par");
    let (_, z) = array(&path, "z");
    let (_, flux) = array(&path, "flux");
    let (_, outside) = array(&path, "outside");
    let scaled = emulator.scaled(&labels);
    let difference = scaled
        .iter()
        .zip(&z)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    assert!(difference < 1e-5, "scaled labels differ by {difference}");
    let templates = emulator.templates(&labels);
    assert_eq!(templates.len(), flux.len());
    let difference = templates
        .iter()
        .zip(&flux)
        .map(|(&a, b)| (f64::from(a) / b - 1.0).abs())
        .fold(0.0, f64::max);
    println!("largest relative difference of templates {difference:.2e}");
    assert!(difference < 1e-5, "templates differ by {difference}");
    for (z, reference) in scaled.chunks_exact(4).zip(&outside) {
        let distance = emulator.outside(z).max(0.0);
        assert!(
            (distance > 0.0) == (*reference > 0.0),
            "{distance} {reference}"
        );
    }
    let grid = TemplateGrid::new(emulator.wavelength()).unwrap();
    assert_eq!(grid.segments.len(), 1);
}

#[test]
fn the_published_apogee_emulator_fits_a_real_star() {
    let Some(folder) = real_data().map(|folder| folder.join("apogee")) else {
        return;
    };
    let emulator = Emulator::open(folder.join("NN_normalized_spectra.npz")).unwrap();
    let wavelength = read_wavelength(folder.join("apogee_wavelength.npz")).unwrap();
    let names = ["teff", "logg", "feh", "mgfe", "vmacro"].map(String::from);
    let emulator = emulator
        .with_wavelength(wavelength)
        .unwrap()
        .with_label_names(&names)
        .unwrap();
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
    let chi2: f64 = (0..7214)
        .map(|i| arm.ivar.to_double()[i] * (arm.flux.to_double()[i] - f64::from(flux[i])).powi(2))
        .sum();
    println!("chi2 {chi2:.0}");
    assert!((29000.0..36000.0).contains(&chi2), "{chi2}");
}

/// Returns the arrays of a network of The Payne with 2 labels, hidden layers of 3 and 2, and 4 pixels.
pub fn payne_arrays(descr: fn(&[usize], &[f32]) -> Vec<u8>) -> Vec<(&'static str, Vec<u8>)> {
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

fn as_f64s(shape: &[usize], values: &[f32]) -> Vec<u8> {
    f64s(
        shape,
        &values.iter().map(|&x| f64::from(x)).collect::<Vec<_>>(),
    )
}

fn apply_layer(weight: &[f32], bias: &[f32], x: &[f64]) -> Vec<f64> {
    let row = |(w, b): (&[f32], &f32)| {
        w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>() + f64::from(*b)
    };
    weight.chunks_exact(x.len()).zip(bias).map(row).collect()
}

#[test]
fn payne_networks_are_evaluated_as_published() {
    let folder = tempfile::tempdir().unwrap();
    let leaky = |x: Vec<f64>| {
        x.into_iter()
            .map(|x| if x > 0.0 { x } else { 0.01 * x })
            .collect::<Vec<_>>()
    };
    let h = leaky(apply_layer(&ramp(6), &ramp(3), &[0.1, -0.25]));
    let h = leaky(apply_layer(&ramp(6), &ramp(2), &h));
    let expected = apply_layer(&ramp(8), &ramp(4), &h);
    for (name, arrays) in [
        ("f32.npz", payne_arrays(f32s)),
        ("f64.npz", payne_arrays(as_f64s)),
    ] {
        let emulator = Emulator::open(file(folder.path(), name, &npz(&arrays, true))).unwrap();
        assert_eq!(emulator.labels()[1].name, "label1");
        assert_eq!(
            (emulator.labels()[0].mean, emulator.labels()[0].std),
            (5500.0, 3000.0)
        );
        assert_eq!(emulator.outside(&[0.0, 0.0]), f64::NEG_INFINITY);
        let rows = emulator.templates(&[5800.0, 2.0, 5800.0, 2.0]);
        assert_eq!(rows.len(), 8);
        for (row, expected) in rows.iter().zip(expected.iter().cycle()) {
            assert!((f64::from(*row) - expected).abs() < 1e-6);
        }
        assert!(matches!(
            emulator.clone().with_wavelength(vec![1.0; 3]),
            Err(Error::ShapeMismatch { .. })
        ));
        let unsorted = emulator.clone().with_wavelength(vec![1.0, 2.0, 2.0, 3.0]);
        assert!(matches!(
            unsorted,
            Err(Error::BadWavelength { index: 2, .. })
        ));
        assert!(
            emulator
                .clone()
                .with_label_names(&["a".into(), "a".into()])
                .is_err()
        );
        assert!(emulator.with_label_names(&["a".into()]).is_err());
    }
}

/// The Payne's files name no activation. For files that name one, another one is refused.
#[test]
fn an_activation_can_be_set_only_if_the_file_names_none() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str, bytes: &[u8]| Emulator::open(file(folder.path(), name, bytes)).unwrap();
    let assumed = open("payne.npz", &npz(&payne_arrays(f32s), false));
    assert!(assumed.assumes_activation() && assumed.activation() == Activation::LeakyRelu);
    let named = assumed
        .clone()
        .with_activation(Activation::Sigmoid)
        .unwrap();
    assert!(!named.assumes_activation() && named.activation() == Activation::Sigmoid);
    let sigmoid = |x: Vec<f64>| {
        x.into_iter()
            .map(|x| 1.0 / (1.0 + (-x).exp()))
            .collect::<Vec<_>>()
    };
    let h = sigmoid(apply_layer(&ramp(6), &ramp(3), &[0.1, -0.25]));
    let h = sigmoid(apply_layer(&ramp(6), &ramp(2), &h));
    for (flux, expected) in
        named
            .templates(&[5800.0, 2.0])
            .iter()
            .zip(apply_layer(&ramp(8), &ramp(4), &h))
    {
        assert!((f64::from(*flux) - expected).abs() < 1e-6);
    }
    assert!(
        assumed
            .with_activation(Activation::Identity)
            .unwrap_err()
            .to_string()
            .contains("identity is not an activation")
    );
    let native = open(
        "n.safetensors",
        &native_bytes(&DESCRIPTION.replace("ACT", "silu"), |_| ()),
    );
    assert!(
        !native.assumes_activation() && native.clone().with_activation(Activation::Silu).is_ok()
    );
    let refused = native
        .with_activation(Activation::Tanh)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("its activation is silu, not tanh"),
        "{refused}"
    );
}

#[test]
fn per_pixel_networks_in_fortran_order_are_read() {
    let folder = tempfile::tempdir().unwrap();
    // 2 pixels, 3 hidden units, 2 labels; w_array_0[p, h, l] is stored with p fastest.
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
    let row_major = Emulator::open(file(
        folder.path(),
        "c.npz",
        &npz(&arrays(f32s(&[2, 3, 2], &w0)), false),
    ))
    .unwrap();
    let column_major = Emulator::open(file(
        folder.path(),
        "f.npz",
        &npz(&arrays(raw_npy(header, &le32(&fortran))), false),
    ))
    .unwrap();
    assert_eq!(
        row_major.templates(&[0.9, 0.2]),
        column_major.templates(&[0.9, 0.2])
    );
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let h: Vec<f64> = apply_layer(&w0[..6], &ramp(3), &[0.4, -0.3])
        .into_iter()
        .map(sigmoid)
        .collect();
    let expected = apply_layer(&ramp(3), &ramp(1), &h)[0];
    assert!((f64::from(row_major.templates(&[0.9, 0.2])[0]) - expected).abs() < 1e-6);
}

pub const DESCRIPTION: &str = r#"{"version": 1, "activation": "ACT", "output": "exp", "clip": 2.0, "hull": [[1]],
    "labels": [{"name": "teff", "unit": "K", "transform": "log10", "mean": 3.7, "std": 0.1, "min": 4000, "max": 7000},
               {"name": "logg", "unit": "dex", "transform": "identity", "mean": 3, "std": 1, "min": 1, "max": 5}]}"#;

/// Returns eight wavelengths, uniform in ln λ.
pub fn log_grid() -> [f64; 8] {
    std::array::from_fn(|j| 4000.0 * (2.5e-4 * j as f64).exp())
}

pub type Tensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

/// Returns a native file with 2 labels, a hidden layer of 3 with batch norm, and 8 pixels, after a change of its
/// tensors.
pub fn native_bytes(description: &str, change: impl Fn(&mut Vec<Tensor>)) -> Vec<u8> {
    let mut tensors = vec![
        ("layer.0.weight", Dtype::F32, vec![3, 2], le32(&ramp(6))),
        ("layer.0.bias", Dtype::F32, vec![3], le32(&ramp(3))),
        ("layer.0.scale", Dtype::F32, vec![3], le32(&ramp(3))),
        ("layer.0.offset", Dtype::F32, vec![3], le32(&ramp(3))),
        ("layer.1.weight", Dtype::F64, vec![8, 3], le64(&[0.5; 24])),
        ("layer.1.bias", Dtype::F32, vec![8], le32(&ramp(8))),
        (
            "hull.0",
            Dtype::F64,
            vec![2, 2],
            le64(&[1.0, -2.0, -1.0, -2.0]),
        ),
        ("wavelength", Dtype::F64, vec![8], le64(&log_grid())),
    ];
    change(&mut tensors);
    let views = tensors
        .iter()
        .map(|(n, d, s, b)| (*n, TensorView::new(*d, s.clone(), b).unwrap()));
    serialize(
        views,
        Some(
            [("popfit".to_string(), description.to_string())]
                .into_iter()
                .collect(),
        ),
    )
    .unwrap()
}

#[test]
fn native_networks_evaluate_each_activation_and_batch_norm() {
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
        let bytes = native_bytes(&DESCRIPTION.replace("ACT", name), |_| ());
        let emulator = Emulator::open(file(folder.path(), "n.safetensors", &bytes)).unwrap();
        let z = emulator.scaled(&[5500.0, 4.5]);
        assert!((z[0] - (5500f64.log10() - 3.7) / 0.1).abs() < 1e-12 && z[1] == 1.5);
        assert_eq!(emulator.outside(&z), -0.5);
        let h = apply_layer(&ramp(6), &ramp(3), &z)
            .into_iter()
            .map(function);
        let h: Vec<f64> = h
            .zip(ramp(3))
            .map(|(h, s)| h * f64::from(s) + f64::from(s))
            .collect();
        let expected = apply_layer(&[0.5; 24], &ramp(8), &h);
        for (flux, x) in emulator.templates(&[5500.0, 4.5]).iter().zip(expected) {
            assert!(
                (f64::from(*flux) / x.clamp(-2.0, 2.0).exp() - 1.0).abs() < 1e-5,
                "{name}"
            );
        }
    }
    let emulator = Emulator::open(folder.path().join("n.safetensors")).unwrap();
    assert_eq!(emulator.templates(&[]), Vec::<f32>::new());
}

#[test]
fn invalid_networks_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let description = DESCRIPTION.replace("ACT", "silu");
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
        assert!(
            matches!(
                open(&native_bytes(&description.replace(from, to), |_| ())),
                Err(Error::Format { .. })
            ),
            "{to}"
        );
    }
    let changes: [fn(&mut Vec<Tensor>); 7] = [
        |t| t[0].3 = le32(&[f32::NAN; 6]),
        |t| t[4].3 = le64(&[1e300; 24]),
        |t| t[0] = ("layer.0.weight", Dtype::F32, vec![2, 3], le32(&ramp(6))),
        |t| drop(t.remove(1)),
        |t| drop(t.remove(2)),
        |t| t[4].0 = "layer.2.weight",
        |t| t[7] = ("wavelength", Dtype::F64, vec![3], le64(&[1.0, 2.0, 3.0])),
    ];
    for (k, change) in changes.into_iter().enumerate() {
        assert!(
            matches!(
                open(&native_bytes(&description, change)),
                Err(Error::Format { .. })
            ),
            "change {k}"
        );
    }
    let unsorted = native_bytes(&description, |t| {
        t[7].3 = le64(&[1.0, 3.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    });
    assert!(matches!(
        open(&unsorted),
        Err(Error::BadWavelength { index: 2, .. })
    ));
    let mut claim = native_bytes(&description, |_| ());
    claim[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(open(&claim), Err(Error::Format { .. })));
    assert!(matches!(open(b""), Err(Error::Format { .. })));
    assert!(matches!(
        Emulator::open(folder.path().join("none")),
        Err(Error::Io { .. })
    ));
}

/// Scale and offset are applied after the output function, in first guesses and on devices.
#[test]
fn scale_and_offset_of_the_output_layer_follow_its_function() {
    let description = r#"{"version":1,"activation":"tanh","output":"exp","labels":[{"name":"a","transform":"identity","mean":0.0,
        "std":1.0,"min":-1.0,"max":1.0}],"medium":"vacuum","grid":"log"}"#;
    let pixels = 24_usize;
    let wavelength: Vec<f64> = (0..pixels)
        .map(|j| 5000.0 * (1e-4 * j as f64).exp())
        .collect();
    let weight: Vec<f32> = (0..pixels).map(|j| 0.3 * (0.7 * j as f32).sin()).collect();
    let bytes = [
        le64(&wavelength),
        le32(&weight),
        le32(&vec![0.0; pixels]),
        le32(&vec![2.0; pixels]),
        le32(&vec![0.5; pixels]),
    ];
    let shapes = [
        vec![pixels],
        vec![pixels, 1],
        vec![pixels],
        vec![pixels],
        vec![pixels],
    ];
    let names = [
        "wavelength",
        "layer.0.weight",
        "layer.0.bias",
        "layer.0.scale",
        "layer.0.offset",
    ];
    let views = names
        .iter()
        .zip(shapes)
        .zip(&bytes)
        .map(|((name, shape), bytes)| {
            let kind = if *name == "wavelength" {
                Dtype::F64
            } else {
                Dtype::F32
            };
            (*name, TensorView::new(kind, shape, bytes).unwrap())
        });
    let file = serialize(
        views,
        Some(
            [("popfit".to_string(), description.to_string())]
                .into_iter()
                .collect(),
        ),
    )
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let emulator = Emulator::open(popfit_testing::file(
        folder.path(),
        "net.safetensors",
        &file,
    ))
    .unwrap();
    let expected: Vec<f32> = weight.iter().map(|w| 2.0 * (0.4 * w).exp() + 0.5).collect();
    for (flux, expected) in emulator.templates(&[0.4]).iter().zip(&expected) {
        assert!((flux - expected).abs() < 1e-5, "{flux} {expected}");
    }
    let flux: Vec<f64> = expected.iter().map(|f| f64::from(*f)).collect();
    let spectra = Spectra::from_arrays(wavelength, flux, vec![1e4; pixels], None, None).unwrap();
    let model = popfit::SpectralModel::builder()
        .arm("", emulator)
        .continuum(popfit::Continuum::none())
        .build()
        .unwrap();
    for device in popfit_testing::fits::devices() {
        let fitter = popfit::SpectralFitter::new(model.clone(), device);
        let row = fitter.fit(&spectra).unwrap().row(0);
        assert!(
            (row.parameters[0] - 0.4).abs() < 1e-3 && row.chi2 < 1e-2,
            "{row:?}"
        );
    }
}

/// Names and units appear in model files, tables and messages.
#[test]
fn names_with_control_characters_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        (
            "K\\n[labels.logg]\\nprior = { mean = 1.0, sigma = 0.0001 }",
            "has the character '\\n'",
        ),
        ("\\u001b[2K", "has the character '\\u{1b}'"),
        (
            &"a".repeat(65_536),
            "has 65536 characters, more than the 64 of a name",
        ),
    ];
    for (k, (name, fault)) in names.into_iter().enumerate() {
        for key in ["name", "unit"] {
            let description = DESCRIPTION.replace("ACT", "silu");
            let before = format!("\"{key}\": \"");
            let start = description
                .find(&before)
                .unwrap_or_else(|| panic!("no {key} in {description}"))
                + before.len();
            let end = start + description[start..].find('"').unwrap();
            let description = format!("{}{name}{}", &description[..start], &description[end..]);
            let bytes = native_bytes(&description, |_| ());
            let error = Emulator::open(file(folder.path(), &format!("{k}{key}"), &bytes))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(fault) && !error.contains('\u{1b}') && error.len() < 500,
                "{error}"
            );
        }
    }
}
