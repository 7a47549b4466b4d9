//! Samplings of part of a wavelength grid, for spectra that lack one or both of its ends.
//!
//! Under such a mask the grid's continuum basis is nearly dependent, and one that is orthonormal over the pixels that
//! are left is not. Spectra that lack about the same pixels share it, so that a survey whose spectra are all padded
//! alike has one such basis instead of one per spectrum.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ModelArm;
use super::continuum::Orthonormal;
use super::sampling::{Sampling, padded_basis};

/// A grid is divided into so many parts, between which windows begin and end.
const PARTS: usize = 32;
/// Number of windows per grid that are kept for other spectra, those that were used last.
const KEPT: usize = 16;

/// The windows of a grid that were used last, the latest at the end.
#[derive(Debug, Default)]
pub struct Windows(Mutex<Vec<Window>>);

/// A part of a grid.
#[derive(Debug)]
struct Window {
    pixels: Range<usize>,
    /// `None` if its pixels do not determine all continuum terms.
    sampling: Option<Arc<Sampling>>,
}

impl Windows {
    /// Returns the windows, for this thread alone.
    fn lock(&self) -> MutexGuard<'_, Vec<Window>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves a window to the end of all, where the latest one is, and returns its sampling; `None` if it is not among them.
fn find(all: &mut [Window], pixels: &Range<usize>) -> Option<Option<Arc<Sampling>>> {
    let place = all.iter().position(|window| window.pixels == *pixels)?;
    all[place..].rotate_left(1);
    all.last().map(|window| window.sampling.clone())
}

impl Sampling {
    /// Returns the sampling of the smallest window of the grid that contains all pixels with `weight`. Its continuum
    /// basis is orthonormal over the window. `None` if the window is the whole grid, or does not determine all terms.
    /// `wavelength` is the grid's, in Å; without it there is no window.
    pub fn window(
        &self,
        arm: &ModelArm,
        wavelength: &[f64],
        weight: &[f32],
    ) -> Option<Arc<Sampling>> {
        if wavelength.len() != self.pixels {
            return None;
        }
        let first = weight.iter().position(|w| *w > 0.0)?;
        let last = weight.iter().rposition(|w| *w > 0.0)?;
        let part = self.pixels.div_ceil(PARTS).max(1);
        let pixels = first / part * part..((last / part + 1) * part).min(self.pixels);
        if !self.on[..pixels.start].contains(&true) && !self.on[pixels.end..].contains(&true) {
            return None;
        }
        if let Some(known) = find(&mut self.windows.lock(), &pixels) {
            return known;
        }
        // made without the lock, by several threads perhaps, of which all use what the first keeps
        let sampling = self.narrowed(arm, wavelength, &pixels).map(Arc::new);
        let mut all = self.windows.lock();
        if let Some(known) = find(&mut all, &pixels) {
            return known;
        }
        if all.len() == KEPT {
            all.remove(0);
        }
        all.push(Window {
            pixels,
            sampling: sampling.clone(),
        });
        sampling
    }

    /// Returns the same sampling with all pixels outside the given ones off.
    fn narrowed(
        &self,
        arm: &ModelArm,
        wavelength: &[f64],
        pixels: &Range<usize>,
    ) -> Option<Sampling> {
        let mut on = self.on.clone();
        on[..pixels.start].fill(false);
        on[pixels.end..].fill(false);
        let (basis, Orthonormal { ln_det, condition }) =
            padded_basis(self.raw_basis(arm, wavelength), &on, &self.on)?;
        let used = on.iter().filter(|on| **on).count();
        Some(Sampling {
            pixels: self.pixels,
            index: self.index.clone(),
            fraction: self.fraction.clone(),
            edges: self.edges.clone(),
            on,
            basis: Arc::new(basis),
            ln_det,
            condition,
            ends: self.ends,
            used,
            resolution_half: self.resolution_half,
            clearance: self.clearance,
            is_template: self.is_template,
            windows: Windows::default(),
        })
    }
}
