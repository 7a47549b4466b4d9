//! What a run leaves to the next run of its fitter on the same device: populations, and the samplings of shared grids.
//! To make them takes a card longer than a few hundred fits.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::{ArmLayout, Sampling, SpectralObjective};
use crate::solver::{Device, Population};
use crate::spectral::search::pass::PassSettings;
use crate::spectral::search::shared_populations::SharedPopulations;
use crate::spectral::search::solve::SpectralPasses;

/// The inputs that determine a sampling in one arm.
#[derive(Clone)]
pub(super) struct GridKey {
    /// Å.
    pub wavelength: Arc<[f64]>,
    /// Diagonals of the resolution matrices of the spectra.
    pub diagonals: usize,
}

impl PartialEq for GridKey {
    fn eq(&self, other: &GridKey) -> bool {
        let is_same_array = || Arc::ptr_eq(&self.wavelength, &other.wavelength);
        self.diagonals == other.diagonals
            && (is_same_array() || self.wavelength == other.wavelength)
    }
}

/// A wavelength grid that spectra share, with its sampling of an arm's template.
#[derive(Clone)]
pub(super) struct SharedGrid {
    pub key: GridKey,
    pub sampling: Arc<Sampling>,
}

/// A population that evaluates an objective at given points, outside of fits.
pub struct Evaluation {
    pub objective: Arc<SpectralObjective>,
    pub population: Box<dyn Population>,
}

/// Populations and samplings that are made when they are first needed. The workers of a run share them.
#[derive(Default)]
pub struct Workspace {
    /// Passes that no worker uses.
    passes: Mutex<Vec<SpectralPasses>>,
    /// Maximum number of starts in flight, which is reduced if the device runs out of memory.
    pub most: AtomicUsize,
    /// Populations that workers use together.
    pub populations: SharedPopulations,
    /// That of the last points at which an objective was asked for.
    pub evaluation: Mutex<Option<Evaluation>>,
    /// Shared grids of the last batches for each arm.
    pub(super) grids: Mutex<Vec<Vec<SharedGrid>>>,
}

/// The workspaces of a fitter that no run uses.
#[derive(Default)]
pub struct Idle(Mutex<Vec<(Arc<dyn Device>, Workspace)>>);

impl Idle {
    /// Returns a workspace on this device, an earlier run's if there is one.
    pub fn borrow(&self, device: &Arc<dyn Device>) -> Arc<Borrowed<'_>> {
        let mut all = lock(&self.0);
        let last = all
            .iter()
            .rposition(|(other, _)| Arc::ptr_eq(other, device));
        let workspace = last
            .map(|place| all.swap_remove(place).1)
            .unwrap_or_default();
        workspace.most.store(usize::MAX, Ordering::Relaxed);
        Arc::new(Borrowed {
            idle: self,
            device: device.clone(),
            workspace,
        })
    }
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Idle").field(&lock(&self.0).len()).finish()
    }
}

/// A workspace that goes back to its fitter when the last worker of the run ends.
pub struct Borrowed<'a> {
    idle: &'a Idle,
    device: Arc<dyn Device>,
    pub workspace: Workspace,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.idle.0);
        // of runs at the same time, as many as there are workers, or the one whose workers share its populations
        let max_kept = if self.device.shares_populations() {
            1
        } else {
            self.device.workers()
        };
        let count = all
            .iter()
            .filter(|(other, _)| Arc::ptr_eq(other, &self.device))
            .count();
        if !std::thread::panicking() && count < max_kept {
            all.push((self.device.clone(), std::mem::take(&mut self.workspace)));
        }
    }
}

/// The part of a worker in its run's workspace: passes, which it leaves there when it ends.
pub struct Seat<'a> {
    pub borrowed: Arc<Borrowed<'a>>,
    /// Passes for the last spectra.
    pub passes: Option<SpectralPasses>,
    /// False if the passes are not kept: their populations are measured, on another device, or a stream's.
    pub keeps_passes: bool,
}

impl<'a> Seat<'a> {
    /// Returns a seat in a run's workspace.
    pub fn new(borrowed: Arc<Borrowed<'a>>) -> Seat<'a> {
        Seat {
            borrowed,
            passes: None,
            keeps_passes: true,
        }
    }

    /// Takes passes for spectra of this layout, made with these settings, that another worker has left; frees those for
    /// others. A worker that keeps none takes none, because others would keep their populations.
    pub fn take_passes(
        &mut self,
        layout: &[ArmLayout],
        settings: PassSettings,
    ) -> Option<SpectralPasses> {
        let mut unused = lock(&self.borrowed.workspace.passes);
        unused.retain(|passes| self.keeps_passes && passes.is_for(layout, settings));
        unused.pop()
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        // those that are not kept are freed before the workspace may go to another run
        let kept = self
            .passes
            .take()
            .filter(|passes| self.keeps_passes && !passes.have_failed());
        if !std::thread::panicking() {
            lock(&self.borrowed.workspace.passes).extend(kept);
        }
    }
}

/// Locks what a worker that panicked has left whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
