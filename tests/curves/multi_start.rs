//! Fits of each curve from several starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use popfit::{Control, CurveFitter, Curves, Device, Error, Formula, Status};
use popfit_testing::random::Random;

const POINTS: usize = 60;

/// Sines of random frequencies, which fits from one start do not find.
fn sines(curves: usize) -> (Vec<f64>, Vec<f64>) {
    let random = &mut Random(5);
    let x: Vec<f64> = (0..POINTS).map(|j| 0.15 * j as f64).collect();
    let mut y = Vec::with_capacity(curves * POINTS);
    for _ in 0..curves {
        let a = 1.0 + random.uniform();
        let w = 0.5 + 5.0 * random.uniform();
        let phase = 6.0 * random.uniform();
        y.extend(
            x.iter()
                .map(|x| a * (w * x + phase).sin() + 0.1 * random.normal()),
        );
    }
    (x, y)
}

fn fitter() -> CurveFitter {
    let fitter = CurveFitter::new(Formula::parse("a*sin(w*x + f)").unwrap(), Device::cpu());
    fitter.bounds("w", 0.1, 8.0).bounds("f", -4.0, 7.0)
}

/// More starts find more minima, lose none, and are the same in results of both kinds.
#[test]
fn more_starts_find_lower_minima() {
    let (x, y) = sines(100);
    let curves = Curves::on_common_grid(x, y, vec![1.0, 1.0, 0.0]);
    let good = |chi2: &[f64]| {
        chi2.iter()
            .filter(|chi2| **chi2 < 2.0 * 0.01 * POINTS as f64)
            .count()
    };
    let mut last: Option<Vec<f64>> = None;
    for (starts, least) in [(1, 0), (8, 60), (24, 95)] {
        let fitter = fitter().starts(starts);
        let fits = fitter.fit(&curves).unwrap();
        let columns = fitter.fit_columns(&curves).unwrap();
        let chi2: Vec<f64> = fits.iter().map(|fit| fit.chi2).collect();
        assert!(
            good(&chi2) >= least && good(&columns.chi2) >= least,
            "{starts}: {} {}",
            good(&chi2),
            good(&columns.chi2)
        );
        let is_higher = |(chi2, last): (&f64, &f64)| *chi2 > last * (1.0 + 1e-9);
        assert!(
            !last
                .iter()
                .flatten()
                .zip(&chi2)
                .any(|(last, chi2)| is_higher((chi2, last))),
            "{starts}"
        );
        assert!(
            fits.iter().all(|fit| fit.rounds as usize >= starts),
            "{starts}"
        );
        last = Some(chi2);
    }
}

/// If no other start ends lower, the result is that of the curve's own start, to the bit.
#[test]
fn more_starts_keep_a_minimum_of_the_first_start() {
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let random = &mut Random(6);
    let y: Vec<f64> = (0..50)
        .flat_map(|_| x.clone())
        .map(|x| 3.0 * (-x).exp() + 0.01 * random.normal())
        .collect();
    let curves = Curves::on_common_grid(x, y, vec![1.0, 0.5, 0.0]);
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x) + c").unwrap(), Device::cpu());
    let fitter = fitter.fix("c").covariance(true);
    let one = fitter.fit_columns(&curves).unwrap();
    let many = fitter.clone().starts(4).fit_columns(&curves).unwrap();
    assert_eq!(
        (&one.parameters, &one.errors, &one.chi2),
        (&many.parameters, &many.errors, &many.chi2)
    );
    assert_eq!(
        (&one.covariance, &one.status),
        (&many.covariance, &many.status)
    );
    let tied =
        CurveFitter::new(Formula::parse("a*exp(-k*x) + c").unwrap(), Device::cpu()).tie("c", "0*a");
    let tied = tied.starts(3).fit(&curves).unwrap();
    assert!(
        tied.iter()
            .zip(one.chi2)
            .all(|(fit, chi2)| (fit.chi2 - chi2).abs() <= 1e-8 * chi2)
    );
}

/// Each curve's own bounds hold for all of its starts, and one row of starts for all curves on their own grids.
#[test]
fn starts_lie_within_the_bounds_of_their_curve() {
    let (x, y) = sines(10);
    let curves = Curves::on_own_grids(x.repeat(10), y, vec![1.0, 2.0, 0.0]).points(POINTS);
    let mut lower = [0.0, 1.0, -4.0].repeat(10);
    let mut upper = [9.0, 3.0, 7.0].repeat(10);
    (lower[4], upper[4]) = (1.9, 2.1);
    let fits = fitter()
        .starts(16)
        .fit(&curves.bounds(lower.clone(), upper.clone()))
        .unwrap();
    for (k, fit) in fits.iter().enumerate() {
        let inside = |p: usize| (lower[3 * k + p]..=upper[3 * k + p]).contains(&fit.parameters[p]);
        assert!(fit.status.is_success() && (0..3).all(inside), "{fit:?}");
    }
}

#[test]
fn progress_and_timeouts_count_all_starts() {
    let (x, y) = sines(30);
    let curves = Curves::on_common_grid(x, y, vec![1.0, 1.0, 0.0]);
    let last = Arc::new(AtomicU64::new(0));
    let seen = last.clone();
    let control = Control {
        progress: Some(Arc::new(move |done, total| {
            assert_eq!(total, 90);
            assert!(seen.swap(done, Ordering::Relaxed) < done);
        })),
        ..Control::default()
    };
    fitter()
        .starts(3)
        .control(control.clone())
        .fit(&curves)
        .unwrap();
    assert_eq!(last.load(Ordering::Relaxed), 90);
    let control = Control {
        timeout: Some(Duration::ZERO),
        ..Control::default()
    };
    let columns = fitter()
        .starts(3)
        .control(control.clone())
        .fit_columns(&curves)
        .unwrap();
    assert!(
        columns
            .status
            .iter()
            .all(|status| *status == Status::Interrupted)
    );
    let fits = fitter()
        .starts(3)
        .control(control.clone())
        .fit(&curves)
        .unwrap();
    assert!(
        fits.iter()
            .all(|fit| fit.status == Status::Interrupted && fit.parameters == [1.0, 1.0, 0.0])
    );
    for starts in [0, 65] {
        let Err(Error::InvalidSettings { faults }) = fitter().starts(starts).validate() else {
            panic!("{starts}")
        };
        assert_eq!(faults[0].name, "starts");
    }
}
