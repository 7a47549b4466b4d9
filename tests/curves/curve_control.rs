//! Progress, cancels and timeouts of fits of curves.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use popfit::{Closure, Control, CurveFit, CurveFitter, Curves, Device, Formula, Status};
use popfit_testing::random::Random;

/// Decays with a little noise.
fn curves(count: usize) -> Curves<'static> {
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let rate = |k: usize| 0.4 + (k % 17) as f64 * 0.05;
    let one = |k: usize| {
        x.iter()
            .map(move |x| 3.0 * (-rate(k) * x).exp() + 0.02 * (9.0 * x + k as f64).sin())
    };
    let y: Vec<f64> = (0..count).flat_map(one).collect();
    Curves::on_common_grid(x.clone(), y, [2.0, 1.0].repeat(count))
}

fn formula() -> CurveFitter {
    CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu())
}

/// Takes `pause` per evaluation.
fn slow(pause: Duration) -> CurveFitter {
    let model = Closure::new(&["x"], &["a", "k"], move |x, p, y| {
        thread::sleep(pause);
        y.iter_mut()
            .zip(x)
            .for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp());
    });
    CurveFitter::new(model.unwrap(), Device::cpu())
}

/// A control that notes its calls.
fn noting(calls: &Arc<Mutex<Vec<(u64, u64)>>>) -> Control {
    let calls = calls.clone();
    let progress = move |done, total| calls.lock().unwrap().push((done, total));
    Control {
        progress: Some(Arc::new(progress)),
        ..Control::default()
    }
}

#[test]
fn progress_rises_to_the_total_and_does_not_change_results() {
    let curves = curves(5000);
    for fitter in [
        formula(),
        formula().solver(CurveFitter::NELDER_MEAD),
        slow(Duration::ZERO),
    ] {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let fits = fitter.clone().control(noting(&calls)).fit(&curves).unwrap();
        let plain = fitter.fit(&curves).unwrap();
        let same = |(a, b): (&popfit::CurveFit, &popfit::CurveFit)| {
            a.parameters == b.parameters && a.errors == b.errors
        };
        assert!(fits.iter().zip(&plain).all(same));
        let columns_calls = Arc::new(Mutex::new(Vec::new()));
        let columns = fitter
            .clone()
            .control(noting(&columns_calls))
            .fit_columns(&curves)
            .unwrap();
        assert_eq!(columns, fitter.fit_columns(&curves).unwrap());
        for calls in [calls, columns_calls] {
            let calls = calls.lock().unwrap();
            assert!(
                calls.len() > 1 && calls.windows(2).all(|pair| pair[0].0 < pair[1].0),
                "{calls:?}"
            );
            assert!(
                calls.iter().all(|call| call.1 == 5000) && calls.last().unwrap().0 == 5000,
                "{calls:?}"
            );
            assert!(calls.len() <= 1001, "{}", calls.len());
        }
    }
}

#[test]
fn bad_curves_count_as_ended() {
    let y = vec![1.0, f64::NAN, 2.0, 3.0, 2.0, 1.0];
    let curves = Curves::on_common_grid(vec![0.0, 1.0, 2.0], y, [1.0, 1.0].repeat(2));
    let calls = Arc::new(Mutex::new(Vec::new()));
    formula().control(noting(&calls)).fit(&curves).unwrap();
    formula()
        .control(noting(&calls))
        .fit_columns(&curves)
        .unwrap();
    let calls = calls.lock().unwrap();
    assert_eq!(
        calls.iter().filter(|call| **call == (2, 2)).count(),
        2,
        "{calls:?}"
    );
}

#[test]
fn a_cancelled_fit_is_interrupted_at_its_start() {
    let curves = curves(3000);
    for fitter in [
        formula(),
        formula().solver(CurveFitter::NELDER_MEAD),
        slow(Duration::ZERO),
        formula().tie("k", "a/3"),
    ] {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let control = noting(&calls);
        control.cancel.store(true, Ordering::Relaxed);
        for fit in fitter
            .clone()
            .control(control.clone())
            .fit(&curves)
            .unwrap()
        {
            assert_eq!(
                (fit.status, fit.message.as_str()),
                (Status::Interrupted, "interrupted before it began")
            );
            assert!(
                fit.parameters == fit.start && fit.parameters[0] == 2.0,
                "{fit:?}"
            );
            assert!(
                fit.errors.iter().all(|e| e.is_nan()) && fit.chi2.is_nan(),
                "{fit:?}"
            );
        }
        let columns = fitter
            .clone()
            .control(control.clone())
            .fit_columns(&curves)
            .unwrap();
        assert!(
            columns
                .status
                .iter()
                .all(|status| *status == Status::Interrupted)
        );
        assert!(
            columns.parameters.iter().step_by(2).all(|a| *a == 2.0),
            "{:?}",
            &columns.parameters[..6]
        );
        assert!(columns.errors.iter().all(|e| e.is_nan()) && calls.lock().unwrap().is_empty());
    }
}

/// Interrupted fits are better than their starts, and their messages report the χ² reached.
#[test]
fn an_interrupted_fit_has_its_best_point() {
    for is_simplex in [false, true] {
        let control = Control::default();
        let cancel = control.cancel.clone();
        let asked = AtomicU64::new(0);
        let model = Closure::new(&["x"], &["a", "k"], move |x, p, y| {
            // The cancel comes in the first round of all fits.
            if asked.fetch_add(1, Ordering::Relaxed) == 100 {
                cancel.store(true, Ordering::Relaxed);
            }
            y.iter_mut()
                .zip(x)
                .for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp());
        });
        let fitter = CurveFitter::new(model.unwrap(), Device::cpu());
        let fitter = if is_simplex {
            fitter.solver(CurveFitter::NELDER_MEAD)
        } else {
            fitter
        };
        let fits = fitter
            .clone()
            .control(control.clone())
            .fit(&curves(60))
            .unwrap();
        let begun: Vec<_> = fits
            .iter()
            .filter(|fit| fit.status == Status::Interrupted)
            .collect();
        assert!(begun.len() > 30, "{is_simplex}: {}", begun.len());
        for fit in begun {
            assert!(
                fit.message.contains(" rounds, at chi-square ") && fit.chi2.is_finite(),
                "{fit:?}"
            );
            assert!(
                fit.parameters != fit.start && fit.evaluations > 0 && fit.errors[0].is_nan(),
                "{fit:?}"
            );
        }
    }
}

/// After a cancel no progress is reported, and the run ends soon.
#[test]
fn progress_stops_after_a_cancel() {
    let fitter = formula();
    let curves = curves(400_000);
    for columns in [false, true] {
        let cancel = Arc::new(AtomicBool::new(false));
        let shown = Arc::new(AtomicU64::new(0));
        let late = Arc::new(AtomicU64::new(0));
        let flag = cancel.clone();
        let seen = shown.clone();
        let after = late.clone();
        let progress = move |done, _| {
            if flag.swap(true, Ordering::Relaxed) {
                after.fetch_add(1, Ordering::Relaxed);
            }
            seen.store(done, Ordering::Relaxed);
        };
        let control = Control {
            progress: Some(Arc::new(progress)),
            cancel,
            ..Control::default()
        };
        let ended = match columns {
            true => {
                fitter
                    .clone()
                    .control(control.clone())
                    .fit_columns(&curves)
                    .unwrap()
                    .status
            }
            false => fitter
                .clone()
                .control(control.clone())
                .fit(&curves)
                .unwrap()
                .into_iter()
                .map(|fit| fit.status)
                .collect(),
        };
        let done = ended
            .iter()
            .filter(|status| **status != Status::Interrupted)
            .count() as u64;
        let shown = shown.load(Ordering::Relaxed);
        assert!(
            late.load(Ordering::Relaxed) == 0 && shown > 0 && done >= shown && done < 400_000,
            "{shown} {done}"
        );
    }
}

#[test]
fn a_timeout_ends_a_run() {
    let begin = Instant::now();
    let control = Control {
        timeout: Some(Duration::from_millis(300)),
        ..Control::default()
    };
    let fits = slow(Duration::from_millis(5))
        .control(control.clone())
        .fit(&curves(40))
        .unwrap();
    assert!(
        fits.iter().any(|fit| fit.status == Status::Interrupted),
        "{fits:?}"
    );
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
    // A timeout that is long enough does not change the results.
    let long = Control {
        timeout: Some(Duration::from_secs(3600)),
        ..Control::default()
    };
    assert!(
        formula()
            .control(long.clone())
            .fit(&curves(100))
            .unwrap()
            .iter()
            .all(|fit| fit.status.is_success())
    );
}

/// Exact columns have the rows of single fits, to the bit, with bad inputs and failures among them; in a stopped run
/// they are at their starts.
#[test]
fn exact_columns_have_the_bits_of_single_fits() {
    let x: Vec<f64> = (0..30).map(|j| 0.2 * f64::from(j)).collect();
    let random = &mut Random(11);
    let count = 200;
    let mut y: Vec<f64> = (0..count)
        .flat_map(|_| x.clone())
        .map(|x| 3.0 * (-x).exp() + 0.3 * random.normal())
        .collect();
    y[35] = f64::NAN;
    let mut starts = [2.0, 0.5, 0.0].repeat(count);
    (starts[9], starts[10]) = (f64::INFINITY, 1.0);
    (starts[12], starts[13]) = (0.0, 300.0);
    let curves = Curves::on_common_grid(x, y, starts);
    for text in ["a*exp(-k*x) + c", "a*exp(-k*x) + c*(a + 1)"] {
        let fitter = CurveFitter::new(Formula::parse(text).unwrap(), Device::cpu())
            .covariance(true)
            .exact(true);
        for fitter in [
            fitter.clone(),
            fitter.clone().tie("c", "0.1*a"),
            fitter.starts(2),
        ] {
            let fits = fitter.fit(&curves).unwrap();
            let columns = fitter.fit_columns(&curves).unwrap();
            let flat = |of: fn(&CurveFit) -> &[f64]| fits.iter().flat_map(of).map(|x| x.to_bits());
            assert!(flat(|fit| &fit.parameters).eq(columns.parameters.iter().map(|x| x.to_bits())));
            assert!(flat(|fit| &fit.errors).eq(columns.errors.iter().map(|x| x.to_bits())));
            assert!(
                flat(|fit| &fit.covariance).eq(columns
                    .covariance
                    .as_ref()
                    .unwrap()
                    .iter()
                    .map(|x| x.to_bits()))
            );
            for (k, fit) in fits.iter().enumerate() {
                assert_eq!(
                    (fit.status, fit.flags),
                    (columns.status[k], columns.flags[k]),
                    "{fit:?}"
                );
                assert_eq!(
                    (fit.rounds, fit.evaluations),
                    (columns.rounds[k], columns.evaluations[k]),
                    "{fit:?}"
                );
                assert_eq!(fit.chi2.to_bits(), columns.chi2[k].to_bits(), "{fit:?}");
                let is_plain = fit.status.is_success() && fit.flags.is_empty();
                assert_eq!(
                    (!is_plain).then_some(&*fit.message),
                    columns.message(k),
                    "{fit:?}"
                );
            }
            let stopped = fitter
                .clone()
                .control(Control {
                    timeout: Some(Duration::ZERO),
                    ..Control::default()
                })
                .fit_columns(&curves)
                .unwrap();
            for (k, fit) in fits.iter().enumerate() {
                // Curves that had not begun have not been checked.
                assert!(
                    stopped.status[k] == Status::Interrupted || fit.status == Status::BadInput,
                    "{k}"
                );
                let bad = fit.status == Status::BadInput;
                assert!(
                    bad || stopped.errors[3 * k].is_nan() && stopped.parameters[3 * k].is_finite(),
                    "{k}"
                );
            }
        }
    }
}
