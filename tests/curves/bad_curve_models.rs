//! Models of curves that make no sense, and models that are not defined everywhere: clear errors and statuses, never a
//! panic.
#![cfg(feature = "gpu")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use popfit::{
    Closure, CurveFitter, CurveModel, Curves, Device, Error, Estimator, Flags, Formula, NelderMead,
    Status,
};
use popfit_testing::fits::{devices, gpu};

fn root() -> Closure {
    Closure::new(&["x"], &["a", "b"], |x, p, y| {
        y.iter_mut()
            .zip(x)
            .for_each(|(y, x)| *y = p[0] * (x - p[1]).sqrt());
    })
    .unwrap()
}

#[test]
fn models_are_refused_on_devices_that_cannot_run_them() {
    let message = |model: CurveModel, device: Device| {
        CurveFitter::new(model, device)
            .validate()
            .unwrap_err()
            .to_string()
    };
    let wgsl = "fn model(p: array<f32, 2>, x: f32) -> f32 { return p[0] * x + p[1]; }";
    let wgsl = CurveModel::wgsl(&["x"], &["a", "b"], wgsl).unwrap();
    if let Some(gpu) = gpu() {
        let message = message(root().into(), gpu.clone());
        assert!(
            message.contains("Device::cpu()") && message.contains("closure"),
            "{message}"
        );
        assert!(CurveFitter::new(wgsl.clone(), gpu).validate().is_ok());
    }
    let refused = message(wgsl.clone(), Device::cpu());
    assert!(
        refused.contains("with_rust") && refused.contains("GPU"),
        "{refused}"
    );
    assert!(matches!(
        wgsl.values(&[1.0], &[1.0, 2.0]),
        Err(Error::Model { .. })
    ));
    assert!(
        CurveFitter::new(wgsl.clone().with_rust(root()).unwrap(), Device::cpu())
            .validate()
            .is_ok()
    );
    let other = Closure::new(&["x"], &["a", "c"], |_, _, _| ()).unwrap();
    assert!(
        wgsl.with_rust(other)
            .unwrap_err()
            .to_string()
            .contains("\"c\"")
    );
}

#[test]
fn names_and_lengths_are_checked() {
    for (predictors, parameters) in [
        (&["x"][..], &[][..]),
        (&[], &["a"]),
        (&["x"], &["a", "a"]),
        (&["x"], &["x"]),
        (&["x"], &[" "]),
    ] {
        let is_told = |error: Error| matches!(error, Error::InvalidArgument { .. });
        assert!(
            is_told(Closure::new(predictors, parameters, |_, _, _| ()).unwrap_err()),
            "{parameters:?}"
        );
        assert!(
            is_told(CurveModel::wgsl(predictors, parameters, "").unwrap_err()),
            "{parameters:?}"
        );
    }
    let model: CurveModel = root().into();
    assert!(matches!(
        model.values(&[1.0], &[1.0]),
        Err(Error::ShapeMismatch { .. })
    ));
    let plane = Closure::new(&["x", "y"], &["a"], |_, _, _| ()).unwrap();
    assert!(matches!(
        CurveModel::from(plane).values(&[1.0; 3], &[1.0]),
        Err(Error::ShapeMismatch { .. })
    ));
    let names: Vec<String> = (0..33).map(|k| format!("p{k}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = Closure::new(&["x"], &names, |_, _, _| ()).unwrap();
    let refused = CurveFitter::new(many, Device::cpu())
        .validate()
        .unwrap_err();
    assert!(
        matches!(refused, Error::InvalidSettings { .. })
            && refused.to_string().contains("33 parameters")
    );
}

#[test]
fn errors_in_wgsl_have_line_and_column() {
    let head = "fn model(p: array<f32, 2>, x: f32) -> f32 ";
    let body = "{ return p[0] * x; }";
    let mut wrong = Vec::new();
    // The sign ¦ marks the place of the mistake.
    for (marked, part) in [
        (
            "¦".to_owned(),
            "there is no fn model(p: array<f32, 2>, x: array<f32, 1>) -> f32",
        ),
        (
            format!("// a typo\n{head}{{\n    return p[0] * ¦expp(x);\n}}"),
            "expp",
        ),
        (format!("{head}{{ return p[0] * x ¦}}"), "`;`"),
        (format!("{head}{{ return ¦p[0] * 1u; }}"), "Multiply"),
        (format!("// ä\n{head}{{ /* ä */ return ¦q; }}"), "q"),
        (format!("{head}{{ return ¦1u; }}"), "return type"),
        (
            "¦fn model(p: array<f32, 3>, x: f32) -> f32 { return p[0]; }".into(),
            "`model` is not fn model",
        ),
        (
            "¦fn model(p: array<f32, 2>) -> f32 { return p[0]; }".into(),
            "`model` is not",
        ),
        (
            "¦fn model(p: array<f32, 2>, x: array<f32, 2>) -> f32 { return p[0]; }".into(),
            "`model` is not",
        ),
        (
            "¦fn model(p: array<f32, 2>, x: f32) -> u32 { return 1u; }".into(),
            "`model` is not",
        ),
        (
            format!(
                "{head}{body}\n¦fn derivative(p: array<f32, 2>, x: f32) -> f32 {{ return x; }}"
            ),
            "array<f32, 2>",
        ),
        (
            format!("{head}{body}\nfn ¦expf(x: f32) -> f32 {{ return x; }}"),
            "the name `expf` is taken by popfit",
        ),
        (format!("{head}{body}\nfn ¦fill() {{}}"), "fill"),
        (
            format!("{head}{body}\nfn ¦popfit_slope() {{}}"),
            "popfit_slope",
        ),
        (
            format!("{head}{body}\nconst ¦ROWS = 3u;"),
            "the name `ROWS` is taken by popfit",
        ),
        (
            format!("{head}{body}\n@group(0) @binding(7) ¦var<storage> mine: array<f32>;"),
            "`mine`",
        ),
        (
            format!("{head}{body}\n¦var<workgroup> mine: array<f32, 4>;"),
            "`mine`",
        ),
        (
            format!("{head}{body}\n@id(0) ¦override q: f32 = 1.0;"),
            "const",
        ),
        (
            format!("{head}{body}\n@compute @workgroup_size(1) ¦fn own() {{}}"),
            "entry point",
        ),
        (
            format!("{head}{body}\n@compute @workgroup_size(1) fn ¦main() {{}}"),
            "the name `main` is taken by popfit",
        ),
        (
            format!("{head}{body}\n\nfn ¦main() {{}}"),
            "the name `main` is taken by popfit",
        ),
        (
            format!("{head}{body}\nfn mine() {{}}\nfn ¦mine() {{}}"),
            "redefinition of `mine`",
        ),
        (
            format!("{head}{body}\n¦fn sqrt(x: f32) -> f32 {{ return 0.0; }}"),
            "the name `sqrt` is taken",
        ),
        (
            format!("¦{head}{{ workgroupBarrier(); return p[0]; }}"),
            "barrier",
        ),
        (format!("¦{head}{{ return state[0]; }}"), "`state`"),
        (
            format!("{head}{{\n    if x > 3.0 {{ ¦discard; }}\n    return p[0] * x;\n}}"),
            "nan_like",
        ),
        (
            format!("{head}{{ return ¦dpdx(p[0] * x); }}"),
            "`model`: only fragments",
        ),
        (
            format!("fn own(x: f32) -> f32 {{ ¦discard; return x; }}\n{head}{{ return own(x); }}"),
            "`own`",
        ),
        (format!("¦enable f16;\n{head}{body}"), "a model enables"),
        (
            format!("// so\n{head}{body}\n¦diagnostic(off, derivative_uniformity);"),
            "no diagnostic",
        ),
        (
            format!("{head}{{ return ¦f16(p[0]) * x; }}"),
            "a model enables",
        ),
        (format!("{head}{body}\n¦struct Own {{ }}"), "member"),
        (format!("¦{head}{{ return trial(0u, 0u); }}"), "`state`"),
        (format!("{head}{{ return p[0] * x;¦"), ""),
        (format!("{head}{body}\n¦/* never closed"), ""),
    ] {
        let before = marked.split('¦').next().unwrap();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        match CurveModel::wgsl(&["x"], &["a", "b"], &marked.replace('¦', "")) {
            Err(Error::Wgsl {
                line: l,
                column: c,
                message,
                ..
            }) if (l, c) == (line, column) && message.contains(part) => {}
            other => wrong.push(format!("{marked}\n{other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    // Directives in comments have no effect.
    let source = format!("//@for i 0 1000000000\n//@end\n{head}{body}");
    assert!(CurveModel::wgsl(&["x"], &["a", "b"], &source).is_ok());
    let shown = CurveModel::wgsl(&["x"], &["a", "b"], &format!("{head}{{ return q; }}"))
        .unwrap_err()
        .to_string();
    assert!(
        shown.starts_with("WGSL, line 1, column 52: ")
            && shown.ends_with(&format!("\n{:>54}", "^")),
        "{shown}"
    );
}

/// √(x − b) has values only where b < x.
#[test]
fn undefined_values_are_a_status_or_a_rejected_step() {
    let x: Vec<f64> = (0..9).map(|j| 1.0 + 0.5 * f64::from(j)).collect();
    // The first point is on the edge of the model's domain.
    let y: Vec<f64> = x.iter().map(|x| 2.0 * (x - 1.0).sqrt()).collect();
    let wgsl = "fn model(p: array<f32, 2>, x: f32) -> f32 {
        if x < p[1] { return nan_like(0.0); }
        return p[0] * sqrt(x - p[1]);
    }";
    let wgsl = CurveModel::wgsl(&["x"], &["a", "b"], wgsl).unwrap();
    let formula = Formula::parse("a*sqrt(x - b)").unwrap();
    let runs = [
        (CurveModel::from(root()), Some(Device::cpu())),
        (formula.into(), Some(Device::cpu())),
        (wgsl, gpu()),
    ];
    for (model, device) in runs {
        let Some(device) = device else { continue };
        // From within, the minimum is the edge, beyond which every other step falls; or from where there are no
        // values.
        let curves = Curves::on_common_grid(x.clone(), y.repeat(2), vec![1.0, 0.0, 1.0, 3.0]);
        let fitter = CurveFitter::new(model, device);
        let fits = fitter.fit(&curves).unwrap();
        assert!(
            (fits[0].parameters[1] - 1.0).abs() < 0.05 && fits[0].parameters[1] <= 1.0,
            "{:?}",
            fits[0]
        );
        assert!(
            fits[0].status != Status::NotFinite && fits[0].chi2.is_finite(),
            "{:?}",
            fits[0]
        );
        assert_eq!(fits[1].status, Status::NotFinite, "{:?}", fits[1]);
        let fits = fitter.solver(NelderMead::default()).fit(&curves).unwrap();
        assert!((fits[0].parameters[1] - 1.0).abs() < 0.1, "{:?}", fits[0]);
    }
}

/// The derivatives of a logistic function multiply numbers beyond f64's range where its values are 0. Differences
/// replace them there, as long as the model is smooth and the parameter is not 0.
#[test]
fn derivatives_that_overflow_are_differences() {
    let slopes = |text: &str, x: f64, parameters: &[f64]| {
        CurveModel::from(Formula::parse(text).unwrap())
            .linearise(&[x], parameters)
            .unwrap()
    };
    // y = exp(705)^(-0.002) = exp(-1.41), and dy/dw = -g y (x - m) / w^2
    let actual = slopes("a/(1 + exp(-(x - m)/w))^g", 0.0, &[1.0, 7.05, 0.01, 0.002]);
    let y = (-0.002 * 705.0_f64).exp();
    let expected = [y, y, -0.2 * y, 141.0 * y, -705.0 * y];
    let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b.abs();
    assert!(
        actual.iter().zip(&expected).all(is_close),
        "{actual:?} {expected:?}"
    );
    // Far below the centre all values are 0.
    assert_eq!(
        slopes("1/(1 + exp(-(x - m)/w))", 0.0, &[50.0, 0.01]),
        [0.0; 3]
    );
    // The model is steep at the parameter; its derivative is not too large.
    assert!(!slopes("sqrt(abs(a - 1))*x", 1.0, &[1.0])[1].is_finite());
    assert!(!slopes("exp(-(x/s)^2)", 1.0, &[0.0])[1].is_finite());
}

/// A held parameter needs no derivative, and its value of 0 is no obstacle: a steep step with held shape and offset is
/// fitted.
#[test]
fn derivatives_that_overflow_beside_held_parameters_are_differences() {
    let x: Vec<f64> = (0..40).map(|j| 0.25 * f64::from(j)).collect();
    let y: Vec<f64> = x
        .iter()
        .map(|x| 2.0 / (1.0 + (-(x - 8.0) / 0.011).exp()) + 0.01 * (9.0 * x).sin())
        .collect();
    let model = Formula::parse("a/(1 + exp(-(x - m)/w))^g + c").unwrap();
    let fitter = CurveFitter::new(model, Device::cpu())
        .fix("g")
        .fix("c")
        .fix("m")
        .fix("w");
    let fit = fitter
        .fit(&Curves::on_common_grid(
            x,
            y,
            vec![1.0, 8.0, 0.011, 1.0, 0.0],
        ))
        .unwrap()
        .swap_remove(0);
    assert!(
        fit.status.is_success() && (fit.parameters[0] - 2.0).abs() < 0.01,
        "{fit:?}"
    );
}

#[test]
fn messages_name_the_value_that_is_not_finite_at_the_start() {
    let x: Vec<f64> = (1..=9).map(f64::from).collect();
    let y: Vec<f64> = x.iter().map(|x| 2.0 * x + 1.0).collect();
    let poisson = Estimator::Poisson;
    for device in devices() {
        for (text, start, estimator, part) in [
            (
                "sqrt(a)*x + b",
                [0.0, 1.0],
                Estimator::LeastSquares,
                "the derivative by `a` is not finite at the start: inf at point 0",
            ),
            (
                "a*log(x - b)",
                [1.0, 3.5],
                Estimator::LeastSquares,
                "the model is not finite at the start: NaN at point 0",
            ),
            (
                "a*x + b",
                [-1.0, 1.5],
                poisson,
                "the model is not positive at the start: -0.5 at point 1",
            ),
            (
                "a*x + exp(b)",
                [1.0, 400.0],
                Estimator::LeastSquares,
                "range of f64",
            ),
        ] {
            let fitter = CurveFitter::new(Formula::parse(text).unwrap(), device.clone());
            // A root whose argument is held at 0.
            let most = if start[0] == 0.0 { 0.0 } else { f64::INFINITY };
            let fitter = fitter
                .estimator(estimator)
                .bounds("a", f64::NEG_INFINITY, most);
            let fit = &fitter
                .fit(&Curves::on_common_grid(
                    x.clone(),
                    y.clone(),
                    start.to_vec(),
                ))
                .unwrap()[0];
            assert_eq!(fit.status, Status::NotFinite, "{text}: {}", fit.message);
            assert!(fit.message.contains(part), "{text}: {}", fit.message);
        }
    }
}

#[test]
fn unknown_names_are_answered_with_similar_ones() {
    let fitter = || {
        CurveFitter::new(
            Formula::parse("amplitude*exp(-rate*x) + c").unwrap(),
            Device::cpu(),
        )
    };
    for (wrong, parts) in [
        (
            fitter().fix("amplitud").validate(),
            ["did you mean `amplitude`?", "(known: amplitude, rate, c)"],
        ),
        (
            fitter().bounds("RATE", 0.0, 1.0).validate(),
            ["did you mean `rate`?", ""],
        ),
        (
            fitter().fix("temperature").validate(),
            ["no parameter `temperature`; known: amplitude", ""],
        ),
        (
            fitter().tie("c", "ampliude/6").validate(),
            ["did you mean `amplitude`?", "no parameter"],
        ),
        (
            Formula::builtin("gauss").map(|_| ()),
            ["did you mean `gauss1d`?", ""],
        ),
        (
            Formula::builtin("spline_1d").map(|_| ()),
            ["no model `spline_1d`; known: ", "polynomial(n)"],
        ),
    ] {
        let message = wrong.unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}

/// A closure may panic, or do worse, outside the bounds: it is never evaluated there.
#[test]
fn closures_are_not_evaluated_outside_the_bounds() {
    let strayed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&strayed);
    let model = Closure::new(&["x"], &["a", "k"], move |x, p, y| {
        if !(0.0..=2.0).contains(&p[0]) || !(0.5..=0.7).contains(&p[1]) {
            seen.store(true, Ordering::Relaxed);
        }
        y.iter_mut()
            .zip(x)
            .for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp());
    })
    .unwrap();
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    // The best rate, 0.9, is out of bounds; the best height within them is at its bound, too.
    let y: Vec<f64> = x.iter().map(|x| 3.0 * (-0.9 * x).exp()).collect();
    let fitter = CurveFitter::new(model, Device::cpu());
    let fitter = fitter.bounds("a", 0.0, 2.0).bounds("k", 0.5, 0.7);
    for start in [[0.0, 0.5], [1.0, 0.6], [2.0, 0.7]] {
        let fit = &fitter
            .fit(&Curves::on_common_grid(
                x.clone(),
                y.clone(),
                start.to_vec(),
            ))
            .unwrap()[0];
        assert!(
            fit.status.is_success() && fit.parameters[0] == 2.0,
            "{fit:?}"
        );
    }
    assert!(!strayed.load(Ordering::Relaxed));
}

fn on_cpu(model: CurveModel) -> CurveFitter {
    CurveFitter::new(model, Device::cpu())
}

#[test]
fn check_jacobian_finds_the_point_of_a_wrong_derivative() {
    let x: Vec<f64> = (0..5).map(f64::from).collect();
    let slopes = |x: &[f64], p: &[f64], rows: &mut [f64]| {
        for (j, x) in x.iter().enumerate() {
            rows[j] = (x - p[1]).sqrt();
            rows[5 + j] = -0.5 * p[0] / (x - p[1]).sqrt();
        }
        rows[5 + 3] *= 1.1;
    };
    let checks = on_cpu(root().derivatives(slopes).into())
        .check_jacobian(&x, &[2.0, -1.0])
        .unwrap();
    assert!(
        checks[0].parameter == "a" && checks[0].error < 1e-9,
        "{checks:?}"
    );
    let ratio = checks[1].derivative / checks[1].difference;
    assert!(
        checks[1].point == 3 && (ratio - 1.1).abs() < 1e-8 && checks[1].error > 0.01,
        "{checks:?}"
    );
    // NaN is the worst error.
    let checks = on_cpu(Formula::parse("a*sqrt(x - b)").unwrap().into())
        .check_jacobian(&x, &[2.0, 1.5])
        .unwrap();
    assert!(
        checks[1].error.is_nan() && checks[1].point == 0,
        "{checks:?}"
    );
    assert!(matches!(
        on_cpu(root().into()).check_jacobian(&x, &[2.0, -1.0]),
        Err(Error::Model { .. })
    ));
    let Some(gpu) = gpu() else { return };
    let wgsl = "fn model(p: array<f32, 2>, x: f32) -> f32 { return p[0] * sqrt(x - p[1]); }
        fn derivative(p: array<f32, 2>, x: f32) -> array<f32, 2> {
            return array<f32, 2>(sqrt(x - p[1]), 0.5 * p[0] / sqrt(x - p[1])); // its sign is wrong
        }";
    let alone = CurveModel::wgsl(&["x"], &["a", "b"], wgsl).unwrap();
    for model in [alone.clone(), alone.with_rust(root()).unwrap()] {
        let checks = CurveFitter::new(model, gpu.clone())
            .check_jacobian(&x, &[2.0, -1.0])
            .unwrap();
        assert!(
            checks[0].error < 1e-3 && (checks[1].error - 2.0).abs() < 1e-3,
            "{checks:?}"
        );
    }
    assert!(matches!(
        on_cpu(root().into()).check_jacobian(&x, &[2.0]),
        Err(Error::ShapeMismatch { .. })
    ));
}

/// A fit of WGSL alone has the statistics of the same fit with a twin.
#[test]
fn wgsl_alone_has_information_criteria() {
    let Some(gpu) = gpu() else { return };
    let wgsl = "fn model(p: array<f32, 2>, x: f32) -> f32 { return p[0] * expf(-p[1] * x); }";
    let alone = CurveModel::wgsl(&["x"], &["a", "k"], wgsl).unwrap();
    let both = alone
        .clone()
        .with_rust(Formula::parse("a*exp(-k*x)").unwrap())
        .unwrap();
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let y: Vec<f64> = x
        .iter()
        .map(|x| {
            (30.0 * (-0.7 * x).exp() + 3.0 * (9.0 * x).sin())
                .round()
                .max(0.0)
        })
        .collect();
    let curves = Curves::on_common_grid(x, y, vec![20.0, 1.0]);
    for estimator in [Estimator::LeastSquares, Estimator::Poisson] {
        let fit = |model: &CurveModel| {
            let fitter = CurveFitter::new(model.clone(), gpu.clone()).estimator(estimator);
            fitter.fit(&curves).unwrap().swap_remove(0)
        };
        let one = fit(&alone);
        let two = fit(&both);
        assert!(
            one.status.is_success() && (one.aic - two.aic).abs() < 1e-2,
            "{one:?} {two:?}"
        );
        assert!(
            (one.bic - one.aic - 2.0 * (20f64.ln() - 2.0)).abs() < 1e-9,
            "{one:?}"
        );
    }
}

/// Fits that begin with one model and end with another have no meaning. A loop that a software adapter ends early is
/// another model, too.
#[test]
fn twins_that_are_two_models_are_refused() {
    let Some(gpu) = gpu() else { return };
    let decay = |factor: &str| {
        let source = format!(
            "fn model(p: array<f32, 2>, x: f32) -> f32 {{ return {factor} * p[0] * exp(-p[1] * x); }}"
        );
        CurveModel::wgsl(&["x"], &["a", "k"], &source).unwrap()
    };
    let twin = || Formula::parse("a*exp(-k*x)").unwrap();
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let y: Vec<f64> = x
        .iter()
        .map(|x| 3.0 * (-0.7 * x).exp() + 0.3 * (9.0 * x).sin())
        .collect();
    let curves = Curves::on_common_grid(x.clone(), y, vec![2.0, 1.0]);
    let loops = "fn model(p: array<f32, 2>, x: f32) -> f32 {
        var sum = 0.0;
        for (var i = 0u; i < 100000u; i++) { sum += 1.0e-5; }
        return sum * p[0] * exp(-p[1] * x);
    }";
    let loops = CurveModel::wgsl(&["x"], &["a", "k"], loops).unwrap();
    let mut wrong = vec![decay("1.02")];
    // Hardware adapters do all iterations.
    wrong.extend(gpu.name().contains("llvmpipe").then_some(loops));
    for wgsl in wrong {
        for solver in [
            popfit::Solver::from(CurveFitter::LEVENBERG_MARQUARDT),
            CurveFitter::NELDER_MEAD.into(),
        ] {
            let model = wgsl.clone().with_rust(twin()).unwrap();
            let fitter = CurveFitter::new(model, gpu.clone()).solver(solver);
            for error in [
                fitter.fit(&curves).unwrap_err(),
                fitter.fit_columns(&curves).unwrap_err(),
            ] {
                let message = error.to_string();
                assert!(
                    matches!(error, Error::Model { .. })
                        && message.contains("its twin in Rust 2, at x = 0, a = 2, k = 1"),
                    "{message}"
                );
            }
        }
    }
    for factor in ["1.0", "1.0002"] {
        let fitter = CurveFitter::new(decay(factor).with_rust(twin()).unwrap(), gpu.clone());
        assert!(fitter.fit(&curves).unwrap()[0].status.is_success());
    }
    // On the CPU only one of the two is used.
    let fitter = CurveFitter::new(decay("1.02").with_rust(twin()).unwrap(), Device::cpu());
    assert!(fitter.fit(&curves).unwrap()[0].status.is_success());
}

/// A parameter without effect in a model of WGSL alone is undetermined, as in all others.
#[test]
fn a_parameter_without_effect_in_wgsl_alone_is_undetermined() {
    let Some(gpu) = gpu() else { return };
    let source = "fn model(p: array<f32, 3>, x: f32) -> f32 { return p[0] * expf(-p[1] * x); }";
    let model = CurveModel::wgsl(&["x"], &["a", "k", "d"], source).unwrap();
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let y: Vec<f64> = x
        .iter()
        .map(|x| 3.0 * (-0.7 * x).exp() + 0.1 * (9.0 * x).sin())
        .collect();
    let fitter = CurveFitter::new(model, gpu);
    let fit = fitter
        .fit(&Curves::on_common_grid(x, y, vec![2.0, 1.0, 1.0]))
        .unwrap()
        .swap_remove(0);
    assert!(
        fit.status.is_success() && fit.message.ends_with("do not determine d") && fit.chi2 < 0.2,
        "{fit:?}"
    );
    assert!(
        fit.flags == Flags::UNDETERMINED && fit.errors[2] == f64::INFINITY,
        "{fit:?}"
    );
    assert!(
        fit.errors[..2]
            .iter()
            .all(|error| *error > 0.0 && error.is_finite()),
        "{fit:?}"
    );
}
