//! Every solver meets every model of curves on every device that it can run on.
#![cfg(feature = "gpu")]

mod problems;

use popfit::{CurveFit, CurveFitter, Curves, Device, Error, NelderMead, Solver};
use popfit_testing::fits::devices;
use popfit_testing::largest;
use problems::{Problem, problems};

fn simplex_settings() -> NelderMead {
    NelderMead::default()
        .max_rounds(6000)
        .fatol(1e-12)
        .max_restarts(10)
}

/// Largest difference from the truth, relative to its size (at least 0.1).
fn distance(fit: &CurveFit, truth: &[f64]) -> f64 {
    let one = |(actual, truth): (&f64, &f64)| (actual - truth).abs() / truth.abs().max(0.1);
    largest(fit.parameters.iter().zip(truth).map(one))
}

fn fit(problem: &Problem, device: &Device, solver: Solver, polish: bool) -> Vec<CurveFit> {
    let mut fitter = CurveFitter::new(problem.model.clone(), device.clone()).polish(polish);
    for (name, lower, upper) in &problem.bounds {
        fitter = fitter.bounds(name, *lower, *upper);
    }
    let starts: Vec<f64> = problem.starts.concat();
    let y = problem.y.repeat(problem.starts.len());
    fitter
        .solver(solver)
        .fit(&Curves::on_common_grid(problem.x.clone(), y, starts))
        .unwrap()
}

#[test]
fn every_solver_fits_every_model_on_every_device() {
    let lm = CurveFitter::LEVENBERG_MARQUARDT;
    let mut wrong = Vec::new();
    for device in devices() {
        let is_cpu = device.name().starts_with("cpu");
        for problem in problems() {
            if !(if is_cpu {
                problem.on_cpu
            } else {
                problem.on_gpu
            }) {
                assert!(
                    CurveFitter::new(problem.model.clone(), device.clone())
                        .validate()
                        .is_err(),
                    "{}",
                    problem.name
                );
                continue;
            }
            // The host refines fits of models with Rust, in f64.
            let refined = if problem.on_cpu { 1e-10 } else { problem.f32 };
            let device_alone = if is_cpu { 1e-9 } else { problem.f32 };
            let simplex = if is_cpu { 5e-5 } else { problem.f32_simplex };
            for (solver, polish, tolerance) in [
                (Solver::LevenbergMarquardt(lm), true, refined),
                (Solver::LevenbergMarquardt(lm), false, device_alone),
                (Solver::NelderMead(simplex_settings()), false, simplex),
            ] {
                for (k, fit) in fit(&problem, &device, solver, polish).iter().enumerate() {
                    let distance = distance(fit, &problem.truth);
                    let name = if matches!(solver, Solver::LevenbergMarquardt(_)) {
                        "lm"
                    } else {
                        "nm"
                    };
                    let line = format!(
                        "{:8.8} {name} {polish:5} {} {k}: {distance:.1e} of {tolerance:.0e}, {} {:?}, chi2 {:.3e}",
                        device.name(),
                        problem.name,
                        fit.message,
                        fit.parameters,
                        fit.chi2
                    );
                    println!("{line}");
                    if !(fit.status.is_success() && distance <= tolerance) {
                        wrong.push(line);
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_derivative_agrees_with_differences() {
    let mut checked = 0;
    for problem in problems()
        .iter()
        .filter(|problem| problem.has_derivatives && problem.on_cpu)
    {
        let fitter = CurveFitter::new(problem.model.clone(), Device::cpu());
        for check in fitter
            .check_jacobian(&problem.x, &problem.starts[0])
            .unwrap()
        {
            assert!(check.error < 1e-7, "{}: {check:?}", problem.name);
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked}");
}

#[test]
fn every_derivative_on_every_device_agrees_with_differences() {
    for device in devices() {
        let is_cpu = device.name().starts_with("cpu");
        for problem in problems()
            .iter()
            .filter(|p| if is_cpu { p.on_cpu } else { p.on_gpu })
        {
            let fitter = CurveFitter::new(problem.model.clone(), device.clone());
            let tolerance = match (is_cpu, problem.on_cpu) {
                (true, _) => 1e-7,
                // f32 is compared with f64, and with differences in f32.
                (false, true) => 1e-5,
                (false, false) => 1e-3,
            };
            let checks = fitter.check_jacobian(&problem.x, &problem.starts[0]);
            if !problem.has_derivatives {
                assert!(
                    matches!(checks, Err(Error::Model { .. })),
                    "{}: {checks:?}",
                    problem.name
                );
                continue;
            }
            for check in checks.unwrap() {
                println!("{} {}: {check:?}", device.name(), problem.name);
                assert!(
                    check.error < tolerance,
                    "{} {}: {check:?}",
                    device.name(),
                    problem.name
                );
            }
        }
    }
}

/// Brown and Dennis' problem: a minimum far from zero (Moré, Garbow & Hillstrom 1981, no. 16).
#[test]
fn brown_dennis_ends_at_the_published_minimum() {
    let x: Vec<f64> = (1..=20).map(f64::from).collect();
    let model = popfit::Formula::builtin("brown_dennis").unwrap();
    for device in devices() {
        // Gauss–Newton steps lead away from it, so that the error of sums in f32 is not refined.
        let (cost, share) = if device.name().starts_with("cpu") {
            (0.02, 1e-3)
        } else {
            (2.0, 5e-3)
        };
        let curves = Curves::on_common_grid(x.clone(), vec![0.0; 20], vec![25.0, 5.0, -5.0, -1.0]);
        let fit = &CurveFitter::new(model.clone(), device)
            .fit(&curves)
            .unwrap()[0];
        assert!(
            fit.status.is_success() && (fit.chi2 - 85_822.2).abs() < cost,
            "{fit:?}"
        );
        for (p, known) in [-11.594, 13.204, -0.4034, 0.2368].into_iter().enumerate() {
            assert!(
                (fit.parameters[p] - known).abs() < share * fit.errors[p],
                "{fit:?}"
            );
        }
    }
}

#[test]
fn residual_problems_are_solved_without_data() {
    let rosenbrock = popfit::Closure::residuals(&["x", "y"], |p, r| {
        (r[0], r[1]) = (10.0 * (p[1] - p[0] * p[0]), 1.0 - p[0]);
    });
    let problems = Curves::residuals(2, 2, vec![-1.2, 1.0, 3.0, -2.0]);
    let fits = CurveFitter::new(rosenbrock.unwrap(), Device::cpu())
        .fit(&problems)
        .unwrap();
    assert!(
        fits.len() == 2 && fits.iter().all(|fit| distance(fit, &[1.0, 1.0]) < 1e-10),
        "{fits:?}"
    );
    for device in devices() {
        let helix = popfit::Formula::builtin("fletcher_powell_helix").unwrap();
        let problems = Curves::residuals(3, 3, vec![-1.0, 0.0, 0.0]);
        let fits = CurveFitter::new(helix, device).fit(&problems).unwrap();
        assert!(distance(&fits[0], &[1.0, 0.0, 0.0]) < 1e-10, "{fits:?}");
    }
}
