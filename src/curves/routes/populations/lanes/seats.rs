//! Evaluation of the trial points of searches by simplices: one fit per vector lane, or few fits one after the other.

use super::LaneSearches;
use crate::curves::CurveRun;
use crate::curves::input::data::{Curve, GridKind};
use crate::math::lanes::{LANES, Lanes};
use crate::math::triangle::{packed_index, packed_length};
use crate::solver::Outcome;
use crate::solver::small::{LaneBlock, LaneGrid, PointLanes, SeatedFits};

/// Maximum number of points whose rows are in the cache at a time.
const POINTS_PER_BLOCK: usize = 9;

/// Points of fits, one lane each. P is the number of parameters.
pub(super) struct Seats<'a> {
    shared: &'a LaneSearches,
    curves: &'a [Curve],
    /// The fit whose data each lane has.
    fits: [usize; LANES],
    /// (P), in the model's own units.
    parameters: Vec<Lanes<f64>>,
    /// (points): the data.
    y: Vec<Lanes<f64>>,
    /// (points): the weights.
    weight: Vec<Lanes<f64>>,
    /// (predictors, points), empty where all fits share one grid.
    x: Vec<Lanes<f64>>,
    registers: Vec<Lanes<f64>>,
    rows: Vec<Lanes<f64>>,
    point_lanes: PointLanes<f64>,
    /// Σ r², Jᵀr (P) and JᵀJ (P (P + 1) / 2).
    cost: Lanes<f64>,
    gradient: Vec<Lanes<f64>>,
    normal_matrix: Vec<Lanes<f64>>,
}

impl<'a> Seats<'a> {
    /// Returns the arrays in which all vector lanes are evaluated, with no fit in any lane yet.
    pub fn new(shared: &'a LaneSearches, fitter: &'a CurveRun, curves: &'a [Curve]) -> Seats<'a> {
        let zeros = |count: usize| vec![Lanes::splat(0.0); count];
        let count = fitter.held.len();
        let predictors = if shared.grid == GridKind::Own {
            curves.first().map_or(0, |curve| curve.x.len())
        } else {
            0
        };
        Seats {
            shared,
            curves,
            fits: [usize::MAX; LANES],
            parameters: vec![Lanes::splat(1.0); count],
            y: zeros(shared.points),
            weight: zeros(shared.points),
            x: zeros(predictors),
            registers: Vec::new(),
            rows: zeros(POINTS_PER_BLOCK * (1 + count)),
            point_lanes: PointLanes::new(),
            cost: Lanes::splat(0.0),
            gradient: zeros(count),
            normal_matrix: zeros(packed_length(count)),
        }
    }

    /// Writes a fit's data, unless they are there already, and its point, converted from the solver's units `u`, into a
    /// lane.
    pub fn seat(&mut self, lane: usize, fit: usize, u: &[f64]) {
        let curve = &self.curves[fit];
        if self.fits[lane] != fit {
            self.fits[lane] = fit;
            for (row, y) in self.y.iter_mut().zip(&curve.y) {
                row.0[lane] = *y;
            }
            for (row, x) in self.x.iter_mut().zip(&curve.x) {
                row.0[lane] = *x;
            }
            for (row, weight) in self.weight.iter_mut().zip(&curve.weight) {
                row.0[lane] = curve.row_factor * weight;
            }
        }
        for (p, parameter) in self.parameters.iter_mut().enumerate() {
            parameter.0[lane] = (u[p] * curve.scale[p]).clamp(curve.lower[p], curve.upper[p]);
        }
    }

    /// Returns the cost of a lane's fit, infinity where it is not finite.
    pub fn finite_cost(&self, lane: usize) -> f64 {
        let cost = self.cost.0[lane];
        if cost.is_finite() {
            cost
        } else {
            f64::INFINITY
        }
    }

    /// Evaluates the model in the lanes of `lane_bits`, and sums up each one's cost and, with `linearise`, its gradient
    /// and normal matrix.
    pub fn evaluate(&mut self, lane_bits: u64, linearise: bool) {
        self.cost = Lanes::splat(0.0);
        let LaneSearches {
            points: of_points,
            predictors,
            is_pointwise,
            ..
        } = *self.shared;
        let (model, stride) = match (&self.shared.values, linearise) {
            (Some(values), false) => (values, 1),
            _ => (&self.shared.model, 1 + self.parameters.len()),
        };
        // 1. Few fits are evaluated one after the other, with a point in each lane.
        let fits = lane_bits.count_ones() as usize;
        let by_points = is_pointwise && PointLanes::<f64>::are_faster(fits, of_points);
        if by_points {
            let fits = SeatedFits {
                points: of_points,
                predictors,
                grid: lane_grid(&self.x, self.curves),
                parameters: &self.parameters,
                y: &self.y[..],
                stride,
            };
            self.point_lanes.evaluate(model, lane_bits, &fits);
            if !linearise {
                return self.add_by_points();
            }
        }
        // 2. Otherwise blocks of points of about the same length are evaluated, with a fit in each lane, and added up.
        for sum in self.gradient.iter_mut().chain(&mut self.normal_matrix) {
            *sum = Lanes::splat(0.0);
        }
        let blocks = of_points.div_ceil(POINTS_PER_BLOCK).max(1);
        let block_length = of_points.div_ceil(blocks).max(1);
        for first in (0..of_points).step_by(block_length) {
            let points = first..of_points.min(first + block_length);
            let rows = &mut self.rows[..points.len() * stride];
            if by_points {
                self.point_lanes.write_rows(points.clone(), rows);
            } else {
                model(LaneBlock {
                    points: points.clone(),
                    of_points,
                    grid: lane_grid(&self.x, self.curves),
                    parameters: &self.parameters,
                    registers: &mut self.registers,
                    y: &self.y,
                    rows,
                    stride,
                });
            }
            pulp::Arch::new().dispatch(|| self.add_points(points.clone(), stride, linearise));
        }
    }

    /// Adds the squared weighted residuals of the few fits that were evaluated by points to their costs.
    fn add_by_points(&mut self) {
        for (lane, residuals) in self.point_lanes.first_numbers(self.shared.points) {
            let cost = &mut self.cost.0[lane];
            for (residual, weight) in residuals.zip(&self.weight) {
                // A masked point may have any value.
                let r = if weight.0[lane] > 0.0 {
                    weight.0[lane] * residual
                } else {
                    0.0
                };
                *cost += r * r;
            }
        }
    }

    /// Adds the weighted residuals of some points to each lane's cost and, with `linearise`, to its gradient and normal
    /// matrix.
    #[inline(always)]
    fn add_points(&mut self, points: std::ops::Range<usize>, stride: usize, linearise: bool) {
        for (rows, weight) in self.rows.chunks_exact_mut(stride).zip(&self.weight[points]) {
            let (residual, tangents) = rows.split_at_mut(1);
            let residual = &mut residual[0];
            for l in 0..LANES {
                // A masked point may have any value.
                let r = if weight.0[l] > 0.0 {
                    weight.0[l] * residual.0[l]
                } else {
                    0.0
                };
                residual.0[l] = r;
                self.cost.0[l] += r * r;
            }
            if !linearise {
                continue;
            }
            for p in 0..tangents.len() {
                for l in 0..LANES {
                    let j = if weight.0[l] > 0.0 {
                        weight.0[l] * tangents[p].0[l]
                    } else {
                        0.0
                    };
                    tangents[p].0[l] = j;
                    self.gradient[p].0[l] += j * residual.0[l];
                }
                for q in 0..=p {
                    let sum = &mut self.normal_matrix[packed_index(p, q)];
                    for l in 0..LANES {
                        sum.0[l] += tangents[p].0[l] * tangents[q].0[l];
                    }
                }
            }
        }
    }

    /// Returns the χ², gradient and normal matrix of the fit in a lane, by the solver's parameters `u`.
    pub fn outcome(&self, lane: usize, fit: usize) -> Outcome {
        let curve = &self.curves[fit];
        let count = self.parameters.len();
        let mut outcome = Outcome {
            chi2: self.cost.0[lane],
            gradient: (0..count)
                .map(|p| curve.scale[p] * self.gradient[p].0[lane])
                .collect(),
            normal_matrix: vec![0.0; packed_length(count)],
            ..Outcome::default()
        };
        for p in 0..count {
            for q in 0..=p {
                let k = packed_index(p, q);
                outcome.normal_matrix[k] =
                    curve.scale[p] * curve.scale[q] * self.normal_matrix[k].0[lane];
            }
        }
        outcome
    }
}

/// Returns the grid of all lanes: `x` (predictors, points), or where that is empty, that of all `curves`.
fn lane_grid<'s>(x: &'s [Lanes<f64>], curves: &'s [Curve]) -> LaneGrid<'s, f64> {
    if x.is_empty() {
        LaneGrid::Shared(&curves[0].x)
    } else {
        LaneGrid::Own(x)
    }
}
