//! Rows of curves' arrays. One row of starts, sigma or mask may hold for all curves; it is repeated for a few curves at
//! a time, never for all.

use std::borrow::Cow;
use std::ops::Range;

use super::data::{Curves, GridKind};
use crate::values::{Values, copy_rows};

/// Numbers of curves and points, by the lengths of their arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CurveCounts {
    pub curves: usize,
    pub points: usize,
}

impl<'a> Curves<'a> {
    /// Returns the numbers of curves and points that the lengths of x, y and starts imply; `None` if they contradict
    /// each other. One row of starts does not imply the number of curves, unless the number of points is not known.
    pub(crate) fn counts(&self, predictors: usize, parameters: usize) -> Option<CurveCounts> {
        let grids_of = |curves: usize| match self.grid {
            GridKind::Shared => 1,
            GridKind::Own => curves,
        };
        let known_points = match self.grid {
            GridKind::Shared => self.x.len().checked_div(predictors),
            GridKind::Own => self.points,
        };
        // 1. One row of starts, and a known number of points: y implies the number of curves.
        if self.starts.values.len() == parameters
            && let Some(points) = known_points.filter(|points| *points > 0)
            && self.y.len().is_multiple_of(points)
            && self.y.len() >= points
        {
            let curves = self.y.len() / points;
            return (self.x.len() == grids_of(curves) * predictors * points)
                .then_some(CurveCounts { curves, points });
        }
        // 2. One row of starts per curve: x implies the number of points.
        let curves = self.starts.values.len() / parameters;
        let numbers_per_point = grids_of(curves) * predictors;
        let is_whole = numbers_per_point > 0
            && self.starts.values.len().is_multiple_of(parameters)
            && self.x.len().is_multiple_of(numbers_per_point);
        is_whole.then(|| CurveCounts {
            curves,
            points: self.x.len() / numbers_per_point,
        })
    }

    /// Returns the curves of these indices among `total`, in this order and as often as they are named, with other
    /// starts.
    pub(crate) fn pick_curves(
        &self,
        indices: &[usize],
        total: usize,
        starts: Vec<f64>,
    ) -> Curves<'_> {
        let points = self.y.len() / total.max(1);
        let pick_rows = |values: &Values<'a>| values.copy_rows(total, indices);
        let pick_rows_unless_common =
            |values: &Values<'a>, common_lengths: &[usize]| match common_lengths
                .contains(&values.len())
            {
                true => values.copy_rows(1, &[0]),
                false => pick_rows(values),
            };
        Curves {
            grid: self.grid,
            x: if self.grid == GridKind::Shared {
                self.x.view()
            } else {
                pick_rows(&self.x)
            },
            y: pick_rows(&self.y),
            starts: starts.into(),
            sigma: self
                .sigma
                .as_ref()
                .map(|sigma| pick_rows_unless_common(sigma, &[points, 1])),
            covariance: self
                .covariance
                .as_ref()
                .map(|matrices| pick_rows_unless_common(matrices, &[points * points])),
            mask: self.mask.as_ref().map(|mask| {
                let picked = match mask.len() == points {
                    true => mask.to_vec(),
                    false => copy_rows(mask, total, indices),
                };
                picked.into()
            }),
            lower: self.lower.as_ref().map(pick_rows),
            upper: self.upper.as_ref().map(pick_rows),
            points: self.points,
            numbers: Some(indices.to_vec()),
        }
    }

    /// Returns the starts of a range of curves, (curves, parameters), in `scratch` if they are not stored so.
    pub(crate) fn starts_of<'s>(
        &'s self,
        curves: Range<usize>,
        parameters: usize,
        scratch: &'s mut Vec<f64>,
    ) -> &'s [f64] {
        rows_in_f64(&self.starts.values, curves, parameters, scratch)
    }

    /// Returns the sigmas of a range of curves, (curves, points), in `scratch` if they are not stored so; `None`
    /// without sigmas.
    pub(crate) fn sigmas_of<'s>(
        &'s self,
        curves: Range<usize>,
        points: usize,
        scratch: &'s mut Vec<f64>,
    ) -> Option<&'s [f64]> {
        self.sigma
            .as_ref()
            .map(|sigma| rows_in_f64(sigma, curves, points, scratch))
    }

    /// Returns which points of a range of curves, (curves, points), are masked or infinitely uncertain; `None` without
    /// a mask and infinite sigmas.
    pub(crate) fn masked(&self, curves: Range<usize>, points: usize) -> Option<Cow<'_, [bool]>> {
        // 1. The mask, repeated if one row holds for several curves.
        let mask = self.mask.as_deref().map(|mask| match mask.len() == points {
            true if curves != (0..1) => Cow::Owned(mask.repeat(curves.len())),
            true => Cow::Borrowed(mask),
            false => Cow::Borrowed(&mask[curves.start * points..curves.end * points]),
        });
        // 2. Infinite sigmas, of which there are none as a rule.
        let Some(sigma) = &self.sigma else {
            return mask;
        };
        let is_repeated = sigma.len() == points || sigma.len() == 1;
        let sigma_range = if is_repeated {
            0..sigma.len()
        } else {
            curves.start * points..curves.end * points
        };
        if !sigma.has_infinite(sigma_range.clone()) {
            return mask;
        }
        // 3. Join both.
        let is_infinite = |k: usize| {
            let offset = if is_repeated { k % sigma.len() } else { k };
            sigma.at(sigma_range.start + offset) == f64::INFINITY
        };
        let is_masked = |k: usize| mask.as_ref().is_some_and(|mask| mask[k]) || is_infinite(k);
        Some((0..curves.len() * points).map(is_masked).collect())
    }
}

/// Returns rows of a range of curves in f64, each of `length` numbers: of `values` (curves, length), or its only row or
/// number repeated. They are borrowed if they are stored so; otherwise they are copied to `scratch`.
pub(crate) fn rows_in_f64<'s>(
    values: &'s Values,
    curves: Range<usize>,
    length: usize,
    scratch: &'s mut Vec<f64>,
) -> &'s [f64] {
    if let Some(rows) = borrow_stored_rows(values, curves.clone(), length) {
        return rows;
    }
    if !is_repeated(values, &curves, length) {
        return values.widen_range(curves.start * length..curves.end * length, scratch);
    }
    let row = values.double(0..values.len());
    scratch.clear();
    for _ in 0..curves.len() * length / row.len() {
        scratch.extend_from_slice(&row);
    }
    scratch
}

/// Returns rows of a range of curves, as [`rows_in_f64`] does, if they are stored so; else `None`.
pub(crate) fn borrow_stored_rows<'s>(
    values: &'s Values,
    curves: Range<usize>,
    length: usize,
) -> Option<&'s [f64]> {
    let rows = curves.start * length..curves.end * length;
    values
        .as_f64()
        .filter(|_| !is_repeated(values, &curves, length))
        .map(|all| &all[rows])
}

/// Returns whether one row holds for all of several curves, or one number for all points.
fn is_repeated(values: &Values, curves: &Range<usize>, length: usize) -> bool {
    values.len() == length && *curves != (0..1) || values.len() == 1 && length > 1
}
