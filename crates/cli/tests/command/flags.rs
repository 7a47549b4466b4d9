//! Lines about frequent flags, at the end of `popfit fit`, in `popfit check` and in the report.

use popfit_testing::{array, bools, demo_file, f64s, file, message, npz};

use super::popfit_in;

/// Returns the demo's spectra as an NPZ file, with flux and ivar changed by `change(pixel, flux, ivar)`.
fn spectra(change: impl Fn(usize, f64, f64) -> (f64, f64)) -> Vec<u8> {
    let source = demo_file("spectra.npz");
    let read = |key: &str| array(&source, key);
    let ((shape, flux), (_, ivar), (grid, wavelength)) =
        (read("flux"), read("ivar"), read("wavelength"));
    let mask: Vec<bool> = read("mask").1.iter().map(|x| *x != 0.0).collect();
    let pairs = flux.iter().zip(&ivar).enumerate();
    let (flux, ivar): (Vec<f64>, Vec<f64>) =
        pairs.map(|(i, (f, w))| change(i % grid[0], *f, *w)).unzip();
    let arrays = [
        ("wavelength", f64s(&grid, &wavelength)),
        ("flux", f64s(&shape, &flux)),
        ("ivar", f64s(&shape, &ivar)),
        ("mask", bools(&shape, &mask)),
    ];
    npz(&arrays, false)
}

/// Returns what `popfit fit` and `popfit check` print, and the report's page.
fn said(spectra: &[u8]) -> [String; 3] {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "spectra.npz", spectra);
    let model = demo_file("model.toml").display().to_string();
    let files = [model.as_str(), "spectra.npz", "--device", "cpu"];
    let fit = popfit_in(
        folder.path(),
        &[&["fit"][..], &files, &["-o", "out.csv", "--report", "page"]].concat(),
    );
    assert_eq!(fit.status.code(), Some(0), "{}", message(&fit));
    let check = popfit_in(folder.path(), &[&["check"][..], &files].concat());
    let page = std::fs::read_to_string(folder.path().join("page/index.html")).unwrap();
    [
        message(&fit),
        String::from_utf8(check.stdout).unwrap(),
        page,
    ]
}

#[test]
fn an_ivar_that_is_sigma_is_asked_about() {
    let texts = said(&spectra(|_, flux, ivar| (flux, ivar.powf(-0.5))));
    for text in texts {
        let line = text
            .lines()
            .find(|line| line.contains("flag 2048 (low χ²)"));
        assert!(
            line.is_some_and(|line| line.contains("Is `ivar` really 1/σ², and not σ or σ²?")),
            "{text}"
        );
    }
}

#[test]
fn cosmic_rays_in_all_rows_are_named() {
    // three pixels of each spectrum
    let texts = said(&spectra(|j, flux, ivar| {
        (
            if (900..903).contains(&j) {
                10.0 * flux
            } else {
                flux
            },
            ivar,
        )
    }));
    for text in texts {
        let line = text
            .lines()
            .find(|line| line.contains("64 of 64 fits have flag 1024 (high χ²)"));
        assert!(
            line.is_some_and(|line| line.contains("cosmic rays")),
            "{text}"
        );
    }
}

#[test]
fn good_spectra_have_no_line() {
    for text in said(&spectra(|_, flux, ivar| (flux, ivar))) {
        assert!(
            !text.contains("fits have flag") && !text.contains("page on flags"),
            "{text}"
        );
    }
}
