//! Starts of small fits: those that lack the scale of the data begin elsewhere, or in other units.

use std::ops::Range;

use rayon::prelude::*;

use super::Passage;
use crate::curves::input::begin;
use crate::formula::Formula;
use crate::solver::small::unit;

/// Ratio of the sizes of linear parameters and data above which the start is examined.
const FAR: f64 = 100.0;

impl Passage<'_> {
    /// Returns the points where some curves' fits begin, and the units; `None` if all are the `given` starts and their
    /// own units. `sizes`: the largest |y| of each fit.
    pub(super) fn prepare(
        &self,
        some: Range<usize>,
        sizes: &[f64],
        given: &[f64],
    ) -> Option<(Vec<f64>, Vec<f64>)> {
        let (p, linear) = (
            self.parameters,
            self.model.formula().map_or(&[][..], Formula::linear),
        );
        let fits = || given.chunks_exact(p).zip(sizes);
        // as a rule all are usual, and loops without an early exit are quicker
        if !given
            .iter()
            .fold(false, |any, x| any | begin::is_nothing(*x, 1.0))
            && fits().fold(true, |all, (start, size)| {
                all & has_size(start, linear, *size)
            })
        {
            return None;
        }
        let unusual = some
            .clone()
            .zip(fits())
            .filter(|(_, (start, size))| !is_usual(start, linear, **size));
        let unusual: Vec<usize> = unusual.map(|(k, _)| k).collect();
        let prepare = |k: usize| {
            let (begin, units) = begin::prepare(&self.fitter.problem(&self.curve(k)?), unit)?;
            Some((k, begin, units))
        };
        let prepared: Vec<_> = unusual.into_par_iter().filter_map(prepare).collect();
        if prepared.is_empty() {
            return None;
        }
        let (mut starts, mut units) = (
            given.to_vec(),
            given.iter().copied().map(unit).collect::<Vec<f64>>(),
        );
        for (k, begin, scale) in &prepared {
            let own = (k - some.start) * p..(k + 1 - some.start) * p;
            starts[own.clone()].copy_from_slice(begin);
            units[own].copy_from_slice(scale);
        }
        Some((starts, units))
    }
}

/// Returns whether [`begin::prepare`] leaves a start as it is: no parameter is 0, and the linear ones suit the data.
fn is_usual(start: &[f64], linear: &[usize], data: f64) -> bool {
    !start.iter().any(|x| begin::is_nothing(*x, 1.0)) && has_size(start, linear, data)
}

/// Returns whether the largest of a start's `linear` parameters, if there is any, is about as large as the `data`.
#[inline(always)]
fn has_size(start: &[f64], linear: &[usize], data: f64) -> bool {
    let larger = |most: f64, &q: &usize| {
        if start[q].abs() > most {
            start[q].abs()
        } else {
            most
        }
    };
    let size = linear.iter().fold(0.0, larger);
    linear.is_empty() | ((size < FAR * data) & (data < FAR * size))
}
