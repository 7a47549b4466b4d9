//! Counts, and what few of them or none say.

use popfit::{CurveFitter, Curves, Device, Estimator, Flags, Formula, Status};
use popfit_testing::fits::devices;
use popfit_testing::random::Random;

use super::fitter;

/// Counts around a narrow star over almost no background: many minima lie where the model reaches 0 at a count of 0.
#[test]
fn counts_of_zero_do_not_stop_a_fit() {
    const TRUTH: [f64; 5] = [100.0, 3.0, 3.0, 1.0, 0.05];
    let stars = 200;
    let pixels = 49;
    let mut random = Random(12345);
    let place = |k: usize| [(k % 7) as f64, (k / 7) as f64];
    let mean = |k: usize| {
        let [dx, dy] = [place(k)[0] - TRUTH[1], place(k)[1] - TRUTH[2]];
        TRUTH[0] * (-(dx * dx + dy * dy) / (2.0 * TRUTH[3] * TRUTH[3])).exp() + TRUTH[4]
    };
    let mut poisson = |mean: f64| {
        let limit = (-mean).exp();
        let mut count = 0.0;
        let mut product = random.uniform();
        while product > limit {
            (count, product) = (count + 1.0, product * random.uniform());
        }
        count
    };
    let data: Vec<f64> = (0..stars * pixels)
        .map(|i| poisson(mean(i % pixels)))
        .collect();
    let x: Vec<f64> = (0..2)
        .flat_map(|axis| (0..pixels).map(move |k| place(k)[axis]))
        .collect();
    let curves = Curves::on_common_grid(x, data, TRUTH.repeat(stars));
    let stars = CurveFitter::new(Formula::builtin("gauss2d").unwrap(), Device::cpu());
    let stars = stars.estimator(Estimator::Poisson);
    let fits = stars.fit(&curves).unwrap();
    let columns = stars.fit_columns(&curves).unwrap();
    for (k, fit) in fits.iter().enumerate() {
        assert!(
            fit.status.is_success() && columns.status[k].is_success(),
            "{k}: {fit:?}, {:?}",
            columns.status[k]
        );
        // The distance from the edge, where the likelihood ends, is not determined.
        assert!(
            (fit.chi2 - columns.chi2[k]).abs() < 0.01,
            "{k}: {} {}",
            fit.chi2,
            columns.chi2[k]
        );
    }
}

/// Counts that are all 0 bound a source on a known background from above: with a bound or a prior the likelihood has a
/// maximum.
#[test]
fn counts_of_zero_give_an_upper_limit() {
    let x: Vec<f64> = (0..20).map(f64::from).collect();
    let y = vec![0.0; 60];
    let formula = Formula::parse("a*exp(-(x-m)^2/(2*s^2)) + 0.5").unwrap();
    let curves = Curves::on_common_grid(x, y, [1.0, 9.0, 2.0].repeat(3));
    for device in devices() {
        let source = || {
            CurveFitter::new(formula.clone(), device.clone())
                .estimator(Estimator::Poisson)
                .fix("m")
                .fix("s")
        };
        let bounded = source().bounds("a", 0.0, f64::INFINITY);
        let fits = bounded.fit(&curves).unwrap();
        let columns = bounded.fit_columns(&curves).unwrap();
        for (k, fit) in fits.iter().enumerate() {
            assert!(
                fit.status.is_success() && fit.parameters[0] == 0.0 && fit.flags == Flags::AT_BOUND,
                "{fit:?}"
            );
            assert!(
                (fit.chi2 - 20.0).abs() < 1e-9 && columns.status[k].is_success(),
                "{fit:?} {columns:?}"
            );
            assert_eq!(
                (columns.parameters[3 * k], columns.flags[k]),
                (0.0, Flags::AT_BOUND)
            );
        }
        // 2 Σ m + (a − 2)²: the profile's sum is 5.013
        let prior = source().prior("a", 2.0, 0.2);
        let fit = &prior.fit(&curves).unwrap()[0];
        let expected = 2.0 - 0.04 * 5.013_256;
        assert!(
            fit.status.is_success() && (fit.parameters[0] - expected).abs() < 1e-4,
            "{fit:?}"
        );
        assert!((prior.fit_columns(&curves).unwrap().parameters[0] - expected).abs() < 1e-3);
        // Nothing bounds the source.
        let open = &source().fit(&curves).unwrap()[0];
        assert!(
            open.status == Status::BadInput && open.message.contains("bound a parameter"),
            "{open:?}"
        );
        // A bound or a prior of a fixed parameter does not help.
        let fixed = source().bounds("s", 0.1, 9.0).prior("m", 9.0, 1.0);
        let fits = fixed.fit(&curves).unwrap();
        let columns = fixed.fit_columns(&curves).unwrap();
        assert_eq!(
            (fits[0].status, columns.status[0]),
            (Status::BadInput, Status::BadInput)
        );
        assert_eq!(columns.message(0), Some(&fits[0].message[..]));
    }
}

/// The likelihood has no maximum if every count is 0.
#[test]
fn counts_that_are_all_zero_are_refused_without_bounds() {
    let x: Vec<f64> = (0..20).map(|k| 0.2 * f64::from(k)).collect();
    let mut y = vec![0.0; 40];
    y[25] = 3.0; // the second curve has some
    let curves = Curves::on_common_grid(x, y, [1.0, 1.0, 1.0].repeat(2));
    for device in devices() {
        let fitter = fitter(device).estimator(Estimator::Poisson);
        let fits = fitter.fit(&curves).unwrap();
        let columns = fitter.fit_columns(&curves).unwrap();
        assert_eq!(
            (fits[0].status, columns.status[0]),
            (Status::BadInput, Status::BadInput)
        );
        assert!(fits[0].message.contains("no_counts"), "{}", fits[0].message);
        assert!(fits[1].status != Status::BadInput && columns.status[1] != Status::BadInput);
    }
}

/// Returns a count of Poisson's distribution with this mean (Knuth).
fn poisson_count(mean: f64, random: &mut Random) -> f64 {
    let limit = (-mean).exp();
    let mut count = 0.0;
    let mut product = random.uniform();
    while product > limit {
        count += 1.0;
        product *= random.uniform();
    }
    count
}

/// Where the outer bins are all empty, the best model touches 0 there: no user has set that bound, and it determines no
/// parameter. The background's error follows from the other bins.
#[test]
fn empty_bins_where_the_model_touches_zero_determine_nothing() {
    const CURVES: usize = 600;
    let times: Vec<f64> = (0..40).map(|j| 0.5 * f64::from(j)).collect();
    let mut random = Random(1);
    let means: Vec<f64> = times
        .iter()
        .map(|t| 20.0 * (-t / 2.0).exp() + 0.1)
        .collect();
    let counts: Vec<f64> = (0..CURVES)
        .flat_map(|_| means.clone())
        .map(|m| poisson_count(m, &mut random))
        .collect();
    let formula = Formula::parse_with("a*exp(-t/tau)+b", &["t"]).unwrap();
    let curves = Curves::on_common_grid(&times, &counts, [15.0, 1.5, 0.3].repeat(CURVES));
    for device in devices() {
        let fitter = CurveFitter::new(formula.clone(), device).estimator(Estimator::Poisson);
        let columns = fitter.fit_columns(&curves).unwrap();
        let actual = columns.column("b").unwrap();
        let errors = columns.errors("b").unwrap();
        let of_columns = actual
            .zip(errors)
            .zip(&columns.status)
            .map(|((b, e), status)| (b, e, *status));
        let fits = fitter.fit(&curves).unwrap();
        let of_fits = fits
            .iter()
            .map(|fit| (fit.parameters[2], fit.errors[2], fit.status));
        for (b, error, status) in of_columns
            .chain(of_fits)
            .filter(|(.., status)| status.is_success())
        {
            assert!(
                error.is_nan() || (b - 0.1).abs() < 5.0 * error,
                "{b} ± {error}: {status}"
            );
        }
        let pulls: Vec<f64> = fits
            .iter()
            .map(|fit| (fit.parameters[2] - 0.1) / fit.errors[2])
            .collect();
        let known = pulls.iter().filter(|pull| pull.is_finite()).count();
        let square: f64 = pulls
            .iter()
            .filter(|pull| pull.is_finite())
            .map(|pull| pull * pull)
            .sum();
        println!(
            "{known} of {CURVES} with an error, rms of the pulls {}",
            (square / known as f64).sqrt()
        );
        assert!(known > CURVES * 9 / 10 && (square / known as f64).sqrt() < 1.5);
    }
}
