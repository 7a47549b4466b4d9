//! Rows of a block's fits from a user's function, which is called for many of them at once.

use std::ops::Range;

use super::load::SeatedLanes;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes};
use crate::recording::{CustomInput, Limits, ManyFunction};
use crate::solver::small::{LaneGrid, SmallBatch};

/// Maximum number of bytes of the values that a call of the function computes if it takes differences, on both sides of
/// each parameter. Each call has a cost, but its numbers should stay in the cache.
const MAX_CALL_BYTES: usize = 1 << 19;

/// Fits in lanes for which a function is called.
pub struct CalledFits<'a, R> {
    pub points: usize,
    pub predictors: usize,
    pub grid: LaneGrid<'a, R>,
    /// (P)
    pub parameters: &'a [Lanes<R>],
    /// (P): powers of two that parameters are measured in.
    pub unit: &'a [Lanes<R>],
    /// (P): empty where no fit has bounds.
    pub lower: &'a [Lanes<R>],
    pub upper: &'a [Lanes<R>],
}

/// Rows of the fits in a block's lanes, and the inputs of the function.
#[derive(Debug, Default)]
pub struct FunctionRows {
    /// Lanes of the fits that have rows.
    lanes: Vec<usize>,
    /// (fits, predictors, points), or (predictors, points) of a grid that all share.
    x: Vec<f64>,
    /// (fits, 4, P): parameters, units, lower and upper bounds.
    parameters: Vec<f64>,
    /// (fits, 1 + P, points)
    rows: Vec<f64>,
    points: usize,
}

impl FunctionRows {
    /// Calls the function for the seated fits.
    pub fn call_function<R: Real>(
        &mut self,
        function: &ManyFunction,
        seated: SeatedLanes<'_>,
        batch: &SmallBatch<'_>,
        fits: &CalledFits<'_, R>,
    ) {
        let count = fits.parameters.len();
        let points = fits.points;
        self.points = points;
        self.lanes.clear();
        self.lanes
            .extend((0..LANES).filter(|lane| seated.lanes >> lane & 1 == 1));
        self.gather_inputs(fits);
        self.rows
            .resize(self.lanes.len() * (1 + count) * points, f64::NAN);
        // 1. Assemble the inputs of each fit.
        let grid_length = fits.predictors * points;
        let mut inputs: Vec<CustomInput<'_>> = Vec::with_capacity(self.lanes.len());
        for (k, (&lane, numbers)) in self
            .lanes
            .iter()
            .zip(self.parameters.chunks_exact(4 * count))
            .enumerate()
        {
            let (parameters, limits) = numbers.split_at(count);
            let x = if batch.own_grid {
                &self.x[k * grid_length..][..grid_length]
            } else {
                &self.x
            };
            inputs.push(CustomInput {
                x,
                parameters,
                limits: Some(Limits::read(limits, count)),
                member: batch.member(seated.fits[lane]),
            });
        }
        // 2. Call the function for as many fits at a time as stay in the cache.
        let bytes_per_fit = size_of::<f64>() * (1 + 2 * count) * points;
        let fits_per_call = (MAX_CALL_BYTES / bytes_per_fit).max(1);
        let rows = self.rows.chunks_mut(fits_per_call * (1 + count) * points);
        for (inputs, rows) in inputs.chunks(fits_per_call).zip(rows) {
            (function.fill)(inputs, rows);
        }
    }

    /// Copies the grids, parameters, units and bounds of the fits out of their lanes.
    fn gather_inputs<R: Real>(&mut self, fits: &CalledFits<'_, R>) {
        let copy_lane = |rows: &[Lanes<R>], target: &mut Vec<f64>, lane: usize| {
            target.extend(rows.iter().map(|x| x.0[lane].to_f64()))
        };
        let unbounded = |bound: f64| std::iter::repeat_n(bound, fits.parameters.len());
        self.x.clear();
        self.parameters.clear();
        if let LaneGrid::Shared(x) = fits.grid {
            self.x.extend(x.iter().map(|x| x.to_f64()));
        }
        for &lane in &self.lanes {
            if let LaneGrid::Own(x) = fits.grid {
                copy_lane(x, &mut self.x, lane);
            }
            copy_lane(fits.parameters, &mut self.parameters, lane);
            copy_lane(fits.unit, &mut self.parameters, lane);
            if fits.lower.is_empty() {
                self.parameters
                    .extend(unbounded(f64::NEG_INFINITY).chain(unbounded(f64::INFINITY)));
            } else {
                copy_lane(fits.lower, &mut self.parameters, lane);
                copy_lane(fits.upper, &mut self.parameters, lane);
            }
        }
    }

    /// Writes the rows of some points into the fits' lanes of `rows` (these points, 1 + P): the derivatives behind the
    /// value, or behind the residual y − value unless y (all points) is empty.
    pub fn write_rows<R: Real>(&self, points: Range<usize>, y: &[Lanes<R>], rows: &mut [Lanes<R>]) {
        let stride = rows.len() / points.len();
        for (&lane, fit_rows) in self
            .lanes
            .iter()
            .zip(self.rows.chunks_exact(stride * self.points))
        {
            for (r, numbers) in fit_rows.chunks_exact(self.points).enumerate() {
                let targets = rows.iter_mut().skip(r).step_by(stride);
                targets
                    .zip(&numbers[points.clone()])
                    .for_each(|(target, x)| target.0[lane] = R::of(*x));
            }
        }
        if let Some(y) = y.get(points) {
            for (value, y) in rows.iter_mut().step_by(stride).zip(y) {
                (0..LANES).for_each(|l| value.0[l] = y.0[l] - value.0[l]);
            }
        }
    }
}
