//! Tests that lack a GPU, a browser or real spectra: they fail where these are required, and are counted elsewhere.

use std::process::Command;

use popfit_testing::required::{is_required, report_skip};

#[test]
fn what_is_missing_fails_where_it_is_required() {
    for (variable, ci, expected) in [
        (None, None, false),
        (Some("1"), None, true),
        (Some("0"), None, false),
        (None, Some("true"), true),
        (None, Some("false"), false),
        (Some("0"), Some("true"), false),
        (Some("1"), Some("true"), true),
    ] {
        assert_eq!(is_required(variable, ci), expected, "{variable:?} {ci:?}");
    }
}

/// Variable under which the test below runs itself, as a test that lacks something.
const INNER: &str = "POPFIT_TEST_SKIPS";

#[test]
fn a_program_ends_with_its_skipped_tests() {
    if std::env::var_os(INNER).is_some() {
        // twice in one test, which counts once
        report_skip("no telescope");
        report_skip("no telescope");
        return;
    }
    let program = std::env::current_exe().unwrap();
    let run = |variable: &str| {
        let name = "skips::a_program_ends_with_its_skipped_tests";
        let arguments = ["--exact", name, "--test-threads=2"];
        Command::new(&program)
            .args(arguments)
            .env(variable, "1")
            .output()
            .unwrap()
    };
    let output = run(INNER);
    assert!(output.status.success(), "{output:?}");
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains("telescope"),
        "libtest captures this: {output:?}"
    );
    let expected =
        "command: 1 test skipped, in whole or in part, and counted as passed: no telescope\n";
    assert_eq!(popfit_testing::message(&output), expected);
}
