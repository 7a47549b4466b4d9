//! One arm of a DESI file.

use std::borrow::Cow;
use std::sync::Arc;

use super::medium::{is_in_air, refuse_other_units};
use crate::error::{Error, Result};
use crate::io::fits::hdu::Fits;
use crate::spectra::arm::check_grid;
use crate::spectra::widening::MaskRule;
use crate::spectra::{ArmSpectra, Resolution, Wavelength, air};
use crate::values::Values;

/// Indices of the HDUs of an arm, whose shapes agree.
pub(super) struct DesiArm {
    /// Name in lower case: `b`, `r` or `z`.
    pub name: String,
    /// Number of spectra.
    pub length: usize,
    pub flux: usize,
    pixels: usize,
    grid: Arc<[f64]>,
    ivar: usize,
    mask: Option<usize>,
    rule: MaskRule,
    /// HDU and number of diagonals of the resolution matrices.
    resolution: Option<(usize, usize)>,
}

impl DesiArm {
    /// Finds the images of arm `name`, checks that their shapes agree, and reads the wavelength grid that all spectra
    /// share.
    pub fn open(
        fits: &mut Fits,
        name: &str,
        rule: &MaskRule,
        notes: &mut Vec<String>,
    ) -> Result<DesiArm> {
        // 1. Find flux and inverse variances.
        let prefix = name.to_uppercase();
        let flux = require_image(fits, &prefix, "FLUX")?;
        let ivar = require_image(fits, &prefix, "IVAR")?;
        let &[length, pixels] = fits.image(flux)?.shape.as_slice() else {
            return Err(fits.mismatch(flux, "not an image of (spectra, pixels)"));
        };
        if pixels == 0 {
            return Err(fits.fault(flux, "has no pixels"));
        }
        fits.expect_shape(ivar, &[length, pixels])?;
        // 2. Find the optional mask and resolution matrices.
        let mask = find_image(fits, &prefix, "MASK")?;
        match mask {
            Some(mask) => {
                fits.expect_shape(mask, &[length, pixels])?;
                if !fits.image(mask)?.is_integer() {
                    return Err(fits.fault(mask, "is of floats, not of integers with bits"));
                }
            }
            None => notes.push(format!(
                "{}: no HDU {prefix}_MASK: no pixel is masked but by its ivar",
                fits.path.display()
            )),
        }
        let resolution = match find_image(fits, &prefix, "RESOLUTION")? {
            None => None,
            Some(index) => {
                let diagonals = fits.image(index)?.shape.get(1).copied().unwrap_or(0);
                fits.expect_shape(index, &[length, diagonals, pixels])?;
                if diagonals.is_multiple_of(2) {
                    return Err(
                        fits.fault(index, format!("{diagonals} diagonals, not an odd number"))
                    );
                }
                Some((index, diagonals))
            }
        };
        // 3. Read the wavelengths, and convert them to vacuum.
        let wavelength = require_image(fits, &prefix, "WAVELENGTH")?;
        fits.expect_shape(wavelength, &[pixels])?;
        refuse_other_units(fits, wavelength, fits.header(wavelength)?.text("BUNIT"))?;
        let mut grid = Vec::new();
        fits.read_numbers(wavelength, 0, pixels, &mut grid, |x| x)?;
        if is_in_air(fits, &[wavelength]) {
            grid.iter_mut().for_each(|w| *w = air::to_vacuum(*w));
            notes.push(air::conversion_note(&fits.path));
        }
        check_grid(&grid, &fits.describe_hdu(wavelength))?;
        Ok(DesiArm {
            name: name.to_string(),
            length,
            flux,
            pixels,
            grid: grid.into(),
            ivar,
            mask,
            rule: rule.clone(),
            resolution,
        })
    }

    /// Returns the names of the optional images, and whether each exists.
    pub fn optional_images(&self) -> [(&'static str, bool); 2] {
        [
            ("MASK", self.mask.is_some()),
            ("RESOLUTION", self.resolution.is_some()),
        ]
    }

    /// Reads flux, ivar, mask and resolution of these rows of the arm.
    pub fn read_rows(&self, fits: &mut Fits, rows: &[usize]) -> Result<ArmSpectra<'static>> {
        let flux = self.read_image(fits, self.flux, rows, |x| x)?;
        let ivar = self.read_image(fits, self.ivar, rows, |x| x)?;
        let mask = match self.mask {
            Some(index) => {
                let bytes = fits.image(index)?.element_bytes();
                self.read_image(fits, index, rows, |x| self.rule.judge_number(x, bytes))?
            }
            None => Vec::new(),
        };
        let grid = Wavelength::Shared(self.grid.clone());
        let arm = ArmSpectra::new(self.name.clone(), self.pixels, grid, flux, ivar, None)?;
        let arm = arm.with_pixel_masks(mask, self.rule.applied_widening(self.mask.is_some()))?;
        let Some((index, diagonals)) = self.resolution else {
            return Ok(arm);
        };
        let mut values = Vec::new();
        let matrix_size = diagonals * self.pixels;
        for adjacent_rows in rows.chunk_by(|row, next_row| row + 1 == *next_row) {
            let first = adjacent_rows.first().map_or(0, |row| row * matrix_size);
            let count = adjacent_rows.len() * matrix_size;
            fits.read_numbers(index, first, count, &mut values, |x| x as f32)?;
        }
        arm.with_resolution(Resolution {
            diagonals,
            values: values.into(),
        })
    }

    /// Returns the median of flux √ivar over the pixels of one row, without reading its mask and resolution.
    pub fn signal_to_noise(&self, fits: &mut Fits, row: usize) -> Result<f64> {
        let flux = self.read_image(fits, self.flux, &[row], |x| x)?;
        let ivar = self.read_image(fits, self.ivar, &[row], |x| x)?;
        let grid = Wavelength::Shared(self.grid.clone());
        Ok(
            ArmSpectra::new(self.name.clone(), self.pixels, grid, flux, ivar, None)?
                .signal_to_noise(0),
        )
    }

    /// Reads some rows of an image of (spectra, pixels), converting each value. Adjacent rows are read together.
    fn read_image<T>(
        &self,
        fits: &mut Fits,
        index: usize,
        rows: &[usize],
        convert: impl Fn(f64) -> T,
    ) -> Result<Vec<T>> {
        let mut values = Vec::new();
        for adjacent_rows in rows.chunk_by(|row, next_row| row + 1 == *next_row) {
            let first = adjacent_rows.first().map_or(0, |row| row * self.pixels);
            let count = adjacent_rows.len() * self.pixels;
            fits.read_numbers(index, first, count, &mut values, &convert)?;
        }
        Ok(values)
    }

    /// Returns the arm with its name and grid but without spectra.
    pub fn empty(&self) -> ArmSpectra<'static> {
        ArmSpectra {
            name: self.name.clone(),
            wavelength: Wavelength::Shared(self.grid.clone()),
            pixels: self.pixels,
            flux: Values::default(),
            ivar: Values::default(),
            mask: Cow::default(),
            resolution: self.resolution.map(|(_, diagonals)| Resolution {
                diagonals,
                values: Cow::default(),
            }),
            covariance: None,
            widening: self.rule.applied_widening(self.mask.is_some()),
        }
    }
}

/// Returns the HDU of an arm's image, such as `B_FLUX`; `None` if there is none.
fn find_image(fits: &Fits, prefix: &str, image: &str) -> Result<Option<usize>> {
    fits.find_hdu(&format!("{prefix}_{image}"))
}

/// Returns the HDU of an arm's image, such as `B_FLUX`; fails if there is none.
fn require_image(fits: &Fits, prefix: &str, image: &str) -> Result<usize> {
    find_image(fits, prefix, image)?
        .ok_or_else(|| Error::format(&fits.path, format!("no HDU {prefix}_{image}")))
}
