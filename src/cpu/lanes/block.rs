//! The state of a block of fits.

use pulp::{Simd, WithSimd};

use super::function::{CalledFits, FunctionRows};
use super::gram::GramSum;
use super::load::{FitSource, SeatedLanes};
use super::solve::LdlFactors;
use super::weighting::RowWeighting;
use crate::buffers::ResidualScatter;
use crate::math::Real;
use crate::math::lanes::{LANES, Lanes};
use crate::math::triangle::{packed_index, packed_length, pair_index};
use crate::recording::ManyFunction;
use crate::solver::small::{
    AddUp, GaussianPrior, LaneBlock, LaneGrid, LaneModel, LaneSum, PointLanes, SeatedFits,
    SmallBatch, SmallModel, SmallProblem,
};
use crate::solver::thresholds::{LEAST_FTOL, LEAST_XTOL, UNDAMPED};

/// Maximum number of points whose rows are in the cache at a time.
const POINTS_IN_CACHE: usize = 9;

/// Status of a lane whose fit has not ended, beside the codes of statuses.
pub const RUNNING_LANE_STATUS: f64 = 99.0;

/// Largest relative rounding error of a cost, and the smallest tolerances that make sense in a precision.
pub struct PrecisionLimits {
    pub cost: f64,
    pub reduction: f64,
    pub step: f64,
    /// Below this damping a step is as good as undamped.
    pub undamped: f64,
}

/// Limits of f32, then of f64. f64 continues the fits that f32 cannot finish, and must not stop while damping still
/// shortens their steps.
const PRECISION_LIMITS: [PrecisionLimits; 2] = [
    PrecisionLimits {
        cost: f32::COST_NOISE,
        reduction: LEAST_FTOL,
        step: LEAST_XTOL,
        undamped: UNDAMPED,
    },
    PrecisionLimits {
        cost: f64::COST_NOISE,
        reduction: 1e-14,
        step: 1e-14,
        undamped: 1e-5,
    },
];

/// Source of the rows of values and derivatives.
#[derive(Clone, Copy)]
pub enum RowSource<'a, R> {
    /// A model that is evaluated in lanes.
    Lanes(&'a LaneModel<R>),
    /// A user's function.
    Function(&'a ManyFunction),
}

/// The functions of the model that is fitted.
pub struct BlockModel<'a, R> {
    pub rows: RowSource<'a, R>,
    /// Computes the sums without rows, if the model allows it.
    pub sums: Option<&'a AddUp<R>>,
    /// (predictors, points): the grid that all fits share, empty if each has its own.
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
pub struct FitBlock<R> {
    pub parameters: usize,
    pub points: usize,
    /// Whether fits end in this block; those in f32 are continued in f64, and those with rough derivatives with better
    /// ones.
    pub may_end: bool,
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
    pub inverse_unit: Vec<Lanes<R>>,
    /// (P): empty where no fit has bounds.
    pub lower: Vec<Lanes<R>>,
    pub upper: Vec<Lanes<R>>,
    /// (T): products of the rows residual, J_1 … J_P at the trial and the accepted points; the first is the cost.
    pub trial_sums: Vec<Lanes<R>>,
    pub sums: Vec<Lanes<R>>,
    pub mu: Lanes<R>,
    pub nu: Lanes<R>,
    /// Reduction that the step to the trial point predicts. Negative if that step was shortened, and therefore cannot
    /// be compared with the next.
    pub predicted_reduction: Lanes<R>,
    /// Minimum of a diagonal element in the damping, relative to the largest element; 0 once it is released.
    pub diagonal_floor: Lanes<R>,
    /// Minimum of a diagonal element in the damping, in the parameters' units.
    pub least_diagonal: Lanes<R>,
    /// 1 where no free parameter is damped by more than a negligible share of its own diagonal.
    pub is_undamped_step: Lanes<R>,
    /// Factor by which the step was shortened.
    pub step_share: Lanes<R>,
    /// 1 where the step is so short that it may be taken without an evaluation.
    pub is_trusted_step: Lanes<R>,
    pub rounds: Lanes<R>,
    /// Rounds after which a fit ends; fewer than the settings say where its budget is nearly spent.
    pub max_rounds: Lanes<R>,
    pub rejections: Lanes<R>,
    pub status: Lanes<R>,
    pub factors: LdlFactors<R>,
    /// (P): the step; later the variances, if [`compute_variances`](Self::compute_variances) has run.
    pub delta: Vec<Lanes<R>>,
    /// (P): 1 where a parameter may move, else 0.
    pub is_free: Vec<Lanes<R>>,
    /// (P (P − 1) / 2): correlations from [`compute_variances`](Self::compute_variances); empty unless they are asked
    /// for.
    pub correlations: Vec<Lanes<R>>,
    /// (P): the part of the step that has been taken inside the box, bound by bound.
    pub reached_step: Vec<Lanes<R>>,
    /// (P): scratch for least pivots, shares of a step inside the bounds, and gains of parameters to release.
    pub scratch: Vec<Lanes<R>>,
    registers: Vec<Lanes<R>>,
    rows: Vec<Lanes<R>>,
    point_lanes: PointLanes<R>,
    function_rows: FunctionRows,
}

impl<R: Real> FitBlock<R> {
    /// Makes a block, one fit per vector lane, for a batch's shape of data.
    pub fn new(problem: &SmallProblem, batch: &SmallBatch<'_>) -> FitBlock<R> {
        let may_end = matches!(
            problem.model,
            SmallModel::Double(..)
                | SmallModel::Function {
                    is_precise: true,
                    ..
                }
        );
        let parameters = problem.parameters;
        let points = problem.points;
        let zero = Lanes::splat(R::ZERO);
        let rows = |count: usize| vec![zero; count];
        let bounds = if batch.bounds.is_some() {
            parameters
        } else {
            0
        };
        FitBlock {
            parameters,
            points,
            may_end,
            y: rows(points),
            weight: rows(if batch.is_weighted() { points } else { 0 }),
            x: rows(if batch.own_grid {
                problem.predictors * points
            } else {
                0
            }),
            trial: rows(parameters),
            accepted: rows(parameters),
            unit: rows(parameters),
            inverse_unit: rows(parameters),
            lower: rows(bounds),
            upper: rows(bounds),
            trial_sums: rows(packed_length(1 + parameters)),
            sums: rows(packed_length(1 + parameters)),
            mu: zero,
            nu: zero,
            predicted_reduction: zero,
            diagonal_floor: zero,
            least_diagonal: zero,
            is_undamped_step: zero,
            step_share: zero,
            is_trusted_step: zero,
            rounds: zero,
            max_rounds: Lanes::splat(R::of(problem.settings.max_rounds.into())),
            rejections: zero,
            status: zero,
            factors: LdlFactors::new(parameters),
            delta: rows(parameters),
            is_free: vec![Lanes::splat(R::ONE); parameters],
            correlations: rows(match problem.correlations && may_end {
                true => pair_index(parameters, 0),
                false => 0,
            }),
            reached_step: rows(parameters),
            scratch: rows(parameters),
            registers: Vec::new(),
            rows: rows(POINTS_IN_CACHE * (1 + parameters)),
            point_lanes: PointLanes::new(),
            function_rows: FunctionRows::default(),
        }
    }

    /// Returns whether the block has weights, own grids and bounds exactly where the fits of a batch have them.
    pub fn has_shape_of(&self, batch: &SmallBatch<'_>) -> bool {
        let block_has = [
            !self.weight.is_empty(),
            !self.x.is_empty(),
            !self.lower.is_empty(),
        ];
        block_has == [batch.is_weighted(), batch.own_grid, batch.bounds.is_some()]
    }

    /// Returns a bit mask of the lanes whose fits have not ended.
    pub fn running_lanes(&self) -> u64 {
        let running_bit =
            |(l, status): (usize, &R)| u64::from(*status == R::of(RUNNING_LANE_STATUS)) << l;
        let lanes = self.status.0.iter().enumerate();
        pulp::Arch::new().dispatch(|| lanes.map(running_bit).fold(0, |mask, bit| mask | bit))
    }

    /// Returns the thresholds of the solver that follow from the rounding of numbers of precision R. Fits with rough
    /// derivatives, which do not end in this block, have those of f32.
    pub fn precision_limits(&self) -> &'static PrecisionLimits {
        &PRECISION_LIMITS[usize::from(self.may_end)]
    }

    /// Computes cost, gradient and normal matrix of the seated fits at their trial points; the numbers of other
    /// lanes are meaningless.
    pub fn linearise(
        &mut self,
        model: &BlockModel<'_, R>,
        seated: SeatedLanes<'_>,
        source: &FitSource<'_>,
    ) {
        match model.sums {
            Some(add_up) => {
                let FitBlock {
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
            None => self.compute_sums(model, seated, source, SumPoint::Trial),
        }
    }

    /// Computes the sums (cost, gradient, normal matrix) at trial points or, for the covariance, at accepted ones.
    fn compute_sums(
        &mut self,
        model: &BlockModel<'_, R>,
        seated: SeatedLanes<'_>,
        source: &FitSource<'_>,
        mut sum_point: SumPoint<'_>,
    ) {
        // 1. Choose the point, and the source of its values.
        let problem = source.problem;
        let expected = matches!(sum_point, SumPoint::Accepted(_));
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
        let y_of_values = if problem.estimator.is_least_squares() {
            &self.y[..]
        } else {
            &[]
        };
        let has_few_fits =
            PointLanes::<R>::are_faster(seated.lanes.count_ones() as usize, self.points);
        let by_points = problem.is_pointwise && has_few_fits;
        let of_points = self.points;
        let predictors = problem.predictors;
        // 2. Few fits are evaluated point by point, and a user's function is called, for all points at once.
        match model.rows {
            RowSource::Lanes(rows) if by_points => {
                let fits = SeatedFits {
                    points: of_points,
                    predictors,
                    grid,
                    parameters,
                    y: y_of_values,
                    stride,
                };
                self.point_lanes.evaluate(rows, seated.lanes, &fits);
            }
            RowSource::Lanes(_) => {}
            RowSource::Function(function) => {
                let unit = &self.unit[..];
                let lower = &self.lower[..];
                let upper = &self.upper[..];
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
                    .call_function(function, seated, &source.batch, &fits);
            }
        }
        // 3. Go through the points in chunks whose rows stay in the cache: get the rows, weight them, add their
        //    products.
        let chunk = self.points.div_ceil(self.points.div_ceil(POINTS_IN_CACHE));
        for first in (0..self.points).step_by(chunk) {
            let points = first..self.points.min(first + chunk);
            let rows = &mut self.rows[..points.len() * stride];
            match model.rows {
                RowSource::Lanes(_) if by_points => {
                    self.point_lanes.write_rows(points.clone(), rows)
                }
                RowSource::Lanes(model) => model(LaneBlock {
                    points: points.clone(),
                    of_points,
                    grid,
                    parameters,
                    registers: &mut self.registers,
                    y: y_of_values,
                    rows,
                    stride,
                }),
                RowSource::Function(_) => {
                    self.function_rows
                        .write_rows(points.clone(), y_of_values, rows)
                }
            }
            let y = &self.y[points.clone()];
            let weight = self.weight.get(points.clone()).unwrap_or(&[]);
            let scatter = if let SumPoint::Accepted(Some(scatter)) = &mut sum_point {
                Some(&mut **scatter)
            } else {
                None
            };
            RowWeighting {
                estimator: problem.estimator,
                expected,
                scatter,
                y,
                weight,
                rows,
                cost: &mut cost,
            }
            .weight_rows();
            let ones = problem.ends_in_ones
                && self.weight.is_empty()
                && problem.estimator.is_least_squares();
            GramSum {
                rows,
                stride,
                sums: &mut self.trial_sums,
                fresh: first == 0,
                ones,
            }
            .add_products();
        }
        // 4. A robust cost is no sum of squared residuals.
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
            let mean = R::of(mean);
            let weight = R::of(weight);
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
    pub fn compute_variances(
        &mut self,
        model: &BlockModel<'_, R>,
        seated: SeatedLanes<'_>,
        source: &FitSource<'_>,
    ) {
        let problem = source.problem;
        let is_robust = !problem.estimator.is_least_squares();
        let mut scatter = problem
            .is_sandwich
            .then(|| [ResidualScatter::default(); LANES]);
        if is_robust {
            // The trial's sums are not needed any more, and their memory is free.
            self.compute_sums(model, seated, source, SumPoint::Accepted(scatter.as_mut()));
            std::mem::swap(&mut self.sums, &mut self.trial_sums);
        }
        pulp::Arch::new().dispatch(BlockDispatch {
            block: self,
            action: BlockAction::Invert,
        });
        if is_robust {
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
            let n_free = self
                .is_free
                .iter()
                .filter(|is_free| is_free.0[l] > R::ZERO)
                .count();
            let factor = scatter
                .covariance_factors(n_free)
                .map_or(1.0, |(a, b)| b / (a * a));
            let factor = R::of(if is_without_priors { factor } else { f64::NAN });
            self.delta
                .iter_mut()
                .for_each(|variance| variance.0[l] *= factor);
        }
    }

    /// Accepts or rejects each lane's trial point, then sets its next one, or its status where the fit ends.
    pub fn step_lanes(&mut self, problem: &SmallProblem) {
        pulp::Arch::new().dispatch(BlockDispatch {
            block: self,
            action: BlockAction::Step(problem),
        });
    }
}

/// Points at which a block's sums are computed.
enum SumPoint<'a> {
    Trial,
    /// For the covariance, with the scatter of the residuals for that of the sandwich formula.
    Accepted(Option<&'a mut [ResidualScatter; LANES]>),
}

/// Operation on a block.
enum BlockAction<'a> {
    Step(&'a SmallProblem),
    Invert,
}

/// A block and an operation on it, for `pulp`.
struct BlockDispatch<'a, R> {
    block: &'a mut FitBlock<R>,
    action: BlockAction<'a>,
}

impl<R: Real> WithSimd for BlockDispatch<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.action {
            BlockAction::Step(problem) => {
                self.block.judge_trials();
                self.block.choose_steps(simd, problem);
            }
            BlockAction::Invert => self.block.invert_normal_matrices(simd),
        }
    }
}
