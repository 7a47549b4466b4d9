//! Curves that several tests fit.

/// Values of a function at 20 points from 0 to 3.8, with a scatter of 0.01.
pub fn twenty(value: impl Fn(f64) -> f64) -> (Vec<f64>, Vec<f64>) {
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let y = x
        .iter()
        .map(|&x| value(x) + 0.01 * (9.0 * x).sin())
        .collect();
    (x, y)
}
