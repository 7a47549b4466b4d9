//! Sampling of an arm's template by one wavelength grid: split pixel indices and the continuum basis, f64 on the host.
//!
//! With the spectra's own resolution matrices, pixels under the model file's masks are still computed, because their
//! light reaches their neighbours. A pixel within reach of one that the template lacks does not count.

use std::sync::Arc;

use super::continuum::{Orthonormalisation, evaluate_basis, orthonormalise};
use super::determined::MAX_BASIS_VALUE;
use super::pixels::pixel_edges;
use super::reach::Clearance;
use super::window::WindowCache;
use super::{LineSpread, ModelArm, Pixels};
use crate::error::{Error, Result, coverage};
use crate::math::bad_wavelength;

/// Number of pixels of a row is padded to a multiple of this.
pub const PADDING: usize = 16;

/// Maximum distance in template pixels at which a pixel is the template's own: 1e-6 of a pixel is about 0.1 m/s.
const MAX_PIXEL_OFFSET: f64 = 1e-6;

/// Rounds a number of pixels up to a multiple of the padding that device buffers have.
pub fn padded(pixels: usize) -> usize {
    pixels.next_multiple_of(PADDING)
}

/// Sampling of an arm's template by one wavelength grid.
#[derive(Debug)]
pub struct Sampling {
    pub pixels: usize,
    /// (padded) `segment << 24 | whole index`; −1 where the template is not read, in the padding and outside the
    /// template at rest. Pixels that do not count are not read either, unless the spectra's resolution carries their
    /// light to their neighbours, or a window leaves them out.
    pub index: Vec<i32>,
    /// (padded) Distance of the pixel from the whole index, in template pixels.
    pub fraction: Arc<Vec<f32>>,
    /// (2, padded) Distances from the pixels' centres to their edges, in template pixels; empty unless pixels
    /// integrate.
    pub edges: Arc<Vec<f32>>,
    /// (pixels) True for a pixel that counts: it is read, and lies inside the window and the arm's range, outside
    /// masked intervals, and beyond the reach of the spectra's resolution from pixels that the template does not cover.
    pub on: Vec<bool>,
    /// (terms, padded) Continuum basis, orthonormal over the used pixels; empty where these do not determine all terms.
    pub basis: Arc<Vec<f32>>,
    /// ln |det| of the transform from this basis to the raw one.
    pub ln_det: f64,
    /// Upper limit of the condition number between this basis and the raw one, whose terms are scaled to unit length.
    pub condition: f64,
    /// Wavelengths in Å at which the continuum's variable is −1 and 1.
    pub(super) ends: (f64, f64),
    /// Number of pixels that count.
    pub used: usize,
    /// Number of pixels to either side from which the spectra's resolution matrices carry light to a pixel.
    pub(super) resolution_half: usize,
    /// Smallest distances from the pixels that count to the template's ends.
    pub(super) clearance: Clearance,
    /// True if the pixels are the template's own.
    pub is_template: bool,
    /// Samplings of parts of the grid, for spectra that lack its ends.
    pub windows: WindowCache,
}

/// Reason why a grid cannot be used.
#[derive(Debug)]
pub enum GridFault {
    Wavelength {
        index: usize,
        message: String,
    },
    /// Å
    NoOverlap {
        data: (f64, f64),
        model: (f64, f64),
        range: Option<(f64, f64)>,
    },
}

impl std::fmt::Display for GridFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GridFault::Wavelength { index, message } => write!(f, "wavelength {index}: {message}"),
            GridFault::NoOverlap { data, model, range } => {
                let range = range.map(|(low, high)| low..=high);
                f.write_str(&coverage(data.0..=data.1, model.0..=model.1, range))
            }
        }
    }
}

impl Sampling {
    /// Computes for each wavelength (Å) of a spectrum's grid where to read the arm's template, whether it counts, and
    /// the continuum basis. `wavelength` and `masks` are in Å; `diagonals` is that of the spectra's resolution
    /// matrices, 0 without.
    pub fn new(
        arm: &ModelArm,
        wavelength: &[f64],
        masks: &[(f64, f64)],
        diagonals: usize,
    ) -> std::result::Result<Sampling, GridFault> {
        if let Some((index, message)) = bad_wavelength(wavelength) {
            return Err(GridFault::Wavelength { index, message });
        }
        // 1. Locate each pixel in the template.
        let pixels = wavelength.len();
        let mut index = vec![-1; padded(pixels)];
        let mut fraction = vec![0.0; padded(pixels)];
        let mut on = vec![false; pixels];
        let mut is_template =
            pixels == arm.emulator.pixels() && arm.pixels != Some(Pixels::Integrate);
        let is_in_range = |w: f64| arm.range.is_none_or(|(low, high)| w >= low && w <= high);
        let is_masked = |w: f64| masks.iter().any(|&(low, high)| w >= low && w <= high);
        for (j, &w) in wavelength.iter().enumerate() {
            if let Some((segment, place)) = arm.grid.locate(w) {
                let whole = place.floor();
                index[j] = (segment as i32) << 24 | whole as i32;
                fraction[j] = (place - whole) as f32;
                is_template &= (place - j as f64).abs() < MAX_PIXEL_OFFSET;
                on[j] = is_in_range(w) && !is_masked(w);
            }
        }
        // 2. Find the range of wavelengths that the template and the arm's range cover, masked pixels included.
        let covered: Vec<f64> = (0..pixels)
            .filter(|&j| index[j] >= 0 && is_in_range(wavelength[j]))
            .map(|j| wavelength[j])
            .collect();
        let (Some(&low), Some(&high)) = (covered.first(), covered.last()) else {
            return Err(GridFault::NoOverlap {
                data: first_and_last(wavelength),
                model: first_and_last(arm.emulator.wavelength()),
                range: arm.range,
            });
        };
        // 3. Decide which pixels are read. A resolution matrix also reads those under masks.
        let resolution_half = if arm.line_spread == LineSpread::File {
            diagonals / 2
        } else {
            0
        };
        if arm.line_spread == LineSpread::File {
            exclude_neighbours(&mut on, &index[..pixels], resolution_half);
        } else {
            (0..pixels).filter(|&j| !on[j]).for_each(|j| index[j] = -1);
        }
        // 4. Make the continuum basis. If the pixels do not determine all terms, spectra use the basis of a window or
        //    one of their own.
        let raw_terms = evaluate_basis(arm.continuum, wavelength, low, high);
        let (basis, Orthonormalisation { ln_det, condition }) = padded_basis(raw_terms, &on, &on)
            .unwrap_or((Vec::new(), Orthonormalisation::IMPOSSIBLE));
        let used = on.iter().filter(|on| **on).count();
        let mut sampling = Sampling {
            pixels,
            index,
            fraction: Arc::new(fraction),
            edges: Arc::new(pixel_edges(arm, wavelength)),
            on,
            basis: Arc::new(basis),
            ln_det,
            condition,
            ends: (low, high),
            used,
            resolution_half,
            clearance: Clearance::INFINITE,
            is_template,
            windows: WindowCache::default(),
        };
        sampling.clearance = sampling.least_clearance(arm);
        Ok(sampling)
    }

    /// Returns the continuum terms, not orthonormalised, at the grid's wavelengths in Å: (terms, pixels).
    pub fn raw_basis(&self, arm: &ModelArm, wavelength: &[f64]) -> Vec<f64> {
        evaluate_basis(arm.continuum, wavelength, self.ends.0, self.ends.1)
    }

    /// Makes the sampling of a grid from a file as [`new`](Sampling::new) does; errors name the file and the arm.
    pub fn from_file(
        arm: &ModelArm,
        wavelength: &[f64],
        masks: &[(f64, f64)],
        diagonals: usize,
        file: &str,
    ) -> Result<Sampling> {
        let place = if arm.name.is_empty() {
            file.to_string()
        } else {
            format!("{file}, arm {}", arm.name)
        };
        Sampling::new(arm, wavelength, masks, diagonals).map_err(|fault| match fault {
            GridFault::Wavelength { index, message } => Error::BadWavelength {
                what: place,
                index,
                message,
            },
            GridFault::NoOverlap { data, model, range } => Error::NoOverlap {
                what: place,
                data,
                model,
                range,
            },
        })
    }
}

/// Makes raw continuum terms (terms, pixels) orthonormal over the pixels where `used`, and returns them padded, in f32,
/// 0 where not `wanted`; `None` if these pixels do not determine all terms.
pub fn padded_basis(
    mut rows: Vec<f64>,
    used: &[bool],
    wanted: &[bool],
) -> Option<(Vec<f32>, Orthonormalisation)> {
    let pixels = used.len();
    let stride = padded(pixels);
    let orthonormalisation = orthonormalise(&mut rows, pixels, used)?;
    let mut basis = vec![0.0; rows.len() / pixels.max(1) * stride];
    for (source, target) in rows.chunks(pixels).zip(basis.chunks_mut(stride)) {
        for ((target, value), is_wanted) in target.iter_mut().zip(source).zip(wanted) {
            *target = if *is_wanted {
                value.clamp(-MAX_BASIS_VALUE, MAX_BASIS_VALUE) as f32
            } else {
                0.0
            };
        }
    }
    Some((basis, orthonormalisation))
}

/// Returns the first and the last of some wavelengths; both NaN if there are none.
fn first_and_last(wavelength: &[f64]) -> (f64, f64) {
    match wavelength {
        [first, .., last] => (*first, *last),
        [single] => (*single, *single),
        [] => (f64::NAN, f64::NAN),
    }
}

/// Sets `on` to false within `half` pixels of those whose `index` is negative, which the template does not cover.
fn exclude_neighbours(on: &mut [bool], index: &[i32], half: usize) {
    for j in (0..index.len()).filter(|&j| index[j] < 0) {
        let end = (j + half + 1).min(on.len());
        on[j.saturating_sub(half)..end].fill(false);
    }
}
