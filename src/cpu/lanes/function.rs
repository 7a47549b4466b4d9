//! Rows of a block's fits from a user's function, which is called for many of them at once.

use std::ops::Range;

use super::load::Seated;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes};
use crate::recording::{CustomInput, Limits, ManyFunction};
use crate::solver::small::{LaneGrid, SmallBatch};

/// Bytes of the values that a call of the function makes if it takes differences, on both sides of each parameter: a
/// call has its price, but its numbers should stay in the cache.
const CALL_BYTES: usize = 1 << 19;

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

/// Rows of the fits in a block's lanes, and the memory in which they are made.
#[derive(Debug, Default)]
pub struct FunctionRows {
    /// Lanes of the fits whose rows are here.
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
    pub fn evaluate<R: Real>(
        &mut self,
        function: &ManyFunction,
        seated: Seated<'_>,
        batch: &SmallBatch<'_>,
        fits: &CalledFits<'_, R>,
    ) {
        let (count, points) = (fits.parameters.len(), fits.points);
        self.points = points;
        self.lanes.clear();
        self.lanes
            .extend((0..LANES).filter(|lane| seated.lanes >> lane & 1 == 1));
        self.gather(fits);
        self.rows
            .resize(self.lanes.len() * (1 + count) * points, f64::NAN);
        let own_x = fits.predictors * points;
        let inputs = self
            .lanes
            .iter()
            .zip(self.parameters.chunks_exact(4 * count))
            .enumerate();
        let inputs = inputs.map(|(k, (&lane, own))| {
            let (parameters, limits) = own.split_at(count);
            let x = if batch.own_grid {
                &self.x[k * own_x..][..own_x]
            } else {
                &self.x
            };
            let limits = Some(Limits::read(limits, count));
            CustomInput {
                x,
                parameters,
                limits,
                member: batch.member(seated.fits[lane]),
            }
        });
        let inputs: Vec<CustomInput<'_>> = inputs.collect();
        let most = (CALL_BYTES / (size_of::<f64>() * (1 + 2 * count) * points)).max(1);
        let rows = self.rows.chunks_mut(most * (1 + count) * points);
        inputs
            .chunks(most)
            .zip(rows)
            .for_each(|(inputs, rows)| (function.fill)(inputs, rows));
    }

    /// Copies grids, parameters, units and bounds of the fits in `lanes` out of these.
    fn gather<R: Real>(&mut self, fits: &CalledFits<'_, R>) {
        let own = |rows: &[Lanes<R>], to: &mut Vec<f64>, lane: usize| {
            to.extend(rows.iter().map(|x| x.0[lane].to_f64()))
        };
        let unbounded = |bound: f64| std::iter::repeat_n(bound, fits.parameters.len());
        self.x.clear();
        self.parameters.clear();
        if let LaneGrid::Shared(x) = fits.grid {
            self.x.extend(x.iter().map(|x| x.to_f64()));
        }
        for &lane in &self.lanes {
            if let LaneGrid::Own(x) = fits.grid {
                own(x, &mut self.x, lane);
            }
            own(fits.parameters, &mut self.parameters, lane);
            own(fits.unit, &mut self.parameters, lane);
            if fits.lower.is_empty() {
                self.parameters
                    .extend(unbounded(f64::NEG_INFINITY).chain(unbounded(f64::INFINITY)));
            } else {
                own(fits.lower, &mut self.parameters, lane);
                own(fits.upper, &mut self.parameters, lane);
            }
        }
    }

    /// Writes the rows of some points into the fits' lanes of `rows` (these points, 1 + P): the value, or what y (all
    /// points) is above it where there is y, and the derivatives.
    pub fn put<R: Real>(&self, points: Range<usize>, y: &[Lanes<R>], rows: &mut [Lanes<R>]) {
        let stride = rows.len() / points.len();
        for (&lane, own) in self
            .lanes
            .iter()
            .zip(self.rows.chunks_exact(stride * self.points))
        {
            for (r, own) in own.chunks_exact(self.points).enumerate() {
                let to = rows.iter_mut().skip(r).step_by(stride);
                to.zip(&own[points.clone()])
                    .for_each(|(to, x)| to.0[lane] = R::of(*x));
            }
        }
        if let Some(y) = y.get(points) {
            for (value, y) in rows.iter_mut().step_by(stride).zip(y) {
                (0..LANES).for_each(|l| value.0[l] = y.0[l] - value.0[l]);
            }
        }
    }
}
