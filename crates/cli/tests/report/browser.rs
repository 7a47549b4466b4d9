//! The page in headless Chromium, in frames as wide as a screen and as a phone.

use std::path::Path;
use std::process::{Command, Output};

use popfit::{FitRow, Id};
use popfit_testing::required::{Need, skip};
use serde_json::Value;

use super::{demo_page, failed, row, table, table_page};

const WIDTHS: [u64; 2] = [1280, 390];

/// Names under which a Chromium may be installed.
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Runs the first browser that is installed. `None` without any, where none is [required](skip).
fn run_browser(arguments: &[String]) -> Option<Output> {
    for browser in BROWSERS {
        match Command::new(browser).args(arguments).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            output => return Some(output.unwrap()),
        }
    }
    skip(
        Need::Chromium,
        "no browser to open the page: install chromium",
    );
    None
}

/// Opens the page in a frame of each width; returns what its script saw there. `None` without a browser.
pub fn open(folder: &Path, page: &Path) -> Option<Vec<Value>> {
    let frames: String = WIDTHS
        .iter()
        .map(|width| {
            format!(
                "<iframe width={width} height=900 src='file://{}#selftest'></iframe>",
                page.display()
            )
        })
        .collect();
    // the page writes what it saw into an attribute, and a message that it posts is an error
    let listen = "<pre></pre><script>onmessage = (m) => console.log(`a message: ${JSON.stringify(m.data)}`);\
                  onload = () => { document.querySelector('pre').textContent = JSON.stringify(Array.from(frames,\
                  (frame) => JSON.parse(frame.document.documentElement.dataset.seen))); };</script>";
    let outer = folder.join("frames.html");
    std::fs::write(&outer, format!("<meta charset=utf-8>{listen}{frames}")).unwrap();
    let quiet = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--allow-file-access-from-files",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--enable-logging=stderr",
        "--virtual-time-budget=10000",
        "--dump-dom",
    ];
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let page = format!("file://{}", outer.display());
    let arguments: Vec<String> = quiet
        .iter()
        .map(ToString::to_string)
        .chain([profile, page])
        .collect();
    let output = run_browser(&arguments)?;
    let log = String::from_utf8_lossy(&output.stderr);
    let console: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(console.is_empty(), "{console:?}");
    let dom = String::from_utf8(output.stdout).unwrap();
    let text = dom
        .split_once("<pre>")
        .and_then(|(_, rest)| rest.split_once("</pre>"))
        .map_or("", |(text, _)| text);
    let text = text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&nbsp;", "\u{a0}")
        .replace("&amp;", "&");
    let mut seen: Vec<Value> =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {dom}\n{log}"));
    seen.sort_by_key(|one| std::cmp::Reverse(one["width"].as_u64()));
    Some(seen)
}

/// Checks the conditions that hold at every width.
pub fn check(seen: &[Value], rows: u64) {
    assert_eq!(seen.len(), WIDTHS.len());
    for (one, width) in seen.iter().zip(WIDTHS) {
        assert_eq!(one["error"], Value::Null);
        assert_eq!(one["width"], width);
        assert_eq!(one["overflow"], 0, "wider than {width}");
        assert_eq!(one["rows"], rows);
        assert_eq!(one["collisions"], 0, "names of lines overlap: {one}");
        assert_eq!(one["invisible"], 0, "curves without a colour: {one}");
    }
}

fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text.as_str().unwrap())
        .collect()
}

#[test]
fn a_fit_with_spectra() {
    let folder = tempfile::tempdir().unwrap();
    let Some(seen) = open(folder.path(), &demo_page(folder.path())) else {
        return;
    };
    check(&seen, 64);
    for one in &seen {
        let said = |name: &str| one[name].as_str().unwrap().to_string();
        assert!(said("bar").contains("fits"), "{}", said("bar"));
        assert!(said("point").contains("T_eff (K): "), "{}", said("point"));
        let readout = said("readout");
        assert!(
            ["Å", "data", "model", "multiplier", "residual", "mean", "σ"]
                .iter()
                .all(|word| readout.contains(word)),
            "{readout}"
        );
        assert_eq!(one["failed"], 0);
        assert_eq!(one["articles"], 12);
        assert!(one["names"].as_u64() >= Some(12 * 4), "{one}");
    }
}

#[test]
fn sorting_knows_large_ids_and_missing_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let base = 1i64 << 53;
    let mut rows: Vec<FitRow> = [3, 0, 2, 1]
        .iter()
        .map(|k| row(Id::Integer(base + k), *k as u64))
        .collect();
    rows.push(failed(Id::Integer(7), 4));
    rows[1].chi2 = f64::INFINITY;
    let Some(seen) = open(
        folder.path(),
        &table_page(folder.path(), "ids.parquet", &table(rows)),
    ) else {
        return;
    };
    check(&seen, 5);
    let mut expected: Vec<String> = (0..4).map(|k| (base + k).to_string()).collect();
    expected.insert(0, "7".into());
    assert_eq!(texts(&seen[0]["ascending"]), expected);
    expected.reverse();
    assert_eq!(texts(&seen[0]["descending"]), expected);
    assert_eq!(
        texts(&seen[0]["numbers"]),
        ["0.9700", "1.040", "1.110", "∞", "–"]
    );
    assert_eq!(seen[0]["failed"], 1);
}

#[test]
fn a_hostile_id_is_text() {
    let folder = tempfile::tempdir().unwrap();
    let id = "</script><img src=x onerror='document.documentElement.dataset.error = 1'>";
    let page = table_page(
        folder.path(),
        "hostile.parquet",
        &table(vec![row(Id::Text(id.into()), 0)]),
    );
    let Some(seen) = open(folder.path(), &page) else {
        return;
    };
    check(&seen, 1);
    assert_eq!(texts(&seen[0]["ascending"]), [id]);
}

#[test]
fn an_empty_table_opens() {
    let folder = tempfile::tempdir().unwrap();
    let Some(seen) = open(
        folder.path(),
        &table_page(folder.path(), "empty.parquet", &table(Vec::new())),
    ) else {
        return;
    };
    check(&seen, 0);
}
