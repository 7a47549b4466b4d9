//! The report: what the page says, what it must not contain, and that it works in a browser.

mod browser;
mod largest;
mod page;
mod requested;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use popfit::{FitRow, FitTable, Id, Status};

fn popfit(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_popfit"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Fits the demo's spectra with one start; returns the page.
fn demo_page(folder: &Path) -> PathBuf {
    let data = |name: &str| popfit_testing::demo_file(name).display().to_string();
    let (out, report) = (folder.join("demo.parquet"), folder.join("made/report"));
    let (model, spectra) = (data("model.toml"), data("spectra.npz"));
    let mut arguments = vec![
        "fit", &model, &spectra, "--device", "cpu", "--starts", "1", "--quiet",
    ];
    arguments.extend([
        "-o",
        out.to_str().unwrap(),
        "--report",
        report.to_str().unwrap(),
    ]);
    let output = popfit(&arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    report.join("index.html")
}

/// Writes a table, reports it, returns the page.
fn table_page(folder: &Path, name: &str, table: &FitTable) -> PathBuf {
    let (path, page) = (folder.join(name), folder.join(format!("{name}.html")));
    table.write(&path).unwrap();
    let output = popfit(&[
        "report",
        path.to_str().unwrap(),
        "--output",
        page.to_str().unwrap(),
    ]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    page
}

/// A converged row with two parameters.
fn row(id: Id, k: u64) -> FitRow {
    let x = k as f64;
    let mut row = FitRow::new(id, 2);
    row.file = "stars & <b>more</b>.npz".into();
    row.row = k;
    row.status = Status::Ftol;
    row.status_text = "ftol".into();
    row.rounds = 5;
    row.evaluations = 10;
    row.chi2 = 90.0 + 7.0 * x;
    row.dof = 100;
    row.objective = 90.0;
    row.parameters = vec![10.0 * x, 0.1 * x];
    row.errors = vec![0.5, 0.01];
    row.start = Some(0);
    row.n_starts_agree = 1;
    row.correlations = vec![0.1];
    row
}

fn failed(id: Id, k: u64) -> FitRow {
    let nothing = vec![f64::NAN; 2];
    let mut row = row(id, k);
    row.status = Status::BadInput;
    row.status_text = "no_data".into();
    row.chi2 = f64::NAN;
    row.dof = 0;
    row.objective = f64::NAN;
    row.parameters = nothing.clone();
    row.errors = nothing;
    row.correlations = vec![f64::NAN];
    row
}

/// A table of `velocity` and `mass`: no label that popfit knows.
fn table(rows: Vec<FitRow>) -> FitTable {
    FitTable::from_rows(vec!["velocity".into(), "mass".into()], &rows).unwrap()
}
