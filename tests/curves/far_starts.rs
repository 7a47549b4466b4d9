//! Starts far from their truths: nearly all fits find the best known minimum where amplitudes alone are far.

use std::f64::consts::TAU;

use popfit::{CurveFitter, Curves, Device, Flags, Formula};
use popfit_testing::far_starts::{Far, POINTS, arrived, problems};
use popfit_testing::random::Random;

/// Shares that the fits of all families find: 99.9, 97, 80 and 77 % of 200 a family; scipy's `trf` 96, 76
/// and 81 (`benches/peers/far_starts.py`).
const LEAST: [(Far, f64); 4] = [
    (Far::Amplitudes, 0.99),
    (Far::Magnitudes, 0.94),
    (Far::Factors, 0.78),
    (Far::Signs, 0.74),
];

#[test]
fn most_fits_find_the_best_minimum() {
    for (far, least) in LEAST {
        let mut all = 0;
        let mut actual = 0;
        for problems in problems(far, 40).unwrap() {
            let (fits, lowest) = problems.fit().unwrap();
            assert_eq!(fits.len() * POINTS, problems.y.len());
            assert_eq!(fits.len() * fits[0].parameters.len(), problems.starts.len());
            let best = arrived(&fits, &lowest);
            println!(
                "{far:?}, amplitudes {}: {best} of {}  {}",
                problems.amplitudes,
                fits.len(),
                problems.text
            );
            (all, actual) = (all + fits.len(), actual + best);
        }
        assert!(
            actual as f64 >= least * all as f64,
            "{far:?}: {actual} of {all}"
        );
    }
}

/// A sine whose start is 40 % off in frequency is not left as the straight line that it becomes at infinite amplitude:
/// scipy's `curve_fit` finds 187, 154 and 131 of these 200, over 0.7, 1 and 1.5 units of x. Columns find as many.
#[test]
fn runaway_parameters_are_repeated_with_longer_steps() {
    for (length, least) in [(0.7, 175), (1.0, 157), (1.5, 135)] {
        let random = &mut Random(7);
        let x: Vec<f64> = (0..40).map(|j| f64::from(j) / 40.0 * length).collect();
        let mut y = Vec::new();
        let mut starts = Vec::new();
        for i in 0..200 {
            let [rate, phase, amplitude] = [
                0.8 + 0.8 * random.uniform(),
                TAU * random.uniform(),
                1.0 + 2.0 * random.uniform(),
            ];
            y.extend(
                x.iter()
                    .map(|x| amplitude * (TAU * rate * x + phase).sin() + 0.1 * random.normal()),
            );
            starts.extend([1.0, rate * if i % 2 == 0 { 0.6 } else { 1.4 }, 0.0]);
        }
        let curves = Curves::on_common_grid(x, y, starts);
        let fitter = CurveFitter::new(
            Formula::parse("a*sin(2*pi*k*x + t)").unwrap(),
            Device::cpu(),
        );
        let fits = fitter.fit(&curves).unwrap();
        let actual = fits
            .iter()
            .filter(|fit| fit.status.is_success() && fit.chi2 < 1.0)
            .count();
        let lines = fits
            .iter()
            .filter(|fit| fit.flags.contains(Flags::UNDETERMINED))
            .count();
        let columns = fitter.fit_columns(&curves).unwrap();
        let ends = columns.status.iter().zip(&columns.chi2);
        let in_columns = ends
            .filter(|(status, chi2)| status.is_success() && **chi2 < 1.0)
            .count();
        println!("{length}: {actual} found, {in_columns} in columns, {lines} at infinity");
        assert!(
            actual >= least && in_columns >= least && lines <= 12,
            "{length}: {actual}, {in_columns}, {lines}"
        );
    }
}
