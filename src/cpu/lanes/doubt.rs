//! Test of whether an f32 fit can stand: a bound on the shift of the solution by rounding, in units of the errors.
//!
//! Residuals that are wrong by e move the solution by at most ‖e‖ / σ errors. A Jacobian and sums that are wrong by a
//! share ε of each column move it by ε ‖r‖ / σ √(P Σ_p A_pp (A⁻¹)_pp); sums over N points are by √N roundings (Higham &
//! Mary 2019).

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::block::{Block, POINTS, normal};
use super::load::{Seat, Source, fill, fill_weights, put_correlations};
use super::solve::Factors;
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
pub struct Doubts {
    /// The columns' fits that are in the lanes.
    seats: Vec<Seat>,
    /// ((P + 1) (P + 2) / 2): their sums, as in a block.
    seated: Vec<Lanes<f32>>,
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
    /// Squared sums over points: the model's values, and the bounds of their rounding.
    sums: [Lanes<f32>; 2],
    cost: Lanes<f32>,
    factors: Factors<f32>,
    /// (P): no pivot need be larger.
    least: Vec<Lanes<f32>>,
    /// (P): of the matrices, and of their inverses.
    diagonal: Vec<Lanes<f32>>,
    variances: Vec<Lanes<f32>>,
    /// (P (P − 1) / 2): of the inverses; empty unless they are asked for.
    correlations: Vec<Lanes<f32>>,
    /// 1 where f32 will do.
    sure: Lanes<f32>,
}

impl Doubts {
    /// Makes an empty collection of ended f32 fits whose rounding errors are to be judged, for a batch's shape of data.
    pub fn new(problem: &SmallProblem, batch: &SmallBatch<'_>) -> Doubts {
        let zero = Lanes::splat(0.0);
        let lanes = |used: bool, count: usize| vec![zero; if used { count } else { 0 }];
        let count = problem.parameters;
        Doubts {
            seats: Vec::with_capacity(LANES),
            seated: lanes(true, packed_length(count + 1)),
            shared_x: Vec::new(),
            parameters: lanes(true, count),
            x: lanes(batch.own_grid, problem.predictors * problem.points),
            weight: lanes(batch.is_weighted(), problem.points),
            registers: Vec::new(),
            rows: lanes(true, 2 * POINTS),
            sums: [zero; 2],
            cost: zero,
            factors: Factors::new(count),
            least: lanes(true, count),
            diagonal: lanes(true, count),
            variances: lanes(true, count),
            correlations: lanes(problem.correlations, pair_index(count, 0)),
            sure: zero,
        }
    }

    /// Collects those `ended` fits that have converged inside their bounds; when all seats are full, they are judged.
    // as a call, which compilers prefer, it makes `gauss2d` 5 % slower
    #[inline(always)]
    pub fn take<R: Real>(
        &mut self,
        block: &Block<R>,
        ended: &[Seat],
        source: &Source<'_>,
        columns: &mut SmallColumns<'_>,
    ) {
        for &Seat { lane: from, fit: k } in ended {
            if !Status::from_code(columns.status[k].into()).is_some_and(Status::is_success) {
                continue;
            }
            let (from, to) = (from % LANES, self.seats.len() % LANES);
            // at a bound the others' matrix would be needed; what converges slowly has far to go
            if !block.is_inside(from) || block.slow.0[from] > R::ZERO {
                continue;
            }
            self.seats.push(Seat { lane: to, fit: k });
            // they are f32: blocks of f64 have no doubts
            let single = |x: &Lanes<R>| R::single(&x.0).map_or(f32::NAN, |x| x[from % LANES]);
            self.parameters
                .iter_mut()
                .zip(&block.accepted)
                .for_each(|(seat, x)| seat.0[to] = single(x));
            self.seated
                .iter_mut()
                .zip(&block.sums)
                .for_each(|(seat, sum)| seat.0[to] = single(sum));
            self.cost.0[to] = columns.chi2[k] as f32;
            if self.seats.len() == LANES {
                self.settle(source, columns);
            }
        }
    }

    /// Judges the collected f32 fits: writes variances, and correlations if there is room, where rounding allows the
    /// result, NaN where f64 must finish it.
    pub fn settle(&mut self, source: &Source<'_>, columns: &mut SmallColumns<'_>) {
        if self.seats.is_empty() {
            return;
        }
        let (count, problem) = (self.parameters.len(), source.problem);
        let mut by_sums = Lanes::splat(0.0f32);
        if let Some(Rounding {
            sums: Some(sums), ..
        }) = &problem.rounding
        {
            self.act(Action::Sums(sums));
            self.act(Action::Judge(problem));
            by_sums = self.sure;
        }
        if self
            .seats
            .iter()
            .any(|seat| by_sums.0[seat.lane % LANES] == 0.0)
        {
            self.look(source);
            self.act(Action::Judge(problem));
            // a fit's own affair, whoever else is in the block
            (0..LANES).for_each(|l| self.sure.0[l] = self.sure.0[l].max(by_sums.0[l]));
        }
        for &Seat { lane: l, fit: k } in &self.seats {
            let (l, sure) = (l % LANES, self.sure.0[l % LANES] > 0.0);
            let own = columns.variances[k * count..][..count]
                .iter_mut()
                .zip(&self.variances);
            own.for_each(|(to, variance)| *to = pick(sure, f64::from(variance.0[l]), f64::NAN));
            let SmallColumns {
                variances,
                correlations,
                ..
            } = &mut *columns;
            if let Some(all) = correlations {
                let variances = &variances[k * count..][..count];
                put_correlations(
                    &self.correlations,
                    l,
                    variances,
                    &mut all[k * count * count..][..count * count],
                );
            }
        }
        self.seats.clear();
    }

    /// Runs an action with the widest vectors that the machine has.
    fn act(&mut self, action: Action<'_>) {
        pulp::Arch::new().dispatch(Part {
            doubts: self,
            action,
        });
    }

    /// Sums the squares of the weighted model values, and of the bounds on their rounding errors, over all points.
    fn look(&mut self, source: &Source<'_>) {
        let problem = source.problem;
        // fits in f32 have it
        let Some(rounding) = &problem.rounding else {
            return;
        };
        fill(&mut self.x, &self.seats, source.batch.x);
        fill_weights(&mut self.weight, &self.seats, source);
        self.sums = [Lanes::splat(0.0); 2];
        if self.x.is_empty() {
            self.shared_x.clear();
            self.shared_x
                .extend(source.batch.x.iter().map(|x| *x as f32));
        }
        for first in (0..problem.points).step_by(POINTS) {
            let points = first..problem.points.min(first + POINTS);
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
            self.act(Action::Points(points));
        }
        let times = rounding.times * rounding.times;
        self.sums[1].0.iter_mut().for_each(|bound| *bound *= times);
    }

    /// Adds the squares of the weighted rows (model values and rounding bounds) of some points to `sums`.
    #[inline(always)]
    fn add(&mut self, points: Range<usize>) {
        for (j, rows) in points.zip(self.rows.chunks_exact(2)) {
            for (sum, row) in self.sums.iter_mut().zip(rows) {
                match self.weight.get(j) {
                    Some(weight) => (0..LANES).for_each(|l| {
                        let (w, x) = (weight.0[l], row.0[l]);
                        // a masked row may be anything, NaN included
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

    /// Computes variances, and sets `sure` for each fit whose bound on the rounding shows that f32 is precise enough.
    #[inline(always)]
    fn judge<S: Simd>(&mut self, simd: S, problem: &SmallProblem) {
        let (mut inflation, mut moved) = (Lanes::splat(0.0), Lanes::splat(0.0));
        for p in 0..self.parameters.len() {
            let row = self.factors.lower[packed_index(p, 0)..][..p + 1].iter_mut();
            row.zip(&self.seated[normal(p, 0)..])
                .for_each(|(to, sum)| *to = *sum);
            self.diagonal[p] = self.seated[normal(p, p)];
        }
        self.factors.factorise(simd, &self.least);
        for p in 0..self.parameters.len() {
            self.variances[p] = self.factors.inverse_diagonal(p);
            let (variance, x, a) = (
                &self.variances[p].0,
                &self.parameters[p].0,
                &self.diagonal[p].0,
            );
            for l in 0..LANES {
                inflation.0[l] += a[l] * variance[l];
                moved.0[l] += x[l] * x[l] / variance[l];
            }
        }
        if !self.correlations.is_empty() {
            self.factors
                .correlations(&self.variances, &mut self.correlations);
        }
        let Tolerances {
            reduction,
            largest_cost,
            ..
        } = problem.tolerances;
        let (tolerance, largest_cost) = (reduction as f32, largest_cost as f32);
        let (count, points) = (self.parameters.len() as f32, problem.points as f32);
        let (of_sums, largest) = (
            points.sqrt(),
            MAX_VARIANCE_ERROR / (HALF_ULP_OF_F32 * points),
        );
        let [values, bounds] = &self.sums;
        for l in 0..LANES {
            let (cost, inflation) = (self.cost.0[l], inflation.0[l]);
            let (value, bound) = (values.0[l].sqrt(), bounds.0[l].sqrt());
            // data are rounded, too, and derivatives about as well as the value
            let of_columns = (2.0 * bound / value + of_sums) * (count * inflation * cost).sqrt();
            let sum = HALF_ULP_OF_F32 * (2.0 * bound + of_columns + moved.0[l].sqrt());
            let allowed = ROUNDING_SHARE * least_reduction(tolerance, cost, largest_cost).sqrt();
            let sure = (sum <= allowed) & (inflation <= largest) & (cost > LEAST_COST);
            self.sure.0[l] = pick(sure, 1.0, 0.0);
        }
    }
}

/// Operation in a `pulp` dispatch.
enum Action<'a> {
    Points(Range<usize>),
    Sums(&'a SumRounding),
    Judge(&'a SmallProblem),
}

struct Part<'a> {
    doubts: &'a mut Doubts,
    action: Action<'a>,
}

impl WithSimd for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.action {
            Action::Points(points) => self.doubts.add(points),
            Action::Sums(rounding) => {
                self.doubts.sums = from_sums(rounding, &self.doubts.parameters, &self.doubts.seated)
            }
            Action::Judge(problem) => self.doubts.judge(simd, problem),
        }
    }
}

/// Returns the squared sums over points of the values and of the bounds of their rounding, from parameters and a
/// block's sums: those before the last step, which is small. Priors are in them, too, as points that are known.
#[inline(always)]
fn from_sums(
    rounding: &SumRounding,
    parameters: &[Lanes<f32>],
    sums: &[Lanes<f32>],
) -> [Lanes<f32>; 2] {
    let last = parameters.len() - 1;
    let of = |p: usize, q: usize| &sums[normal(p, q)].0;
    let (a, c) = (&parameters[0].0, &parameters[last].0);
    let (squares, crosses, ones) = (of(0, 0), of(last, 0), of(last, last));
    let (mut values, mut bounds) = (Lanes::splat(0.0), Lanes::splat(0.0f32));
    for &(p, factor) in rounding.exponents {
        let (x, slopes) = (&parameters[p].0, of(p, p));
        (0..LANES).for_each(|l| bounds.0[l] += factor * x[l].abs() * slopes[l].sqrt());
    }
    for l in 0..LANES {
        let (a, c, squares) = (a[l], c[l], squares[l]);
        let value = a * a * squares + 2.0 * a * c * crosses[l] + c * c * ones[l];
        let of_u = rounding.of_exponent * bounds.0[l] + rounding.others * a.abs() * squares.sqrt();
        let bound = of_u + value.sqrt();
        (values.0[l], bounds.0[l]) = (value, bound * bound);
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
    fn rows(
        model: &LaneModel<f32>,
        parameters: &[Lanes<f32>],
        x: &[f32],
        points: usize,
        stride: usize,
    ) -> Vec<Lanes<f32>> {
        let mut rows = vec![Lanes::splat(f32::NAN); points * stride];
        let grid = LaneGrid::Shared(x);
        let (of_points, registers) = (points, &mut Vec::new());
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

    /// Never below the bounds of all points together, and not far above them.
    #[test]
    fn sums_bound_what_points_do() {
        let number = |k: usize| 0.5 + (k as f32 * 0.618_034).fract();
        let (points, mut seen) = (9, 0);
        for name in Formula::builtins() {
            let formula = Formula::builtin(name).unwrap();
            let Rounding {
                points: tape,
                sums: Some(rounding),
                ..
            } = formula.rounding(true)
            else {
                continue;
            };
            seen += 1;
            let p = formula.parameters().len();
            let some = |i: usize| Lanes(std::array::from_fn(|l| number(7 + i * LANES + l)));
            let mut parameters: Vec<Lanes<f32>> = (0..p).map(some).collect();
            parameters[0].0.iter_mut().step_by(2).for_each(|a| *a = -*a);
            let x: Vec<f32> = (0..formula.predictors().len() * points)
                .map(|k| 2.0 * number(1001 + k))
                .collect();
            let jacobian = rows(&formula.lanes(), &parameters, &x, points, 1 + p);
            let by_points = rows(&tape, &parameters, &x, points, 2);
            let mut sums = vec![Lanes::splat(0.0); packed_length(1 + p)];
            for row in jacobian.chunks_exact(1 + p) {
                for (i, a) in row.iter().enumerate() {
                    for (j, b) in row[..=i].iter().enumerate() {
                        (0..LANES).for_each(|l| sums[packed_index(i, j)].0[l] += a.0[l] * b.0[l]);
                    }
                }
            }
            let [values, bounds] = from_sums(&rounding, &parameters, &sums);
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
        assert_eq!(seen, 5);
    }
}
