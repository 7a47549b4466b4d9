//! Covariances of columns: from the matrix that the errors are from, with and without everything that changes it.

use popfit::{CurveColumns, CurveFitter, Curves, Device, Estimator, Flags, Formula};
use popfit_testing::fits::devices;

use super::problems::{Problem, problem};

/// The largest difference to the covariances of `fit`, in units of the errors: fits end 0.001 errors from the minimum.
const CLOSE: f64 = 3e-3;

/// Compares covariances with the errors beside them and with those of `fit`; returns the number of fits compared.
fn compare(label: &str, fitter: &CurveFitter, curves: &Curves) -> usize {
    let plain = fitter.fit_columns(curves).unwrap();
    let columns = fitter.clone().covariance(true).fit_columns(curves).unwrap();
    let fits = fitter.fit(curves).unwrap();
    assert!(plain.covariance.is_none());
    // The request for covariances does not change the other columns.
    for (with, without) in [
        (&columns.parameters, &plain.parameters),
        (&columns.errors, &plain.errors),
    ] {
        assert!(
            with.iter()
                .zip(without)
                .all(|(a, b)| a.to_bits() == b.to_bits()),
            "{label}"
        );
    }
    let p = columns.names().len();
    let all = columns.covariance.as_ref().unwrap();
    assert_eq!(all.len(), columns.len() * p * p);
    let mut compared = 0;
    for (k, fit) in fits.iter().enumerate() {
        let own = &all[k * p * p..][..p * p];
        let errors = &columns.errors[k * p..][..p];
        if !columns.status[k].is_success() {
            assert!(
                (0..p * p).all(|i| own[i].is_nan() || own[i] == 0.0),
                "{label} {k}: {own:?}"
            );
            continue;
        }
        meets_errors(&format!("{label} {k}"), own, errors);
        if !fit.status.is_success() || fit.flags != columns.flags[k] {
            continue;
        }
        compared += 1;
        for (i, (actual, expected)) in own.iter().zip(&fit.covariance).enumerate() {
            let scale = fit.errors[i / p] * fit.errors[i % p];
            let same = actual == expected || actual.is_nan() && expected.is_nan();
            assert!(
                same || (actual - expected).abs() <= CLOSE * scale,
                "{label} {k} {i}: {actual} {expected}\n{own:?}\n{fit:?}"
            );
        }
    }
    compared
}

/// The diagonal has the squared errors, to rounding, and the matrix is symmetric.
fn meets_errors(label: &str, covariance: &[f64], errors: &[f64]) {
    let p = errors.len();
    for i in 0..p {
        let root = covariance[i * p + i].sqrt();
        let error = errors[i];
        let same =
            root == error || root.is_nan() && error.is_nan() || (root / error - 1.0).abs() < 1e-15;
        assert!(same, "{label}: {root} {error}");
        assert!(
            (0..i).all(|j| covariance[i * p + j].to_bits() == covariance[j * p + i].to_bits()),
            "{label}"
        );
    }
}

fn gaussians(count: usize) -> Problem {
    let x: Vec<f64> = (0..60).map(|j| f64::from(j) / 6.0).collect();
    let formula = Formula::parse("a*exp(-(x-m)^2/(2*s^2))+c").unwrap();
    problem(formula, x, &[7.0, 5.0, 1.2, 1.5], 0.3, count)
}

#[test]
fn covariances_of_columns_have_the_squared_errors_as_diagonal() {
    let Problem {
        formula,
        x,
        y,
        starts,
    } = gaussians(300);
    let sigma: Vec<f64> = (0..y.len()).map(|i| 0.2 + 0.05 * (i % 5) as f64).collect();
    let mask: Vec<bool> = (0..y.len()).map(|i| i % 11 == 3).collect();
    let curves = || Curves::on_common_grid(x.clone(), y.clone(), starts.clone());
    for device in devices() {
        let fitter = CurveFitter::new(formula.clone(), device.clone());
        // Huber's loss would count the points beyond its scale, and that number jumps.
        let robust = fitter.clone().estimator(Estimator::Cauchy(1.5));
        let cases: [(&str, CurveFitter, Curves); 10] = [
            ("plain", fitter.clone(), curves()),
            ("sigma", fitter.clone(), curves().sigma(sigma.clone())),
            (
                "absolute",
                fitter.clone().absolute_sigma(true),
                curves().sigma(sigma.clone()).mask(mask.clone()),
            ),
            ("fixed", fitter.clone().fix("m"), curves()),
            (
                "bounds",
                fitter.clone().bounds("s", 0.0, 9.0).bounds("c", 1.349, 9.0),
                curves(),
            ),
            (
                "bound and fixed",
                fitter.clone().fix("a").bounds("c", 1.349, 9.0),
                curves(),
            ),
            ("prior", fitter.clone().prior("s", 1.2, 0.02), curves()),
            ("robust", robust.clone(), curves().sigma(sigma.clone())),
            (
                "robust and prior",
                robust.clone().prior("s", 1.2, 0.05),
                curves().sigma(sigma.clone()),
            ),
            (
                "scipy's robust",
                robust.sandwich_errors(false),
                curves().sigma(sigma.clone()),
            ),
        ];
        for (label, fitter, curves) in cases {
            let compared = compare(&format!("{label} on {}", device.name()), &fitter, &curves);
            assert!(compared > 280, "{label}: {compared}");
        }
    }
}

/// A parameter at a bound has no error, one that the data do not determine an infinite one; without degrees of freedom
/// there are none.
#[test]
fn covariances_of_undetermined_parameters_are_nan() {
    let Problem { x, y, starts, .. } = gaussians(100);
    let starts = |more: f64| {
        starts
            .chunks_exact(4)
            .flat_map(|row| [row, &[more][..]].concat())
            .collect::<Vec<f64>>()
    };
    let idle = ["a", "m", "s", "c", "d"];
    for device in devices() {
        let formula = Formula::parse_exactly("a*exp(-(x-m)^2/(2*s^2))+c", &["x"], &idle).unwrap();
        let fitter = CurveFitter::new(formula, device.clone());
        let curves = || Curves::on_common_grid(x.clone(), y.clone(), starts(2.0));
        assert!(compare("idle", &fitter, &curves()) > 90);
        assert!(compare("idle and fixed", &fitter.clone().fix("m"), &curves()) > 90);
        let columns = fitter.covariance(true).fit_columns(&curves()).unwrap();
        let all = columns.covariance.as_ref().unwrap();
        let open = columns
            .flags
            .iter()
            .filter(|flags| flags.contains(Flags::UNDETERMINED))
            .count();
        assert!(
            open > 90 && all[24].is_infinite() && all[20..24].iter().all(|c| c.is_nan()),
            "{:?}",
            &all[..25]
        );
        // Parameters d and c have the same effect.
        let alike = CurveFitter::new(
            Formula::parse("a*exp(-(x-m)^2/(2*s^2))+c+d").unwrap(),
            device.clone(),
        );
        assert!(compare("alike", &alike, &curves()) > 60);
        let line = CurveFitter::new(Formula::parse("a*x + c").unwrap(), device);
        let two =
            || Curves::on_common_grid(vec![1.0, 2.0], [3.0, 4.5].repeat(20), [1.0, 1.0].repeat(20));
        compare("no freedom", &line, &two());
        compare(
            "no freedom, fixed",
            &line.fix("a").prior("a", 1.0, 1.0),
            &two(),
        );
    }
}

/// Columns whose memory is reused keep nothing of the previous results.
#[test]
fn a_bad_curve_has_no_covariance_and_changes_no_other() {
    let Problem {
        formula,
        x,
        y,
        starts,
    } = gaussians(3000);
    let fitter = CurveFitter::new(formula, Device::cpu()).covariance(true);
    let whole = Curves::on_common_grid(x.clone(), y.clone(), starts.clone());
    let fresh = fitter.fit_columns(&whole).unwrap();
    let bits = |columns: &CurveColumns| {
        columns
            .covariance
            .iter()
            .flatten()
            .map(|c| c.to_bits())
            .collect::<Vec<_>>()
    };
    let mut bad = y[..60 * 20].to_vec();
    bad[65] = f64::NAN;
    let columns = fitter
        .fit_columns(&Curves::on_common_grid(x, bad, starts[..80].to_vec()))
        .unwrap();
    let few = columns.covariance.as_ref().unwrap();
    assert!(
        few.len() == 320
            && few[16..32].iter().all(|c| c.is_nan())
            && few[32].to_bits() == bits(&fresh)[32]
    );
}
