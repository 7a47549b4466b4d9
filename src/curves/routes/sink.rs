//! Sinks for the results of curves that are finished part by part.

use std::ops::Range;

use crate::curves::results::columns::CurveColumns;
use crate::curves::results::result::CurveFit;
use crate::solver::Status;

/// Sink for the results of curves: single fits, or columns.
pub(crate) trait FitSink {
    /// Takes the fit of curve `k`, in place of an earlier one. The first fits come in order.
    fn put_fit(&mut self, k: usize, fit: CurveFit);

    /// Returns status and χ² of the fit of curve `k`.
    fn status_and_chi2(&self, k: usize) -> (Status, f64);

    /// Sets the linearisations and the evaluations of the fit of curve `k`.
    fn set_counts(&mut self, k: usize, rounds: u32, evaluations: u32);

    /// Takes a range of rows of `lane_results` as those of interrupted fits; returns `false` if it takes fits alone.
    fn put_interrupted(&mut self, range: Range<usize>, lane_results: &CurveColumns) -> bool;
}

impl FitSink for Vec<CurveFit> {
    fn put_fit(&mut self, k: usize, fit: CurveFit) {
        if k == self.len() {
            self.push(fit)
        } else {
            self[k] = fit
        }
    }

    fn status_and_chi2(&self, k: usize) -> (Status, f64) {
        (self[k].status, self[k].chi2)
    }

    fn set_counts(&mut self, k: usize, rounds: u32, evaluations: u32) {
        self[k].rounds = rounds;
        self[k].evaluations = evaluations;
    }

    fn put_interrupted(&mut self, _: Range<usize>, _: &CurveColumns) -> bool {
        false
    }
}

impl FitSink for CurveColumns {
    fn put_fit(&mut self, k: usize, fit: CurveFit) {
        CurveColumns::write_fit(self, k, &fit);
    }

    fn status_and_chi2(&self, k: usize) -> (Status, f64) {
        (self.status[k], self.chi2[k])
    }

    fn set_counts(&mut self, k: usize, rounds: u32, evaluations: u32) {
        self.rounds[k] = rounds;
        self.evaluations[k] = evaluations;
    }

    fn put_interrupted(&mut self, range: Range<usize>, lane_results: &CurveColumns) -> bool {
        for k in range {
            self.copy_row(k, lane_results);
            if self.status[k] != Status::BadInput {
                self.mark_interrupted(k);
            }
        }
        true
    }
}
