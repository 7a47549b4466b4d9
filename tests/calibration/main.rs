//! Errors are calibrated: 2,000 refits of nine NIST problems and a spectrum. `examples/calibration.rs` has 20,000.

#[path = "../../src/cli/nist/problems.rs"]
#[expect(dead_code, reason = "the command and tests/nist.rs use the rest")]
mod problems;
#[path = "../common/random.rs"]
mod random;
mod refits;
mod statistics;

use std::sync::LazyLock;

use refits::Refits;
use statistics::{Calibration, all};

static REFITS: LazyLock<Vec<Refits>> = LazyLock::new(|| all(2000));

#[test]
fn pulls_are_normal_and_chi2_is_chi2() {
    let calibration = Calibration::new(&REFITS, 1.0, 0.0);
    calibration.print();
    assert_eq!(calibration.faults(), Vec::<String>::new());
}

#[test]
fn errors_that_are_5_percent_wrong_are_seen() {
    for scale in [1.05, 1.0 / 1.05] {
        let fault = Calibration::new(&REFITS, scale, 0.0).pooled_fault();
        println!("errors times {scale:.3}: {fault:?}");
        assert!(fault.is_some());
    }
}

#[test]
fn a_bias_of_a_fifth_of_an_error_is_seen() {
    let faults = Calibration::new(&REFITS, 1.0, 0.2).faults();
    let means = faults.iter().filter(|fault| fault.contains("mean pull")).count();
    assert_eq!(means, REFITS.iter().map(|refits| refits.parameters.len()).sum::<usize>());
}
