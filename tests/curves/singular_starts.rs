//! Starts where a derivative is not finite and the model is: good data are not refused for that.

use popfit::{CurveFitter, Curves, Formula};
use popfit_testing::fits::devices;

/// A control at dose 0 in the four usual spellings, with a lower level that starts at 0 (julia 49199): derivatives by
/// the dose and the slope are products of 0 and infinity there, and their limits are 0.
#[test]
fn dose_responses_with_a_control_at_dose_zero_are_fitted() {
    let doses = [0.0, 0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0]
        .map(|dose| [dose; 3])
        .concat();
    let noise = [0.4, -1.1, 0.9, 2.0, -0.5, -1.4, 0.3, 1.2, -0.8];
    let response = |dose: f64| 10.0 + 90.0 * dose.powf(1.5) / (dose.powf(1.5) + 0.8f64.powf(1.5));
    let y: Vec<f64> = doses
        .iter()
        .enumerate()
        .map(|(j, dose)| response(*dose) + noise[j % 9])
        .collect();
    for text in [
        "lo+(hi-lo)/(1+(x/ec)^(-h))",
        "lo+(hi-lo)/(1+(ec/x)^h)",
        "lo+(hi-lo)/(1+exp(-h*(ln(x)-ec)))",
        "lo+(hi-lo)/(1+10^((ec-log10(x))*h))",
    ] {
        let formula = Formula::parse(text)
            .unwrap()
            .with_parameters(&["lo", "hi", "ec", "h"])
            .unwrap();
        for device in devices() {
            let fitter = CurveFitter::new(formula.clone(), device);
            let curves = Curves::on_common_grid(
                &doses,
                y.repeat(2),
                [0.0, 1.0].map(|lo| [lo, 100.0, 0.9, 1.0]).concat(),
            );
            let fits = fitter.fit(&curves).unwrap();
            let columns = fitter.fit_columns(&curves).unwrap();
            for k in 0..2 {
                assert!(fits[k].status.is_success(), "{text}: {:?}", fits[k]);
                assert!(
                    (fits[k].chi2 / fits[1].chi2 - 1.0).abs() < 1e-6,
                    "{text}: {:?}",
                    fits[k]
                );
                assert!(columns.status[k].is_success(), "{text}: {columns:?}");
                assert!(
                    (columns.chi2[k] / fits[1].chi2 - 1.0).abs() < 1e-6,
                    "{text}: {columns:?}"
                );
            }
        }
    }
}

/// The derivative of a square root by its offset is infinite where the root begins: the fit begins beside that point.
#[test]
fn square_roots_whose_offset_starts_at_zero_are_fitted() {
    let x: Vec<f64> = (0..25).map(|j| 0.2 * f64::from(j)).collect();
    let noise = |j: usize| 0.02 * ((j * 37 % 11) as f64 / 5.0 - 1.0);
    let y: Vec<f64> = x
        .iter()
        .enumerate()
        .map(|(j, x)| 2.0 * (x + 0.5).sqrt() + noise(j))
        .collect();
    for (text, start) in [
        ("a*sqrt(x + b)", [1.0, 0.0]),
        ("a*sqrt(x - b)", [1.0, 0.0]),
        ("a*(x + b)^0.5", [1.0, 0.0]),
    ] {
        for device in devices() {
            let fitter = CurveFitter::new(Formula::parse(text).unwrap(), device);
            let curves = |start: &[f64]| Curves::on_common_grid(&x, &y, start.to_vec());
            let good = &fitter
                .fit(&curves(&[1.0, if text.contains('-') { -0.3 } else { 0.3 }]))
                .unwrap()[0];
            let fit = &fitter.fit(&curves(&start)).unwrap()[0];
            let columns = fitter.fit_columns(&curves(&start)).unwrap();
            assert!(
                fit.status.is_success() && fit.start == start,
                "{text}: {fit:?}"
            );
            assert!(
                (fit.chi2 / good.chi2 - 1.0).abs() < 1e-6,
                "{text}: {fit:?} {good:?}"
            );
            assert!(
                columns.status[0].is_success() && (columns.chi2[0] / good.chi2 - 1.0).abs() < 1e-6,
                "{text}: {columns:?}"
            );
        }
    }
}
