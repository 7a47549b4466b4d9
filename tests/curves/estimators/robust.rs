//! Errors under robust losses.

use popfit::{CurveFitter, Curves, Device, Estimator, Formula};
use popfit_testing::random::Random;

use super::fitter;

/// Fitters of decays under three losses.
fn robust_fitters() -> [CurveFitter; 3] {
    [
        Estimator::Huber(1.345),
        Estimator::SoftL1(1.0),
        Estimator::Cauchy(2.0),
    ]
    .map(|estimator| fitter(Device::cpu()).estimator(estimator))
}

/// Draws decays with noise of 1 sigma, of which a share of points are outliers by up to 30 sigma to one side.
fn decays_with_outliers(count: usize, share: f64) -> Curves<'static> {
    const SIGMA: f64 = 0.05;
    let random = &mut Random(7);
    let x: Vec<f64> = (0..40).map(|j| 0.1 * f64::from(j)).collect();
    let mut y = Vec::new();
    for _ in 0..count {
        for x in &x {
            let outlier = if random.uniform() < share {
                30.0 * random.uniform()
            } else {
                0.0
            };
            y.push(3.0 * (-x).exp() + 1.0 + SIGMA * (random.normal() + outlier));
        }
    }
    Curves::on_common_grid(x, y, vec![2.0, 1.5, 0.5]).sigma(vec![SIGMA; 40])
}

/// The errors of robust losses are right with outliers, whether sigma is absolute or not, in columns and in fits, and
/// agree with those of least squares without outliers.
#[test]
fn robust_errors_agree_with_the_scatter_of_repeated_fits() {
    const CURVES: usize = 3000;
    let truth = [3.0, 1.0, 1.0];
    let dirty = decays_with_outliers(CURVES, 0.07);
    let clean = decays_with_outliers(CURVES, 0.0);
    for fitter in robust_fitters() {
        for fitter in [fitter.clone(), fitter.absolute_sigma(true)] {
            for curves in [&dirty, &clean] {
                let fits = fitter.fit(curves).unwrap();
                let columns = fitter.fit_columns(curves).unwrap();
                for (p, truth) in truth.iter().enumerate() {
                    // One-sided outliers shift the parameters: the scatter is about the mean.
                    let pulls = |pull: &dyn Fn(usize) -> f64| {
                        let all: Vec<f64> = (0..CURVES)
                            .map(pull)
                            .filter(|pull| pull.is_finite())
                            .collect();
                        let mean = all.iter().sum::<f64>() / all.len() as f64;
                        (all.iter().map(|pull| (pull - mean).powi(2)).sum::<f64>()
                            / all.len() as f64)
                            .sqrt()
                    };
                    let of_fits = pulls(&|k| (fits[k].parameters[p] - truth) / fits[k].errors[p]);
                    let of_columns = pulls(&|k| {
                        (columns.parameters[3 * k + p] - truth) / columns.errors[3 * k + p]
                    });
                    println!("{:?} {p}: {of_fits:.3} {of_columns:.3}", fitter);
                    assert!(
                        (0.9..1.15).contains(&of_fits) && (0.9..1.15).contains(&of_columns),
                        "{of_fits} {of_columns}"
                    );
                    let apart = (0..CURVES)
                        .map(|k| (columns.errors[3 * k + p] / fits[k].errors[p] - 1.0).abs());
                    let mut apart: Vec<f64> = apart.collect();
                    apart.sort_by(f64::total_cmp);
                    assert!(
                        apart[CURVES * 99 / 100] < 2e-3,
                        "{:?}",
                        &apart[CURVES - 5..]
                    );
                }
            }
        }
    }
}

/// With a prior, a bound or too few points, the sandwich formula has fewer data for the errors of robust losses.
#[test]
fn robust_errors_with_priors_bounds_and_few_points() {
    let curves = decays_with_outliers(200, 0.07);
    for fitter in robust_fitters() {
        // A prior that is far tighter than the data determines the error.
        let tight = fitter.clone().prior("c", 1.0, 1e-4);
        let loose = fitter.clone().prior("c", 1.0, 1e4);
        let [tight, loose, free] =
            [&tight, &loose, &fitter].map(|fitter| fitter.fit(&curves).unwrap());
        let columns = fitter
            .clone()
            .prior("c", 1.0, 1e-4)
            .fit_columns(&curves)
            .unwrap();
        for k in 0..200 {
            assert!(
                (tight[k].errors[2] / 1e-4 - 1.0).abs() < 1e-3,
                "{:?}",
                tight[k]
            );
            assert!((columns.errors[3 * k + 2] / tight[k].errors[2] - 1.0).abs() < 1e-3);
            assert!(
                (loose[k].errors[0] / free[k].errors[0] - 1.0).abs() < 1e-4,
                "{:?} {:?}",
                loose[k],
                free[k]
            );
        }
        let bounded = fitter.clone().bounds("c", 1.5, 2.0);
        let fits = bounded.fit(&curves).unwrap();
        let columns = bounded.fit_columns(&curves).unwrap();
        for (k, fit) in fits
            .iter()
            .enumerate()
            .filter(|(_, fit)| fit.parameters[2] == 1.5)
        {
            assert!(fit.errors[2].is_nan() && columns.errors[3 * k + 2].is_nan());
            assert!(
                (columns.errors[3 * k] / fit.errors[0] - 1.0).abs() < 2e-3,
                "{fit:?}"
            );
        }
        // As many points as parameters do not measure the scatter.
        let few = Curves::on_common_grid(
            vec![0.0, 1.0, 2.0],
            vec![4.0, 2.1, 1.4],
            vec![2.0, 1.5, 0.5],
        );
        for fitter in [fitter.clone(), fitter.absolute_sigma(true)] {
            let fit = fitter.fit(&few).unwrap().swap_remove(0);
            let columns = fitter.fit_columns(&few).unwrap();
            assert!(
                fit.status.is_success()
                    && fit.errors.iter().chain(&columns.errors).all(|e| e.is_nan()),
                "{fit:?}"
            );
        }
    }
}

/// Whether a parameter is undetermined does not depend on the unit of the noise, and the ends of intervals are found
/// where the given sigma is far from the scatter.
#[test]
fn robust_fits_do_not_depend_on_the_unit_of_the_noise() {
    let x: Vec<f64> = (0..20).map(f64::from).collect();
    let noise = |j: usize| 0.05 * ((j * 7919 % 101) as f64 / 50.0 - 1.0);
    let line: Vec<f64> = x
        .iter()
        .enumerate()
        .map(|(j, x)| 1.0 + 0.2 * x + noise(j))
        .collect();
    let model = || CurveFitter::new(Formula::parse("a*exp(x/s) + c").unwrap(), Device::cpu());
    let flags = [1.0, 1e-3, 1e3].map(|unit| {
        let y: Vec<f64> = line.iter().map(|y| unit * y).collect();
        let curves = Curves::on_common_grid(&x, y, vec![unit, 10.0, unit]);
        let fitter = model().estimator(Estimator::Huber(10.0 * unit));
        (
            fitter.fit(&curves).unwrap()[0].flags,
            fitter.fit_columns(&curves).unwrap().flags[0],
        )
    });
    let expected = model()
        .fit(&Curves::on_common_grid(&x, &line, vec![1.0, 10.0, 1.0]))
        .unwrap()[0]
        .flags;
    assert!(
        flags
            .iter()
            .all(|(fit, columns)| *fit == expected && *columns == expected),
        "{flags:?} {expected:?}"
    );
    // Sigma is a thousand times too large.
    let y: Vec<f64> = x
        .iter()
        .enumerate()
        .map(|(j, x)| 3.0 * (-0.3 * x).exp() + 1.0 + 1e-3 * noise(j))
        .collect();
    let curves = Curves::on_common_grid(&x, y, vec![2.0, 0.4, 0.5]).sigma([0.1]);
    let fitter = fitter(Device::cpu())
        .estimator(Estimator::Huber(1.345))
        .absolute_sigma(true);
    let limits = [fitter.clone(), fitter.sandwich_errors(false)].map(|fitter| {
        let fits = fitter.fit(&curves).unwrap();
        let interval = &fitter
            .confidence_intervals(&curves, &fits, &["a"], &[1.0])
            .unwrap()[0][0];
        [interval.lower, interval.upper]
    });
    assert!(
        limits[0].iter().all(|limit| limit.is_finite()),
        "{limits:?}"
    );
    assert!(
        limits[0]
            .iter()
            .zip(limits[1])
            .all(|(a, b)| (a - b).abs() < 1e-6),
        "{limits:?}"
    );
}

/// Priors replace missing points, but do not measure the scatter.
#[test]
fn robust_errors_without_spare_points_are_unknown() {
    let curves = Curves::on_common_grid(vec![0.0, 1.0], vec![4.0, 2.1], vec![2.0, 1.5, 0.5]);
    for fitter in robust_fitters() {
        let fitter = fitter.prior("k", 1.0, 0.1).prior("c", 1.0, 0.2);
        let fit = fitter.fit(&curves).unwrap().swap_remove(0);
        let columns = fitter.fit_columns(&curves).unwrap();
        assert!(
            fit.status.is_success() && fit.errors.iter().all(|error| error.is_nan()),
            "{fit:?}"
        );
        assert!(
            columns.errors.iter().all(|error| error.is_nan()),
            "{columns:?}"
        );
    }
}
