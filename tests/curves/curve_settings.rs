//! Settings of `CurveFitter`: setters never fail, and the check before a fit lists every fault with its name.

use popfit::{
    Closure, Control, CurveFit, CurveFitter, CurveModel, Curves, Device, Error, Estimator, Formula,
    LevenbergMarquardt, NelderMead, Solver, Status,
};
use popfit_testing::random::Random;

fn decay() -> CurveFitter {
    CurveFitter::new(
        Formula::parse("amplitude*exp(-rate*x)").unwrap(),
        Device::cpu(),
    )
}

fn curves() -> Curves<'static> {
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let y: Vec<f64> = x.iter().map(|x| 3.0 * (-0.7 * x).exp()).collect();
    Curves::on_common_grid(x, y, vec![1.0, 1.0])
}

/// Names and messages of the faults.
fn faults(error: Error) -> Vec<(String, String)> {
    let Error::InvalidSettings { faults } = error else {
        panic!("{error}")
    };
    faults
        .into_iter()
        .map(|fault| (fault.name, fault.message))
        .collect()
}

#[test]
fn every_fault_is_listed_with_its_name_and_remedy() {
    let lm = CurveFitter::LEVENBERG_MARQUARDT.ftol(-1.0).max_rounds(0);
    let fitter = decay()
        .solver(lm)
        .estimator(Estimator::Huber(0.0))
        .bounds("rat", 0.0, 1.0)
        .bounds("rate", f64::NAN, 1.0)
        .bounds("amplitude", 2.0, 1.0)
        .fix("Amplitude")
        .prior("rate", 1.0, -1.0)
        .tie("amplitude", "2*rat")
        .tie("width", "2");
    let expected = [
        ("ftol", "must be finite and not negative, not -1"),
        ("max_rounds", "must be at least 1"),
        ("estimator", "a loss with the scale 0: it must be positive"),
        (
            "bounds",
            "there is no parameter `rat`; did you mean `rate`? (known: amplitude, rate)",
        ),
        (
            "bounds",
            "`rate` from NaN to 1: a bound is a number, or infinite where there is none",
        ),
        ("bounds", "`amplitude` from 2 to 1: exchange them"),
        (
            "fix",
            "there is no parameter `Amplitude`; did you mean `amplitude`? (known: amplitude, rate)",
        ),
        (
            "prior",
            "`rate` with mean 1 and sigma -1: both must be finite, and sigma positive",
        ),
        (
            "tie",
            "`amplitude` has bounds, a prior or is fixed: it cannot be tied",
        ),
        ("tie", "did you mean `rate`?"),
        (
            "tie",
            "there is no parameter `width`; known: amplitude, rate",
        ),
    ];
    let curves = curves();
    for error in [
        fitter.validate().unwrap_err(),
        fitter.fit(&curves).unwrap_err(),
        fitter.fit_columns(&curves).unwrap_err(),
        fitter
            .confidence_intervals(&curves, &[], &[], &[])
            .unwrap_err(),
        fitter.check_jacobian(&[1.0], &[1.0, 1.0]).unwrap_err(),
    ] {
        let text = error.to_string();
        let actual = faults(error);
        assert_eq!(actual.len(), expected.len(), "{text}");
        for ((name, message), (expected_name, part)) in actual.iter().zip(expected) {
            assert!(
                name == expected_name && message.contains(part),
                "{name}: {message}"
            );
        }
        assert!(
            text.starts_with("11 settings are invalid:\n  ftol: must be finite"),
            "{text}"
        );
    }
}

#[test]
fn solvers_and_models_are_checked_with_the_other_settings() {
    let simplex = CurveFitter::NELDER_MEAD.size(f64::NAN).fatol(-1.0);
    let actual = faults(decay().solver(simplex).fix("k").validate().unwrap_err());
    assert_eq!(
        actual
            .iter()
            .map(|fault| fault.0.as_str())
            .collect::<Vec<_>>(),
        ["fatol", "size", "fix"]
    );
    let both = Solver::LevenbergMarquardtThenNelderMead(
        CurveFitter::LEVENBERG_MARQUARDT,
        CurveFitter::NELDER_MEAD,
    );
    let actual = faults(decay().solver(both).validate().unwrap_err());
    assert!(
        actual.len() == 1 && actual[0].0 == "solver" && actual[0].1.contains("spectra only"),
        "{actual:?}"
    );
    let names: Vec<String> = (0..33).map(|k| format!("p{k}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let many: CurveModel = Closure::new(&["x"], &names, |_, _, _| ()).unwrap().into();
    let actual = faults(
        CurveFitter::new(many, Device::cpu())
            .tie("p0", "2*p1")
            .validate()
            .unwrap_err(),
    );
    assert!(
        actual[0].0 == "model" && actual[0].1.contains("33 parameters, more than 32"),
        "{actual:?}"
    );
    assert!(
        actual[1].0 == "tie" && actual[1].1.contains("this model is none"),
        "{actual:?}"
    );
}

#[test]
fn the_last_value_of_a_setting_counts() {
    let fitter = decay()
        .bounds("rate", f64::NAN, 1.0)
        .prior("rate", 0.0, -1.0)
        .estimator(Estimator::Huber(-1.0));
    assert_eq!(faults(fitter.validate().unwrap_err()).len(), 3);
    let fitter = fitter
        .bounds("rate", 0.0, 0.5)
        .prior("rate", 0.4, 1e9)
        .estimator(Estimator::LeastSquares);
    let curves = Curves::on_common_grid(vec![0.0, 1.0, 2.0], vec![3.0, 1.5, 0.7], vec![3.0, 0.4]);
    let fits = fitter.fit(&curves).unwrap();
    assert!(
        fits[0].status.is_success() && fits[0].parameters[1] == 0.5,
        "{:?}",
        fits[0]
    );
    // A tie of a fixed parameter is a fault in either order.
    assert!(decay().tie("rate", "2").fix("rate").validate().is_err());
    assert!(decay().fix("rate").tie("rate", "2").validate().is_err());
}

#[test]
fn columns_have_statuses_and_nan_for_bad_curves() {
    let x = vec![0.0, 1.0, 2.0];
    let good = [3.0, 1.5, 0.7];
    let y = [good, [3.0, f64::NAN, 0.7], good].concat();
    let starts = vec![1.0, 1.0, 1.0, 1.0, 1.0, f64::INFINITY];
    let curves = Curves::on_common_grid(x, y, starts);
    for fitter in [decay(), decay().solver(CurveFitter::NELDER_MEAD)] {
        let columns = fitter.fit_columns(&curves).unwrap();
        let fits = fitter.fit(&curves).unwrap();
        assert!(columns.len() == 3 && !columns.is_empty());
        assert!(
            columns.status[0].is_success() && fits[0].status.is_success(),
            "{columns:?}"
        );
        assert_eq!(columns.status[1..], [Status::BadInput; 2]);
        for bad in &fits[1..] {
            assert_eq!(
                (bad.status, bad.rounds, bad.evaluations),
                (Status::BadInput, 0, 0)
            );
            assert!(
                bad.parameters
                    .iter()
                    .chain(&bad.errors)
                    .chain([&bad.chi2])
                    .all(|x| x.is_nan()),
                "{bad:?}"
            );
        }
        assert!(
            columns.parameters[2..]
                .iter()
                .chain(&columns.errors[2..])
                .all(|x| x.is_nan()),
            "{columns:?}"
        );
        assert!(fits[0].evaluations > fits[0].rounds, "{:?}", fits[0]);
        assert!(
            columns.evaluations[0] > 0 && columns.evaluations[1..] == [0, 0],
            "{columns:?}"
        );
        assert!(columns.message(0).is_none() && columns.message(3).is_none());
        for (k, fit) in fits.iter().enumerate().skip(1) {
            assert_eq!(columns.message(k), Some(&fit.message[..]));
        }
    }
    assert!(size_of_val(&Status::Ftol) == 1);
    assert!(
        decay()
            .fit_columns(&Curves::on_common_grid([0.0; 0], [0.0; 0], [0.0; 0]))
            .unwrap()
            .is_empty()
    );
}

/// σ = ∞ is a weight of 0: the point counts no more than a masked one, whatever its value.
#[test]
fn an_infinite_sigma_masks_its_point() {
    let x: Vec<f64> = (0..9).map(|j| 0.5 * f64::from(j)).collect();
    let mut y: Vec<f64> = x
        .iter()
        .map(|x| 3.0 * (-x).exp() + 0.1 * (7.0 * x).sin())
        .collect();
    let mut sigma = vec![0.1; 9];
    let mut mask = vec![false; 9];
    (y[2], sigma[2], mask[2]) = (f64::NAN, f64::INFINITY, true);
    let curves = || Curves::on_common_grid(x.clone(), y.clone(), vec![2.0, 1.5]);
    let open = curves().sigma(sigma);
    let masked = curves().sigma(vec![0.1; 9]).mask(mask);
    for fitter in [decay(), decay().solver(CurveFitter::NELDER_MEAD)] {
        let [a, b] = [&open, &masked].map(|curves| fitter.fit(curves).unwrap().swap_remove(0));
        assert!(
            a.status.is_success() && (a.points, a.dof) == (8, 6),
            "{a:?}"
        );
        assert_eq!(
            (&a.parameters, &a.errors, a.chi2),
            (&b.parameters, &b.errors, b.chi2)
        );
        let [a, b] = [&open, &masked].map(|curves| fitter.fit_columns(curves).unwrap());
        assert_eq!(
            (&a.parameters, &a.errors, &a.chi2, &a.status),
            (&b.parameters, &b.errors, &b.chi2, &b.status)
        );
    }
}

/// A prior is a row of the fit: with two of them two points determine three parameters.
#[test]
fn priors_count_as_points_in_the_degrees_of_freedom() {
    let model = || CurveFitter::new(Formula::parse("a + b*x + c*x^2").unwrap(), Device::cpu());
    let curves = Curves::on_common_grid(vec![0.0, 1.0], vec![1.0, 3.0], vec![0.5; 3]);
    // The prior of a fixed parameter does not count.
    let fixed = model()
        .prior("c", 7.0, 0.1)
        .fix("c")
        .fit(&curves)
        .unwrap()
        .swap_remove(0);
    assert!(fixed.status.is_success() && fixed.dof == 0, "{fixed:?}");
    let open = &model().fit(&curves).unwrap()[0];
    assert!(
        open.status == Status::BadInput && open.message.contains("2 points for 3"),
        "{open:?}"
    );
    let fitter = model().prior("b", 1.0, 0.1).prior("c", 0.0, 0.2);
    let columns = fitter.fit_columns(&curves).unwrap();
    for fitter in [fitter.clone(), fitter.clone().absolute_sigma(true)] {
        let fit = &fitter.fit(&curves).unwrap()[0];
        assert!(
            fit.status.is_success() && fit.dof == 1 && fit.errors.iter().all(|error| *error > 0.0),
            "{fit:?}"
        );
    }
    // The rows, each weighted by 1/σ: a − 1, b + c − 2 + (a − 1), 10 (b − 1), 5 c.
    let fit = &fitter.fit(&curves).unwrap()[0];
    let cost = |p: &[f64]| {
        let rows = [
            p[0] - 1.0,
            p[0] + p[1] + p[2] - 3.0,
            10.0 * (p[1] - 1.0),
            5.0 * p[2],
        ];
        rows.iter().map(|row| row * row).sum::<f64>()
    };
    for p in 0..3 {
        for step in [-1e-3, 1e-3] {
            let mut other = fit.parameters.clone();
            other[p] += step;
            assert!(cost(&other) > cost(&fit.parameters), "{fit:?}");
        }
    }
    assert!(columns.status[0].is_success(), "{columns:?}");
    for p in 0..3 {
        assert!(
            (columns.parameters[p] - fit.parameters[p]).abs() < 1e-3 * fit.errors[p],
            "{columns:?} {fit:?}"
        );
        assert!(
            (columns.errors[p] / fit.errors[p] - 1.0).abs() < 1e-3,
            "{columns:?} {fit:?}"
        );
    }
}

/// Draws decays with noise of 0.05, and starts that are up to half off.
fn noisy_decays(count: usize) -> Curves<'static> {
    let random = &mut Random(59);
    let x: Vec<f64> = (0..25).map(|j| 0.2 * f64::from(j)).collect();
    let mut y = Vec::new();
    let mut starts = Vec::new();
    for _ in 0..count {
        let [amplitude, rate] = [2.0 + random.uniform(), 0.5 + random.uniform()];
        y.extend(
            x.iter()
                .map(|x| amplitude * (-rate * x).exp() + 0.05 * random.normal()),
        );
        starts.extend([amplitude, rate].map(|truth| truth * (0.5 + random.uniform())));
    }
    Curves::on_common_grid(x, y, starts)
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Settings that the user leaves out are the fitter's defaults, whichever constructor the user takes.
#[test]
fn unset_solver_settings_are_the_defaults_of_curves() {
    let curves = noisy_decays(200);
    let natural: [(Solver, Solver); 4] = [
        (
            LevenbergMarquardt::default().into(),
            CurveFitter::LEVENBERG_MARQUARDT.into(),
        ),
        (
            LevenbergMarquardt::default().ftol(1e-6).into(),
            CurveFitter::LEVENBERG_MARQUARDT.ftol(1e-6).into(),
        ),
        (
            NelderMead::default().into(),
            CurveFitter::NELDER_MEAD.into(),
        ),
        (
            NelderMead::default().size(0.3).into(),
            CurveFitter::NELDER_MEAD.size(0.3).into(),
        ),
    ];
    for (natural, by_constant) in natural {
        let [a, b] = [natural, by_constant]
            .map(|solver| decay().solver(solver).fit_columns(&curves).unwrap());
        assert_eq!(
            (bits(&a.parameters), &a.rounds),
            (bits(&b.parameters), &b.rounds)
        );
    }
    let own = decay().fit_columns(&curves).unwrap();
    let natural = decay()
        .solver(LevenbergMarquardt::default())
        .fit_columns(&curves)
        .unwrap();
    assert_eq!(bits(&own.parameters), bits(&natural.parameters));
    // A value that happens to be the default of spectra is still the user's.
    let set = decay()
        .solver(LevenbergMarquardt::default().largest_step(1e30))
        .fit(&curves)
        .unwrap();
    let unset = decay().fit(&curves).unwrap();
    assert!(set.iter().zip(&unset).any(|(a, b)| a.rounds != b.rounds));
}

/// Columns end by `ftol` if it is set: earlier than by default, or at the precision of f64.
#[test]
fn columns_converge_to_the_users_ftol() {
    let curves = noisy_decays(500);
    let minima = decay().fit(&curves).unwrap();
    let fit = |ftol: f64| {
        decay()
            .solver(LevenbergMarquardt::default().ftol(ftol))
            .fit_columns(&curves)
            .unwrap()
    };
    let farthest = |parameters: &[f64]| {
        let each = minima.iter().zip(parameters.chunks(2));
        each.map(|(best, end)| {
            (0..2)
                .map(|p| ((end[p] - best.parameters[p]) / best.errors[p]).abs())
                .fold(0.0, f64::max)
        })
        .fold(0.0, f64::max)
    };
    let [fine, usual, coarse, rough] = [
        fit(1e-14),
        decay().fit_columns(&curves).unwrap(),
        fit(1e-4),
        fit(0.1),
    ];
    for columns in [&fine, &usual, &coarse, &rough] {
        assert!(columns.status.iter().all(|status| status.is_success()));
    }
    let all = [&fine, &usual, &coarse, &rough].map(|columns| farthest(&columns.parameters));
    println!("{all:?}");
    assert!(
        all[0] < 1e-6 && all[0] < all[1] && all[1] < 1e-3 && all[1] < all[2] && all[2] < all[3],
        "{all:?}"
    );
    let rounds = |columns: &popfit::CurveColumns| columns.rounds.iter().sum::<u32>();
    assert!(rounds(&rough) < rounds(&coarse) && rounds(&coarse) < rounds(&usual));
}

/// No fit uses more linearisations than its budget, by any route, and a fit that has used them up has that status.
#[test]
fn all_attempts_at_a_fit_share_one_budget_of_rounds() {
    let random = &mut Random(60);
    let x: Vec<f64> = (0..40).map(|j| f64::from(j) / 40.0).collect();
    let mut y = Vec::new();
    let mut starts = Vec::new();
    for _ in 0..100 {
        let rate = 0.8 + 0.8 * random.uniform();
        y.extend(
            x.iter()
                .map(|x| 2.0 * (6.3 * rate * x + 1.0).sin() + 0.1 * random.normal()),
        );
        starts.extend([1.0, rate * 0.6, 0.0]);
    }
    let sines = Curves::on_common_grid(x, y, starts);
    let closure = Closure::new(&["x"], &["a", "k", "t"], |x, p, y| {
        y.iter_mut()
            .zip(x)
            .for_each(|(y, x)| *y = p[0] * (6.3 * p[1] * x + p[2]).sin());
    });
    let formula = CurveModel::from(Formula::parse("a*sin(6.3*k*x + t)").unwrap());
    let wave = |model: &CurveModel| CurveFitter::new(model.clone(), Device::cpu());
    for (fitter, curves) in [
        (decay(), &noisy_decays(100)),
        (wave(&formula), &sines),
        (wave(&closure.unwrap().into()), &sines),
        (wave(&formula).estimator(Estimator::Huber(1.3)), &sines),
    ] {
        for most in [1, 2, 3, 7, 20, 60, 150, 400] {
            for polish in [true, false] {
                let fitter = fitter
                    .clone()
                    .polish(polish)
                    .solver(LevenbergMarquardt::default().max_rounds(most));
                let fits: Vec<CurveFit> = fitter.fit(curves).unwrap();
                let worst = fits.iter().max_by_key(|fit| fit.rounds).unwrap();
                assert!(worst.rounds <= most, "{most}: {worst:?}");
                let spent = fits
                    .iter()
                    .filter(|fit| fit.rounds == most && !fit.status.is_success());
                let other = spent
                    .clone()
                    .find(|fit| fit.status != Status::MaxRounds && fit.status != Status::Stalled);
                assert!(other.is_none(), "{other:?}");
                let early = fits
                    .iter()
                    .find(|fit| fit.status == Status::MaxRounds && fit.rounds < most);
                assert!(early.is_none(), "{most}: {early:?}");
                assert!(most > 3 || spent.count() > 50, "{most}");
                let columns = fitter.fit_columns(curves).unwrap();
                assert!(
                    columns.rounds.iter().all(|rounds| *rounds <= most),
                    "{most}: {:?}",
                    columns.rounds
                );
                let open = (0..100)
                    .find(|&k| !columns.status[k].is_success() && columns.message(k).is_none());
                assert!(open.is_none(), "{most}: {open:?}");
                assert!(most > 2 || columns.status.contains(&Status::MaxRounds));
            }
        }
    }
}

/// Starts by name give the fits of starts in the order of the parameters, and a wrong name is an error that names it.
#[test]
fn starts_may_be_given_by_name() {
    let fitter = decay();
    let (x, y) = (
        [0.0, 1.0, 2.0, 3.0],
        [3.0, 1.6, 0.9, 0.4, 5.0, 2.0, 0.7, 0.3],
    );
    let named = Curves::on_common_grid(x, y, [("rate", 0.5), ("amplitude", 2.0)]);
    let in_order = Curves::on_common_grid(x, y, [2.0, 0.5]);
    let columns = fitter.fit_columns(&named).unwrap();
    assert_eq!(columns, fitter.fit_columns(&in_order).unwrap());
    assert_eq!(fitter.fit(&named).unwrap()[1].start, [2.0, 0.5]);
    let mut uploaded = fitter.upload(in_order).unwrap();
    let names = [("rate", 0.5), ("amplitude", 2.0)];
    uploaded.set_starts(&names[..]).unwrap();
    assert_eq!(columns, uploaded.fit().unwrap().read().unwrap());
    let wrong: [(&[(&str, f64)], &str); 3] = [
        (
            &[("amplitude", 2.0), ("rates", 0.5)],
            "there is no parameter `rates`; did you mean `rate`? (known: amplitude, rate)",
        ),
        (
            &[("rate", 2.0), ("rate", 0.5), ("amplitude", 1.0)],
            "`rate` has two",
        ),
        (&[("amplitude", 2.0)], "`rate` has none"),
    ];
    for (starts, expected) in wrong {
        let error = fitter
            .fit(&Curves::on_common_grid(x, y, starts))
            .unwrap_err();
        assert_eq!(error.argument(), Some("starts"));
        assert_eq!(error.to_string(), format!("starts: {expected}"));
    }
}

/// One row of named starts does not say how many curves there are, and a tied parameter needs none.
#[test]
fn named_starts_know_grids_and_ties() {
    let (x, y) = (
        [0.0, 1.0, 2.0, 0.0, 1.0, 3.0],
        [3.0, 1.6, 0.9, 5.0, 2.0, 0.4],
    );
    let curves = Curves::on_own_grids(x, y, [("rate", 0.5), ("amplitude", 2.0)]);
    let error = decay().fit(&curves).unwrap_err();
    assert_eq!(error.argument(), Some("starts"));
    assert!(error.to_string().contains("Curves::points"), "{error}");
    assert_eq!(decay().fit(&curves.points(3)).unwrap().len(), 2);
    let tied = decay().tie("rate", "0.3 * amplitude");
    let fits = tied.fit(&Curves::on_common_grid(
        [0.0, 1.0, 2.0],
        [3.0, 1.6, 0.9],
        [("amplitude", 2.0)],
    ));
    assert!(fits.unwrap()[0].status.is_success());
}

#[test]
fn no_threads_are_a_fault_of_the_settings() {
    let error = decay()
        .control(Control {
            threads: Some(0),
            ..Control::default()
        })
        .validate();
    assert!(error.unwrap_err().to_string().contains("threads"));
}
