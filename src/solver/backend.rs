//! The seam between the solver and the device on which the rounds run. Slow calls and readbacks are futures; `pollster`
//! blocks on them in `curves` and `spectral`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::basin::AcceptedPoint;
use super::member::{GaveWay, Phase};
use super::profile::{DeviceCalls, Meter};
use super::settings::LevenbergMarquardt;
use super::slots::Places;
use super::small::{SmallFitter, SmallProblem};
use super::status::Status;
use crate::buffers::LossSums;
use crate::error::{Error, Result};
use crate::recording::{BufferId, Recording, Values};

/// Future that a device's slow calls return, because a browser cannot block.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// A machine that executes whole rounds of a [`Recording`].
pub trait Backend: Send + Sync {
    /// Returns the name by which users know the device.
    fn name(&self) -> String;

    /// Returns the name that the result table gives to the maker of its rows: that of the device, unless it says what
    /// no bit of a row depends on.
    fn maker(&self) -> String {
        self.name()
    }

    /// Returns whether it runs a [`Custom`](crate::recording::Custom) stage's WGSL, not its Rust.
    fn runs_wgsl(&self) -> bool {
        false
    }

    /// Returns whether some of the results of its populations are computed again on the CPU.
    fn is_verified(&self) -> bool {
        self.runs_wgsl()
    }

    /// Returns how many starts are worth running at once: more would make a submission longer, and no faster.
    fn enough(&self) -> usize {
        usize::MAX
    }

    /// Returns the calls since the device was opened; all 0 if it does not count them.
    fn calls(&self) -> DeviceCalls {
        DeviceCalls::default()
    }

    /// Returns the number of workers of a run that share the device: while one waits for it, the others prepare
    /// spectra.
    fn workers(&self) -> usize {
        2
    }

    /// Returns whether the workers of a run share its populations of spectra: a round of few members takes as long as
    /// one of many.
    fn shares_populations(&self) -> bool {
        self.runs_wgsl()
    }

    /// Returns how many bytes the populations of all workers may take together, unless the user says so; `None` if
    /// nothing but their members limits them.
    fn memory(&self) -> Option<u64> {
        None
    }

    /// Returns how many members and spectra of this recording fit `memory` bytes (default: what a population alone may
    /// take of the device), at least 1.
    fn capacity(&self, recording: &Recording, memory: Option<u64>) -> Result<usize>;

    /// Makes room for `capacity` starts and at most as many spectra, and everything else that the rounds need.
    fn population(
        &self,
        recording: Arc<Recording>,
        settings: &LevenbergMarquardt,
        capacity: usize,
    ) -> Result<Box<dyn Population>>;

    /// Opens the device again after it failed, if that may help; `false` if it cannot be opened again. Populations that
    /// it has made before stay as they are.
    fn renew(&self, _failure: &Error) -> Result<bool> {
        Ok(false)
    }

    /// Sets how long the device may take to answer before it counts as lost.
    fn set_limit(&self, _limit: Duration) {}

    /// Returns a solver that runs each small fit whole on the device; `None` where it has none in this precision.
    fn small_fitter(&self, _: SmallProblem) -> Result<Option<Box<dyn SmallFitter>>> {
        Ok(None)
    }
}

/// Members in flight on a device, one per start, each in a slot.
pub trait Population: Send {
    /// Returns the maximum number of starts, and of spectra unless [`spectra_capacity`](Self::spectra_capacity) says
    /// otherwise.
    fn capacity(&self) -> usize;

    /// Removes all members.
    fn clear(&mut self);

    /// Returns the number of spectra that have room: more than starts where some may wait on the device for a start's
    /// place.
    fn spectra_capacity(&self) -> usize {
        self.capacity()
    }

    /// Uploads the data, bounds and priors of a batch's spectra to free places. Buffers of
    /// [`Scope::Batch`](crate::recording::Scope) are the same for all spectra until the population is cleared: they are
    /// taken from the first batch.
    fn upload(&mut self, batch: &Batch, spectra: &[usize]) -> Result<()>;

    /// Makes members of a batch's starts, whose spectra have been uploaded; they become active.
    fn enter_members(&mut self, batch: &Batch, places: &Places) -> Result<()>;

    /// Submits up to `rounds` rounds, for whose end the next [`advance`](Self::advance) waits. A device that does not
    /// work on its own leaves them to that.
    fn submit(&mut self, _rounds: u32) -> Result<()> {
        Ok(())
    }

    /// Executes up to `rounds` rounds, unless some are submitted, and returns the number of members that are still
    /// active.
    fn advance(&mut self, rounds: u32) -> Pending<'_, usize>;

    /// Returns the slots of the starts that are still active, ascending.
    fn active(&mut self) -> Pending<'_, Vec<usize>>;

    /// Reads the outcomes of the starts in these slots.
    fn read<'a>(&'a mut self, starts: &'a [usize]) -> Pending<'a, Vec<Outcome>>;

    /// Records in the meter, from now on, where the population's time goes. No bit of the outcomes changes.
    fn measure(&mut self, _meter: Arc<Meter>) {}

    /// Adds spectra at free places; their members become active.
    fn enter(&mut self, batch: &Batch, places: &Places) -> Result<()> {
        self.upload(batch, &places.spectra)?;
        self.enter_members(batch, places)
    }

    /// Replaces all members and spectra by those of the batch, in its order.
    fn load<'a>(&'a mut self, batch: &'a Batch) -> Pending<'a, ()> {
        Box::pin(async move {
            self.clear();
            self.enter(batch, &Places::in_order(batch))
        })
    }

    /// Runs the stages once at the trial points, without a step, and returns a
    /// [`Scope::Member`](crate::recording::Scope) buffer of the active members, in the order of the batch: for pictures
    /// and parity tests, before any of them pauses.
    fn inspect(&mut self, buffer: BufferId) -> Pending<'_, Vec<f64>>;

    /// Returns the contents of several buffers, as [`inspect`](Self::inspect) does; a device may run the stages once
    /// for all.
    fn inspect_all<'a>(&'a mut self, buffers: &'a [BufferId]) -> Pending<'a, Vec<Vec<f64>>> {
        Box::pin(async move {
            let mut contents = Vec::with_capacity(buffers.len());
            for buffer in buffers {
                contents.push(self.inspect(*buffer).await?);
            }
            Ok(contents)
        })
    }
}

/// Spectra and members that enter a population together. P is the number of parameters.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Number of spectra.
    pub spectra: usize,
    /// Contents of each [`Scope::Batch`](crate::recording::Scope) (one block) and `Scope::Spectrum` (`spectra` blocks)
    /// buffer.
    pub blocks: Vec<(BufferId, Values)>,
    /// (spectra, P): box bounds in `u`; equal ones hold the parameter.
    pub lower: Vec<f64>,
    pub upper: Vec<f64>,
    /// (spectra, P): Gaussian priors in `u`, `prior_weight` = 1/τ, 0 for none.
    pub prior_mean: Vec<f64>,
    pub prior_weight: Vec<f64>,
    /// The spectrum of each member. A spectrum's members are its group; they follow each other.
    pub group: Vec<u32>,
    /// (members, P): start of each member, in `u`, inside the bounds.
    pub starts: Vec<f64>,
    /// The members end in their first round, evaluated at their starts.
    pub is_evaluation: bool,
}

impl Batch {
    /// Returns the number of starts in the batch.
    pub fn members(&self) -> usize {
        self.group.len()
    }

    /// Returns the phase in which members begin.
    pub fn first_phase(&self) -> Phase {
        if self.is_evaluation {
            Phase::Evaluating
        } else {
            Phase::Searching
        }
    }
}

/// Result of one member. Sums are those of the best point.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// `None` while active, and when it gave way.
    pub status: Option<Status>,
    /// Why it gave way to another start of its spectrum, if it did; its numbers are then those of its last point.
    pub gave_way: Option<GaveWay>,
    /// Number of rounds that it took part in.
    pub rounds: u32,
    /// Number of points at which the model was evaluated.
    pub evaluations: u32,
    /// (P) in `u`.
    pub parameters: Vec<f64>,
    /// Data rows.
    pub chi2: f64,
    /// Prior and hull rows.
    pub penalty: f64,
    /// ln det C in the orthonormal basis, summed over arms.
    pub ln_det: f64,
    /// Sums of a robust loss of spectra.
    pub loss: LossSums,
    /// (P) Jᵀr.
    pub gradient: Vec<f64>,
    /// (P (P + 1) / 2) lower triangle by rows.
    pub normal_matrix: Vec<f64>,
}

impl Outcome {
    /// Returns χ² plus penalties, and plus ln det C if the fit marginalises over the continuum; infinite if it is not
    /// finite.
    pub(crate) fn objective(&self, marginalise: bool) -> f64 {
        let value = self.chi2 + self.penalty + if marginalise { self.ln_det } else { 0.0 };
        if value.is_finite() {
            value
        } else {
            f64::INFINITY
        }
    }

    /// Returns the number of bytes that the outcome's numbers take.
    pub fn bytes(&self) -> usize {
        8 * (8 + self.parameters.len() + self.gradient.len() + self.normal_matrix.len())
    }

    /// Returns the best point with its cost, gradient and normal matrix.
    pub fn point(&self) -> AcceptedPoint<'_> {
        AcceptedPoint {
            parameters: &self.parameters,
            cost: self.chi2 + self.penalty,
            gradient: &self.gradient,
            normal_matrix: &self.normal_matrix,
        }
    }
}
