//! Data and parameters in any units: a fit ends at the same minimum, or says that it did not.

use popfit::{
    Context, CurveColumns, CurveFit, CurveFitter, CurveModel, Curves, Device, Failure, Formula,
    Model, NelderMead, Solver, Status,
};
use popfit_testing::fits::{devices, gpu};

/// End of a fit.
struct End {
    status: Status,
    parameters: Vec<f64>,
    chi2: f64,
}

/// A model with data of noise 0.05 at 40 points.
struct Case {
    text: String,
    x: Vec<f64>,
    y: Vec<f64>,
}

fn case(text: &str, truth: &[f64]) -> Case {
    // Points of the range −1 to 1.
    let noise = |j: usize| {
        let t = (j as f64 * 12.9898 + 4.1).sin() * 43758.5453;
        2.0 * (t - t.floor()) - 1.0
    };
    let x: Vec<f64> = (0..40).map(|j| 0.125 + 0.125 * f64::from(j)).collect();
    let exact = Formula::parse(text).unwrap().values(&x, truth).unwrap();
    let y: Vec<f64> = exact
        .iter()
        .enumerate()
        .map(|(j, m)| m + 0.05 * noise(j))
        .collect();
    Case {
        text: text.into(),
        x,
        y,
    }
}

impl Case {
    fn curves(&self, scale: f64, start: &[f64]) -> Curves<'static> {
        Curves::on_common_grid(
            self.x.clone(),
            self.y.iter().map(|y| scale * y).collect::<Vec<f64>>(),
            start.to_vec(),
        )
    }

    fn fit(&self, start: &[f64]) -> CurveFit {
        let fitter = CurveFitter::new(Formula::parse(&self.text).unwrap(), Device::cpu());
        let fit = fitter.fit(&self.curves(1.0, start)).unwrap().remove(0);
        assert!(fit.status.is_success(), "{}: {}", self.text, fit.message);
        fit
    }
}

/// `fit`, and `fit_columns`.
fn ends(fitter: &CurveFitter, curves: &Curves) -> [End; 2] {
    let CurveFit {
        status,
        parameters,
        chi2,
        ..
    } = fitter.fit(curves).unwrap().remove(0);
    let columns = fitter.fit_columns(curves).unwrap();
    let code = columns.status[0];
    [
        End {
            status,
            parameters,
            chi2,
        },
        End {
            status: code,
            parameters: columns.parameters,
            chi2: columns.chi2[0],
        },
    ]
}

/// Models with the minimum to be found from starts of 1.
fn cases() -> [(Case, Vec<f64>); 4] {
    [
        ("a*exp(-(x-m)^2/(2*s^2)) + c", vec![5.0, 1.6, 1.3, 2.0]),
        ("a*x + b", vec![2.0, 3.0]),
        ("a*x^k", vec![2.0, 1.7]),
        ("a*exp(-k*x) + c", vec![6.0, 0.5, 1.0]),
    ]
    .map(|(text, truth)| (case(text, &truth), truth))
}

/// A success lies at the minimum of the unscaled data, scaled; returns how many of the ends were successes.
fn check_scales(
    device: &Device,
    scales: &[f64],
    settings: &dyn Fn(CurveModel) -> CurveFitter,
) -> (usize, usize) {
    let mut successes = 0;
    let mut total = 0;
    for (case, truth) in cases() {
        let best = case.fit(&truth);
        for &scale in scales {
            let model = CurveModel::from(Formula::parse(&case.text).unwrap());
            for (end, way) in ends(
                &settings(model),
                &case.curves(scale, &vec![1.0; truth.len()]),
            )
            .iter()
            .zip(["fit", "columns"])
            {
                let ratio = end.chi2 / scale / scale / best.chi2;
                let label = format!(
                    "{} {way}, {} × {scale:e}: {:?} {ratio} {:?}",
                    device.name(),
                    case.text,
                    end.status,
                    end.parameters
                );
                println!("{label}");
                assert!(!end.status.is_success() || ratio < 1.0 + 1e-5, "{label}");
                successes += usize::from(end.status.is_success());
                total += 1;
            }
        }
    }
    (successes, total)
}

const SCALES: [f64; 5] = [1.0, 1e12, 1e-12, 1e18, 1e-18];

#[test]
fn data_of_any_scale_end_at_the_minimum_or_without_success() {
    for device in devices() {
        let own = |model| CurveFitter::new(model, device.clone());
        let scales = if device.name().starts_with("cpu") {
            &SCALES[..]
        } else {
            &SCALES[..3]
        };
        let (successes, total) = check_scales(&device, scales, &own);
        assert_eq!(successes, total, "{}", device.name());
    }
    let differences = |model: CurveModel| CurveFitter::new(model.differences(true), Device::cpu());
    let (successes, total) = check_scales(&Device::cpu(), &SCALES, &differences);
    assert_eq!(successes, total);
}

/// Without the host's refinement the solver's own arithmetic must hold.
#[test]
fn unpolished_data_of_any_scale_end_at_the_minimum() {
    for device in devices() {
        let own = |model| CurveFitter::new(model, device.clone()).polish(false);
        let scales = if device.name().starts_with("cpu") {
            [1e-24, 1e-36, 1e-100, 1e36, 1e100]
        } else {
            [1e-20, 1e-24, 1e-28, 1e20, 1e28]
        };
        let (successes, total) = check_scales(&device, &scales, &own);
        assert_eq!(successes, total, "{}", device.name());
    }
}

/// A message reports squares that leave the range.
#[test]
fn data_beyond_the_range_of_floats_are_no_success() {
    let case = case("a*x + b", &[2.0, 3.0]);
    let truth = [2.0, 3.0];
    for device in devices() {
        let on_cpu = device.name().starts_with("cpu");
        for (polish, scale, fits) in [
            (true, 1e-160, false),
            (false, 1e-160, false),
            (true, 1e160, false),
            (true, 1e-300, false),
            (true, 1e-40, true),
            (false, 1e-40, on_cpu),
            (true, 1e40, true),
            (false, 1e40, on_cpu),
        ] {
            let fitter = CurveFitter::new(Formula::parse(&case.text).unwrap(), device.clone())
                .polish(polish);
            let curves = case.curves(scale, &truth.map(|p| p * scale));
            let fit = fitter.fit(&curves).unwrap().remove(0);
            let label = format!("{}, {polish}, {scale:e}: {}", device.name(), fit.message);
            assert_eq!(fit.status.is_success(), fits, "{label}");
            assert!(fits || fit.message.contains("bad_scale"), "{label}");
            // Columns end in f64 on every device, polished or not.
            let status = fitter.fit_columns(&curves).unwrap().status[0];
            let in_f64 = (1e-50..1e50).contains(&scale);
            assert!(
                if in_f64 {
                    status.is_success()
                } else {
                    status == Status::BadInput
                },
                "{label}: {status:?}"
            );
        }
    }
}

/// A start that is negligible beside the solution has the unit of the data, as 0 has.
#[test]
fn fits_from_starts_near_0_reach_the_minimum() {
    for device in devices() {
        for text in ["a*x + b", "exp(a*x) + b", "b*exp(a*x)", "b/(1 + a*x)"] {
            let formula = Formula::parse(text)
                .unwrap()
                .with_parameters(&["a", "b"])
                .unwrap();
            let x: Vec<f64> = (0..40).map(|j| 0.05 * f64::from(j)).collect();
            let y = formula.values(&x, &[1.0, 2.0]).unwrap();
            let y: Vec<f64> = y
                .iter()
                .zip(&x)
                .map(|(y, x)| y + 0.05 * (40.0 * x).sin())
                .collect();
            let fitter = CurveFitter::new(formula, device.clone()).polish(false);
            let fit = |a: f64| {
                ends(
                    &fitter,
                    &Curves::on_common_grid(x.clone(), y.clone(), vec![a, 1.5]),
                )
            };
            let [best, _] = fit(0.9);
            for a in [0.0, 1e-20, 1e-30, -1e-30, 1e-300] {
                for (end, way) in fit(a).iter().zip(["fit", "columns"]) {
                    let label = format!(
                        "{} {way}, {text} from {a:e}: {:?} {:?}",
                        device.name(),
                        end.status,
                        end.parameters
                    );
                    assert!(
                        end.status.is_success() && end.chi2 < best.chi2 * (1.0 + 1e-5),
                        "{label}"
                    );
                }
            }
        }
    }
}

#[test]
fn simplices_at_any_scale_end_at_the_minimum_or_without_success() {
    let simplex = |model| CurveFitter::new(model, Device::cpu()).solver(CurveFitter::NELDER_MEAD);
    let (successes, total) = check_scales(&Device::cpu(), &SCALES, &simplex);
    assert_eq!(successes, total);
}

/// A model that is no formula, and therefore has no parameters known to be linear: its steps must find their way.
struct Line;

impl Model for Line {
    fn predictors(&self) -> Vec<String> {
        vec!["x".into()]
    }

    fn parameters(&self) -> Vec<String> {
        vec!["a".into(), "b".into()]
    }

    fn values(&self, _: &Context, x: &[f64], p: &[f64], out: &mut [f64]) -> Result<(), Failure> {
        out.iter_mut()
            .zip(x)
            .for_each(|(out, x)| *out = p[0] * x + p[1]);
        Ok(())
    }
}

#[test]
fn closures_at_any_scale_reach_the_minimum() {
    let case = case("a*x + b", &[2.0, 3.0]);
    let best = case.fit(&[2.0, 3.0]);
    for scale in SCALES {
        let curves = case.curves(scale, &[1.0; 2]);
        let fitter = CurveFitter::new(CurveModel::new(Line).unwrap(), Device::cpu());
        let simplex = fitter.clone().solver(CurveFitter::NELDER_MEAD);
        for (label, fitter, arrives) in [("lm", fitter, true), ("simplex", simplex, scale == 1.0)] {
            let fit = fitter.fit(&curves).unwrap().remove(0);
            let ratio = fit.chi2 / scale / scale / best.chi2;
            println!(
                "{label} {scale:e}: {:?} {ratio} {:?}",
                fit.status, fit.parameters
            );
            assert!(
                !arrives || fit.status.is_success(),
                "{label} {scale:e}: {:?}",
                fit.status
            );
            assert!(
                !fit.status.is_success() || ratio < 1.0 + 1e-5,
                "{label} {scale:e}: {ratio} {:?}",
                fit.parameters
            );
        }
    }
}

#[test]
fn default_simplices_estimate_the_noise_from_the_data() {
    let simplex = || {
        CurveFitter::new(
            Formula::parse("a*exp(-(x-m)^2/(2*s^2)) + c").unwrap(),
            Device::cpu(),
        )
    };
    let text = "a*exp(-(x-m)^2/(2*s^2)) + c";
    let truth = [5.0, 1.6, 1.3, 2.0];
    let case = case(text, &truth);
    let best = case.fit(&truth);
    for solver in [
        NelderMead::default().fatol(1e-3),
        NelderMead::default().fatol(1e-3).max_rounds(5000),
    ] {
        for scale in [1.0, 1e-6, 1e6] {
            let start = [4.0 * scale, 1.2, 1.0, 1.5 * scale];
            let fit = simplex()
                .solver(solver)
                .fit(&case.curves(scale, &start))
                .unwrap()
                .remove(0);
            let units = [scale, 1.0, 1.0, scale];
            let apart = (0..4).map(|p| {
                (fit.parameters[p] / units[p] - best.parameters[p]).abs() / best.errors[p]
            });
            let worst = apart.fold(0.0, f64::max);
            println!(
                "{scale:e}: {:?} {worst:.1e} after {}",
                fit.status, fit.evaluations
            );
            assert!(
                fit.status.is_success() && worst < 0.1,
                "{scale:e}: {:?} {worst:.1e}",
                fit.status
            );
        }
    }
}

#[test]
fn fits_in_any_units_of_parameters_reach_the_minimum() {
    // K is the unit, in which each parameter has this start.
    let cases: [(&str, &[f64], &[f64], usize); 5] = [
        ("(K*a)*x + b", &[2.0, 3.0], &[1.0, 1.0], 0),
        ("(K*a)*x + b", &[2.0, 3.0], &[0.0, 0.0], 0),
        (
            "a*exp(-(x-K*m)^2/(2*s^2)) + c",
            &[5.0, 1.6, 1.3, 2.0],
            &[4.0, 0.0, 1.0, 0.0],
            1,
        ),
        (
            "a*exp(-(x-m)^2/(2*s^2)) + (K*c)",
            &[5.0, 1.6, 1.3, 2.0],
            &[4.0, 1.5, 1.0, 0.0],
            3,
        ),
        ("a*exp(-(K*k)*x) + c", &[6.0, 0.5, 1.0], &[4.0, 0.0, 0.0], 1),
    ];
    for device in devices() {
        let powers = if device.name().starts_with("cpu") {
            [-12, -8, -4, 4, 8, 12]
        } else {
            [-8, -6, -3, 3, 6, 8]
        };
        for (text, truth, start, scaled) in cases {
            let best = case(&text.replace('K', "1"), truth).fit(truth);
            for power in powers {
                let unit = 10f64.powi(power);
                let in_unit = |values: &[f64]| {
                    let mut values = values.to_vec();
                    values[scaled] /= unit;
                    values
                };
                let Case { text, x, y } = Case {
                    text: text.replace('K', &format!("{unit:e}")),
                    ..case(&text.replace('K', "1"), truth)
                };
                let fitter = CurveFitter::new(Formula::parse(&text).unwrap(), device.clone());
                for (end, way) in ends(
                    &fitter,
                    &Curves::on_common_grid(x.clone(), y.clone(), in_unit(start)),
                )
                .iter()
                .zip(["fit", "columns"])
                {
                    let mut actual = end.parameters.clone();
                    actual[scaled] *= unit;
                    let apart = (0..actual.len())
                        .map(|p| (actual[p] - best.parameters[p]).abs() / best.errors[p]);
                    let worst = apart.fold(0.0, f64::max);
                    println!(
                        "{} {way}, {text}: {:?} {worst:.1e}",
                        device.name(),
                        end.status
                    );
                    assert!(
                        end.status.is_success() && worst < 1e-3,
                        "{} {way}, {text}: {:?} {worst:.1e} {actual:?}",
                        device.name(),
                        end.status
                    );
                }
            }
        }
    }
}

#[test]
fn degenerate_parameters_have_the_same_errors_in_columns() {
    for (text, truth) in [
        ("a*b*x + c", &[2.0, 1.5, 3.0][..]),
        (
            "c + a*exp(-(x-m)^2/(2*s^2)) + b*exp(-(x-m)^2/(2*s^2))",
            &[2.0, 3.0, 1.6, 1.3, 2.0][..],
        ),
        ("a*exp(-k*x) + c*exp(-k*x) + d*x", &[2.0, 0.5, 3.0, 1.0][..]),
    ] {
        let case = case(text, truth);
        let fitter = CurveFitter::new(Formula::parse(text).unwrap(), Device::cpu());
        let curves = case.curves(1.0, truth);
        let fit = fitter.fit(&curves).unwrap().remove(0);
        let CurveColumns { errors, status, .. } = fitter.fit_columns(&curves).unwrap();
        assert!(fit.status.is_success() && status[0].is_success(), "{text}");
        println!("{text}: {:?} {errors:?}", fit.errors);
        assert!(
            fit.errors.contains(&f64::INFINITY) && fit.errors.iter().any(|e| e.is_finite()),
            "{text}"
        );
        for (a, b) in fit.errors.iter().zip(&errors) {
            assert!(
                a == b || (a / b - 1.0).abs() < 1e-6,
                "{text}: {:?} {errors:?}",
                fit.errors
            );
        }
    }
}

/// Squares of such data are beyond f32.
#[test]
fn data_beyond_f32_are_refined_by_the_host() {
    for device in devices() {
        let case = case("a*exp(-(x-m)^2/(2*s^2)) + c", &[5.0, 1.6, 1.3, 2.0]);
        let expected = case.fit(&[5.0, 1.6, 1.3, 2.0]);
        let fitter = CurveFitter::new(Formula::parse(&case.text).unwrap(), device);
        let scale = 1e20;
        let fit = fitter
            .fit(&case.curves(scale, &[4.0 * scale, 1.5, 1.0, scale]))
            .unwrap()
            .remove(0);
        assert!(fit.status.is_success(), "{}", fit.message);
        for (p, unit) in [scale, 1.0, 1.0, scale].into_iter().enumerate() {
            let apart = (fit.parameters[p] / unit - expected.parameters[p]).abs();
            assert!(
                apart < 1e-3 * expected.errors[p],
                "parameter {p}: {apart:e}"
            );
        }
    }
}

/// Offsets beyond the precision of f32 are left to the host, or refused: a GPU alone would report its start as a
/// success. Columns end on the host in any case.
#[test]
fn offsets_beyond_f32_precision_are_left_to_the_host_or_refused() {
    let Some(gpu) = gpu() else { return };
    let formula = |text: &str| Formula::parse(text).unwrap();
    let points = |offset: f64| {
        (0..40)
            .map(|j| offset + f64::from(j) / 8.0)
            .collect::<Vec<f64>>()
    };
    let y = |offset: f64| {
        let clean = |x: &f64| 3.0 * (-0.9 * x).exp() + 1.0 + offset + 0.01 * (7.0 * x).sin();
        points(0.0).iter().map(clean).collect::<Vec<f64>>()
    };
    let cases = [
        (
            "a*exp(-k*(x - 1.7e9)) + c",
            points(1.7e9),
            y(0.0),
            vec![1.0, 1.0, 0.5],
        ),
        ("a*exp(-k*x) + c", points(0.0), y(1e8), vec![1.0, 1.0, 1e8]),
        ("a*exp(-k*x) + c", points(0.0), y(1e6), vec![1.0, 1.0, 1e6]),
        (
            "a*exp(-k*(x - 1e6)) + c",
            points(1e6),
            y(0.0),
            vec![1.0, 1.0, 0.5],
        ),
    ];
    for (text, x, y, start) in cases {
        let fitter = |device: &Device| CurveFitter::new(formula(text), device.clone());
        let fit = |fitter: CurveFitter| {
            fitter
                .fit(&Curves::on_common_grid(x.clone(), y.clone(), start.clone()))
                .unwrap()
                .swap_remove(0)
        };
        let best = fit(fitter(&Device::cpu()));
        assert!(
            best.status.is_success() && best.chi2 < 0.01,
            "{text}: {best:?}"
        );
        for solver in [
            Solver::from(CurveFitter::LEVENBERG_MARQUARDT),
            CurveFitter::NELDER_MEAD.into(),
        ] {
            let actual = fit(fitter(&gpu).solver(solver));
            assert!(
                actual.status.is_success() && (actual.chi2 / best.chi2 - 1.0).abs() < 1e-5,
                "{text}: {actual:?}"
            );
            let alone = fit(fitter(&gpu).solver(solver).polish(false));
            assert!(
                alone.status == Status::BadInput && alone.message.starts_with("bad_scale"),
                "{text}: {alone:?}"
            );
            for polish in [true, false] {
                let fitter = fitter(&gpu).solver(solver).polish(polish);
                let columns = fitter
                    .fit_columns(&Curves::on_common_grid(x.clone(), y.clone(), start.clone()))
                    .unwrap();
                let ended = columns.status[0].is_success()
                    && (columns.chi2[0] / best.chi2 - 1.0).abs() < 1e-5;
                let refused = columns.status[0] == Status::BadInput && !polish;
                assert!(
                    ended || refused && columns.parameters[0].is_nan(),
                    "{text}: {columns:?}"
                );
            }
        }
    }
}

/// A parameter at its bound has no error, whichever solver moved it there.
#[test]
fn a_simplex_at_a_bound_has_the_errors_of_the_others() {
    let x: Vec<f64> = (0..40).map(|j| f64::from(j) / 8.0).collect();
    let y: Vec<f64> = x
        .iter()
        .map(|x| 3.0 * (-0.9 * x).exp() + 0.5 + 0.01 * (7.0 * x).sin())
        .collect();
    let fit = |solver: Solver| {
        let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x) + c").unwrap(), Device::cpu());
        let fitter = fitter.solver(solver).bounds("c", 0.8, 2.0);
        fitter
            .fit(&Curves::on_common_grid(
                x.clone(),
                y.clone(),
                vec![1.0, 1.0, 1.0],
            ))
            .unwrap()
            .swap_remove(0)
    };
    let [lm, simplex] = [
        CurveFitter::LEVENBERG_MARQUARDT.into(),
        CurveFitter::NELDER_MEAD.into(),
    ]
    .map(fit);
    for p in 0..3 {
        let [a, b] = [lm.errors[p], simplex.errors[p]];
        assert!(
            a.is_nan() && b.is_nan() || (a / b - 1.0).abs() < 1e-3,
            "{lm:?} {simplex:?}"
        );
    }
    assert!(simplex.errors[2].is_nan() && simplex.parameters[2] == 0.8);
}
