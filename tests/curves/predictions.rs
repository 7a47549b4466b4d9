//! Values of models at the parameters of fits.

use popfit::{Closure, CurveFitter, Curves, Device, Error, Formula};

/// Points of three curves, each with its own.
fn own_points() -> Vec<f64> {
    (0..3 * 11)
        .map(|k| 0.1 * f64::from(k % 11) * (1.0 + f64::from(k / 11)))
        .collect()
}

#[test]
fn predictions_agree_on_common_and_own_grids() {
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    let parameters = [3.0, 0.5, 2.0, f64::NAN, 1.0, 2.0];
    let x = own_points();
    let own = Curves::on_own_grids(&x, vec![0f32; 33], vec![1.0; 6]);
    let common = Curves::on_common_grid(&x[..11], vec![0.0; 33], vec![1.0; 2]);
    for (curves, is_own) in [(own, true), (common, false)] {
        let values = fitter.predict(&curves, &parameters).unwrap();
        for (k, value) in values.iter().enumerate() {
            let curve = k / 11;
            let at = if is_own { x[k] } else { x[k % 11] };
            let expected = parameters[2 * curve] * (-parameters[2 * curve + 1] * at).exp();
            assert!(value.is_nan() == (curve == 1), "{value} of curve {curve}");
            assert!(
                value.is_nan() || (value - expected).abs() <= 1e-14 * expected,
                "{value}, not {expected}"
            );
        }
    }
}

#[test]
fn errors_of_predictions_follow_from_the_covariance() {
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    let x = own_points();
    let curves = Curves::on_own_grids(&x, vec![0.0; 33], vec![1.0; 6]);
    let parameters = [3.0, 0.5, 2.0, 0.1, 1.0, 2.0];
    let covariance = [
        0.04,
        0.01,
        0.01,
        0.09,
        1.0,
        0.0,
        0.0,
        0.0,
        0.25,
        f64::NAN,
        f64::NAN,
        f64::INFINITY,
    ];
    let errors = fitter
        .prediction_errors(&curves, &parameters, &covariance)
        .unwrap();
    for (k, error) in errors.iter().enumerate() {
        let curve = k / 11;
        let position = x[k];
        let decay = (-parameters[2 * curve + 1] * position).exp();
        let by_a = decay;
        let by_k = -parameters[2 * curve] * position * decay;
        let c = &covariance[4 * curve..4 * curve + 4];
        let expected = (by_a * by_a * c[0] + 2.0 * by_a * by_k * c[1] + by_k * by_k * c[3]).sqrt();
        assert!(
            if curve == 2 {
                error.is_nan()
            } else {
                (error - expected).abs() <= 1e-14
            },
            "{error}, not {expected}"
        );
    }
    let error = fitter
        .prediction_errors(&curves, &parameters, &covariance[..9])
        .unwrap_err();
    assert_eq!(error.argument(), Some("covariance"), "{error}");
}

#[test]
fn bad_inputs_of_predictions_are_refused() {
    let curves = Curves::on_common_grid(vec![0.0, 1.0], vec![0.0; 6], vec![1.0]);
    let fitter = CurveFitter::new(Formula::parse("a*x").unwrap(), Device::cpu());
    let error = fitter.predict(&curves, &[1.0, 2.0]).unwrap_err();
    assert_eq!(error.argument(), Some("parameters"), "{error}");
    let fails = Closure::new(&["x"], &["a"], |_, _, _| Err::<(), _>("no such place")).unwrap();
    let error = CurveFitter::new(fails, Device::cpu())
        .predict(&curves, &[1.0, 2.0, 3.0])
        .unwrap_err();
    assert!(
        matches!(&error, Error::Model { .. }) && error.to_string().contains("no such place"),
        "{error}"
    );
    let empty = Curves::on_common_grid(vec![0.0, 1.0], Vec::<f64>::new(), Vec::<f64>::new());
    assert!(fitter.predict(&empty, &[]).unwrap().is_empty());
}
