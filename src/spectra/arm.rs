//! One arm of a batch of spectra.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::widening::AppliedWidening;
use crate::error::{Error, Result};
use crate::math::bad_wavelength;
use crate::values::Values;

/// Wavelength grids, Å, vacuum.
#[derive(Clone, Debug, PartialEq)]
pub enum Wavelength<'a> {
    /// (pixels): one grid for all spectra, stored once.
    Shared(Arc<[f64]>),
    /// (n × pixels): each spectrum its own.
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

/// Arrays (n × pixels), row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmSpectra<'a> {
    /// Empty for the only, unnamed arm.
    pub name: String,
    /// Å, vacuum.
    pub wavelength: Wavelength<'a>,
    /// Number of pixels of each spectrum.
    pub pixels: usize,
    /// Flux in any unit.
    pub flux: Values<'a>,
    /// Inverse variance of the flux; 0 = masked.
    pub ivar: Values<'a>,
    /// true = bad; empty = none is.
    pub mask: Cow<'a, [bool]>,
    /// Each spectrum's own, where it brings one.
    pub resolution: Option<Resolution<'a>>,
    /// The rule by which errors were widened when the mask was read; `None` if nobody asked for one.
    pub(crate) widening: Option<AppliedWidening>,
}

/// Each spectrum's banded resolution matrix R, which may be lent: observed flux = R · (model at the pixels).
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution<'a> {
    /// Odd.
    pub diagonals: usize,
    /// (n × diagonals × pixels), as DESI stores it: R\[row\]\[column\] = values\[d\]\[column\] with row = column −
    /// offset, the offsets diagonals / 2, …, 0, …, −diagonals / 2.
    pub values: Cow<'a, [f32]>,
}

impl<'a> ArmSpectra<'a> {
    /// Returns the memory of the arm's arrays (bytes), without a wavelength grid that several spectra share.
    pub(super) fn bytes(&self) -> usize {
        let own = if let Wavelength::Own(grids) = &self.wavelength {
            grids.bytes()
        } else {
            0
        };
        let resolution = self
            .resolution
            .as_ref()
            .map_or(0, |r| size_of_val(&*r.values));
        own + resolution + self.mask.len() + self.flux.bytes() + self.ivar.bytes()
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
        let (name, wavelength, flux, ivar) =
            (name.into(), wavelength.into(), flux.into(), ivar.into());
        let what = if name.is_empty() {
            "spectra".to_string()
        } else {
            format!("arm {name}")
        };
        if pixels == 0 || !flux.len().is_multiple_of(pixels) {
            let message = format!("flux has {} values for rows of {pixels} pixels", flux.len());
            return Err(Error::mismatch(what, message).naming("flux"));
        }
        let grid = match &wavelength {
            Wavelength::Shared(grid) => (grid.len(), pixels),
            Wavelength::Own(grids) => (grids.len(), flux.len()),
        };
        let lengths = [("wavelength", grid), ("ivar", (ivar.len(), flux.len()))];
        for (array, (found, expected)) in lengths {
            if found != expected {
                let message = format!("{array} has {found} values, not {expected}");
                return Err(Error::mismatch(what, message).naming(array));
            }
        }
        if let Wavelength::Shared(grid) = &wavelength {
            check_grid(grid, &what)?;
        }
        let arm = ArmSpectra {
            name,
            wavelength,
            pixels,
            flux,
            ivar,
            mask: Cow::default(),
            resolution: None,
            widening: None,
        };
        arm.with_mask(mask.unwrap_or_default())
    }

    /// Replaces the mask (n × pixels), true = bad, by one that may be lent.
    ///
    /// # Errors
    /// `ShapeMismatch` when the mask has not as many values as the flux; an empty one masks nothing.
    pub fn with_mask(mut self, mask: impl Into<Cow<'a, [bool]>>) -> Result<ArmSpectra<'a>> {
        self.mask = mask.into();
        if !self.mask.is_empty() && self.mask.len() != self.flux.len() {
            let message = format!(
                "mask has {} values, not {}",
                self.mask.len(),
                self.flux.len()
            );
            return Err(Error::mismatch(self.place(), message).naming("mask"));
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
            widening,
        } = self;
        let wavelength = match wavelength {
            Wavelength::Shared(grid) => Wavelength::Shared(grid),
            Wavelength::Own(grids) => Wavelength::Own(grids.into_owned()),
        };
        let (flux, ivar, mask) = (
            flux.into_owned(),
            ivar.into_owned(),
            Cow::Owned(mask.into_owned()),
        );
        let owned = |Resolution { diagonals, values }: Resolution| Resolution {
            diagonals,
            values: Cow::Owned(values.into_owned()),
        };
        let resolution = resolution.map(owned);
        ArmSpectra {
            name,
            wavelength,
            pixels,
            flux,
            ivar,
            mask,
            resolution,
            widening,
        }
    }

    /// Returns `arm NAME` for messages, or `spectra` if the arm has no name.
    fn place(&self) -> String {
        if self.name.is_empty() {
            "spectra".to_string()
        } else {
            format!("arm {}", self.name)
        }
    }

    /// Sets a resolution matrix for each spectrum: (spectra, diagonals, pixels), with an odd number of diagonals.
    ///
    /// # Errors
    /// `ShapeMismatch` when the values are not (n × diagonals × pixels), or the diagonals not odd.
    pub fn with_resolution(mut self, resolution: Resolution<'a>) -> Result<ArmSpectra<'a>> {
        let Resolution { diagonals, values } = &resolution;
        if diagonals.is_multiple_of(2) || values.len() != diagonals * self.flux.len() {
            let message = format!(
                "resolution has {} values of {diagonals} diagonals, not (spectra, odd diagonals, {}) of {} spectra",
                values.len(),
                self.pixels,
                self.len()
            );
            return Err(Error::mismatch(self.place(), message).naming("resolution"));
        }
        self.resolution = Some(resolution);
        Ok(self)
    }

    /// Returns the median of flux √ivar over all pixels of spectrum `row`, 0 where ivar is; NaN if one is not a number.
    ///
    /// # Panics
    /// If `row` is not below `len()`.
    pub fn signal_to_noise(&self, row: usize) -> f64 {
        let range = row * self.pixels..(row + 1) * self.pixels;
        let ratio = |(y, w): (&f64, &f64)| if *w == 0.0 { 0.0 } else { y * w.sqrt() };
        let (flux, ivar) = (self.flux.double(range.clone()), self.ivar.double(range));
        let mut ratios: Vec<f64> = flux.iter().zip(ivar.iter()).map(ratio).collect();
        if ratios.iter().any(|x| x.is_nan()) {
            return f64::NAN;
        }
        let (middle, is_even) = (ratios.len() / 2, ratios.len().is_multiple_of(2));
        let (below, upper, _) = ratios.select_nth_unstable_by(middle, f64::total_cmp);
        let lower = below
            .iter()
            .copied()
            .max_by(f64::total_cmp)
            .filter(|_| is_even);
        lower.map_or(*upper, |lower| (lower + *upper) / 2.0)
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
    pub(super) fn part(&self, rows: Range<usize>) -> ArmSpectra<'_> {
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
            resolution: self.resolution.as_ref().map(|r| Resolution {
                diagonals: r.diagonals,
                values: Cow::Borrowed(
                    &r.values[range.start * r.diagonals..range.end * r.diagonals],
                ),
            }),
            widening: self.widening.clone(),
        }
    }
}

/// Fails unless a shared grid is finite, positive and strictly increasing.
pub(super) fn check_grid(grid: &[f64], what: &str) -> Result<()> {
    match bad_wavelength(grid) {
        Some((index, message)) => Err(Error::BadWavelength {
            what: what.to_string(),
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
    fn signal_to_noise_is_a_median() {
        let of = |flux: &[f64], ivar: &[f64]| {
            let grid: Vec<f64> = (0..flux.len()).map(|k| 5000.0 + k as f64).collect();
            ArmSpectra::new("b", flux.len(), grid, flux.to_vec(), ivar.to_vec(), None)
                .unwrap()
                .signal_to_noise(0)
        };
        assert_eq!(of(&[5.0, -1.0, 3.0], &[1.0; 3]), 3.0);
        assert_eq!(of(&[9.0, 2.0, 1.0, 5.0], &[4.0; 4]), 7.0);
        assert_eq!(
            of(&[9.0, f64::NAN, 1.0, 5.0], &[1.0, 0.0, 1.0, 1.0]),
            3.0,
            "a pixel without weight counts as 0"
        );
        assert!(of(&[9.0, f64::NAN, 1.0], &[1.0; 3]).is_nan());
    }
}
