//! Coefficients of the natural spline through a table, and weights of the coefficients at one place.

use super::SplineAxis;

/// The four B-splines that are not zero at a place, and their derivatives. Twin of `spline_knots` in `knots.wgsl`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Knots {
    /// Index of the coefficient of the first one.
    pub cell: usize,
    pub value: [f64; 4],
    pub slope: [f64; 4],
}

impl Knots {
    /// Returns the cell and the four cubic B-splines, with slopes, that are not 0 at `t`, in steps from the first of
    /// `count` points. They are NaN at NaN.
    pub fn at(t: f64, count: usize) -> Knots {
        // 1. Find the cell, and the distances f and g from its ends. A NaN of `t` becomes cell 0.
        let inside = t.clamp(0.0, (count - 1) as f64);
        let cell = (inside as usize).min(count - 2);
        let f = inside - cell as f64;
        let g = 1.0 - f;
        // 2. Evaluate the B-splines there.
        let middle = |f: f64| (4.0 + f * f * (3.0 * f - 6.0)) / 6.0;
        let mut value = [g * g * g / 6.0, middle(f), middle(g), f * f * f / 6.0];
        let middle_slope = |f: f64| f * (1.5 * f - 2.0);
        let slope = [-0.5 * g * g, middle_slope(f), -middle_slope(g), 0.5 * f * f];
        // 3. Beyond the ends the spline is a straight line.
        for (value, slope) in value.iter_mut().zip(slope) {
            *value += (t - inside) * slope;
        }
        Knots { cell, value, slope }
    }
}

/// Computes the B-spline coefficients, (count + 2, …), of the natural cubic spline through `values` on a grid of 1 to 3
/// axes.
pub fn spline_coefficients(axes: &[SplineAxis], values: &[f64]) -> Vec<f64> {
    let mut table = values.to_vec();
    // Transform all lines along one axis after the other; each makes the table longer by two along its axis.
    for (d, axis) in axes.iter().enumerate() {
        let inner_count: usize = axes[d + 1..].iter().map(|axis| axis.count).product();
        let outer_count = table.len() / (axis.count * inner_count);
        let mut transformed = vec![0.0; outer_count * (axis.count + 2) * inner_count];
        for line in 0..outer_count * inner_count {
            let outer = line / inner_count;
            let inner = line % inner_count;
            let line_values: Vec<f64> = (0..axis.count)
                .map(|k| table[(outer * axis.count + k) * inner_count + inner])
                .collect();
            for (k, coefficient) in natural_spline(&line_values).into_iter().enumerate() {
                transformed[(outer * (axis.count + 2) + k) * inner_count + inner] = coefficient;
            }
        }
        table = transformed;
    }
    table
}

/// Computes the B-spline coefficients of the natural cubic spline through y: solves (c_{k−1} + 4 c_k + c_{k+1}) / 6 =
/// y_k, with no curvature at the ends.
fn natural_spline(y: &[f64]) -> Vec<f64> {
    let n = y.len();
    let mut c = vec![0.0; n + 2];
    c[1] = y[0];
    c[n] = y[n - 1];
    // Thomas' algorithm on the inner coefficients: `ratio` is the eliminated superdiagonal.
    let mut ratio = vec![0.0; n];
    for k in 1..n.saturating_sub(1) {
        let pivot = 1.0 / (4.0 - ratio[k - 1]);
        let end = if k == n - 2 { c[n] } else { 0.0 };
        ratio[k] = pivot;
        c[k + 1] = pivot * (6.0 * y[k] - end - c[k]);
    }
    for k in (1..n.saturating_sub(2)).rev() {
        c[k + 1] -= ratio[k] * c[k + 2];
    }
    c[0] = 2.0 * c[1] - c[2];
    c[n + 1] = 2.0 * c[n] - c[n - 1];
    c
}
