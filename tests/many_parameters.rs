//! Nelder–Mead by the default settings on problems of six to 20 parameters from the collection of Moré, Garbow &
//! Hillstrom (1981, ACM TOMS 7, 17).

use popfit::{Closure, CurveFit, CurveFitter, Curves, Device, Formula, LevenbergMarquardt, NelderMead, Solver, Status};
use popfit_testing::random::Random;

/// Number of starts, the standard one and some around it.
const STARTS: usize = 40;
/// χ² below which a fit is at the minimum, which is 0.
const AT_MINIMUM: f64 = 1e-3;

/// χ² that is 0 beside those of the starts.
const NOTHING: f64 = 1e-6;

/// One problem, made of as many blocks of parameters and residuals as there is room for.
struct Problem {
    name: &'static str,
    /// The standard start of a block; all parameters start at 1/n where it is empty.
    start: &'static [f64],
    /// Residuals for every four parameters.
    rows: usize,
    residuals: fn(&[f64], &mut [f64]),
    /// In 8, 12 and 20 dimensions, how often scipy is at the minimum: with as many evaluations as it asks for, and
    /// within its default limits.
    scipy: [[usize; 3]; 2],
}

const PROBLEMS: [Problem; 4] = [
    Problem {
        name: "Rosenbrock",
        start: &[-1.2, 1.0],
        rows: 4,
        residuals: rosenbrock,
        scipy: [[39, 40, 40], [0, 0, 0]],
    },
    Problem {
        name: "Powell singular",
        start: &[3.0, -1.0, 0.0, 1.0],
        rows: 4,
        residuals: powell,
        scipy: [[40, 40, 40], [40, 18, 1]],
    },
    Problem {
        name: "Wood",
        start: &[-3.0, -1.0, -3.0, -1.0],
        rows: 6,
        residuals: wood,
        scipy: [[40, 40, 40], [0, 0, 0]],
    },
    Problem {
        name: "trigonometric",
        start: &[],
        rows: 4,
        residuals: trigonometric,
        scipy: [[39, 40, 40], [39, 40, 40]],
    },
];

fn rosenbrock(x: &[f64], r: &mut [f64]) {
    for (x, r) in x.chunks(2).zip(r.chunks_mut(2)) {
        r.copy_from_slice(&[10.0 * (x[1] - x[0] * x[0]), 1.0 - x[0]]);
    }
}

fn powell(x: &[f64], r: &mut [f64]) {
    for (x, r) in x.chunks(4).zip(r.chunks_mut(4)) {
        let [near, far] = [x[1] - 2.0 * x[2], x[0] - x[3]];
        let roots = [5f64.sqrt(), 10f64.sqrt()];
        r.copy_from_slice(&[x[0] + 10.0 * x[1], roots[0] * (x[2] - x[3]), near * near, roots[1] * far * far]);
    }
}

fn wood(x: &[f64], r: &mut [f64]) {
    for (x, r) in x.chunks(4).zip(r.chunks_mut(6)) {
        r.copy_from_slice(&[
            10.0 * (x[1] - x[0] * x[0]),
            1.0 - x[0],
            90f64.sqrt() * (x[3] - x[2] * x[2]),
            1.0 - x[2],
            10f64.sqrt() * (x[1] + x[3] - 2.0),
            (x[1] - x[3]) / 10f64.sqrt(),
        ]);
    }
}

fn trigonometric(x: &[f64], r: &mut [f64]) {
    let rest = x.len() as f64 - x.iter().map(|x| x.cos()).sum::<f64>();
    for (i, (x, r)) in x.iter().zip(r).enumerate() {
        *r = rest + (i + 1) as f64 * (1.0 - x.cos()) - x.sin();
    }
}

/// Starts of a problem of `count` parameters.
fn starts(problem: &Problem, count: usize) -> Vec<Vec<f64>> {
    let alike = [1.0 / count as f64];
    let block = if problem.start.is_empty() { &alike } else { problem.start };
    let standard: Vec<f64> = block.iter().copied().cycle().take(count).collect();
    let mut random = Random(count as u64);
    let mut around = || standard.iter().map(|x| x + (random.uniform() - 0.5) * x.abs().max(0.2)).collect();
    std::iter::once(standard.clone()).chain((1..STARTS).map(|_| around())).collect()
}

/// As often as scipy's `minimize(method="Nelder-Mead", options={"adaptive": True})` from the same starts: the simplex
/// alone, and with polish also as scipy with `"maxiter": 10**6, "maxfev": 10**5`.
#[test]
fn minima_are_met_as_often_as_by_scipy() {
    for problem in PROBLEMS {
        for (k, count) in [8, 12, 20].into_iter().enumerate() {
            let names: Vec<String> = (1..=count).map(|p| format!("x{p}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            for (polish, scipy) in [true, false].into_iter().zip(problem.scipy) {
                let model = Closure::residuals(&names, problem.residuals).unwrap();
                let fitter = CurveFitter::new(model, Device::cpu()).solver(NelderMead::default()).polish(polish);
                let (mut at_minimum, mut successes) = (0, 0);
                for start in starts(&problem, count) {
                    let rows = problem.rows * count / 4;
                    let fit = fitter.fit(&Curves::residuals(rows, count, start)).unwrap().swap_remove(0);
                    at_minimum += usize::from(fit.chi2 < AT_MINIMUM);
                    successes += usize::from(fit.status.is_success());
                }
                let what = format!("{}, {count} parameters, polish {polish}", problem.name);
                println!("{what}: {at_minimum} of {STARTS}, {successes} successes");
                assert!(at_minimum >= scipy[k], "{what}: {at_minimum} of {STARTS}");
            }
        }
    }
}

/// Asserts that a step of Levenberg–Marquardt from the end of a simplex's success lowers χ² by no more than this share
/// of it; returns whether it was a success. `fits` fits a start by a solver, without polish unless that is a simplex.
fn assert_minimum(share: f64, fits: impl Fn(Solver, &[f64]) -> CurveFit, start: &[f64]) -> bool {
    let simplex = fits(NelderMead::default().into(), start);
    if !simplex.status.is_success() {
        return false;
    }
    let on = fits(LevenbergMarquardt::default().max_rounds(2).into(), &simplex.parameters);
    assert!(on.chi2 >= simplex.chi2 * (1.0 - share) - NOTHING, "{simplex:?}\n{on:?}");
    true
}

/// Wood's valley has a saddle, near which restarts of a simplex gain nothing; Biggs' sum of three exponentials is
/// hardly determined, and its bounds cut the valley.
#[test]
fn no_success_is_above_a_minimum() {
    let names = ["x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8"];
    let wood = |solver: Solver, start: &[f64]| {
        let is_simplex = matches!(solver, Solver::NelderMead(_));
        let model = Closure::residuals(&names, wood).unwrap();
        let fitter = CurveFitter::new(model, Device::cpu()).solver(solver).polish(is_simplex);
        fitter.fit(&Curves::residuals(12, 8, start.to_vec())).unwrap().swap_remove(0)
    };
    let (fatol, mut random) = (NelderMead::default().fatol, Random(1));
    let mut around = |x: f64| x + (random.uniform() - 0.5) * x.abs();
    let ends: Vec<bool> = (0..150)
        .map(|_| {
            assert_minimum(3.0 * fatol / 4.0, wood, &[-3.0, -1.0, -3.0, -1.0, -3.0, -1.0, -3.0, -1.0].map(&mut around))
        })
        .collect();
    assert!(ends.iter().filter(|end| **end).count() > 140);

    let formula = Formula::parse("p1*exp(-p2*x) - p3*exp(-p4*x) + p5*exp(-p6*x)").unwrap();
    let x: Vec<f64> = (1..=13).map(|i| 0.1 * f64::from(i)).collect();
    let y: Vec<f64> = x.iter().map(|t| (-t).exp() - 5.0 * (-10.0 * t).exp() + 3.0 * (-4.0 * t).exp()).collect();
    for top in [3.0, 5.0, 8.0, 20.0] {
        let biggs = |solver: Solver, start: &[f64]| {
            let is_simplex = matches!(solver, Solver::NelderMead(_));
            let fitter = CurveFitter::new(formula.clone(), Device::cpu()).solver(solver).polish(is_simplex);
            let fitter = formula.parameters().iter().fold(fitter, |fitter, name| fitter.bounds(name, 0.0, top));
            fitter.fit(&Curves::on_common_grid(x.clone(), y.clone(), start.to_vec())).unwrap().swap_remove(0)
        };
        let ends: Vec<bool> =
            (0..50).map(|_| assert_minimum(0.01, biggs, &[1.0, 1.0, 1.0, 2.0, 1.0, 1.0].map(&mut around))).collect();
        assert!(ends.iter().filter(|end| **end).count() > 25, "at most {top}");
    }
}

/// Without polish an end above the minimum is no success, and its message says why.
#[test]
fn without_polish_an_end_above_the_minimum_is_stalled() {
    let names = ["x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8"];
    let model = Closure::residuals(&names, wood).unwrap();
    let fitter = CurveFitter::new(model, Device::cpu()).solver(NelderMead::default()).polish(false);
    let fits = starts(&PROBLEMS[2], 8).into_iter().map(|start| fitter.fit(&Curves::residuals(12, 8, start)).unwrap());
    let above: Vec<CurveFit> = fits.map(|mut fits| fits.swap_remove(0)).filter(|fit| fit.chi2 > 1.0).collect();
    let is_told = |fit: &&CurveFit| fit.status == Status::Stalled && fit.message.contains("Gauss-Newton");
    assert!(above.iter().filter(is_told).count() >= 2, "{above:?}");
}
