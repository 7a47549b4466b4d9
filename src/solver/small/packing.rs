//! What a device that makes small fits whole is sent of each fit, and what it sends back: rows of 32-bit numbers, in
//! the order of the fits.

use std::ops::Range;

use rayon::prelude::*;

use super::{Numbers, SmallBatch, SmallColumns, SmallProblem};
use crate::solver::Status;
use crate::threads;

/// Number of fits that are packed together. The last ones are filled up with fits of zeros.
pub const BLOCK: usize = 64;
/// What stands for infinite bounds: infinities in comparisons are not safe on every GPU.
const FAR: f64 = 1e30;

/// Bits of the last number of a result: the status, the rounds, and whether f32 is precise enough for the fit to end.
pub const ROUNDS_SHIFT: u32 = 8;
pub const SURE: u32 = 1 << 22;
/// Largest number of rounds that has room between them.
pub const MOST_ROUNDS: u32 = (1 << 14) - 1;

/// How fits of such a device may end beside success.
const ENDS_WITHOUT_SUCCESS: [Status; 4] = [Status::MaxRounds, Status::Singular, Status::NotFinite, Status::Stalled];

/// What the fits of a batch have beside data on a grid that all share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub own_grid: bool,
    pub is_weighted: bool,
    pub own_units: bool,
    pub is_bounded: bool,
}

/// Numbers of each fit. P is the number of parameters.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    pub shape: Shape,
    points: usize,
    predictors: usize,
    parameters: usize,
}

/// The rows of a block of fits.
#[derive(Debug, Default)]
pub struct Packed {
    /// ([`BLOCK`], [`Packing::observed`]): y, weights where there are any, the grid where each fit has its own.
    pub observed: Vec<f32>,
    /// ([`BLOCK`], [`Packing::given`]): start, units where they are not the starts' own, lower and upper bounds where
    /// there are any.
    pub given: Vec<f32>,
}

impl Shape {
    /// Returns what the fits of this batch have.
    pub fn of(batch: &SmallBatch<'_>) -> Shape {
        Shape {
            own_grid: batch.own_grid,
            is_weighted: batch.is_weighted(),
            own_units: batch.units.is_some(),
            is_bounded: batch.bounds.is_some(),
        }
    }
}

impl Packing {
    /// Returns the layout of a problem's fits of some shape.
    pub fn new(problem: &SmallProblem, shape: Shape) -> Packing {
        let SmallProblem { points, predictors, parameters, .. } = *problem;
        Packing { shape, points, predictors, parameters }
    }

    /// Returns how many numbers of a fit its kernel reads in every round: y, and weights where there are any.
    pub fn counted(self) -> usize {
        self.points * if self.shape.is_weighted { 2 } else { 1 }
    }

    /// Returns how many numbers there are of a fit's points.
    pub fn observed(self) -> usize {
        self.counted() + if self.shape.own_grid { self.predictors * self.points } else { 0 }
    }

    /// Returns where the lower bounds begin in what is given of a fit's parameters.
    pub fn lower(self) -> usize {
        self.parameters * if self.shape.own_units { 2 } else { 1 }
    }

    /// Returns how many numbers are given of a fit's parameters.
    pub fn given(self) -> usize {
        self.lower() + if self.shape.is_bounded { 2 * self.parameters } else { 0 }
    }

    /// Returns how many numbers come back of a fit: parameters, variances, cost, and its end. Where f32 is not precise
    /// enough for the fit to end, the first variance is what its last step promised.
    pub fn result(self) -> usize {
        2 * self.parameters + 2
    }

    /// Packs a block of `fits`, which begin at the parameters in the `starts` (all fits, P).
    pub fn pack(self, fits: &[usize], batch: &SmallBatch<'_>, starts: &[f64], packed: &mut Packed) {
        let (points, p) = (self.points, self.parameters);
        let Packed { observed, given } = packed;
        observed.clear();
        given.clear();
        for &fit in fits {
            let data = fit * points..(fit + 1) * points;
            match batch.y {
                Numbers::Double(y) => observed.extend(y[data.clone()].iter().map(|y| *y as f32)),
                Numbers::Single(y) => observed.extend_from_slice(&y[data.clone()]),
            }
            if self.shape.is_weighted {
                observed.extend(data.map(|j| weight(batch, j) as f32));
            }
            if self.shape.own_grid {
                let length = self.predictors * points;
                observed.extend(batch.x[fit * length..(fit + 1) * length].iter().map(|x| *x as f32));
            }
            let of_fit = fit * p..(fit + 1) * p;
            given.extend(starts[of_fit.clone()].iter().map(|x| *x as f32));
            if let Some(units) = batch.units {
                given.extend(units[of_fit.clone()].iter().map(|x| *x as f32));
            }
            if let Some((lower, upper)) = batch.bounds {
                let bounded = if lower.len() == p { 0..p } else { of_fit };
                given.extend(lower[bounded.clone()].iter().map(|x| x.clamp(-FAR, FAR) as f32));
                given.extend(upper[bounded].iter().map(|x| x.clamp(-FAR, FAR) as f32));
            }
        }
        observed.resize(BLOCK * self.observed(), 0.0);
        given.resize(BLOCK * self.given(), 0.0);
    }

    /// Writes results of a block of fits that end in their first round where they began.
    pub fn end_at_starts(self, given: &[f32], results: &mut [u32]) {
        let p = self.parameters;
        for (result, given) in results.chunks_exact_mut(self.result()).zip(given.chunks_exact(self.given())) {
            result[..p].iter_mut().zip(given).for_each(|(to, start)| *to = start.to_bits());
            result[p..=2 * p].fill(1.0f32.to_bits());
            result[2 * p + 1] = Status::Ftol.code() as u32 | 1 << ROUNDS_SHIFT | SURE;
        }
    }

    /// Copies the results of the `fits`, which ascend, to their columns. Returns the first fit that cannot have ended
    /// as it says, if there is one.
    pub fn unpack(self, results: &[u32], fits: &[usize], columns: &mut SmallColumns<'_>) -> Result<(), usize> {
        let (Some(&first), Some(&last)) = (fits.first(), fits.last()) else { return Ok(()) };
        let (p, fitted) = (self.parameters, first..last + 1);
        let wide = fitted.start * p..fitted.end * p;
        let parts = columns.parameters[wide.clone()].par_chunks_mut(BLOCK * p);
        let parts = parts.zip(columns.variances[wide].par_chunks_mut(BLOCK * p));
        let ends = columns.chi2[fitted.clone()].par_chunks_mut(BLOCK);
        let ends = ends.zip(columns.promises[fitted.clone()].par_chunks_mut(BLOCK));
        let codes = columns.status[fitted.clone()].par_chunks_mut(BLOCK);
        let codes = codes.zip(columns.rounds[fitted].par_chunks_mut(BLOCK));
        let parts = parts.zip(ends).zip(codes).enumerate().with_min_len(16);
        let place_of = |fit: usize| fits.partition_point(|other| *other < fit);
        threads::in_pool(|| {
            parts.try_for_each(|(block, (((parameters, variances), (chi2, promises)), (status, rounds)))| {
                let before = first + block * BLOCK;
                let places = place_of(before)..place_of(before + status.len());
                let mut columns = SmallColumns { parameters, variances, chi2, promises, status, rounds };
                self.unpack_block(results, fits, places, before, &mut columns)
            })
        })
    }

    /// Copies the results at some places to the columns of their fits, the first of which is number `before`.
    fn unpack_block(
        self,
        results: &[u32],
        fits: &[usize],
        places: Range<usize>,
        before: usize,
        columns: &mut SmallColumns<'_>,
    ) -> Result<(), usize> {
        let p = self.parameters;
        for place in places {
            let (result, k) = (&results[place * self.result()..][..self.result()], fits[place] - before);
            let number = |word: &u32| f64::from(f32::from_bits(*word));
            let (parameters, rest) = result.split_at(p);
            let (variances, end) = rest.split_at(p);
            let (chi2, code) = (number(&end[0]), end[1]);
            let (status, rounds) = (code as u8 as i8, (code >> ROUNDS_SHIFT) & MOST_ROUNDS);
            let is_end = Status::from_code(status.into()).is_some_and(|status| {
                status.is_success() && chi2.is_finite() || ENDS_WITHOUT_SUCCESS.contains(&status)
            });
            if !is_end || rounds == 0 || code >= SURE << 1 {
                return Err(fits[place]);
            }
            let is_sure = code & SURE != 0;
            let of_fit = k * p..(k + 1) * p;
            for (to, word) in columns.parameters[of_fit.clone()].iter_mut().zip(parameters) {
                *to = number(word);
            }
            for (to, word) in columns.variances[of_fit].iter_mut().zip(variances) {
                *to = if is_sure { number(word) } else { f64::NAN };
            }
            columns.promises[k] = if is_sure { f64::NAN } else { number(&variances[0]) };
            columns.chi2[k] = chi2;
            columns.status[k] = status;
            columns.rounds[k] = columns.rounds[k].saturating_add(rounds as u16);
        }
        Ok(())
    }
}

/// Returns the weight of a point, counted through all fits: 1 / σ, 0 where it is masked.
fn weight(batch: &SmallBatch<'_>, index: usize) -> f64 {
    let masked = batch.mask.is_some_and(|mask| mask[index]);
    if masked { 0.0 } else { 1.0 / batch.sigma.map_or(1.0, |sigma| sigma[index]) }
}
