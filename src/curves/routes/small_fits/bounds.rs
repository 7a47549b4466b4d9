//! Bounds of small fits.

use std::ops::Range;

use crate::curves::CurveRun;
use crate::curves::input::data::Curves;
use crate::values::Values;

/// Returns lower and upper bounds of a range of curves, (P) or (curves, P), with held parameters at their `starts`;
/// `None` where all bounds are infinite.
pub(super) fn collect_bounds(
    fitter: &CurveRun,
    curves: &Curves,
    range: Range<usize>,
    starts: &[f64],
) -> Option<(Vec<f64>, Vec<f64>)> {
    // 1. Without held parameters and bounds of single curves the fitter's bounds hold for all.
    let any_held = fitter.held.iter().any(|held| *held);
    let curves_have_bounds = curves.lower.is_some() || curves.upper.is_some();
    if !any_held && !curves_have_bounds {
        let all_infinite = fitter
            .lower
            .iter()
            .chain(&fitter.upper)
            .all(|x| x.is_infinite());
        return (!all_infinite).then(|| (fitter.lower.clone(), fitter.upper.clone()));
    }
    // 2. Otherwise each curve has bounds of its own, which are its start where a parameter is held.
    let count = fitter.held.len();
    let bounds_of_curves = |of_curves: &Option<Values>, of_fitter: &[f64]| -> Vec<f64> {
        starts
            .iter()
            .enumerate()
            .map(|(i, start)| match of_curves {
                _ if fitter.held[i % count] => *start,
                Some(bounds) => bounds.at(range.start * count + i),
                None => of_fitter[i % count],
            })
            .collect()
    };
    Some((
        bounds_of_curves(&curves.lower, &fitter.lower),
        bounds_of_curves(&curves.upper, &fitter.upper),
    ))
}

/// Returns the lower and upper bounds of fit `k` of those of some fits, (P) or (fits, P); empty where there are none.
pub(super) fn bounds_of<'a>(
    bounds: Option<(&'a [f64], &'a [f64])>,
    k: usize,
    count: usize,
) -> (&'a [f64], &'a [f64]) {
    match bounds {
        Some((lower, upper)) if lower.len() == count => (lower, upper),
        Some((lower, upper)) => (
            &lower[k * count..(k + 1) * count],
            &upper[k * count..(k + 1) * count],
        ),
        None => (&[], &[]),
    }
}

/// Returns how many of `count` parameters may move: those whose lower bound is below the upper one, or all without
/// bounds.
pub(super) fn count_free(lower: &[f64], upper: &[f64], count: usize) -> usize {
    if lower.is_empty() {
        count
    } else {
        (0..count).filter(|&p| lower[p] < upper[p]).count()
    }
}
