//! The state of a block of fits.

use pulp::{Simd, WithSimd};

use super::function::{CalledFits, FunctionRows};
use super::gram::Gram;
use super::load::{Seated, Source};
use super::share::Shares;
use super::solve::Factors;
use crate::buffers::ResidualScatter;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes};
use crate::math::triangle::{packed_index, packed_length, pair_index};
use crate::recording::ManyFunction;
use crate::solver::small::{
    AddUp, GaussianPrior, LaneBlock, LaneGrid, LaneModel, LaneSum, PointLanes, SeatedFits,
    SmallBatch, SmallProblem,
};
use crate::solver::thresholds::{LEAST_FTOL, LEAST_XTOL, UNDAMPED};

/// Most points whose rows are in the cache at a time.
pub const POINTS: usize = 9;

/// The status of a lane that is being fitted; what stands there otherwise is a status' code.
pub const RUNNING: f64 = 99.0;

/// Largest relative error of a cost by rounding, and the smallest tolerances that make sense in a precision.
pub struct Rounding {
    pub cost: f64,
    pub reduction: f64,
    pub step: f64,
    /// Below this damping a step is as good as undamped.
    pub undamped: f64,
}

/// Rounding of f32, then of f64. f64 finishes what f32 leaves, and must not stop while damping still holds it back.
const ROUNDING: [Rounding; 2] = [
    Rounding {
        cost: f32::COST_NOISE,
        reduction: LEAST_FTOL,
        step: LEAST_XTOL,
        undamped: UNDAMPED,
    },
    Rounding {
        cost: f64::COST_NOISE,
        reduction: 1e-14,
        step: 1e-14,
        undamped: 1e-5,
    },
];

/// Where the rows of values and derivatives come from.
#[derive(Clone, Copy)]
pub enum ModelRows<'a, R> {
    Lanes(&'a LaneModel<R>),
    /// A user's function.
    Function(&'a ManyFunction),
}

/// The functions of the model that is fitted.
pub struct Model<'a, R> {
    pub rows: ModelRows<'a, R>,
    /// Makes sums without rows, where it can.
    pub sums: Option<&'a AddUp<R>>,
    /// (predictors, points), where fits have none of their own.
    pub shared_x: &'a [R],
}

/// Returns the index of element `p` of the gradient in a block's packed sums; [`normal`] gives that of the normal
/// matrix.
pub const fn gradient(p: usize) -> usize {
    packed_index(p + 1, 0)
}

/// Returns the index of element (p, q) of the normal matrix in a block's packed sums.
pub const fn normal(p: usize, q: usize) -> usize {
    packed_index(p + 1, q + 1)
}

/// The state of as many fits as there are lanes. P is the number of parameters, and T = (P + 1)(P + 2) / 2 that of the
/// sums.
pub struct Block<R> {
    pub parameters: usize,
    pub points: usize,
    /// True if fits may end here; otherwise they are continued in f64, or with better derivatives.
    pub ends: bool,
    /// (points)
    pub y: Vec<Lanes<R>>,
    /// (points): 1/σ, 0 where masked; empty where all are 1.
    pub weight: Vec<Lanes<R>>,
    /// (predictors, points), empty where all fits share one.
    pub x: Vec<Lanes<R>>,
    /// (P)
    pub trial: Vec<Lanes<R>>,
    pub accepted: Vec<Lanes<R>>,
    /// (P): powers of two that parameters are measured in, and their inverses.
    pub unit: Vec<Lanes<R>>,
    pub per_unit: Vec<Lanes<R>>,
    /// (P): empty where no fit has bounds.
    pub lower: Vec<Lanes<R>>,
    pub upper: Vec<Lanes<R>>,
    /// (T): products of the rows residual, J_1 … J_P at the trial and the accepted points; the first is the cost.
    pub trial_sums: Vec<Lanes<R>>,
    pub sums: Vec<Lanes<R>>,
    pub mu: Lanes<R>,
    pub nu: Lanes<R>,
    /// Reduction that the step to the trial point predicts. Negative if that step was shortened, and therefore tells
    /// nothing about the next.
    pub promise: Lanes<R>,
    /// Share of the largest element of the damping's diagonal that others have at least; 0 once it is released.
    pub floor: Lanes<R>,
    /// The least that counts as a diagonal element in the damping, in the parameters' units.
    pub lowest: Lanes<R>,
    /// 1 where no free parameter is damped by more than a negligible share of its own diagonal.
    pub settled: Lanes<R>,
    /// The share of the step that is taken.
    pub share: Lanes<R>,
    /// 1 where the step is so short that it may be taken without an evaluation.
    pub trusted: Lanes<R>,
    /// 0 where what steps to come promise is as small as asked.
    pub slow: Lanes<R>,
    pub rounds: Lanes<R>,
    /// Rounds after which a fit ends; fewer than the settings say where its budget is nearly spent.
    pub most_rounds: Lanes<R>,
    pub rejections: Lanes<R>,
    pub status: Lanes<R>,
    pub factors: Factors<R>,
    /// (P): the step (and what [`variances`](Self::variances) leaves), and 1 where a parameter may move, else 0.
    pub delta: Vec<Lanes<R>>,
    pub free: Vec<Lanes<R>>,
    /// (P (P − 1) / 2): correlations, beside what [`variances`](Self::variances) leaves; empty unless they are asked
    /// for.
    pub correlations: Vec<Lanes<R>>,
    /// (P): how far the way to the step has come inside the box, and scratch: least pivots, shares of a way, what held
    /// parameters would gain.
    pub given: Vec<Lanes<R>>,
    pub least: Vec<Lanes<R>>,
    registers: Vec<Lanes<R>>,
    rows: Vec<Lanes<R>>,
    point_lanes: PointLanes<R>,
    function_rows: FunctionRows,
}

impl<R: Real> Block<R> {
    /// Makes a block, one fit a vector lane, for a batch's shape of data. Fits may end here if `ends`, and are not
    /// continued.
    pub fn new(problem: &SmallProblem, batch: &SmallBatch<'_>, ends: bool) -> Block<R> {
        let (parameters, points) = (problem.parameters, problem.points);
        let zero = Lanes::splat(R::ZERO);
        let lanes = |n: usize| vec![zero; n];
        let bounds = if batch.bounds.is_some() {
            parameters
        } else {
            0
        };
        Block {
            parameters,
            points,
            ends,
            y: lanes(points),
            weight: lanes(if batch.is_weighted() { points } else { 0 }),
            x: lanes(if batch.own_grid {
                problem.predictors * points
            } else {
                0
            }),
            trial: lanes(parameters),
            accepted: lanes(parameters),
            unit: lanes(parameters),
            per_unit: lanes(parameters),
            lower: lanes(bounds),
            upper: lanes(bounds),
            trial_sums: lanes(packed_length(1 + parameters)),
            sums: lanes(packed_length(1 + parameters)),
            mu: zero,
            nu: zero,
            promise: zero,
            floor: zero,
            lowest: zero,
            settled: zero,
            share: zero,
            trusted: zero,
            slow: zero,
            rounds: zero,
            most_rounds: Lanes::splat(R::of(problem.settings.max_rounds.into())),
            rejections: zero,
            status: zero,
            factors: Factors::new(parameters),
            delta: lanes(parameters),
            free: vec![Lanes::splat(R::ONE); parameters],
            // those of fits that end in f32 come from `Doubts`
            correlations: lanes(match problem.correlations && size_of::<R>() == 8 {
                true => pair_index(parameters, 0),
                false => 0,
            }),
            given: lanes(parameters),
            least: lanes(parameters),
            registers: Vec::new(),
            rows: lanes(POINTS * (1 + parameters)),
            point_lanes: PointLanes::new(),
            function_rows: FunctionRows::default(),
        }
    }

    /// Returns whether the block has weights, own grids and bounds exactly where the fits of a batch have them.
    pub fn has_shape_of(&self, batch: &SmallBatch<'_>) -> bool {
        let own = [
            !self.weight.is_empty(),
            !self.x.is_empty(),
            !self.lower.is_empty(),
        ];
        own == [batch.is_weighted(), batch.own_grid, batch.bounds.is_some()]
    }

    /// Returns whether the accepted point of a lane's fit lies strictly between all its bounds.
    pub fn is_inside(&self, lane: usize) -> bool {
        let bounds = self.lower.iter().zip(&self.upper);
        let inside = |(x, (lower, upper)): (&Lanes<R>, (&Lanes<R>, &Lanes<R>))| {
            x.0[lane] > lower.0[lane] && x.0[lane] < upper.0[lane]
        };
        self.accepted.iter().zip(bounds).all(inside)
    }

    /// Returns a bit mask of the lanes whose fits have not ended.
    pub fn running(&self) -> u64 {
        let bit = |(l, status): (usize, &R)| u64::from(*status == R::of(RUNNING)) << l;
        self.status
            .0
            .iter()
            .enumerate()
            .map(bit)
            .fold(0, |all, bit| all | bit)
    }

    /// Returns those thresholds of the solver that follow from the rounding of numbers of precision R. Fits by rough
    /// derivatives, which do not end here, have those of f32.
    pub fn rounding(&self) -> &'static Rounding {
        &ROUNDING[usize::from(size_of::<R>() == 8 && self.ends)]
    }

    /// Computes cost, gradient and normal matrix of the seated fits at their trial points; what is computed for other
    /// lanes means nothing.
    pub fn linearise(&mut self, model: &Model<'_, R>, seated: Seated<'_>, source: &Source<'_>) {
        match model.sums {
            Some(add_up) => {
                let Block {
                    trial: parameters,
                    registers,
                    y,
                    trial_sums: sums,
                    ..
                } = self;
                add_up(LaneSum {
                    parameters,
                    registers,
                    y,
                    sums,
                });
                self.add_priors(&source.problem.priors, false);
            }
            None => self.sum(model, seated, source, Place::Trial),
        }
    }

    /// Computes the sums (cost, gradient, normal matrix) at trial points or, for the covariance, at accepted ones.
    fn sum(
        &mut self,
        model: &Model<'_, R>,
        seated: Seated<'_>,
        source: &Source<'_>,
        mut place: Place<'_>,
    ) {
        let problem = source.problem;
        let expected = matches!(place, Place::Accepted(_));
        let mut cost = Lanes::splat(R::ZERO);
        let stride = 1 + self.parameters;
        let grid = if self.x.is_empty() {
            LaneGrid::Shared(model.shared_x)
        } else {
            LaneGrid::Own(&self.x)
        };
        let parameters = if expected {
            &self.accepted[..]
        } else {
            &self.trial
        };
        let all_y = if problem.estimator.is_least_squares() {
            &self.y[..]
        } else {
            &[]
        };
        let few = PointLanes::<R>::are_faster(seated.lanes.count_ones() as usize, self.points);
        let by_points = problem.is_pointwise && few;
        let (of_points, predictors) = (self.points, problem.predictors);
        match model.rows {
            ModelRows::Lanes(rows) if by_points => {
                let fits = SeatedFits {
                    points: of_points,
                    predictors,
                    grid,
                    parameters,
                    y: all_y,
                    stride,
                };
                self.point_lanes.evaluate(rows, seated.lanes, &fits);
            }
            ModelRows::Lanes(_) => {}
            ModelRows::Function(function) => {
                let (unit, lower, upper) = (&self.unit[..], &self.lower[..], &self.upper[..]);
                let fits = CalledFits {
                    points: of_points,
                    predictors,
                    grid,
                    parameters,
                    unit,
                    lower,
                    upper,
                };
                self.function_rows
                    .evaluate(function, seated, &source.batch, &fits);
            }
        }
        let some = self.points.div_ceil(self.points.div_ceil(POINTS));
        for first in (0..self.points).step_by(some) {
            let points = first..self.points.min(first + some);
            let rows = &mut self.rows[..points.len() * stride];
            match model.rows {
                ModelRows::Lanes(_) if by_points => {
                    self.point_lanes.write_rows(points.clone(), rows)
                }
                ModelRows::Lanes(model) => model(LaneBlock {
                    points: points.clone(),
                    of_points,
                    grid,
                    parameters,
                    registers: &mut self.registers,
                    y: all_y,
                    rows,
                    stride,
                }),
                ModelRows::Function(_) => self.function_rows.put(points.clone(), all_y, rows),
            }
            let (y, weight) = (
                &self.y[points.clone()],
                self.weight.get(points.clone()).unwrap_or(&[]),
            );
            let scatter = if let Place::Accepted(Some(scatter)) = &mut place {
                Some(&mut **scatter)
            } else {
                None
            };
            Shares {
                estimator: problem.estimator,
                expected,
                scatter,
                y,
                weight,
                rows,
                cost: &mut cost,
            }
            .run();
            let ones = problem.ends_in_ones
                && self.weight.is_empty()
                && problem.estimator.is_least_squares();
            Gram {
                rows,
                stride,
                sums: &mut self.trial_sums,
                fresh: first == 0,
                ones,
            }
            .run();
        }
        if !problem.estimator.is_least_squares() {
            self.trial_sums[0] = cost;
        }
        self.add_priors(&problem.priors, expected);
    }

    /// Adds Gaussian priors to the trial's cost, gradient and normal matrix, taken at accepted points if `expected`.
    fn add_priors(&mut self, priors: &[GaussianPrior], expected: bool) {
        for &GaussianPrior {
            parameter: p,
            mean,
            weight,
        } in priors
        {
            let (mean, weight) = (R::of(mean), R::of(weight));
            let x = if expected {
                self.accepted[p]
            } else {
                self.trial[p]
            };
            for l in 0..LANES {
                let residual = (mean - x.0[l]) * weight;
                self.trial_sums[0].0[l] += residual * residual;
                self.trial_sums[gradient(p)].0[l] += weight * residual;
                self.trial_sums[normal(p, p)].0[l] += weight * weight;
            }
        }
    }

    /// Writes the variances of parameters inside their bounds, the diagonal of the inverse normal matrix, into `delta`,
    /// and their correlations where they are asked for, for the seated fits.
    pub fn variances(&mut self, model: &Model<'_, R>, seated: Seated<'_>, source: &Source<'_>) {
        let problem = source.problem;
        let expected = !problem.estimator.is_least_squares();
        let mut scatter = problem
            .is_sandwich
            .then(|| [ResidualScatter::default(); LANES]);
        if expected {
            // nobody reads a trial's sums any more
            self.sum(model, seated, source, Place::Accepted(scatter.as_mut()));
            std::mem::swap(&mut self.sums, &mut self.trial_sums);
        }
        pulp::Arch::new().dispatch(Part {
            block: self,
            action: Action::Invert,
        });
        if expected {
            std::mem::swap(&mut self.sums, &mut self.trial_sums);
        }
        if let Some(scatter) = scatter {
            self.scale_variances(&scatter, problem.priors.is_empty());
        }
    }

    /// Multiplies the variances in `delta` by the factor of the sandwich formula; NaN beside priors, which it does not
    /// multiply.
    fn scale_variances(&mut self, scatter: &[ResidualScatter; LANES], is_without_priors: bool) {
        for (l, scatter) in scatter.iter().enumerate() {
            let free = self.free.iter().filter(|free| free.0[l] > R::ZERO).count();
            let factor = scatter
                .covariance_factors(free)
                .map_or(1.0, |(a, b)| b / (a * a));
            let factor = R::of(if is_without_priors { factor } else { f64::NAN });
            self.delta
                .iter_mut()
                .for_each(|variance| variance.0[l] *= factor);
        }
    }

    /// Accepts or rejects each lane's trial point, then sets its next one, or its status where the fit ends.
    pub fn step(&mut self, problem: &SmallProblem) {
        pulp::Arch::new().dispatch(Part {
            block: self,
            action: Action::Step(problem),
        });
    }
}

/// Points at which a block's sums are computed.
enum Place<'a> {
    Trial,
    /// For the covariance, with the scatter of the residuals for that of the sandwich formula.
    Accepted(Option<&'a mut [ResidualScatter; LANES]>),
}

/// Operation on a block in a `pulp` dispatch.
enum Action<'a> {
    Step(&'a SmallProblem),
    Invert,
}

struct Part<'a, R> {
    block: &'a mut Block<R>,
    action: Action<'a>,
}

impl<R: Real> WithSimd for Part<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.action {
            Action::Step(problem) => {
                self.block.judge();
                self.block.choose(simd, problem);
            }
            Action::Invert => self.block.invert(simd),
        }
    }
}
