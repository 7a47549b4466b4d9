//! Units of parameters that start at 0, from the data.

use super::data::Curve;
use crate::curve_model::CurveModel;
use crate::solver::recording::CustomInput;

/// Differences need the unit that they help to find.
const ATTEMPTS: usize = 4;

/// Measures parameters that start at 0, and may move, in shifts that change the model by as much as there are data,
/// √(Σ (w y)² / Σ (w ∂model)²), by `round`. Where the model does not tell, the units stay.
pub(super) fn find(model: &CurveModel, curve: &mut Curve, round: fn(f64) -> f64) {
    let unknown: Vec<usize> = curve.free().into_iter().filter(|&p| curve.start[p] == 0.0).collect();
    if unknown.is_empty() || model.needs_gpu() {
        return;
    }
    for _ in 0..ATTEMPTS {
        let input = CustomInput { x: &curve.x, parameters: &curve.start, limits: Some(curve.limits()) };
        let Some(rows) = model.rows(true, &input) else { return };
        let mut scale = curve.scale.clone();
        for &p in &unknown {
            let shift = shift(&rows, curve, p);
            scale[p] = if shift.is_finite() && shift > 0.0 { round(shift) } else { scale[p] };
        }
        if scale == curve.scale {
            return;
        }
        curve.scale = scale;
    }
}

/// That of parameter `p`, from the rows (1 + P, points) at the start.
fn shift(rows: &[f64], Curve { y, weight, .. }: &Curve, p: usize) -> f64 {
    let points = y.len();
    let norm = |row: &dyn Fn(usize) -> f64| {
        let used = (0..points).filter(|&j| weight[j] > 0.0);
        used.map(|j| (weight[j] * row(j)).powi(2)).sum::<f64>().sqrt()
    };
    let (data, slope) = (norm(&|j| y[j]), norm(&|j| rows[(1 + p) * points + j]));
    // a problem of residuals has no data
    if data > 0.0 { data / slope } else { norm(&|j| rows[j]) / slope }
}
