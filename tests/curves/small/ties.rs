//! Tied curves in columns: the small fits of the formula with the ties put in, with the rows of `fit`.

use popfit::{CurveFitter, Curves, Device, Flags, Formula, LevenbergMarquardt, Status};
use popfit_testing::fits::devices;

use super::problems::{Problem, problem};

/// A step below 1e-7 errors ends a fit.
const FINEST: f64 = 1e-16;

fn gaussians(count: usize) -> Problem {
    let x: Vec<f64> = (0..40).map(|j| f64::from(j) / 4.0).collect();
    let formula = Formula::parse("a*exp(-(x-m)^2/(2*s^2))+c").unwrap();
    problem(formula, x, &[7.0, 5.0, 1.2, 1.4], 0.3, count)
}

/// Compares all columns with the rows of `fit`, to 1e-6 of an error; returns the number of successes.
fn compare(label: &str, fitter: &CurveFitter, curves: &Curves) -> usize {
    let fine = fitter
        .clone()
        .solver(LevenbergMarquardt::default().ftol(FINEST));
    let columns = fine.clone().covariance(true).fit_columns(curves).unwrap();
    let plain = fine.fit_columns(curves).unwrap();
    let fits = fine.fit(curves).unwrap();
    let p = columns.names().len();
    assert_eq!(
        (
            columns.len(),
            columns.parameters.len(),
            plain.covariance.as_ref()
        ),
        (fits.len(), fits.len() * p, None)
    );
    let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(
        [bits(&columns.parameters), bits(&columns.errors)],
        [bits(&plain.parameters), bits(&plain.errors)]
    );
    let mut successes = 0;
    for (k, fit) in fits.iter().enumerate() {
        let row = |i: usize| (columns.parameters[k * p + i], columns.errors[k * p + i]);
        let alike = columns.status[k].is_success() == fit.status.is_success()
            && columns.flags[k] == fit.flags;
        assert!(alike, "{label} {k}: {:?} {fit:?}", columns.status[k]);
        if !fit.status.is_success() {
            continue;
        }
        successes += 1;
        let same = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
        for i in 0..p {
            let ((value, error), (x, e)) = (row(i), (fit.parameters[i], fit.errors[i]));
            let unit = if e.is_finite() {
                e.max(1e-9 * x.abs())
            } else {
                f64::INFINITY
            };
            assert!(
                same(value, x) || (value - x).abs() <= 1e-6 * unit,
                "{label} {k} {i}: {value} {x} {e}"
            );
            assert!(
                same(error, e) || (error / e - 1.0).abs() <= 1e-6,
                "{label} {k} {i}: {error} {e}"
            );
        }
        for (i, (actual, expected)) in columns.covariance.as_ref().unwrap()[k * p * p..]
            .iter()
            .zip(&fit.covariance)
            .enumerate()
        {
            let scale = fit.errors[i / p] * fit.errors[i % p];
            let close = same(*actual, *expected) || (actual - expected).abs() <= 1e-6 * scale;
            assert!(close, "{label} {k} {i}: {actual} {expected}");
        }
        assert!(
            (columns.chi2[k] / fit.chi2 - 1.0).abs() < 1e-7,
            "{label} {k}"
        );
    }
    successes
}

#[test]
fn columns_of_tied_curves_agree_with_single_fits() {
    let Problem {
        formula,
        x,
        y,
        starts,
    } = gaussians(200);
    let curves = || Curves::on_common_grid(x.clone(), y.clone(), starts.clone());
    for device in devices() {
        let fitter = CurveFitter::new(formula.clone(), device.clone());
        let cases = [
            ("linear", fitter.clone().tie("c", "0.2*a")),
            (
                "chain",
                fitter.clone().tie("c", "s + 0.2").tie("s", "0.24*m"),
            ),
            ("constant", fitter.clone().tie("s", "1.2")),
            (
                "of a fixed parameter",
                fitter.clone().fix("m").tie("s", "0.24*m"),
            ),
            (
                "of a fixed and a free one",
                fitter.clone().fix("m").tie("c", "0.1*a + 0.14*m"),
            ),
            (
                "bounds and a prior",
                fitter
                    .clone()
                    .bounds("a", 6.4, 9.0)
                    .prior("m", 5.0, 0.1)
                    .tie("c", "a/5"),
            ),
        ];
        for (label, fitter) in cases {
            let successes = compare(&format!("{label} on {}", device.name()), &fitter, &curves());
            assert!(successes > 100, "{label}: {successes}");
        }
    }
}

/// A parameter that depends on an undetermined one is undetermined, with an infinite variance and no covariances.
#[test]
fn ties_to_undetermined_parameters_are_undetermined() {
    let Problem { x, y, starts, .. } = gaussians(60);
    let starts: Vec<f64> = starts
        .chunks_exact(4)
        .flat_map(|row| [row, &[2.0, 0.0][..]].concat())
        .collect();
    for device in devices() {
        let names = ["a", "m", "s", "c", "idle", "b"];
        let formula =
            Formula::parse_exactly("a*exp(-(x-m)^2/(2*s^2))+c + 0*b", &["x"], &names).unwrap();
        let fitter = CurveFitter::new(formula, device).tie("b", "a + idle");
        let curves = Curves::on_common_grid(x.clone(), y.clone(), starts.clone());
        assert!(compare("idle", &fitter, &curves) > 50);
        let columns = fitter.covariance(true).fit_columns(&curves).unwrap();
        assert!(columns.flags[0].contains(Flags::UNDETERMINED) && columns.errors[4].is_infinite());
        assert!(
            columns.errors[5].is_infinite() && columns.errors[0].is_finite(),
            "{:?}",
            &columns.errors[..6]
        );
        assert!(columns.message(0).unwrap().contains("idle"));
        let own = &columns.covariance.as_ref().unwrap()[..36];
        assert!(
            own[35].is_infinite() && own[30..35].iter().all(|c| c.is_nan()) && own[0].is_finite()
        );
    }
}

/// Tied values that are not finite are no success; bounds of its own on a tied parameter make a curve a bad input.
#[test]
fn failed_ties_and_bad_inputs_have_statuses() {
    let Problem {
        formula,
        x,
        mut y,
        starts,
    } = gaussians(50);
    y[45] = f64::NAN;
    let mut upper = vec![f64::INFINITY; starts.len()];
    upper[2 * 4 + 3] = 9.0;
    let curves =
        Curves::on_common_grid(x, y, starts).bounds(vec![f64::NEG_INFINITY; upper.len()], upper);
    let fitter = CurveFitter::new(formula, Device::cpu()).tie("c", "0.2*a");
    assert!(compare("bad inputs", &fitter, &curves) >= 47);
    let columns = fitter.fit_columns(&curves).unwrap();
    assert_eq!(
        (columns.status[1], columns.status[2]),
        (Status::BadInput, Status::BadInput)
    );
    assert!(
        columns.message(1).unwrap().starts_with("non_finite_input"),
        "{:?}",
        columns.message(1)
    );
    assert_eq!(columns.message(2), Some("bad_bounds: `c` is tied"));
    assert!(
        columns.parameters[4..12].iter().all(|x| x.is_nan())
            && columns.errors[4..12].iter().all(|x| x.is_nan())
    );
}

/// Small fits with ties report the rounds of lanes, not those of a refined fit.
#[test]
fn tied_curves_take_the_small_route() {
    let Problem {
        formula,
        x,
        y,
        starts,
    } = gaussians(200);
    let curves = Curves::on_common_grid(x.clone(), y.clone(), starts.clone());
    let tied = CurveFitter::new(formula, Device::cpu())
        .tie("c", "0.2*a")
        .fit_columns(&curves)
        .unwrap();
    let put_in = Formula::parse("a*exp(-(x-m)^2/(2*s^2))+0.2*a").unwrap();
    let starts: Vec<f64> = starts
        .chunks_exact(4)
        .flat_map(|row| row[..3].to_vec())
        .collect();
    let alone = CurveFitter::new(put_in, Device::cpu())
        .fit_columns(&Curves::on_common_grid(x, y, starts))
        .unwrap();
    assert_eq!((&tied.rounds, &tied.status), (&alone.rounds, &alone.status));
    for (tied, alone) in tied
        .parameters
        .chunks_exact(4)
        .zip(alone.parameters.chunks_exact(3))
    {
        assert!(
            tied[..3]
                .iter()
                .zip(alone)
                .all(|(a, b)| a.to_bits() == b.to_bits())
        );
        assert!((tied[3] / (0.2 * tied[0]) - 1.0).abs() < 1e-15);
    }
}
