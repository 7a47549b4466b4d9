//! Estimators, ties, confidence intervals and reports against scipy and lmfit (`golden.rs`, written by
//! tests/python/make_estimators.py).

mod counts;
mod golden;
mod robust;

use golden::*;
use popfit::{CurveFit, CurveFitter, Curves, Device, Estimator, Formula, NelderMead, Status};
use popfit_testing::fits::devices;

const MODEL: &str = "a*exp(-k*x) + c";

fn fitter(device: Device) -> CurveFitter {
    CurveFitter::new(Formula::parse(MODEL).unwrap(), device)
}

fn curves(y: &[f64]) -> Curves<'static> {
    Curves::on_common_grid(X.to_vec(), y.to_vec(), vec![3.0, 1.0, 0.0]).sigma(SIGMA.to_vec())
}

fn counts() -> Curves<'static> {
    Curves::on_common_grid(X.to_vec(), COUNTS.to_vec(), vec![5.0, 1.0, 0.5])
}

/// Parameters within `share` of their errors, errors within `relative`.
fn meets(fit: &CurveFit, parameters: &[f64], errors: &[f64], (share, relative): (f64, f64)) {
    assert!(fit.status.is_success(), "{fit:?}");
    for p in 0..parameters.len() {
        assert!(
            (fit.parameters[p] - parameters[p]).abs() <= share * errors[p],
            "{fit:?}\n{parameters:?}"
        );
        assert!(
            (fit.errors[p] / errors[p] - 1.0).abs() <= relative,
            "{fit:?}\n{errors:?}"
        );
    }
}

#[test]
fn robust_losses_agree_with_scipy() {
    for device in devices() {
        for (estimator, parameters, errors, chi2) in ROBUST {
            let fitter = fitter(device.clone())
                .estimator(estimator)
                .sandwich_errors(false);
            let fit = &fitter.fit(&curves(&Y)).unwrap()[0];
            // scipy stops when its cost no longer changes: the parameters are then good to 1e-8.
            meets(fit, &parameters, &errors, (1e-6, 1e-5));
            assert!((fit.chi2 / chi2 - 1.0).abs() < 1e-10, "{fit:?} {chi2}");
            let rough = &fitter.polish(false).fit(&curves(&Y)).unwrap()[0];
            meets(rough, &parameters, &errors, (0.01, 0.02));
        }
    }
    assert!(
        fitter(Device::cpu())
            .estimator(Estimator::Huber(-1.0))
            .validate()
            .is_err()
    );
}

#[test]
fn counts_are_fitted_by_their_likelihood() {
    for device in devices() {
        let fitter = fitter(device).estimator(Estimator::Poisson);
        let fit = &fitter.fit(&counts()).unwrap()[0];
        meets(fit, &POISSON, &POISSON_ERRORS, (1e-8, 1e-8));
        assert!(
            (fit.chi2 / POISSON_CHI2[0] - 1.0).abs() < 1e-12 && fit.optimality < 1e-8,
            "{fit:?}"
        );
        assert!((fit.aic - fit.chi2 - 6.0).abs() < 1e-12);
        let simplex = NelderMead::default()
            .max_rounds(4000)
            .fatol(1e-9)
            .max_restarts(10);
        let actual = &fitter.clone().solver(simplex).fit(&counts()).unwrap()[0];
        meets(actual, &POISSON, &POISSON_ERRORS, (0.01, 0.01));
    }
}

#[test]
fn data_that_are_no_counts_are_refused() {
    let fitter = fitter(Device::cpu()).estimator(Estimator::Poisson);
    assert!(
        fitter
            .fit(&curves(&COUNTS))
            .unwrap_err()
            .to_string()
            .contains("sigma")
    );
    let mut y = COUNTS.repeat(3);
    y[3] = -1.0;
    y[28] = -1.0;
    let mut mask = vec![false; 75];
    mask[28] = true;
    let mut starts = [5.0, 1.0, 0.5].repeat(3);
    starts[8] = -9.0;
    let fits = fitter
        .fit(&Curves::on_common_grid(X.to_vec(), y, starts).mask(mask))
        .unwrap();
    assert!(
        fits[0].status == Status::BadInput && fits[0].message.starts_with("bad_count"),
        "{:?}",
        fits[0]
    );
    assert!(
        fits[1].status.is_success() && fits[1].dof == 21,
        "{:?}",
        fits[1]
    );
    assert_eq!(fits[2].status, Status::NotFinite);
}

#[test]
fn ties_agree_with_the_substituted_formula() {
    for device in devices() {
        let whole = CurveFitter::new(
            Formula::parse("t = a*exp(-k*x); t + c").unwrap(),
            device.clone(),
        );
        let tied = whole
            .clone()
            .tie("c", "0.1*a + b2")
            .validate()
            .err()
            .map(|e| e.to_string());
        assert!(tied.unwrap().contains("`b2`"));
        // c depends on k, and k on a.
        let chain = whole
            .clone()
            .tie("c", "k^2 - 0.4")
            .tie("k", "r = sqrt(a); r/2.5");
        let alone = CurveFitter::new(
            Formula::parse("a*exp(-sqrt(a)/2.5*x) + a/6.25 - 0.4").unwrap(),
            device,
        );
        let start = [3.0, f64::NAN, f64::NAN].repeat(2);
        let two = Curves::on_common_grid(X.to_vec(), CLEAN.repeat(2), start).sigma(SIGMA.repeat(2));
        let one = &alone
            .fit(
                &Curves::on_common_grid(X.to_vec(), CLEAN.to_vec(), vec![3.0])
                    .sigma(SIGMA.to_vec()),
            )
            .unwrap()[0];
        for fit in chain.fit(&two).unwrap() {
            let a = one.parameters[0];
            let e = one.errors[0];
            let values = [a, a.sqrt() / 2.5, a / 6.25 - 0.4];
            let errors = [e, e / (5.0 * a.sqrt()), e / 6.25];
            meets(&fit, &values, &errors, (1e-6, 1e-8));
            assert!(
                (fit.chi2 / one.chi2 - 1.0).abs() < 1e-12 && fit.dof == 24,
                "{fit:?}"
            );
            assert!(
                fit.correlation().iter().all(|c| (c - 1.0).abs() < 1e-12),
                "{fit:?}"
            );
            assert!((fit.start[1] - 3f64.sqrt() / 2.5).abs() < 1e-15);
        }
    }
}

#[test]
fn contradictory_ties_are_refused() {
    let plain = fitter(Device::cpu());
    for (parameter, expression, part) in [
        ("c", "c + 1", "leads back"),
        ("c", "2*x", "predictor `x`"),
        ("c", "x = 2*a; x + 1", "predictor `x`"),
        ("c", "2*(a", "not closed"),
        ("c", "2*d", "`d`"),
        ("d", "2*a", "no parameter `d`"),
    ] {
        let message = plain
            .clone()
            .tie(parameter, expression)
            .validate()
            .unwrap_err()
            .to_string();
        assert!(message.contains(part), "{expression}: {message}");
    }
    let circle = plain.clone().tie("c", "k").tie("k", "a + c");
    assert!(
        circle
            .validate()
            .unwrap_err()
            .to_string()
            .contains("leads back")
    );
    let every = plain.clone().tie("c", "1").tie("k", "2").tie("a", "3");
    assert!(
        every
            .validate()
            .unwrap_err()
            .to_string()
            .contains("none is left")
    );
    for taken in [
        plain.clone().bounds("c", 0.0, 1.0).tie("c", "a"),
        plain.clone().fix("c").tie("c", "a"),
        plain.clone().prior("c", 0.0, 1.0).tie("c", "a"),
        plain.clone().tie("c", "a").bounds("c", 0.0, 1.0),
        plain.clone().tie("c", "a").fix("c"),
        plain.clone().tie("c", "a").prior("c", 0.0, 1.0),
    ] {
        assert!(taken.validate().is_err());
    }
    let infinite = f64::INFINITY;
    let bounded = curves(&CLEAN).bounds(vec![0.0, 0.0, 0.0], vec![infinite; 3]);
    let fit = &plain.tie("c", "0.1*a").fit(&bounded).unwrap()[0];
    assert!(
        fit.status == Status::BadInput && fit.message.starts_with("bad_bounds: `c`"),
        "{fit:?}"
    );
}

#[test]
fn confidence_intervals_agree_with_lmfit() {
    for device in devices() {
        let fitter = fitter(device);
        // The second curve is a bad input, the third equals the first.
        let mut y = CLEAN.repeat(3);
        y[30] = f64::NAN;
        let three =
            Curves::on_common_grid(X.to_vec(), y, [3.0, 1.0, 0.0].repeat(3)).sigma(SIGMA.repeat(3));
        let fits = fitter.fit(&three).unwrap();
        let actual = fitter
            .confidence_intervals(&three, &fits, &[], &[1.0, 3.0])
            .unwrap();
        for p in 0..3 {
            for (sigma, limits) in [LIMITS_1, LIMITS_3].iter().enumerate() {
                for curve in [0, 2] {
                    let interval = &actual[curve][2 * p + sigma];
                    let error = fits[0].errors[p];
                    assert_eq!(interval.parameter, ["a", "k", "c"][p]);
                    assert!(
                        (interval.lower - limits[2 * p]).abs() < 1e-6 * error,
                        "{interval:?} {limits:?}"
                    );
                    assert!(
                        (interval.upper - limits[2 * p + 1]).abs() < 1e-6 * error,
                        "{interval:?} {limits:?}"
                    );
                }
                assert!(actual[1][2 * p + sigma].lower.is_nan());
            }
        }
        let absolute = fitter.absolute_sigma(true);
        let fits = absolute.fit(&three).unwrap();
        let actual = absolute
            .confidence_intervals(&three, &fits, &["k"], &[2.0])
            .unwrap();
        assert!(
            (actual[2][0].lower - LIMITS_ABSOLUTE[2]).abs() < 1e-6 * fits[0].errors[1],
            "{actual:?}"
        );
        assert!(
            (actual[2][0].upper - LIMITS_ABSOLUTE[3]).abs() < 1e-6 * fits[0].errors[1],
            "{actual:?}"
        );
        assert!((actual[0][0].probability - 0.954_499_736_103_642).abs() < 1e-12);
        assert!(
            absolute
                .confidence_intervals(&three, &fits[..2], &[], &[])
                .is_err()
        );
        assert!(
            absolute
                .confidence_intervals(&three, &fits, &["q"], &[])
                .is_err()
        );
        assert!(
            absolute
                .confidence_intervals(&three, &fits, &[], &[-1.0])
                .is_err()
        );
    }
}

#[test]
fn a_bound_is_reached_exactly_on_every_device() {
    // Neither 0.7 nor 0.3 is a number of f32.
    for device in devices() {
        let start = Curves::on_common_grid(X.to_vec(), CLEAN.to_vec(), vec![3.0, 0.5, 0.0]);
        let fit = &fitter(device.clone())
            .bounds("k", 0.3, 0.7)
            .fit(&start)
            .unwrap()[0];
        assert!(
            fit.parameters[1] == 0.7 && fit.errors[1].is_nan() && fit.errors[0] > 0.0,
            "{fit:?}"
        );
        let start = Curves::on_common_grid(X.to_vec(), CLEAN.to_vec(), vec![3.0, 0.7, 0.0]);
        let fit = &fitter(device).fix("k").fit(&start).unwrap()[0];
        assert!(
            fit.parameters[1] == 0.7 && fit.errors[1] == 0.0 && fit.errors[0] > 0.0,
            "{fit:?}"
        );
    }
}

#[test]
fn confidence_intervals_end_at_bounds_and_respect_ties_and_priors() {
    let plain = fitter(Device::cpu()).absolute_sigma(true);
    let bounded = plain.clone().bounds("k", 0.75, 2.0);
    let fits = bounded.fit(&curves(&CLEAN)).unwrap();
    let actual = bounded
        .confidence_intervals(&curves(&CLEAN), &fits, &["k"], &[0.1, 2.0])
        .unwrap();
    assert!(
        actual[0][0].lower > 0.75 && actual[0][1].lower == f64::NEG_INFINITY,
        "{actual:?}"
    );
    assert!(
        (actual[0][1].upper - LIMITS_ABSOLUTE[3]).abs() < 1e-6,
        "{actual:?}"
    );
    // Linear parameters have intervals of whole errors.
    let line = plain
        .clone()
        .fix("k")
        .tie("c", "2*a - 8")
        .prior("a", 4.0, 0.05);
    let fits = line.fit(&curves(&CLEAN)).unwrap();
    let actual = line
        .confidence_intervals(&curves(&CLEAN), &fits, &[], &[1.0, 2.0])
        .unwrap();
    assert_eq!(actual[0].len(), 2);
    for (interval, sigma) in actual[0].iter().zip([1.0, 2.0]) {
        let best = fits[0].parameters[0];
        let error = fits[0].errors[0];
        assert!(
            ((interval.upper - best) / error - sigma).abs() < 1e-6,
            "{interval:?} {best} {error}"
        );
        assert!(
            ((best - interval.lower) / error - sigma).abs() < 1e-6,
            "{interval:?} {best} {error}"
        );
    }
    assert!(
        line.confidence_intervals(&curves(&CLEAN), &fits, &["c"], &[])
            .is_err()
    );
    // The interval of a held parameter, or one with equal bounds, is its value.
    let held = line
        .confidence_intervals(&curves(&CLEAN), &fits, &["k"], &[1.0, 3.0])
        .unwrap();
    let k = fits[0].parameters[1];
    assert!(
        held[0].len() == 2 && held[0].iter().all(|one| one.lower == k && one.upper == k),
        "{held:?}"
    );
    let pinned = plain.clone().bounds("k", 0.7, 0.7);
    let start = Curves::on_common_grid(X.to_vec(), CLEAN.to_vec(), vec![3.0, 0.7, 0.0]);
    let fits = pinned.fit(&start).unwrap();
    let actual = pinned
        .confidence_intervals(&start, &fits, &["k"], &[1.0])
        .unwrap();
    assert!(
        actual[0][0].lower == 0.7 && actual[0][0].upper == 0.7,
        "{actual:?}"
    );
}

/// All of a report but the solver's name and the number of evaluations, which are the fitter's own.
fn comparable(report: &str) -> String {
    let own = |line: &&str| !line.contains("fitting method") && !line.contains("function evals");
    report
        .lines()
        .filter(own)
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

#[test]
fn reports_agree_with_lmfit() {
    let plain = fitter(Device::cpu());
    let fit = &plain.fit(&curves(&CLEAN)).unwrap()[0];
    assert_eq!(comparable(&plain.report(fit)), REPORT);
    assert!(
        (fit.aic - CRITERIA[0]).abs() < 1e-9 && (fit.bic - CRITERIA[1]).abs() < 1e-9,
        "{fit:?}"
    );
    let correlation = fit.correlation();
    for (actual, exact) in [1, 2, 5].into_iter().zip(CORRELATION) {
        assert!(
            (correlation[actual] - exact).abs() < 1e-6,
            "{correlation:?}"
        );
    }
    let tied = plain.clone().fix("k").tie("c", "0.1*a + k/20");
    let fit = &tied.fit(&curves(&CLEAN)).unwrap()[0];
    assert_eq!(comparable(&tied.report(fit)), TIED_REPORT);
    let constant = plain.clone().tie("c", "0.5");
    let report = constant.report(&constant.fit(&curves(&CLEAN)).unwrap()[0]);
    assert!(
        report.contains("0.50000000 +/- 0.00000000 (0.00%) == '0.5'"),
        "{report}"
    );
    let degenerate = CurveFitter::new(Formula::parse("a*b*exp(-k*x)+c").unwrap(), Device::cpu());
    let starts = Curves::on_common_grid(X.to_vec(), CLEAN.to_vec(), vec![2.0, 1.5, 0.5, 0.2]);
    let report = degenerate.report(&degenerate.fit(&starts).unwrap()[0]);
    assert!(
        report.contains("uncertainties could not be estimated"),
        "{report}"
    );
    assert_eq!(
        report.matches("+/- (undetermined) (init").count(),
        2,
        "{report}"
    );
    let bad = &plain.fit(&curves(&[f64::NAN; 25])).unwrap()[0];
    assert!(
        plain.report(bad).contains("Warning: non_finite_input"),
        "{}",
        plain.report(bad)
    );
}

/// From distant starts, where most points are outliers of the loss, fits reach the best minimum that any of them finds.
#[test]
fn robust_losses_reach_their_minimum_from_far_starts() {
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let noise = |j: usize| 0.05 * ((j * j) as f64).sin();
    let y: Vec<f64> = x
        .iter()
        .enumerate()
        .map(|(j, x)| 3.0 * (-0.7 * x).exp() + 0.5 + noise(j))
        .collect();
    let start = |k: usize| {
        [
            1.0 + (k % 5) as f64,
            0.2 + 0.3 * (k / 5 % 5) as f64,
            0.3 * (k / 25) as f64,
        ]
    };
    let starts: Vec<f64> = (0..100).flat_map(start).collect();
    for (estimator, least) in [
        (Estimator::Huber(0.03), 98),
        (Estimator::Huber(0.1), 98),
        (Estimator::Cauchy(0.03), 90),
        (Estimator::SoftL1(0.03), 98),
        (Estimator::Student(4.0), 98),
    ] {
        for device in devices() {
            let formula = Formula::parse("a*exp(-k*x)+c").unwrap();
            let fitter = CurveFitter::new(formula, device.clone()).estimator(estimator);
            let fits = fitter
                .fit(&Curves::on_common_grid(
                    x.clone(),
                    y.repeat(100),
                    starts.clone(),
                ))
                .unwrap();
            let best = fits
                .iter()
                .map(|fit| fit.chi2)
                .fold(f64::INFINITY, f64::min);
            let reached = fits
                .iter()
                .filter(|fit| fit.status.is_success() && fit.chi2 <= best * (1.0 + 1e-4))
                .count();
            println!("{estimator:?}, {}: {reached} of 100", device.name());
            assert!(
                reached >= least,
                "{estimator:?}, {}: {reached} of 100",
                device.name()
            );
        }
    }
}
