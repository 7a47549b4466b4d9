//! The fits of a run's curves whose results are columns.

use rayon::prelude::*;

use crate::curves::input::data::{Curve, Curves};
use crate::curves::results::columns::CurveColumns;
use crate::curves::results::result::status_message;
use crate::curves::routes::engine::replaces;
use crate::curves::routes::route::CurveRoute;
use crate::curves::routes::small_fits::{Ending, SmallFitRun};
use crate::curves::watch::Watch;
use crate::curves::{CurveFit, CurveRun};
use crate::error::Result;
use crate::solver::Status;
use crate::solver::small::UploadedFits;
use crate::threads;

/// Number of failed fits that are repeated together.
const REPEATS_PER_BATCH: usize = 4096;

impl CurveRun {
    /// Fits curves on this device, in a single attempt, and writes the results into columns.
    pub(crate) fn fit_columns_once(
        &self,
        curves: &Curves,
        columns: &mut CurveColumns,
        watch: &Watch,
    ) -> Result<()> {
        let (count, points) = curves.shape(&self.model)?;
        if !self.ties.is_empty() {
            columns.reset(count, &self.model, self.covariance);
            return self.fit_tied_columns(curves, columns, watch);
        }
        curves.check_estimator(self.estimator)?;
        columns.reset(count, &self.model, self.covariance);
        if let Some(whitened) = self.whiten_curves(curves)? {
            whitened
                .run
                .fit_columns_once(&whitened.curves, columns, watch)?;
            whitened
                .refusals()
                .for_each(|(k, refusal)| columns.write_fit(k, &refusal));
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
                SmallFitRun::new(self, curves, points, small, Ending::AtShareOfErrors)
                    .fit_columns(columns, watch)?;
                self.finish_columns(curves, points, columns, watch)
            }
            // Polish would call the model for each curve by itself, and add digits that the caller does not want.
            CurveRoute::Population if self.model.takes_many() && !self.exact => CurveRun {
                polish: false,
                ..self.clone()
            }
            .fit_columns_singly(curves, columns, watch),
            CurveRoute::Population => self.fit_columns_singly(curves, columns, watch),
        }
    }

    /// Uploads curves to this device, where they stay; `None` unless it makes whole fits of them, each from one start.
    pub(crate) fn upload(&self, curves: &Curves) -> Result<Option<Box<dyn UploadedFits>>> {
        let (count, points) = curves.shape(&self.model)?;
        curves.check_estimator(self.estimator)?;
        let is_plain =
            self.ties.is_empty() && self.starts == 1 && !self.exact && curves.covariance.is_none();
        match self.route(points) {
            CurveRoute::SmallOnGpu(small) if is_plain => {
                SmallFitRun::new(self, curves, points, small, Ending::AtShareOfErrors).upload(count)
            }
            _ => Ok(None),
        }
    }

    /// Uploads other starts of curves that lie on this device, or the whole curves where other inputs have changed,
    /// too.
    pub(crate) fn restart(
        &self,
        curves: &Curves,
        uploaded: Option<Box<dyn UploadedFits>>,
    ) -> Result<Option<Box<dyn UploadedFits>>> {
        let (count, points) = curves.shape(&self.model)?;
        let (Some(mut uploaded), CurveRoute::SmallOnGpu(small)) = (uploaded, self.route(points))
        else {
            return Ok(None);
        };
        if SmallFitRun::new(self, curves, points, small, Ending::AtShareOfErrors)
            .restart(count, &mut *uploaded)?
        {
            return Ok(Some(uploaded));
        }
        // The new upload needs the memory of the old one.
        drop(uploaded);
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
        let (count, points) = curves.shape(&self.model)?;
        columns.reset(count, &self.model, self.covariance);
        if let CurveRoute::SmallOnGpu(small) = self.route(points) {
            SmallFitRun::new(self, curves, points, small, Ending::AtShareOfErrors)
                .read(fitted, columns, watch)?;
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
            let unusual = columns.unusual_fits();
            self.add_messages(curves, points, columns, &unusual);
            unusual
        });
        self.repeat_failed(curves, points, columns, unusual, watch)
    }

    /// Fits curves as [`fit_from_one_start`](Self::fit_from_one_start) does, and copies the results into columns.
    fn fit_columns_singly(
        &self,
        curves: &Curves,
        columns: &mut CurveColumns,
        watch: &Watch,
    ) -> Result<()> {
        let fits = self.fit_from_one_start(curves, watch)?;
        for (k, fit) in fits.iter().enumerate() {
            columns.write_fit(k, fit);
        }
        Ok(())
    }

    /// Adds messages to the columns that say why curves could not be fitted, and which parameters the data do not
    /// determine.
    fn add_messages(
        &self,
        curves: &Curves,
        points: usize,
        columns: &mut CurveColumns,
        unusual: &[usize],
    ) {
        let settings = self.settings();
        let messages: Vec<(usize, String)> = unusual
            .par_iter()
            .filter_map(|&k| {
                let message = match columns.status[k] {
                    Status::BadInput => curves.curve(k, points, &settings).err()?,
                    status => self.undetermined_message(status, &columns.undetermined(k)?),
                };
                Some((k, message))
            })
            .collect();
        columns.messages.extend(messages);
    }

    /// Repeats, from their starts, those fits of the `unusual` curves that have failed or ended far from the data, bad
    /// inputs excepted.
    fn repeat_failed(
        &self,
        curves: &Curves,
        points: usize,
        columns: &mut CurveColumns,
        unusual: Vec<usize>,
        watch: &Watch,
    ) -> Result<()> {
        let settings = self.settings();
        let count = self.held.len();
        // 1. Choose the fits. Successes that are not repeated are final, and count as such.
        let has_run_away = |k: usize| {
            let start = curves.starts_of(k..k + 1, count, &mut Vec::new()).to_vec();
            let parameters = &columns.parameters[k * count..(k + 1) * count];
            self.is_runaway(columns.flags[k], parameters, &start)
        };
        let mut repeated = unusual.clone();
        repeated.retain(|&k| match columns.status[k] {
            Status::BadInput => false,
            status => !status.is_success() || has_run_away(k),
        });
        let count_successes = |fits: &[usize]| {
            fits.iter()
                .filter(|&&k| columns.status[k].is_success())
                .count()
        };
        watch.add_ended(count_successes(&unusual) - count_successes(&repeated));
        for batch in repeated.chunks(REPEATS_PER_BATCH) {
            // 2. After an interruption the failed fits stay at their starts, where they are already.
            if watch.is_stopped() {
                for &k in batch {
                    if !columns.status[k].is_success() {
                        columns.mark_interrupted(k);
                    }
                }
                continue;
            }
            // 3. Fits that have used up their rounds are not repeated.
            let mut curves_to_repeat = Vec::new();
            for &k in batch {
                let Ok(curve) = curves.curve(k, points, &settings) else {
                    continue;
                };
                let budget = curve.budget.saturating_sub(columns.rounds[k]);
                if budget > 0 {
                    curves_to_repeat.push(Curve { budget, ..curve });
                    continue;
                }
                watch.add_ended(1);
                if !columns.status[k].is_success() {
                    columns.status[k] = Status::MaxRounds;
                    columns
                        .messages
                        .insert(k, status_message(Status::MaxRounds).into());
                }
            }
            // 4. Repeat the others, and keep the better result of each.
            let mut put_if_better = |k: usize, fit: CurveFit| {
                if replaces((columns.status[k], columns.chi2[k]), &fit) {
                    columns.write_fit(k, &fit);
                } else {
                    columns.rounds[k] = fit.rounds;
                    columns.evaluations[k] = fit.evaluations;
                    columns
                        .messages
                        .entry(k)
                        .or_insert_with(|| status_message(columns.status[k]).into());
                }
            };
            self.fall_back(
                curves.grid,
                points,
                curves_to_repeat,
                watch,
                &mut put_if_better,
            )?;
        }
        Ok(())
    }
}
