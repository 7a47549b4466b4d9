//! `popfit predict`: spectra of given parameters, and what is refused.

use popfit::{Device, Emulator, ModelFile, SpectralFitter};
use popfit_testing::{array, demo_emulator, demo_file, message};

use super::popfit;

const VALUES: [&str; 5] = [
    "velocity=20",
    "teff=5800",
    "logg=4.4",
    "feh=-0.5",
    "alpha=0.1",
];

fn predict(values: &[&str], more: &[&str]) -> std::process::Output {
    let model = demo_file("model.toml");
    popfit(&[&["predict", model.to_str().unwrap()][..], values, more].concat())
}

#[test]
fn a_spectrum_is_printed_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let fitter = SpectralFitter::new(
        ModelFile::open(demo_file("model.toml"))
            .unwrap()
            .build()
            .unwrap(),
        Device::cpu(),
    );
    let expected = fitter
        .predict(&[20.0, 5800.0, 4.4, -0.5, 0.1], None)
        .unwrap()
        .swap_remove(0);

    let mut swapped = VALUES;
    swapped.reverse();
    for values in [VALUES, swapped] {
        let output = predict(&values, &[]);
        assert!(output.status.success(), "{}", message(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("wavelength,flux"));
        for ((line, wavelength), flux) in
            lines.by_ref().zip(&expected.wavelength).zip(&expected.flux)
        {
            assert_eq!(line, format!("{wavelength},{flux}"));
        }
        assert_eq!(
            text.lines().count(),
            1 + Emulator::open(demo_emulator()).unwrap().pixels()
        );
    }

    let path = folder.path().join("star.npz");
    let written = [
        "-o",
        path.to_str().unwrap(),
        "--grid",
        demo_file("spectra.npz").to_str().unwrap(),
    ]
    .map(str::to_owned);
    let written: Vec<&str> = written.iter().map(String::as_str).collect();
    let output = predict(&VALUES, &written);
    assert!(output.status.success(), "{}", message(&output));
    let ((shape, wavelength), (_, flux)) = (array(&path, "wavelength"), array(&path, "flux"));
    assert_eq!((shape, flux.len()), (vec![3741], 3741));
    assert!(
        wavelength[0] == 4002.0 && flux.iter().all(|flux| flux.is_finite()),
        "{}",
        wavelength[0]
    );
    let again = predict(&VALUES, &written);
    assert!(
        again.status.code() == Some(2) && message(&again).contains("--overwrite"),
        "{}",
        message(&again)
    );
}

#[test]
fn values_and_names_are_checked() {
    let cases: [(&[&str], &[&str], &str); 6] = [
        (
            &VALUES[..4],
            &[],
            "give NAME=VALUE for each free parameter; missing: alpha (-0.2 to 0.6)",
        ),
        (
            &["teff"],
            &[],
            "\"teff\" is no NAME=VALUE, such as teff=5800",
        ),
        (&["teff=hot"], &[], "\"teff=hot\" is no NAME=VALUE"),
        (
            &["vsini=3"],
            &[],
            "the model has no free parameter \"vsini\"; it has velocity, teff, logg, feh, alpha",
        ),
        (&["teff=5000", "teff=6000"], &[], "teff is given twice"),
        (
            &VALUES,
            &["-o", "star.txt"],
            "star.txt: give a name that ends in .csv or .npz",
        ),
    ];
    for (values, more, expected) in cases {
        let output = predict(values, more);
        assert_eq!(output.status.code(), Some(2), "{}", message(&output));
        assert!(
            message(&output).contains(expected),
            "{expected}: {}",
            message(&output)
        );
    }
    let cool = [
        "velocity=20",
        "teff=2000",
        "logg=4.4",
        "feh=-0.5",
        "alpha=0.1",
    ];
    assert!(
        message(&predict(&cool, &[]))
            .contains("teff = 2000 is outside the model's bounds, 4000 to 9000")
    );
}
