//! Where a curve's fit begins, and in what units: what a start that lacks the data's scale leaves open.

use super::data::Curve;
use super::polish::Problem;
use crate::solver::Estimator;

/// A model is out of scale where it and the data differ by more than this factor, at the start.
const FAR: f64 = 1e4;
/// Differences need the unit that they help to find.
const ATTEMPTS: usize = 4;

/// Prepares a curve, whose units are made by `round`: where model and data are out of scale, parameters in which the model is linear
/// begin at their least squares with the others at their starts; and parameters at 0 are measured by the data.
pub(super) fn prepare(problem: &Problem, round: fn(f64) -> f64) -> Option<(Vec<f64>, Vec<f64>)> {
    let Curve { start, scale, .. } = problem.curve;
    let begin = linear_start(problem).unwrap_or_else(|| start.clone());
    let scale = begin.iter().zip(start).zip(scale).map(|((begin, start), scale)| match begin == start {
        true => *scale,
        false => round(*begin),
    });
    let scale = units(problem, &begin, scale.collect(), round);
    (begin != *start || scale != problem.curve.scale).then_some((begin, scale))
}

/// Lengths of a row of the model's and of the data, weighted.
fn norms(Curve { y, weight, .. }: &Curve, row: &[f64]) -> (f64, f64) {
    let norm = |values: &[f64]| {
        let used = weight.iter().zip(values).filter(|(w, _)| **w > 0.0);
        used.map(|(w, value)| (w * value).powi(2)).sum::<f64>().sqrt()
    };
    (norm(row), norm(y))
}

fn linear_start(problem: &Problem) -> Option<Vec<f64>> {
    let Problem { model, curve, estimator, .. } = problem;
    let free = curve.free();
    let linear: Vec<usize> = model.formula()?.linear().iter().copied().filter(|p| free.contains(p)).collect();
    if linear.is_empty() || *estimator != Estimator::LeastSquares {
        return None;
    }
    let (length, data) = norms(curve, &problem.model_rows(false, &curve.start, &curve.scale)?);
    if !(data > 0.0 && length.is_finite()) || (length < FAR * data && data < FAR * length) {
        return None;
    }
    let rows = problem.rows(&curve.start)?;
    let delta = rows.step(&linear, &curve.start)?;
    let mut begin = curve.start.clone();
    linear.iter().zip(delta).for_each(|(&p, d)| begin[p] += d);
    let inside = |p: &usize| begin[*p].is_finite() && curve.lower[*p] < begin[*p] && begin[*p] < curve.upper[*p];
    linear.iter().all(inside).then_some(begin)
}

/// Measures parameters at 0 in shifts that change the model by as much as there are data, √(Σ (w y)² / Σ (w ∂model)²). Where the model
/// does not tell, the units stay.
fn units(problem: &Problem, begin: &[f64], mut scale: Vec<f64>, round: fn(f64) -> f64) -> Vec<f64> {
    let curve = problem.curve;
    let unknown: Vec<usize> = curve.free().into_iter().filter(|&p| begin[p] == 0.0).collect();
    let points = curve.y.len();
    for _ in 0..if unknown.is_empty() { 0 } else { ATTEMPTS } {
        let Some(rows) = problem.model_rows(true, begin, &scale) else { break };
        let before = scale.clone();
        for &p in &unknown {
            let (slope, data) = norms(curve, &rows[(1 + p) * points..(2 + p) * points]);
            // a problem of residuals has no data
            let shift = if data > 0.0 { data } else { norms(curve, &rows[..points]).0 } / slope;
            scale[p] = if shift.is_finite() && shift > 0.0 { round(shift) } else { scale[p] };
        }
        if scale == before {
            break;
        }
    }
    scale
}
