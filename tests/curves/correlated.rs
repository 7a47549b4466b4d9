//! Fits of curves whose errors are correlated, by covariance matrices of the data.

use nalgebra::{DMatrix, DVector};
use popfit::{Closure, CurveFitter, CurveModel, Curves, Device, Estimator, Formula, Status};
use popfit_testing::random::Random;

const POINTS: usize = 23;

fn x() -> Vec<f64> {
    (0..POINTS).map(|j| 0.2 * j as f64).collect()
}

/// A covariance matrix of points whose sigmas differ and whose correlations fall with their distance.
fn covariance(random: &mut Random) -> Vec<f64> {
    let sigma: Vec<f64> = (0..POINTS)
        .map(|_| 0.02 + 0.05 * random.uniform())
        .collect();
    let reach = 0.3 + 0.6 * random.uniform();
    let entry = |i: usize, j: usize| sigma[i] * sigma[j] * reach.powf(i.abs_diff(j) as f64);
    (0..POINTS * POINTS)
        .map(|k| entry(k / POINTS, k % POINTS))
        .collect()
}

/// Curves of a model at these parameters, with errors of these covariances.
fn noisy(truth: impl Fn(f64) -> f64, matrix: &[f64], random: &mut Random) -> Vec<f64> {
    let factor = DMatrix::from_row_slice(POINTS, POINTS, matrix)
        .cholesky()
        .unwrap()
        .l();
    let noise = factor * DVector::from_fn(POINTS, |_, _| random.normal());
    x().iter().zip(&noise).map(|(x, e)| truth(*x) + e).collect()
}

/// Best parameters of a + b x, their covariance and χ² by generalised least squares, (Xᵀ C⁻¹ X)⁻¹ Xᵀ C⁻¹ y.
fn straight_line(y: &[f64], matrix: &[f64], mask: &[bool]) -> (DVector<f64>, DMatrix<f64>, f64) {
    let kept: Vec<usize> = (0..POINTS).filter(|&j| !mask[j]).collect();
    let inverse = DMatrix::from_fn(kept.len(), kept.len(), |i, j| {
        matrix[kept[i] * POINTS + kept[j]]
    });
    let inverse = inverse.try_inverse().unwrap();
    let design = DMatrix::from_fn(kept.len(), 2, |i, p| x()[kept[i]].powi(p as i32));
    let y = DVector::from_fn(kept.len(), |i, _| y[kept[i]]);
    let covariance = (design.transpose() * &inverse * &design)
        .try_inverse()
        .unwrap();
    let best = &covariance * design.transpose() * &inverse * &y;
    let rest = y - design * &best;
    let chi2 = (rest.transpose() * inverse * &rest)[0];
    (best, covariance, chi2)
}

/// Fits of straight lines, as formulas and as closures with and without derivatives, with one matrix and with one per
/// curve, with and without masks, are those of generalised least squares.
#[test]
fn correlated_lines_agree_with_generalised_least_squares() {
    let random = &mut Random(1);
    let closure = || {
        Closure::new(&["x"], &["a", "b"], |x, p, y| {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = p[0] + p[1] * x)
        })
        .unwrap()
    };
    let with_derivatives = closure().derivatives(|x, _, rows| {
        let (by_a, by_b) = rows.split_at_mut(x.len());
        by_a.fill(1.0);
        by_b.copy_from_slice(x);
    });
    let formula = || CurveModel::from(Formula::parse("a + b*x").unwrap());
    for (model, tolerance) in [
        (formula(), 1e-9),
        (with_derivatives.into(), 1e-9),
        (closure().into(), 1e-6),
        (formula().differences(true), 1e-6),
    ] {
        for is_each in [false, true] {
            let matrices: Vec<Vec<f64>> = (0..if is_each { 3 } else { 1 })
                .map(|_| covariance(random))
                .collect();
            let of_curve = |k: usize| &matrices[if is_each { k } else { 0 }];
            let y: Vec<f64> = (0..3)
                .flat_map(|k| noisy(|x| 1.0 - 0.5 * x, of_curve(k), random))
                .collect();
            let mask: Vec<bool> = (0..3 * POINTS).map(|_| random.uniform() < 0.3).collect();
            for mask in [mask, vec![false; 3 * POINTS]] {
                let curves =
                    Curves::on_common_grid(x(), &y, vec![0.3, 0.1]).covariance(matrices.concat());
                let curves = curves.mask(&mask[..]);
                let fitter = CurveFitter::new(model.clone(), Device::cpu())
                    .absolute_sigma(true)
                    .covariance(true);
                let columns = fitter.fit_columns(&curves).unwrap();
                let residuals = fitter.residuals(&curves, &columns.parameters).unwrap();
                for (k, fit) in fitter.fit(&curves).unwrap().iter().enumerate() {
                    let row = k * POINTS..(k + 1) * POINTS;
                    let (best, expected, chi2) =
                        straight_line(&y[row.clone()], of_curve(k), &mask[row.clone()]);
                    assert!(
                        fit.status.is_success() && columns.status[k].is_success(),
                        "{fit:?}"
                    );
                    assert!(
                        (fit.chi2 - chi2).abs() <= 1e-9 * chi2
                            && (columns.chi2[k] - chi2).abs() <= 1e-5 * chi2
                    );
                    let squares: f64 = residuals[row]
                        .iter()
                        .filter(|r| !r.is_nan())
                        .map(|r| r * r)
                        .sum();
                    assert!(
                        (squares - chi2).abs() <= 1e-5 * chi2,
                        "{squares}, not {chi2}"
                    );
                    for p in 0..2 {
                        let error = expected[(p, p)].sqrt();
                        assert!(
                            (fit.parameters[p] - best[p]).abs() <= tolerance * error,
                            "{fit:?}"
                        );
                        assert!((columns.parameters[2 * k + p] - best[p]).abs() <= 1e-3 * error);
                        assert!(
                            (fit.errors[p] - error).abs() <= tolerance.max(1e-8) * error,
                            "{fit:?}"
                        );
                        let of_columns = columns.covariance.as_ref().unwrap()[4 * k + p];
                        assert!(
                            (of_columns - expected[(0, p)]).abs() <= 1e-5 * expected[(p, p)],
                            "{of_columns}"
                        );
                    }
                }
            }
        }
    }
}

/// A diagonal matrix gives the results of sigmas, whatever the model, the settings and the grid.
#[test]
fn diagonal_covariances_give_the_fits_of_sigmas() {
    let random = &mut Random(2);
    let sigma: Vec<f64> = (0..POINTS)
        .map(|_| 0.02 + 0.05 * random.uniform())
        .collect();
    let matrix: Vec<f64> = (0..POINTS * POINTS)
        .map(|k| {
            if k % (POINTS + 1) == 0 {
                sigma[k / POINTS].powi(2)
            } else {
                0.0
            }
        })
        .collect();
    let y: Vec<f64> = (0..4)
        .flat_map(|_| noisy(|x| 2.0 * (-0.7 * x).exp() + 0.3, &matrix, random))
        .collect();
    let formula = Formula::parse("a*exp(-k*x) + c").unwrap();
    let fitter = CurveFitter::new(formula, Device::cpu());
    let fitters = [
        fitter.clone(),
        fitter.clone().fix("c").bounds("k", 0.0, 0.6),
        fitter
            .clone()
            .tie("c", "a/6")
            .prior("k", 0.7, 0.1)
            .absolute_sigma(true),
        fitter.clone().estimator(Estimator::Huber(1.0)),
        fitter.clone().solver(CurveFitter::NELDER_MEAD),
    ];
    let grids: [Curves; 2] = [
        Curves::on_common_grid(x(), &y, vec![1.0, 1.0, 0.2]).bounds([0.0; 12], [9.0; 12]),
        Curves::on_own_grids(x().repeat(4), &y, [1.0, 0.5, 0.2].repeat(4)),
    ];
    for (f, fitter) in fitters.iter().enumerate() {
        for curves in &grids[usize::from(f == 1 || f == 2)..] {
            let correlated = curves.clone().covariance(&matrix);
            let plain = curves.clone().sigma(&sigma);
            let one = fitter.fit(&correlated).unwrap();
            let other = fitter.fit(&plain).unwrap();
            for (one, other) in one.iter().zip(&other) {
                assert!(
                    one.status.is_success() && one.flags == other.flags,
                    "{f}: {one:?} {other:?}"
                );
                assert!(
                    (one.chi2 - other.chi2).abs() <= 1e-8 * other.chi2,
                    "{f}: {one:?} {other:?}"
                );
                for p in 0..3 {
                    let near = one.parameters[p] - other.parameters[p];
                    let error = other.errors[p];
                    assert!(
                        near.abs() <= 1e-4 * error || error.is_nan() || near == 0.0,
                        "{f}: {one:?} {other:?}"
                    );
                    assert!(
                        (one.errors[p] - error).abs() <= 1e-4 * error || error.is_nan(),
                        "{f}: {one:?} {other:?}"
                    );
                }
            }
            let intervals = |curves, fits: &[_]| {
                fitter
                    .confidence_intervals(curves, fits, &["a"], &[1.0, 2.0])
                    .unwrap()
            };
            let one = intervals(&correlated, &one);
            let other = intervals(&plain, &other);
            for (one, other) in one.iter().flatten().zip(other.iter().flatten()) {
                let width = other.upper - other.lower;
                assert!(
                    (one.lower - other.lower).abs() <= 1e-3 * width,
                    "{f}: {one:?} {other:?}"
                );
                assert!(
                    (one.upper - other.upper).abs() <= 1e-3 * width,
                    "{f}: {one:?} {other:?}"
                );
            }
        }
    }
}

/// A model receives the number of its own curve, and its failures end its own fit.
#[test]
fn closures_of_correlated_curves_receive_their_index() {
    let random = &mut Random(3);
    let matrices: Vec<Vec<f64>> = (0..3).map(|_| covariance(random)).collect();
    let y: Vec<f64> = (0..3)
        .flat_map(|k| noisy(|x| 2.0 + k as f64 * x, &matrices[k], random))
        .collect();
    let shifted = Closure::indexed(&["x"], &["a"], |context, x, p, y| {
        if context.index == 1 {
            return Err("no such curve");
        }
        y.iter_mut()
            .zip(x)
            .for_each(|(y, x)| *y = p[0] + context.index as f64 * x);
        Ok(())
    });
    let fitter = CurveFitter::new(shifted.unwrap(), Device::cpu()).absolute_sigma(true);
    let fits = fitter
        .fit(&Curves::on_common_grid(x(), y, vec![1.0]).covariance(matrices.concat()))
        .unwrap();
    assert!(
        fits[1].status == Status::NotFinite && fits[1].message.contains("no such curve"),
        "{:?}",
        fits[1]
    );
    for fit in [&fits[0], &fits[2]] {
        assert!(
            fit.status.is_success() && (fit.parameters[0] - 2.0).abs() < 5.0 * fit.errors[0],
            "{fit:?}"
        );
    }
}

#[test]
fn bad_covariances_are_refused() {
    let random = &mut Random(4);
    let good = covariance(random);
    let mut spoilt = vec![good.clone(); 5];
    spoilt[1][3] *= 1.5;
    spoilt[2][POINTS + 1] = f64::NAN;
    spoilt[3][2 * (POINTS + 1)] *= -1.0;
    let y = noisy(|x| 1.0 + x, &good, random).repeat(5);
    let curves = Curves::on_common_grid(x(), &y, vec![1.0, 1.0]);
    let fitter = CurveFitter::new(Formula::parse("a + b*x").unwrap(), Device::cpu());
    let all = curves.clone().covariance(spoilt.concat());
    let columns = fitter.fit_columns(&all).unwrap();
    let causes = [
        None,
        Some("points 0 and 3"),
        Some("points 1 and 1 is NaN"),
        Some("not positive definite"),
        None,
    ];
    for (k, (fit, cause)) in fitter.fit(&all).unwrap().iter().zip(causes).enumerate() {
        assert_eq!(
            (fit.status, columns.status[k]) == (Status::BadInput, Status::BadInput),
            cause.is_some()
        );
        let messages = [Some(&*fit.message), columns.message(k)];
        assert!(
            cause.is_none_or(|cause| messages.iter().all(|text| text.unwrap().contains(cause))),
            "{messages:?}"
        );
    }
    let residuals = fitter.residuals(&all, &columns.parameters).unwrap();
    assert!(
        residuals
            .chunks(POINTS)
            .zip(causes)
            .all(|(row, cause)| row.iter().all(|r| r.is_nan() == cause.is_some()))
    );
    // Masked points do not count.
    let mask: Vec<bool> = (0..POINTS).map(|j| j == 1 || j == 2 || j == 3).collect();
    assert!(
        fitter
            .fit(&all.mask(mask))
            .unwrap()
            .iter()
            .all(|fit| fit.status.is_success())
    );
    for (curves, estimator, argument) in [
        (
            curves.clone().covariance(&good[1..]),
            Estimator::LeastSquares,
            "covariance",
        ),
        (
            curves.clone().covariance(&good).sigma([1.0]),
            Estimator::LeastSquares,
            "covariance",
        ),
        (
            curves.clone().covariance(&good),
            Estimator::Poisson,
            "covariance",
        ),
    ] {
        let fitter = fitter.clone().estimator(estimator);
        let errors = [
            fitter.fit(&curves).unwrap_err(),
            fitter.fit_columns(&curves).unwrap_err(),
        ];
        assert!(
            errors
                .iter()
                .all(|error| error.argument() == Some(argument)),
            "{errors:?}"
        );
    }
}
