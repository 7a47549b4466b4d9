//! Nelder–Mead by the default settings on problems of six to 20 parameters from the collection of Moré, Garbow &
//! Hillstrom (1981, ACM TOMS 7, 17).

use popfit::{
    Closure, CurveFit, CurveFitter, Curves, Device, Formula, LevenbergMarquardt, NelderMead,
    Solver, Status,
};
use popfit_testing::fits::gpu;
use popfit_testing::random::Random;

/// Number of starts, the standard one and some around it.
const STARTS: usize = 40;
/// χ² below which a fit is at the minimum, which is 0.
const AT_MINIMUM: f64 = 1e-3;

/// Reduction of χ²/dof at which a simplex has converged.
const FATOL: f64 = 1e-3;

/// Returns a search that stops earlier than that of curves does by default: with the settings of spectra.
fn simplex() -> NelderMead {
    NelderMead::default()
        .fatol(FATOL)
        .max_rounds(1500)
        .max_restarts(6)
}

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
        r.copy_from_slice(&[
            x[0] + 10.0 * x[1],
            roots[0] * (x[2] - x[3]),
            near * near,
            roots[1] * far * far,
        ]);
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
    let block = if problem.start.is_empty() {
        &alike
    } else {
        problem.start
    };
    let standard: Vec<f64> = block.iter().copied().cycle().take(count).collect();
    let mut random = Random(count as u64);
    let mut around = || {
        standard
            .iter()
            .map(|x| x + (random.uniform() - 0.5) * x.abs().max(0.2))
            .collect()
    };
    std::iter::once(standard.clone())
        .chain((1..STARTS).map(|_| around()))
        .collect()
}

/// As often as scipy's `minimize(method="Nelder-Mead", options={"adaptive": True})` from the same starts: the simplex
/// alone, and with polish also as scipy with `"maxiter": 10**6, "maxfev": 10**5`.
#[test]
fn minima_are_reached_as_often_as_by_scipy() {
    for problem in PROBLEMS {
        for (k, count) in [8, 12, 20].into_iter().enumerate() {
            let names: Vec<String> = (1..=count).map(|p| format!("x{p}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            for (polish, scipy) in [true, false].into_iter().zip(problem.scipy) {
                let model = Closure::residuals(&names, problem.residuals).unwrap();
                let fitter = CurveFitter::new(model, Device::cpu())
                    .solver(simplex())
                    .polish(polish);
                let mut at_minimum = 0;
                let mut successes = 0;
                for start in starts(&problem, count) {
                    let rows = problem.rows * count / 4;
                    let fit = fitter
                        .fit(&Curves::residuals(rows, count, start))
                        .unwrap()
                        .swap_remove(0);
                    at_minimum += usize::from(fit.chi2 < AT_MINIMUM);
                    successes += usize::from(fit.status.is_success());
                }
                let label = format!("{}, {count} parameters, polish {polish}", problem.name);
                println!("{label}: {at_minimum} of {STARTS}, {successes} successes");
                assert!(at_minimum >= scipy[k], "{label}: {at_minimum} of {STARTS}");
            }
        }
    }
}

/// Returns the share by which a step of Levenberg–Marquardt lowers χ² from the end of a simplex's success, `None` if it
/// was none. `fits` fits a start by a solver, without polish unless that is a simplex.
fn gain_of_a_step(fits: impl Fn(Solver, &[f64]) -> CurveFit, start: &[f64]) -> Option<f64> {
    let simplex = fits(simplex().into(), start);
    let on = fits(
        LevenbergMarquardt::default().max_rounds(2).into(),
        &simplex.parameters,
    );
    simplex
        .status
        .is_success()
        .then(|| (simplex.chi2 - NOTHING - on.chi2) / simplex.chi2)
}

/// Wood's function has a saddle, near which restarts of a simplex gain nothing; Biggs' sum of three exponentials is
/// poorly determined, and its bounds cut the valley.
#[test]
fn no_success_is_above_a_minimum() {
    let names = ["x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8"];
    let wood = |solver: Solver, start: &[f64]| {
        let is_simplex = matches!(solver, Solver::NelderMead(_));
        let model = Closure::residuals(&names, wood).unwrap();
        let fitter = CurveFitter::new(model, Device::cpu())
            .solver(solver)
            .polish(is_simplex);
        fitter
            .fit(&Curves::residuals(12, 8, start.to_vec()))
            .unwrap()
            .swap_remove(0)
    };
    let fatol = FATOL;
    let mut random = Random(1);
    let mut around = |x: f64| x + (random.uniform() - 0.5) * x.abs();
    let mut start = || [-3.0, -1.0, -3.0, -1.0, -3.0, -1.0, -3.0, -1.0].map(&mut around);
    let gains: Vec<f64> = (0..150)
        .filter_map(|_| gain_of_a_step(wood, &start()))
        .collect();
    assert!(
        gains.len() > 140 && gains.iter().all(|gain| *gain <= 3.0 * fatol / 4.0),
        "{gains:?}"
    );

    for top in [3.0, 5.0, 8.0, 20.0] {
        let biggs = |solver: Solver, start: &[f64]| biggs(top, solver, start);
        let mut start = || [1.0, 1.0, 1.0, 2.0, 1.0, 1.0].map(&mut around);
        let gains: Vec<f64> = (0..50)
            .filter_map(|_| gain_of_a_step(biggs, &start()))
            .collect();
        assert!(
            gains.len() > 25 && gains.iter().all(|gain| *gain <= 0.01),
            "at most {top}: {gains:?}"
        );
    }
}

/// Fits Biggs' problem with all parameters between 0 and `top`, without polish unless the solver is a simplex.
fn biggs(top: f64, solver: Solver, start: &[f64]) -> CurveFit {
    let formula = Formula::parse("p1*exp(-p2*x) - p3*exp(-p4*x) + p5*exp(-p6*x)").unwrap();
    let x: Vec<f64> = (1..=13).map(|i| 0.1 * f64::from(i)).collect();
    let y: Vec<f64> = x
        .iter()
        .map(|t| (-t).exp() - 5.0 * (-10.0 * t).exp() + 3.0 * (-4.0 * t).exp())
        .collect();
    let is_simplex = matches!(solver, Solver::NelderMead(_));
    let fitter = CurveFitter::new(formula.clone(), Device::cpu())
        .solver(solver)
        .polish(is_simplex);
    let fitter = formula
        .parameters()
        .iter()
        .fold(fitter, |fitter, name| fitter.bounds(name, 0.0, top));
    fitter
        .fit(&Curves::on_common_grid(x, y, start.to_vec()))
        .unwrap()
        .swap_remove(0)
}

/// Simplices of a GPU end in f32, and the host judges them: Wood's function as a formula, of one predictor per
/// residual.
#[test]
fn no_success_of_a_gpu_is_above_a_minimum() {
    let Some(gpu) = gpu() else { return };
    let block = |r: usize, p: usize| {
        let [a, b, c, d] = [p, p + 1, p + 2, p + 3].map(|p| format!("p{p}"));
        let [r1, r2, r3, r4, r5, r6] =
            [r, r + 1, r + 2, r + 3, r + 4, r + 5].map(|r| format!("r{r}"));
        format!(
            "{r1}*10*({b} - {a}^2) + {r2}*(1 - {a}) + {r3}*sqrt(90)*({d} - {c}^2) + {r4}*(1 - {c}) + \
             {r5}*sqrt(10)*({b} + {d} - 2) + {r6}*({b} - {d})/sqrt(10)"
        )
    };
    let predictors: Vec<String> = (1..=12).map(|r| format!("r{r}")).collect();
    let predictors: Vec<&str> = predictors.iter().map(String::as_str).collect();
    let names = ["p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"];
    let formula =
        Formula::parse_with(&format!("{} + {}", block(1, 1), block(7, 5)), &predictors).unwrap();
    let formula = formula.with_parameters(&names).unwrap();
    let x: Vec<f64> = (0..144)
        .map(|k| f64::from(u8::from(k / 12 == k % 12)))
        .collect();
    let mut random = Random(1);
    let mut around = |x: f64| x + (random.uniform() - 0.5) * x.abs();
    let starts: Vec<f64> = (0..300)
        .flat_map(|_| [-3.0, -1.0].repeat(4))
        .map(&mut around)
        .collect();
    let fits = |device: &Device, solver: Solver, starts: Vec<f64>| {
        let is_simplex = matches!(solver, Solver::NelderMead(_));
        let fitter = CurveFitter::new(formula.clone(), device.clone())
            .solver(solver)
            .polish(is_simplex);
        fitter
            .fit(&Curves::on_common_grid(
                x.clone(),
                vec![0.0; 12 * starts.len() / 8],
                starts,
            ))
            .unwrap()
    };
    let simplices = fits(&gpu, simplex().into(), starts);
    let ends = simplices
        .iter()
        .flat_map(|fit| fit.parameters.clone())
        .collect();
    let on = fits(
        &Device::cpu(),
        LevenbergMarquardt::default().max_rounds(2).into(),
        ends,
    );
    let successes = simplices
        .iter()
        .zip(&on)
        .filter(|(simplex, _)| simplex.status.is_success());
    let gains: Vec<f64> = successes
        .map(|(simplex, on)| (simplex.chi2 - NOTHING - on.chi2) / simplex.chi2)
        .collect();
    let most = 3.0 * FATOL / 4.0;
    let above = gains.iter().filter(|gain| **gain > most).count();
    assert!(
        gains.len() > 270 && above == 0,
        "{above} of {}",
        gains.len()
    );
}

/// Without polish an end above the minimum is no success, and its message says why.
#[test]
fn without_polish_an_end_above_the_minimum_is_stalled() {
    let names = ["x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8"];
    let model = Closure::residuals(&names, wood).unwrap();
    let fitter = CurveFitter::new(model, Device::cpu())
        .solver(simplex())
        .polish(false);
    let fits = starts(&PROBLEMS[2], 8)
        .into_iter()
        .map(|start| fitter.fit(&Curves::residuals(12, 8, start)).unwrap());
    let above: Vec<CurveFit> = fits
        .map(|mut fits| fits.swap_remove(0))
        .filter(|fit| fit.chi2 > 1.0)
        .collect();
    let is_told =
        |fit: &&CurveFit| fit.status == Status::Stalled && fit.message.contains("Gauss-Newton");
    assert!(above.iter().filter(is_told).count() >= 2, "{above:?}");
}
