//! Single spectra and curves for optimisers from outside.

use std::sync::Arc;

use super::assemble::{assemble, matched, prepare_all};
use super::blank::blank;
use super::layout::{layout, layout_for};
use super::limits::Tables;
use super::ready::Ready;
use super::{CurveFitter, Curves, Device, SpectralFitter};
use crate::curve_model::Failures;
use crate::error::{Error, Result};
use crate::model::{Fault, Sampling, SpectralObjective};
use crate::recording::{Parameter, Precision, Recording};
use crate::solver::{self, Batch, Objective};
use crate::spectra::Spectra;

/// A recording and what one spectrum brings to it; the batch's one member is its start.
#[derive(Clone, Debug)]
pub struct Job {
    /// Stages and buffers; clones share it.
    pub recording: Arc<Recording>,
    /// Data and start.
    pub batch: Batch,
}

/// One least-squares problem on a device.
#[derive(Clone, Debug)]
pub struct Task {
    device: Device,
    /// Sums with gradient and normal matrix.
    pub linearise: Job,
    /// Sums without derivatives.
    pub evaluate: Job,
    /// Physical values are `origin` + `scale` u.
    pub parameters: Vec<Parameter>,
    /// Term that marginalisation adds to the objective beside ln det C.
    pub constant: f64,
    /// Failures of a user's model, and the number of this task among them.
    failures: Option<(Arc<Failures>, usize)>,
}

impl Task {
    /// Returns a task for every curve, at its start.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSettings`] for settings that cannot work, [`Error::ShapeMismatch`] if an array has the
    /// wrong length, and [`Error::Usage`] for a curve that cannot be fitted and for tied parameters.
    pub fn of_curves(fitter: &CurveFitter, curves: &Curves) -> Result<Vec<Task>> {
        fitter.tasks(curves)
    }

    /// Returns a task for every spectrum, at the best point of its first guess.
    ///
    /// # Errors
    /// Returns [`Error::BadSpectrum`] for a spectrum that cannot be fitted, and otherwise the errors of
    /// [`SpectralFitter::fit`] for its settings, the arms and their wavelengths.
    pub fn of_spectra(fitter: &SpectralFitter, spectra: &Spectra) -> Result<Vec<Task>> {
        fitter.tasks(spectra)
    }

    pub(super) fn new(device: &Device, (linearise, evaluate): (Job, Job), parameters: Vec<Parameter>) -> Task {
        Task { device: device.clone(), linearise, evaluate, parameters, constant: 0.0, failures: None }
    }

    pub(super) fn with_failures(mut self, failures: Arc<Failures>, index: usize) -> Task {
        self.failures = Some((failures, index));
        self
    }

    /// Returns and forgets the failure that the user's model noted last, an error or a panic of a closure.
    pub fn take_failure(&self) -> Option<String> {
        self.failures.as_ref().and_then(|(failures, index)| failures.take(*index))
    }

    /// Returns the device that the fitter was made with.
    pub fn device(&self) -> &dyn solver::Device {
        &*self.device.inner
    }

    /// Returns the precision of the rows.
    pub fn precision(&self) -> Precision {
        if self.device.inner.runs_wgsl() { Precision::F32 } else { self.linearise.recording.precision }
    }
}

impl SpectralFitter {
    /// A task for every spectrum, starting where the first guess is best. A spectrum that cannot be fitted is an error.
    fn tasks(&self, spectra: &Spectra) -> Result<Vec<Task>> {
        let model = &self.model;
        let arms = matched(model, spectra)?;
        let grids = self.run()?.grids(&arms, spectra)?;
        let tables = Tables::new(model, spectra)?;
        let guess = self.first_guess()?;
        let all = prepare_all(model, &arms, &grids, spectra.len());
        let shape = layout_for(layout(model, &arms, &grids), all.iter().filter_map(|one| one.as_ref().ok()));
        let objective = SpectralObjective::new(model, &shape, self.precision.of_results());
        let evaluation = SpectralObjective::evaluation(model, &shape, self.precision.of_results());
        let recordings = (Arc::new(objective.record()), Arc::new(evaluation.record()));
        let one = |(place, prepared): (usize, std::result::Result<_, Fault>)| {
            let refused = |fault: Fault| Error::BadSpectrum {
                file: spectra.file.to_string(),
                row: place as u64,
                id: blank(model, spectra, place).id.to_string(),
                cause: format!("{}: {}", fault.cause.name(), fault.detail),
            };
            let (prepared, limits) = (prepared.map_err(refused)?, tables.of(place).map_err(refused)?);
            let samplings: Vec<&Sampling> = grids.iter().filter_map(|g| g.of(place).ok()).map(|s| &**s).collect();
            let starts = guess.starts(&prepared, &samplings, &limits, Some(1));
            let constant = if model.marginalise { prepared.marginal_constant } else { 0.0 };
            let ready = [Ready { place, prepared, limits, starts, may_look: false }];
            let entering = [ready[0].starts()];
            let job = |recording: &Arc<Recording>, objective| Job {
                recording: recording.clone(),
                batch: assemble(model, objective, &grids, (&ready, &entering)),
            };
            let jobs = (job(&recordings.0, &objective), job(&recordings.1, &evaluation));
            let parameters = model.parameters.iter().map(|p| p.solver.clone()).collect();
            Ok(Task { constant, ..Task::new(&self.device, jobs, parameters) })
        };
        all.into_iter().enumerate().map(one).collect()
    }
}
