//! The way of curves through a run whose results are columns.

use rayon::prelude::*;

use crate::curves::input::data::{Curve, Curves};
use crate::curves::results::columns::CurveColumns;
use crate::curves::results::result::message;
use crate::curves::routes::engine::replaces;
use crate::curves::routes::passage::Passage;
use crate::curves::routes::route::CurveRoute;
use crate::curves::watch::Watch;
use crate::curves::{CurveFit, CurveRun};
use crate::error::Result;
use crate::solver::Status;
use crate::solver::small::UploadedFits;
use crate::threads;

/// Number of fits that are fitted again together.
const REST: usize = 4096;

impl CurveRun {
    /// Fits curves on this device, in a single attempt, and writes the results into columns.
    pub(crate) fn fit_columns_here(
        &self,
        curves: &Curves,
        columns: &mut CurveColumns,
        watch: &Watch,
    ) -> Result<()> {
        let (count, points) = curves.shape(self.model.predictors(), self.model.parameters())?;
        if !self.ties.is_empty() {
            columns.reset(count, &self.model, self.covariance);
            return self.fit_tied_columns(curves, columns, watch);
        }
        curves.check_estimator(self.estimator)?;
        columns.reset(count, &self.model, self.covariance);
        if let Some(whitened) = self.whiten(curves)? {
            whitened
                .run
                .fit_columns_here(&whitened.curves, columns, watch)?;
            whitened
                .refusals()
                .for_each(|(k, refusal)| columns.put(k, &refusal));
            return Ok(());
        }
        match self.route(points) {
            CurveRoute::Lanes(small) if self.exact => {
                self.fit_in_lanes(curves, (count, points), small, columns, watch)
            }
            CurveRoute::SmallOnGpu(_) | CurveRoute::FunctionInLanes(_) if self.exact => {
                self.fit_columns_singly(curves, columns, watch)
            }
            CurveRoute::Lanes(small)
            | CurveRoute::SmallOnGpu(small)
            | CurveRoute::FunctionInLanes(small) => {
                Passage::new(self, curves, points, small, false).run(columns, watch)?;
                self.finish_columns(curves, points, columns, watch)
            }
            // polish would call the model for each curve by itself, and add digits that are not asked for
            CurveRoute::Population if self.model.takes_many() && !self.exact => CurveRun {
                polish: false,
                ..self.clone()
            }
            .fit_columns_singly(curves, columns, watch),
            CurveRoute::Population => self.fit_columns_singly(curves, columns, watch),
        }
    }

    /// Sends curves to this device, where they stay; `None` unless it makes their fits whole, and each from one start.
    pub(crate) fn upload(&self, curves: &Curves) -> Result<Option<Box<dyn UploadedFits>>> {
        let (count, points) = curves.shape(self.model.predictors(), self.model.parameters())?;
        curves.check_estimator(self.estimator)?;
        let is_plain =
            self.ties.is_empty() && self.starts == 1 && !self.exact && curves.covariance.is_none();
        match self.route(points) {
            CurveRoute::SmallOnGpu(small) if is_plain => {
                Passage::new(self, curves, points, small, false).upload(count)
            }
            _ => Ok(None),
        }
    }

    /// Sends other starts of curves that lie on this device, or all of them where their fits have something new.
    pub(crate) fn restart(
        &self,
        curves: &Curves,
        uploaded: Option<Box<dyn UploadedFits>>,
    ) -> Result<Option<Box<dyn UploadedFits>>> {
        let (count, points) = curves.shape(self.model.predictors(), self.model.parameters())?;
        let (Some(mut uploaded), CurveRoute::SmallOnGpu(small)) = (uploaded, self.route(points))
        else {
            return Ok(None);
        };
        if Passage::new(self, curves, points, small, false).restart(count, &mut *uploaded)? {
            return Ok(Some(uploaded));
        }
        drop(uploaded); // its memory is needed
        self.upload(curves)
    }

    /// Reads the results of curves that this device has fitted into columns, and fits the others on the host.
    pub(crate) fn read_columns(
        &self,
        curves: &Curves,
        fitted: &mut dyn UploadedFits,
        columns: &mut CurveColumns,
        watch: &Watch,
    ) -> Result<()> {
        let (count, points) = curves.shape(self.model.predictors(), self.model.parameters())?;
        columns.reset(count, &self.model, self.covariance);
        if let CurveRoute::SmallOnGpu(small) = self.route(points) {
            Passage::new(self, curves, points, small, false).read(fitted, columns, watch)?;
        }
        self.finish_columns(curves, points, columns, watch)
    }

    /// Adds messages to the columns of small fits, and fits again what has failed.
    fn finish_columns(
        &self,
        curves: &Curves,
        points: usize,
        columns: &mut CurveColumns,
        watch: &Watch,
    ) -> Result<()> {
        let unusual = threads::in_pool(|| {
            let unusual = columns.unusual();
            self.add_messages(curves, points, columns, &unusual);
            unusual
        });
        self.fit_rest(curves, points, columns, unusual, watch)
    }

    /// Fits curves as [`fit_here`](Self::fit_here) does, and copies the results into columns.
    fn fit_columns_singly(
        &self,
        curves: &Curves,
        columns: &mut CurveColumns,
        watch: &Watch,
    ) -> Result<()> {
        self.fit_here(curves, watch)?
            .iter()
            .enumerate()
            .for_each(|(k, fit)| columns.put(k, fit));
        Ok(())
    }

    /// Adds to the columns' messages why curves could not be fitted, and which parameters the data do not determine.
    fn add_messages(
        &self,
        curves: &Curves,
        points: usize,
        columns: &mut CurveColumns,
        unusual: &[usize],
    ) {
        let settings = self.settings();
        let messages = unusual.par_iter().filter_map(|&k| {
            let message = match columns.status[k] {
                Status::BadInput => curves.curve(k, points, &settings).err()?,
                status => self.undetermined_message(status, &columns.undetermined(k)?),
            };
            Some((k, message))
        });
        let messages: Vec<(usize, String)> = messages.collect();
        columns.messages.extend(messages);
    }

    /// Fits again, from their starts, those of the `unusual` curves whose fits have failed or ended far from the data,
    /// bad inputs excepted.
    fn fit_rest(
        &self,
        curves: &Curves,
        points: usize,
        columns: &mut CurveColumns,
        unusual: Vec<usize>,
        watch: &Watch,
    ) -> Result<()> {
        let settings = self.settings();
        let count = self.held.len();
        let has_run_away = |k: usize| {
            let start = curves.starts_of(k..k + 1, count, &mut Vec::new()).to_vec();
            self.is_runaway(
                columns.flags[k],
                &columns.parameters[k * count..(k + 1) * count],
                &start,
            )
        };
        let flagged = unusual
            .iter()
            .filter(|&&k| columns.status[k].is_success())
            .count();
        let mut rest = unusual;
        rest.retain(|&k| match columns.status[k] {
            Status::BadInput => false,
            status => !status.is_success() || has_run_away(k),
        });
        watch.add(
            flagged
                - rest
                    .iter()
                    .filter(|&&k| columns.status[k].is_success())
                    .count(),
        );
        for some in rest.chunks(REST) {
            // what is left has its start already
            if watch.is_stopped() {
                for &k in some.iter() {
                    if !columns.status[k].is_success() {
                        columns.interrupt(k);
                    }
                }
                continue;
            }
            let begun = |&k: &usize| {
                let curve = curves.curve(k, points, &settings).ok()?;
                Some(Curve {
                    budget: curve.budget.saturating_sub(columns.rounds[k]),
                    ..curve
                })
            };
            let (left, spent): (Vec<_>, Vec<_>) = some
                .iter()
                .filter_map(begun)
                .partition(|curve| curve.budget > 0);
            watch.add(spent.len());
            for Curve { index: k, .. } in spent {
                if !columns.status[k].is_success() {
                    columns.status[k] = Status::MaxRounds;
                    columns
                        .messages
                        .insert(k, message(Status::MaxRounds).into());
                }
            }
            let put = &mut |k: usize, fit: CurveFit| {
                if replaces((columns.status[k], columns.chi2[k]), &fit) {
                    columns.put(k, &fit);
                } else {
                    (columns.rounds[k], columns.evaluations[k]) = (fit.rounds, fit.evaluations);
                    columns
                        .messages
                        .entry(k)
                        .or_insert_with(|| message(columns.status[k]).into());
                }
            };
            self.fall_back(curves.grid, points, left, watch, put)?;
        }
        Ok(())
    }
}
