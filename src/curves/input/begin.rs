//! First point and units of a curve's fit, where the start does not have the scale of the data.
//!
//! The unit of a parameter that starts at zero follows from the data and the column of the Jacobian. Where model and
//! data differ by a factor of 10⁴, the parameters in which the model is linear begin at their least squares.

use crate::curves::ends::polish::CurveProblem;
use crate::curves::input::data::Curve;

/// Ratio of model to data at the start above which the model is out of scale.
const MAX_MODEL_PER_DATA: f64 = 1e4;
/// Ratio of a start to the shift that the data suggest, below which the start does not determine the unit.
const MIN_START_PER_SHIFT: f64 = 1e-15;
/// Largest factor by which rows may differ from 1 without being scaled.
const MAX_UNSCALED_ROW_SIZE: f64 = 1e6;
/// Largest size of rows in f32.
const MAX_ROW_SIZE_IN_F32: f64 = 1e15;
/// Largest size of rows in f64.
const MAX_ROW_SIZE_IN_F64: f64 = 1e100;
/// Share of its size by which a parameter is moved off a point where a derivative is not finite.
const SHIFT_OFF_SINGULARITY: f64 = 1e-3;
/// Maximum number of attempts to measure units: differences need the unit that they help to find.
const MAX_UNIT_ATTEMPTS: usize = 4;

/// Chooses the point where a curve's fit begins and its parameters' units; `None` if these are the given start and its
/// own units.
///
/// Where model and data are out of scale, the parameters in which the model is linear begin at their least squares,
/// with the others at their starts. Parameters at 0 are measured by the data. `round` makes a unit from a value.
pub(crate) fn choose_first_point(
    problem: &CurveProblem,
    round: fn(f64) -> f64,
) -> Option<(Vec<f64>, Vec<f64>)> {
    let Curve { start, scale, .. } = problem.curve;
    let first_point = linear_start(problem).unwrap_or_else(|| start.clone());
    let units_of_first_point = (0..first_point.len())
        .map(|p| {
            if first_point[p] == start[p] {
                scale[p]
            } else {
                round(first_point[p])
            }
        })
        .collect();
    let units = measure_units(problem, &first_point, units_of_first_point, round);
    (first_point != *start || units != *scale).then_some((first_point, units))
}

/// Returns a point beside a curve's first one where all derivatives are finite, if only derivatives are not finite
/// there, such as those by the offset of a square root that begins at 0. `None` elsewhere, or if there is no such point
/// within the bounds at which those parameters have an effect.
pub(crate) fn beside_singularity(problem: &CurveProblem) -> Option<Vec<f64>> {
    let curve = problem.curve;
    let first_point = &curve.first_point;
    let points = curve.y.len();
    let is_finite = |row: &[f64]| {
        row.iter()
            .zip(&curve.weight)
            .all(|(x, weight)| x.is_finite() || *weight == 0.0)
    };
    // 1. Find the parameters by which derivatives are not finite.
    let rows = problem.evaluate_model(true, first_point, &curve.scale)?;
    let (model, derivatives) = rows.split_at(points);
    let mut singular = curve.free_parameters();
    singular.retain(|&p| !is_finite(&derivatives[p * points..(p + 1) * points]));
    if !is_finite(model) || singular.is_empty() {
        return None;
    }
    // 2. Move them a little upwards, or else downwards.
    for share in [SHIFT_OFF_SINGULARITY, -SHIFT_OFF_SINGULARITY] {
        let mut trial_point = first_point.clone();
        for &p in &singular {
            let shift = share * first_point[p].abs().max(curve.scale[p]);
            trial_point[p] = (first_point[p] + shift).clamp(curve.lower[p], curve.upper[p]);
        }
        // 3. Take the first point where all derivatives are finite and those parameters have an effect.
        let Some(rows) = problem.evaluate_model(true, &trial_point, &curve.scale) else {
            continue;
        };
        let has_effect = |p: usize| {
            let derivative = &rows[(1 + p) * points..(2 + p) * points];
            weighted_norm(curve, derivative) > 0.0
        };
        if rows.chunks_exact(points).all(is_finite) && singular.iter().all(|&p| has_effect(p)) {
            return Some(trial_point);
        }
    }
    None
}

/// Returns √(Σ (w v)²) over the points of positive weight w, for a row v of model values or data.
fn weighted_norm(curve: &Curve, row: &[f64]) -> f64 {
    let unmasked = curve.weight.iter().zip(row).filter(|(w, _)| **w > 0.0);
    unmasked
        .map(|(w, value)| (w * value).powi(2))
        .sum::<f64>()
        .sqrt()
}

/// Returns the start with its linear parameters at their least-squares values, if model and data differ widely in size;
/// else `None`.
fn linear_start(problem: &CurveProblem) -> Option<Vec<f64>> {
    let CurveProblem {
        model,
        curve,
        estimator,
        ..
    } = problem;
    // 1. Only free linear parameters of a formula under least squares can be moved.
    let free = curve.free_parameters();
    let linear: Vec<usize> = model
        .formula()?
        .linear()
        .iter()
        .copied()
        .filter(|p| free.contains(p))
        .collect();
    if linear.is_empty() || !estimator.is_least_squares() {
        return None;
    }
    // 2. Compare the sizes of model and data.
    let model_at_start = problem.evaluate_model(false, &curve.start, &curve.scale)?;
    let model_size = weighted_norm(curve, &model_at_start);
    let data_size = weighted_norm(curve, &curve.y);
    let is_comparable =
        model_size < MAX_MODEL_PER_DATA * data_size && data_size < MAX_MODEL_PER_DATA * model_size;
    if !(data_size > 0.0 && model_size.is_finite()) || is_comparable {
        return None;
    }
    // 3. Solve from 0: added to their starts the solution might be lost to rounding.
    let mut first_point = curve.start.clone();
    for &p in &linear {
        first_point[p] = 0.0;
    }
    let solution = problem
        .linearise(&first_point)?
        .gauss_newton_step(&linear, &first_point)?;
    for (&p, value) in linear.iter().zip(solution) {
        first_point[p] = value;
    }
    let is_inside = |p: &usize| {
        first_point[*p].is_finite()
            && curve.lower[*p] < first_point[*p]
            && first_point[*p] < curve.upper[*p]
    };
    linear.iter().all(is_inside).then_some(first_point)
}

/// Returns the units with new ones for parameters at 0 or negligibly far from it: the shift that changes the model by
/// as much as the data, √(Σ (w y)² / Σ (w ∂model)²). Where that shift is not finite, the units stay.
fn measure_units(
    problem: &CurveProblem,
    first_point: &[f64],
    mut units: Vec<f64>,
    round: fn(f64) -> f64,
) -> Vec<f64> {
    let curve = problem.curve;
    let mut unmeasured = curve.free_parameters();
    unmeasured.retain(|&p| is_negligible(first_point[p], 1.0));
    if unmeasured.is_empty() {
        return units;
    }
    let points = curve.y.len();
    let data_size = weighted_norm(curve, &curve.y);
    // Derivatives by differences depend on the units, so that a new unit changes the measure.
    for _ in 0..MAX_UNIT_ATTEMPTS {
        let Some(rows) = problem.evaluate_model(true, first_point, &units) else {
            break;
        };
        let previous_units = units.clone();
        for &p in &unmeasured {
            let derivative_size = weighted_norm(curve, &rows[(1 + p) * points..(2 + p) * points]);
            // A problem of residuals has no data.
            let size = if data_size > 0.0 {
                data_size
            } else {
                weighted_norm(curve, &rows[..points])
            };
            let shift = size / derivative_size;
            if shift.is_finite() && is_negligible(first_point[p], shift) && shift > 0.0 {
                units[p] = round(shift);
            }
        }
        if units == previous_units {
            break;
        }
    }
    units
}

/// Returns whether a parameter's start is 0, or negligible beside `shift`, a change of the parameter.
pub(crate) fn is_negligible(start: f64, shift: f64) -> bool {
    start == 0.0 || start.abs() < MIN_START_PER_SHIFT * shift
}

/// Returns the power of two by which a curve's weighted residuals are multiplied so that their squares stay in the
/// solver's range. Where the data are far from 1 their size becomes about 1, or less where the model at the first point
/// would otherwise be too large.
pub(crate) fn row_factor(problem: &CurveProblem, in_f32: bool) -> f64 {
    let curve = problem.curve;
    let root_of_points = (curve.unmasked_points as f64).sqrt();
    let model_size = || {
        problem
            .evaluate_model(false, &curve.first_point, &curve.scale)
            .map(|model| weighted_norm(curve, &model) / root_of_points)
    };
    // 1. Measure the data, or the model, if a problem of residuals has no data.
    let data_size = weighted_norm(curve, &curve.y) / root_of_points;
    let size = if data_size > 0.0 {
        data_size
    } else {
        model_size().unwrap_or(1.0)
    };
    let is_usual = (1.0 / MAX_UNSCALED_ROW_SIZE..=MAX_UNSCALED_ROW_SIZE).contains(&size);
    if !(size > 0.0 && size.is_finite()) || is_usual {
        return 1.0;
    }
    // 2. Divide by this size, or by more if the model would be too large.
    let max_row_size = if in_f32 {
        MAX_ROW_SIZE_IN_F32
    } else {
        MAX_ROW_SIZE_IN_F64
    };
    let model_size = model_size().unwrap_or(0.0);
    let divisor = if model_size.is_finite() {
        size.max(model_size / max_row_size)
    } else {
        size
    };
    (-divisor.log2().round()).exp2()
}

/// Largest rounding of a column's numbers by f32, as a share of the column's range.
const MAX_COLUMN_ROUNDING: f64 = 1e-3;

/// Returns whether a curve can be fitted in f32, which must hold predictors and data with enough digits, and the
/// squares of the rows.
pub(crate) fn suits_f32(curve: &Curve) -> bool {
    let mut max_y: f64 = 0.0;
    let mut max_weighted_y: f64 = 0.0;
    for (y, weight) in curve.y.iter().zip(&curve.weight) {
        if *weight > 0.0 {
            max_y = max_y.max(y.abs());
            max_weighted_y = max_weighted_y.max((y * weight).abs());
        }
    }
    let is_in_range =
        |size: f64, largest: f64| size == 0.0 || (1.0 / largest..=largest).contains(&size);
    let mut columns = curve
        .x
        .chunks_exact(curve.y.len().max(1))
        .chain([&curve.y[..]]);
    is_in_range(max_y, MAX_ROW_SIZE_IN_F32 * MAX_ROW_SIZE_IN_F32)
        && is_in_range(curve.row_factor * max_weighted_y, MAX_ROW_SIZE_IN_F32)
        && columns.all(|column| f32_resolves(column, &curve.weight))
}

/// Returns whether f32 rounds a column's numbers, where `weight` is not 0, by at most a thousandth of their range: a
/// large offset may leave no digits for the differences.
fn f32_resolves(column: &[f64], weight: &[f64]) -> bool {
    let mut low = f64::INFINITY;
    let mut high = f64::NEG_INFINITY;
    for (x, weight) in column.iter().zip(weight) {
        if *weight > 0.0 {
            low = low.min(*x);
            high = high.max(*x);
        }
    }
    let rounding = low.abs().max(high.abs()) * f64::from(f32::EPSILON) / 2.0;
    high <= low || rounding <= MAX_COLUMN_ROUNDING * (high - low)
}
