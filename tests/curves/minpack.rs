//! Successes are minima: the least-squares problems of MINPACK's own test, from starts that are up to 100 times off,
//! and points that are stationary and no minimum.

use popfit::{Closure, CurveFitter, Curves, Device, Flags, Formula};
use popfit_testing::curves::twenty;
use popfit_testing::fits::devices;
use popfit_testing::minpack::{MinpackProblem, problems};
use popfit_testing::random::Random;

/// Every success is a minimum, with and without polish, and polish turns no success into a failure. Meyer's problem
/// from 10 times its start uses up its rounds in a curved valley.
#[test]
fn successes_are_minima() {
    let mut successes = 0;
    let mut all = 0;
    for problem in problems() {
        for factor in [1.0, 10.0, 100.0].into_iter().take(problem.tries) {
            let [plain, polished] =
                [false, true].map(|polish| problem.fit(factor, polish).unwrap());
            let label = format!(
                "{}, {} parameters, start x {factor}",
                problem.name,
                problem.start.len()
            );
            for fit in [&plain, &polished] {
                println!(
                    "{label}: {} after {} rounds, {:e}",
                    fit.status.name(),
                    fit.rounds,
                    fit.chi2
                );
                assert!(
                    !fit.status.is_success() || problem.is_minimum(fit.chi2),
                    "{label}: {fit:?}"
                );
            }
            assert!(
                polished.status.is_success() || !plain.status.is_success(),
                "{label}: {plain:?} {polished:?}"
            );
            assert!(
                polished.chi2 <= plain.chi2 * (1.0 + 1e-9) + 1e-20,
                "{label}: {plain:?} {polished:?}"
            );
            (all, successes) = (
                all + 1,
                successes + usize::from(polished.status.is_success()),
            );
        }
    }
    assert!(all == 52 && successes >= 51, "{successes} of {all}");
}

/// No success ends on a slope: the residual is orthogonal to the Jacobian's column of each determined parameter. The
/// starts are harder than MINPACK's.
#[test]
fn no_success_ends_on_a_slope() {
    let mut judged = 0;
    let mut all = 0;
    for problem in problems() {
        for factor in [1.0, 10.0, 100.0, 0.1, -1.0, -10.0] {
            let fit = problem.fit(factor, true).unwrap();
            all += 1;
            if !fit.status.is_success()
                || fit.chi2 < 1e-12
                || fit.flags.contains(Flags::UNDETERMINED)
            {
                continue;
            }
            judged += 1;
            for p in 0..fit.parameters.len() {
                let cosine = cosine(&problem, &fit.parameters, p);
                assert!(
                    cosine < 2e-4,
                    "{} x {factor}, parameter {p}: {cosine:e}, {fit:?}",
                    problem.name
                );
            }
        }
    }
    assert!(judged > 60, "{judged} of {all}");
}

/// Returns the |cosine| between the residual and its derivative by parameter `p`, from central differences.
fn cosine(problem: &MinpackProblem, parameters: &[f64], p: usize) -> f64 {
    let residuals = |change: f64| {
        let mut moved = parameters.to_vec();
        moved[p] += change;
        let mut rows = vec![0.0; problem.rows];
        (problem.residuals)(&moved, &mut rows);
        rows
    };
    let step = 1e-6 * parameters[p].abs().max(1e-3);
    let slopes: Vec<f64> = residuals(step)
        .iter()
        .zip(residuals(-step))
        .map(|(up, down)| up - down)
        .collect();
    let rows = residuals(0.0);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let lengths = (dot(&slopes, &slopes) * dot(&rows, &rows)).sqrt();
    if lengths > 0.0 {
        dot(&slopes, &rows).abs() / lengths
    } else {
        0.0
    }
}

/// A saddle in parameters without effect is no success.
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
        assert!(
            !fit.status.is_success() || fit.chi2 < 0.1,
            "{text}: {fit:?}"
        );
        assert!(
            !columns.status[0].is_success() || columns.chi2[0] < 0.1,
            "{text}: {columns:?}"
        );
    }
}

/// Draws a sum of two exponentials, with noise as large as the curve's scatter, and a start that is 20 to 50 % off.
fn noisy_decay(random: &mut Random, x: &[f64]) -> (Vec<f64>, [f64; 4]) {
    let mut between = |low: f64, high: f64| low + (high - low) * random.uniform();
    let truth = [
        between(1.0, 5.0),
        between(0.1, 0.5),
        between(1.0, 5.0),
        between(1.0, 4.0),
    ];
    let start = truth
        .map(|p| p * (1.0 + between(0.2, 0.5) * if between(0.0, 1.0) < 0.5 { -1.0 } else { 1.0 }));
    let y: Vec<f64> = x
        .iter()
        .map(|x| truth[0] * (-truth[1] * x).exp() + truth[2] * (-truth[3] * x).exp())
        .collect();
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    let scatter = (y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / y.len() as f64).sqrt();
    (
        y.iter().map(|y| y + scatter * random.normal()).collect(),
        start,
    )
}

/// Two exponentials whose rates become equal in a fit separate again, however small the data: neither the Jacobian nor
/// a solver that follows it shows the lower cost beside that point.
#[test]
fn equal_rates_are_no_minimum() {
    let x: Vec<f64> = (0..50).map(|j| f64::from(j) / 4.9).collect();
    let mut random = Random(1);
    let mut all = Vec::new();
    let mut starts = Vec::new();
    for _ in 0..500 {
        let (y, start) = noisy_decay(&mut random, &x);
        all.extend(y);
        starts.extend(start);
    }
    let scaled = |unit: f64| {
        let y: Vec<f64> = all.iter().map(|y| unit * y).collect();
        let starts: Vec<f64> = starts
            .chunks(4)
            .flat_map(|p| [unit * p[0], p[1], unit * p[2], p[3]])
            .collect();
        Curves::on_common_grid(x.clone(), y, starts)
    };
    let is_equal = |p: &[f64]| (p[1] - p[3]).abs() < 1e-5 * p[1].abs();
    let on_devices = devices().into_iter().map(|device| (device, 1.0));
    for (device, unit) in on_devices.chain([(Device::cpu(), 1e-90)]) {
        let curves = scaled(unit);
        let fitter = CurveFitter::new(
            Formula::parse("a*exp(-k*x) + b*exp(-q*x)").unwrap(),
            device.clone(),
        );
        let columns = fitter.fit_columns(&curves).unwrap();
        let ends = columns.status.iter().zip(columns.parameters.chunks(4));
        let equal: Vec<_> = ends
            .filter(|(status, end)| status.is_success() && is_equal(end))
            .collect();
        assert!(
            equal.is_empty(),
            "{} columns of {}: {:?}",
            equal.len(),
            device.name(),
            equal[0]
        );
        let fits = fitter.fit(&curves).unwrap();
        let equal: Vec<_> = fits
            .iter()
            .filter(|fit| fit.status.is_success() && is_equal(&fit.parameters))
            .collect();
        assert!(
            equal.is_empty(),
            "{} fits of {}: {:?}",
            equal.len(),
            device.name(),
            equal[0]
        );
        let successes = fits.iter().filter(|fit| fit.status.is_success()).count();
        assert!(
            successes >= 495,
            "{successes} successes of {}",
            device.name()
        );
    }
}

/// The message of a fit that does not leave its start suggests wrong derivatives.
#[test]
fn a_start_that_wrong_derivatives_do_not_leave_is_no_success() {
    let wrong = Closure::new(&["x"], &["a", "k"], |x, p, y| {
        y.iter_mut()
            .zip(x)
            .for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp());
    });
    let wrong = wrong.unwrap().derivatives(|x, p, rows| {
        for (j, x) in x.iter().enumerate() {
            rows[j] = -(-p[1] * x).exp();
            rows[20 + j] = -p[0] * x * (-p[1] * x).exp();
        }
    });
    let (x, y) = twenty(|x| 3.0 * (-0.8 * x).exp());
    let fit = CurveFitter::new(wrong, Device::cpu())
        .fit(&Curves::on_common_grid(x, y, vec![2.0, 0.5]))
        .unwrap();
    assert!(
        !fit[0].status.is_success() && fit[0].message.contains("check_jacobian"),
        "{:?}",
        fit[0]
    );
}

/// Terms that almost cancel leave residuals of their rounding, which have a slope at any minimum.
#[test]
fn rounding_of_terms_that_cancel_is_no_slope() {
    let noise = |j: usize| 1e-3 * ((j * 7919 % 101) as f64 / 50.0 - 1.0);
    let exact: (Vec<f64>, Vec<f64>) = (0..11)
        .map(|j| f64::from(j) + 2000.0)
        .map(|x| (x, 0.1 * (x - 2005.0f64).powi(2)))
        .unzip();
    let noisy: (Vec<f64>, Vec<f64>) = (0..31)
        .map(|j| {
            (
                f64::from(j) + 2_459_000.0,
                0.01 * (f64::from(j) - 12.3).powi(2) + noise(j as usize),
            )
        })
        .unzip();
    for (x, y) in [exact, noisy] {
        let curves = Curves::on_common_grid(x, y, vec![1.0, 1.0, 1.0]);
        let fitter = CurveFitter::new(Formula::parse("a + b*x + c*x^2").unwrap(), Device::cpu());
        let fit = fitter.fit(&curves).unwrap().swap_remove(0);
        assert!(
            fit.status.is_success() && fit.errors.iter().all(|e| !e.is_nan()),
            "{fit:?}"
        );
    }
}
