//! Comparison of a model's own derivatives with differences of its values.

use super::CurveModel;
use crate::error::Result;

/// Largest deviation of the derivatives by one parameter from differences.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DerivativeCheck {
    /// Name of the parameter.
    pub parameter: String,
    /// Largest |derivative − difference| over all points, in units of the largest |difference|; NaN when either is not
    /// finite. Differences are good to about 1e-9; their own error is larger where values are much larger than what a
    /// parameter changes.
    pub error: f64,
    /// Index of the point with this error, from 0.
    pub point: usize,
    /// Value of the derivative at that point.
    pub derivative: f64,
    /// Difference at that point.
    pub difference: f64,
}

/// Compares a model's own derivatives with central differences in f64, and returns for each parameter the worst point.
/// `x` is (predictors, n). [`CurveFitter::check_jacobian`](crate::CurveFitter::check_jacobian) checks what a device
/// computes.
///
/// ```
/// let model = popfit::Closure::new(&["x"], &["a", "k"], |x, p, y| {
///     y.iter_mut().zip(x).for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp());
/// })?
/// .derivatives(|x, p, rows| {
///     for (j, x) in x.iter().enumerate() {
///         rows[j] = (-p[1] * x).exp();
///         rows[3 + j] = p[0] * x * (-p[1] * x).exp(); // its sign is wrong
///     }
/// });
/// let checks = popfit::check_jacobian(model, &[0.0, 1.0, 2.0], &[3.0, 0.5])?;
/// assert!(checks[0].error < 1e-9 && checks[1].error > 1.0);
/// # Ok::<(), popfit::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) if `x` or `parameters` has the wrong length, and
/// [`Error::Model`](crate::Error::Model) if the model has no derivatives of its own in Rust or fails at these points.
pub fn check_jacobian(model: impl Into<CurveModel>, x: &[f64], parameters: &[f64]) -> Result<Vec<DerivativeCheck>> {
    let model = model.into();
    let own = model.own_rows(x, parameters)?;
    let differences = model.clone().differences(true).linearise(x, parameters)?;
    Ok(compare(model.parameters(), &own, &differences))
}

/// Compares two arrays of values and derivatives, (1 + P, n), and returns for each parameter the point where they
/// differ most.
pub(crate) fn compare(names: &[String], own: &[f64], differences: &[f64]) -> Vec<DerivativeCheck> {
    let points = own.len() / (1 + names.len());
    let row = |p: usize| (1 + p) * points..(2 + p) * points;
    names.iter().enumerate().map(|(p, name)| compare_row(name, &own[row(p)], &differences[row(p)])).collect()
}

/// Returns the point at which derivatives by one parameter and differences are furthest apart, relative to the largest
/// difference.
fn compare_row(name: &str, derivatives: &[f64], differences: &[f64]) -> DerivativeCheck {
    let scale = differences.iter().fold(0.0, |m: f64, d| m.max(d.abs()));
    let mut check =
        DerivativeCheck { parameter: name.to_owned(), error: 0.0, point: 0, derivative: 0.0, difference: 0.0 };
    for (point, (derivative, difference)) in derivatives.iter().copied().zip(differences.iter().copied()).enumerate() {
        let apart = (derivative - difference).abs();
        let error = if apart == 0.0 { 0.0 } else { apart / scale };
        // NaN is the worst
        let worse = error > check.error || (error.is_nan() && !check.error.is_nan());
        if worse || point == 0 {
            check = DerivativeCheck { error, point, derivative, difference, ..check };
        }
    }
    check
}
