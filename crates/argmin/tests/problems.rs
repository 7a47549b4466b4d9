//! popfit's problems under argmin's solvers.

use argmin::core::{CostFunction, Executor, Gradient, Jacobian, Operator, State};
use argmin::solver::particleswarm::ParticleSwarm;
use popfit::{CurveFitter, Curves, Device, Error, Estimator, Formula, Spectra, SpectralFitter};
use popfit_argmin::{Problem, Problems};
use popfit_testing::demo_builder;
use popfit_testing::fits::{demo_spectra, devices, fitter};

const SPECTRUM_COUNT: usize = 3;

fn decay_curves() -> Curves<'static> {
    let x: Vec<f64> = (0..30).map(|j| 0.1 * f64::from(j)).collect();
    let y: Vec<f64> = x
        .iter()
        .enumerate()
        .map(|(j, x)| 3.0 * (-0.7 * x).exp() + 0.01 * (j as f64).sin())
        .collect();
    Curves::on_common_grid(x, y, vec![1.0, 1.0]).sigma(vec![0.02; 30])
}

fn decay_fitter(device: &Device) -> CurveFitter {
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), device.clone());
    let fitter = fitter.bounds("a", 0.0, 10.0).bounds("k", 0.0, 4.0);
    fitter.prior("k", 0.8, 0.5)
}

fn first_spectra() -> Spectra<'static> {
    demo_spectra().slice(0..SPECTRUM_COUNT)
}

fn spectral_fitter(device: &Device, marginalise: bool) -> SpectralFitter {
    fitter(
        demo_builder("").marginalise(marginalise).build().unwrap(),
        device,
    )
}

/// A curve, and a spectrum with velocity and continuum, on every device.
fn problems() -> Vec<(String, Problem, f64)> {
    let mut problems = Vec::new();
    for device in devices() {
        let noise = if device.name().starts_with("cpu") {
            1e-6
        } else {
            1e-3
        };
        let curve = Problems::of_curves(&decay_fitter(&device), &decay_curves())
            .unwrap()
            .problem(0)
            .unwrap();
        problems.push((format!("curve on {}", device.name()), curve, noise));
        let spectrum = Problems::of_spectra(&spectral_fitter(&device, false), &first_spectra())
            .unwrap()
            .problem(1)
            .unwrap();
        problems.push((format!("spectrum on {}", device.name()), spectrum, 1e-3));
    }
    problems
}

fn agree_within(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * a.abs().max(b.abs())
}

#[test]
fn residuals_cost_gradient_and_jacobian_agree() {
    for (name, problem, noise) in problems() {
        let u = problem.start();
        let count = u.len();
        let residual = problem.apply(&u).unwrap();
        let n = residual.len();
        let sum_of_squares: f64 = residual.iter().map(|r| r * r).sum();
        let cost = problem.cost(&u).unwrap();
        assert!(
            agree_within(sum_of_squares, cost, noise),
            "{name}: {sum_of_squares} {cost}"
        );
        assert!(
            agree_within(problem.cost_and_gradient(&u).unwrap().0, cost, noise),
            "{name}"
        );
        let gradient = problem.gradient(&u).unwrap();
        let jacobian = problem.jacobian(&u).unwrap();
        assert_eq!(
            (jacobian.len(), jacobian[0].len(), gradient.len()),
            (n, count, count)
        );
        let largest = gradient.iter().fold(0.0_f64, |a, g| a.max(g.abs()));
        for p in 0..count {
            // the part of the rows that the continuum takes is orthogonal to the residual
            let from_rows: f64 = residual
                .iter()
                .zip(&jacobian)
                .map(|(r, row)| 2.0 * r * row[p])
                .sum();
            assert!(
                (from_rows - gradient[p]).abs() <= 1e-3 * largest,
                "{name} {p}: {from_rows} {}",
                gradient[p]
            );
            let step = 1e-3 * u[p].abs().max(1.0);
            let cost_beside = |sign: f64| {
                let mut moved = u.clone();
                moved[p] += sign * step;
                problem.cost(&moved).unwrap()
            };
            let difference = (cost_beside(1.0) - cost_beside(-1.0)) / (2.0 * step);
            assert!(
                (difference - gradient[p]).abs() <= 0.02 * largest,
                "{name} {p}: {difference} {}",
                gradient[p]
            );
        }
    }
}

#[test]
fn gauss_newton_with_the_jacobian_reaches_the_fitted_minimum() {
    // Gauss–Newton steps by the residuals and the Jacobian end where Levenberg–Marquardt does
    let problem = Problems::of_spectra(&spectral_fitter(&Device::cpu(), false), &first_spectra())
        .unwrap()
        .problem(0)
        .unwrap();
    let mut u = problem.start();
    for _ in 0..8 {
        let residual = problem.residuals(&u).unwrap();
        let columns = problem.jacobian_columns(&u).unwrap();
        let jacobian = nalgebra::DMatrix::from_vec(residual.len(), u.len(), columns);
        let right = jacobian.tr_mul(&nalgebra::DVector::from_vec(residual));
        let delta = (jacobian.tr_mul(&jacobian))
            .cholesky()
            .unwrap()
            .solve(&right);
        u.iter_mut().zip(delta.iter()).for_each(|(u, d)| *u -= d);
    }
    let row = &spectral_fitter(&Device::cpu(), false)
        .fit(&first_spectra())
        .unwrap()
        .row(0);
    for ((found, fitted), error) in problem
        .physical(&u)
        .iter()
        .zip(&row.parameters)
        .zip(&row.errors)
    {
        assert!(
            (found - fitted).abs() < 0.02 * error,
            "{found} {fitted} ± {error}"
        );
    }
}

#[test]
fn bulk_costs_equal_single_costs_and_are_infinite_outside_the_bounds() {
    for (name, problem, _) in problems() {
        let start = problem.start();
        let mut points: Vec<Vec<f64>> = (0..300)
            .map(|k| start.iter().map(|u| u + 1e-4 * f64::from(k)).collect())
            .collect();
        points[7][0] = problem.bounds().1[0] + 1.0;
        let bulk = problem.bulk_cost(&points).unwrap();
        assert_eq!(bulk.len(), 300);
        for (k, (point, cost)) in points.iter().zip(&bulk).enumerate() {
            assert_eq!(k == 7, cost.is_infinite(), "{name}");
            assert_eq!(
                problem.cost(point).unwrap().to_bits(),
                cost.to_bits(),
                "{name} {k}"
            );
        }
        assert!(problem.bulk_cost::<Vec<f64>>(&[]).unwrap().is_empty());
        assert!(problem.cost(&vec![0.0]).is_err());
    }
}

#[test]
fn turned_problem_equals_a_new_one() {
    let problems =
        Problems::of_spectra(&spectral_fitter(&Device::cpu(), true), &first_spectra()).unwrap();
    let mut turned = problems.problem(0).unwrap();
    for k in [2, 1, 0] {
        turned.turn_to(&problems, k).unwrap();
        let new_problem = problems.problem(k).unwrap();
        assert_eq!(turned.start(), new_problem.start());
        assert_eq!(
            turned.cost(&new_problem.start()).unwrap(),
            new_problem.cost(&new_problem.start()).unwrap()
        );
    }
    assert!(turned.turn_to(&problems, SPECTRUM_COUNT).is_err());
    let foreign_problems =
        Problems::of_spectra(&spectral_fitter(&Device::cpu(), true), &first_spectra()).unwrap();
    assert!(turned.turn_to(&foreign_problems, 0).is_err());
}

/// Rows are those of the file, not of the batch.
#[test]
fn bad_spectrum_is_named_by_its_row_in_the_file() {
    let mut spectra = demo_spectra().slice(5..8);
    spectra.arms[0].ivar.to_mut()[..100].fill(-1.0);
    let refused = Problems::of_spectra(&spectral_fitter(&Device::cpu(), false), &spectra);
    assert!(
        matches!(refused, Err(Error::BadSpectrum { row: 5, .. })),
        "{:?}",
        refused.err()
    );
}

#[test]
fn particle_swarm_finds_the_minimum_of_the_fit() {
    for device in devices() {
        let problem = Problems::of_curves(&decay_fitter(&device), &decay_curves())
            .unwrap()
            .problem(0)
            .unwrap();
        let fit = &decay_fitter(&Device::cpu()).fit(&decay_curves()).unwrap()[0];
        let swarm = ParticleSwarm::new(problem.bounds(), 40);
        let run = Executor::new(problem, swarm)
            .configure(|state| state.max_iters(150))
            .run()
            .unwrap();
        let problem = run.problem.problem.as_ref().unwrap();
        // 40 particles at once, 151 times
        assert_eq!(problem.evaluations(), (40 * 151, 0));
        let found = problem.physical(&run.state.get_best_param().unwrap().position);
        for (found, fitted) in found.iter().zip(&fit.parameters) {
            assert!(
                (found - fitted).abs() < 2e-3 * fitted.abs(),
                "{found} {fitted}"
            );
        }
    }
}

#[test]
fn robust_estimators_have_no_residuals_and_ties_are_refused() {
    for device in devices() {
        let robust = decay_fitter(&device).estimator(Estimator::Huber(1.0));
        let problem = Problems::of_curves(&robust, &decay_curves())
            .unwrap()
            .problem(0)
            .unwrap();
        assert!(problem.residuals(&problem.start()).is_err());
        let plain = Problems::of_curves(&decay_fitter(&device), &decay_curves())
            .unwrap()
            .problem(0)
            .unwrap();
        // far residuals count less
        let start = problem.start();
        let costs = (problem.cost(&start).unwrap(), plain.cost(&start).unwrap());
        assert!(costs.0 > 0.0 && costs.0 < costs.1, "{costs:?}");
    }
    let tied =
        CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu()).tie("a", "2*k");
    assert!(Problems::of_curves(&tied, &decay_curves()).is_err());
}

#[test]
fn counts_with_sigma_or_below_zero_are_refused() {
    let x: Vec<f64> = (0..30).map(|j| 0.1 * f64::from(j)).collect();
    let counts = decay_fitter(&Device::cpu()).estimator(Estimator::Poisson);
    let message = Problems::of_curves(&counts, &decay_curves())
        .err()
        .unwrap()
        .to_string();
    assert!(message.starts_with("sigma: "), "{message}");
    let mut y = vec![2.0; 30];
    y[4] = -1.0;
    let message = Problems::of_curves(&counts, &Curves::on_common_grid(x, y, vec![1.0, 1.0]))
        .err()
        .unwrap()
        .to_string();
    assert!(
        message.contains("curve 0: bad_count: y is -1 at point 4"),
        "{message}"
    );
}

#[test]
fn closure_costs_have_gradients_and_report_panics() {
    let model = popfit::Closure::cost(&["a", "b"], |p| {
        assert!(p[0] < 50.0, "far out");
        2.0 * p[0] * p[0] - 3.0 * p[1] - 20.0
    });
    let fitter = CurveFitter::new(model.unwrap(), Device::cpu());
    let problem = Problems::of_curves(&fitter, &Curves::residuals(1, 2, vec![1.0, 1.0]))
        .unwrap()
        .problem(0)
        .unwrap();
    assert!((problem.cost(&vec![2.0, 1.0]).unwrap() + 15.0).abs() < 1e-12);
    let gradient = problem.gradient(&vec![2.0, 1.0]).unwrap();
    assert!(
        (gradient[0] - 8.0).abs() < 1e-6 && (gradient[1] + 3.0).abs() < 1e-6,
        "{gradient:?}"
    );
    let error = problem.cost(&vec![60.0, 1.0]).unwrap_err().to_string();
    assert!(error.contains("far out"), "{error}");
    assert!(problem.cost(&vec![3.0, 1.0]).is_ok() && problem.residuals(&[1.0, 1.0]).is_err());
}
