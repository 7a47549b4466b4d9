//! Evaluation of a lane model for few fits: the points of one fit take the lanes, one fit after the other. A lane's
//! arithmetic is the same as side by side with other fits, so that the rows have the same bits.

use std::ops::Range;

use super::{LaneBlock, LaneGrid, LaneModel};
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes};

/// Minimum ratio of the number of evaluations side by side to those by points at which these are used: they copy all
/// that they read and write.
const LEAST_SAVING: usize = 2;

/// Fits that lie in lanes, side by side.
#[derive(Clone, Copy)]
pub struct SeatedFits<'a, R> {
    pub points: usize,
    pub predictors: usize,
    pub grid: LaneGrid<'a, R>,
    /// (P)
    pub parameters: &'a [Lanes<R>],
    /// (points): data, or empty.
    pub y: &'a [Lanes<R>],
    /// Number of the model's rows: 1 + P, or 1 of values alone.
    pub stride: usize,
}

/// Rows of a few fits, and the memory to compute them.
#[derive(Debug, Default)]
pub struct PointLanes<R> {
    /// Lanes of the fits whose rows are here.
    lanes: Vec<usize>,
    /// (predictors, groups): the predictors of a fit, [`LANES`] points in a group.
    x: Vec<Lanes<R>>,
    parameters: Vec<Lanes<R>>,
    /// (groups)
    y: Vec<Lanes<R>>,
    registers: Vec<Lanes<R>>,
    /// (fits, groups, stride)
    rows: Vec<Lanes<R>>,
    stride: usize,
}

impl<R: Real> PointLanes<R> {
    /// Makes rows of no fit.
    pub fn new() -> PointLanes<R> {
        PointLanes {
            lanes: Vec::new(),
            x: Vec::new(),
            parameters: Vec::new(),
            y: Vec::new(),
            registers: Vec::new(),
            rows: Vec::new(),
            stride: 0,
        }
    }

    /// Returns the lane of each fit, and the first number of its rows, point after point.
    pub fn first_numbers(
        &self,
        points: usize,
    ) -> impl Iterator<Item = (usize, impl Iterator<Item = R> + '_)> + '_ {
        let stride = self.stride;
        let rows_per_fit = points.div_ceil(LANES) * stride;
        let fits = self
            .lanes
            .iter()
            .zip(self.rows.chunks_exact(rows_per_fit.max(1)));
        fits.map(move |(lane, rows)| {
            let numbers = (0..points).map(move |j| rows[j / LANES * stride].0[j % LANES]);
            (*lane, numbers)
        })
    }

    /// Returns whether so many fits of so many points are evaluated faster by points than side by side.
    pub fn are_faster(fits: usize, points: usize) -> bool {
        points > 0 && LEAST_SAVING * fits * points.div_ceil(LANES) <= points
    }

    /// Evaluates the model for the fits in the lanes of which `seats` has the bits.
    pub fn evaluate(&mut self, model: &LaneModel<R>, seats: u64, fits: &SeatedFits<'_, R>) {
        let zero = Lanes::splat(R::ZERO);
        let groups = fits.points.div_ceil(LANES);
        self.stride = fits.stride;
        self.lanes.clear();
        self.lanes
            .extend((0..LANES).filter(|lane| seats >> lane & 1 == 1));
        self.x.resize(fits.predictors * groups, zero);
        self.y
            .resize(if fits.y.is_empty() { 0 } else { groups }, zero);
        self.rows
            .resize(self.lanes.len() * groups * self.stride, zero);
        for (&lane, rows) in self
            .lanes
            .iter()
            .zip(self.rows.chunks_exact_mut(groups * self.stride))
        {
            // 1. Copy the fit's data, a point in each lane; the last lanes repeat the last point.
            for (group, point_lane) in (0..groups * LANES).map(|j| (j / LANES, j % LANES)) {
                let j = (group * LANES + point_lane).min(fits.points - 1);
                for d in 0..fits.predictors {
                    self.x[d * groups + group].0[point_lane] = match fits.grid {
                        LaneGrid::Shared(x) => x[d * fits.points + j],
                        LaneGrid::Own(x) => x[d * fits.points + j].0[lane],
                    };
                }
                if let Some(y) = fits.y.get(j) {
                    self.y[group].0[point_lane] = y.0[lane];
                }
            }
            self.parameters.clear();
            self.parameters.extend(
                fits.parameters
                    .iter()
                    .map(|parameter| Lanes::splat(parameter.0[lane])),
            );
            // 2. Evaluate the model at them.
            model(LaneBlock {
                points: 0..groups,
                of_points: groups,
                grid: LaneGrid::Own(&self.x),
                parameters: &self.parameters,
                registers: &mut self.registers,
                y: &self.y,
                rows,
                stride: self.stride,
            });
        }
    }

    /// Writes the rows of some points into the fits' lanes of `rows` (these points, stride).
    pub fn write_rows(&self, points: Range<usize>, rows: &mut [Lanes<R>]) {
        let rows_per_fit = self.rows.len() / self.lanes.len().max(1);
        let fits = self
            .lanes
            .iter()
            .zip(self.rows.chunks_exact(rows_per_fit.max(1)));
        for (&lane, fit_rows) in fits {
            for (point_rows, j) in rows.chunks_exact_mut(self.stride).zip(points.clone()) {
                let group_rows = &fit_rows[j / LANES * self.stride..][..self.stride];
                point_rows
                    .iter_mut()
                    .zip(group_rows)
                    .for_each(|(to, from)| to.0[lane] = from.0[j % LANES]);
            }
        }
    }
}
