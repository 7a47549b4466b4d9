//! Millions of tiny fits in flat memory.

use super::CurveSolver;
use super::data::Curves;
use super::passage::Passage;
use super::{CurveFit, CurveFitter};
use crate::error::Result;
use crate::formula::Formula;
use crate::solver::whole::{MOST_PARAMETERS, MOST_POINTS};
use crate::solver::{LevenbergMarquardt, Outcome, Status};

/// Linearisations of a whole fit.
const MOST_ROUNDS: u32 = 100;
/// Fits that take the longer way together.
const REST: usize = 4096;

/// Results of many curves, row by row. P is the number of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CurveColumns {
    /// (curves, P); NaN where a fit could not start.
    pub parameters: Vec<f64>,
    /// (curves, P): as [`CurveFit::errors`](super::CurveFit::errors).
    pub errors: Vec<f64>,
    /// (curves): Σ ((y − model) / sigma)² over the points that are not masked.
    pub chi2: Vec<f64>,
    /// (curves): codes of [`Status`], which [`Status::from_code`] reads.
    pub status: Vec<i8>,
    /// (curves): linearisations.
    pub rounds: Vec<u16>,
}

impl CurveColumns {
    /// How curve `k` ended, where it arrived: no population need take it up.
    pub(super) fn outcome(&self, k: usize) -> Option<Outcome> {
        let count = self.parameters.len() / self.status.len();
        let status = Status::from_code(self.status[k].into()).filter(|status| status.is_success())?;
        let rounds = self.rounds[k].into();
        let parameters = self.parameters[k * count..(k + 1) * count].to_vec();
        Some(Outcome { status: Some(status), rounds, evaluations: rounds, parameters, ..Outcome::default() })
    }

    /// Writes one row.
    fn put(&mut self, k: usize, fit: &CurveFit) {
        let row = k * fit.parameters.len()..(k + 1) * fit.parameters.len();
        self.parameters[row.clone()].copy_from_slice(&fit.parameters);
        self.errors[row].copy_from_slice(&fit.errors);
        self.chi2[k] = fit.chi2;
        self.status[k] = fit.status.code() as i8;
        self.rounds[k] = u16::try_from(fit.njev).unwrap_or(u16::MAX);
    }

    /// Sets the length; what is in the rows is nobody's until they are written.
    fn reset(&mut self, curves: usize, parameters: usize) {
        self.parameters.resize(curves * parameters, f64::NAN);
        self.errors.resize(curves * parameters, f64::NAN);
        self.chi2.resize(curves, f64::NAN);
        self.status.resize(curves, Status::BadInput.code() as i8);
        self.rounds.resize(curves, 0);
    }
}

impl CurveFitter {
    /// Fits all curves into columns, without memory of its own for each fit. Parameters lie within 0.001 of their errors from the
    /// minimum. (Where the noise is a fifth of the amplitude or more, a few of ten thousand do not, by little; with a GPU as many as
    /// six of a thousand, by up to 0.02.) What [`polish`](Self::polish) does is not done. For more curves than memory holds call
    /// [`fit_columns_into`](Self::fit_columns_into) with some at a time.
    ///
    /// Formulas of at most 16 parameters at up to 512 points, without ties, under Levenberg–Marquardt, are fitted whole: many side by
    /// side in f32, then to their end in f64, unless a bound of what f32's rounding does to them is below 0.0005 errors. (GPUs do
    /// so for least squares without priors, of at most 8 parameters at up to 128 points; what else there is the CPU fits.) Others
    /// take the way of [`fit`](Self::fit).
    pub fn fit_columns(&self, curves: &Curves) -> Result<CurveColumns> {
        let mut columns = CurveColumns::default();
        self.fit_columns_into(curves, &mut columns)?;
        Ok(columns)
    }

    /// [`fit_columns`](Self::fit_columns) into columns whose memory is used again.
    pub fn fit_columns_into(&self, curves: &Curves, columns: &mut CurveColumns) -> Result<()> {
        self.redoing(|fitter| fitter.fit_columns_here(curves, columns))
    }

    /// On this device alone.
    fn fit_columns_here(&self, curves: &Curves, columns: &mut CurveColumns) -> Result<()> {
        let (count, points) = curves.shape(self.model.predictors(), self.model.parameters())?;
        curves.check_estimator(self.estimator)?;
        columns.reset(count, self.model.parameters().len());
        match self.whole_problem(points) {
            Some(problem) => {
                Passage::new(self, curves, points, problem, false).run(columns)?;
                self.fit_rest(curves, points, columns)
            }
            None => self.fit_one_by_one(curves, columns),
        }
    }

    /// Where [`fit`](Self::fit) would bring all curves on the CPU, in f64 and to the solver's own tolerances, if they are fitted whole.
    pub(super) fn fit_whole(&self, curves: &Curves, (count, points): (usize, usize)) -> Result<Option<CurveColumns>> {
        let Some(problem) = self.whole_problem(points).filter(|_| !self.device.inner.runs_wgsl()) else {
            return Ok(None);
        };
        let mut columns = CurveColumns::default();
        columns.reset(count, self.held.len());
        Passage::new(self, curves, points, problem, true).run(&mut columns)?;
        Ok(Some(columns))
    }

    /// The formula and the settings of whole fits, where these curves are fitted so.
    fn whole_problem(&self, points: usize) -> Option<(&Formula, LevenbergMarquardt)> {
        let tiny = self.held.len() <= MOST_PARAMETERS && (1..=MOST_POINTS).contains(&points);
        match (self.model.formula(), self.solver) {
            (Some(formula), CurveSolver::Lm(settings)) if tiny && self.ties.is_empty() => {
                // what needs many rounds is better off one by one: lanes wait for their slowest fit
                let max_rounds = settings.max_rounds.min(MOST_ROUNDS);
                Some((formula, LevenbergMarquardt { max_rounds, ..settings }))
            }
            _ => None,
        }
    }

    /// What whole fits did not bring to an end goes the way of [`fit`](Self::fit), from its start.
    fn fit_rest(&self, curves: &Curves, points: usize, columns: &mut CurveColumns) -> Result<()> {
        let settings = self.settings();
        let open = |k: &usize| columns.status[*k] <= 0 && columns.status[*k] != Status::BadInput.code() as i8;
        let rest: Vec<usize> = (0..columns.status.len()).filter(open).collect();
        for some in rest.chunks(REST) {
            let ready = some.iter().filter_map(|&k| curves.curve(k, points, &settings).ok()).collect();
            self.fit_each((&curves.grid, points), ready, &mut |k, fit| columns.put(k, &fit))?;
        }
        Ok(())
    }

    fn fit_one_by_one(&self, curves: &Curves, columns: &mut CurveColumns) -> Result<()> {
        self.fit_here(curves)?.iter().enumerate().for_each(|(k, fit)| columns.put(k, fit));
        Ok(())
    }
}
