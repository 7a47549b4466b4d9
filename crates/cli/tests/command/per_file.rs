//! A table for each file: its bytes, its place, what is refused, skipped and reported, and what one bad file costs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use popfit::{Control, Error};
use popfit_cli::{FitFiles, FitFilesSummary, Format, fit_files};
use popfit_testing::{array, demo_file, f64s, i64s, message, npz};

use crate::popfit_in;

/// Files of spectra in a tree, with the numbers of their spectra.
const FILES: [(&str, usize); 4] = [
    ("in/a/one.npz", 5),
    ("in/a/none.npz", 0),
    ("in/b/c/two.npz", 40),
    ("in/b/d/one.npz", 3),
];
/// Options of all runs. Batches are smaller than one file and larger than the others.
const OPTIONS: [&str; 8] = [
    "--device",
    "cpu",
    "--starts",
    "1",
    "--batch",
    "16",
    "--threads",
    "2",
];

/// A folder with the demo's model and files of its spectra.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        for name in ["model.toml", "emulator.safetensors"] {
            std::fs::copy(demo_file(name), tree.path(name)).unwrap();
        }
        let mut first = 0;
        for (file, count) in FILES {
            tree.write_spectra(file, first, count, None);
            first += count;
        }
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes some of the demo's spectra into a file; one of them may have a bad wavelength.
    fn write_spectra(&self, file: &str, first: usize, count: usize, bad: Option<usize>) {
        let ids: Vec<i64> = (first..first + count).map(|id| id as i64).collect();
        let mut arrays = vec![("id", i64s(&ids))];
        for name in ["wavelength", "flux", "ivar"] {
            let (mut shape, mut values) = array(&demo_file("spectra.npz"), name);
            if shape.len() == 2 {
                let pixels = shape[1];
                values = values[first * pixels..(first + count) * pixels].to_vec();
                shape[0] = count;
                if let (Some(row), "flux") = (bad, name) {
                    values[row * pixels + pixels / 2] = f64::NAN;
                }
            }
            arrays.push((name, f64s(&shape, &values)));
        }
        let path = self.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, npz(&arrays, true)).unwrap();
    }

    fn fit(&self, files: &[&str], more: &[&str]) -> Output {
        let arguments = [&["fit", "model.toml"], files, &OPTIONS, more].concat();
        popfit_in(self.0.path(), &arguments)
    }

    /// Fits all files into a table of each in the folder `out`.
    fn fit_all(&self, more: &[&str]) -> Output {
        let files = FILES.map(|(file, _)| file);
        self.fit(&files, &[&["--per-file", "-o", "out"], more].concat())
    }

    #[track_caller]
    fn fit_all_with_success(&self, more: &[&str]) -> String {
        let output = self.fit_all(more);
        assert_eq!(output.status.code(), Some(0), "{}", message(&output));
        message(&output)
    }

    /// Paths and contents of all files below a folder, hidden ones too.
    fn files(&self, folder: &str) -> BTreeMap<String, Vec<u8>> {
        let root = self.path(folder);
        let mut contents = BTreeMap::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(&root).unwrap().display().to_string();
                    contents.insert(name.replace('\\', "/"), std::fs::read(path).unwrap());
                }
            }
        }
        contents
    }

    fn names(&self, folder: &str) -> Vec<String> {
        self.files(folder).into_keys().collect()
    }
}

/// Every format, in a tree as that of the inputs. Best-fit spectra are in a tree of their own.
#[test]
fn each_table_has_the_bytes_of_a_run_over_its_file_alone() {
    let tree = Tree::new();
    let formats: [(&[&str], &str, &str); 4] = [
        (&[], "", "parquet"),
        (&["--format", "csv"], "", "csv"),
        (&["--format", "fits", "--models", "models"], "", "fits"),
        (&["--format", "rvtab"], "rvtab_", "fits"),
    ];
    for (options, prefix, extension) in formats {
        let said = tree.fit_all_with_success(options);
        assert!(
            said.contains("48 spectra: 48 converged") && said.contains("; files: 4 written"),
            "{said}"
        );
        let mut expected = BTreeMap::new();
        let mut models = BTreeMap::new();
        for (file, _) in FILES {
            let input = Path::new(file);
            let stem = input.file_stem().unwrap().to_str().unwrap();
            let below = input.strip_prefix("in").unwrap().parent().unwrap();
            let name = |name: String| below.join(name).display().to_string().replace('\\', "/");
            let table = format!("{prefix}{stem}.{extension}");
            let out = format!("alone/{table}");
            std::fs::create_dir_all(tree.path("alone")).unwrap();
            let mut options = options.to_vec();
            let alone = format!("alone/models_{stem}.fits");
            if let Some(models) = options.iter_mut().find(|word| **word == "models") {
                *models = &alone;
            }
            let output = tree.fit(&[file], &[&["-o", &out], &options[..]].concat());
            assert_eq!(output.status.code(), Some(0), "{}", message(&output));
            expected.insert(name(table), std::fs::read(tree.path(&out)).unwrap());
            if extension == "fits" {
                let of_file = if prefix.is_empty() { "models" } else { "rvmod" };
                let path = format!("alone/{of_file}_{stem}.fits");
                let of_tree = if prefix.is_empty() {
                    &mut models
                } else {
                    &mut expected
                };
                of_tree.insert(
                    name(format!("{of_file}_{stem}.fits")),
                    std::fs::read(tree.path(&path)).unwrap(),
                );
            }
            std::fs::remove_dir_all(tree.path("alone")).unwrap();
        }
        assert_eq!(
            tree.names("out"),
            expected.keys().cloned().collect::<Vec<_>>()
        );
        assert!(tree.files("out") == expected, "{options:?}");
        assert!(tree.files("models") == models, "{options:?}");
        for folder in ["out", "models"] {
            let _ = std::fs::remove_dir_all(tree.path(folder));
        }
    }
    // the root of the tree may be another
    tree.fit_all_with_success(&["--input-root", "."]);
    assert_eq!(
        tree.names("out"),
        [
            "in/a/none.parquet",
            "in/a/one.parquet",
            "in/b/c/two.parquet",
            "in/b/d/one.parquet"
        ]
    );
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_is() {
    let tree = Tree::new();
    std::fs::create_dir_all(tree.path("out/a")).unwrap();
    std::fs::write(tree.path("out/a/one.parquet"), "an afternoon's work").unwrap();
    std::fs::write(tree.path("file"), "no folder").unwrap();
    std::fs::copy(tree.path("in/a/one.npz"), tree.path("in/a/one.fits")).unwrap();
    let two = ["in/a/one.npz", "in/b/c/two.npz"];
    let per_file = ["--per-file", "-o", "out"];
    let cases: [(&[&str], &[&str], &str); 14] = [
        (&two, &per_file, "one.parquet: this file exists already"),
        (&two, &per_file, "--skip-existing keeps the files"),
        (
            &["in/a/one.npz", "in/a/one.fits"],
            &["--per-file", "-o", "new"],
            "in/a/one.npz and in/a/one.fits would have the same output",
        ),
        (
            &["in/a/one.npz", "in/a/one.npz"],
            &["--per-file", "-o", "new"],
            "in/a/one.npz is given more than once",
        ),
        (
            &["in/a/one.fits", "in/b/c/two.npz"],
            &["--per-file", "-o", "in", "--format", "fits", "--overwrite"],
            "in/a/one.fits would be overwritten: it is one of the inputs",
        ),
        (
            &["in/a/one.fits", "in/b/c/two.npz"],
            &[
                "--per-file",
                "-o",
                "in",
                "--format",
                "fits",
                "--skip-existing",
            ],
            "in/a/one.fits would be overwritten: it is one of the inputs",
        ),
        (&two, &["--per-file", "-o", "file"], "writes into a folder"),
        (
            &two,
            &["--per-file", "-o", "x.fits"],
            "writes into a folder",
        ),
        (
            &two,
            &["--per-file", "-o", "new", "--input-root", "in/a"],
            "in/b/c/two.npz is not below",
        ),
        (
            &two,
            &["--per-file", "-o", "new", "--resume"],
            "--skip-existing goes on with the files that are not there yet",
        ),
        (
            &two,
            &["--per-file", "-o", "out", "--skip-existing", "--overwrite"],
            "give one of the two",
        ),
        (
            &two,
            &["--per-file", "-o", "new", "--report", "page"],
            "--report makes a page about one table",
        ),
        (
            &two,
            &["--per-file", "-o", "new", "--profile"],
            "--profile writes its files beside one table",
        ),
        (
            &two,
            &["-o", "x.csv", "--skip-existing"],
            "--skip-existing goes with --per-file",
        ),
    ];
    let before = tree.files(".");
    for (files, options, expected) in cases {
        let output = tree.fit(files, options);
        let said = message(&output);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(expected), "{options:?}: {said}");
        assert!(tree.files(".") == before, "{options:?}");
    }
    // a kind of file without --per-file
    let output = tree.fit(&two, &["-o", "x.csv", "--format", "fits"]);
    assert!(message(&output).contains("must end in .fits"));
    tree.fit_all_with_success(&["--overwrite"]);
    let table = std::fs::read(tree.path("out/a/one.parquet")).unwrap();
    assert!(table.starts_with(b"PAR1"));
}

/// An output that is there is left alone, whatever made it, but a warning says what did. Half of a pair is not there.
#[test]
fn outputs_that_are_there_are_skipped() {
    for format in ["parquet", "fits", "csv", "rvtab"] {
        let tree = Tree::new();
        let options = ["--format", format, "--skip-existing"];
        let said = tree.fit_all_with_success(&options);
        assert!(said.contains("; files: 4 written"), "{said}");
        let whole = tree.files("out");
        // 1. A table is gone.
        let gone = whole.keys().find(|name| name.contains("two.")).unwrap();
        std::fs::remove_file(tree.path("out").join(gone)).unwrap();
        let said = tree.fit_all_with_success(&options);
        assert!(
            said.contains("40 spectra: 40 converged")
                && said.contains("; files: 1 written, 3 skipped"),
            "{said}"
        );
        assert_eq!(
            said.contains("by their names alone"),
            format == "csv",
            "{said}"
        );
        assert!(!said.contains("not made with"), "{said}");
        assert!(tree.files("out") == whole, "{format}");
        // 2. Another model, and a file of another program. Inputs are not read.
        std::fs::write(tree.path("in/b/c/two.npz"), "changed").unwrap();
        let other = if format == "rvtab" {
            "a/rvtab_none."
        } else {
            "a/none."
        };
        let other = whole.keys().find(|name| name.starts_with(other)).unwrap();
        std::fs::write(tree.path("out").join(other), "not popfit's").unwrap();
        let changed = tree.files("out");
        let more = [&options[..], &["--seed", "8"]].concat();
        let said = tree.fit_all_with_success(&more);
        assert!(
            said.contains("nothing to fit") && said.contains("; files: 4 skipped"),
            "{said}"
        );
        if format != "csv" {
            assert!(
                said.contains("3 of the 4 tables that are there were not made with this model and")
                    && said.contains("(another settings)")
                    && said.contains("1 of the 4 tables that are there do not say how"),
                "{said}"
            );
        }
        assert!(tree.files("out") == changed, "{format}");
    }
}

/// Files that are missing, that are no spectra, that are bad in a strict run, or whose output another run writes.
#[test]
fn a_bad_file_costs_no_other() {
    let tree = Tree::new();
    tree.fit_all_with_success(&["--strict"]);
    let whole = tree.files("out");
    std::fs::remove_dir_all(tree.path("out")).unwrap();
    std::fs::write(tree.path("in/text.npz"), "no spectra").unwrap();
    tree.write_spectra("in/b/bad.npz", 0, 20, Some(18));
    let files = [
        "in/a/one.npz",
        "in/gone.npz",
        "in/a/none.npz",
        "in/b/bad.npz",
        "in/b/c/two.npz",
        "in/text.npz",
        "in/b/d/one.npz",
    ];
    let options = ["--per-file", "-o", "out", "--strict"];
    let output = tree.fit(&files, &options);
    let said = message(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("48 spectra: 48 converged") && said.contains("files: 4 written, 3 failed"),
        "{said}"
    );
    let (_, causes) = said
        .split_once("files that could not be fitted: 3\n")
        .unwrap();
    let causes: Vec<&str> = causes.lines().collect();
    assert_eq!(causes.len(), 3, "{said}");
    assert!(causes[0].starts_with("  in/gone.npz: "), "{said}");
    assert!(
        causes[1].starts_with("  in/b/bad.npz, row 18, id 18: "),
        "{said}"
    );
    assert!(causes[2].starts_with("  in/text.npz: "), "{said}");
    assert!(tree.files("out") == whole);
    // without --strict, the bad spectrum has a row, and the others are skipped
    let output = tree.fit(&files, &["--per-file", "-o", "out", "--skip-existing"]);
    let said = message(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("20 spectra: 19 converged, 1 non_finite_input")
            && said.contains("files: 1 written, 4 skipped, 2 failed"),
        "{said}"
    );
}

/// A run over the tree's files from a program.
fn run(tree: &Tree, control: &Control, skip: bool) -> Result<FitFilesSummary, Error> {
    let inputs = FILES.map(|(file, _)| tree.path(file)).to_vec();
    let mut files = FitFiles::new(tree.path("model.toml"), inputs, tree.path("out"));
    (files.format, files.per_file, files.skip_existing) = (Format::Rvtab, true, skip);
    files.settings.device = "cpu".into();
    files.settings.starts = Some(1);
    files.settings.batch_size = Some(4);
    fit_files(files, control)
}

/// A run that is ended early has whole outputs and no others, and goes on with the files that are left.
#[test]
fn a_run_that_was_ended_goes_on_with_the_files_that_are_left() {
    let tree = Tree::new();
    let done = run(&tree, &Control::default(), false).unwrap();
    let files = done.per_file.unwrap();
    assert_eq!((files.written, files.skipped, files.left), (4, 0, 0));
    let whole = tree.files("out");
    for spectra in [1, 5, 20, 44] {
        std::fs::remove_dir_all(tree.path("out")).unwrap();
        let control = Control::default();
        let cancel = control.cancel.clone();
        let control = Control {
            progress: Some(Arc::new(move |done, _| {
                if done >= spectra {
                    cancel.store(true, Ordering::Relaxed);
                }
            })),
            ..control
        };
        let done = run(&tree, &control, false).unwrap();
        let files = done.per_file.unwrap();
        assert!(files.left > 0 && done.summary.interrupted > 0, "{files:?}");
        assert_eq!(files.written + files.left, 4, "{files:?}");
        let there = tree.files("out");
        assert_eq!(there.len(), 2 * files.written, "{:?}", there.keys());
        assert!(there.iter().all(|(name, bytes)| whole[name] == *bytes));
        let written = files.written;
        let done = run(&tree, &Control::default(), true).unwrap();
        let files = done.per_file.unwrap();
        assert_eq!((files.written, files.skipped), (4 - written, written));
        assert!(tree.files("out") == whole);
    }
}
