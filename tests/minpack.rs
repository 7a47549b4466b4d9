//! Successes are minima: the least-squares problems of MINPACK's own test, from starts that are up to 100 times off,
//! and points that are stationary and no minimum.

use popfit::{Closure, CurveFitter, Curves, Device, Formula};
use popfit_testing::minpack::problems;

/// No success is anything but a minimum, with and without polish, and polish turns no success into a failure. Meyer's
/// problem from 10 times its start spends its rounds in a curved valley.
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
    assert!(all == 52 && successes >= 51, "{successes} of {all}");
}

/// Values of a function at 20 points, with a little scatter.
fn twenty(value: impl Fn(f64) -> f64) -> (Vec<f64>, Vec<f64>) {
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let y = x.iter().map(|&x| value(x) + 0.01 * (9.0 * x).sin()).collect();
    (x, y)
}

/// A saddle in parameters without effect is no success, and neither is a start that wrong derivatives do not leave.
#[test]
fn a_stationary_point_is_no_success_where_a_step_beside_it_lowers_the_cost() {
    let (x, y) = twenty(|x| 2.0 * x);
    for text in ["a^2*x", "a^2*x + b", "a*b*x"] {
        let formula = Formula::parse(text).unwrap();
        let start = vec![0.0; formula.parameters().len()];
        let fitter = CurveFitter::new(formula, Device::cpu());
        let curves = Curves::on_common_grid(x.clone(), y.clone(), start);
        let fit = fitter.fit(&curves).unwrap().swap_remove(0);
        let columns = fitter.fit_columns(&curves).unwrap();
        assert!(!fit.status.is_success() || fit.chi2 < 0.1, "{text}: {fit:?}");
        assert!(!columns.status[0].is_success() || columns.chi2[0] < 0.1, "{text}: {columns:?}");
    }
    let wrong = Closure::new(&["x"], &["a", "k"], |x, p, y| {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp());
    });
    let wrong = wrong.unwrap().derivatives(|x, p, rows| {
        for (j, x) in x.iter().enumerate() {
            rows[j] = -(-p[1] * x).exp();
            rows[20 + j] = -p[0] * x * (-p[1] * x).exp();
        }
    });
    let (x, y) = twenty(|x| 3.0 * (-0.8 * x).exp());
    let fit = CurveFitter::new(wrong, Device::cpu()).fit(&Curves::on_common_grid(x, y, vec![2.0, 0.5])).unwrap();
    assert!(!fit[0].status.is_success() && fit[0].message.contains("check_jacobian"), "{:?}", fit[0]);
}
