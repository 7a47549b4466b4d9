//! Second starts of fits that ended above a minimum: the solver begins again at a lower point beside their end.

use rayon::prelude::*;

use super::data::Curve;
use super::end::NOT_MOVED;
use super::passes::Passes;
use super::plateau::Neighbourhood;
use super::result::CurveFit;
use super::watch::Watch;
use super::{CurveRun, CurveSolver};
use crate::error::Result;
use crate::solver::Status;

/// Maximum number of times that a fit begins again.
const MOST: usize = 3;

impl CurveRun {
    /// Lets fits of Levenberg–Marquardt that stalled above a minimum begin again, as long as this lowers their costs.
    /// Without polish a fit stays where the solver has left it, and fits of a GPU are for the host to repeat.
    pub(super) fn begin_again(
        &self,
        passes: &mut Passes,
        curves: &[Curve],
        fits: &mut [CurveFit],
        watch: &Watch,
    ) -> Result<()> {
        if !self.polish || self.device.inner.runs_wgsl() || matches!(self.solver, CurveSolver::NelderMead(_)) {
            return Ok(());
        }
        // wrong derivatives would be hidden, not mended
        let is_open = |fit: &CurveFit| fit.status == Status::Stalled && fit.message != NOT_MOVED;
        let mut open: Vec<usize> = (0..fits.len()).filter(|&k| is_open(&fits[k])).collect();
        for _ in 0..MOST {
            let again = |&k: &usize| Some((k, self.lower_start(&curves[k], &fits[k])?));
            let (places, again): (Vec<usize>, Vec<Curve>) = open.par_iter().filter_map(again).unzip();
            if again.is_empty() || watch.is_stopped() {
                return Ok(());
            }
            let outcomes = passes.solve(&again, watch)?;
            let finish = |(curve, outcome)| self.finish(curve, outcome);
            let found: Vec<CurveFit> = again.par_iter().zip(&outcomes).map(finish).collect();
            open.clear();
            for (k, fit) in places.into_iter().zip(found) {
                if self.replace(&mut fits[k], fit) && is_open(&fits[k]) {
                    open.push(k);
                }
            }
        }
        Ok(())
    }

    /// Returns the curve with its beginning at a lower point beside the fit's end; `None` if none is found.
    fn lower_start(&self, curve: &Curve, fit: &CurveFit) -> Option<Curve> {
        let problem = self.problem(curve);
        let rows = problem.rows(&fit.parameters)?;
        match problem.look_around(&rows, &fit.parameters) {
            Neighbourhood::Lower(begin) => Some(Curve { begin, ..curve.clone() }),
            Neighbourhood::Minimum(_) | Neighbourhood::Unknown => None,
        }
    }

    /// Replaces a fit by a later one if that is a success or has a lower cost, and counts the evaluations of both;
    /// returns whether it did.
    fn replace(&self, fit: &mut CurveFit, later: CurveFit) -> bool {
        let (evaluations, rounds) = (fit.evaluations + later.evaluations, fit.rounds + later.rounds);
        let cost = |fit: &CurveFit| fit.chi2 + self.penalty(&fit.parameters);
        let is_better = later.status.is_success() || cost(&later) < cost(fit);
        if is_better && later.status != Status::Interrupted {
            *fit = later;
        }
        (fit.evaluations, fit.rounds) = (evaluations, rounds);
        is_better
    }
}
