//! The tests' build goes on from the demo's.

use std::collections::BTreeSet;
use std::process::Command;

/// Returns the packages that a build compiles, each with its features.
fn packages(arguments: &[&str]) -> BTreeSet<String> {
    let mut command = Command::new(env!("CARGO"));
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["tree", "--locked", "--prefix", "none"]);
    let output = command
        .args(["--format", "{p} {f}"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| line.trim_end_matches(" (*)").trim_end().to_string())
        .collect()
}

/// A package with other features would be compiled again, and all that depends on it, which are the largest ones.
#[test]
fn tests_reuse_what_the_demo_compiled() {
    let demo = packages(&["--edges", "normal,build"]);
    let tests = packages(&[
        "--workspace",
        "--exclude",
        "popfit-python",
        "--edges",
        "normal,build,dev",
    ]);
    let again: Vec<&String> = demo.difference(&tests).collect();
    assert!(
        again.is_empty(),
        "`cargo test --workspace` wants other features than `cargo run`. Ask for fewer in the tests' dependencies, or \
         add them to the list in crates/cli/Cargo.toml: {again:#?}"
    );
}
