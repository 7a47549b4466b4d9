//! Single curves as tasks for other optimisers.

use std::sync::Arc;

use crate::curves::input::data::Curves;
use crate::curves::routes::objective::{CurveObjective, INFINITE_BOUND_IN_F32};
use crate::curves::{CurveFitter, CurveRun};
use crate::error::{Error, Result};
use crate::recording::Parameter;
use crate::solver::Objective;
use crate::task::{Job, Task};

impl Task {
    /// Returns one problem for each curve, at its start, for optimisers from outside.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSettings`] for settings that cannot work, [`Error::ShapeMismatch`] if an array has the
    /// wrong length, and [`Error::Usage`] for a curve that cannot be fitted and for tied parameters.
    pub fn of_curves(fitter: &CurveFitter, curves: &Curves) -> Result<Vec<Task>> {
        fitter.tasks(curves)
    }
}

impl CurveFitter {
    /// Makes a task of every curve. A curve that cannot be fitted is an error.
    fn tasks(&self, curves: &Curves) -> Result<Vec<Task>> {
        let run = self.make_run_without_solver()?;
        run.tasks(&curves.view().order_starts(&run)?)
    }
}

impl CurveRun {
    /// Makes of each curve a task, by which another optimiser evaluates its objective on the device.
    fn tasks(&self, curves: &Curves) -> Result<Vec<Task>> {
        if !self.ties.is_empty() {
            return Err(Error::Usage(
                "tied parameters: put their expressions into the formula".into(),
            ));
        }
        let settings = self.settings();
        let (total, points) = curves.shape(&self.model)?;
        curves.check_estimator(self.estimator)?;
        if curves.covariance.is_some() {
            return Err(Error::invalid(
                "covariance",
                "covariance: tasks take sigmas alone",
            ));
        }
        let objective =
            |values_only| CurveObjective::new(self.design(), points, curves.grid, values_only);
        let linearisation = objective(false);
        let evaluation = objective(true);
        let linearisation_recording = Arc::new(linearisation.record());
        let evaluation_recording = Arc::new(evaluation.record());
        let mut tasks = Vec::with_capacity(total);
        for index in 0..total {
            let curve = curves
                .curve(index, points, &settings)
                .map_err(|cause| Error::Usage(format!("curve {index}: {cause}")))?;
            let parameters = settings
                .names
                .iter()
                .zip(&curve.scale)
                .map(|(name, scale)| Parameter {
                    name: name.clone(),
                    origin: 0.0,
                    scale: *scale,
                })
                .collect();
            let curve = [curve];
            let linearise = Job {
                recording: linearisation_recording.clone(),
                batch: linearisation.batch(&curve, &self.priors, INFINITE_BOUND_IN_F32),
            };
            let evaluate = Job {
                recording: evaluation_recording.clone(),
                batch: evaluation.batch(&curve, &self.priors, INFINITE_BOUND_IN_F32),
            };
            tasks.push(
                Task::new(&self.device, linearise, evaluate, parameters)
                    .with_failures(self.failures.clone(), index),
            );
        }
        Ok(tasks)
    }
}
