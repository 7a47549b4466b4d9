//! The route that the curves of a call take.
//!
//! The fits that fail on it go to populations on the host, the fallback. The step of small fits lacks what the members
//! of a population have: finishing steps, lengthened steps, the secant term, second starts, and differences where a
//! derivative overflows (`docs/trials.md` says what fails without the fallback).

use crate::curve_model::Sides;
use crate::curves::{CurveRun, CurveSolver};
use crate::formula::Formula;
use crate::recording::ManyFunction;
use crate::solver::LevenbergMarquardt;
use crate::solver::small::{MOST_PARAMETERS, MOST_POINTS};

/// Maximum number of rounds of a small fit. Fits that need more are quicker in a population, because lanes wait for
/// their slowest fit.
const MAX_SMALL_FIT_ROUNDS: u32 = 100;

/// Route of the curves of a call. It follows from the model, the number of points, the solver and the device.
pub(crate) enum CurveRoute<'a> {
    /// Small fits on the CPU, side by side: one per vector lane.
    Lanes(SmallFits<'a>),
    /// Small fits on a GPU. `fit_columns` lets them run whole in f32, one per invocation, and ends them in lanes; `fit`
    /// takes populations.
    SmallOnGpu(SmallFits<'a>),
    /// Small fits on the CPU of a function that takes many curves in a call, for `fit_columns`, unless these are to be
    /// exact; `fit` takes populations.
    FunctionInLanes(SmallFits<'a>),
    /// All other fits: populations on the device.
    Population,
}

/// Model and settings of small fits by Levenberg–Marquardt.
#[derive(Clone)]
pub(crate) struct SmallFits<'a> {
    pub model: FittedModel<'a>,
    pub settings: LevenbergMarquardt,
    /// Maximum number of rounds in one precision, and by differences of one kind.
    pub max_rounds: u32,
}

/// Model of small fits.
#[derive(Clone)]
pub(crate) enum FittedModel<'a> {
    Formula(&'a Formula),
    /// A user's function that takes many curves in a call, with differences on one side of each parameter, and on both.
    Function {
        one_sided: ManyFunction,
        two_sided: ManyFunction,
    },
}

impl FittedModel<'_> {
    /// Returns the formula, if it is one.
    pub fn formula(&self) -> Option<&Formula> {
        match self {
            FittedModel::Formula(formula) => Some(formula),
            FittedModel::Function { .. } => None,
        }
    }
}

impl CurveRun {
    /// Returns the route of curves with so many points, where no parameter is tied.
    pub(crate) fn route(&self, points: usize) -> CurveRoute<'_> {
        // 1. Only few parameters and points by Levenberg–Marquardt make a small fit.
        let is_small = self.held.len() <= MOST_PARAMETERS && (1..=MOST_POINTS).contains(&points);
        let CurveSolver::Lm(settings) = self.solver else {
            return CurveRoute::Population;
        };
        if !is_small {
            return CurveRoute::Population;
        }
        let max_rounds = settings.max_rounds.min(MAX_SMALL_FIT_ROUNDS);
        let runs_wgsl = self.device.inner.runs_wgsl();
        // 2. Formulas run on every device.
        if let Some(formula) = self.model.formula() {
            let small = SmallFits {
                model: FittedModel::Formula(formula),
                settings,
                max_rounds,
            };
            return if runs_wgsl {
                CurveRoute::SmallOnGpu(small)
            } else {
                CurveRoute::Lanes(small)
            };
        }
        // 3. Functions of many curves run on the CPU alone.
        let one_sided = self
            .model
            .many_function(true, Sides::One, self.failures.clone());
        let two_sided = self
            .model
            .many_function(true, Sides::Both, self.failures.clone());
        match (one_sided, two_sided) {
            (Some(one_sided), Some(two_sided)) if !runs_wgsl => {
                let model = FittedModel::Function {
                    one_sided,
                    two_sided,
                };
                CurveRoute::FunctionInLanes(SmallFits {
                    model,
                    settings,
                    max_rounds,
                })
            }
            _ => CurveRoute::Population,
        }
    }
}
