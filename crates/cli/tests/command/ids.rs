//! Ids and the model's text survive a table unchanged, in both formats that are read back.

use std::path::Path;

use popfit::{Emulator, FitTable};
use popfit_testing::tiny::{PIXELS, linear_layer, network_file, spectra, wave, wavelength};
use popfit_testing::{f64s, file, message, npy, npz};

use super::popfit_in;

/// Ids that FITS cannot hold as they are: one looks like another's escape, one differs by a space at its end.
const IDS: [&str; 8] = [
    "étoile",
    "\\u{e9}toile",
    "a",
    "a ",
    "tab\there",
    "β Cen",
    "C:\\new",
    "it's",
];

/// Writes a file of eight spectra with these ids, each of a different star.
fn write_spectra(folder: &Path, name: &str, ids: &[&str; 8]) {
    let emulator = Emulator::open(folder.join("net.safetensors")).unwrap();
    let labels: Vec<f64> = (0..8).flat_map(|k| [0.2 * f64::from(k), 0.1]).collect();
    let all = spectra(&emulator, &labels, 0.01);
    let characters = |id: &&str| {
        id.chars()
            .chain(std::iter::repeat('\0'))
            .take(16)
            .collect::<Vec<char>>()
    };
    let texts: Vec<u8> = ids
        .iter()
        .flat_map(characters)
        .flat_map(|c| (c as u32).to_le_bytes())
        .collect();
    let shape = [8, PIXELS];
    let arrays = [
        ("wavelength", f64s(&[PIXELS], &wavelength())),
        ("flux", f64s(&shape, &all.arms[0].flux.to_double())),
        ("ivar", f64s(&shape, &all.arms[0].ivar.to_double())),
        ("id", npy("<U16", &[8], &texts)),
    ];
    file(folder, name, &npz(&arrays, true));
}

#[test]
fn ids_and_models_are_the_same_in_every_table_that_is_read() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    file(
        folder,
        "net.safetensors",
        &network_file(&["a", "b"], "relu", &[linear_layer(2, wave)]),
    );
    // tabs, line ends of Windows, a letter that is not ASCII, a backslash
    let model = "# Modèle \\ \r\n[[arm]]\r\n\tname = \"é\"\r\n\temulator = \"net.safetensors\"\r\n[continuum]\r\n\
        \tkind = \"none\"\r\n";
    file(folder, "model.toml", model.as_bytes());
    write_spectra(folder, "s.npz", &IDS);
    for table in ["a.parquet", "a.fits"] {
        let output = popfit_in(
            folder,
            &["fit", "model.toml", "s.npz", "-o", table, "--device", "cpu"],
        );
        assert_eq!(output.status.code(), Some(0), "{}", message(&output));
        let (rows, metadata) = FitTable::read(folder.join(table)).unwrap();
        let found: Vec<String> = rows.ids().iter().map(ToString::to_string).collect();
        assert_eq!(
            (found, metadata.model.as_str()),
            (IDS.map(String::from).to_vec(), model),
            "{table}"
        );
        let report = popfit_in(
            folder,
            &[
                "report",
                table,
                "--spectra",
                "s.npz",
                "-o",
                &format!("{table}.html"),
            ],
        );
        assert_eq!(
            (report.status.code(), message(&report).as_str()),
            (Some(0), ""),
            "{table}"
        );
    }
    let compared = popfit_in(
        folder,
        &[
            "compare",
            "a.parquet",
            "a.fits",
            "--share",
            "1",
            "--threshold",
            "0",
        ],
    );
    let said = String::from_utf8_lossy(&compared.stdout);
    assert!(
        compared.status.success() && said.contains("8 spectra in both tables, 0 only in A"),
        "{said}"
    );
    assert_eq!(message(&compared), "", "all ids are unique");
}

#[test]
fn ids_that_are_not_unique_are_reported() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    file(
        folder,
        "net.safetensors",
        &network_file(&["a", "b"], "relu", &[linear_layer(2, wave)]),
    );
    file(
        folder,
        "model.toml",
        b"[[arm]]\nname = \"b\"\nemulator = \"net.safetensors\"\n[continuum]\nkind = \"none\"\n",
    );
    write_spectra(folder, "s.npz", &["x", "y", "x", "z", "y", "x", "u", "v"]);
    let output = popfit_in(
        folder,
        &[
            "fit",
            "model.toml",
            "s.npz",
            "-o",
            "a.fits",
            "--device",
            "cpu",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    let compared = popfit_in(folder, &["compare", "a.fits", "a.fits"]);
    let line = "popfit: a.fits: 2 ids occur in several rows, such as x in 3: rows of the same id are paired in order\n";
    assert_eq!(
        (compared.status.code(), message(&compared)),
        (Some(0), line.repeat(2))
    );
}
