//! Bounds of small fits.

use std::ops::Range;

use crate::curves::CurveRun;
use crate::curves::input::data::Curves;
use crate::values::Values;

/// Returns lower and upper bounds of a range of curves, (P) or (curves, P), with held parameters at their `starts`;
/// `None` without bounds. That is where all are infinite.
pub(super) fn bounds(
    fitter: &CurveRun,
    curves: &Curves,
    some: Range<usize>,
    starts: &[f64],
) -> Option<(Vec<f64>, Vec<f64>)> {
    let held = fitter.held.iter().any(|held| *held);
    let own = curves.lower.is_some() || curves.upper.is_some();
    if !held && !own {
        let infinite = fitter
            .lower
            .iter()
            .chain(&fitter.upper)
            .all(|x| x.is_infinite());
        return (!infinite).then(|| (fitter.lower.clone(), fitter.upper.clone()));
    }
    let p = fitter.held.len();
    let each = |own: &Option<Values>, otherwise: &[f64]| -> Vec<f64> {
        let bound = |i: usize| {
            own.as_ref()
                .map_or(otherwise[i % p], |own| own.at(some.start * p + i))
        };
        starts
            .iter()
            .enumerate()
            .map(|(i, start)| if fitter.held[i % p] { *start } else { bound(i) })
            .collect()
    };
    Some((
        each(&curves.lower, &fitter.lower),
        each(&curves.upper, &fitter.upper),
    ))
}

/// Returns the lower and upper bounds of fit `k` of those of some fits, (P) or (fits, P); empty where there are none.
pub(super) fn bounds_of<'a>(
    bounds: Option<(&'a [f64], &'a [f64])>,
    k: usize,
    p: usize,
) -> (&'a [f64], &'a [f64]) {
    match bounds {
        Some((lower, upper)) if lower.len() == p => (lower, upper),
        Some((lower, upper)) => (&lower[k * p..(k + 1) * p], &upper[k * p..(k + 1) * p]),
        None => (&[], &[]),
    }
}

/// Returns how many of `p` parameters may move: those whose lower bound is below the upper one, or all without bounds.
pub(super) fn free(lower: &[f64], upper: &[f64], p: usize) -> usize {
    if lower.is_empty() {
        p
    } else {
        (0..p).filter(|&q| lower[q] < upper[q]).count()
    }
}
