//! Small fits: the columns of `fit_columns` against `fit`, which refines every fit in f64 and which
//! `nist` validates.

mod covariances;
mod neighbours;
mod problems;
mod ties;

use popfit::{CurveFitter, Curves, Device, Estimator, Formula, Status};
use popfit_testing::fits::devices;
use problems::{Problem, Sequence, images, problem};

/// Steps that stay in registers are those of fits with bounds, which take the general path: of 3, 4, 5 and 6
/// parameters.
#[test]
fn distant_bounds_do_not_change_small_fits() {
    let line: Vec<f64> = (0..21).map(|j| 0.5 * f64::from(j)).collect();
    let plane = |width: usize| -> Vec<f64> {
        let at = |k: usize| {
            if k < width * width {
                k % width
            } else {
                (k - width * width) / width
            }
        };
        (0..2 * width * width).map(|k| at(k) as f64).collect()
    };
    let problems = [
        ("exponential", line.clone(), vec![5.0, 0.4, 1.0]),
        ("gauss1d", line, vec![5.0, 4.0, 1.5, 1.0]),
        ("gauss2d", plane(5), vec![10.0, 2.0, 2.0, 1.0, 10.0]),
        (
            "gauss2d_elliptic",
            plane(7),
            vec![10.0, 3.0, 3.0, 1.2, 1.6, 10.0],
        ),
    ];
    for (name, x, centre) in problems {
        let Problem {
            formula,
            x,
            y,
            starts,
        } = problem(Formula::builtin(name).unwrap(), x, &centre, 0.3, 300);
        let curves = Curves::on_common_grid(x, y, starts);
        let free = CurveFitter::new(formula.clone(), Device::cpu());
        let names = formula.parameters().to_vec();
        let far = names
            .iter()
            .fold(free.clone(), |fitter, name| fitter.bounds(name, -1e9, 1e9));
        let [free, far] = [free, far].map(|fitter| fitter.fit_columns(&curves).unwrap());
        assert_eq!(free.status, far.status, "{name}");
        for (k, (a, b)) in free.parameters.iter().zip(&far.parameters).enumerate() {
            assert!((a - b).abs() <= 1e-3 * far.errors[k], "{name} {k}: {a} {b}");
            assert!(
                (free.errors[k] / far.errors[k] - 1.0).abs() < 1e-3,
                "{name} {k}"
            );
        }
    }
}

/// All fits that `fit` brings to an end have the same one in columns: within 0.001 of the errors, and errors to 0.003.
fn compare(
    label: &str,
    device: &Device,
    fitter: &dyn Fn(Device) -> CurveFitter,
    curves: &Curves,
    least: f64,
) {
    let label = &format!("{label} on {}", device.name());
    let columns = fitter(device.clone()).fit_columns(curves).unwrap();
    let fits = fitter(Device::cpu()).fit(curves).unwrap();
    let count = fits.first().map_or(1, |fit| fit.parameters.len());
    assert_eq!(
        (columns.status.len(), columns.parameters.len()),
        (fits.len(), fits.len() * count)
    );
    let mut close = 0;
    for (k, fit) in fits.iter().enumerate() {
        let status = columns.status[k];
        assert_eq!(
            status == Status::BadInput,
            fit.status == Status::BadInput,
            "{label}: {fit:?}"
        );
        let p = &columns.parameters[k * count..][..count];
        let e = &columns.errors[k * count..][..count];
        let same = |i: usize| {
            let error = fit.errors[i];
            // The parameter is at a bound, held or undetermined.
            let held = error.is_nan() && e[i].is_nan()
                || error == e[i] && !(error > 0.0 && error.is_finite());
            let apart = (p[i] - fit.parameters[i]).abs();
            apart <= 1e-3 * error && (e[i] / error - 1.0).abs() < 3e-3
                || held && apart <= 1e-9 * p[i].abs()
        };
        let chi2 = (columns.chi2[k] / fit.chi2 - 1.0).abs() < 1e-5;
        let good = status.is_success() && fit.status.is_success() && chi2 && (0..count).all(same);
        close +=
            usize::from(good || (fit.status == Status::BadInput && p.iter().all(|p| p.is_nan())));
    }
    assert!(
        close as f64 >= least * fits.len() as f64,
        "{label}: {close} of {} agree",
        fits.len()
    );
}

#[test]
fn small_fits_of_images_agree_with_polished_fits() {
    for device in devices() {
        for (sigma, count) in [(0.5, 1500), (0.01, 300), (1e-6, 65)] {
            let Problem {
                formula,
                x,
                y,
                starts,
            } = images(sigma, count);
            let fitter = |device| CurveFitter::new(formula.clone(), device);
            compare(
                &format!("sigma {sigma}"),
                &device,
                &fitter,
                &Curves::on_common_grid(x, y, starts),
                1.0,
            );
        }
    }
}

/// On a shared lattice the sums are computed by columns and lines, on own grids point by point.
#[test]
fn lattices_give_the_results_of_own_grids() {
    for (name, widths) in [("gauss2d", &[1.3][..]), ("gauss2d_elliptic", &[1.3, 0.9])] {
        for (columns, lines, count) in [(5, 5, 1), (3, 8, 65), (9, 4, 130)] {
            let points = columns * lines;
            let at = |k: usize| {
                if k < points {
                    k % columns
                } else {
                    (k - points) / columns
                }
            };
            let x = (0..2 * points).map(|k| at(k) as f64).collect();
            let middle = |pixels: usize| 0.5 * (pixels - 1) as f64;
            let centre = [&[20.0, middle(columns), middle(lines)][..], widths, &[10.0]].concat();
            let Problem {
                formula,
                x,
                y,
                starts,
            } = problem(Formula::builtin(name).unwrap(), x, &centre, 0.5, count);
            let fitter = CurveFitter::new(formula, Device::cpu());
            let own = fitter
                .fit_columns(&Curves::on_own_grids(
                    x.repeat(count),
                    y.clone(),
                    starts.clone(),
                ))
                .unwrap();
            let shared = fitter
                .fit_columns(&Curves::on_common_grid(x, y, starts))
                .unwrap();
            assert!(
                own.status
                    .iter()
                    .chain(&shared.status)
                    .all(|status| status.is_success()),
                "{name}, {columns} × {lines}"
            );
            for (i, error) in own.errors.iter().enumerate() {
                let apart = (own.parameters[i] - shared.parameters[i]).abs();
                assert!(
                    apart <= 1e-3 * error,
                    "{name}, {columns} × {lines}: {i} is {apart} off, of {error}"
                );
                let share = shared.errors[i] / error;
                assert!(
                    (0.999..1.001).contains(&share),
                    "{name}, {columns} × {lines}: error {i} is {share} times"
                );
            }
        }
    }
}

/// Steps shrink at a constant rate, by as little as a tenth each, if the noise is a fifth of the amplitude or more: a
/// small step is then not the last that matters.
#[test]
fn slow_fits_converge_to_a_thousandth_of_their_errors() {
    let line: Vec<f64> = (0..21).map(|j| 0.5 * f64::from(j)).collect();
    let plane: Vec<f64> = (0..98)
        .map(|j| if j < 49 { j % 7 } else { (j - 49) / 7 })
        .map(f64::from)
        .collect();
    let named = |name: &str, x: &[f64], centre: &[f64], sigma| {
        problem(
            Formula::builtin(name).unwrap(),
            x.to_vec(),
            centre,
            sigma,
            2000,
        )
    };
    let elliptic = [10.0, 3.0, 3.0, 1.2, 1.6, 10.0];
    let problems = [
        images(2.0, 2000),
        named("gauss1d", &line, &[5.0, 4.0, 1.5, 1.0], 2.0),
        named("exponential", &line, &[5.0, 0.4, 1.0], 2.0),
        named("gauss2d_elliptic", &plane, &elliptic, 4.0),
    ];
    for Problem {
        formula,
        x,
        y,
        starts,
    } in problems
    {
        let count = formula.parameters().len();
        for device in devices() {
            let label = format!("{:?} on {}", formula.parameters(), device.name());
            let fitter = CurveFitter::new(formula.clone(), device);
            let columns = fitter
                .fit_columns(&Curves::on_common_grid(
                    x.clone(),
                    y.clone(),
                    starts.clone(),
                ))
                .unwrap();
            // The polished fits start at these ends, so that both are in the same minimum.
            let ends = Curves::on_common_grid(x.clone(), y.clone(), columns.parameters.clone());
            let refined = CurveFitter::new(formula.clone(), Device::cpu())
                .fit(&ends)
                .unwrap();
            let mut successes = 0;
            let mut far_fits = 0;
            for (k, fit) in refined.iter().enumerate() {
                if columns.status[k].is_success() && fit.status.is_success() {
                    let pairs = fit
                        .parameters
                        .iter()
                        .zip(&columns.parameters[count * k..])
                        .zip(&fit.errors);
                    successes += 1;
                    far_fits += usize::from(
                        !pairs
                            .into_iter()
                            .all(|((a, b), error)| (a - b).abs() <= 1e-3 * error),
                    );
                }
            }
            // f64 begins with the convergence rate that f32 has measured; on GPUs all fits do.
            let max_far_fits = if label.contains("gpu") {
                successes / 100
            } else {
                3
            };
            assert!(
                successes > 1500 && far_fits <= max_far_fits,
                "{label}: {far_fits} of {successes} have not arrived"
            );
        }
    }
}

/// f32 resolves no more than a thousandth of the offset's unit, so that f64 must finish, whatever the other fits.
#[test]
fn small_fits_with_large_offsets_end_in_f64() {
    let Problem {
        formula,
        x,
        mut y,
        mut starts,
    } = images(0.5, 130);
    let with_offsets = problem(
        formula.clone(),
        x.clone(),
        &[1.0, 2.0, 2.0, 1.0, 1e4],
        0.05,
        130,
    );
    y.extend(with_offsets.y);
    starts.extend(with_offsets.starts);
    for device in devices() {
        let fitter = |device| CurveFitter::new(formula.clone(), device);
        compare(
            "offsets",
            &device,
            &fitter,
            &Curves::on_common_grid(x.clone(), y.clone(), starts.clone()),
            0.99,
        );
    }
}

#[test]
fn small_fits_of_other_formulas_agree_with_polished_fits() {
    let line = |first: f64, last: f64, n: usize| -> Vec<f64> {
        (0..n)
            .map(|j| first + (last - first) * j as f64 / (n - 1) as f64)
            .collect()
    };
    // The offset of the first is 4 digits larger than its noise, and its points lie at 5000: f32 alone is not enough.
    let cases: [(&str, Vec<f64>, &[f64], f64); 11] = [
        (
            "a*exp(-(x-5000-m)^2/(2*s^2)) + c",
            line(4990.0, 5010.0, 40),
            &[5.0, 1.0, 3.0, 1000.0],
            0.1,
        ),
        (
            "a*sin(w*x + p) + c",
            line(0.0, 6.0, 30),
            &[2.0, 1.5, 0.4, 1.0],
            0.05,
        ),
        ("a*x^k + c", line(0.5, 4.0, 16), &[2.0, 1.7, 3.0], 0.05),
        (
            "a*erf((x-m)/s) + c",
            line(-3.0, 5.0, 33),
            &[3.0, 1.0, 1.5, 5.0],
            0.03,
        ),
        (
            "a*erfc((x-m)/s) + c*expm1(-x)",
            line(-1.0, 5.0, 33),
            &[3.0, 1.0, 1.5, 5.0],
            0.03,
        ),
        (
            "a*asinh((x-m)/s) + c*log1p(x)",
            line(0.0, 5.0, 24),
            &[4.0, 2.0, 0.8, 1.0],
            0.03,
        ),
        (
            "a/(1 + exp(-(x-m)/s))",
            line(-3.0, 5.0, 20),
            &[4.0, 1.0, 0.8],
            0.03,
        ),
        (
            "a*atan((x-m)/s) + c*cbrt(x)",
            line(0.0, 5.0, 24),
            &[4.0, 2.0, 0.8, 1.0],
            0.03,
        ),
        (
            "a*tanh(k*x) + ln(b + x)",
            line(0.1, 5.0, 24),
            &[4.0, 0.7, 3.0],
            0.01,
        ),
        (
            "select(x < 2, a*hypot(x, s), b + heaviside(x - 3, 0.5)*c)",
            line(0.1, 5.0, 40),
            &[2.0, 1.0, 3.0, 4.0],
            0.02,
        ),
        ("a + b*x", line(-2.0, 5.0, 8), &[1.0, 2.0], 0.1),
    ];
    for device in devices() {
        for (text, x, centre, sigma) in &cases {
            let Problem {
                formula,
                x,
                y,
                starts,
            } = problem(
                Formula::parse(text).unwrap(),
                x.clone(),
                centre,
                *sigma,
                200,
            );
            let fitter = |device| CurveFitter::new(formula.clone(), device).absolute_sigma(true);
            let curves = Curves::on_common_grid(x, y.clone(), starts).sigma(vec![*sigma; y.len()]);
            compare(text, &device, &fitter, &curves, 0.99);
        }
    }
}

/// 7 · 0.1 is more than 0.7 in f64, and equal to it in f32; 49 · (1/49) is less than 1 in f64, and 49/49 is not.
#[test]
fn conditions_of_formulas_are_evaluated_in_f64() {
    let tenths: Vec<f64> = (0..20).map(|j| f64::from(j) * 0.1).collect();
    let whole: Vec<f64> = (40..60).map(f64::from).collect();
    for (text, x, first) in [
        ("select(x <= 0.7, a, b)", tenths, 7),
        ("select(x/c < 1, a, b)", whole, 9),
    ] {
        let y: Vec<f64> = (0..20)
            .map(|j| if j < first { 1.0 } else { 11.0 } + 0.1 * f64::from(j).sin())
            .collect();
        let mean = y[..first as usize].iter().sum::<f64>() / f64::from(first);
        let formula = Formula::parse(text).unwrap();
        let start: &[f64] = if formula.parameters().len() == 3 {
            &[49.0, 0.5, 12.0]
        } else {
            &[0.5, 12.0]
        };
        let starts: Vec<f64> = start
            .iter()
            .cycle()
            .take(start.len() * 70)
            .copied()
            .collect();
        let curves = Curves::on_common_grid(x, y.repeat(70), starts);
        for device in devices() {
            let fitter = CurveFitter::new(formula.clone(), device);
            let fitter = if start.len() == 3 {
                fitter.fix("c")
            } else {
                fitter
            };
            let columns = fitter.fit_columns(&curves).unwrap();
            for a in columns
                .parameters
                .iter()
                .skip(start.len() - 2)
                .step_by(start.len())
            {
                assert!((a - mean).abs() < 1e-4, "{text}: {a}, not {mean}");
            }
        }
    }
}

/// Voigt profiles of the widths 0 to 1.2, both bounded by 0, at which many fits end.
#[test]
fn voigt_profiles_end_at_their_minima() {
    let x: Vec<f64> = (0..50).map(|j| 0.25 * f64::from(j)).collect();
    let formula = Formula::builtin("voigt").unwrap();
    let mut random = Sequence(7);
    let mut y = Vec::new();
    let mut starts = Vec::new();
    for k in 0..300 {
        let widths = [1.2 * random.uniform(), 1.2 * random.uniform()];
        let [s, g] = [
            [widths[0], widths[1]],
            [0.0, widths[1] + 0.3],
            [widths[0] + 0.3, 0.0],
        ][k % 3];
        let truth = [
            4.0 + 4.0 * random.uniform(),
            5.0 + random.uniform(),
            s,
            g,
            0.5,
        ];
        y.extend(
            formula
                .values(&x, &truth)
                .unwrap()
                .iter()
                .map(|m| m + 0.05 * random.normal()),
        );
        starts.extend([5.0, 5.5, 0.6, 0.6, 0.3]);
    }
    let curves = Curves::on_common_grid(x, y, starts);
    for device in devices() {
        let fitter = CurveFitter::new(formula.clone(), device)
            .bounds("s", 0.0, 9.0)
            .bounds("g", 0.0, 9.0);
        let columns = fitter.fit_columns(&curves).unwrap();
        let fits = fitter.fit(&curves).unwrap();
        let mut at_zero = 0;
        for (k, fit) in fits.iter().enumerate() {
            let fast = columns.chi2[k];
            let exact = fit.chi2;
            let actual = &columns.parameters[5 * k..5 * k + 5];
            assert!(
                (fast - exact).abs() <= 1e-4 * 0.0025 * 45.0,
                "{k}: {fast} {exact} {actual:?}"
            );
            at_zero += usize::from(actual[2..4].contains(&0.0));
        }
        assert!(at_zero > 60, "{at_zero} fits end at a width of 0");
    }
}

#[test]
fn small_fits_use_weights_masks_grids_and_bounds() {
    for device in devices() {
        let Problem {
            formula,
            x,
            mut y,
            starts,
        } = images(0.5, 130);
        let n = y.len();
        let sigma: Vec<f64> = (0..n).map(|j| 0.4 + 0.01 * (j % 17) as f64).collect();
        let mut mask: Vec<bool> = (0..n).map(|j| j % 11 == 3).collect();
        (y[0], mask[0]) = (f64::NAN, true);
        let own: Vec<f64> = (0..130)
            .flat_map(|k| x.iter().map(move |x| x + 0.001 * f64::from(k)))
            .collect();
        let fitter = |device| CurveFitter::new(formula.clone(), device);
        let curves = Curves::on_own_grids(own, y, starts.clone())
            .sigma(sigma)
            .mask(mask);
        compare("own grid", &device, &fitter, &curves, 1.0);
        let held = |device| fitter(device).fix("c").bounds("a", 8.0, 10.0);
        let inside: Vec<f64> = starts
            .iter()
            .enumerate()
            .map(|(i, s)| if i % 5 == 0 { s.clamp(8.0, 10.0) } else { *s })
            .collect();
        compare("starts outside", &device, &held, &curves, 0.98);
        let Problem { x, y, .. } = images(0.5, 130);
        compare(
            "bounds",
            &device,
            &held,
            &Curves::on_common_grid(x, y, inside),
            0.98,
        );
    }
}

/// Sums of the squares of such weights exceed the precision of f64: fits that lose a direction take the populations.
#[test]
fn small_fits_with_weights_over_nine_decades_converge() {
    let count = 300;
    for device in devices() {
        for (text, centre) in [
            ("a*x + b", &[2.0, 3.0][..]),
            ("a*x^2 + b*x + c", &[2.0, 3.0, 1.0]),
        ] {
            let x: Vec<f64> = (0..12).map(|j| 0.1 + 0.4 * f64::from(j)).collect();
            let Problem {
                formula,
                x,
                y: exact,
                starts,
            } = problem(Formula::parse(text).unwrap(), x, centre, 0.0, count);
            let mut random = Sequence(7);
            let sigma: Vec<f64> = exact
                .iter()
                .map(|_| if random.uniform() < 0.9 { 0.05 } else { 5e-11 })
                .collect();
            let y: Vec<f64> = exact
                .iter()
                .zip(&sigma)
                .map(|(y, s)| y + s * random.normal())
                .collect();
            let curves = Curves::on_common_grid(x, y, starts).sigma(sigma);
            for absolute in [false, true] {
                let fitter =
                    CurveFitter::new(formula.clone(), device.clone()).absolute_sigma(absolute);
                let fits = fitter.fit(&curves).unwrap();
                let columns = fitter.fit_columns(&curves).unwrap();
                let p = centre.len();
                let ended = (0..count)
                    .filter(|&k| columns.status[k].is_success() && fits[k].status.is_success())
                    .collect::<Vec<_>>();
                assert!(ended.len() > count * 9 / 10, "{text}: {}", ended.len());
                for k in ended {
                    for q in 0..p {
                        let apart = (columns.parameters[k * p + q] - fits[k].parameters[q]).abs()
                            / fits[k].errors[q];
                        assert!(
                            apart < 3e-3,
                            "{} {text} {absolute} {k}: {apart}, {:?}",
                            device.name(),
                            fits[k]
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn small_fits_with_estimators_and_priors_agree_with_polished_fits() {
    for device in devices() {
        let Problem {
            formula,
            x,
            y,
            starts,
        } = images(0.5, 300);
        let plain = |device| CurveFitter::new(formula.clone(), device);
        // One point in 40 is an outlier.
        let mut far = y.clone();
        (0..y.len())
            .filter(|j| j % 40 == 17)
            .for_each(|j| far[j] += 9.0);
        let mask: Vec<bool> = (0..y.len()).map(|j| j % 13 == 5).collect();
        let curves = Curves::on_common_grid(x.clone(), far, starts.clone())
            .sigma(vec![0.5; y.len()])
            .mask(mask.clone());
        for estimator in [
            Estimator::Huber(1.0),
            Estimator::SoftL1(1.0),
            Estimator::Cauchy(2.0),
            Estimator::Arctan(4.0),
        ] {
            let fitter = |device| plain(device).estimator(estimator);
            compare(&format!("{estimator:?}"), &device, &fitter, &curves, 0.99);
        }
        let with_prior = |device| plain(device).prior("c", 10.0, 0.1).prior("s", 1.1, 0.02);
        compare(
            "priors",
            &device,
            &with_prior,
            &Curves::on_common_grid(x.clone(), y.clone(), starts.clone()),
            1.0,
        );
        let counts: Vec<f64> = y.iter().map(|y| (10.0 * y).round()).collect();
        let tenfold = starts.iter().enumerate().map(|(i, s)| {
            if [0, 4].contains(&(i % 5)) {
                10.0 * s
            } else {
                *s
            }
        });
        let counts = Curves::on_common_grid(x, counts, tenfold.collect::<Vec<f64>>());
        let poisson = |device| plain(device).estimator(Estimator::Poisson);
        compare("counts", &device, &poisson, &counts.clone().mask(mask), 1.0);
        let both = |device| {
            poisson(device)
                .prior("c", 100.0, 1.0)
                .bounds("s", 0.0, 1.05)
        };
        compare("counts, a prior and bounds", &device, &both, &counts, 0.98);
        assert!(
            poisson(device)
                .fit_columns(&counts.clone().sigma(vec![1.0; 300 * 25]))
                .is_err()
        );
    }
}

/// Absolute errors follow from sigma, however poor the fit: the end is as near to the minimum in their units.
#[test]
fn poor_fits_with_absolute_sigma_end_as_near_to_the_minimum() {
    for device in devices() {
        let Problem {
            formula,
            x,
            y,
            starts,
        } = images(0.5, 200);
        let fitter = |device| CurveFitter::new(formula.clone(), device).absolute_sigma(true);
        compare(
            "sigma a fiftieth",
            &device,
            &fitter,
            &Curves::on_common_grid(x, y.clone(), starts).sigma(vec![0.01; y.len()]),
            1.0,
        );
    }
}

#[test]
fn small_fits_of_many_parameters_and_points_converge() {
    let x: Vec<f64> = (0..300).map(|j| f64::from(j) * 0.1).collect();
    let text = "a*exp(-(x-5)^2/(2*s^2)) + b*exp(-(x-12)^2/(2*t^2)) + c*exp(-(x-20)^2/(2*u^2)) + \
        d*exp(-(x-25)^2/(2*v^2)) + h + f*x + g*x^2";
    let centre = [5.0, 1.0, 4.0, 1.5, 3.0, 1.0, 6.0, 0.8, 2.0, 0.1, 0.01];
    for device in devices() {
        let formula = Formula::parse(text).unwrap();
        assert_eq!(formula.parameters().len(), centre.len());
        let Problem {
            formula,
            x,
            y,
            starts,
        } = problem(formula, x.clone(), &centre, 0.1, 70);
        let fitter = |device| CurveFitter::new(formula.clone(), device);
        compare(
            "eleven parameters",
            &device,
            &fitter,
            &Curves::on_common_grid(x, y, starts),
            1.0,
        );
    }
}

#[test]
fn tied_columns_agree_with_polished_fits() {
    let Problem {
        formula,
        x,
        y,
        starts,
    } = images(0.5, 20);
    let tied = |device| CurveFitter::new(formula.clone(), device).tie("y0", "x0");
    compare(
        "tie",
        &Device::cpu(),
        &tied,
        &Curves::on_common_grid(x, y, starts),
        1.0,
    );
    let fitter = tied(Device::cpu());
    assert!(
        fitter
            .fit_columns(&Curves::on_common_grid([0.0; 0], [0.0; 0], [0.0; 0]))
            .unwrap()
            .status
            .is_empty()
    );
    assert!(
        fitter
            .fit_columns(&Curves::on_common_grid(
                vec![0.0; 50],
                vec![0.0; 25],
                vec![1.0; 4]
            ))
            .is_err()
    );
}

/// Fits that fail in the lanes are repeated, and a success does not keep the message of its first attempt.
#[test]
fn plain_successes_have_no_message() {
    let x: Vec<f64> = (0..40).map(f64::from).collect();
    let mut sequence = Sequence(8);
    let mut uniform = || sequence.uniform();
    let mut y = Vec::new();
    let mut starts = Vec::new();
    for _ in 0..4000 {
        let m = 12.0 + 16.0 * uniform();
        let w = 1.0 + 3.0 * uniform();
        let a = 5.0 + 15.0 * uniform();
        for x in &x {
            let noise: f64 = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
            y.push(a * (-(x - m).powi(2) / (2.0 * w * w)).exp() + 2.0 + 0.3 * noise);
        }
        let start = [
            a * (0.2 + 4.8 * uniform()),
            m + (8.0 * uniform() - 4.0) * w,
            w * (0.1 + 7.9 * uniform()),
        ];
        starts.extend(start.into_iter().chain([4.0 * uniform()]));
    }
    let formula = Formula::parse("a*exp(-(x-m)^2/(2*s^2))+c").unwrap();
    let columns = CurveFitter::new(formula, Device::cpu())
        .fit_columns(&Curves::on_common_grid(x, y, starts))
        .unwrap();
    let is_plain = |k: &usize| columns.status[*k].is_success() && columns.flags[*k].is_empty();
    let with_message: Vec<usize> = (0..4000)
        .filter(is_plain)
        .filter(|k| columns.message(*k).is_some())
        .collect();
    assert!(
        with_message.is_empty(),
        "{:?}: {:?}",
        with_message,
        columns.message(with_message[0])
    );
    // A failed fit has no errors.
    for k in (0..4000).filter(|k| !columns.status[*k].is_success()) {
        assert!(
            columns.errors("a").unwrap().nth(k).unwrap().is_nan(),
            "curve {k}"
        );
    }
}
