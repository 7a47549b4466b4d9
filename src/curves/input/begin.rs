//! First point and units of a curve's fit, where a start that lacks the data's scale leaves them open.
//!
//! A start of zero is measured by the data and the column of the Jacobian. Where model and data differ by a factor of
//! 10⁴, the parameters in which the model is linear begin at their least squares.

use crate::curves::ends::polish::CurveProblem;
use crate::curves::input::data::Curve;

/// Ratio of model to data at the start above which the model is out of scale.
const FAR: f64 = 1e4;
/// Ratio of a start to the shift that the data suggest below which the start's unit says nothing.
const NOTHING: f64 = 1e-15;
/// Largest factor by which rows may differ from 1 without being scaled.
const FAR_FROM_1: f64 = 1e6;
/// Largest size of rows in f32.
const LARGEST: f64 = 1e15;
/// Largest size of rows in f64.
const LARGEST_IN_F64: f64 = 1e100;
/// Share of its size by which a parameter is moved off a point where a derivative is not finite.
const BESIDE: f64 = 1e-3;
/// Maximum number of attempts to measure units: differences need the unit that they help to find.
const ATTEMPTS: usize = 4;

/// Chooses the point where a curve's fit begins and its parameters' units; `None` if these are the given start and its
/// own units.
///
/// Where model and data are out of scale, the parameters in which the model is linear begin at their least squares,
/// with the others at their starts. Parameters at 0 are measured by the data. `round` makes a unit from a value.
pub(crate) fn prepare(
    problem: &CurveProblem,
    round: fn(f64) -> f64,
) -> Option<(Vec<f64>, Vec<f64>)> {
    let Curve { start, scale, .. } = problem.curve;
    let begin = linear_start(problem).unwrap_or_else(|| start.clone());
    let scale = begin
        .iter()
        .zip(start)
        .zip(scale)
        .map(|((begin, start), scale)| match begin == start {
            true => *scale,
            false => round(*begin),
        });
    let scale = units(problem, &begin, scale.collect(), round);
    (begin != *start || scale != problem.curve.scale).then_some((begin, scale))
}

/// Returns a point beside a curve's first one where all derivatives are finite, if only derivatives are not finite
/// there: those by the offset of a square root that begins at 0. `None` elsewhere, or if there is no such point within
/// the bounds at which those parameters have an effect.
pub(crate) fn beside_singularity(problem: &CurveProblem) -> Option<Vec<f64>> {
    let curve = problem.curve;
    let begin = &curve.begin;
    let points = curve.y.len();
    let is_finite = |row: &[f64]| {
        row.iter()
            .zip(&curve.weight)
            .all(|(x, weight)| x.is_finite() || *weight == 0.0)
    };
    let rows = problem.evaluate_model(true, begin, &curve.scale)?;
    let (model, slopes) = rows.split_at(points);
    let free = curve.free();
    let singular: Vec<usize> = free
        .into_iter()
        .filter(|&p| !is_finite(&slopes[p * points..(p + 1) * points]))
        .collect();
    if !is_finite(model) || singular.is_empty() {
        return None;
    }
    let beside = |share: f64| {
        let mut trial = begin.clone();
        for &p in &singular {
            let shift = share * begin[p].abs().max(curve.scale[p]);
            trial[p] = (begin[p] + shift).clamp(curve.lower[p], curve.upper[p]);
        }
        trial
    };
    let is_regular = |trial: &Vec<f64>| {
        let rows = problem.evaluate_model(true, trial, &curve.scale);
        let acts = |rows: &[f64], p: usize| {
            norms(curve, &rows[(1 + p) * points..(2 + p) * points]).0 > 0.0
        };
        rows.is_some_and(|rows| {
            rows.chunks_exact(points).all(is_finite) && singular.iter().all(|p| acts(&rows, *p))
        })
    };
    [BESIDE, -BESIDE].into_iter().map(beside).find(is_regular)
}

/// Returns √(Σ (w v)²) over the points of positive weight w, for a row v of model values and for the data.
fn norms(Curve { y, weight, .. }: &Curve, row: &[f64]) -> (f64, f64) {
    let norm = |values: &[f64]| {
        let used = weight.iter().zip(values).filter(|(w, _)| **w > 0.0);
        used.map(|(w, value)| (w * value).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    (norm(row), norm(y))
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
    let free = curve.free();
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
    let (length, data) = norms(
        curve,
        &problem.evaluate_model(false, &curve.start, &curve.scale)?,
    );
    if !(data > 0.0 && length.is_finite()) || (length < FAR * data && data < FAR * length) {
        return None;
    }
    // from 0: beside their starts they might be lost
    let mut begin = curve.start.clone();
    linear.iter().for_each(|&p| begin[p] = 0.0);
    let delta = problem
        .linearise(&begin)?
        .gauss_newton_step(&linear, &begin)?;
    linear.iter().zip(delta).for_each(|(&p, d)| begin[p] = d);
    let inside = |p: &usize| {
        begin[*p].is_finite() && curve.lower[*p] < begin[*p] && begin[*p] < curve.upper[*p]
    };
    linear.iter().all(inside).then_some(begin)
}

/// Returns units in which parameters at 0, or as good as 0, are measured by the shift that changes the model by as much
/// as the data, √(Σ (w y)² / Σ (w ∂model)²). Where that shift is not finite, the units stay.
fn units(
    problem: &CurveProblem,
    begin: &[f64],
    mut scale: Vec<f64>,
    round: fn(f64) -> f64,
) -> Vec<f64> {
    let curve = problem.curve;
    let unknown: Vec<usize> = curve
        .free()
        .into_iter()
        .filter(|&p| is_negligible(begin[p], 1.0))
        .collect();
    let points = curve.y.len();
    for _ in 0..if unknown.is_empty() { 0 } else { ATTEMPTS } {
        let Some(rows) = problem.evaluate_model(true, begin, &scale) else {
            break;
        };
        let before = scale.clone();
        for &p in &unknown {
            let (slope, data) = norms(curve, &rows[(1 + p) * points..(2 + p) * points]);
            // a problem of residuals has no data
            let shift = if data > 0.0 {
                data
            } else {
                norms(curve, &rows[..points]).0
            } / slope;
            let known = shift.is_finite() && is_negligible(begin[p], shift);
            scale[p] = if known && shift > 0.0 {
                round(shift)
            } else {
                scale[p]
            };
        }
        if scale == before {
            break;
        }
    }
    scale
}

/// Returns whether a parameter's start is 0, or negligible beside `shift`, a change of the parameter.
pub(crate) fn is_negligible(start: f64, shift: f64) -> bool {
    start == 0.0 || start.abs() < NOTHING * shift
}

/// Returns the power of two by which a curve's weighted residuals are multiplied so that their squares stay in the
/// solver's range. Where the data are far from 1 their size becomes about 1, or less where the model at the first point
/// would otherwise be too large.
pub(crate) fn row_factor(problem: &CurveProblem, in_f32: bool) -> f64 {
    let curve = problem.curve;
    let model = || problem.evaluate_model(false, &curve.begin, &curve.scale);
    let root = (curve.used as f64).sqrt();
    let data = norms(curve, &[]).1 / root;
    // a problem of residuals has no data
    let size = if data > 0.0 {
        data
    } else {
        model().map_or(1.0, |model| norms(curve, &model).0 / root)
    };
    if !(size > 0.0 && size.is_finite()) || (1.0 / FAR_FROM_1..=FAR_FROM_1).contains(&size) {
        return 1.0;
    }
    let length = model().map_or(0.0, |model| norms(curve, &model).0 / root);
    let least = if length.is_finite() {
        size.max(length / if in_f32 { LARGEST } else { LARGEST_IN_F64 })
    } else {
        size
    };
    (-least.log2().round()).exp2()
}

/// Largest rounding of a column's numbers by f32, as a share of the column's range.
const COARSEST: f64 = 1e-3;

/// Returns whether a curve can be fitted in f32, which must hold predictors and data with enough digits, and the
/// squares of the rows.
pub(crate) fn suits_f32(curve: &Curve) -> bool {
    let largest = |of: &dyn Fn(f64, f64) -> f64| {
        let used = curve
            .y
            .iter()
            .zip(&curve.weight)
            .filter(|(_, weight)| **weight > 0.0);
        used.map(|(y, weight)| of(*y, *weight).abs())
            .fold(0.0, f64::max)
    };
    let holds = |size: f64, most: f64| size == 0.0 || (1.0 / most..=most).contains(&size);
    let columns = curve
        .x
        .chunks_exact(curve.y.len().max(1))
        .chain([&curve.y[..]]);
    holds(largest(&|y, _| y), LARGEST * LARGEST)
        && holds(curve.gain * largest(&|y, weight| y * weight), LARGEST)
        && columns
            .into_iter()
            .all(|column| resolves(column, &curve.weight))
}

/// Returns whether f32 rounds a column's numbers, where `weight` is not 0, by at most a thousandth of their range: a
/// large offset may leave no digits for the differences.
fn resolves(column: &[f64], weight: &[f64]) -> bool {
    let used = || {
        column
            .iter()
            .zip(weight)
            .filter(|(_, weight)| **weight > 0.0)
            .map(|(x, _)| *x)
    };
    let (low, high) = used().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
        (low.min(x), high.max(x))
    });
    let rounding = low.abs().max(high.abs()) * f64::from(f32::EPSILON) / 2.0;
    high <= low || rounding <= COARSEST * (high - low)
}
