//! What the data do not determine is said, whatever the fit ends with; and what they determine is found, even if one
//! point outweighs all others.

use popfit::{CurveFitter, Curves, Device, Flags, Formula, Status};
use popfit_testing::fits::devices;

/// A curve is forced through one point (MIES issue 2599). At any sigma of that point that floats resolve, χ² agrees
/// with scipy's `lm`.
#[test]
fn fits_with_one_dominant_point_converge() {
    let x: Vec<f64> = (0..20).map(|j| 4.0 * f64::from(j) / 19.0).collect();
    let noise = |j: usize| 0.05 * ((j * 7919 % 101) as f64 / 50.0 - 1.0);
    let y: Vec<f64> = x
        .iter()
        .enumerate()
        .map(|(j, x)| 3.0 * (-0.7 * x).exp() + noise(j))
        .collect();
    let formula = Formula::parse("a*exp(-k*x)").unwrap();
    for device in devices() {
        let fitter = CurveFitter::new(formula.clone(), device).absolute_sigma(true);
        for tiny in [
            1e-4, 1e-5, 1e-6, 3e-7, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12, 1e-15,
        ] {
            let mut sigma = vec![0.05; 20];
            sigma[3] = tiny;
            let curves = Curves::on_common_grid(&x, &y, vec![1.0, 1.0]).sigma(sigma);
            let fit = &fitter.fit(&curves).unwrap()[0];
            let columns = fitter.fit_columns(&curves).unwrap();
            for (status, chi2) in [(fit.status, fit.chi2), (columns.status[0], columns.chi2[0])] {
                if tiny >= 1e-8 {
                    assert!(
                        status.is_success() && (chi2 - 7.5108).abs() < 1e-3,
                        "{tiny:e}: {status} {chi2}"
                    );
                } else if status.is_success() {
                    // Curves that cannot be fitted may fail, but must not end elsewhere.
                    assert!((chi2 - 7.5108).abs() < 0.01, "{tiny:e}: {status} {chi2}");
                }
                assert_eq!(
                    status == Status::BadInput,
                    tiny < 1e-14,
                    "{tiny:e}: {status}"
                );
            }
        }
    }
}

/// Constant data, of a dead or saturated pixel: a peak of height 0 has no position and no width.
#[test]
fn the_position_of_a_peak_without_height_is_undetermined() {
    let x: Vec<f64> = (0..20).map(f64::from).collect();
    for text in ["a/(((x-m)/g)^2+1)+c", "a*exp(-(x-m)^2/(2*g^2))+c"] {
        let fitter = CurveFitter::new(Formula::parse(text).unwrap(), Device::cpu());
        for level in [1.0, 4.0, 5.0, 7.3, 1e-3, 65535.0] {
            let curves = Curves::on_common_grid(&x, vec![level; 20], vec![1.0, 9.0, 2.0, 4.0]);
            let fit = &fitter.fit(&curves).unwrap()[0];
            let columns = fitter.fit_columns(&curves).unwrap();
            for (flags, errors) in [
                (fit.flags, &fit.errors),
                (columns.flags[0], &columns.errors),
            ] {
                assert!(
                    flags.contains(Flags::UNDETERMINED),
                    "{text}, y = {level}: {fit:?} {columns:?}"
                );
                assert!(
                    errors[1].is_infinite() && errors[2].is_infinite(),
                    "{text}, y = {level}: {errors:?}"
                );
                assert!(errors[3].is_finite(), "{text}, y = {level}: {errors:?}");
            }
        }
    }
}

/// Exact data determine all parameters: their χ² is rounding, and no parameter is flagged as undetermined.
#[test]
fn exact_data_determine_their_parameters() {
    let x: Vec<f64> = (0..20).map(f64::from).collect();
    for text in ["a/(((x-m)/g)^2+1)+c", "a*exp(-(x-m)^2/(2*g^2))+c"] {
        let formula = Formula::parse(text).unwrap();
        let y = formula.values(&x, &[3.0, 8.7, 2.2, 5.0]).unwrap();
        let curves = Curves::on_common_grid(&x, y, vec![2.0, 9.0, 2.0, 4.0]);
        let fitter = CurveFitter::new(formula, Device::cpu());
        let fit = &fitter.fit(&curves).unwrap()[0];
        let columns = fitter.fit_columns(&curves).unwrap();
        assert!(
            fit.status.is_success() && fit.flags.is_empty(),
            "{text}: {fit:?}"
        );
        assert!(
            columns.status[0].is_success() && columns.flags[0].is_empty(),
            "{text}: {columns:?}"
        );
    }
}

/// A narrow peak that lies between the points of a fit that started elsewhere: one point cannot determine three
/// parameters.
#[test]
fn a_peak_between_two_points_is_undetermined() {
    let x: Vec<f64> = (0..100).map(|j| 0.2 * f64::from(j)).collect();
    let noise = |j: usize| 0.01 * ((j * 37 % 11) as f64 / 5.0 - 1.0);
    let y: Vec<f64> = x
        .iter()
        .enumerate()
        .map(|(j, x)| 0.4 * (-(x - 11.38f64).powi(2) / 0.045).exp() + noise(j))
        .collect();
    let fitter = CurveFitter::new(
        Formula::parse("a*exp(-(x-m)^2/(2*s^2))").unwrap(),
        Device::cpu(),
    );
    let curves = Curves::on_common_grid(&x, &y, vec![1.0, 1.0, 1.0]);
    let fit = &fitter.fit(&curves).unwrap()[0];
    let columns = fitter.fit_columns(&curves).unwrap();
    assert!(
        !fit.status.is_success() || fit.flags.contains(Flags::UNDETERMINED),
        "{fit:?}"
    );
    assert!(
        !columns.status[0].is_success() || columns.flags[0].contains(Flags::UNDETERMINED),
        "{columns:?}"
    );
}

/// Nelder–Mead sets the same flags as Levenberg–Marquardt, because it ends at the same minima.
#[test]
fn a_simplex_flags_what_the_data_do_not_determine() {
    let x: Vec<f64> = (0..20).map(f64::from).collect();
    let noise = |j: usize| 0.05 * ((j * 7919 % 101) as f64 / 50.0 - 1.0);
    let level: Vec<f64> = vec![4.0; 20];
    let noisy = |curve: &dyn Fn(f64) -> f64| {
        x.iter()
            .enumerate()
            .map(|(j, x)| curve(*x) + noise(j))
            .collect::<Vec<f64>>()
    };
    let decay = noisy(&|x| 3.0 * (-0.4 * x).exp());
    let line = noisy(&|x| 1.0 + 0.2 * x);
    for (text, y, starts) in [
        ("a/(((x-m)/g)^2+1)+c", &level, vec![1.0, 9.0, 2.0, 4.0]),
        (
            "a*exp(-(x-m)^2/(2*g^2))+c",
            &level,
            vec![1.0, 9.0, 2.0, 4.0],
        ),
        ("(a+b)*exp(-k*x)", &decay, vec![1.0, 1.0, 0.5]),
        ("a*b*exp(-k*x)", &decay, vec![1.0, 1.0, 0.5]),
        ("a*exp(-k*x)+0*d", &decay, vec![1.0, 0.5, 1.0]),
        ("a*exp(-k*x)+min(d, 1)", &decay, vec![1.0, 0.5, 2.0]),
        ("a*exp(x/s)+c", &line, vec![1.0, 10.0, 1.0]),
        (
            "a*exp(-(x-m)^2/(2*s^2))+c",
            &decay,
            vec![1.0, -3.0, 3.0, 0.1],
        ),
    ] {
        let fitter = CurveFitter::new(Formula::parse(text).unwrap(), Device::cpu());
        let curves = Curves::on_common_grid(&x, y, starts);
        let lm = fitter.fit(&curves).unwrap().swap_remove(0);
        let simplex = fitter.solver(CurveFitter::NELDER_MEAD);
        let fit = simplex.fit(&curves).unwrap().swap_remove(0);
        let columns = simplex.fit_columns(&curves).unwrap();
        println!(
            "{text}: {} {} {:?}, {} {} {:?}",
            lm.status, lm.flags, lm.errors, fit.status, fit.flags, fit.errors
        );
        if lm.status.is_success()
            && fit.status.is_success()
            && (fit.chi2 - lm.chi2).abs() <= 1e-4 * lm.chi2 + 1e-12
        {
            assert_eq!(lm.flags, fit.flags, "{text}: {lm:?} {fit:?}");
        }
        assert_eq!(columns.flags[0], fit.flags, "{text}");
    }
}
