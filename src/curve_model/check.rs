//! Comparison of a model's own derivatives with differences of its values, for curves and for spectra.

/// Largest deviation of the derivatives by one parameter from central differences.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DerivativeCheck {
    /// Name of the parameter.
    pub parameter: String,
    /// Largest |derivative − difference| over all points, in units of the largest |difference|; NaN when either is not
    /// finite. Differences are good to about 1e-9; their own error is larger where values are much larger than what a
    /// parameter changes.
    pub error: f64,
    /// Name of the arm in which the point is a pixel of the template; empty for curves.
    pub arm: String,
    /// Index of the point with this error, from 0.
    pub point: usize,
    /// Value of the derivative at that point.
    pub derivative: f64,
    /// Difference at that point.
    pub difference: f64,
}

/// Compares two arrays of values and derivatives, (1 + P, n), and returns for each parameter the point where they
/// differ most.
pub(crate) fn compare(names: &[String], own: &[f64], differences: &[f64]) -> Vec<DerivativeCheck> {
    let points = own.len() / (1 + names.len());
    let row = |p: usize| (1 + p) * points..(2 + p) * points;
    names
        .iter()
        .enumerate()
        .map(|(p, name)| compare_row(name, &own[row(p)], &differences[row(p)]))
        .collect()
}

/// Returns the point at which derivatives by one parameter and differences are furthest apart, relative to the largest
/// difference.
pub(crate) fn compare_row(name: &str, derivatives: &[f64], differences: &[f64]) -> DerivativeCheck {
    let scale = differences.iter().fold(0.0, |largest: f64, difference| {
        largest.max(difference.abs())
    });
    let mut worst = DerivativeCheck {
        parameter: name.to_owned(),
        ..DerivativeCheck::default()
    };
    for (point, (&derivative, &difference)) in derivatives.iter().zip(differences).enumerate() {
        let deviation = (derivative - difference).abs();
        let error = if deviation == 0.0 {
            0.0
        } else {
            deviation / scale
        };
        if point == 0 || is_worse(error, worst.error) {
            worst = DerivativeCheck {
                error,
                point,
                derivative,
                difference,
                ..worst
            };
        }
    }
    worst
}

/// Returns whether an error is larger than another one; NaN is the worst.
pub(crate) fn is_worse(error: f64, other: f64) -> bool {
    error > other || (error.is_nan() && !other.is_nan())
}
