//! Rows of curves' arrays. One row of starts, sigma or mask may stand for all curves; it is repeated for a few at a
//! time, never for all.

use std::borrow::Cow;
use std::ops::Range;

use super::data::{Curves, GridKind};
use crate::values::{Values, rows};

/// Numbers of curves and points, as their arrays have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub curves: usize,
    pub points: usize,
}

impl<'a> Curves<'a> {
    /// Returns the numbers of curves and points that the lengths of x, y and starts imply; `None` if they contradict
    /// each other. One row of starts says nothing of the number of curves, unless the number of points is not known.
    pub(crate) fn counts(&self, predictors: usize, parameters: usize) -> Option<Counts> {
        let of_points = |points: usize| {
            self.y
                .len()
                .is_multiple_of(points)
                .then_some(self.y.len() / points)
        };
        let points = match self.grid {
            GridKind::Shared => self.x.len().checked_div(predictors),
            GridKind::Own => self.points,
        };
        if self.starts.len() == parameters
            && let Some(points) = points.filter(|points| *points > 0)
            && let Some(curves) = of_points(points).filter(|curves| *curves > 0)
        {
            let each = if self.grid == GridKind::Own {
                curves
            } else {
                1
            };
            return (self.x.len() == each * predictors * points)
                .then_some(Counts { curves, points });
        }
        let curves = self.starts.len() / parameters;
        let each = if self.grid == GridKind::Own {
            curves * predictors
        } else {
            predictors
        };
        let is_whole = each > 0
            && self.starts.len().is_multiple_of(parameters)
            && self.x.len().is_multiple_of(each);
        is_whole.then(|| Counts {
            curves,
            points: self.x.len() / each,
        })
    }

    /// Returns the curves of these indices among `total`, in this order and as often as they are named, with other
    /// starts.
    pub(crate) fn pick(&self, curves: &[usize], total: usize, starts: Vec<f64>) -> Curves<'_> {
        let of = |values: &Values<'a>| values.rows(total, curves);
        let points = self.y.len() / total.max(1);
        let of_points = |values: &Values<'a>| match values.len() == points || values.len() == 1 {
            true => values.rows(1, &[0]),
            false => of(values),
        };
        let of_mask = |mask: &Cow<'a, [bool]>| match mask.len() == points {
            true => mask.to_vec(),
            false => rows(mask, total, curves),
        };
        Curves {
            grid: self.grid,
            x: if self.grid == GridKind::Shared {
                self.x.view()
            } else {
                of(&self.x)
            },
            y: of(&self.y),
            starts: starts.into(),
            sigma: self.sigma.as_ref().map(of_points),
            covariance: self.covariance.as_ref().map(|matrices| {
                match matrices.len() == points * points {
                    true => matrices.rows(1, &[0]),
                    false => of(matrices),
                }
            }),
            mask: self.mask.as_ref().map(|mask| of_mask(mask).into()),
            lower: self.lower.as_ref().map(of),
            upper: self.upper.as_ref().map(of),
            points: self.points,
            numbers: Some(curves.to_vec()),
        }
    }

    /// Returns the starts of a range of curves, (curves, parameters), in `scratch` if they are not stored so.
    pub(crate) fn starts_of<'s>(
        &'s self,
        curves: Range<usize>,
        parameters: usize,
        scratch: &'s mut Vec<f64>,
    ) -> &'s [f64] {
        rows_of(&self.starts, curves, parameters, scratch)
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
            .map(|sigma| rows_of(sigma, curves, points, scratch))
    }

    /// Returns which points of a range of curves, (curves, points), are masked or infinitely uncertain; `None` without
    /// a mask and infinite sigmas.
    pub(crate) fn masked(&self, curves: Range<usize>, points: usize) -> Option<Cow<'_, [bool]>> {
        let mask = self.mask.as_deref().map(|mask| match mask.len() == points {
            true if curves != (0..1) => Cow::Owned(mask.repeat(curves.len())),
            true => Cow::Borrowed(mask),
            false => Cow::Borrowed(&mask[curves.start * points..curves.end * points]),
        });
        let Some(sigma) = &self.sigma else {
            return mask;
        };
        let is_row = sigma.len() == points || sigma.len() == 1;
        let places = if is_row {
            0..sigma.len()
        } else {
            curves.start * points..curves.end * points
        };
        if !sigma.has_infinite(places.clone()) {
            return mask;
        }
        let infinite = |k: usize| {
            sigma.at(places.start + if is_row { k % sigma.len() } else { k }) == f64::INFINITY
        };
        let is_masked = |k: usize| mask.as_ref().is_some_and(|mask| mask[k]) || infinite(k);
        Some((0..curves.len() * points).map(is_masked).collect())
    }
}

/// Returns rows of a range of curves in f64, each of `length` numbers: of `values` (curves, length), or of its only row
/// or number again and again. They are borrowed, if they are stored so, or in `scratch`.
pub(crate) fn rows_of<'s>(
    values: &'s Values,
    curves: Range<usize>,
    length: usize,
    scratch: &'s mut Vec<f64>,
) -> &'s [f64] {
    if let Some(rows) = stored_rows(values, curves.clone(), length) {
        return rows;
    }
    if !is_repeated(values, &curves, length) {
        return values.part(curves.start * length..curves.end * length, scratch);
    }
    let row = values.double(0..values.len());
    scratch.clear();
    (0..curves.len() * length / row.len()).for_each(|_| scratch.extend_from_slice(&row));
    scratch
}

/// Returns rows of a range of curves, as [`rows_of`] does, if they are stored so.
pub(crate) fn stored_rows<'s>(
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
