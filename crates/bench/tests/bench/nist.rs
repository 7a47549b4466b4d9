//! `popfit-bench nist`: the table that it prints.

use std::process::Command;

#[test]
fn nist_prints_the_devices_that_are_asked_for() {
    let output = Command::new(env!("CARGO_BIN_EXE_popfit-bench"))
        .args(["nist", "--device", "cpu"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !text.contains("gpu") && text.contains("nelder-mead"),
        "{text}"
    );
    // by solver: lm, lm by differences, nelder-mead
    let counts = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words
            .windows(3)
            .filter(|w| w[1] == "of")
            .map(|w| w[0].parse().unwrap())
            .collect::<Vec<usize>>()
    };
    let of = |name: &str| {
        text.lines()
            .find(|line| line.starts_with(name))
            .map(counts)
            .unwrap()
    };
    assert!(of("solved")[0] == 54 && of("solved").len() == 3, "{text}");
    // residuals of Lanczos1 are rounding, and so is their scatter
    assert!(of("errors")[0] >= 52 && of("errors").len() == 3, "{text}");
    let ended = text
        .lines()
        .skip_while(|line| !line.starts_with("errors "))
        .skip(1)
        .take_while(|line| !line.is_empty());
    let ended: Vec<Vec<usize>> = ended.map(counts).collect();
    (0..3).for_each(|way| {
        assert_eq!(
            ended.iter().map(|row| row[way]).sum::<usize>(),
            54,
            "{text}"
        )
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_is_told() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_popfit-bench"));
    let output = command
        .args(["nist", "--device", "cpu"])
        .stdout(full)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("standard output could not be written"),
        "{said}"
    );
}
