//! Statistics of many fits.

use popfit::{CurveFitter, Curves, Device, Formula};
use popfit_testing::random::Random;

/// Points, degrees of freedom and criteria are those of single fits, and R² is that of its definition.
#[test]
fn statistics_are_those_of_single_fits() {
    let random = &mut Random(7);
    let x: Vec<f64> = (0..25).map(|j| 0.2 * f64::from(j)).collect();
    let mut y: Vec<f64> = (0..4)
        .flat_map(|_| x.clone())
        .map(|x| 3.0 * (-x).exp() + 0.1 * random.normal())
        .collect();
    let mut mask: Vec<bool> = (0..100).map(|_| random.uniform() < 0.2).collect();
    (mask[7], y[7]) = (true, f64::NAN);
    (mask[30], y[30]) = (false, f64::NAN);
    let sigma: Vec<f64> = (0..100).map(|_| 0.1 + random.uniform()).collect();
    let curves = Curves::on_common_grid(x, &y, vec![1.0, 0.5, 0.0])
        .sigma(&sigma)
        .mask(&mask[..]);
    let mut lower = vec![-9.0; 12];
    let mut upper = vec![9.0; 12];
    (lower[11], upper[11]) = (0.0, 0.0);
    let curves = curves.bounds(lower, upper);
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x) + c").unwrap(), Device::cpu())
        .prior("k", 1.0, 0.5);
    let fits = fitter.fit(&curves).unwrap();
    let parameters: Vec<f64> = fits.iter().flat_map(|fit| fit.parameters.clone()).collect();
    let chi2: Vec<f64> = fits.iter().map(|fit| fit.chi2).collect();
    let statistics = fitter.statistics(&curves, &parameters, &chi2).unwrap();
    let values = fitter.predict(&curves, &parameters).unwrap();
    let residuals = fitter.residuals(&curves, &parameters).unwrap();
    for (k, fit) in fits.iter().enumerate() {
        if k == 1 {
            assert!(
                statistics.aic[k].is_nan()
                    && statistics.bic[k].is_nan()
                    && statistics.r_squared[k].is_nan()
            );
            continue;
        }
        assert_eq!(
            (statistics.points[k], statistics.dof[k]),
            (fit.points, fit.dof)
        );
        assert!(
            (statistics.aic[k] - fit.aic).abs() < 1e-9
                && (statistics.bic[k] - fit.bic).abs() < 1e-9,
            "{fit:?}"
        );
        let used: Vec<usize> = (25 * k..25 * (k + 1)).filter(|&i| !mask[i]).collect();
        let mean = used.iter().map(|&i| y[i]).sum::<f64>() / used.len() as f64;
        let left: f64 = used.iter().map(|&i| (y[i] - values[i]).powi(2)).sum();
        let all: f64 = used.iter().map(|&i| (y[i] - mean).powi(2)).sum();
        assert!(
            (statistics.r_squared[k] - 1.0 + left / all).abs() < 1e-12,
            "{}",
            statistics.r_squared[k]
        );
        let squares: f64 = used.iter().map(|&i| residuals[i].powi(2)).sum();
        assert!(
            (squares - fit.chi2).abs() < 1e-9 * fit.chi2,
            "{squares}, not {}",
            fit.chi2
        );
    }
    assert!((0..100).all(|i| residuals[i].is_nan() == (mask[i] || (25..50).contains(&i))));
    assert_eq!(
        fitter
            .statistics(&curves, &parameters, &chi2[1..])
            .unwrap_err()
            .argument(),
        Some("chi2")
    );
}
