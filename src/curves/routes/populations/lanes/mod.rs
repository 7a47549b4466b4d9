//! Searches by simplices over curves of a formula on the CPU: the points of 64 searches are evaluated side by side, one
//! lane each, in f64. For plain least squares without priors; other fits take the populations.

mod seats;

use rayon::prelude::*;

use self::seats::Seats;
use super::simplices::{describe_fits, not_begun};
use crate::curves::CurveRun;
use crate::curves::input::data::{Curve, GridKind};
use crate::curves::routes::objective::CurveObjective;
use crate::curves::watch::Watch;
use crate::error::Result;
use crate::math::lanes::LANES;
use crate::solver::search::{FitSearch, Machine, SearchSettings, search};
use crate::solver::small::{LaneModel, MOST_PARAMETERS, MOST_POINTS};
use crate::solver::{Batch, Outcome};
use crate::threads;

/// Number of fits that one thread takes at a time.
const FITS_PER_TASK: usize = 256;

/// Settings and model that all threads share.
pub(super) struct LaneSearches {
    model: LaneModel<f64>,
    /// The model without derivatives, where that is quicker.
    values: Option<LaneModel<f64>>,
    /// True if the model's values at a point do not depend on the points that are evaluated with it.
    is_pointwise: bool,
    predictors: usize,
    grid: GridKind,
    points: usize,
    settings: SearchSettings,
}

impl LaneSearches {
    /// Maximum number of curves that enter together.
    pub const MAX_CURVES: usize = 1 << 13;

    /// Sets up Nelder–Mead searches with one curve per vector lane; `None` on a GPU, for large curves, or if the fit is
    /// not plain least squares.
    pub fn new(
        fitter: &CurveRun,
        grid: GridKind,
        points: usize,
        settings: SearchSettings,
    ) -> Option<LaneSearches> {
        let formula = fitter
            .model
            .formula()
            .filter(|_| !fitter.device.inner.runs_wgsl())?;
        let is_tiny = fitter.held.len() <= MOST_PARAMETERS && points <= MOST_POINTS;
        let is_plain =
            fitter.estimator.is_least_squares() && fitter.priors.iter().all(Option::is_none);
        let is_supported = is_tiny && is_plain;
        is_supported.then(|| LaneSearches {
            model: formula.lanes(),
            values: formula.lane_values(),
            is_pointwise: formula.is_pointwise(),
            predictors: formula.predictors().len(),
            grid,
            points,
            settings,
        })
    }

    /// Searches by Nelder–Mead on all threads and returns one outcome per curve.
    pub fn search_all(
        &self,
        fitter: &CurveRun,
        objective: &CurveObjective,
        curves: &[Curve],
        watch: &Watch,
    ) -> Result<Vec<Outcome>> {
        let outcomes: Result<Vec<Vec<Outcome>>> = threads::in_pool(|| {
            curves
                .par_chunks(FITS_PER_TASK)
                .map(|curves| self.search_on_thread(fitter, objective, curves, watch))
                .collect()
        });
        Ok(outcomes?.concat())
    }

    /// Searches by Nelder–Mead on one thread and returns one outcome per curve.
    fn search_on_thread(
        &self,
        fitter: &CurveRun,
        objective: &CurveObjective,
        curves: &[Curve],
        watch: &Watch,
    ) -> Result<Vec<Outcome>> {
        let batch = objective.batch(curves, &fitter.priors, fitter.infinite_bound());
        let fits = describe_fits(fitter, curves, &batch);
        let mut machine = LaneSearch {
            seats: Seats::new(self, fitter, curves),
            batch: &batch,
            watch,
        };
        let outcomes = search(&mut machine, fits, &self.settings, watch.stop_flag())?;
        Ok(outcomes
            .into_iter()
            .enumerate()
            .map(|(fit, outcome)| outcome.unwrap_or_else(|| not_begun(&batch, fit)))
            .collect())
    }
}

/// Searches of some fits on one thread.
struct LaneSearch<'a> {
    seats: Seats<'a>,
    /// Batch of all fits, at their starts.
    batch: &'a Batch,
    watch: &'a Watch<'a>,
}

impl Machine for LaneSearch<'_> {
    fn linearise(&mut self) -> Result<Vec<Outcome>> {
        let all_fits: Vec<usize> = (0..self.batch.spectra).collect();
        let count = self.batch.starts.len() / self.batch.spectra.max(1);
        let mut outcomes = Vec::with_capacity(all_fits.len());
        for fits in all_fits.chunks(LANES) {
            for (lane, &fit) in fits.iter().enumerate() {
                let start = &self.batch.starts[fit * count..(fit + 1) * count];
                self.seats.seat(lane, fit, start);
            }
            self.seats.evaluate(first_lane_bits(fits.len()), true);
            for (lane, &fit) in fits.iter().enumerate() {
                outcomes.push(self.seats.outcome(lane, fit));
            }
        }
        Ok(outcomes)
    }

    fn evaluate(&mut self, mut searches: Vec<FitSearch>) -> Result<Vec<FitSearch>> {
        let mut waiting = searches.iter_mut().enumerate();
        let mut lanes: Vec<Option<(usize, &mut FitSearch)>> = (0..LANES).map(|_| None).collect();
        while !self.watch.is_stopped() {
            // 1. Fill empty lanes with searches that wait, and write each lane's point.
            let mut lane_bits = 0;
            for (lane, occupant) in lanes.iter_mut().enumerate() {
                if occupant
                    .as_ref()
                    .is_none_or(|(_, search)| search.has_ended())
                {
                    *occupant = waiting.find(|(_, search)| !search.has_ended());
                }
                if let Some((fit, search)) = occupant {
                    self.seats.seat(lane, *fit, search.point());
                    lane_bits |= 1 << lane;
                }
            }
            if lane_bits == 0 {
                break;
            }
            // 2. Evaluate all of them side by side.
            self.seats.evaluate(lane_bits, false);
            for (lane, occupant) in lanes.iter_mut().enumerate() {
                if let Some((_, search)) = occupant {
                    search.take_objective(self.seats.finite_cost(lane));
                }
            }
        }
        Ok(searches)
    }
}

/// Returns the bits of the first lanes, one per fit.
fn first_lane_bits(fits: usize) -> u64 {
    if fits < LANES {
        (1 << fits) - 1
    } else {
        u64::MAX
    }
}
