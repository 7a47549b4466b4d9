//! Guesses of built-in models: from them fits end where they end from the truth.

use std::f64::consts::TAU;

use popfit::{CurveFitter, Curves, Device, Formula};
use popfit_testing::random::Random;

/// Number of problems per model.
const PROBLEMS: usize = 300;

/// Models, and the smallest share of guesses that are good enough.
const LEAST: [(&str, f64); 31] = [
    ("linear1d", 0.97),
    ("polynomial(0)", 0.97),
    ("polynomial(5)", 0.97),
    ("gauss1d", 0.97),
    ("gauss2d", 0.97),
    ("gauss2d_elliptic", 0.97),
    ("gauss2d_rotated", 0.97),
    ("cauchy2d_elliptic", 0.97),
    ("exponential", 0.97),
    ("biexponential", 0.95),
    ("stretched_exponential", 0.97),
    ("lorentz", 0.97),
    ("pseudo_voigt", 0.97),
    ("voigt", 0.97),
    ("moffat", 0.97),
    ("fano", 0.97),
    ("skewed_gauss", 0.97),
    ("emg", 0.97),
    ("step_linear", 0.97),
    ("step_arctan", 0.97),
    ("step_erf", 0.97),
    ("step_logistic", 0.97),
    ("logistic", 0.97),
    ("gompertz", 0.97),
    ("hill", 0.97),
    ("logistic4", 0.97),
    ("sine", 0.95),
    ("damped_sine", 0.95),
    ("sersic", 0.97),
    ("power_law", 0.97),
    ("power_law_offset", 0.97),
];

/// Random points of a curve: x (predictors, n) and y, and the parameters that made them.
struct Problem {
    x: Vec<f64>,
    y: Vec<f64>,
    truth: Vec<f64>,
}

/// Numbers of one problem.
struct Draw<'a>(&'a mut Random);

impl Draw<'_> {
    fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.uniform()
    }

    /// Between two positive numbers, uniform in the logarithm.
    fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        (low.ln() + (high / low).ln() * self.0.uniform()).exp()
    }

    fn sign(&mut self) -> f64 {
        if self.0.uniform() < 0.5 { -1.0 } else { 1.0 }
    }
}

/// Returns the problem of a model: parameters of all signs over decades, peaks near edges, irregular x, and a range of
/// values of 5 to 1000 standard deviations of the noise.
fn problem(name: &str, formula: &Formula, random: &mut Random) -> Problem {
    let mut draw = Draw(random);
    let length = draw.magnitude(1e-3, 1e3);
    let height = draw.magnitude(1e-3, 1e3);
    let n = draw.within(30.0, 200.0).floor();
    let is_positive = matches!(
        name,
        "stretched_exponential" | "hill" | "logistic4" | "sersic"
    ) || name.starts_with("power_law");
    let first = match name {
        _ if is_positive => 0.0,
        "biexponential" => length * draw.within(0.0, 0.3),
        "exponential" | "damped_sine" => length * draw.within(0.0, 2.0),
        _ => length * draw.within(-5.0, 5.0),
    };
    let a = height * draw.sign();
    let c = height * draw.within(-5.0, 5.0);
    let m = first + length * draw.within(0.02, 0.98);
    let narrow = length * draw.magnitude(2.5 / n, 0.25);
    let truth = match name {
        "linear1d" => vec![c, a / length],
        _ if name.starts_with("polynomial") => (0..formula.parameters().len())
            .map(|k| height * draw.within(-1.0, 1.0) / length.powi(k as i32))
            .collect(),
        "gauss1d" | "lorentz" => vec![a, m, narrow, c],
        "step_linear" | "step_arctan" | "step_erf" | "step_logistic" => vec![a, m, narrow, c],
        "pseudo_voigt" => vec![a, m, 2.0 * narrow, draw.within(0.0, 1.0), c],
        "voigt" => vec![
            a * narrow,
            m,
            narrow * draw.within(0.1, 1.0),
            narrow * draw.within(0.1, 1.0),
            c,
        ],
        "moffat" => vec![a, m, narrow, draw.within(1.0, 5.0), c],
        "fano" => vec![
            a.abs(),
            m,
            narrow,
            draw.sign() * draw.magnitude(0.2, 5.0),
            c,
        ],
        "skewed_gauss" => vec![a, m, narrow, draw.within(-4.0, 4.0), c],
        "emg" => vec![
            a * narrow,
            m,
            narrow,
            draw.sign() * narrow * draw.magnitude(0.3, 4.0),
            c,
        ],
        "exponential" => vec![a, draw.sign() * draw.magnitude(0.3, 30.0) / length, c],
        "biexponential" => {
            let slow = draw.magnitude(0.3, 3.0) / length;
            vec![
                a,
                slow,
                draw.sign() * height * draw.magnitude(0.3, 3.0),
                slow * draw.magnitude(3.0, 20.0),
                c,
            ]
        }
        "stretched_exponential" => vec![
            a,
            length * draw.magnitude(0.05, 1.0),
            draw.magnitude(0.4, 2.5),
            c,
        ],
        "logistic" | "gompertz" => {
            let middle = first + length * draw.within(0.0, 1.1);
            vec![a, draw.sign() * draw.magnitude(3.0, 50.0) / length, middle]
        }
        "hill" => vec![
            a,
            length * draw.magnitude(0.03, 2.0),
            draw.sign() * draw.magnitude(0.5, 6.0),
        ],
        "logistic4" => vec![
            a,
            length * draw.magnitude(0.03, 1.0),
            draw.sign() * draw.magnitude(0.5, 6.0),
            c,
        ],
        "sine" => vec![
            height,
            draw.magnitude(0.7, n / 4.0) / length,
            draw.within(0.0, TAU),
            c,
        ],
        "damped_sine" => {
            let rate = draw.within(-1.0, 8.0) / length;
            let frequency = draw.magnitude(2.0, n / 5.0) / length;
            vec![height, rate, frequency, draw.within(0.0, TAU), c]
        }
        "sersic" => vec![
            height,
            length * draw.magnitude(0.05, 0.8),
            draw.magnitude(0.6, 6.0),
        ],
        "power_law" | "power_law_offset" => {
            let exponent = draw.sign() * draw.magnitude(0.3, 4.0);
            [a * length.powf(-exponent), exponent, c][..formula.parameters().len()].to_vec()
        }
        _ => {
            let place = [0, 1].map(|_| first + length * draw.within(0.05, 0.95));
            let [wide, high] = [0, 1].map(|_| length * draw.magnitude(0.05, 0.25));
            let count = formula.parameters().len();
            let all = [a, place[0], place[1], wide, high, c, draw.within(-1.5, 1.5)];
            if count == 5 {
                vec![a, place[0], place[1], wide, c]
            } else {
                all[..count].to_vec()
            }
        }
    };
    let x: Vec<f64> = if formula.predictors().len() == 2 {
        // An image, or as many scattered points.
        let side = draw.within(10.0, 20.0).floor();
        let is_image = draw.sign() > 0.0;
        let places: Vec<[f64; 2]> = (0..(side * side) as usize)
            .map(|j| match is_image {
                true => [
                    (j as f64 / side).floor() / (side - 1.0),
                    (j as f64 % side) / (side - 1.0),
                ],
                false => [draw.within(0.0, 1.0), draw.within(0.0, 1.0)],
            })
            .collect();
        [0, 1]
            .iter()
            .flat_map(|d| places.iter().map(|place| first + length * place[*d]))
            .collect()
    } else {
        let low = if is_positive { 0.02 } else { 0.0 };
        (0..n as usize)
            .map(|_| first + length * draw.within(low, 1.0))
            .collect()
    };
    let mut y = formula.values(&x, &truth).unwrap();
    let [low, high] = [f64::min, f64::max].map(|end| y.iter().copied().reduce(end).unwrap());
    let noise = (high - low).max(1e-9 * high.abs()) / draw.magnitude(5.0, 1000.0);
    y.iter_mut().for_each(|y| *y += noise * draw.0.normal());
    Problem { x, y, truth }
}

/// Returns χ² at the end of a fit from a start.
fn fitted_chi2(formula: &Formula, problem: &Problem, start: Vec<f64>) -> f64 {
    let curves = Curves::on_common_grid(problem.x.clone(), problem.y.clone(), start);
    let fit = CurveFitter::new(formula.clone(), Device::cpu()).fit(&curves);
    fit.map_or(f64::INFINITY, |fits| {
        if fits[0].chi2.is_finite() {
            fits[0].chi2
        } else {
            f64::INFINITY
        }
    })
}

/// Returns the share of guesses from which a fit ends at most 0.1 % above where it ends from the truth.
fn good_share(name: &str, report: bool) -> f64 {
    let formula = Formula::builtin(name).unwrap();
    let random = &mut Random(11);
    let mut good = 0;
    for k in 0..PROBLEMS {
        let problem = problem(name, &formula, random);
        let start = formula.guess(&problem.x, &problem.y).unwrap();
        let best = fitted_chi2(&formula, &problem, problem.truth.clone());
        let actual = fitted_chi2(&formula, &problem, start.clone());
        let is_good = actual <= 1.001 * best || !best.is_finite();
        good += usize::from(is_good);
        if report && !is_good {
            println!(
                "{name} {k}: {actual:e} above {best:e}, {start:?} for {:?}",
                problem.truth
            );
        }
    }
    good as f64 / PROBLEMS as f64
}

#[test]
fn fits_from_guesses_end_where_fits_from_the_truth_do() {
    let wrong: Vec<String> = LEAST
        .iter()
        .map(|(name, least)| (name, least, good_share(name, false)))
        .inspect(|(name, _, share)| println!("{name}: {share:.3}"))
        .filter(|(_, least, share)| share < least)
        .map(|(name, least, share)| {
            format!("{name}: {share} of guesses are good, fewer than {least}")
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
