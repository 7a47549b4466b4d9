//! `popfit report --spectra … --id …`: pictures for a table that exists.

use std::path::Path;

use popfit::{FitTable, Id};
use popfit_testing::{demo_file as data, message};

use super::{browser, demo_page, popfit, row, table};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Reports `arguments`, which must fail with exit code 2; returns the message. No page is left.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let page = folder.join("refused.html");
    let output = popfit(&[&["report"], arguments, &["-o", text(&page)]].concat());
    let message = message(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(!page.exists(), "{message}");
    message
}

/// The ids of the pictures in the order of the page.
fn drawn(html: &str) -> Vec<&str> {
    let heads = html.split("<h3><small>id</small> ").skip(1);
    heads
        .map(|rest| rest.split_once("</h3>").unwrap().0)
        .collect()
}

#[test]
fn requested_spectra_come_first_and_none_is_drawn_twice() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read_to_string(demo_page(folder.path())).unwrap();
    let worst = drawn(&whole)[0];
    let (table, page) = (
        folder.path().join("demo.parquet"),
        folder.path().join("page.html"),
    );
    let spectra = data("spectra.npz");
    let ids = ["--id", worst, "--id", "63"];
    let output = popfit(
        &[
            &[
                "report",
                text(&table),
                "--spectra",
                text(&spectra),
                "-o",
                text(&page),
            ],
            &ids[..],
        ]
        .concat(),
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let html = std::fs::read_to_string(&page).unwrap();
    let mut ids = drawn(&html);
    let mut requested = ids[..2].to_vec();
    requested.sort_unstable();
    let mut expected = vec![worst, "63"];
    expected.sort_unstable();
    assert_eq!(requested, expected);
    let (before, after) = html.split_once("Largest χ²/dof").unwrap();
    assert_eq!(
        (
            before.matches("<article").count(),
            before.matches("Requested").count()
        ),
        (2, 1)
    );
    assert!(after.contains("Typical fits"));
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    let Some(seen) = browser::open(folder.path(), &page) else {
        return;
    };
    browser::check(&seen, 64);
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    demo_page(folder.path());
    let demo = folder.path().join("demo.parquet");
    let (demo, spectra) = (text(&demo), data("spectra.npz"));
    let spectra = text(&spectra);
    let message = refused(folder.path(), &[demo, "--spectra", spectra, "--id", "4711"]);
    assert!(
        message.contains("--id 4711") && message.contains("demo.parquet has no row with this id"),
        "{message}"
    );
    let message = refused(
        folder.path(),
        &[
            demo,
            "--spectra",
            spectra,
            "--id",
            "-5",
            "--id",
            "3",
            "--id",
            "x",
        ],
    );
    assert!(message.contains("no rows with the ids -5, x"), "{message}");
    let message = refused(folder.path(), &[demo, "--id", "3"]);
    assert!(message.contains("--spectra"), "{message}");
    let many: Vec<String> = (0..41)
        .flat_map(|id| ["--id".into(), id.to_string()])
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let message = refused(
        folder.path(),
        &[&[demo, "--spectra", spectra], &many[..]].concat(),
    );
    assert!(message.contains("at most 40"), "{message}");

    // a model that is not the table's
    let model = folder.path().join("other.toml");
    let mut toml = std::fs::read_to_string(data("model.toml")).unwrap();
    toml = toml.replace("emulator.safetensors", text(&data("emulator.safetensors")));
    std::fs::write(&model, format!("{toml}\n[vsini]\nrange = [0.0, 100.0]\n")).unwrap();
    let message = refused(
        folder.path(),
        &[demo, "--spectra", spectra, "--model", text(&model)],
    );
    assert!(
        message.contains("free parameters") && message.contains("vsini"),
        "{message}"
    );
}

#[test]
fn a_table_without_a_model_needs_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bare.parquet");
    table(vec![row(Id::Integer(1), 0)]).write(&path).unwrap();
    let message = refused(
        folder.path(),
        &[text(&path), "--spectra", text(&data("spectra.npz"))],
    );
    assert!(
        message.contains("bare.parquet") && message.contains("--model"),
        "{message}"
    );
}

/// Equal names in two folders, equal ids in both: the paths tell the files apart.
#[test]
fn spectra_of_several_files_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        let path = folder.path().join(name).join("spectra.npz");
        std::fs::copy(data("spectra.npz"), &path).unwrap();
        path
    });
    let (out, page, model) = (
        folder.path().join("both.fits"),
        folder.path().join("both.html"),
        data("model.toml"),
    );
    let fit = [
        "fit",
        text(&model),
        text(&a),
        text(&b),
        "--device",
        "cpu",
        "--starts",
        "1",
        "--quiet",
        "-o",
        text(&out),
    ];
    assert!(popfit(&fit).status.success());
    assert_eq!(FitTable::read(&out).unwrap().0.len(), 128);
    let report = [
        "report",
        text(&out),
        "--spectra",
        text(&a),
        text(&b),
        "--id",
        "7",
        "-o",
        text(&page),
    ];
    let output = popfit(&report);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let html = std::fs::read_to_string(&page).unwrap();
    let (requested, _) = html.split_once("Largest χ²/dof").unwrap();
    assert_eq!(drawn(requested), ["7", "7"]);
    for path in [&a, &b] {
        assert!(
            requested.contains(&format!("title='{}'", path.display())),
            "{}",
            path.display()
        );
    }
    // one file alone does not have both
    let message = refused(
        folder.path(),
        &[text(&out), "--id", "7", "--spectra", text(&a)],
    );
    assert!(
        message.contains("--id 7") && message.contains("is not in"),
        "{message}"
    );
}
