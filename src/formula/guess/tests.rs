use crate::{Error, Formula};

/// Returns `count` irregular points, scaled, which no model in particular fits.
fn irregular_points(
    formula: &Formula,
    count: usize,
    x_scale: f64,
    y_scale: f64,
) -> (Vec<f64>, Vec<f64>) {
    let place = |k: usize| (0.5 + 0.618_034 * k as f64).fract();
    let x = (0..formula.predictors().len() * count)
        .map(|k| x_scale * (0.1 + place(k)))
        .collect();
    let y = (0..count)
        .map(|k| y_scale * (2.0 + place(3 * k) + (6.0 * place(k)).sin()))
        .collect();
    (x, y)
}

/// Returns the names of all built-in models, with some polynomials.
fn model_names() -> impl Iterator<Item = &'static str> {
    Formula::builtins().chain(["polynomial(0)", "polynomial(30)"])
}

#[test]
fn guesses_are_finite_whatever_the_points_are() {
    for name in model_names() {
        let formula = Formula::builtin(name).unwrap();
        let check = |case: &str, x: &[f64], y: &[f64]| {
            let guess = formula.guess(x, y).unwrap();
            assert_eq!(guess.len(), formula.parameters().len());
            assert!(
                guess.iter().all(|value| value.is_finite()),
                "{name}, {case}: {guess:?}"
            );
            guess
        };
        for count in [1, 2, 3, 5, 40] {
            let (x, y) = irregular_points(&formula, count, 1.0, 1.0);
            check("few points", &x, &y);
            check("constant", &x, &vec![3.0; count]);
            check("zeros", &x, &vec![0.0; count]);
            check("negative", &x.iter().map(|x| -x).collect::<Vec<_>>(), &y);
            check("at one place", &vec![2.0; x.len()], &y);
            check("at zero", &vec![0.0; x.len()], &y);
            for x_scale in [1e-300, 1e-200, 1e200, 1e300] {
                for y_scale in [1e-200, 1.0, 1e200] {
                    let (x, y) = irregular_points(&formula, count, x_scale, y_scale);
                    check("far scales", &x, &y);
                    check(
                        "far scales",
                        &y.repeat(formula.predictors().len()),
                        &x[..count],
                    );
                }
            }
        }
        check(
            "all numbers",
            &[-1e308, 1e308].repeat(formula.predictors().len()),
            &[1e308, -1e308],
        );
    }
}

#[test]
fn guesses_skip_points_that_are_not_finite_and_ignore_the_order() {
    for name in model_names() {
        let formula = Formula::builtin(name).unwrap();
        let (x, y) = irregular_points(&formula, 40, 1.0, 1.0);
        let expected = formula.guess(&x, &y).unwrap();
        let rearranged = |order: &dyn Fn(usize) -> Option<usize>| {
            let arrange_row = |row: &[f64]| {
                (0..42)
                    .map(|k| order(k).map_or(f64::NAN, |j| row[j]))
                    .collect::<Vec<_>>()
            };
            (
                x.chunks(40).flat_map(arrange_row).collect::<Vec<_>>(),
                arrange_row(&y),
            )
        };
        let (x, mut y) = rearranged(&|k| (k % 21 != 3).then(|| k - (k + 17) / 21));
        y[3] = 1.0;
        y[24] = f64::INFINITY;
        assert_eq!(formula.guess(&x, &y).unwrap(), expected, "{name}");
        let error = formula.guess(&vec![f64::NAN; x.len()], &y).unwrap_err();
        assert!(
            matches!(&error, Error::Usage(message) if message.contains("of 42 points none is finite"))
        );
        assert!(matches!(formula.guess(&[], &[]), Err(Error::Usage(_))));
        assert!(matches!(
            formula.guess(&x, &y[1..]),
            Err(Error::ShapeMismatch { .. })
        ));
    }
    let peak = Formula::builtin("gauss1d").unwrap();
    let (x, y) = irregular_points(&peak, 40, 1.0, 1.0);
    let reversed = |row: &[f64]| row.iter().rev().copied().collect::<Vec<_>>();
    assert_eq!(
        peak.guess(&reversed(&x), &reversed(&y)).unwrap(),
        peak.guess(&x, &y).unwrap()
    );
}

#[test]
fn units_of_powers_of_two_change_no_digit() {
    let formula = Formula::builtin("gauss1d").unwrap();
    let (x, y) = irregular_points(&formula, 40, 1.0, 1.0);
    let expected = formula.guess(&x, &y).unwrap();
    let x_unit = 2f64.powi(600);
    let y_unit = 2f64.powi(-500);
    let scaled = |row: &[f64], unit: f64| row.iter().map(|value| value * unit).collect::<Vec<_>>();
    let guess = formula
        .guess(&scaled(&x, x_unit), &scaled(&y, y_unit))
        .unwrap();
    let unscaled: Vec<f64> = guess
        .iter()
        .zip([y_unit, x_unit, x_unit, y_unit])
        .map(|(value, unit)| value / unit)
        .collect();
    assert_eq!(unscaled, expected);
}

#[test]
fn guesses_from_exact_values_are_near_the_parameters() {
    let x: Vec<f64> = (0..60).map(|j| 0.1 + 0.11 * f64::from(j)).collect();
    for (name, truth) in [
        ("linear1d", vec![2.0, -0.7]),
        ("polynomial(3)", vec![2.0, -0.7, 0.4, 0.1]),
        ("gauss1d", vec![-3.0, 2.2, 0.4, 1.0]),
        ("exponential", vec![-3.0, -0.4, 1.0]),
        ("logistic4", vec![3.0, 2.2, 1.4, -1.0]),
        ("power_law", vec![-3.0, -1.4]),
        ("damped_sine", vec![3.0, 0.2, 0.8, 1.4, 2.0]),
    ] {
        let formula = Formula::builtin(name).unwrap();
        let guess = formula
            .guess(&x, &formula.values(&x, &truth).unwrap())
            .unwrap();
        for (guess, truth) in guess.iter().zip(&truth) {
            assert!(
                (guess / truth - 1.0).abs() < 0.02,
                "{name}: {guess} {truth}"
            );
        }
    }
    let helix = Formula::builtin("fletcher_powell_helix").unwrap();
    assert_eq!(
        helix.guess(&[0.0, 1.0, 2.0], &[0.0; 3]).unwrap(),
        [-1.0, 0.0, 0.0]
    );
}

#[test]
fn built_in_models_are_recognised_by_their_formula() {
    let peak = Formula::builtin("gauss1d").unwrap();
    let (x, y) = irregular_points(&peak, 40, 1.0, 1.0);
    let expected = peak.guess(&x, &y).unwrap();
    let typed = Formula::parse_with("h * exp(-(t-t0)**2 / (2*w**2)) + base", &["t"]).unwrap();
    assert_eq!(typed.guess(&x, &y).unwrap(), expected);
    assert_eq!(
        peak.with_prefix("g1_").unwrap().guess(&x, &y).unwrap(),
        expected
    );
    let reordered = peak
        .clone()
        .with_parameters(&["c", "s", "m", "a"])
        .unwrap()
        .guess(&x, &y)
        .unwrap();
    assert_eq!(
        reordered,
        expected.iter().rev().copied().collect::<Vec<_>>()
    );
    // A prefix renames terms, too.
    let tail = Formula::builtin("emg").unwrap();
    assert_eq!(
        tail.with_prefix("e_").unwrap().guess(&x, &y).unwrap(),
        tail.guess(&x, &y).unwrap()
    );
    for text in [
        "a*exp(-(x - m)^2/(2*s^2)) + m",
        "a*exp(-(x - m)^2/(3*s^2)) + c",
        "a*exp(-(c - m)^2/(2*s^2)) + x",
    ] {
        let message = Formula::parse(text)
            .unwrap()
            .guess(&x, &y)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains(text) && message.contains("give starts"),
            "{message}"
        );
    }
    let names = ["a", "m", "s", "c", "unused"];
    assert!(
        Formula::parse_exactly(peak.text(), &["x"], &names)
            .unwrap()
            .guess(&x, &y)
            .is_err()
    );
}
