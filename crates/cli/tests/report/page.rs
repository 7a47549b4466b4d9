//! Texts of the page.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use popfit::{FitTable, Id};

use super::{demo_page, failed, popfit, row, table, table_page};

/// Loads nothing: no address but the namespace of SVG, no import, no style sheet or script from elsewhere.
fn assert_self_contained(html: &str) {
    for forbidden in [
        "http://",
        "https://",
        "@import",
        "url(",
        "<link rel=\"style",
        "src=",
        "{{",
    ] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn a_fit_makes_a_page_with_everything() {
    let folder = tempfile::tempdir().unwrap();
    let html = std::fs::read_to_string(demo_page(folder.path())).unwrap();
    assert_self_contained(&html);
    assert!(html.len() < 1 << 20, "{} bytes", html.len());
    let expected = [
        "demo.parquet",
        "How the fits ended",
        "converged (ftol)<small>the objective no longer falls<",
        "<dt>T<sub>eff</sub></dt>",
        "Errors of log g",
        ">[α/Fe] (dex)</text>",
        "Goodness of fit",
        "Signal-to-noise ratio",
        "Kiel diagram",
        "T<tspan dy='3' font-size='80%'>eff</tspan><tspan dy='-3'> (K)</tspan>",
        "velocity (km/s)",
        "Largest χ²/dof",
        "Typical fits",
        "vacuum wavelength (Å)",
        ">Hβ</i>",
        ">Mg b</i>",
        "</i>multiplier",
        "mean of 37 residuals",
        "spectra per second",
        "all 64 rows",
        "# The model of the demo",
        "SHA-256",
    ];
    for text in expected {
        assert!(html.contains(text), "{text}");
    }
    assert_eq!(html.matches("<article").count(), 12);
    for curve in ["data d='M", "model d='M", "continuum d='M", "mean d='M"] {
        assert!(
            html.matches(&format!("path class={curve}")).count() >= 12,
            "{curve}"
        );
    }
    assert_eq!(
        std::fs::read_dir(folder.path().join("made/report"))
            .unwrap()
            .count(),
        1,
        "no temporary file is left"
    );

    // the same table read back: all but the spectra and their S/N
    let parquet = folder.path().join("demo.parquet");
    assert!(
        popfit(&["report", parquet.to_str().unwrap()])
            .status
            .success()
    );
    let again = std::fs::read_to_string(folder.path().join("demo_report.html")).unwrap();
    assert_self_contained(&again);
    assert!(again.contains("Kiel diagram") && again.contains("# The model of the demo"));
    assert!(!again.contains("<article") && !again.contains("Signal-to-noise"));
}

#[test]
fn ids_and_names_are_never_markup() {
    let folder = tempfile::tempdir().unwrap();
    let id = "</script><script>alert(1)</script>";
    let rows = vec![
        row(Id::Text(id.into()), 0),
        row(Id::Text("plain".into()), 1),
    ];
    for name in ["a<b>.parquet", "a.fits"] {
        let page = table_page(folder.path(), name, &table(rows.clone()));
        let html = std::fs::read_to_string(page).unwrap();
        assert_self_contained(&html);
        assert!(
            !html.contains("alert(1)</script>") && !html.contains("a<b>"),
            "{name}"
        );
        assert!(html.contains("\\u003c/script>"), "the id is in the table");
        assert!(
            html.contains("<figcaption>mass<"),
            "a label that popfit does not know is drawn"
        );
    }
}

#[test]
fn large_ids_are_texts() {
    let folder = tempfile::tempdir().unwrap();
    let rows = vec![row(Id::Integer(39_627_652_591_523_841), 0)];
    for name in ["a.fits", "a.parquet"] {
        let html =
            std::fs::read_to_string(table_page(folder.path(), name, &table(rows.clone()))).unwrap();
        assert!(html.contains("[\"39627652591523841\""), "{name}");
    }
}

#[test]
fn empty_and_failed_tables_have_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let mut infinite = row(Id::Integer(1), 1);
    infinite.chi2 = f64::INFINITY;
    infinite.errors = vec![f64::INFINITY, 0.0];
    let cases: [(&str, Vec<_>, &str); 4] = [
        ("empty.parquet", Vec::new(), "No values."),
        ("empty.fits", Vec::new(), "No values."),
        (
            "failed.fits",
            (0..3).map(|k| failed(Id::Integer(k), k as u64)).collect(),
            "no_data",
        ),
        ("boundless.parquet", vec![infinite], "100 %"),
    ];
    for (name, rows, expected) in cases {
        let html = std::fs::read_to_string(table_page(folder.path(), name, &table(rows))).unwrap();
        assert!(html.contains(expected), "{name}");
        let (markup, _script) = html.split_once("\"use strict\"").unwrap();
        assert!(
            !markup.contains("NaN") && !markup.contains("inf'") && !markup.contains(">inf"),
            "{name}"
        );
    }
    let none = FitTable::default();
    assert!(table_page(folder.path(), "none.parquet", &none).exists());
}

#[test]
fn many_rows_are_counted_and_the_worst_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let rows = (0..5000).map(|k| {
        if k == 17 {
            failed(Id::Integer(k), 17)
        } else {
            row(Id::Integer(k), k as u64)
        }
    });
    let labels =
        FitTable::from_rows(vec!["age".into(), "mass".into()], &rows.collect::<Vec<_>>()).unwrap();
    let page = table_page(folder.path(), "many.parquet", &labels);
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.len() < 1 << 20, "{} bytes", html.len());
    assert!(html.contains("the worst 2000 of 5000 rows"));
    assert!(
        html.contains("class='density d5'"),
        "too many points: their density"
    );
    let first = html.split("\"c\":[\"").nth(1).unwrap();
    assert!(first.starts_with("17\""), "the failed fit is the first row");
}

#[test]
fn a_file_that_is_no_table_is_two_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.parquet"), "PAR1 no").unwrap();
    let write = |name: &str, columns: Vec<(&str, ArrayRef)>| {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = std::fs::File::create(folder.path().join(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    let number = |n: i64| Arc::new(Int64Array::from(vec![n])) as ArrayRef;
    let text = |text: &str| Arc::new(StringArray::from(vec![text])) as ArrayRef;
    write(
        "b.parquet",
        vec![("id", number(1)), ("velocity", number(2))],
    );
    let mut odd = vec![
        ("id", number(1)),
        ("file", text("a")),
        ("row", number(0)),
        ("status", number(99)),
    ];
    odd.push(("status_text", text("odd")));
    let others = [
        "rounds",
        "evaluations",
        "chi2",
        "dof",
        "objective",
        "at_bound",
        "flags",
        "start",
        "n_starts_agree",
    ];
    odd.extend(others.map(|name| (name, number(1))));
    write("c.parquet", odd);
    std::fs::write(folder.path().join("e.csv"), "id\n1\n").unwrap();
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    let cases = [
        ("a.parquet", "a.parquet"),
        ("b.parquet", "no column `file`"),
        ("c.parquet", "`99` is no status"),
        ("d.parquet", "d.parquet"),
        (
            "e.csv",
            "e.csv: not a result table of popfit: no column `file`",
        ),
    ];
    for (name, expected) in cases {
        let output = popfit(&["report", folder.path().join(name).to_str().unwrap()]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before);
}
