//! Formulas fitted to many curves, with every solver on both devices.

use popfit::{
    CurveFit, CurveFitter, Curves, Device, Error, Flags, Formula, NelderMead, Solver, Status,
};
use popfit_testing::curves::twenty;
use popfit_testing::fits::devices;

fn simplex() -> NelderMead {
    NelderMead::default()
        .max_rounds(4000)
        .fatol(1e-9)
        .max_restarts(10)
}

/// Noiseless 7 × 7 images of elliptic Gaussians with sigma 0.1, from starts that are off.
fn images(count: usize) -> (Formula, Curves<'static>, Vec<[f64; 6]>) {
    let formula = Formula::builtin("gauss2d_elliptic").unwrap();
    let x: Vec<f64> = (0..98)
        .map(|j| {
            if j < 49 {
                (j % 7) as f64
            } else {
                ((j - 49) / 7) as f64
            }
        })
        .collect();
    let truth = |k: usize| {
        let t = 0.1 * k as f64;
        [
            5.0 + t,
            3.0 + 0.3 * t,
            2.8 - 0.3 * t,
            1.2 + 0.05 * t,
            0.9 + 0.02 * t,
            1000.0 + t,
        ]
    };
    let truths: Vec<[f64; 6]> = (0..count).map(truth).collect();
    assert_eq!(formula.parameters(), ["a", "x0", "y0", "sx", "sy", "c"]);
    let y: Vec<f64> = truths
        .iter()
        .flat_map(|t| formula.values(&x, t).unwrap())
        .collect();
    let starts = [4.0, 2.5, 3.2, 1.0, 1.1, 999.0].repeat(count);
    (
        formula,
        Curves::on_common_grid(x, y, starts).sigma(vec![0.1; 49 * count]),
        truths,
    )
}

fn check(fits: &[CurveFit], truths: &[[f64; 6]], tolerance: f64, label: &str) {
    for (fit, truth) in fits.iter().zip(truths) {
        assert!(fit.status.is_success(), "{label}: {fit:?}");
        for p in 0..6 {
            let error = (fit.parameters[p] - truth[p]).abs() / fit.errors[p];
            assert!(
                error <= tolerance,
                "{label}: {error} of its error\n{fit:?}\n{truth:?}"
            );
        }
    }
}

#[test]
fn every_solver_converges_on_every_device() {
    let lm = CurveFitter::LEVENBERG_MARQUARDT;
    for device in devices() {
        let is_cpu = device.name().starts_with("cpu");
        for (solver, polish, tolerance) in [
            (Solver::LevenbergMarquardt(lm), true, 1e-9),
            (
                Solver::LevenbergMarquardt(lm),
                false,
                if is_cpu { 1e-6 } else { 0.01 },
            ),
            (
                Solver::NelderMead(simplex()),
                false,
                if is_cpu { 1e-3 } else { 0.1 },
            ),
        ] {
            let (formula, curves, truths) = images(5);
            let fitter = CurveFitter::new(formula, device.clone())
                .absolute_sigma(true)
                .polish(polish);
            let fits = fitter.solver(solver).fit(&curves).unwrap();
            check(
                &fits,
                &truths,
                tolerance,
                &format!("{} {solver:?}", device.name()),
            );
            assert!(
                fits.iter().all(|fit| fit.dof == 43 && fit.evaluations > 3),
                "{fits:?}"
            );
        }
    }
}

#[test]
fn a_simplex_after_levenberg_marquardt_is_for_spectra() {
    let fitter = CurveFitter::new(Formula::builtin("exponential").unwrap(), Device::cpu());
    let both =
        Solver::LevenbergMarquardtThenNelderMead(CurveFitter::LEVENBERG_MARQUARDT, simplex());
    let refused = fitter.solver(both).validate().unwrap_err();
    let message = refused.to_string();
    assert!(
        matches!(refused, Error::InvalidSettings { .. }) && message.contains("spectra only"),
        "{message}"
    );
}

#[test]
fn a_curve_has_the_same_bits_alone_and_in_any_population() {
    let (formula, curves, _) = images(65);
    let fitter = CurveFitter::new(formula.clone(), Device::cpu());
    let all = fitter.fit(&curves).unwrap();
    let few = fitter.clone().max_memory(200_000).fit(&curves).unwrap();
    for (one, other) in all.iter().zip(&few) {
        assert_eq!(one.parameters, other.parameters);
        assert_eq!(one.errors, other.errors);
    }
    let (_, short, _) = images(1);
    assert_eq!(fitter.fit(&short).unwrap()[0].parameters, all[0].parameters);
}

/// y = a + b x has closed answers: points at −1, 0, 1, 2 with sigma 0.5.
#[test]
fn covariances_of_a_line_agree_with_the_closed_form() {
    let x = vec![-1.0, 0.0, 1.0, 2.0];
    let y = vec![1.0, 3.5, 4.0, 7.5];
    let curves = Curves::on_common_grid(x, y, vec![0.0, 0.0]).sigma(vec![0.5; 4]);
    let fitter = CurveFitter::new(Formula::builtin("linear1d").unwrap(), Device::cpu());
    let absolute = &fitter.clone().absolute_sigma(true).fit(&curves).unwrap()[0];
    // The normal matrix is 4 [[4, 2], [2, 6]], inverse [[6, −2], [−2, 4]] / 80
    for (actual, exact) in absolute
        .covariance
        .iter()
        .zip([0.075, -0.025, -0.025, 0.05])
    {
        assert!((actual - exact).abs() < 1e-14, "{absolute:?}");
    }
    // Slope 2, offset 3, and residuals 0, 0.5, −1, 0.5.
    assert!(
        (absolute.parameters[0] - 3.0).abs() < 1e-12
            && (absolute.parameters[1] - 2.0).abs() < 1e-12
    );
    assert!((absolute.chi2 - 6.0).abs() < 1e-12 && absolute.dof == 2 && absolute.optimality < 1e-9);
    let scaled = &fitter.fit(&curves).unwrap()[0];
    assert!((scaled.covariance[0] - 0.225).abs() < 1e-13, "{scaled:?}");

    let held = &fitter
        .clone()
        .absolute_sigma(true)
        .fix("slope")
        .fit(&curves)
        .unwrap()[0];
    assert!(
        held.parameters[1] == 0.0 && held.errors[1] == 0.0 && (held.errors[0] - 0.25).abs() < 1e-14,
        "{held:?}"
    );
    let bounded = &fitter
        .clone()
        .bounds("slope", -1.0, 1.5)
        .fit(&curves)
        .unwrap()[0];
    assert!(
        bounded.parameters[1] == 1.5 && bounded.errors[1].is_nan() && bounded.errors[0] > 0.0,
        "{bounded:?}"
    );
    // Weights: 4 points of 4, and a prior of 16; the result is the mean of 4 and 0.
    let prior = fitter
        .clone()
        .absolute_sigma(true)
        .fix("slope")
        .prior("offset", 0.0, 0.25);
    let prior = &prior.fit(&curves).unwrap()[0];
    assert!(
        (prior.parameters[0] - 2.0).abs() < 1e-12
            && (prior.errors[0] - 32f64.powf(-0.5)).abs() < 1e-12,
        "{prior:?}"
    );
}

#[test]
fn curves_on_own_grids_with_masks_find_the_true_parameters() {
    let formula = Formula::parse("a*exp(-k*x)").unwrap();
    for device in devices() {
        let grid = |s: f64| (0..10).map(move |j| s * f64::from(j)).collect::<Vec<f64>>();
        let x = [grid(0.2), grid(0.3)].concat();
        let mut y: Vec<f64> = x.iter().map(|x| 3.0 * (-0.7 * x).exp()).collect();
        let mut mask = vec![false; 20];
        // Masked points may have any value.
        (y[3], mask[3], y[19], mask[19]) = (f64::NAN, true, 1e30, true);
        let mut sigma = vec![0.1; 20];
        sigma[3] = -1.0;
        let curves = Curves::on_own_grids(x, y, [1.0, 1.0].repeat(2))
            .mask(mask)
            .sigma(sigma);
        let fits = CurveFitter::new(formula.clone(), device)
            .fit(&curves)
            .unwrap();
        for fit in fits {
            assert!(
                (fit.parameters[0] - 3.0).abs() < 1e-10 && (fit.parameters[1] - 0.7).abs() < 1e-10,
                "{fit:?}"
            );
            assert_eq!(fit.dof, 7);
        }
    }
}

#[test]
fn one_bad_curve_does_not_make_the_others_fail() {
    let formula = Formula::parse("a*sqrt(x - b)").unwrap();
    let x: Vec<f64> = (1..7).map(f64::from).collect();
    let good: Vec<f64> = x.iter().map(|x| 2.0 * (x - 0.5).sqrt()).collect();
    let mut y = good.repeat(7);
    y[7] = f64::INFINITY;
    let mut starts = [1.0, 0.0].repeat(7);
    (starts[4], starts[7], starts[9]) = (f64::NAN, 3.5, 9.0);
    let mut sigma = vec![1.0; 42];
    sigma[36] = 0.0;
    let mut mask = vec![false; 42];
    mask[30..35].fill(true);
    let curves = Curves::on_common_grid(x, y, starts).sigma(sigma).mask(mask);
    let fitter = CurveFitter::new(formula, Device::cpu()).bounds("b", -5.0, 5.0);
    let fits = fitter.fit(&curves).unwrap();
    assert!(
        fits[0].status.is_success() && (fits[0].parameters[1] - 0.5).abs() < 1e-9,
        "{:?}",
        fits[0]
    );
    for (k, cause) in [
        (1, "non_finite_input"),
        (2, "bad_start"),
        (4, "start_out_of_bounds"),
        (5, "underdetermined"),
        (6, "bad_weight"),
    ] {
        assert!(
            fits[k].status == Status::BadInput && fits[k].message.starts_with(cause),
            "{k}: {:?}",
            fits[k]
        );
    }
    // At the start the model is the root of a negative number.
    assert_eq!(fits[3].status, Status::NotFinite);
}

#[test]
fn contradictory_inputs_are_refused() {
    let fitter = CurveFitter::new(Formula::parse("width*x").unwrap(), Device::cpu());
    let message = fitter
        .clone()
        .fix("witdh")
        .validate()
        .unwrap_err()
        .to_string();
    assert!(message.contains("`width`"), "{message}");
    assert!(fitter.clone().bounds("width", 1.0, 0.0).validate().is_err());
    assert!(fitter.clone().prior("width", 0.0, 0.0).validate().is_err());
    for curves in [
        Curves::on_common_grid(vec![1.0; 2], vec![1.0; 3], vec![1.0]),
        Curves::on_common_grid(vec![1.0; 3], vec![1.0; 3], vec![1.0]).sigma(vec![1.0; 2]),
        Curves::on_own_grids(vec![1.0; 3], vec![1.0; 6], vec![1.0; 2]),
        Curves::on_common_grid([0.0; 0], [1.0], [0.0; 0]),
    ] {
        assert!(fitter.fit(&curves).is_err(), "{curves:?}");
    }
    assert!(
        fitter
            .fit(&Curves::on_common_grid([0.0; 0], [0.0; 0], [0.0; 0]))
            .unwrap()
            .is_empty()
    );
    let many: Vec<String> = (0..33).map(|k| format!("p{k}*x^{k}")).collect();
    assert!(
        CurveFitter::new(Formula::parse(&many.join("+")).unwrap(), Device::cpu())
            .validate()
            .is_err()
    );
}

/// Messages name arrays, parameters and predictors.
#[test]
fn messages_of_bad_inputs_name_the_cause() {
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    let x = || (0..20).map(f64::from).collect::<Vec<f64>>();
    let shared =
        |y: usize, starts: usize| Curves::on_common_grid(x(), vec![1.0; y], vec![0.5; starts]);
    for (curves, parts) in [
        (shared(19, 2), ["y: ", "19 numbers, not", "1 × 20"]),
        (shared(59, 6), ["y: ", "59 numbers, not", "3 × 20"]),
        (
            shared(20, 3),
            ["starts: ", "3 numbers", "2 parameters (a, k)"],
        ),
        (shared(20, 0), ["starts: ", "none", "20 numbers of y"]),
        (
            shared(40, 4).sigma(vec![1.0; 39]),
            ["sigma: ", "39 numbers, not", "2 × 20"],
        ),
        (
            shared(40, 4).mask(vec![true; 19]),
            ["mask: ", "19 numbers, not", "2 × 20"],
        ),
        (
            shared(40, 4).bounds(vec![0.0; 2], vec![1.0; 4]),
            ["lower: ", "2 numbers, not", "2 × 2"],
        ),
        (
            Curves::on_own_grids(x(), vec![1.0; 60], vec![0.5; 6]),
            ["x: ", "20 numbers", "3 curves × 1 predictor (x)"],
        ),
    ] {
        let message = fitter.fit(&curves).unwrap_err().to_string();
        assert!(
            parts.iter().all(|part| message.contains(part)),
            "{parts:?}: {message}"
        );
    }
    let bounded = fitter.clone().bounds("k", 0.0, 1.0);
    for (starts, lower, part) in [
        (
            [1.0, f64::NAN],
            f64::NEG_INFINITY,
            "bad_start: `k` starts at NaN",
        ),
        ([1.0, 0.5], f64::NAN, "bad_bounds: `a` lies between NaN"),
        (
            [1.0, 2.0],
            f64::NEG_INFINITY,
            "start_out_of_bounds: `k` starts at 2, outside 0 to 1",
        ),
    ] {
        let curves = Curves::on_common_grid(x(), vec![1.0; 20], starts.to_vec());
        let curves = if lower.is_nan() {
            curves.bounds(vec![lower, 0.0], vec![1.0; 2])
        } else {
            curves
        };
        let message = &bounded.fit(&curves).unwrap()[0].message;
        assert!(message.starts_with(part), "{part}: {message}");
    }
    let mut points = x();
    points[3] = f64::NAN;
    let fits = fitter
        .fit(&Curves::on_own_grids(points, vec![1.0; 20], vec![0.5; 2]))
        .unwrap();
    assert_eq!(fits[0].message, "non_finite_input: x is NaN at point 3");
    for (wrong, part) in [
        (
            fitter.clone().tie("k", "a/0"),
            "column 2: in the tie of `k`: ",
        ),
        (fitter.clone().tie("k", "a*("), "in the tie of `k`: "),
        (
            fitter.clone().prior("k", f64::NAN, 1.0),
            "prior: `k` with mean NaN",
        ),
    ] {
        let error = wrong.validate().unwrap_err();
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let tied = fitter.tie("k", "a/2");
    let message = tied
        .clone()
        .tie("k", "a/3")
        .validate()
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("`k` is tied twice") && message.contains("`a/2`"),
        "{message}"
    );
    assert!(
        tied.bounds("k", 0.0, 1.0)
            .validate()
            .unwrap_err()
            .to_string()
            .contains("`k` has bounds")
    );
}

/// Another order of the parameters gives the same fit, tied or not.
#[test]
fn parameters_have_the_order_that_the_user_chooses() {
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let y: Vec<f64> = x
        .iter()
        .map(|x| 3.0 * (-0.7 * x).exp() + 0.5 + 0.01 * (9.0 * x).sin())
        .collect();
    let given = Formula::parse("a*exp(-k*x) + c").unwrap();
    let other = given.clone().with_parameters(&["c", "a", "k"]).unwrap();
    assert_eq!(other.parameters(), ["c", "a", "k"]);
    for (names, part) in [
        (&["a", "k"][..], "`c` is not named"),
        (&["a", "k", "c", "c"], "`c` is named twice"),
        (
            &["a", "k", "b"],
            "`b` is not in the formula; the formula has a, k, c",
        ),
    ] {
        let message = given
            .clone()
            .with_parameters(names)
            .unwrap_err()
            .to_string();
        assert!(message.contains(part), "{message}");
    }
    let fit = |formula: &Formula, start: [f64; 3], tie: bool| {
        let fitter = CurveFitter::new(formula.clone(), Device::cpu());
        let fitter = if tie { fitter.tie("c", "a/6") } else { fitter };
        fitter
            .fit(&Curves::on_common_grid(
                x.clone(),
                y.clone(),
                start.to_vec(),
            ))
            .unwrap()
            .swap_remove(0)
    };
    for tie in [false, true] {
        let one = fit(&given, [1.0, 1.0, 0.0], tie);
        let two = fit(&other, [0.0, 1.0, 1.0], tie);
        assert!(
            one.status.is_success() && two.status.is_success(),
            "{one:?} {two:?}"
        );
        for (p, q) in [(0, 1), (1, 2), (2, 0)] {
            assert!(
                (one.parameters[p] - two.parameters[q]).abs() < 1e-6 * one.errors[p],
                "{one:?} {two:?}"
            );
        }
    }
}

/// Errors and status of the one curve, by `fit` and by `fit_columns`.
fn both(fitter: &CurveFitter, curves: &Curves) -> [(Status, Vec<f64>, f64); 2] {
    let fit = fitter.fit(curves).unwrap().swap_remove(0);
    let columns = fitter.fit_columns(curves).unwrap();
    let status = columns.status[0];
    for (flags, errors) in [
        (fit.flags, &fit.errors),
        (columns.flags[0], &columns.errors),
    ] {
        assert_eq!(
            flags.contains(Flags::UNDETERMINED),
            errors.contains(&f64::INFINITY),
            "{flags} {errors:?}"
        );
    }
    [
        (fit.status, fit.errors, fit.chi2),
        (status, columns.errors, columns.chi2[0]),
    ]
}

/// `bad_inputs.md`, row 14, as for spectra: a success whose flag says so, and the others have the errors of a fit
/// without it.
#[test]
fn a_parameter_without_effect_is_undetermined() {
    let (x, y) = twenty(|x| 3.0 * (-0.5 * x).exp());
    let alone = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    let alone = &both(
        &alone,
        &Curves::on_common_grid(x.clone(), y.clone(), vec![1.0; 2]),
    )[0];
    for device in devices() {
        let texts = [
            ("a*exp(-k*x)", 1.0),
            ("a*exp(-k*x) + 0*d", 1.0),
            ("a*exp(-k*x) + max(d, 0)", -1.0),
        ];
        for (text, idle) in texts {
            let formula = Formula::parse_exactly(text, &["x"], &["a", "k", "d"]).unwrap();
            let start: Vec<f64> = formula
                .parameters()
                .iter()
                .map(|name| if name == "d" { idle } else { 1.0 })
                .collect();
            let curves = Curves::on_common_grid(x.clone(), y.clone(), start);
            for (solver, polish) in [
                (CurveFitter::LEVENBERG_MARQUARDT.into(), true),
                (CurveFitter::LEVENBERG_MARQUARDT.into(), false),
                (Solver::from(simplex()), true),
            ] {
                let fitter = CurveFitter::new(formula.clone(), device.clone()).polish(polish);
                let fitter = fitter.solver(solver);
                let label = format!("{} {text} {solver:?}", device.name());
                for (status, errors, chi2) in both(&fitter, &curves) {
                    assert!(
                        status.is_success() && chi2 < 0.01,
                        "{label}: {status:?} {chi2}"
                    );
                    assert!(errors[2] == f64::INFINITY, "{label}: {errors:?}");
                    // One more parameter leaves 17 degrees of freedom of 18.
                    let ratio = |p: usize| errors[p] / (alone.1[p] * (18.0 / 17.0f64).sqrt());
                    assert!(
                        (0..2).all(|p| (ratio(p) - 1.0).abs() < 2e-3),
                        "{label}: {errors:?} {alone:?}"
                    );
                }
                let message = fitter.fit(&curves).unwrap().swap_remove(0).message;
                assert!(
                    message.ends_with("; the data do not determine d"),
                    "{message}"
                );
                let columns = fitter.fit_columns(&curves).unwrap();
                assert!(
                    columns
                        .message(0)
                        .is_some_and(|text| text.ends_with("; the data do not determine d"))
                );
                // If one of them is held, the other is determined.
                let held = both(&fitter.clone().fix("d"), &curves);
                assert!(
                    held.iter()
                        .all(|(status, errors, _)| status.is_success() && errors[2] == 0.0),
                    "{held:?}"
                );
            }
        }
    }
}

/// Row 15: the fit reaches the minimum, the errors of parameters with the same effect are infinite, and all others have
/// finite errors.
#[test]
fn parameters_with_the_same_effect_are_undetermined() {
    let (x, y) = twenty(|x| 3.0 * (-0.5 * x).exp());
    let fitter = |text: &str, device: &Device| {
        CurveFitter::new(Formula::parse(text).unwrap(), device.clone())
    };
    let alone = fitter("a*exp(-k*x)", &Device::cpu());
    let alone = &both(
        &alone,
        &Curves::on_common_grid(x.clone(), y.clone(), vec![1.0; 2]),
    )[0];
    for device in devices() {
        let curves = Curves::on_common_grid(x.clone(), y.clone(), vec![1.0; 3]);
        for text in ["(a + b)*exp(-k*x)", "a*b*exp(-k*x)"] {
            let fitter = fitter(text, &device);
            for (status, errors, chi2) in both(&fitter, &curves) {
                assert!(
                    status.is_success() && (chi2 / alone.2 - 1.0).abs() < 1e-5,
                    "{text}: {status:?} {chi2}"
                );
                assert!(errors[..2] == [f64::INFINITY; 2], "{text}: {errors:?}");
                // One more parameter leaves 17 degrees of freedom of 18.
                let expected = alone.1[1] * (18.0 / 17.0f64).sqrt();
                assert!(
                    (errors[2] / expected - 1.0).abs() < 1e-3,
                    "{text}: {errors:?} {expected}"
                );
            }
            let message = fitter.fit(&curves).unwrap().swap_remove(0).message;
            assert!(
                message.ends_with("; the data do not determine a, b"),
                "{message}"
            );
            // Within the solver's tolerance of the minimum a step of both may lower the cost, which is allowed.
            for (solver, polish) in [
                (CurveFitter::LEVENBERG_MARQUARDT.into(), false),
                (CurveFitter::LEVENBERG_MARQUARDT.ftol(1e-4).into(), false),
                (Solver::from(NelderMead::default().fatol(1e-3)), false),
                (Solver::from(NelderMead::default().fatol(1e-3)), true),
            ] {
                let fitter = fitter.clone().solver(solver).polish(polish);
                for (status, _, chi2) in both(&fitter, &curves) {
                    let label = format!("{} {text} {solver:?} {polish}", device.name());
                    assert!(
                        status.is_success() && chi2 < 1.1 * alone.2,
                        "{label}: {status:?} {chi2}"
                    );
                }
            }
        }
    }
}

/// A model that passes through all data has a χ² of 0, but its noise is that of rounding: no error is smaller, and the
/// rate of a decay without amplitude is undetermined.
#[test]
fn a_perfect_fit_has_the_errors_of_rounding() {
    let x = twenty(|_| 0.0).0;
    let formula = Formula::parse("a*exp(-k*x) + c").unwrap();
    for device in devices() {
        for level in [5.0, 0.1, 12345.678] {
            let plain = Curves::on_common_grid(x.clone(), vec![level; 20], vec![1.0, 1.0, 1.0]);
            let weighted = plain
                .clone()
                .sigma(vec![0.1; 20])
                .mask((0..20).map(|j| j == 7).collect::<Vec<bool>>());
            for curves in [plain, weighted] {
                let fitter = CurveFitter::new(formula.clone(), device.clone());
                for (status, errors, chi2) in both(&fitter, &curves) {
                    assert!(
                        status.is_success() && chi2 < 1e-20 * level * level,
                        "{level}: {status:?} {chi2}"
                    );
                    assert!(
                        errors[1] > 0.3 && errors[0] > 1e-17 * level && errors[2] > 1e-17 * level,
                        "{level}: {errors:?}"
                    );
                    assert!(errors[2] < 1e-14 * level, "{level}: {errors:?}");
                }
                let fit = fitter.fit(&curves).unwrap().swap_remove(0);
                assert!(fit.aic.is_finite() && fit.bic.is_finite(), "{fit:?}");
                assert!(
                    !fitter.report(&fit).contains("(fixed)"),
                    "{}",
                    fitter.report(&fit)
                );
            }
        }
    }
}

/// Starts are so far off that a parameter's unit is negligible, or a column is below the range of f32: at each success
/// the predicted reduction of every step is negligible.
#[test]
fn successes_from_random_starts_are_minima() {
    let x: Vec<f64> = (0..40).map(|j| 0.1 + 4.9 / 39.0 * f64::from(j)).collect();
    let decay = |j: usize, x: f64| 3.0 * (-0.8 * x).exp() + 0.5 + 0.05 * (2.3 * j as f64).sin();
    let power = |j: usize, x: f64| 2.0 * x.powf(1.5) + 0.3 + 0.05 * (2.3 * j as f64).sin();
    let of = |value: &dyn Fn(usize, f64) -> f64| {
        x.iter()
            .enumerate()
            .map(|(j, x)| value(j, *x))
            .collect::<Vec<f64>>()
    };
    let problems = [
        ("a*exp(-k*x) + c", of(&decay), [14.11, -13.98, 3.599]),
        ("a*exp(-k*x) + c", of(&decay), [1.0, 1000.0, 1.0]),
        ("a*x^k + c", of(&power), [213.2, 85.89, 0.001]),
    ];
    for device in devices() {
        for (text, y, start) in &problems {
            let fitter = CurveFitter::new(Formula::parse(text).unwrap(), device.clone());
            let fit = fitter
                .fit(&Curves::on_common_grid(
                    x.clone(),
                    y.clone(),
                    start.to_vec(),
                ))
                .unwrap()
                .swap_remove(0);
            println!(
                "{text} {start:?}: {:?} {} {:?} ± {:?}",
                fit.status, fit.chi2, fit.parameters, fit.errors
            );
            assert!(
                !fit.status.is_success() || fit.optimality < 1e-4 * fit.chi2,
                "{text} {start:?}: {fit:?}"
            );
        }
    }
}
