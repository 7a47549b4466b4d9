//! The command line: exit codes, what is written, and what is not.

use std::path::Path;
use std::process::{Command, Output};

use super::popfit;
use popfit::{ExposureVelocities, FitRow, FitTable, Flags, Status, WriteOptions};
use popfit_testing::{demo_file as data, message};

/// `popfit fit` on the CPU with one start.
fn fit(model: &Path, spectra: &[&Path], out: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["fit", model.to_str().unwrap()];
    arguments.extend(spectra.iter().map(|path| path.to_str().unwrap()));
    arguments.extend(["-o", out.to_str().unwrap(), "--device", "cpu"]);
    arguments.extend(more);
    popfit(&arguments)
}

#[test]
fn two_files_make_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let (second, out) = (
        folder.path().join("again.npz"),
        folder.path().join("out.csv"),
    );
    std::fs::copy(data("spectra.npz"), &second).unwrap();
    let output = fit(
        &data("model.toml"),
        &[&data("spectra.npz"), &second],
        &out,
        &["--starts", "1"],
    );
    assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    assert!(
        message(&output).contains("128 spectra"),
        "{}",
        message(&output)
    );
    let rows: Vec<Vec<String>> = csv::Reader::from_path(&out)
        .unwrap()
        .records()
        .map(|record| record.unwrap().iter().map(str::to_string).collect())
        .collect();
    assert_eq!(rows.len(), 128);
    let (first, again) = rows.split_at(64);
    for (k, (a, b)) in first.iter().zip(again).enumerate() {
        assert!(a[1].ends_with("spectra.npz") && b[1].ends_with("again.npz"));
        assert_eq!((&a[2], &b[2]), (&k.to_string(), &k.to_string()));
        assert_eq!(a[3..], b[3..], "the same spectrum, the same bits");
    }
    let quiet = fit(
        &data("model.toml"),
        &[&second],
        &folder.path().join("q.parquet"),
        &["--starts", "1", "--quiet"],
    );
    assert_eq!(
        (
            quiet.status.code(),
            message(&quiet).as_str(),
            quiet.stdout.len()
        ),
        (Some(0), "", 0)
    );
}

#[test]
fn bad_usage_is_two_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.npz");
    std::fs::write(&broken, b"PK\x03\x04 no more").unwrap();
    let model = folder.path().join("model.toml");
    std::fs::write(
        &model,
        "[[arm]]\nname = \"b\"\nemulator = \"none.safetensors\"\nrnage = [1, 2]\n",
    )
    .unwrap();
    let (good, spectra, out) = (
        data("model.toml"),
        data("spectra.npz"),
        folder.path().join("out.csv"),
    );
    let cut = folder.path().join("cut.fits");
    std::fs::write(
        &cut,
        format!(
            "{:<80}{:<80}",
            "SIMPLE  =                    T", "BITPIX  = 8"
        ),
    )
    .unwrap();
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    let rvtab = folder.path().join("out.fits");
    let models = folder.path().join("models.csv").display().to_string();
    let same = folder
        .path()
        .join("..")
        .join(folder.path().file_name().unwrap())
        .join("out.fits")
        .display()
        .to_string();
    let cases: [(Output, &str); 15] = [
        (
            fit(&good, &[&spectra], &rvtab, &["--models", &same]),
            "the table and the best-fit spectra",
        ),
        (
            fit(&good, &[&spectra], &rvtab, &["--models", &models]),
            "must end in .fits",
        ),
        (
            fit(
                &good,
                &[&spectra],
                &rvtab,
                &["--format", "rvtab", "--models", "m.fits"],
            ),
            "writes a file of models anyway",
        ),
        (
            fit(
                &good,
                &[&spectra],
                &rvtab,
                &["--format", "rvtab", "--released-errors"],
            ),
            "popfit's own table",
        ),
        (fit(&good, &[&cut], &out, &[]), "HDU 0"),
        (
            fit(&good, &[&spectra], &out, &["--format", "rvtab"]),
            ".fits",
        ),
        (
            fit(&good, &[&spectra], &out, &["--target-id", "1,2"]),
            "DESI",
        ),
        (fit(&good, &[&spectra, &broken], &out, &[]), "broken.npz"),
        (
            fit(&good, &[&folder.path().join("missing.npz")], &out, &[]),
            "missing.npz",
        ),
        (fit(&model, &[&spectra], &out, &[]), "did you mean `range`?"),
        (
            fit(&good, &[&spectra], &folder.path().join("out.fit"), &[]),
            "must end in .parquet, .fits or .csv",
        ),
        (
            fit(&good, &[&spectra], &folder.path().join("no/out.csv"), &[]),
            "out.csv",
        ),
        (
            fit(&good, &[&spectra], &out, &["--starts", "0"]),
            "--starts",
        ),
        (fit(&good, &[&spectra], &out, &["--memory", "many"]), "512M"),
        (
            popfit(&[
                "fit",
                good.to_str().unwrap(),
                spectra.to_str().unwrap(),
                "-o",
                "x.csv",
                "--device",
                "tpu",
            ]),
            "tpu",
        ),
    ];
    for (output, expected) in &cases {
        assert_eq!(output.status.code(), Some(2), "{}", message(output));
        assert!(
            message(output).contains(expected),
            "{expected}: {}",
            message(output)
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before);
}

/// Devices and pipes are no outputs: as root, a rename would replace `/dev/null` itself, and a run would wait for a
/// pipe that nobody writes to.
#[test]
#[cfg(unix)]
fn devices_and_pipes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = |name: &str| {
        let path = folder.path().join(name);
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        path
    };
    let (spectra, out, page) = (pipe("pipe.npz"), pipe("pipe.fits"), pipe("page.html"));
    let (good, table) = (data("model.toml"), folder.path().join("out.parquet"));
    assert_eq!(
        fit(
            &good,
            &[&data("spectra.npz")],
            &table,
            &["--starts", "1", "--quiet"]
        )
        .status
        .code(),
        Some(0)
    );
    let text = |path: &Path| path.to_str().unwrap().to_string();
    let cases = [
        (
            fit(&good, &[&spectra], &table, &["--overwrite"]),
            "pipe.npz",
        ),
        (fit(&good, &[&data("spectra.npz")], &out, &[]), "pipe.fits"),
        (
            popfit(&["report", &text(&table), "-o", &text(&page)]),
            "page.html",
        ),
        (
            popfit(&["compare", &text(&table), &text(&out)]),
            "pipe.fits",
        ),
    ];
    for (output, name) in &cases {
        assert_eq!(output.status.code(), Some(2), "{}", message(output));
        let said = message(output);
        assert!(
            said.contains(name) && said.contains("device or a pipe"),
            "{name}: {said}"
        );
    }
    use std::os::unix::fs::FileTypeExt;
    assert!(
        [out, page]
            .iter()
            .all(|path| path.metadata().unwrap().file_type().is_fifo())
    );
}

#[test]
fn check_and_devices_answer() {
    let output = popfit(&["check", data("model.toml").to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}{}", message(&output));
    assert_eq!(text.matches("pass").count(), 5, "{text}");
    let hulls = "arm b: outside the training hull of (teff, logg) and (feh, alpha) a penalty is added, and flag 8";
    assert!(
        text.contains(hulls) && !text.contains("no training hull"),
        "{text}"
    );
    let output = popfit(&["devices"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("auto takes"));
}

#[test]
fn check_says_what_lies_outside_the_training_set() {
    let folder = tempfile::tempdir().unwrap();
    let layers = [popfit_testing::tiny::linear_layer(
        2,
        popfit_testing::tiny::wave,
    )];
    let network = popfit_testing::tiny::network_file(&["teff", "feh"], "relu", &layers);
    popfit_testing::file(folder.path(), "tiny.safetensors", &network);
    let text =
        "[[arm]]\nname = \"b\"\nemulator = \"tiny.safetensors\"\n[continuum]\nkind = \"none\"\n";
    let model = popfit_testing::file(folder.path(), "model.toml", text.as_bytes());
    let output = popfit(&["check", model.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = "arm b: no training hull covers teff, feh: there is no penalty outside their training ranges, but flag 8";
    assert!(
        output.status.success() && text.contains(expected),
        "{text}{}",
        message(&output)
    );
    assert!(!text.contains("a penalty is added"), "{text}");
}

/// By option and by model file; an error that no bound holds back is what it was.
#[test]
fn released_errors_are_columns_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.parquet");
    let model = format!(
        "{}\n[solver]\nreleased_errors = true\n",
        std::fs::read_to_string(data("model.toml"))
            .unwrap()
            .replace("emulator.s", &format!("{}/emulator.s", data("").display()))
    );
    let by_file = popfit_testing::file(folder.path(), "model.toml", model.as_bytes());
    let cases = [
        (data("model.toml"), vec!["--released-errors"], true),
        (by_file.clone(), vec![], true),
        (by_file, vec!["--released-errors=false"], false),
        (data("model.toml"), vec![], false),
    ];
    for (model, more, expected) in cases {
        let _ = std::fs::remove_file(&out);
        let options = [vec!["--starts", "1"], more.clone()].concat();
        let output = fit(&model, &[&data("spectra.npz")], &out, &options);
        assert_eq!(output.status.code(), Some(0), "{}", message(&output));
        let (table, _) = popfit::FitTable::read(&out).unwrap();
        let free: Vec<_> = table
            .to_rows()
            .into_iter()
            .filter(|row| row.at_bound == 0)
            .collect();
        let same = free.iter().all(|row| row.errors == row.released_errors);
        assert_eq!(
            (
                !free.is_empty() && same,
                table
                    .to_rows()
                    .into_iter()
                    .all(|row| row.released_errors.is_empty())
            ),
            (expected, !expected)
        );
    }
}

#[test]
fn import_names_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let output = popfit(&[
        "import",
        "rvspecfit",
        &at("library"),
        "--python",
        &at("no-python"),
    ]);
    assert_eq!(output.status.code(), Some(2));
    for word in ["no-python", "torch", "h5py", "--python", "--script"] {
        assert!(
            message(&output).contains(word),
            "{word}: {}",
            message(&output)
        );
    }
    assert_eq!(popfit(&["import", "rvspecfit"]).status.code(), Some(2));
    let script = at("import.py");
    let output = popfit(&["import", "rvspecfit", "--script", &script]);
    assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    let bundled = popfit_testing::root().join("crates/cli/src/import_rvspecfit.py");
    assert_eq!(
        std::fs::read(script).unwrap(),
        std::fs::read(bundled).unwrap()
    );
}

/// The command passes on the words of a Python that answers, refuses, or writes no emulator. (The script itself has
/// tests in Python.)
#[test]
#[cfg(unix)]
fn import_passes_on_what_python_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let run_with = |body: &str, more: &[&str]| {
        // A child writes it: had this process the file open, another test's fork could keep it busy.
        let write = r##"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod +x "$0""##;
        assert!(
            Command::new("sh")
                .args(["-c", write, &at("python"), body])
                .status()
                .unwrap()
                .success()
        );
        let arguments = [
            "import",
            "rvspecfit",
            "library",
            "--setup",
            "b",
            "-o",
            "out",
            "--python",
            &at("python"),
        ];
        popfit(&[&arguments, more].concat())
    };
    let run = |body: &str| run_with(body, &[]);
    // $1 is -c, $2 the script, then the script's arguments.
    let good = data("emulator.safetensors");
    let given = |words: &str| {
        format!(
            "[ \"$3 $4 $5 $6 $7 $8\" = 'library --setup b --output out {words}' ] && echo '{}'",
            good.display()
        )
    };
    let overwriting = run_with(&given("--overwrite"), &["--overwrite"]);
    assert_eq!(
        overwriting.status.code(),
        Some(0),
        "{}",
        message(&overwriting)
    );
    let output = run(&given(""));
    assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    assert!(
        String::from_utf8_lossy(&output.stdout)
            .contains("3861 pixels, labels teff, logg, feh, alpha")
    );
    let output = run("echo 'import_rvspecfit: library/interp_b.h5: lam: missing' >&2; exit 2");
    assert_eq!(
        (output.status.code(), message(&output).as_str()),
        (Some(2), "popfit: library/interp_b.h5: lam: missing\n")
    );
    assert_eq!(run("echo 'no room' >&2; exit 1").status.code(), Some(1));
    assert_eq!(
        run(&format!("echo '{}'", at("python"))).status.code(),
        Some(2)
    );
}

#[test]
fn the_demo_looks_at_its_folder_before_it_fits() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("results.csv")).unwrap();
    let output = popfit(&[
        "demo",
        "--device",
        "cpu",
        "--out",
        folder.path().to_str().unwrap(),
    ]);
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(2), 0),
        "{}",
        message(&output)
    );
    assert!(
        message(&output).contains("results.csv"),
        "{}",
        message(&output)
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Waits until a folder has a file whose name contains this.
#[cfg(unix)]
fn wait_for(folder: &Path, part: &str) {
    let found = || {
        std::fs::read_dir(folder)
            .unwrap()
            .any(|e| e.unwrap().file_name().to_string_lossy().contains(part))
    };
    let begin = std::time::Instant::now();
    while !found() {
        assert!(begin.elapsed().as_secs() < 60, "no {part}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[cfg(unix)]
#[test]
fn a_signal_ends_a_run_with_a_row_for_every_spectrum() {
    const FILES: usize = 60;
    for signal in ["-INT", "-TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.csv");
        let (model, spectra) = (data("model.toml"), data("spectra.npz"));
        let child = Command::new(env!("CARGO_BIN_EXE_popfit"))
            .arg("fit")
            .arg(&model)
            .args([&spectra; FILES])
            .args(["--device", "cpu", "--starts", "1", "-o"])
            .arg(&out)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        wait_for(folder.path(), ".out.csv.tmp");
        assert!(
            Command::new("kill")
                .args([signal, &child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", message(&output));
        assert!(
            message(&output).contains("interrupted; "),
            "{}",
            message(&output)
        );
        let rows: Vec<csv::StringRecord> = csv::Reader::from_path(&out)
            .unwrap()
            .into_records()
            .map(|row| row.unwrap())
            .collect();
        assert_eq!(rows.len(), 64 * FILES);
        assert_eq!(
            (&rows[rows.len() - 1][3], &rows[rows.len() - 1][4]),
            ("-2", "interrupted")
        );
        // a journal is there if a batch was fitted before the signal came
        let names = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names
            .filter(|name| *name != "out.csv" && *name != ".out.csv.journal")
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn compare_takes_velocities_of_exposures_like_a_parameter() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.fits", "b.parquet"].map(|name| folder.path().join(name));
    let write = |path: &Path, velocities: [&[f64]; 2]| {
        let rows = (0..2).zip(velocities).map(|(id, velocities)| {
            let mut row = FitRow::new(id, 1);
            row.status = Status::Ftol;
            row.status_text = "ftol".into();
            (row.parameters, row.errors) = (vec![5000.0], vec![10.0]);
            row.exposure_velocities = Some(ExposureVelocities {
                velocities: velocities.to_vec(),
                errors: vec![0.5; velocities.len()],
            });
            row
        });
        let rows: Vec<FitRow> = rows.collect();
        FitTable::from_rows(vec!["teff".into()], &rows)
            .unwrap()
            .write_with(
                path,
                WriteOptions {
                    overwrite: true,
                    ..WriteOptions::default()
                },
            )
            .unwrap();
    };
    let compare = || popfit(&["compare", a.to_str().unwrap(), b.to_str().unwrap()]);
    write(&a, [&[1.0, f64::NAN], &[3.0]]);
    write(&b, [&[1.0, f64::NAN], &[3.0]]);
    let same = compare();
    assert!(same.status.success(), "{}", message(&same));
    // NaN in both tables is no difference
    let printed = String::from_utf8_lossy(&same.stdout);
    let line = printed
        .lines()
        .find(|line| line.starts_with("velocity_exposures"))
        .unwrap();
    assert_eq!(line.split_whitespace().nth(1), Some("2"), "{line}");
    for others in [[1.0, 2.0, 3.5], [1.0, f64::NAN, 3.5]] {
        write(&b, [&others[..2], &others[2..]]);
        let differs = compare();
        assert_eq!(differs.status.code(), Some(1));
        let expected = "velocity_exposures differs by more than 0.02 errors";
        assert!(
            message(&differs).contains(expected),
            "{}",
            message(&differs)
        );
    }
    // one exposure more
    write(&b, [&[1.0, f64::NAN], &[3.0, 4.0]]);
    assert_eq!(compare().status.code(), Some(1));
}

#[test]
fn compare_passes_equal_tables_and_fails_others() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, plot] = ["a.parquet", "b.fits", "c.svg"].map(|name| folder.path().join(name));
    for out in [&a, &b] {
        let output = fit(&data("model.toml"), &[&data("spectra.npz")], out, &[]);
        assert!(output.status.success(), "{}", message(&output));
    }
    let text = |path: &Path| path.to_str().unwrap().to_string();
    let same = popfit(&["compare", &text(&a), &text(&b), "--plot", &text(&plot)]);
    assert!(same.status.success(), "{}", message(&same));
    assert!(String::from_utf8_lossy(&same.stdout).contains("64 converged in both"));
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg"));
    for words in [
        "|A − B| / error of A",
        "share of the fits",
        ">velocity<",
        ">alpha<",
    ] {
        assert!(svg.contains(words), "{words}");
    }
    // the same rows in CSV, which says what it lacks
    let csv = folder.path().join("d.csv");
    FitTable::read(&a).unwrap().0.write(&csv).unwrap();
    let same = popfit(&[
        "compare",
        &text(&csv),
        &text(&b),
        "--threshold",
        "0",
        "--share",
        "1",
    ]);
    assert!(
        same.status.success() && message(&same).contains("d.csv: a CSV table has no metadata"),
        "{}",
        message(&same)
    );
    // one velocity moved by an error, one spectrum gone
    let (table, _) = FitTable::read(&b).unwrap();
    let mut rows: Vec<FitRow> = table.to_rows();
    let place = table
        .names()
        .iter()
        .position(|name| name == "velocity")
        .unwrap();
    let write = |rows: &[FitRow]| {
        let table = FitTable::from_rows(table.names().to_vec(), rows)
            .unwrap()
            .with_units(table.units().to_vec());
        table
            .with_arms(vec![String::new()])
            .write_with(
                &b,
                WriteOptions {
                    overwrite: true,
                    ..WriteOptions::default()
                },
            )
            .unwrap();
    };
    rows[4].parameters[place] += rows[4].errors[place];
    write(&rows);
    let differs = popfit(&["compare", &text(&a), &text(&b), "--share", "1"]);
    assert_eq!(differs.status.code(), Some(1));
    assert!(
        message(&differs).contains("velocity differs"),
        "{}",
        message(&differs)
    );
    // in A or B the data do not determine it, in some fits or in all
    for undetermined in [1..rows.len(), 0..rows.len()] {
        let mut open = rows.clone();
        for row in &mut open[undetermined] {
            (row.parameters[place], row.errors[place], row.flags) =
                (1e3, f64::INFINITY, Flags::UNDETERMINED);
        }
        write(&open);
        for [one, other] in [[&a, &b], [&b, &a]] {
            let passes = popfit(&["compare", &text(one), &text(other)]);
            assert!(passes.status.success(), "{}", message(&passes));
        }
    }
    // of most spectra B has no velocity
    let mut empty = rows.clone();
    empty
        .iter_mut()
        .skip(1)
        .for_each(|row| row.parameters[place] = f64::NAN);
    write(&empty);
    let lost = popfit(&["compare", &text(&a), &text(&b)]);
    assert_eq!(lost.status.code(), Some(1), "{}", message(&lost));
    assert!(message(&lost).contains("velocity"), "{}", message(&lost));
    rows.pop();
    write(&rows);
    let short = popfit(&["compare", &text(&a), &text(&b), "--share", "0"]);
    assert_eq!(short.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&short.stdout).contains("1 only in A"));
    assert_eq!(
        popfit(&["compare", &text(&a), "nowhere.fits"])
            .status
            .code(),
        Some(2)
    );
    let png = text(&folder.path().join("c.png"));
    for (more, part) in [
        (["--plot", png.as_str()], "ends in .svg"),
        (["--share", "2"], "between 0 and 1"),
        (["--share", "nan"], "between 0 and 1"),
        (["--threshold", "-1"], "not negative"),
    ] {
        let refused = popfit(&["compare", &text(&a), &text(&b), &more.join("=")]);
        assert_eq!(refused.status.code(), Some(2), "{more:?}");
        assert!(
            message(&refused).contains(part),
            "{part}: {}",
            message(&refused)
        );
    }
    assert!(!Path::new(&png).exists());
}

#[test]
fn no_result_takes_the_place_of_an_input() {
    let folder = tempfile::tempdir().unwrap();
    let spectra = folder.path().join("spectra.csv");
    std::fs::copy(data("spectra.npz"), &spectra).unwrap();
    let output = fit(&data("model.toml"), &[&spectra], &spectra, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        message(&output).contains("one of the inputs"),
        "{}",
        message(&output)
    );
    assert_eq!(
        std::fs::read(&spectra).unwrap(),
        std::fs::read(data("spectra.npz")).unwrap()
    );
    // what the model reads is input, too
    let (model, emulator) = (folder.path().join("m.toml"), folder.path().join("e.fits"));
    let text = std::fs::read_to_string(data("model.toml"))
        .unwrap()
        .replace("emulator.safetensors", "e.fits");
    std::fs::write(&model, text).unwrap();
    std::fs::copy(data("emulator.safetensors"), &emulator).unwrap();
    let output = fit(&model, &[&data("spectra.npz")], &emulator, &["--overwrite"]);
    assert_eq!(output.status.code(), Some(2), "{}", message(&output));
    assert!(
        message(&output).contains("one of the inputs"),
        "{}",
        message(&output)
    );
    assert_eq!(
        std::fs::read(&emulator).unwrap(),
        std::fs::read(data("emulator.safetensors")).unwrap()
    );
    // nor does a page that of a table
    let table = folder.path().join("t.parquet");
    assert!(
        fit(
            &data("model.toml"),
            &[&data("spectra.npz")],
            &table,
            &["--starts", "1"]
        )
        .status
        .success()
    );
    let before = std::fs::read(&table).unwrap();
    for out in [&table, &folder.path().join("page.csv")] {
        let output = popfit(&[
            "report",
            table.to_str().unwrap(),
            "--output",
            out.to_str().unwrap(),
        ]);
        assert_eq!(output.status.code(), Some(2), "{}", message(&output));
    }
    assert_eq!(std::fs::read(&table).unwrap(), before);
    let both = fit(
        &data("model.toml"),
        &[&data("spectra.npz")],
        &table,
        &["--report", table.to_str().unwrap()],
    );
    assert_eq!(both.status.code(), Some(2), "{}", message(&both));
}
