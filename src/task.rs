//! Single spectra and curves for optimisers of other crates.

use std::sync::Arc;

use crate::curve_model::Failures;
use crate::device::Device;
use crate::recording::{Parameter, Precision, Recording};
use crate::solver::{self, Batch};

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
    /// Parameters, whose physical values are `origin` + `scale` u.
    pub parameters: Vec<Parameter>,
    /// Term that marginalisation adds to the objective beside ln det C.
    pub constant: f64,
    /// Failures of a user's model, and the index of this task among them.
    failures: Option<(Arc<Failures>, usize)>,
}

impl Task {
    /// Makes a task from one job with derivatives and one with values only; the constant of its objective is 0.
    pub(crate) fn new(
        device: &Device,
        linearise: Job,
        evaluate: Job,
        parameters: Vec<Parameter>,
    ) -> Task {
        Task {
            device: device.clone(),
            linearise,
            evaluate,
            parameters,
            constant: 0.0,
            failures: None,
        }
    }

    /// Sets the record of failures of the user's model, and the index of the task in it.
    pub(crate) fn with_failures(mut self, failures: Arc<Failures>, index: usize) -> Task {
        self.failures = Some((failures, index));
        self
    }

    /// Returns the last failure of the user's model, an error or a panic of a closure, and removes it from the record.
    pub fn take_failure(&self) -> Option<String> {
        self.failures
            .as_ref()
            .and_then(|(failures, index)| failures.take(*index))
    }

    /// Returns the device that the fitter was made with.
    pub fn device(&self) -> &dyn solver::Backend {
        &*self.device.inner
    }

    /// Returns the precision in which residuals are computed: f32 on GPUs.
    pub fn precision(&self) -> Precision {
        if self.device.inner.runs_wgsl() {
            Precision::F32
        } else {
            self.linearise.recording.precision
        }
    }
}
