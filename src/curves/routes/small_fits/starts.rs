//! Starts of small fits: those that do not have the scale of the data are replaced, or measured in other units.

use std::ops::Range;

use rayon::prelude::*;

use super::SmallFitRun;
use crate::curves::input::begin;
use crate::formula::Formula;
use crate::solver::small::unit;

/// Ratio of the sizes of linear parameters and data above which the start is examined.
const MAX_START_PER_DATA: f64 = 100.0;

impl SmallFitRun<'_> {
    /// Returns the points where the fits of a range of curves begin, and their units; `None` if all are the `starts`
    /// and their own units. `sizes`: the largest |y| of each fit.
    pub(super) fn prepare_starts(
        &self,
        range: Range<usize>,
        sizes: &[f64],
        starts: &[f64],
    ) -> Option<(Vec<f64>, Vec<f64>)> {
        let count = self.parameters;
        let linear = self.model.formula().map_or(&[][..], Formula::linear);
        let fits = || starts.chunks_exact(count).zip(sizes);
        // 1. As a rule all starts are usual, and loops without an early exit are quicker.
        if !starts
            .iter()
            .fold(false, |any, x| any | begin::is_negligible(*x, 1.0))
            && fits().fold(true, |all, (start, size)| {
                all & has_size_of_data(start, linear, *size)
            })
        {
            return None;
        }
        // 2. Prepare those that are not.
        let unusual: Vec<usize> = range
            .clone()
            .zip(fits())
            .filter(|(_, (start, size))| !is_usual_start(start, linear, **size))
            .map(|(k, _)| k)
            .collect();
        let prepared: Vec<_> = unusual
            .into_par_iter()
            .filter_map(|k| {
                let curve = self.curve(k)?;
                let (first_point, units) =
                    begin::choose_first_point(&self.fitter.problem(&curve), unit)?;
                Some((k, first_point, units))
            })
            .collect();
        if prepared.is_empty() {
            return None;
        }
        // 3. Put them among the others.
        let mut prepared_starts = starts.to_vec();
        let mut prepared_units: Vec<f64> = starts.iter().copied().map(unit).collect();
        for (k, first_point, units) in &prepared {
            let of_fit = (k - range.start) * count..(k + 1 - range.start) * count;
            prepared_starts[of_fit.clone()].copy_from_slice(first_point);
            prepared_units[of_fit].copy_from_slice(units);
        }
        Some((prepared_starts, prepared_units))
    }
}

/// Returns whether [`begin::choose_first_point`] leaves a start as it is: no parameter is 0, and the linear ones suit
/// the data.
fn is_usual_start(start: &[f64], linear: &[usize], data: f64) -> bool {
    !start.iter().any(|x| begin::is_negligible(*x, 1.0)) && has_size_of_data(start, linear, data)
}

/// Returns whether the largest of a start's `linear` parameters, if there is any, is about as large as the `data`.
#[inline(always)]
fn has_size_of_data(start: &[f64], linear: &[usize], data: f64) -> bool {
    let larger = |largest: f64, &p: &usize| {
        if start[p].abs() > largest {
            start[p].abs()
        } else {
            largest
        }
    };
    let size = linear.iter().fold(0.0, larger);
    linear.is_empty() | ((size < MAX_START_PER_DATA * data) & (data < MAX_START_PER_DATA * size))
}
