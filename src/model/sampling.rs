//! Sampling of an arm's template by one wavelength grid: split pixel indices and the continuum basis, f64 on the host.
//!
//! With the spectra's own resolution matrices, pixels under the model file's masks are still computed, because their
//! light reaches their neighbours. A pixel within reach of one that the template lacks does not count.

use std::sync::Arc;

use super::continuum::{Orthonormal, basis, orthonormalise};
use super::determined::LARGEST_VALUE;
use super::pixels::edges;
use super::reach::Clearance;
use super::window::Windows;
use super::{LineSpread, ModelArm, Pixels};
use crate::error::{Error, Result, coverage};
use crate::math::bad_wavelength;

/// Pixels of rows are padded to this.
pub const PADDING: usize = 16;

/// A pixel this close to one of the template, in pixels, is that one: 1e-6 of a pixel is about 0.1 m/s.
const SAME_PIXEL: f64 = 1e-6;

/// Rounds a number of pixels up to a multiple of the padding that device buffers have.
pub fn padded(pixels: usize) -> usize {
    pixels.next_multiple_of(PADDING)
}

/// One grid of one arm.
#[derive(Debug)]
pub struct Sampling {
    pub pixels: usize,
    /// (padded) `segment << 24 | whole index`, −1 where the template is not read: padding, outside the template at
    /// rest. Pixels that do not count are not read either, unless the spectra's resolution carries them to their
    /// neighbours, or a window leaves them out.
    pub index: Vec<i32>,
    /// (padded)
    pub fraction: Arc<Vec<f32>>,
    /// (2, padded) Distances from the pixels' centres to their edges, in template pixels; empty unless pixels
    /// integrate.
    pub edges: Arc<Vec<f32>>,
    /// (pixels) Those that count: inside the window, read, inside the arm's range, outside masked intervals, and not
    /// within reach (by the spectra's resolution) of a pixel that the template does not reach.
    pub on: Vec<bool>,
    /// (terms, padded), orthonormal over the used pixels; empty where these do not determine all terms.
    pub basis: Arc<Vec<f32>>,
    /// ln |det| between the raw and this basis.
    pub ln_det: f64,
    /// Upper limit of the condition number between this basis and the raw one, whose terms are scaled to unit length.
    pub condition: f64,
    /// Å: where the continuum's variable is −1 and 1.
    pub(super) ends: (f64, f64),
    pub used: usize,
    /// Number of pixels to either side from which the spectra's resolution matrices carry light to a pixel.
    pub(super) resolution_half: usize,
    /// Smallest distances from the pixels that count to the template's ends.
    pub(super) clearance: Clearance,
    /// The pixels are the template's own.
    pub is_template: bool,
    /// Parts of the grid, for spectra that lack its ends.
    pub windows: Windows,
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
        let pixels = wavelength.len();
        let mut index = vec![-1; padded(pixels)];
        let mut fraction = vec![0.0; padded(pixels)];
        let mut on = vec![false; pixels];
        let mut is_template =
            pixels == arm.emulator.pixels() && arm.pixels != Some(Pixels::Integrate);
        let inside = |w: f64| arm.range.is_none_or(|(low, high)| w >= low && w <= high);
        let masked = |w: f64| masks.iter().any(|&(low, high)| w >= low && w <= high);
        for (j, &w) in wavelength.iter().enumerate() {
            if let Some((segment, q)) = arm.grid.locate(w) {
                let whole = q.floor();
                index[j] = (segment as i32) << 24 | whole as i32;
                fraction[j] = (q - whole) as f32;
                is_template &= (q - j as f64).abs() < SAME_PIXEL;
                on[j] = inside(w) && !masked(w);
            }
        }
        let covered: Vec<f64> = (0..pixels)
            .filter(|&j| index[j] >= 0 && inside(wavelength[j]))
            .map(|j| wavelength[j])
            .collect();
        let (Some(&low), Some(&high)) = (covered.first(), covered.last()) else {
            let (data, model) = (ends(wavelength), ends(arm.emulator.wavelength()));
            return Err(GridFault::NoOverlap {
                data,
                model,
                range: arm.range,
            });
        };
        let resolution_half = if arm.line_spread == LineSpread::File {
            diagonals / 2
        } else {
            0
        };
        if arm.line_spread == LineSpread::File {
            widen(&mut on, &index[..pixels], resolution_half);
        } else {
            (0..pixels).filter(|&j| !on[j]).for_each(|j| index[j] = -1);
        }
        let raw = basis(arm.continuum, wavelength, low, high);
        // without it, fewer pixels than terms perhaps, spectra have bases of windows or of their own
        let (basis, Orthonormal { ln_det, condition }) =
            padded_basis(raw, &on, &on).unwrap_or((Vec::new(), Orthonormal::NONE));
        let used = on.iter().filter(|on| **on).count();
        let mut sampling = Sampling {
            pixels,
            index,
            fraction: Arc::new(fraction),
            edges: Arc::new(edges(arm, wavelength)),
            on,
            basis: Arc::new(basis),
            ln_det,
            condition,
            ends: (low, high),
            used,
            resolution_half,
            clearance: Clearance::INFINITE,
            is_template,
            windows: Windows::default(),
        };
        sampling.clearance = sampling.least_clearance(arm);
        Ok(sampling)
    }

    /// Returns the continuum terms, not orthonormalised, at the grid's wavelengths in Å: (terms, pixels).
    pub fn raw_basis(&self, arm: &ModelArm, wavelength: &[f64]) -> Vec<f64> {
        basis(arm.continuum, wavelength, self.ends.0, self.ends.1)
    }

    /// Does what [`new`](Sampling::new) does for a grid from a file; errors name the file and the arm.
    pub fn of_file(
        arm: &ModelArm,
        wavelength: &[f64],
        masks: &[(f64, f64)],
        diagonals: usize,
        file: &str,
    ) -> Result<Sampling> {
        let what = if arm.name.is_empty() {
            file.to_string()
        } else {
            format!("{file}, arm {}", arm.name)
        };
        Sampling::new(arm, wavelength, masks, diagonals).map_err(|fault| match fault {
            GridFault::Wavelength { index, message } => Error::BadWavelength {
                what,
                index,
                message,
            },
            GridFault::NoOverlap { data, model, range } => Error::NoOverlap {
                what,
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
) -> Option<(Vec<f32>, Orthonormal)> {
    let (pixels, stride) = (used.len(), padded(used.len()));
    let found = orthonormalise(&mut rows, pixels, used)?;
    let mut basis = vec![0.0; rows.len() / pixels.max(1) * stride];
    for (source, target) in rows.chunks(pixels).zip(basis.chunks_mut(stride)) {
        for ((target, value), is_wanted) in target.iter_mut().zip(source).zip(wanted) {
            *target = if *is_wanted {
                value.clamp(-LARGEST_VALUE, LARGEST_VALUE) as f32
            } else {
                0.0
            };
        }
    }
    Some((basis, found))
}

/// Returns the first and the last of some wavelengths; both NaN if there are none.
fn ends(wavelength: &[f64]) -> (f64, f64) {
    let end = |value: Option<&f64>| value.copied().unwrap_or(f64::NAN);
    (end(wavelength.first()), end(wavelength.last()))
}

/// Sets `on` to false within `half` pixels of those whose `index` is negative, where the template does not reach.
fn widen(on: &mut [bool], index: &[i32], half: usize) {
    for j in (0..index.len()).filter(|&j| index[j] < 0) {
        let end = (j + half + 1).min(on.len());
        on[j.saturating_sub(half)..end].fill(false);
    }
}
