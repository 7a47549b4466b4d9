//! `popfit demo`: what it writes and says.

use popfit_testing::message;

use super::{popfit, popfit_in};

#[test]
fn demo_writes_results_a_report_and_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let output = popfit(&[
        "demo",
        "--device",
        "cpu",
        "--out",
        folder.path().join("new").to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("64 spectra: ") && !text.contains("bad_input"),
        "{text}"
    );
    let csv = std::fs::read_to_string(folder.path().join("new/results.csv")).unwrap();
    assert_eq!(csv.lines().count(), 65);
    let svg = std::fs::read_to_string(folder.path().join("new/spectrum.svg")).unwrap();
    for words in [
        "wavelength (Å)",
        "(data − fit) / error",
        "masked",
        "velocity",
        ">eff</tspan>",
        "; χ²/dof ",
    ] {
        assert!(svg.contains(words), "{words}");
    }
    let title = svg
        .split_once(">spectrum ")
        .unwrap()
        .1
        .split_once("</text>")
        .unwrap()
        .0;
    assert!(!title.contains(" -"), "an ASCII minus: {title}");
    let page = std::fs::read_to_string(folder.path().join("new/report.html")).unwrap();
    assert!(
        page.contains("popfit demo") && page.contains("all 64 rows") && page.contains("<article")
    );
    // what a pull is, and what comes next
    assert!(
        text.contains("pull = (fit − truth) / error: mean 0 and sd 1"),
        "{text}"
    );
    let (_, next) = text.split_once("\nnext, ").unwrap();
    let new = folder.path().join("new").display().to_string();
    let commands: Vec<&str> = next
        .lines()
        .filter_map(|line| line.strip_prefix("  popfit "))
        .collect();
    assert_eq!(commands.len(), 2, "{text}");
    for command in commands {
        let arguments: Vec<&str> = command.split(' ').collect();
        assert!(
            command.contains(&new) && popfit_in(folder.path(), &arguments).status.success(),
            "{command}"
        );
    }
    assert!(
        folder
            .path()
            .join("new/results.parquet")
            .metadata()
            .unwrap()
            .len()
            > 1000
    );
}
