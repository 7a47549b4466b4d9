//! Populations and samplings of shared grids, which a run leaves to the next run of its fitter on the same device.
//! Making them takes a GPU longer than a few hundred fits.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::{ArmLayout, Sampling, SpectralObjective};
use crate::solver::{Backend, Population};
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
pub struct EvaluationPopulation {
    pub objective: Arc<SpectralObjective>,
    pub population: Box<dyn Population>,
}

/// Populations and samplings that are made when they are first needed. The workers of a run share them.
#[derive(Default)]
pub struct Workspace {
    /// Passes that no worker uses.
    passes: Mutex<Vec<SpectralPasses>>,
    /// Maximum number of starts in flight, which is reduced if the device runs out of memory.
    pub max_starts_in_flight: AtomicUsize,
    /// Populations that workers use together.
    pub populations: SharedPopulations,
    /// Population of the last evaluation of an objective outside of fits.
    pub evaluation: Mutex<Option<EvaluationPopulation>>,
    /// Shared grids of the last batches in each arm.
    pub(super) grids: Mutex<Vec<Vec<SharedGrid>>>,
}

/// The workspaces of a fitter that no run uses.
#[derive(Default)]
pub struct IdleWorkspaces(Mutex<Vec<(Arc<dyn Backend>, Workspace)>>);

impl IdleWorkspaces {
    /// Returns a workspace on this device, an earlier run's if there is one.
    pub fn borrow(&self, device: &Arc<dyn Backend>) -> Arc<BorrowedWorkspace<'_>> {
        let mut idle = lock(&self.0);
        let latest = idle
            .iter()
            .rposition(|(idle_device, _)| Arc::ptr_eq(idle_device, device));
        let workspace = latest
            .map(|place| idle.swap_remove(place).1)
            .unwrap_or_default();
        workspace
            .max_starts_in_flight
            .store(usize::MAX, Ordering::Relaxed);
        Arc::new(BorrowedWorkspace {
            idle: self,
            device: device.clone(),
            workspace,
        })
    }
}

impl fmt::Debug for IdleWorkspaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Idle").field(&lock(&self.0).len()).finish()
    }
}

/// A workspace that goes back to its fitter when the last worker of the run ends.
pub struct BorrowedWorkspace<'a> {
    idle: &'a IdleWorkspaces,
    device: Arc<dyn Backend>,
    pub workspace: Workspace,
}

impl BorrowedWorkspace<'_> {
    /// Returns whether the workspace is one of this device.
    pub fn is_on(&self, device: &dyn Backend) -> bool {
        std::ptr::addr_eq(device, &*self.device)
    }
}

impl Drop for BorrowedWorkspace<'_> {
    fn drop(&mut self) {
        let mut idle = lock(&self.idle.0);
        // Several runs at the same time may leave their workspaces. At most one per worker is kept, and only one if
        // the workers of the device share its populations.
        let max_idle = if self.device.shares_populations() {
            1
        } else {
            self.device.workers()
        };
        let count = idle
            .iter()
            .filter(|(idle_device, _)| Arc::ptr_eq(idle_device, &self.device))
            .count();
        if !std::thread::panicking() && count < max_idle {
            idle.push((self.device.clone(), std::mem::take(&mut self.workspace)));
        }
    }
}

/// The part of a worker in its run's workspace: its passes, which it leaves there when it ends.
pub struct WorkerWorkspace<'a> {
    pub borrowed: Arc<BorrowedWorkspace<'a>>,
    /// Passes for the last spectra.
    pub passes: Option<SpectralPasses>,
    /// False if the passes are not kept, because their populations are measured, on another device, or a stream's.
    pub keeps_passes: bool,
}

impl<'a> WorkerWorkspace<'a> {
    /// Returns the part of a new worker, which has no passes yet.
    pub fn new(borrowed: Arc<BorrowedWorkspace<'a>>) -> WorkerWorkspace<'a> {
        WorkerWorkspace {
            borrowed,
            passes: None,
            keeps_passes: true,
        }
    }

    /// Takes passes for spectra of this layout and with these settings that another worker has left, and frees those
    /// for other layouts or settings. A worker that keeps no passes takes none, because other workers would keep their
    /// populations.
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

impl Drop for WorkerWorkspace<'_> {
    fn drop(&mut self) {
        // Passes that are not kept are freed here, before the workspace may go to another run.
        let passes = self
            .passes
            .take()
            .filter(|passes| self.keeps_passes && !passes.have_failed());
        if !std::thread::panicking() {
            lock(&self.borrowed.workspace.passes).extend(passes);
        }
    }
}

/// Locks a mutex. A worker that panicked leaves its data consistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
