//! Check that an f32 fit is precise enough: a bound on the shift of the solution by rounding, in units of the errors.
//!
//! Residuals that are wrong by e move the solution by at most ‖e‖ / σ errors. A Jacobian and sums that are wrong by a
//! share ε of each column move it by ε ‖r‖ / σ √(P Σ_p A_pp (A⁻¹)_pp); sums over N points are by √N roundings (Higham &
//! Mary 2019).

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::block::{FitBlock, POINTS_IN_CACHE, normal};
use super::load::{FitSource, LaneSeat, copy_correlations, copy_to_lanes, copy_weights};
use super::solve::LdlFactors;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes, pick};
use crate::math::triangle::{packed_index, packed_length, pair_index};
use crate::solver::round::step::decisions::least_reduction;
use crate::solver::small::{
    LaneBlock, LaneGrid, Rounding, SmallBatch, SmallColumns, SmallProblem, SumRounding,
};
use crate::solver::thresholds::{HALF_ULP_OF_F32, LEAST_COST, MAX_VARIANCE_ERROR, ROUNDING_SHARE};
use crate::solver::{Status, Tolerances};

/// f32 fits that have ended, for which a bound on the rounding is computed. P is the number of parameters.
pub struct RoundingCheck {
    /// The lanes, and the fits of the columns in them.
    seats: Vec<LaneSeat>,
    /// ((P + 1) (P + 2) / 2): the fits' sums, as in a block.
    fit_sums: Vec<Lanes<f32>>,
    /// (predictors, points), where fits share it.
    shared_x: Vec<f32>,
    /// (P)
    parameters: Vec<Lanes<f32>>,
    /// (predictors, points), empty where all fits share one.
    x: Vec<Lanes<f32>>,
    /// (points), empty where all are 1.
    weight: Vec<Lanes<f32>>,
    registers: Vec<Lanes<f32>>,
    rows: Vec<Lanes<f32>>,
    /// Sums of squares over points: of the model's values, and of the bounds on their rounding.
    sums_of_squares: [Lanes<f32>; 2],
    cost: Lanes<f32>,
    factors: LdlFactors<f32>,
    /// (P): least pivots, all 0.
    least_pivots: Vec<Lanes<f32>>,
    /// (P): diagonals of the normal matrices.
    diagonal: Vec<Lanes<f32>>,
    /// (P): diagonals of their inverses.
    variances: Vec<Lanes<f32>>,
    /// (P (P − 1) / 2): correlations; empty unless they are asked for.
    correlations: Vec<Lanes<f32>>,
    /// 1 where f32 is precise enough.
    is_precise: Lanes<f32>,
}

impl RoundingCheck {
    /// Makes an empty collection of ended f32 fits whose rounding errors are to be judged, for a batch's shape of data.
    pub fn new(problem: &SmallProblem, batch: &SmallBatch<'_>) -> RoundingCheck {
        let zero = Lanes::splat(0.0);
        let rows = |is_used: bool, count: usize| vec![zero; if is_used { count } else { 0 }];
        let count = problem.parameters;
        RoundingCheck {
            seats: Vec::with_capacity(LANES),
            fit_sums: rows(true, packed_length(count + 1)),
            shared_x: Vec::new(),
            parameters: rows(true, count),
            x: rows(batch.own_grid, problem.predictors * problem.points),
            weight: rows(batch.is_weighted(), problem.points),
            registers: Vec::new(),
            rows: rows(true, 2 * POINTS_IN_CACHE),
            sums_of_squares: [zero; 2],
            cost: zero,
            factors: LdlFactors::new(count),
            least_pivots: rows(true, count),
            diagonal: rows(true, count),
            variances: rows(true, count),
            correlations: rows(problem.correlations, pair_index(count, 0)),
            is_precise: zero,
        }
    }

    /// Collects those `ended` fits that have converged inside their bounds, and judges them when all lanes are full.
    // It is inlined because a call makes `gauss2d` 5 % slower.
    #[inline(always)]
    pub fn collect_ended<R: Real>(
        &mut self,
        block: &FitBlock<R>,
        ended: &[LaneSeat],
        source: &FitSource<'_>,
        columns: &mut SmallColumns<'_>,
    ) {
        for &LaneSeat { lane, fit: k } in ended {
            if !Status::from_code(columns.status[k].into()).is_some_and(Status::is_success) {
                continue;
            }
            let from = lane % LANES;
            let to = self.seats.len() % LANES;
            // A fit at a bound would need the matrix of its free parameters alone, and one that converges slowly is far
            // from its end.
            if !block.is_inside(from) || block.is_slow.0[from] > R::ZERO {
                continue;
            }
            self.seats.push(LaneSeat { lane: to, fit: k });
            // The block is one of f32, because those of f64 have no check.
            let single = |x: &Lanes<R>| R::single(&x.0).map_or(f32::NAN, |x| x[from % LANES]);
            self.parameters
                .iter_mut()
                .zip(&block.accepted)
                .for_each(|(row, x)| row.0[to] = single(x));
            self.fit_sums
                .iter_mut()
                .zip(&block.sums)
                .for_each(|(row, sum)| row.0[to] = single(sum));
            self.cost.0[to] = columns.chi2[k] as f32;
            if self.seats.len() == LANES {
                self.judge_collected(source, columns);
            }
        }
    }

    /// Judges the collected f32 fits. Writes the variances of those that are precise enough, and NaN for those that f64
    /// must continue; also the correlations if they are asked for.
    pub fn judge_collected(&mut self, source: &FitSource<'_>, columns: &mut SmallColumns<'_>) {
        if self.seats.is_empty() {
            return;
        }
        // 1. The bound from the sums of a fit is cheap, but not all models have one.
        let count = self.parameters.len();
        let problem = source.problem;
        let mut is_precise_by_sums = Lanes::splat(0.0f32);
        if let Some(Rounding {
            sums: Some(sums), ..
        }) = &problem.rounding
        {
            self.dispatch_action(RoundingAction::Sums(sums));
            self.dispatch_action(RoundingAction::Judge(problem));
            is_precise_by_sums = self.is_precise;
        }
        // 2. The bound from all points is tighter, and needed if any fit failed the first.
        if self
            .seats
            .iter()
            .any(|seat| is_precise_by_sums.0[seat.lane % LANES] == 0.0)
        {
            self.sum_squares(source);
            self.dispatch_action(RoundingAction::Judge(problem));
            // A fit that passed the first test passes, so that its result does not depend on the other lanes.
            (0..LANES).for_each(|l| {
                self.is_precise.0[l] = self.is_precise.0[l].max(is_precise_by_sums.0[l])
            });
        }
        // 3. Write the results.
        for &LaneSeat { lane: l, fit: k } in &self.seats {
            let l = l % LANES;
            let is_precise = self.is_precise.0[l] > 0.0;
            let fit_variances = columns.variances[k * count..][..count]
                .iter_mut()
                .zip(&self.variances);
            fit_variances.for_each(|(target, variance)| {
                *target = pick(is_precise, f64::from(variance.0[l]), f64::NAN)
            });
            let SmallColumns {
                variances,
                correlations,
                ..
            } = &mut *columns;
            if let Some(matrices) = correlations {
                let variances = &variances[k * count..][..count];
                copy_correlations(
                    &self.correlations,
                    l,
                    variances,
                    &mut matrices[k * count * count..][..count * count],
                );
            }
        }
        self.seats.clear();
    }

    /// Runs an action with the widest vectors that the machine has.
    fn dispatch_action(&mut self, action: RoundingAction<'_>) {
        pulp::Arch::new().dispatch(RoundingDispatch {
            check: self,
            action,
        });
    }

    /// Sums the squares of the weighted model values, and of the bounds on their rounding errors, over all points.
    fn sum_squares(&mut self, source: &FitSource<'_>) {
        let problem = source.problem;
        // All problems that are fitted in f32 have it.
        let Some(rounding) = &problem.rounding else {
            return;
        };
        copy_to_lanes(&mut self.x, &self.seats, source.batch.x);
        copy_weights(&mut self.weight, &self.seats, source);
        self.sums_of_squares = [Lanes::splat(0.0); 2];
        if self.x.is_empty() {
            self.shared_x.clear();
            self.shared_x
                .extend(source.batch.x.iter().map(|x| *x as f32));
        }
        for first in (0..problem.points).step_by(POINTS_IN_CACHE) {
            let points = first..problem.points.min(first + POINTS_IN_CACHE);
            let grid = if self.x.is_empty() {
                LaneGrid::Shared(&self.shared_x)
            } else {
                LaneGrid::Own(&self.x)
            };
            (rounding.points)(LaneBlock {
                points: points.clone(),
                of_points: problem.points,
                grid,
                parameters: &self.parameters,
                registers: &mut self.registers,
                y: &[],
                rows: &mut self.rows[..2 * points.len()],
                stride: 2,
            });
            self.dispatch_action(RoundingAction::Points(points));
        }
        let squared_factor = rounding.times * rounding.times;
        self.sums_of_squares[1]
            .0
            .iter_mut()
            .for_each(|bound| *bound *= squared_factor);
    }

    /// Adds the squares of the weighted rows (model values and rounding bounds) of these points to the sums of squares.
    #[inline(always)]
    fn add_squares(&mut self, points: Range<usize>) {
        for (j, rows) in points.zip(self.rows.chunks_exact(2)) {
            for (sum, row) in self.sums_of_squares.iter_mut().zip(rows) {
                match self.weight.get(j) {
                    Some(weight) => (0..LANES).for_each(|l| {
                        let w = weight.0[l];
                        let x = row.0[l];
                        // The row of a masked point may be anything, NaN included.
                        let x = pick(w > 0.0, w * x, 0.0);
                        sum.0[l] = x.mul_add(x, sum.0[l]);
                    }),
                    None => {
                        (0..LANES).for_each(|l| sum.0[l] = row.0[l].mul_add(row.0[l], sum.0[l]))
                    }
                }
            }
        }
    }

    /// Computes the variances, and notes the fits for which the bound on the rounding shows that f32 is precise enough.
    #[inline(always)]
    fn judge_rounding<S: Simd>(&mut self, simd: S, problem: &SmallProblem) {
        // 1. Invert the normal matrices: Σ_p A_pp (A⁻¹)_pp inflates the errors of the sums, and Σ_p x_p² / (A⁻¹)_pp is
        //    the shift by rounding the parameters.
        let mut inflation = Lanes::splat(0.0);
        let mut squared_shift = Lanes::splat(0.0);
        for p in 0..self.parameters.len() {
            let row = self.factors.lower[packed_index(p, 0)..][..p + 1].iter_mut();
            row.zip(&self.fit_sums[normal(p, 0)..])
                .for_each(|(target, sum)| *target = *sum);
            self.diagonal[p] = self.fit_sums[normal(p, p)];
        }
        self.factors.factorise(simd, &self.least_pivots);
        for p in 0..self.parameters.len() {
            self.variances[p] = self.factors.inverse_diagonal(p);
            let variance = &self.variances[p].0;
            let x = &self.parameters[p].0;
            let a = &self.diagonal[p].0;
            for l in 0..LANES {
                inflation.0[l] += a[l] * variance[l];
                squared_shift.0[l] += x[l] * x[l] / variance[l];
            }
        }
        if !self.correlations.is_empty() {
            self.factors
                .write_correlations(&self.variances, &mut self.correlations);
        }
        // 2. Compare the bound on the shift with the reduction at which fits end.
        let Tolerances {
            reduction,
            largest_cost,
            ..
        } = problem.tolerances;
        let tolerance = reduction as f32;
        let largest_cost = largest_cost as f32;
        let count = self.parameters.len() as f32;
        let points = problem.points as f32;
        let roundings_of_sums = points.sqrt();
        let max_inflation = MAX_VARIANCE_ERROR / (HALF_ULP_OF_F32 * points);
        let [values, bounds] = &self.sums_of_squares;
        for l in 0..LANES {
            let cost = self.cost.0[l];
            let inflation = inflation.0[l];
            let value = values.0[l].sqrt();
            let bound = bounds.0[l].sqrt();
            // The data are rounded, too, which doubles the bound. Derivatives are about as precise as the value.
            let column_errors =
                (2.0 * bound / value + roundings_of_sums) * (count * inflation * cost).sqrt();
            let shift = HALF_ULP_OF_F32 * (2.0 * bound + column_errors + squared_shift.0[l].sqrt());
            let allowed = ROUNDING_SHARE * least_reduction(tolerance, cost, largest_cost).sqrt();
            let is_precise =
                (shift <= allowed) & (inflation <= max_inflation) & (cost > LEAST_COST);
            self.is_precise.0[l] = pick(is_precise, 1.0, 0.0);
        }
    }
}

/// Operation on the collected fits.
enum RoundingAction<'a> {
    Points(Range<usize>),
    Sums(&'a SumRounding),
    Judge(&'a SmallProblem),
}

/// The collected fits and an operation on them, for `pulp`.
struct RoundingDispatch<'a> {
    check: &'a mut RoundingCheck,
    action: RoundingAction<'a>,
}

impl WithSimd for RoundingDispatch<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.action {
            RoundingAction::Points(points) => self.check.add_squares(points),
            RoundingAction::Sums(rounding) => {
                self.check.sums_of_squares =
                    bounds_from_sums(rounding, &self.check.parameters, &self.check.fit_sums)
            }
            RoundingAction::Judge(problem) => self.check.judge_rounding(simd, problem),
        }
    }
}

/// Returns the sums of squares over points of the values and of the bounds on their rounding, from parameters and a
/// block's sums. These are of the point before the last step, which is small, and contain the priors as further points.
#[inline(always)]
fn bounds_from_sums(
    rounding: &SumRounding,
    parameters: &[Lanes<f32>],
    sums: &[Lanes<f32>],
) -> [Lanes<f32>; 2] {
    // The model is a v + c, with the first parameter a and the last one c. Columns of its Jacobian are v and 1.
    let last = parameters.len() - 1;
    let element = |p: usize, q: usize| &sums[normal(p, q)].0;
    let a = &parameters[0].0;
    let c = &parameters[last].0;
    let squares = element(0, 0);
    let crosses = element(last, 0);
    let ones = element(last, last);
    let mut values = Lanes::splat(0.0);
    let mut bounds = Lanes::splat(0.0f32);
    for &(p, factor) in rounding.exponents {
        let x = &parameters[p].0;
        let slopes = element(p, p);
        (0..LANES).for_each(|l| bounds.0[l] += factor * x[l].abs() * slopes[l].sqrt());
    }
    for l in 0..LANES {
        let a = a[l];
        let c = c[l];
        let squares = squares[l];
        let value = a * a * squares + 2.0 * a * c * crosses[l] + c * c * ones[l];
        let argument_error =
            rounding.of_exponent * bounds.0[l] + rounding.others * a.abs() * squares.sqrt();
        let bound = argument_error + value.sqrt();
        values.0[l] = value;
        bounds.0[l] = bound * bound;
    }
    [values, bounds]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formula::Formula;
    use crate::solver::small::LaneModel;

    /// Returns the rows that a model writes at some points, for lanes of parameters between 0.5 and 1.5. The first
    /// parameter has either sign.
    fn evaluate_rows(
        model: &LaneModel<f32>,
        parameters: &[Lanes<f32>],
        x: &[f32],
        points: usize,
        stride: usize,
    ) -> Vec<Lanes<f32>> {
        let mut rows = vec![Lanes::splat(f32::NAN); points * stride];
        let grid = LaneGrid::Shared(x);
        let of_points = points;
        let registers = &mut Vec::new();
        model(LaneBlock {
            points: 0..points,
            of_points,
            grid,
            parameters,
            registers,
            y: &[],
            rows: &mut rows,
            stride,
        });
        rows
    }

    /// The bound from the sums is never below that from all points, and not far above it.
    #[test]
    fn bounds_from_sums_agree_with_bounds_from_points() {
        let pseudorandom = |k: usize| 0.5 + (k as f32 * 0.618_034).fract();
        let points = 9;
        let mut n_checked = 0;
        for name in Formula::builtins() {
            let formula = Formula::builtin(name).unwrap();
            let Rounding {
                points: point_bounds,
                sums: Some(rounding),
                ..
            } = formula.rounding(true)
            else {
                continue;
            };
            n_checked += 1;
            let p = formula.parameters().len();
            let random_lanes =
                |i: usize| Lanes(std::array::from_fn(|l| pseudorandom(7 + i * LANES + l)));
            let mut parameters: Vec<Lanes<f32>> = (0..p).map(random_lanes).collect();
            parameters[0].0.iter_mut().step_by(2).for_each(|a| *a = -*a);
            let x: Vec<f32> = (0..formula.predictors().len() * points)
                .map(|k| 2.0 * pseudorandom(1001 + k))
                .collect();
            let jacobian = evaluate_rows(&formula.lanes(), &parameters, &x, points, 1 + p);
            let by_points = evaluate_rows(&point_bounds, &parameters, &x, points, 2);
            let mut sums = vec![Lanes::splat(0.0); packed_length(1 + p)];
            for row in jacobian.chunks_exact(1 + p) {
                for (i, a) in row.iter().enumerate() {
                    for (j, b) in row[..=i].iter().enumerate() {
                        (0..LANES).for_each(|l| sums[packed_index(i, j)].0[l] += a.0[l] * b.0[l]);
                    }
                }
            }
            let [values, bounds] = bounds_from_sums(&rounding, &parameters, &sums);
            for l in 0..LANES {
                let [value, bound] = [0, 1].map(|k| {
                    by_points
                        .iter()
                        .skip(k)
                        .step_by(2)
                        .map(|row| row.0[l].powi(2))
                        .sum::<f32>()
                });
                assert!(
                    (values.0[l] - value).abs() <= 1e-4 * value,
                    "{name} lane {l}: {} {value}",
                    values.0[l]
                );
                let ratio = (bounds.0[l] / bound).sqrt();
                assert!((0.9999..1.5).contains(&ratio), "{name} lane {l}: {ratio}");
            }
        }
        assert_eq!(n_checked, 5);
    }
}
