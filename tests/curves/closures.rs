//! Closures that fail, panic, ask for their curve, or are a cost: each is one fit's affair, and no other's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use popfit::{
    Closure, Context, CurveFit, CurveFitter, CurveModel, Curves, Device, Error, Estimator, Failure,
    Model, Status,
};

const RATES: [f64; 3] = [0.5, 0.9, 1.4];

fn x() -> Vec<f64> {
    (0..20).map(|j| 0.2 * f64::from(j)).collect()
}

/// Three decays.
fn curves() -> Curves<'static> {
    let y: Vec<f64> = RATES
        .iter()
        .flat_map(|k| x().into_iter().map(move |x| 3.0 * (-k * x).exp()))
        .collect();
    Curves::on_common_grid(x(), y, [2.0, 1.0].repeat(3))
}

fn decay(x: &[f64], p: &[f64], y: &mut [f64]) {
    y.iter_mut()
        .zip(x)
        .for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp());
}

/// Every fit but the second has arrived.
fn others_arrived(fits: &[CurveFit]) {
    for k in [0, 2] {
        let fit = &fits[k];
        assert!(
            fit.status.is_success() && (fit.parameters[1] - RATES[k]).abs() < 1e-6,
            "{fit:?}"
        );
    }
}

#[test]
fn errors_of_closures_end_their_fit_with_a_message() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = asked.clone();
    let model = Closure::indexed(&["x"], &["a", "k"], move |context, x, p, y| {
        // The failure does not happen at the start, but in a later round.
        if context.index == 1 && p[1] != 1.0 {
            seen.fetch_add(1, Ordering::Relaxed);
            return Err(format!("no light at k = {:.1}", p[1]));
        }
        decay(x, p, y);
        Ok(())
    });
    let slopes = |_: &popfit::Context, x: &[f64], p: &[f64], rows: &mut [f64]| {
        let points = x.len();
        for (j, x) in x.iter().enumerate() {
            (rows[j], rows[points + j]) = ((-p[1] * x).exp(), -p[0] * x * (-p[1] * x).exp());
        }
    };
    let fitter = CurveFitter::new(model.unwrap().indexed_derivatives(slopes), Device::cpu());
    for fitter in [fitter.clone(), fitter.solver(CurveFitter::NELDER_MEAD)] {
        asked.store(0, Ordering::Relaxed);
        let fits = fitter.fit(&curves()).unwrap();
        others_arrived(&fits);
        assert_eq!(fits[1].status, Status::NotFinite);
        assert!(
            fits[1]
                .message
                .starts_with("the model failed: no light at k = "),
            "{}",
            fits[1].message
        );
        assert!(fits[1].errors.iter().all(|e| e.is_nan()), "{:?}", fits[1]);
        // After its first failure the model is not evaluated again; a simplex evaluates four points at once.
        assert!((1..=4).contains(&asked.load(Ordering::Relaxed)));
        assert_eq!(
            fitter.fit_columns(&curves()).unwrap().status[1],
            Status::NotFinite
        );
    }
}

/// A fit that fails after some rounds returns its best parameters.
#[test]
fn a_failed_fit_keeps_its_best_point() {
    let model = Closure::new(&["x"], &["a", "k"], |x, p, y| {
        decay(x, p, y);
        // Close to the minimum.
        if (p[1] - 0.9).abs() < 1e-6 {
            Err("too near")
        } else {
            Ok(())
        }
    });
    let fits = CurveFitter::new(model.unwrap(), Device::cpu())
        .fit(&curves())
        .unwrap();
    others_arrived(&fits);
    assert!(
        fits[1].status == Status::NotFinite && fits[1].message == "the model failed: too near",
        "{:?}",
        fits[1]
    );
    assert!(
        (fits[1].parameters[1] - 0.9).abs() < 0.1 && fits[1].parameters[1] != 1.0,
        "{:?}",
        fits[1]
    );
}

#[test]
fn panics_of_closures_end_their_fit_with_a_message() {
    struct Decay;
    impl Model for Decay {
        fn predictors(&self) -> Vec<String> {
            vec!["x".into()]
        }
        fn parameters(&self) -> Vec<String> {
            vec!["a".into(), "k".into()]
        }
        fn values(&self, _: &Context, x: &[f64], p: &[f64], y: &mut [f64]) -> Result<(), Failure> {
            assert!(p[0] != 7.0, "seven is out of range");
            decay(x, p, y);
            Ok(())
        }
    }
    let starts = vec![2.0, 1.0, 7.0, 1.0, 2.0, 1.0];
    let y: Vec<f64> = RATES
        .iter()
        .flat_map(|k| x().into_iter().map(move |x| 3.0 * (-k * x).exp()))
        .collect();
    let curves = Curves::on_common_grid(x(), y, starts);
    let closure = Closure::new(&["x"], &["a", "k"], |x, p, y| {
        if p[0] == 7.0 {
            std::panic::panic_any("seven is out of range");
        }
        decay(x, p, y);
    });
    for model in [CurveModel::new(Decay).unwrap(), closure.unwrap().into()] {
        let fits = CurveFitter::new(model.clone(), Device::cpu())
            .fit(&curves)
            .unwrap();
        others_arrived(&fits);
        assert_eq!(fits[1].status, Status::NotFinite);
        assert_eq!(fits[1].message, "the model panicked: seven is out of range");
        // Outside a fit the failure is an error.
        let error = model.values(&[1.0], &[7.0, 1.0]).unwrap_err();
        assert!(
            matches!(&error, Error::Model { message, .. } if message.contains("seven")),
            "{error}"
        );
        assert!(model.values(&[1.0], &[2.0, 1.0]).is_ok());
    }
}

/// A model with data per curve: the curve's number is that of the input, in populations, intervals and repeated fits.
#[test]
fn indexed_closures_receive_the_index_of_their_curve() {
    let data: Vec<f64> = curves_data();
    let model = Closure::indexed(&["row"], &["a", "k"], move |context, _, p, r| {
        let own = &data[20 * context.index..][..20];
        for ((r, y), j) in r.iter_mut().zip(own).zip(0..) {
            *r = p[0] * (-p[1] * 0.2 * f64::from(j)).exp() - y;
        }
    });
    let fitter = CurveFitter::new(model.unwrap(), Device::cpu());
    let problems = Curves::residuals(20, 2, [2.0, 1.0].repeat(3));
    let fits = fitter.fit(&problems).unwrap();
    for (fit, k) in fits.iter().zip(RATES) {
        assert!(
            fit.status.is_success() && (fit.parameters[1] - k).abs() < 0.02,
            "{fit:?}"
        );
    }
    let formula = popfit::Formula::parse("a*exp(-k*x)").unwrap();
    let plain = CurveFitter::new(formula, Device::cpu());
    let same = Curves::on_common_grid(x(), curves_data(), [2.0, 1.0].repeat(3));
    let expected = plain
        .confidence_intervals(&same, &plain.fit(&same).unwrap(), &["k"], &[1.0])
        .unwrap();
    let actual = fitter
        .confidence_intervals(&problems, &fits, &["k"], &[1.0])
        .unwrap();
    for (actual, expected) in actual.iter().flatten().zip(expected.iter().flatten()) {
        assert!(
            (actual.lower - expected.lower).abs() < 1e-6,
            "{actual:?} {expected:?}"
        );
    }
}

/// With a little noise.
fn curves_data() -> Vec<f64> {
    let one = |k: f64| {
        x().into_iter()
            .map(move |x| 3.0 * (-k * x).exp() + 0.02 * (9.0 * x * k).sin())
    };
    RATES.into_iter().flat_map(one).collect()
}

#[test]
fn costs_are_minimised_without_squares() {
    let centres = [1.0, -2.0];
    let valley =
        move |p: &[f64]| (p[0] - centres[0]).powi(2) + 3.0 * (p[1] - centres[1]).powi(2) - 10.0;
    let model: CurveModel = Closure::cost(&["a", "b"], valley).unwrap().into();
    let starts = vec![4.0, 4.0, 0.0, 0.0, -30.0, 50.0];
    let problems = Curves::residuals(1, 2, starts);
    let fitter = CurveFitter::new(model.clone(), Device::cpu()).solver(CurveFitter::NELDER_MEAD);
    for fit in fitter.fit(&problems).unwrap() {
        assert!(
            fit.status.is_success() && (fit.chi2 + 10.0).abs() < 1e-10,
            "{fit:?}"
        );
        assert!(
            (fit.parameters[0] - 1.0).abs() < 1e-4 && (fit.parameters[1] + 2.0).abs() < 1e-4,
            "{fit:?}"
        );
        assert!(
            fit.errors.iter().all(|e| e.is_nan()) && fit.aic.is_nan(),
            "{fit:?}"
        );
    }
    let columns = fitter.fit_columns(&problems).unwrap();
    assert!(
        columns.chi2.iter().all(|cost| (cost + 10.0).abs() < 1e-10),
        "{columns:?}"
    );
    let bounded = fitter.clone().bounds("a", 3.0, 5.0).fix("b");
    let fit = &bounded
        .fit(&Curves::residuals(1, 2, vec![4.0, 4.0]))
        .unwrap()[0];
    assert!(
        fit.parameters == [3.0, 4.0] && (fit.chi2 - 102.0).abs() < 1e-9 && fit.errors[1] == 0.0,
        "{fit:?}"
    );
    // A rise of 1 is one sigma.
    let fits = fitter.fit(&problems).unwrap();
    let interval = &fitter
        .confidence_intervals(&problems, &fits, &["a"], &[1.0])
        .unwrap()[0][0];
    assert!(
        (interval.upper - 2.0).abs() < 1e-3 && interval.lower.abs() < 1e-3,
        "{interval:?}"
    );
    let refused = CurveFitter::new(model, Device::cpu())
        .estimator(Estimator::Huber(1.0))
        .validate()
        .unwrap_err();
    let message = refused.to_string();
    assert!(
        message.contains("solver: a cost has no residuals") && message.contains("NELDER_MEAD"),
        "{message}"
    );
    assert!(
        message.contains("estimator: a cost is minimised as it is"),
        "{message}"
    );
}

/// A cost may have data per problem, be undefined, and panic.
#[test]
fn indexed_costs_receive_their_index_and_fail_alone() {
    let model = Closure::indexed_cost(&["a"], |context, p| match context.index {
        1 => panic!("not this one"),
        k => {
            if p[0] < 0.0 {
                f64::NAN
            } else {
                (p[0] - k as f64 - 1.0).powi(2)
            }
        }
    });
    let fitter = CurveFitter::new(model.unwrap(), Device::cpu()).solver(CurveFitter::NELDER_MEAD);
    let fits = fitter.fit(&Curves::residuals(1, 1, vec![5.0; 4])).unwrap();
    for k in [0, 2, 3] {
        assert!(
            (fits[k].parameters[0] - k as f64 - 1.0).abs() < 1e-4,
            "{:?}",
            fits[k]
        );
    }
    assert!(
        fits[1].status == Status::NotFinite && fits[1].message.ends_with("panicked: not this one"),
        "{:?}",
        fits[1]
    );
}

#[test]
fn fits_print_message_parameters_and_errors() {
    let formula: popfit::Formula = "a*exp(-k*x)".parse().unwrap();
    let fits = CurveFitter::new(formula, Device::cpu())
        .fit(&curves())
        .unwrap();
    let text = fits[0].to_string();
    assert!(
        text.starts_with("converged")
            && text.contains("chi-square = ")
            && text.contains("dof = 18"),
        "{text}"
    );
    assert!(
        text.lines().count() == 3 && text.contains("3.00000000 +/-"),
        "{text}"
    );
    assert!("a*(".parse::<popfit::Formula>().is_err());
}
