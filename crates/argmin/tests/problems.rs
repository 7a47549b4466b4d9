//! popfit's problems under argmin's solvers.

use argmin::core::{CostFunction, Executor, Gradient, Jacobian, Operator, State};
use argmin::solver::particleswarm::ParticleSwarm;
use popfit::{CurveFitter, Curves, Device, Error, Estimator, Formula, Spectra, SpectralFitter};
use popfit_argmin::{Problem, Problems};
use popfit_testing::demo_builder;
use popfit_testing::fits::{demo_spectra, devices, fitter};

const SPECTRA: usize = 3;

fn curves() -> Curves<'static> {
    let x: Vec<f64> = (0..30).map(|j| 0.1 * f64::from(j)).collect();
    let y: Vec<f64> = x
        .iter()
        .enumerate()
        .map(|(j, x)| 3.0 * (-0.7 * x).exp() + 0.01 * (j as f64).sin())
        .collect();
    Curves::on_common_grid(x, y, vec![1.0, 1.0]).sigma(vec![0.02; 30])
}

fn decay(device: &Device) -> CurveFitter {
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), device.clone());
    let fitter = fitter.bounds("a", 0.0, 10.0).bounds("k", 0.0, 4.0);
    fitter.prior("k", 0.8, 0.5)
}

fn spectra() -> Spectra<'static> {
    demo_spectra().slice(0..SPECTRA)
}

fn stars(device: &Device, marginalise: bool) -> SpectralFitter {
    fitter(
        demo_builder("").marginalise(marginalise).build().unwrap(),
        device,
    )
}

/// A curve, and a spectrum with velocity and continuum, on every device.
fn problems() -> Vec<(String, Problem, f64)> {
    let mut all = Vec::new();
    for device in devices() {
        let noise = if device.name().starts_with("cpu") {
            1e-6
        } else {
            1e-3
        };
        let curve = Problems::of_curves(&decay(&device), &curves())
            .unwrap()
            .problem(0)
            .unwrap();
        all.push((format!("curve on {}", device.name()), curve, noise));
        let star = Problems::of_spectra(&stars(&device, false), &spectra())
            .unwrap()
            .problem(1)
            .unwrap();
        all.push((format!("spectrum on {}", device.name()), star, 1e-3));
    }
    all
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * a.abs().max(b.abs())
}

#[test]
fn residuals_costs_and_derivatives_belong_together() {
    for (name, problem, noise) in problems() {
        let u = problem.start();
        let (n, count) = (problem.apply(&u).unwrap().len(), u.len());
        let residual = problem.apply(&u).unwrap();
        let square: f64 = residual.iter().map(|r| r * r).sum();
        let cost = problem.cost(&u).unwrap();
        assert!(close(square, cost, noise), "{name}: {square} {cost}");
        assert!(
            close(problem.cost_and_gradient(&u).unwrap().0, cost, noise),
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
            let at = |sign: f64| {
                let mut moved = u.clone();
                moved[p] += sign * step;
                problem.cost(&moved).unwrap()
            };
            let difference = (at(1.0) - at(-1.0)) / (2.0 * step);
            assert!(
                (difference - gradient[p]).abs() <= 0.02 * largest,
                "{name} {p}: {difference} {}",
                gradient[p]
            );
        }
    }
}

#[test]
fn the_jacobian_is_the_normal_matrix() {
    // Gauss–Newton's step by the rows ends where Levenberg–Marquardt does
    let problem = Problems::of_spectra(&stars(&Device::cpu(), false), &spectra())
        .unwrap()
        .problem(0)
        .unwrap();
    let mut u = problem.start();
    for _ in 0..8 {
        let (residual, columns) = (
            problem.residuals(&u).unwrap(),
            problem.jacobian_columns(&u).unwrap(),
        );
        let jacobian = nalgebra::DMatrix::from_vec(residual.len(), u.len(), columns);
        let right = jacobian.tr_mul(&nalgebra::DVector::from_vec(residual));
        let delta = (jacobian.tr_mul(&jacobian))
            .cholesky()
            .unwrap()
            .solve(&right);
        u.iter_mut().zip(delta.iter()).for_each(|(u, d)| *u -= d);
    }
    let row = &stars(&Device::cpu(), false)
        .fit(&spectra())
        .unwrap()
        .row(0)
        .to_row();
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
fn costs_in_bulk_are_costs_and_infinite_outside() {
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
fn turning_to_another_spectrum_is_as_making_it() {
    let all = Problems::of_spectra(&stars(&Device::cpu(), true), &spectra()).unwrap();
    let mut turned = all.problem(0).unwrap();
    for k in [2, 1, 0] {
        turned.turn_to(&all, k).unwrap();
        let made = all.problem(k).unwrap();
        assert_eq!(turned.start(), made.start());
        assert_eq!(
            turned.cost(&made.start()).unwrap(),
            made.cost(&made.start()).unwrap()
        );
    }
    assert!(turned.turn_to(&all, SPECTRA).is_err());
    let others = Problems::of_spectra(&stars(&Device::cpu(), true), &spectra()).unwrap();
    assert!(turned.turn_to(&others, 0).is_err());
}

/// Rows are those of the file, not of the batch.
#[test]
fn a_spectrum_without_a_problem_is_named_by_its_row() {
    let mut some = demo_spectra().slice(5..8);
    some.arms[0].ivar.to_mut()[..100].fill(-1.0);
    let refused = Problems::of_spectra(&stars(&Device::cpu(), false), &some);
    assert!(
        matches!(refused, Err(Error::BadSpectrum { row: 5, .. })),
        "{:?}",
        refused.err()
    );
}

#[test]
fn a_swarm_finds_what_a_fit_finds() {
    for device in devices() {
        let problem = Problems::of_curves(&decay(&device), &curves())
            .unwrap()
            .problem(0)
            .unwrap();
        let fit = &decay(&Device::cpu()).fit(&curves()).unwrap()[0];
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
fn what_has_no_residuals_says_so() {
    for device in devices() {
        let robust = decay(&device).estimator(Estimator::Huber(1.0));
        let problem = Problems::of_curves(&robust, &curves())
            .unwrap()
            .problem(0)
            .unwrap();
        assert!(problem.residuals(&problem.start()).is_err());
        let plain = Problems::of_curves(&decay(&device), &curves())
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
    assert!(Problems::of_curves(&tied, &curves()).is_err());
}

#[test]
fn counts_with_sigma_or_below_zero_are_refused() {
    let x: Vec<f64> = (0..30).map(|j| 0.1 * f64::from(j)).collect();
    let counts = decay(&Device::cpu()).estimator(Estimator::Poisson);
    let message = Problems::of_curves(&counts, &curves())
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
fn argmin_minimises_costs_and_hears_of_failures() {
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
