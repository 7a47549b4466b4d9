//! What a run leaves to the next run of its fitter on the same device: populations, and the samplings of shared grids.
//! To make them takes a card longer than a few hundred fits.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::{Sampling, SpectralObjective};
use crate::solver::{Device, Population};
use crate::spectral::search::solve::Passes;

/// The inputs that determine a sampling in one arm.
pub(super) struct GridKey {
    /// Å.
    pub wavelength: Arc<[f64]>,
    /// Diagonals of the resolution matrices of the spectra.
    pub diagonals: usize,
}

impl PartialEq for GridKey {
    fn eq(&self, other: &GridKey) -> bool {
        let is_same_array = || Arc::ptr_eq(&self.wavelength, &other.wavelength);
        self.diagonals == other.diagonals && (is_same_array() || self.wavelength == other.wavelength)
    }
}

/// A wavelength grid that spectra share, with its sampling of an arm's template.
pub(super) struct SharedGrid {
    pub key: GridKey,
    pub sampling: Arc<Sampling>,
}

/// A population that evaluates an objective at given points, outside of fits.
pub struct Evaluation {
    pub objective: Arc<SpectralObjective>,
    pub population: Box<dyn Population>,
}

/// Populations and samplings that are made when they are first needed.
#[derive(Default)]
pub struct Workspace {
    /// Populations of the last spectra.
    pub passes: Option<Passes>,
    /// That of the last points at which an objective was asked for.
    pub evaluation: Option<Evaluation>,
    /// Shared grids of the last batches for each arm.
    pub(super) grids: Vec<Vec<SharedGrid>>,
}

/// The workspaces of a fitter that no run uses.
#[derive(Default)]
pub struct Idle(Mutex<Vec<(Arc<dyn Device>, Workspace)>>);

impl Idle {
    /// Returns a workspace on this device, an earlier run's if there is one.
    pub fn borrow(&self, device: &Arc<dyn Device>) -> Borrowed<'_> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.iter().rposition(|(other, _)| Arc::ptr_eq(other, device));
        let workspace = last.map(|place| all.swap_remove(place).1).unwrap_or_default();
        Borrowed { idle: self, device: device.clone(), workspace, returns: true }
    }
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_tuple("Idle").field(&count).finish()
    }
}

/// A workspace that goes back to its fitter when the run ends.
pub struct Borrowed<'a> {
    idle: &'a Idle,
    device: Arc<dyn Device>,
    pub workspace: Workspace,
    /// False if the workspace is not kept: its populations are measured, on another device, or a stream's.
    pub returns: bool,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if !self.returns || std::thread::panicking() {
            return;
        }
        let mut all = self.idle.0.lock().unwrap_or_else(PoisonError::into_inner);
        // no more than the workers of one run use
        if all.iter().filter(|(other, _)| Arc::ptr_eq(other, &self.device)).count() < self.device.workers() {
            all.push((self.device.clone(), std::mem::take(&mut self.workspace)));
        }
    }
}
