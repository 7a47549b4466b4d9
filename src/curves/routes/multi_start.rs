//! Fits of each curve from several starts, of which the end with the lowest cost is kept.

use rayon::prelude::*;

use crate::curves::input::data::Curves;
use crate::curves::results::result::CurveFit;
use crate::curves::watch::Watch;
use crate::curves::{CurveColumns, CurveRun};
use crate::error::Result;
use crate::flag::Flags;
use crate::solver::Status;
use crate::threads;

/// Largest factor between a parameter's own start and the drawn ones, unless it has two bounds.
const MAX_START_FACTOR: f64 = 10.0;
/// Seed of the sequence of starts. All curves have the same, so that a curve's fit does not depend on its place.
const SOBOL_SEED: u32 = 3;
/// Relative reduction of the cost above which the end of a later start replaces an earlier one.
const MIN_RELATIVE_FALL: f64 = 1e-9;

impl CurveRun {
    /// Fits all curves from each of their starts and returns the best result of each.
    pub(crate) fn fit_from_all_starts(
        &self,
        curves: &Curves,
        watch: &Watch,
    ) -> Result<Vec<CurveFit>> {
        let mut best_fits =
            self.retry_on_devices(watch, |run| run.fit_from_one_start(curves, watch))?;
        for number in 1..self.starts {
            let drawn = self.with_drawn_starts(curves, number)?;
            let later_fits =
                self.retry_on_devices(watch, |run| run.fit_from_one_start(&drawn, watch))?;
            for (best, mut later) in best_fits.iter_mut().zip(later_fits) {
                let rounds = best.rounds + later.rounds;
                let evaluations = best.evaluations + later.evaluations;
                if later.status == Status::Interrupted && best.status != Status::BadInput {
                    self.mark_interrupted(best, number);
                } else if is_better(
                    (later.status, self.cost(&later)),
                    (best.status, self.cost(best)),
                ) {
                    std::mem::swap(best, &mut later);
                }
                best.rounds = rounds;
                best.evaluations = evaluations;
            }
        }
        Ok(best_fits)
    }

    /// Fits curves from each of their starts and writes the best result of each into columns.
    pub(crate) fn fit_columns(
        &self,
        curves: &Curves,
        columns: &mut CurveColumns,
        watch: &Watch,
    ) -> Result<()> {
        self.retry_on_devices(watch, |run| run.fit_columns_once(curves, columns, watch))?;
        let count = self.held.len();
        let status_and_cost = |columns: &CurveColumns, k: usize| {
            let parameters = &columns.parameters[k * count..(k + 1) * count];
            let cost = columns.chi2[k] + self.penalty(parameters);
            (columns.status[k], cost)
        };
        let mut later = CurveColumns::default();
        for number in 1..self.starts {
            let drawn = self.with_drawn_starts(curves, number)?;
            self.retry_on_devices(watch, |run| run.fit_columns_once(&drawn, &mut later, watch))?;
            for k in 0..columns.len() {
                let rounds = columns.rounds[k] + later.rounds[k];
                let evaluations = columns.evaluations[k] + later.evaluations[k];
                if later.status[k] == Status::Interrupted && columns.status[k] != Status::BadInput {
                    columns.mark_interrupted(k);
                } else if is_better(status_and_cost(&later, k), status_and_cost(columns, k)) {
                    columns.copy_row(k, &later);
                }
                columns.rounds[k] = rounds;
                columns.evaluations[k] = evaluations;
            }
        }
        Ok(())
    }

    /// Marks a fit as interrupted after so many of its starts, without errors.
    fn mark_interrupted(&self, fit: &mut CurveFit, starts: u32) {
        if fit.status != Status::Interrupted {
            fit.message = format!(
                "interrupted after {starts} of {} starts, at chi-square {}",
                self.starts, fit.chi2
            );
        }
        fit.status = Status::Interrupted;
        fit.flags = Flags::empty();
        fit.errors.fill(f64::NAN);
        fit.covariance.fill(f64::NAN);
    }

    /// Returns the curves with other starts: the points of this number of a scrambled Sobol' sequence (Burley 2020),
    /// from bound to bound where a parameter has two, else from a tenth to ten times its own start, or from −1 to 1
    /// where that is 0. Held and tied parameters keep their starts.
    fn with_drawn_starts<'a>(&self, curves: &'a Curves, number: u32) -> Result<Curves<'a>> {
        let count = self.held.len();
        let (total, _) = curves.shape(&self.model)?;
        let is_drawn = |p: usize| !self.held[p] && self.ties.iter().all(|tie| tie.parameter != p);
        let draw_starts = |k: usize| {
            let mut start = curves.starts_of(k..k + 1, count, &mut Vec::new()).to_vec();
            let (lower, upper) = self.bounds_of(curves, k);
            for p in (0..count).filter(|&p| is_drawn(p)) {
                let share = f64::from(sobol_burley::sample(number, p as u32, SOBOL_SEED));
                start[p] = place_start(start[p], lower[p], upper[p], share);
            }
            start
        };
        let starts: Vec<f64> = threads::in_pool(|| {
            (0..total)
                .into_par_iter()
                .flat_map_iter(draw_starts)
                .collect()
        });
        // One row of starts does not say how many curves there are, so that the number of points must.
        let points = curves.points.or_else(|| curves.y.len().checked_div(total));
        Ok(Curves {
            starts: starts.into(),
            points,
            ..curves.view()
        })
    }
}

/// Returns a start at a `share` between 0 and 1 of the way between the ends of a parameter's range of starts.
fn place_start(own_start: f64, lower: f64, upper: f64, share: f64) -> f64 {
    if lower.is_finite() && upper.is_finite() {
        return (lower + share * (upper - lower)).clamp(lower, upper);
    }
    let unbounded = if own_start == 0.0 {
        2.0 * share - 1.0
    } else {
        own_start * MAX_START_FACTOR.powf(2.0 * share - 1.0)
    };
    unbounded.max(lower).min(upper)
}

/// Returns whether the end of a later start, its status and cost, replaces an earlier one: if it alone is a success, or
/// if its cost is lower. A bad input, such as a start outside its bounds, stays one.
fn is_better((later, later_cost): (Status, f64), (earlier, earlier_cost): (Status, f64)) -> bool {
    match (earlier.is_success(), later.is_success()) {
        _ if earlier == Status::BadInput => false,
        (false, true) => true,
        (true, false) => false,
        _ => later_cost < earlier_cost * (1.0 - MIN_RELATIVE_FALL),
    }
}
