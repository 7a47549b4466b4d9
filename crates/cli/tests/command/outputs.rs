//! The command's outputs: which files it replaces, which exit code a run without a fit has, and what becomes of a
//! standard output that cannot be written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use popfit_testing::fits_bytes::{LARGE_ID, desi};
use popfit_testing::tiny::{linear_layer, network_file, wave};
use popfit_testing::{file, message};
use tempfile::TempDir;

fn data(name: &str) -> String {
    popfit_testing::demo_file(name).display().to_string()
}

/// A folder, in which the program runs.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_popfit"));
        command.current_dir(self.0.path()).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// `popfit fit` of the demo's spectra with one start.
    fn fit(&self, more: &[&str]) -> Output {
        let (model, spectra) = (data("model.toml"), data("spectra.npz"));
        self.run(
            &[
                &[
                    "fit", &model, &spectra, "--device", "cpu", "--starts", "1", "--quiet",
                ],
                more,
            ]
            .concat(),
        )
    }

    #[track_caller]
    fn succeeds(&self, output: &Output) {
        assert_eq!(output.status.code(), Some(0), "{}", message(output));
    }

    /// Files and their contents.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let files = entries.filter(|path| path.is_file());
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        files
            .map(|path| (name(&path), std::fs::read(&path).unwrap()))
            .collect()
    }
}

/// Every command keeps and names an output that exists, of every kind, unless `--overwrite` is given.
#[test]
fn a_file_that_exists_is_replaced_on_request_only() {
    const OLD: &[u8] = b"an afternoon's work";
    let place = Place::new();
    place.succeeds(&place.fit(&["-o", "table.parquet"]));
    let (model, spectra) = (data("model.toml"), data("spectra.npz"));
    let fit = [
        "fit", &model, &spectra, "--device", "cpu", "--starts", "1", "--quiet",
    ];
    let cases: [(&[&str], &[&str], &str); 10] = [
        (&fit, &["-o", "a.csv"], "a.csv"),
        (&fit, &["-o", "b.fits", "--format", "rvtab"], "b_rvmod.fits"),
        (&fit, &["-o", "c.parquet", "--report", "."], "index.html"),
        (&fit, &["-o", "f.csv", "--models", "f.fits"], "f.fits"),
        (&fit, &["-o", "d.csv", "--profile"], "d.profile.json"),
        (&fit, &["-o", "e.csv", "--profile"], "e.trace.json"),
        (&["report", "table.parquet"], &[], "table_report.html"),
        (
            &["report", "table.parquet"],
            &["-o", "page.html"],
            "page.html",
        ),
        (
            &["compare", "table.parquet", "table.parquet"],
            &["--plot", "plot.svg"],
            "plot.svg",
        ),
        (
            &["import", "rvspecfit"],
            &["--script", "import.py"],
            "import.py",
        ),
    ];
    for (command, more, name) in cases {
        file(place.0.path(), name, OLD);
        let before = place.files();
        let refused = place.run(&[command, more].concat());
        assert_eq!(
            refused.status.code(),
            Some(2),
            "{name}: {}",
            message(&refused)
        );
        let said = message(&refused);
        assert!(
            said.contains(&format!("{name}: this file exists already"))
                && said.contains("--overwrite"),
            "{name}: {said}"
        );
        assert!(refused.stdout.is_empty(), "{name}: before anything is read");
        assert_eq!(place.files(), before, "{name}");
        place.succeeds(&place.run(&[command, more, &["--overwrite"]].concat()));
        assert!(std::fs::read(place.path(name)).unwrap() != OLD, "{name}");
    }
}

/// Every command says in plain words which folder is missing, and what is a file or a folder and should not be.
#[test]
fn places_that_cannot_be_written_or_read_are_told_in_plain_words() {
    let place = Place::new();
    file(place.0.path(), "file", b"no folder");
    std::fs::create_dir(place.0.path().join("folder")).unwrap();
    let (model, spectra) = (data("model.toml"), data("spectra.npz"));
    let fit = ["fit", &model, &spectra, "--device", "cpu", "-o"];
    let at = |more: &[&str]| Path::new(more[0]).join(more[1]).display().to_string();
    let (below, page) = (at(&["file", "x.csv"]), at(&["file", "page"]));
    let missing = at(&["gone", "x.csv"]);
    let cases: [(&[&str], &str); 10] = [
        (
            &[&fit[..], &[&missing]].concat(),
            "x.csv: cannot be written: the folder gone does not exist",
        ),
        (
            &[&fit[..], &[&below]].concat(),
            "x.csv: cannot be written: file is a file, not a folder",
        ),
        (
            &[&fit[..], &["x.csv", "--report", &page]].concat(),
            "page: file is a file, not a folder",
        ),
        (
            &["fit", &model, "folder", "-o", "x.csv"],
            "folder: this is a folder, not a file",
        ),
        (
            &["fit", "gone.toml", "folder", "-o", "x.csv"],
            "gone.toml: this file does not exist",
        ),
        (
            &["check", &model, "gone.npz"],
            "gone.npz: this file does not exist",
        ),
        (&["man", "file"], "file: this is a file, not a folder"),
        (
            &["demo", "--out", "file"],
            "file: this is a file, not a folder",
        ),
        (
            &["schema", "-o", "folder"],
            "folder: is a folder, not a file",
        ),
        (
            &["report", "gone.parquet"],
            "gone.parquet: this file does not exist",
        ),
    ];
    for (arguments, words) in cases {
        let refused = place.run(arguments);
        let said = message(&refused);
        assert!(
            refused.status.code() == Some(2) && said.contains(words),
            "{arguments:?}: {said}"
        );
        assert!(!said.contains("os error"), "{arguments:?}: {said}");
    }
    let written = place.run(&["schema", "-o", "schema.json"]);
    assert_eq!(
        String::from_utf8_lossy(&written.stdout),
        "wrote schema.json\n"
    );
}

/// A name that is taken is told before the model, which is not there, is looked for.
#[test]
fn names_are_looked_at_first() {
    let place = Place::new();
    file(place.0.path(), "out.csv", b"old");
    let output = place.run(&["fit", "no.toml", "no.npz", "-o", "out.csv"]);
    assert_eq!(output.status.code(), Some(2), "{}", message(&output));
    assert!(
        message(&output).contains("out.csv: this file exists already"),
        "{}",
        message(&output)
    );
    assert_eq!(
        place.files(),
        BTreeMap::from([("out.csv".to_string(), b"old".to_vec())])
    );
}

/// A run that has ended has nothing to resume; its table stays.
#[test]
fn a_finished_run_is_not_resumed() {
    let place = Place::new();
    place.succeeds(&place.fit(&["-o", "out.csv", "--resume"]));
    let before = place.files();
    let again = place.fit(&["-o", "out.csv", "--resume"]);
    assert_eq!(again.status.code(), Some(2), "{}", message(&again));
    for words in ["out.csv: there is nothing to resume", "--overwrite"] {
        assert!(
            message(&again).contains(words),
            "{words}: {}",
            message(&again)
        );
    }
    assert_eq!(place.files(), before);
    place.succeeds(&place.fit(&["-o", "out.csv", "--resume", "--overwrite"]));
    assert_eq!(place.files(), before, "the same fits");
}

/// Its own files are known by their checksums.
#[test]
fn a_demo_replaces_what_a_demo_wrote() {
    let place = Place::new();
    let demo = || place.run(&["demo", "--device", "cpu", "--out", "."]);
    place.succeeds(&demo());
    let first = place.files();
    let results = [
        "demo.sha256",
        "report.html",
        "results.csv",
        "results.parquet",
        "spectrum.svg",
    ];
    let data = [
        "emulator.safetensors",
        "model.toml",
        "spectra.npz",
        "truth.npz",
    ];
    let mut all = [&results[..], &data[..]].concat();
    all.sort();
    assert_eq!(first.keys().collect::<Vec<_>>(), all);
    place.succeeds(&demo());
    assert_eq!(place.files(), first);
    for name in all.iter().copied() {
        file(place.0.path(), name, b"mine");
        let before = place.files();
        let refused = demo();
        assert!(
            refused.status.code() == Some(2) && refused.stdout.is_empty(),
            "{name}: {}",
            message(&refused)
        );
        let said = message(&refused);
        assert!(
            said.contains(&format!("{name}: popfit demo did not write this file"))
                && said.contains("--out"),
            "{name}: {said}"
        );
        assert_eq!(place.files(), before, "{name}");
        file(place.0.path(), name, &first[name]);
    }
    // without a list nobody knows whose they are
    std::fs::remove_file(place.path("demo.sha256")).unwrap();
    assert_eq!(demo().status.code(), Some(2));
    for name in all.into_iter().filter(|name| *name != "demo.sha256") {
        std::fs::remove_file(place.path(name)).unwrap();
    }
    place.succeeds(&demo());
    assert_eq!(place.files(), first);
}

/// With two labels, on the pixels of the small DESI file.
fn survey() -> Place {
    let place = Place::new();
    file(
        place.0.path(),
        "net.safetensors",
        &network_file(&["a", "b"], "relu", &[linear_layer(2, wave)]),
    );
    file(place.0.path(), "coadd.fits", &desi().0);
    let arm =
        "[[arm]]\nname = \"b\"\nemulator = \"net.safetensors\"\n[continuum]\nkind = \"none\"\n";
    file(place.0.path(), "model.toml", arm.as_bytes());
    place
}

#[test]
fn ids_that_nobody_has_are_exit_code_three() {
    let place = survey();
    let fit = |ids: &str, more: &[&str]| {
        let fit = [
            "fit",
            "model.toml",
            "coadd.fits",
            "--device",
            "cpu",
            "-o",
            "out.csv",
            "--target-id",
            ids,
        ];
        place.run(&[&fit, more].concat())
    };
    file(place.0.path(), "out.csv", b"old");
    let ids = format!("{LARGE_ID},7");
    for (ids, more) in [("5,6", &[][..]), (ids.as_str(), &["--objtype", "SKY"])] {
        let output = fit(ids, &[more, &["--overwrite"]].concat());
        assert_eq!(output.status.code(), Some(3), "{}", message(&output));
        let said = message(&output);
        assert!(
            said.contains("none of the 2 TARGETIDs") && said.contains("nothing is written"),
            "{said}"
        );
        assert_eq!(std::fs::read(place.path("out.csv")).unwrap(), b"old");
    }
    let output = fit(&ids, &["--overwrite"]);
    assert!(output.status.code() != Some(2), "{}", message(&output));
    assert_eq!(
        std::fs::read_to_string(place.path("out.csv"))
            .unwrap()
            .lines()
            .count(),
        2
    );
    // an empty selection by other means is what was asked for
    let none = place.run(&[
        "fit",
        "model.toml",
        "coadd.fits",
        "--objtype",
        "BAD",
        "-o",
        "none.csv",
        "--device",
        "cpu",
    ]);
    place.succeeds(&none);
}

/// The table is written, and says of each spectrum why; a single fit that converges makes it a success.
#[test]
fn a_run_without_a_fit_is_exit_code_three() {
    let place = survey();
    let fit = |out: &str, mask: &str| {
        let arm =
            "[[arm]]\nname = \"b\"\nemulator = \"net.safetensors\"\n[continuum]\nkind = \"none\"\n";
        file(
            place.0.path(),
            "model.toml",
            format!("{arm}[spectra]\nmask = {mask}\n").as_bytes(),
        );
        place.run(&[
            "fit",
            "model.toml",
            "coadd.fits",
            "-o",
            out,
            "--device",
            "cpu",
            "--quiet",
        ])
    };
    for out in ["out.csv", "out.parquet", "out.fits"] {
        let output = fit(out, "[[4000.0, 6000.0]]");
        assert_eq!(output.status.code(), Some(3), "{}", message(&output));
        let said = format!(
            "popfit: no fit converged (4 no_data): {out} has a row for every spectrum, which says why\n"
        );
        assert_eq!(message(&output), said);
        let rows = match out {
            "out.csv" => {
                std::fs::read_to_string(place.path(out))
                    .unwrap()
                    .lines()
                    .count()
                    - 1
            }
            _ => popfit::FitTable::read(place.path(out)).unwrap().0.len(),
        };
        assert_eq!(rows, 4, "{out}");
    }
    assert!(
        place.files().keys().all(|name| !name.contains("journal")),
        "it has come to its end"
    );
}

/// Commands that print to a full disk write their files, and do not end with success.
#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_is_told() {
    let place = Place::new();
    place.succeeds(&place.fit(&["-o", "table.parquet"]));
    let answer = format!("#!/bin/sh\necho '{}'\n", data("emulator.safetensors"));
    let mut write = Command::new("sh");
    write
        .args(["-c", r#"printf '%s' "$1" >"$0" && chmod +x "$0""#])
        .arg(place.path("python"))
        .arg(answer);
    assert!(write.status().unwrap().success());
    let model = data("model.toml");
    let cases: [&[&str]; 10] = [
        &["--version"],
        &["--help"],
        &["help", "fit"],
        &["devices"],
        &["check", &model],
        &["report", "table.parquet"],
        &["compare", "table.parquet", "table.parquet"],
        &[
            "compare",
            "table.parquet",
            "table.parquet",
            "--share",
            "1",
            "--plot",
            "plot.svg",
        ],
        &["import", "rvspecfit", "library", "--python", "./python"],
        &["demo", "--device", "cpu", "--out", "."],
    ];
    for arguments in cases {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = place.command(arguments).stdout(full).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(1),
            "{arguments:?}: {}",
            message(&output)
        );
        let said =
            "popfit: standard output could not be written: No space left on device (os error 28)\n";
        assert!(
            message(&output).ends_with(said),
            "{arguments:?}: {}",
            message(&output)
        );
        // nobody who reads on
        let mut child = place.command(&[arguments, overwriting(arguments)].concat());
        let mut child = child
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said: Vec<String> = message(&output).lines().map(str::to_string).collect();
        let said: Vec<&String> = said
            .iter()
            .filter(|line| !line.contains("XDG_RUNTIME_DIR"))
            .collect();
        assert!(
            output.status.code() == Some(0) && said.is_empty(),
            "{arguments:?}: {said:?}"
        );
    }
    for name in [
        "table_report.html",
        "plot.svg",
        "results.csv",
        "results.parquet",
        "spectrum.svg",
    ] {
        assert!(place.path(name).is_file(), "{name}");
    }
}

/// Returns the arguments that a second run needs to replace its outputs.
#[cfg(target_os = "linux")]
fn overwriting(arguments: &[&str]) -> &'static [&'static str] {
    if arguments[0] == "report" || arguments.contains(&"--plot") {
        &["--overwrite"]
    } else {
        &[]
    }
}
