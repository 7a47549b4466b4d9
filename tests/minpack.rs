//! The least-squares problems of MINPACK's own test, from starts that are up to 100 times off.

use popfit_testing::minpack::problems;

/// No success is anything but a minimum, with and without polish, and polish turns no success into a failure. Two fits spend their
/// rounds in a curved valley: the helical valley from 100 times its start, and Meyer's problem from 10 times its.
#[test]
fn successes_are_minima() {
    let (mut successes, mut all) = (0, 0);
    for problem in problems() {
        for factor in [1.0, 10.0, 100.0].into_iter().take(problem.tries) {
            let [plain, polished] = [false, true].map(|polish| problem.fit(factor, polish).unwrap());
            let what = format!("{}, {} parameters, start x {factor}", problem.name, problem.start.len());
            for fit in [&plain, &polished] {
                println!("{what}: {} after {} rounds, {:e}", fit.status.name(), fit.rounds, fit.chi2);
                assert!(!fit.status.is_success() || problem.is_minimum(fit.chi2), "{what}: {fit:?}");
            }
            assert!(polished.status.is_success() || !plain.status.is_success(), "{what}: {plain:?} {polished:?}");
            assert!(polished.chi2 <= plain.chi2 * (1.0 + 1e-9) + 1e-20, "{what}: {plain:?} {polished:?}");
            (all, successes) = (all + 1, successes + usize::from(polished.status.is_success()));
        }
    }
    assert!(all == 52 && successes >= 50, "{successes} of {all}");
}
