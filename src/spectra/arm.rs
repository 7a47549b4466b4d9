//! One arm of a batch of spectra.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::covariance::NoiseCovariance;
use super::widening::AppliedWidening;
use crate::error::{Error, Result};
use crate::math::bad_wavelength;
use crate::values::Values;

/// Wavelength grids in Å in vacuum.
#[derive(Clone, Debug, PartialEq)]
pub enum Wavelength<'a> {
    /// (pixels) One grid for all spectra, stored once.
    Shared(Arc<[f64]>),
    /// (n × pixels) One grid per spectrum.
    Own(Values<'a>),
}

impl From<Vec<f64>> for Wavelength<'_> {
    fn from(grid: Vec<f64>) -> Self {
        Wavelength::Shared(grid.into())
    }
}

impl From<&Vec<f64>> for Wavelength<'_> {
    fn from(grid: &Vec<f64>) -> Self {
        Wavelength::Shared(grid.as_slice().into())
    }
}

impl From<&[f64]> for Wavelength<'_> {
    fn from(grid: &[f64]) -> Self {
        Wavelength::Shared(grid.into())
    }
}

impl From<Arc<[f64]>> for Wavelength<'_> {
    fn from(grid: Arc<[f64]>) -> Self {
        Wavelength::Shared(grid)
    }
}

/// One arm of a batch of spectra: arrays (n × pixels), row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmSpectra<'a> {
    /// Name of the arm; empty for an only, unnamed arm.
    pub name: String,
    /// Wavelengths in Å in vacuum.
    pub wavelength: Wavelength<'a>,
    /// Number of pixels of each spectrum.
    pub pixels: usize,
    /// Flux in any unit.
    pub flux: Values<'a>,
    /// Inverse variance of the flux; 0 masks a pixel.
    pub ivar: Values<'a>,
    /// Mask, true for bad pixels; empty without a mask.
    pub mask: Cow<'a, [bool]>,
    /// Resolution matrices, if the spectra have them.
    pub resolution: Option<Resolution<'a>>,
    /// Covariance matrices of the noise, if it is correlated between pixels.
    pub covariance: Option<NoiseCovariance<'a>>,
    /// The rule by which errors were widened when the mask was read; `None` if none was asked for.
    pub(crate) widening: Option<AppliedWidening>,
}

/// Banded resolution matrix R per spectrum, which may be borrowed: observed flux = R · (model at the pixels).
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution<'a> {
    /// Number of diagonals, which is odd.
    pub diagonals: usize,
    /// (n × diagonals × pixels), as DESI stores it: R\[row\]\[column\] = values\[d\]\[column\] with row = column −
    /// offset, the offsets diagonals / 2, …, 0, …, −diagonals / 2.
    pub values: Cow<'a, [f32]>,
}

impl<'a> ArmSpectra<'a> {
    /// Returns the memory of the arm's arrays (bytes), without a wavelength grid that several spectra share.
    pub(super) fn bytes(&self) -> usize {
        let grids = if let Wavelength::Own(grids) = &self.wavelength {
            grids.bytes()
        } else {
            0
        };
        let resolution = self
            .resolution
            .as_ref()
            .map_or(0, |resolution| size_of_val(&*resolution.values));
        let covariance = self
            .covariance
            .as_ref()
            .map_or(0, |covariance| covariance.values.bytes());
        let pixels = self.mask.len() + self.flux.bytes() + self.ivar.bytes();
        grids + resolution + covariance + pixels
    }

    /// Makes an arm of `flux.len() / pixels` spectra from arrays (spectra, pixels); wavelengths in Å, `mask` true =
    /// bad.
    ///
    /// # Errors
    /// `ShapeMismatch`; `BadWavelength` for a shared grid that is not finite, positive and strictly increasing.
    pub fn new(
        name: impl Into<String>,
        pixels: usize,
        wavelength: impl Into<Wavelength<'a>>,
        flux: impl Into<Values<'a>>,
        ivar: impl Into<Values<'a>>,
        mask: Option<Vec<bool>>,
    ) -> Result<ArmSpectra<'a>> {
        let name = name.into();
        let wavelength = wavelength.into();
        let flux = flux.into();
        let ivar = ivar.into();
        let place = if name.is_empty() {
            "spectra".to_string()
        } else {
            format!("arm {name}")
        };
        if pixels == 0 || !flux.len().is_multiple_of(pixels) {
            let message = format!("flux has {} values for rows of {pixels} pixels", flux.len());
            return Err(Error::mismatch(place, message).naming("flux"));
        }
        let (grid_length, expected_grid_length) = match &wavelength {
            Wavelength::Shared(grid) => (grid.len(), pixels),
            Wavelength::Own(grids) => (grids.len(), flux.len()),
        };
        for (array, length, expected) in [
            ("wavelength", grid_length, expected_grid_length),
            ("ivar", ivar.len(), flux.len()),
        ] {
            if length != expected {
                let message = format!("{array} has {length} values, not {expected}");
                return Err(Error::mismatch(place, message).naming(array));
            }
        }
        if let Wavelength::Shared(grid) = &wavelength {
            check_grid(grid, &place)?;
        }
        let arm = ArmSpectra {
            name,
            wavelength,
            pixels,
            flux,
            ivar,
            mask: Cow::default(),
            resolution: None,
            covariance: None,
            widening: None,
        };
        arm.with_mask(mask.unwrap_or_default())
    }

    /// Replaces the mask (n × pixels), true = bad, by one that may be borrowed.
    ///
    /// # Errors
    /// `ShapeMismatch` if the numbers of values of mask and flux differ; an empty mask masks nothing.
    pub fn with_mask(mut self, mask: impl Into<Cow<'a, [bool]>>) -> Result<ArmSpectra<'a>> {
        self.mask = mask.into();
        if !self.mask.is_empty() && self.mask.len() != self.flux.len() {
            let message = format!(
                "mask has {} values, not {}",
                self.mask.len(),
                self.flux.len()
            );
            return Err(Error::mismatch(self.describe_place(), message).naming("mask"));
        }
        Ok(self)
    }

    /// Copies arrays that are borrowed, so that the arm outlives their owner.
    pub(super) fn into_owned(self) -> ArmSpectra<'static> {
        let ArmSpectra {
            name,
            wavelength,
            pixels,
            flux,
            ivar,
            mask,
            resolution,
            covariance,
            widening,
        } = self;
        let wavelength = match wavelength {
            Wavelength::Shared(grid) => Wavelength::Shared(grid),
            Wavelength::Own(grids) => Wavelength::Own(grids.into_owned()),
        };
        let resolution = resolution.map(|Resolution { diagonals, values }| Resolution {
            diagonals,
            values: Cow::Owned(values.into_owned()),
        });
        ArmSpectra {
            name,
            wavelength,
            pixels,
            flux: flux.into_owned(),
            ivar: ivar.into_owned(),
            mask: Cow::Owned(mask.into_owned()),
            resolution,
            covariance: covariance.map(NoiseCovariance::into_owned),
            widening,
        }
    }

    /// Returns `arm NAME` for messages, or `spectra` if the arm has no name.
    pub(super) fn describe_place(&self) -> String {
        if self.name.is_empty() {
            "spectra".to_string()
        } else {
            format!("arm {}", self.name)
        }
    }

    /// Sets a resolution matrix for each spectrum: (spectra, diagonals, pixels), with an odd number of diagonals.
    ///
    /// # Errors
    /// `ShapeMismatch` if the values are not (n × diagonals × pixels), or the number of diagonals is even.
    pub fn with_resolution(mut self, resolution: Resolution<'a>) -> Result<ArmSpectra<'a>> {
        let Resolution { diagonals, values } = &resolution;
        if diagonals.is_multiple_of(2) || values.len() != diagonals * self.flux.len() {
            let message = format!(
                "resolution has {} values of {diagonals} diagonals, not (spectra, odd diagonals, {}) of {} spectra",
                values.len(),
                self.pixels,
                self.len()
            );
            return Err(Error::mismatch(self.describe_place(), message).naming("resolution"));
        }
        self.resolution = Some(resolution);
        Ok(self)
    }

    /// Returns the median of flux √ivar over all pixels of spectrum `row`, with 0 for pixels whose ivar is 0; NaN if a
    /// pixel's value is NaN.
    ///
    /// # Panics
    /// If `row` is not below `len()`.
    #[doc(hidden)]
    pub fn signal_to_noise(&self, row: usize) -> f64 {
        let range = row * self.pixels..(row + 1) * self.pixels;
        let flux = self.flux.double(range.clone());
        let ivar = self.ivar.double(range);
        let signal_to_noise = |(y, w): (&f64, &f64)| if *w == 0.0 { 0.0 } else { y * w.sqrt() };
        let mut ratios: Vec<f64> = flux.iter().zip(ivar.iter()).map(signal_to_noise).collect();
        if ratios.iter().any(|ratio| ratio.is_nan()) {
            return f64::NAN;
        }
        // The median of an even number of ratios is the mean of the two in the middle.
        let middle = ratios.len() / 2;
        let is_even = ratios.len().is_multiple_of(2);
        let (below, upper, _) = ratios.select_nth_unstable_by(middle, f64::total_cmp);
        match below.iter().copied().max_by(f64::total_cmp) {
            Some(lower) if is_even => (lower + *upper) / 2.0,
            _ => *upper,
        }
    }

    /// Returns the number of spectra.
    pub fn len(&self) -> usize {
        self.flux.len() / self.pixels
    }

    /// Returns whether the arm has no spectra.
    pub fn is_empty(&self) -> bool {
        self.flux.is_empty()
    }

    /// Returns the wavelength grid of spectrum `row` (pixels), in Å.
    ///
    /// # Panics
    /// If `row` is not below `len()`.
    pub fn grid(&self, row: usize) -> Cow<'_, [f64]> {
        match &self.wavelength {
            Wavelength::Shared(grid) => Cow::Borrowed(grid),
            Wavelength::Own(grids) => grids.double(row * self.pixels..(row + 1) * self.pixels),
        }
    }

    /// Borrows the spectra of a range of rows.
    pub(super) fn borrow_rows(&self, rows: Range<usize>) -> ArmSpectra<'_> {
        let range = rows.start * self.pixels..rows.end * self.pixels;
        ArmSpectra {
            name: self.name.clone(),
            wavelength: match &self.wavelength {
                Wavelength::Shared(grid) => Wavelength::Shared(grid.clone()),
                Wavelength::Own(grids) => Wavelength::Own(grids.range(range.clone())),
            },
            pixels: self.pixels,
            flux: self.flux.range(range.clone()),
            ivar: self.ivar.range(range.clone()),
            mask: if self.mask.is_empty() {
                Cow::default()
            } else {
                Cow::Borrowed(&self.mask[range.clone()])
            },
            resolution: self.resolution.as_ref().map(|resolution| {
                let diagonals = resolution.diagonals;
                let values = &resolution.values[range.start * diagonals..range.end * diagonals];
                Resolution {
                    diagonals,
                    values: Cow::Borrowed(values),
                }
            }),
            covariance: self
                .covariance
                .as_ref()
                .map(|covariance| covariance.borrow_rows(rows, self.pixels)),
            widening: self.widening.clone(),
        }
    }
}

/// Fails unless a shared grid is finite, positive and strictly increasing.
pub(super) fn check_grid(grid: &[f64], place: &str) -> Result<()> {
    match bad_wavelength(grid) {
        Some((index, message)) => Err(Error::BadWavelength {
            what: place.to_string(),
            index,
            message,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_to_noise_is_the_median_ratio_of_all_pixels() {
        let measure = |flux: &[f64], ivar: &[f64]| {
            let grid: Vec<f64> = (0..flux.len()).map(|k| 5000.0 + k as f64).collect();
            ArmSpectra::new("b", flux.len(), grid, flux.to_vec(), ivar.to_vec(), None)
                .unwrap()
                .signal_to_noise(0)
        };
        assert_eq!(measure(&[5.0, -1.0, 3.0], &[1.0; 3]), 3.0);
        assert_eq!(measure(&[9.0, 2.0, 1.0, 5.0], &[4.0; 4]), 7.0);
        assert_eq!(
            measure(&[9.0, f64::NAN, 1.0, 5.0], &[1.0, 0.0, 1.0, 1.0]),
            3.0,
            "a pixel without weight counts as 0"
        );
        assert!(measure(&[9.0, f64::NAN, 1.0], &[1.0; 3]).is_nan());
    }
}
