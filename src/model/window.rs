//! Samplings of part of a wavelength grid, for spectra that lack one or both of its ends.
//!
//! Under such a mask the grid's continuum basis is nearly dependent, and one that is orthonormal over the pixels that
//! are left is not. Spectra that lack about the same pixels share it, so that a survey whose spectra are all padded
//! alike has one such basis instead of one per spectrum.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::ModelArm;
use super::continuum::Orthonormal;
use super::sampling::{Sampling, padded_basis};

/// A grid is divided into so many parts, between which windows begin and end.
const PARTS: usize = 32;
/// Number of windows per grid that are kept for other spectra, the latest ones.
const KEPT: usize = 16;

/// The latest windows of a grid.
#[derive(Debug, Default)]
pub struct Windows(Mutex<Vec<Window>>);

/// A part of a grid.
#[derive(Debug)]
struct Window {
    pixels: Range<usize>,
    /// `None` if its pixels do not determine all continuum terms.
    sampling: Option<Arc<Sampling>>,
}

impl Sampling {
    /// Returns the sampling of the smallest window of the grid that contains all pixels with `weight`. Its continuum
    /// basis is orthonormal over the window. `None` if the window is the whole grid, or does not determine all terms.
    /// `wavelength` is the grid's, in Å.
    pub fn window(&self, arm: &ModelArm, wavelength: &[f64], weight: &[f32]) -> Option<Arc<Sampling>> {
        let first = weight.iter().position(|w| *w > 0.0)?;
        let last = weight.iter().rposition(|w| *w > 0.0)?;
        let part = self.pixels.div_ceil(PARTS).max(1);
        let pixels = first / part * part..((last / part + 1) * part).min(self.pixels);
        if !self.on[..pixels.start].contains(&true) && !self.on[pixels.end..].contains(&true) {
            return None;
        }
        let lock = || self.windows.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().iter().find(|window| window.pixels == pixels) {
            return known.sampling.clone();
        }
        // made without the lock, by several threads perhaps, which make the same
        let sampling = self.narrowed(arm, wavelength, &pixels).map(Arc::new);
        let mut all = lock();
        if let Some(known) = all.iter().find(|window| window.pixels == pixels) {
            return known.sampling.clone();
        }
        if all.len() == KEPT {
            all.remove(0);
        }
        all.push(Window { pixels, sampling: sampling.clone() });
        sampling
    }

    /// Returns the same sampling with all pixels outside the given ones off.
    fn narrowed(&self, arm: &ModelArm, wavelength: &[f64], pixels: &Range<usize>) -> Option<Sampling> {
        let mut on = self.on.clone();
        on[..pixels.start].fill(false);
        on[pixels.end..].fill(false);
        let (basis, Orthonormal { ln_det, condition }) = padded_basis(self.raw_basis(arm, wavelength), &on, &self.on)?;
        let used = on.iter().filter(|on| **on).count();
        Some(Sampling {
            pixels: self.pixels,
            index: self.index.clone(),
            fraction: self.fraction.clone(),
            on,
            basis,
            ln_det,
            condition,
            ends: self.ends,
            used,
            is_template: self.is_template,
            windows: Windows::default(),
        })
    }
}
