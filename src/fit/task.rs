//! Single spectra and curves for optimisers from outside.

use std::sync::Arc;

use super::assemble::{assemble, matched, prepare_all};
use super::blank::blank;
use super::layout::{layout, layout_for};
use super::limits::Tables;
use super::ready::{Grids, ReadySpectra, ReadySpectrum};
use super::{CurveFitter, Curves, Device, SpectralFitter};
use crate::curve_model::Failures;
use crate::error::{Error, Result};
use crate::first_guess::FirstGuess;
use crate::model::{Fault, Prepared, Sampling, SpectralModel, SpectralObjective};
use crate::recording::{Parameter, Precision, Recording};
use crate::solver::{self, Batch, Objective};
use crate::spectra::Spectra;

/// A recording, and the batch of one spectrum or curve with its start as the only member.
#[derive(Clone, Debug)]
pub struct Job {
    /// Stages and buffers. Clones of a job share them.
    pub recording: Arc<Recording>,
    /// Data and start of the spectrum or curve.
    pub batch: Batch,
}

/// One least-squares problem on a device.
#[derive(Clone, Debug)]
pub struct Task {
    device: Device,
    /// Evaluates the sums with gradient and normal matrix.
    pub linearise: Job,
    /// Evaluates the sums without derivatives.
    pub evaluate: Job,
    /// Physical values are `origin` + `scale` u.
    pub parameters: Vec<Parameter>,
    /// Term that marginalisation adds to the objective beside ln det C.
    pub constant: f64,
    /// Failures of a user's model, and the index of this task among them.
    failures: Option<(Arc<Failures>, usize)>,
}

impl Task {
    /// Returns one problem for each curve, at its start, for optimisers from outside.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSettings`] for settings that cannot work, [`Error::ShapeMismatch`] if an array has the
    /// wrong length, and [`Error::Usage`] for a curve that cannot be fitted and for tied parameters.
    pub fn of_curves(fitter: &CurveFitter, curves: &Curves) -> Result<Vec<Task>> {
        fitter.tasks(curves)
    }

    /// Returns one least-squares problem for each spectrum, for optimisers from outside. Each starts at the best point
    /// of the spectrum's first guess.
    ///
    /// # Errors
    /// Returns [`Error::BadSpectrum`] for a spectrum that cannot be fitted, and otherwise the errors of
    /// [`SpectralFitter::fit`] for its settings, the arms and their wavelengths.
    pub fn of_spectra(fitter: &SpectralFitter, spectra: &Spectra) -> Result<Vec<Task>> {
        fitter.tasks(spectra)
    }

    /// Makes a task from one job with derivatives and one with values only; the constant of its objective is 0.
    pub(super) fn new(device: &Device, linearise: Job, evaluate: Job, parameters: Vec<Parameter>) -> Task {
        Task { device: device.clone(), linearise, evaluate, parameters, constant: 0.0, failures: None }
    }

    /// Adds to the task the record of a user's model's failures, and the task's index in it.
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

    /// Returns the precision in which residuals are computed: f32 on GPUs.
    pub fn precision(&self) -> Precision {
        if self.device.inner.runs_wgsl() { Precision::F32 } else { self.linearise.recording.precision }
    }
}

/// The objectives and inputs that the tasks of a batch of spectra share.
struct SpectralTasks<'a> {
    fitter: &'a SpectralFitter,
    guess: &'a FirstGuess,
    tables: Tables<'a>,
    grids: Vec<Grids>,
    linearise: SpectralObjective,
    evaluate: SpectralObjective,
    /// Recordings of the two objectives.
    recordings: [Arc<Recording>; 2],
}

impl SpectralFitter {
    /// Returns one task per spectrum, at the best point of its first guess, for optimisers from outside.
    fn tasks(&self, spectra: &Spectra) -> Result<Vec<Task>> {
        let model = &self.model;
        let arms = matched(model, spectra)?;
        let grids = self.run()?.grids(&arms, spectra)?;
        let tables = Tables::new(model, spectra)?;
        let guess = self.first_guess()?;
        let all = prepare_all(model, &arms, &grids, spectra.len());
        let shape = layout_for(layout(model, &arms, &grids), all.iter().filter_map(|one| one.as_ref().ok()));
        let linearise = SpectralObjective::new(model, &shape, self.precision.of_results());
        let evaluate = SpectralObjective::evaluation(model, &shape, self.precision.of_results());
        let recordings = [Arc::new(linearise.record()), Arc::new(evaluate.record())];
        let tasks = SpectralTasks { fitter: self, guess, tables, grids, linearise, evaluate, recordings };
        let mut made = Vec::with_capacity(all.len());
        for (place, prepared) in all.into_iter().enumerate() {
            let task = prepared.and_then(|prepared| tasks.task(place, prepared));
            made.push(task.map_err(|fault| refused(&self.model, spectra, place, &fault))?);
        }
        Ok(made)
    }
}

/// Returns the error, with file, row and id, for the spectrum at `place`, which cannot be fitted. `place` is its index
/// in the batch.
fn refused(model: &SpectralModel, spectra: &Spectra, place: usize, fault: &Fault) -> Error {
    Error::BadSpectrum {
        file: spectra.file.to_string(),
        row: spectra.rows[place],
        id: blank(model, spectra, place).id.to_string(),
        cause: format!("{}: {}", fault.cause.name(), fault.detail),
    }
}

impl SpectralTasks<'_> {
    /// Makes the task of one prepared spectrum, at the best point of its first guess, or returns the fault of its
    /// limits.
    fn task(&self, place: usize, prepared: Prepared) -> std::result::Result<Task, Fault> {
        let SpectralTasks { fitter, grids, .. } = self;
        let model = &fitter.model;
        let limits = self.tables.of(place)?;
        let samplings: Vec<&Sampling> = grids.iter().filter_map(|g| g.of(place).ok()).map(|s| &**s).collect();
        let starts = self.guess.starts(&prepared, &samplings, &limits, Some(1));
        let constant = if model.marginalise { prepared.marginal_constant } else { 0.0 };
        let ready = [ReadySpectrum { place, prepared: Arc::new(prepared), limits, starts, may_add_starts: false }];
        let spectra = ReadySpectra { model, grids, spectra: &ready, guess: None };
        let [linearise, evaluate] = [&self.linearise, &self.evaluate].map(|o| assemble(o, spectra, &spectra.starts()));
        let [first, second] = self.recordings.clone();
        let parameters = model.parameters.iter().map(|p| p.solver.clone()).collect();
        let linearise = Job { recording: first, batch: linearise };
        let evaluate = Job { recording: second, batch: evaluate };
        Ok(Task { constant, ..Task::new(&fitter.device, linearise, evaluate, parameters) })
    }
}
