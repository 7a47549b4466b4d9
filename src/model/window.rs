//! Samplings of part of a wavelength grid, for spectra that lack one or both of its ends.
//!
//! Under such a mask the terms of the grid's continuum basis are nearly dependent. Those of a basis that is orthonormal
//! over the remaining pixels are not. Spectra that lack about the same pixels share it, so that a survey whose spectra
//! are all padded alike has one such basis instead of one per spectrum.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ModelArm;
use super::continuum::Orthonormalisation;
use super::sampling::{Sampling, padded_basis};

/// Number of parts into which a grid is divided. Windows begin and end between them.
const PARTS_PER_GRID: usize = 32;
/// Maximum number of cached windows per grid, those that were used last.
const MAX_CACHED_WINDOWS: usize = 16;

/// The windows of a grid that were used last, the latest at the end.
#[derive(Debug, Default)]
pub struct WindowCache(Mutex<Vec<GridWindow>>);

/// A range of a grid's pixels with the sampling of them alone.
#[derive(Debug)]
struct GridWindow {
    pixels: Range<usize>,
    /// `None` if its pixels do not determine all continuum terms.
    sampling: Option<Arc<Sampling>>,
}

impl WindowCache {
    /// Locks the windows for this thread, also after another thread has panicked while it held the lock.
    fn lock(&self) -> MutexGuard<'_, Vec<GridWindow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the sampling of a cached window, which becomes the latest; `None` if the window is not cached.
fn find_cached_window(
    windows: &mut [GridWindow],
    pixels: &Range<usize>,
) -> Option<Option<Arc<Sampling>>> {
    let index = windows.iter().position(|window| window.pixels == *pixels)?;
    windows[index..].rotate_left(1);
    windows.last().map(|window| window.sampling.clone())
}

impl Sampling {
    /// Returns the sampling of the smallest window of the grid that contains all pixels with `weight`. Its continuum
    /// basis is orthonormal over the window. `None` if the window is the whole grid, or does not determine all terms.
    /// `wavelength` is the grid's, in Å; without it there is no window.
    pub fn find_window(
        &self,
        arm: &ModelArm,
        wavelength: &[f64],
        weight: &[f32],
    ) -> Option<Arc<Sampling>> {
        if wavelength.len() != self.pixels {
            return None;
        }
        // 1. Round the range of pixels with weight outwards to whole parts of the grid, so that spectra share windows.
        let first = weight.iter().position(|w| *w > 0.0)?;
        let last = weight.iter().rposition(|w| *w > 0.0)?;
        let part = self.pixels.div_ceil(PARTS_PER_GRID).max(1);
        let pixels = first / part * part..((last / part + 1) * part).min(self.pixels);
        if !self.on[..pixels.start].contains(&true) && !self.on[pixels.end..].contains(&true) {
            return None;
        }
        // 2. Look for the window in the cache.
        if let Some(cached_sampling) = find_cached_window(&mut self.windows.lock(), &pixels) {
            return cached_sampling;
        }
        // 3. Make it without the lock. Several threads may do so at once; all use the one that is cached first.
        let sampling = self.restrict(arm, wavelength, &pixels).map(Arc::new);
        let mut windows = self.windows.lock();
        if let Some(cached_sampling) = find_cached_window(&mut windows, &pixels) {
            return cached_sampling;
        }
        if windows.len() == MAX_CACHED_WINDOWS {
            windows.remove(0);
        }
        windows.push(GridWindow {
            pixels,
            sampling: sampling.clone(),
        });
        sampling
    }

    /// Returns the same sampling without the pixels outside the given ones; `None` if these do not determine all terms.
    fn restrict(
        &self,
        arm: &ModelArm,
        wavelength: &[f64],
        pixels: &Range<usize>,
    ) -> Option<Sampling> {
        let mut on = self.on.clone();
        on[..pixels.start].fill(false);
        on[pixels.end..].fill(false);
        let (basis, Orthonormalisation { ln_det, condition }) =
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
            windows: WindowCache::default(),
        })
    }
}
