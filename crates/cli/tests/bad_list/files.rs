//! A fault of a file or a model is exit code 2: the message names it, and nothing is written.

use std::process::Command;

use crate::setup::{Arrays, Place, SPECTRA};
use popfit_testing::tiny::{PIXELS, wavelength};
use popfit_testing::{f64s, file, npz, raw_npy};

#[test]
fn starts_and_bounds_of_the_model_file() {
    let cases: [(&str, &[&str]); 11] = [
        (
            "[labels.a]\nstart = 11.0\n",
            &["a starts at 11, outside its bounds -10 to 10"],
        ),
        ("[labels.a]\nstart = nan\n", &["labels.a.start", "line 8"]),
        (
            "[labels.a]\nbounds = [nan, 1.0]\n",
            &["is not an interval", "labels.a.bounds", "line 8", "NaN"],
        ),
        (
            "[labels.a]\nbounds = [0.0, inf]\n",
            &["is not an interval", "labels.a.bounds"],
        ),
        (
            "[labels.a]\nbounds = [2.0, 1.0]\n",
            &["is not an interval", "2 to 1"],
        ),
        (
            "[velocity]\nrange = [nan, 1.0]\n",
            &["is not an interval", "velocity.range"],
        ),
        (
            "[velocity]\nrange = [-40000, 1.0]\n",
            &["velocity range -40000 to 1"],
        ),
        (
            "[labels.a]\nfixed = 1.0\nbounds = [0, 1]\n",
            &["`labels.a.fixed` excludes `bounds`"],
        ),
        (
            "[labels.c]\nfixed = 1.0\n",
            &["no emulator has a label `c`", "known: a, b"],
        ),
        (
            "[labels.a]\nfixed = 1\n[labels.b]\nfixed = 1\n",
            &["nothing is free"],
        ),
        (
            "[continuum]\nkind = \"rbf\"\nterms = 3\n",
            &["continuum.terms", "4 to 32"],
        ),
    ];
    for (model, words) in cases {
        Place::new(model)
            .fit(&Arrays::good().bytes(), &[])
            .is_refused(&[&["model.toml"], words].concat());
    }
}

/// Damages a wavelength grid.
type Spoil = fn(&mut [f64]);

#[test]
fn wavelengths_of_the_file() {
    let cases: [(Spoil, &[&str]); 4] = [
        (
            |w| w.swap(10, 11),
            &["wavelength 11 (counted from 0)", "b_wavelength"],
        ),
        (|w| w[5] = w[4], &["wavelength 5 (counted from 0)"]),
        (
            |w| w[5] = f64::NAN,
            &["wavelength 5 (counted from 0)", "NaN"],
        ),
        (
            |w| w.iter_mut().for_each(|w| *w += 1000.0),
            &["share no wavelength", "arm b", "the data cover 6000.00"],
        ),
    ];
    let place = Place::new("");
    for (spoil, words) in cases {
        let mut arrays = Arrays::good();
        spoil(&mut arrays.wavelength);
        place
            .fit(&arrays.bytes(), &[])
            .is_refused(&[&["spectra.npz"], words].concat());
        // a later file is looked at before the first fit
        file(place.path(), "good.npz", &Arrays::good().bytes());
        place
            .run(&["good.npz", "spectra.npz"], &[])
            .is_refused(&[&["spectra.npz"], words].concat());
    }
    // a grid in another unit is named as what it seems to be
    let units: [(Spoil, &str); 4] = [
        (
            |w| w.iter_mut().for_each(|w| *w /= 10.0),
            "the data's wavelengths seem to be in nm",
        ),
        (
            |w| w.iter_mut().for_each(|w| *w /= 1e4),
            "the data's wavelengths seem to be in µm",
        ),
        (
            |w| w.iter_mut().for_each(|w| *w = w.log10()),
            "the data's wavelengths seem to be log10 of the wavelength",
        ),
        (
            |w| w.iter_mut().for_each(|w| *w = w.ln()),
            "the data's wavelengths seem to be ln of the wavelength",
        ),
    ];
    for (spoil, words) in units {
        let mut arrays = Arrays::good();
        spoil(&mut arrays.wavelength);
        place
            .fit(&arrays.bytes(), &[])
            .is_refused(&["spectra.npz", "share no wavelength", words]);
    }
    let place = Place::new("");
    place.model("[spectra]\nmask = [[100, 200]]\n");
    let text = std::fs::read_to_string(place.path().join("model.toml")).unwrap();
    let ranged = text.replace("[continuum]", "range = [6000.0, 7000.0]\n[continuum]");
    file(place.path(), "model.toml", ranged.as_bytes());
    let words = [
        "share no wavelength",
        "the data cover 5000.00-5031",
        "the arm's range is 6000.00-7000.00",
    ];
    place.fit(&Arrays::good().bytes(), &[]).is_refused(&words);
}

#[test]
fn arrays_that_do_not_belong_together() {
    let place = Place::new("");
    let n = SPECTRA * PIXELS;
    let good = [
        ("b_wavelength", f64s(&[PIXELS], &wavelength())),
        ("b_flux", f64s(&[SPECTRA, PIXELS], &vec![1.0; n])),
        ("b_ivar", f64s(&[SPECTRA, PIXELS], &vec![1.0; n])),
    ];
    let cases: [(usize, Vec<u8>, &str); 4] = [
        (
            0,
            f64s(&[PIXELS - 1], &wavelength()[1..]),
            "b_wavelength has the shape (63,)",
        ),
        (
            2,
            f64s(&[SPECTRA, PIXELS - 1], &vec![1.0; n - SPECTRA]),
            "b_ivar has the shape (5, 63), flux (5, 64)",
        ),
        (
            2,
            f64s(&[SPECTRA - 1, PIXELS], &vec![1.0; n - PIXELS]),
            "b_ivar has the shape (4, 64)",
        ),
        (
            1,
            f64s(&[SPECTRA, 1, PIXELS], &vec![1.0; n]),
            "b_flux has the shape (5, 1, 64)",
        ),
    ];
    for (k, array, words) in cases {
        let mut arrays = good.clone();
        arrays[k].1 = array;
        place
            .fit(&npz(&arrays, false), &[])
            .is_refused(&["spectra.npz", words]);
    }
    // the arrays of another arm, and of none
    for (prefix, words) in [
        ("r_", "there are arms: r"),
        ("", "the arrays carry no arm's name"),
    ] {
        let other = good
            .clone()
            .map(|(name, array)| (name.replace("b_", prefix), array));
        let other: Vec<_> = other
            .iter()
            .map(|(name, array)| (name.as_str(), array.clone()))
            .collect();
        let two = Place::new("");
        let text = std::fs::read_to_string(two.path().join("model.toml")).unwrap();
        let arms = format!("[[arm]]\nname = \"z\"\nemulator = \"net.safetensors\"\n{text}");
        file(two.path(), "model.toml", arms.as_bytes());
        two.fit(&npz(&other, false), &[])
            .is_refused(&["spectra.npz", "arm \"z\"", words]);
    }
}

#[test]
fn damaged_files() {
    let place = Place::new("");
    let whole = Arrays::good().bytes();
    for offset in [
        0,
        1,
        30,
        200,
        whole.len() / 2,
        whole.len() - 40,
        whole.len() - 1,
    ] {
        place
            .fit(&whole[..offset], &[])
            .is_refused(&["spectra.npz"]);
        let mut bent = whole.clone();
        bent[offset.min(whole.len() / 2)] ^= 0x40;
        place.fit(&bent, &[]).is_refused(&["spectra.npz"]);
    }
    let header = |text: &str| raw_npy(text, &[0; 64]);
    let cases = [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 64), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 64), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (18446744073709551615, 2), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1, 8), }",
    ];
    for text in cases {
        let arrays = [
            ("b_wavelength", f64s(&[PIXELS], &wavelength())),
            ("b_flux", header(text)),
        ];
        place
            .fit(&npz(&arrays, false), &[])
            .is_refused(&["spectra.npz", "b_flux"]);
    }
    let network = std::fs::read(place.path().join("net.safetensors")).unwrap();
    for offset in [0, 7, 100, network.len() - 1] {
        file(place.path(), "net.safetensors", &network[..offset]);
        place.fit(&whole, &[]).is_refused(&["net.safetensors"]);
    }
}

#[test]
fn arguments_that_cannot_work() {
    let place = Place::new("");
    let bytes = Arrays::good().bytes();
    place
        .fit(&bytes, &["--device", "gpu:no such adapter"])
        .is_refused(&["no GPU to use", "no such adapter"]);
    place
        .fit(&bytes, &["--memory", "1K"])
        .is_refused(&["--memory 1024", "too little"]);
    place
        .fit(&bytes, &["--starts", "65"])
        .is_refused(&["--starts", "64"]);
    let fit = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_popfit"));
        let output = command
            .current_dir(place.path())
            .arg("fit")
            .args(arguments)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, message) = fit(&[
        "model.toml",
        "spectra.npz",
        "-o",
        "missing/out.csv",
        "--device",
        "cpu",
    ]);
    assert!(
        code == Some(2) && message.contains("missing/out.csv"),
        "{code:?}: {message}"
    );
    let (code, message) = fit(&["spectra.npz", "model.toml", "-o", "out.csv"]);
    assert!(
        code == Some(2) && message.contains("spectra.npz: not a model file (TOML text)"),
        "{code:?}: {message}"
    );
}
