//! Steps of differences where a parameter's own size says little, and where a function computes in f32.

use popfit::{Closure, CurveFit, CurveFitter, Curves, Device, Formula};

const CURVES: usize = 200;
const POINTS: usize = 50;
/// Parameters of the lines: depth, centre, width and continuum.
const NAMES: [&str; 4] = ["a", "m", "s", "c"];

fn line(x: f64, p: &[f64]) -> f64 {
    p[3] - p[0] * (-0.5 * ((x - p[1]) / p[2]).powi(2)).exp()
}

/// Noisy absorption lines of a width around a wavelength.
fn lines(centre: f64, width: f64) -> Curves<'static> {
    let x: Vec<f64> = (0..POINTS)
        .map(|j| centre + 0.2 * width * (j as f64 - 0.5 * POINTS as f64))
        .collect();
    let truth = |k: usize| {
        [
            0.5 + 0.002 * k as f64,
            centre + 0.3 * width * (k as f64).sin(),
            width,
            1.0,
        ]
    };
    let noise = |i: usize| 0.02 * (1.7 * i as f64).sin();
    let y = (0..CURVES * POINTS)
        .map(|i| line(x[i % POINTS], &truth(i / POINTS)) + noise(i))
        .collect::<Vec<f64>>();
    Curves::on_common_grid(x, y, [0.6, centre, 1.2 * width, 1.1].repeat(CURVES))
}

/// Compares fits with those of the formula.
fn compare(name: &str, actual: &[CurveFit], expected: &[CurveFit], tolerance: f64) {
    for (k, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert!(
            actual.status.is_success() && expected.status.is_success(),
            "{name} {k}: {actual:?}"
        );
        for p in 0..NAMES.len() {
            let error = expected.errors[p];
            let distance = (actual.parameters[p] - expected.parameters[p]).abs();
            assert!(
                distance <= tolerance * error,
                "{name} {k} {p}: {distance} of {error}"
            );
            assert!(
                (actual.errors[p] - error).abs() <= tolerance * error,
                "{name} {k} {p}: {} {error}",
                actual.errors[p]
            );
        }
    }
}

/// A line of 0.05 Å at 6563 Å is as wide as the usual step; one of an hour at a Julian date is a hundredth of it.
#[test]
fn differences_of_narrow_lines_far_from_zero_agree_with_the_formula() {
    let formula =
        Formula::parse_exactly("c - a * exp(-((x - m) / s)^2 / 2)", &["x"], &NAMES).unwrap();
    for (centre, width) in [
        (6563.0, 1.0),
        (6563.0, 0.05),
        (2_450_000.5, 0.04),
        (-1e5, 0.3),
    ] {
        let curves = lines(centre, width);
        let closure = Closure::new(&["x"], &NAMES, |x, p, y| {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = line(*x, p))
        })
        .unwrap();
        let expected = CurveFitter::new(formula.clone(), Device::cpu())
            .fit(&curves)
            .unwrap();
        let actual = CurveFitter::new(closure, Device::cpu())
            .fit(&curves)
            .unwrap();
        compare(&format!("{centre} {width}"), &actual, &expected, 1e-3);
    }
}

/// A function that computes in f32 does not resolve the steps of f64.
#[test]
fn functions_in_single_precision_converge() {
    let formula =
        Formula::parse_exactly("c - a * exp(-((x - m) / s)^2 / 2)", &["x"], &NAMES).unwrap();
    let single = |x: &[f64], p: &[f64], y: &mut [f64]| {
        let [a, m, s, c] = [p[0] as f32, p[1] as f32, p[2] as f32, p[3] as f32];
        let t = |x: f64| (x as f32 - m) / s;
        y.iter_mut()
            .zip(x)
            .for_each(|(y, x)| *y = f64::from(c - a * (-0.5 * t(*x) * t(*x)).exp()));
    };
    let curves = lines(2.0, 1.0);
    let expected = CurveFitter::new(formula, Device::cpu())
        .fit(&curves)
        .unwrap();
    let actual = CurveFitter::new(Closure::new(&["x"], &NAMES, single).unwrap(), Device::cpu())
        .fit(&curves)
        .unwrap();
    compare("f32", &actual, &expected, 0.02);
}
