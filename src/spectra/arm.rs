//! One arm of a batch of spectra.

use std::ops::Range;
use std::sync::Arc;

use super::mismatch;
use crate::error::{Error, Result};
use crate::rows::bad_wavelength;

/// Wavelength grids, Å, vacuum.
#[derive(Clone, Debug, PartialEq)]
pub enum Wavelength {
    /// (pixels): one grid for all spectra, stored once.
    Shared(Arc<[f64]>),
    /// (n × pixels): each spectrum its own.
    Own(Vec<f64>),
}

impl From<Vec<f64>> for Wavelength {
    fn from(grid: Vec<f64>) -> Wavelength {
        Wavelength::Shared(grid.into())
    }
}

impl From<Arc<[f64]>> for Wavelength {
    fn from(grid: Arc<[f64]>) -> Wavelength {
        Wavelength::Shared(grid)
    }
}

/// Arrays (n × pixels), row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmSpectra {
    /// Empty for the only, unnamed arm.
    pub name: String,
    /// Å, vacuum.
    pub wavelength: Wavelength,
    /// Of each spectrum.
    pub pixels: usize,
    /// In any unit.
    pub flux: Vec<f64>,
    /// Inverse variance of the flux; 0 = masked.
    pub ivar: Vec<f64>,
    /// true = bad; empty = none is.
    pub mask: Vec<bool>,
    /// Each spectrum's own, where it brings one.
    pub resolution: Option<Resolution>,
}

/// Each spectrum's banded resolution matrix R: observed flux = R · (model at the pixels).
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// Odd.
    pub diagonals: usize,
    /// (n × diagonals × pixels), as DESI stores it: R\[row\]\[column\] = values\[d\]\[column\] with row = column − offset, the offsets
    /// diagonals / 2, …, 0, …, −diagonals / 2.
    pub values: Vec<f32>,
}

impl ArmSpectra {
    /// Of its arrays; a shared grid is not its own.
    pub(super) fn bytes(&self) -> usize {
        let own = if let Wavelength::Own(grids) = &self.wavelength { size_of_val(grids.as_slice()) } else { 0 };
        let resolution = self.resolution.as_ref().map_or(0, |r| size_of_val(r.values.as_slice()));
        own + resolution + self.mask.len() + size_of_val(self.flux.as_slice()) + size_of_val(self.ivar.as_slice())
    }

    /// An arm of `flux.len() / pixels` spectra.
    ///
    /// # Errors
    /// `ShapeMismatch`; `BadWavelength` for a shared grid that is not finite, positive and strictly increasing.
    pub fn new(
        name: impl Into<String>,
        pixels: usize,
        wavelength: Wavelength,
        flux: Vec<f64>,
        ivar: Vec<f64>,
        mask: Option<Vec<bool>>,
    ) -> Result<ArmSpectra> {
        let (name, mask) = (name.into(), mask.unwrap_or_default());
        let what = if name.is_empty() { "spectra".to_string() } else { format!("arm {name}") };
        if pixels == 0 || !flux.len().is_multiple_of(pixels) {
            return Err(mismatch(&what, format!("flux has {} values for rows of {pixels} pixels", flux.len())));
        }
        let grid = match &wavelength {
            Wavelength::Shared(grid) => (grid.len(), pixels),
            Wavelength::Own(grids) => (grids.len(), flux.len()),
        };
        let masked = if mask.is_empty() { flux.len() } else { mask.len() };
        let lengths = [("wavelength", grid), ("ivar", (ivar.len(), flux.len())), ("mask", (masked, flux.len()))];
        for (array, (found, expected)) in lengths {
            if found != expected {
                return Err(mismatch(&what, format!("{array} has {found} values, not {expected}")));
            }
        }
        if let Wavelength::Shared(grid) = &wavelength {
            check_grid(grid, &what)?;
        }
        Ok(ArmSpectra { name, wavelength, pixels, flux, ivar, mask, resolution: None })
    }

    /// Gives every spectrum its resolution matrix.
    ///
    /// # Errors
    /// `ShapeMismatch` when the values are not (n × diagonals × pixels), or the diagonals not odd.
    pub fn with_resolution(mut self, resolution: Resolution) -> Result<ArmSpectra> {
        let Resolution { diagonals, values } = &resolution;
        if diagonals.is_multiple_of(2) || values.len() != diagonals * self.flux.len() {
            let what = if self.name.is_empty() { "spectra".to_string() } else { format!("arm {}", self.name) };
            let message = format!(
                "resolution has {} values of {diagonals} diagonals, not (spectra, odd diagonals, {}) of {} spectra",
                values.len(),
                self.pixels,
                self.len()
            );
            return Err(mismatch(&what, message));
        }
        self.resolution = Some(resolution);
        Ok(self)
    }

    /// Median of flux √ivar over all pixels of spectrum `row`, 0 where ivar is; NaN when one is not a number.
    ///
    /// # Panics
    /// When `row` is not below `len()`.
    pub fn signal_to_noise(&self, row: usize) -> f64 {
        let range = row * self.pixels..(row + 1) * self.pixels;
        let pairs = self.flux[range.clone()].iter().zip(&self.ivar[range]);
        let mut ratios: Vec<f64> = pairs.map(|(y, w)| if *w == 0.0 { 0.0 } else { y * w.sqrt() }).collect();
        if ratios.iter().any(|x| x.is_nan()) {
            return f64::NAN;
        }
        ratios.sort_unstable_by(f64::total_cmp);
        let middle = ratios.len() / 2;
        if ratios.len().is_multiple_of(2) { (ratios[middle - 1] + ratios[middle]) / 2.0 } else { ratios[middle] }
    }

    /// How many spectra.
    pub fn len(&self) -> usize {
        self.flux.len() / self.pixels
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.flux.is_empty()
    }

    /// The wavelength grid (pixels) of spectrum `row`.
    ///
    /// # Panics
    /// When `row` is not below `len()`.
    pub fn grid(&self, row: usize) -> &[f64] {
        match &self.wavelength {
            Wavelength::Shared(grid) => grid,
            Wavelength::Own(grids) => &grids[row * self.pixels..][..self.pixels],
        }
    }

    pub(super) fn slice(&self, rows: Range<usize>) -> ArmSpectra {
        let range = rows.start * self.pixels..rows.end * self.pixels;
        ArmSpectra {
            name: self.name.clone(),
            wavelength: match &self.wavelength {
                Wavelength::Shared(grid) => Wavelength::Shared(grid.clone()),
                Wavelength::Own(grids) => Wavelength::Own(grids[range.clone()].to_vec()),
            },
            pixels: self.pixels,
            flux: self.flux[range.clone()].to_vec(),
            ivar: self.ivar[range.clone()].to_vec(),
            mask: if self.mask.is_empty() { Vec::new() } else { self.mask[range.clone()].to_vec() },
            resolution: self.resolution.as_ref().map(|r| Resolution {
                diagonals: r.diagonals,
                values: r.values[range.start * r.diagonals..range.end * r.diagonals].to_vec(),
            }),
        }
    }
}

/// A shared grid is finite, positive and strictly increasing.
pub(super) fn check_grid(grid: &[f64], what: &str) -> Result<()> {
    match bad_wavelength(grid) {
        Some((index, message)) => Err(Error::BadWavelength { what: what.to_string(), index, message }),
        None => Ok(()),
    }
}
