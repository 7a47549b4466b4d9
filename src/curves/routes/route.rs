//! The route that the curves of a call take.
//!
//! The fits that fail on it go to populations on the host, the fallback. The step of small fits lacks what the members
//! of a population have: finishing steps, lengthened steps, the secant term, second starts, and differences where a
//! derivative overflows (`docs/trials.md` says what fails without the fallback).

use crate::curves::{CurveRun, CurveSolver};
use crate::formula::Formula;
use crate::solver::LevenbergMarquardt;
use crate::solver::small::{MOST_PARAMETERS, MOST_POINTS};

/// Maximum number of rounds of a small fit. What needs more is better off in a population: lanes wait for their slowest
/// fit.
const MOST_ROUNDS: u32 = 100;

/// Route of the curves of a call. It follows from the model, the number of points, the solver and the device.
pub(crate) enum CurveRoute<'a> {
    /// Small fits on the CPU, side by side: one per vector lane.
    Lanes(SmallFits<'a>),
    /// Small fits on a GPU. `fit_columns` lets them run whole in f32, one per invocation, and ends them in lanes; `fit`
    /// takes populations.
    SmallOnGpu(SmallFits<'a>),
    /// All other fits: populations on the device.
    Population,
}

/// Formula and settings of small fits by Levenberg–Marquardt.
#[derive(Clone, Copy)]
pub(crate) struct SmallFits<'a> {
    pub formula: &'a Formula,
    pub settings: LevenbergMarquardt,
    /// Maximum number of rounds in one precision.
    pub max_rounds: u32,
}

impl CurveRun {
    /// Returns the route of curves with so many points, where no parameter is tied.
    pub(crate) fn route(&self, points: usize) -> CurveRoute<'_> {
        let is_small = self.held.len() <= MOST_PARAMETERS && (1..=MOST_POINTS).contains(&points);
        match (self.model.formula(), self.solver) {
            (Some(formula), CurveSolver::Lm(settings)) if is_small => {
                let small = SmallFits { formula, settings, max_rounds: settings.max_rounds.min(MOST_ROUNDS) };
                if self.device.inner.runs_wgsl() { CurveRoute::SmallOnGpu(small) } else { CurveRoute::Lanes(small) }
            }
            _ => CurveRoute::Population,
        }
    }
}
