//! Models that take many curves in a call: the bits of one call for each, and few calls.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use popfit::{
    Closure, Context, Control, CurveColumns, CurveFit, CurveFitter, CurveModel, Curves, Device,
    Estimator, Failure, Formula, Model, Status,
};

/// a exp(−k x) + c, which counts the rows of each call.
#[derive(Clone, Default)]
struct Counting {
    rows: Arc<Mutex<Vec<usize>>>,
    /// Index of the curve for which it fails, or panics, and how often it was asked for another one alone.
    fails: Option<usize>,
    panics: Option<usize>,
    /// Cancels a run at the call of this number.
    cancels: Option<(usize, Control)>,
}

fn decay(x: &[f64], p: &[f64], values: &mut [f64]) {
    values
        .iter_mut()
        .zip(x)
        .for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp() + p[2]);
}

impl Model for Counting {
    fn predictors(&self) -> Vec<String> {
        vec!["x".into()]
    }

    fn parameters(&self) -> Vec<String> {
        ["a", "k", "c"].map(String::from).to_vec()
    }

    fn values(
        &self,
        _: &Context,
        x: &[f64],
        parameters: &[f64],
        values: &mut [f64],
    ) -> Result<(), Failure> {
        decay(x, parameters, values);
        Ok(())
    }

    fn takes_many(&self) -> bool {
        true
    }

    fn values_many(
        &self,
        contexts: &[Context],
        x: &[f64],
        p: &[f64],
        values: &mut [f64],
    ) -> Result<(), Failure> {
        assert!(p.len() == 3 * contexts.len() && values.len() == x.len() * contexts.len());
        let mut calls = self.rows.lock().unwrap();
        calls.push(contexts.len());
        if let Some((_, control)) = self
            .cancels
            .as_ref()
            .filter(|(number, _)| *number == calls.len())
        {
            control.cancel.store(true, Ordering::Relaxed);
        }
        drop(calls);
        for ((context, p), values) in contexts
            .iter()
            .zip(p.chunks_exact(3))
            .zip(values.chunks_exact_mut(x.len()))
        {
            if self.fails == Some(context.index) {
                return Err(format!("no curve {}", context.index).into());
            }
            assert!(
                self.panics != Some(context.index),
                "curve {}",
                context.index
            );
            decay(x, p, values);
        }
        Ok(())
    }
}

const CURVES: usize = 3000;
const POINTS: usize = 20;

/// Noisy decays on a common grid, or on grids of their own.
fn curves(own_grid: bool) -> Curves<'static> {
    let x: Vec<f64> = (0..POINTS).map(|j| 0.25 * j as f64).collect();
    let noise = |i: usize| 0.05 * (i as f64 * 1.7).sin();
    let of = |k: usize| [3.0 + (k % 7) as f64, 0.5 + 0.1 * (k % 5) as f64, 0.3];
    let mut y = vec![0.0; CURVES * POINTS];
    y.chunks_exact_mut(POINTS)
        .enumerate()
        .for_each(|(k, row)| decay(&x, &of(k), row));
    y.iter_mut().enumerate().for_each(|(i, y)| *y += noise(i));
    let starts = [4.0, 0.6, 0.1].repeat(CURVES);
    match own_grid {
        true => Curves::on_own_grids(x.repeat(CURVES), y, starts),
        false => Curves::on_common_grid(x, y, starts),
    }
}

/// Returns everything that a fit computes, as bits.
fn bits(fit: &CurveFit) -> (Status, u32, u32, Vec<u64>) {
    let numbers = fit
        .parameters
        .iter()
        .chain(&fit.errors)
        .chain(&fit.covariance)
        .chain([&fit.chi2]);
    (
        fit.status,
        fit.rounds,
        fit.evaluations,
        numbers.map(|x| x.to_bits()).collect(),
    )
}

fn model(counting: &Counting) -> CurveModel {
    CurveModel::new(counting.clone()).unwrap()
}

#[test]
fn many_curves_in_a_call_have_the_bits_of_single_curves() {
    let closure = || Closure::new(&["x"], &["a", "k", "c"], decay).unwrap();
    let set: [fn(CurveFitter) -> CurveFitter; 4] = [
        |fitter| fitter,
        |fitter| fitter.bounds("c", 0.05, 9.0).bounds("a", 0.0, 8.0).fix("k"),
        |fitter| fitter.solver(CurveFitter::NELDER_MEAD).polish(false),
        |fitter| fitter.estimator(Estimator::Cauchy(0.1)),
    ];
    for (case, set) in set.into_iter().enumerate() {
        for own_grid in [false, true] {
            let counting = Counting::default();
            let fits = set(CurveFitter::new(model(&counting), Device::cpu()))
                .fit(&curves(own_grid))
                .unwrap();
            let alone = set(CurveFitter::new(closure(), Device::cpu()))
                .fit(&curves(own_grid))
                .unwrap();
            let differs = fits
                .iter()
                .zip(&alone)
                .position(|(a, b)| bits(a) != bits(b));
            assert_eq!(
                differs,
                None,
                "case {case}, {own_grid}: {:?}",
                differs.map(|k| (&fits[k], &alone[k]))
            );
            let rows = counting.rows.lock().unwrap();
            let most = rows.iter().max().unwrap();
            let all = rows.iter().sum::<usize>();
            assert!(
                own_grid || *most >= 500,
                "case {case}: {most} rows of {all} in {} calls",
                rows.len()
            );
        }
    }
}

/// A curve whose model fails or panics ends alone; the others have the bits that they have without it.
#[test]
fn a_failure_in_a_call_of_many_ends_one_fit() {
    let expected = CurveFitter::new(model(&Counting::default()), Device::cpu())
        .fit(&curves(false))
        .unwrap();
    for (fails, panics) in [(Some(7), None), (None, Some(1234)), (Some(2), Some(2999))] {
        let failing = Counting {
            fails,
            panics,
            ..Counting::default()
        };
        let fits = CurveFitter::new(model(&failing), Device::cpu())
            .fit(&curves(false))
            .unwrap();
        for (k, (fit, expected)) in fits.iter().zip(&expected).enumerate() {
            match k {
                _ if fails == Some(k) => {
                    assert_eq!(fit.message, format!("the model failed: no curve {k}"))
                }
                _ if panics == Some(k) => {
                    assert_eq!(fit.message, format!("the model panicked: curve {k}"))
                }
                _ => assert_eq!(bits(fit), bits(expected), "{k}"),
            }
        }
    }
}

/// Columns of the function agree with those of the formula: both end within 0.001 of their errors from the minimum.
#[test]
fn columns_of_a_function_agree_with_those_of_a_formula() {
    let formula =
        || Formula::parse_exactly("a * exp(-k * x) + c", &["x"], &["a", "k", "c"]).unwrap();
    let set: [fn(CurveFitter) -> CurveFitter; 6] = [
        |fitter| fitter,
        |fitter| fitter.bounds("c", 0.05, 0.29).bounds("a", 0.0, 8.0),
        |fitter| fitter.prior("k", 0.7, 0.05).absolute_sigma(true),
        |fitter| fitter.estimator(Estimator::Cauchy(0.1)),
        |fitter| fitter.fix("k"),
        |fitter| fitter.starts(3),
    ];
    let sigma: Vec<f64> = (0..CURVES * POINTS)
        .map(|i| 0.03 + 0.01 * (i % 5) as f64)
        .collect();
    let mask: Vec<bool> = (0..CURVES * POINTS)
        .map(|i| i % 11 == 3 || i % POINTS > 16)
        .collect();
    for (case, set) in set.into_iter().enumerate() {
        for (own_grid, is_weighted) in [(false, false), (true, false), (false, true)] {
            let curves = match is_weighted {
                true => curves(own_grid).sigma(&sigma).mask(&mask),
                false => curves(own_grid),
            };
            let fit =
                |fitter: CurveFitter| set(fitter).covariance(true).fit_columns(&curves).unwrap();
            let counting = Counting::default();
            let actual = fit(CurveFitter::new(model(&counting), Device::cpu()));
            let expected = fit(CurveFitter::new(formula(), Device::cpu()));
            compare(&actual, &expected, case);
            // Robust losses take more steps, and three starts are three fits.
            if case == 3 || case == 5 {
                continue;
            }
            let calls = counting.rows.lock().unwrap();
            let rows = calls.iter().sum::<usize>() as f64 / CURVES as f64;
            assert!(rows < 45.0, "{case}: {rows} rows per curve");
            assert!(
                own_grid || calls.len() < CURVES / 3,
                "{case}: {} calls",
                calls.len()
            );
        }
    }
}

/// Compares statuses, results in units of the errors, errors and covariances.
fn compare(actual: &CurveColumns, expected: &CurveColumns, case: usize) {
    let covariance = actual.covariance.as_ref().unwrap();
    let wanted = expected.covariance.as_ref().unwrap();
    for k in 0..CURVES {
        assert!(
            actual.status[k].is_success() && expected.status[k].is_success(),
            "{case} {k}: {:?}",
            actual.message(k)
        );
        assert_eq!(actual.flags[k], expected.flags[k], "{case} {k}");
        for p in 3 * k..3 * k + 3 {
            let error = actual.errors[p];
            let wanted_error = expected.errors[p];
            assert_eq!(
                error.is_nan(),
                wanted_error.is_nan(),
                "{case} {k}: {error} {wanted_error}"
            );
            // A parameter at a bound has no error.
            if wanted_error.is_nan() {
                assert_eq!(actual.parameters[p], expected.parameters[p], "{case} {k}");
                continue;
            }
            let distance = (actual.parameters[p] - expected.parameters[p]).abs();
            assert!(
                distance <= 0.002 * wanted_error,
                "{case} {k}: {distance} of {wanted_error}"
            );
            assert!(
                (error - wanted_error).abs() <= 3e-3 * wanted_error,
                "{case} {k}: {error} {wanted_error}"
            );
            for q in (3 * k..3 * k + 3).filter(|q| !expected.errors[*q].is_nan()) {
                let actual = covariance[3 * p + q - 3 * k];
                let wanted = wanted[3 * p + q - 3 * k];
                let scale = wanted_error * expected.errors[q];
                assert!(
                    (actual - wanted).abs() <= 6e-3 * scale,
                    "{case} {k}: {actual} {wanted}"
                );
            }
        }
    }
}

/// A curve whose model fails or panics ends alone in columns, too.
#[test]
fn a_failure_in_columns_ends_one_fit() {
    let expected = CurveFitter::new(model(&Counting::default()), Device::cpu())
        .fit_columns(&curves(false))
        .unwrap();
    let failing = Counting {
        fails: Some(70),
        panics: Some(1500),
        ..Counting::default()
    };
    let actual = CurveFitter::new(model(&failing), Device::cpu())
        .fit_columns(&curves(false))
        .unwrap();
    for k in 0..CURVES {
        match k {
            70 => assert_eq!(actual.message(k), Some("the model failed: no curve 70")),
            1500 => assert_eq!(actual.message(k), Some("the model panicked: curve 1500")),
            _ => assert_eq!(
                actual.parameters[3 * k..3 * k + 3],
                expected.parameters[3 * k..3 * k + 3],
                "{k}"
            ),
        }
        assert_eq!(
            actual.status[k] == Status::NotFinite,
            k == 70 || k == 1500,
            "{k}"
        );
    }
}

/// A cancelled run no longer calls the function, however many curves remain in its parts.
#[test]
fn a_cancelled_run_ends_between_two_calls() {
    let control = Control::default();
    let counting = Counting {
        cancels: Some((20, control.clone())),
        ..Counting::default()
    };
    let fitter = CurveFitter::new(model(&counting), Device::cpu());
    let actual = fitter
        .clone()
        .control(control.clone())
        .fit_columns(&curves(false))
        .unwrap();
    let interrupted = actual
        .status
        .iter()
        .filter(|status| **status == Status::Interrupted)
        .count();
    assert!(
        interrupted > CURVES / 2
            && actual
                .status
                .iter()
                .all(|status| status.is_success() || *status == Status::Interrupted)
    );
    // Each thread completes the call that it has begun.
    assert!(counting.rows.lock().unwrap().len() < 20 + 64);
    let ends = actual
        .status
        .iter()
        .zip(&actual.chi2)
        .zip(actual.errors.chunks_exact(3));
    for ((status, chi2), errors) in ends.filter(|((status, _), _)| **status == Status::Interrupted)
    {
        assert!(
            chi2.is_nan() && errors.iter().all(|error| error.is_nan()),
            "{status:?} {chi2}"
        );
    }
}

/// By default the function is a loop, and fits do not call it.
#[test]
fn by_default_curves_are_evaluated_one_by_one() {
    let closure = Closure::new(&["x"], &["a", "k", "c"], decay).unwrap();
    let x = [0.0, 1.0, 2.0];
    let p = [3.0, 0.5, 1.0, 4.0, 0.7, 2.0];
    let mut both = [0.0; 6];
    let mut one = [0.0; 3];
    closure
        .values_many(&[Context::default(); 2], &x, &p, &mut both)
        .unwrap();
    for k in 0..2 {
        closure
            .values(&Context::default(), &x, &p[3 * k..3 * k + 3], &mut one)
            .unwrap();
        assert_eq!(both[3 * k..3 * k + 3], one);
    }
    closure.values_many(&[], &x, &[], &mut []).unwrap();
    assert!(!closure.takes_many());
}
