//! One arm of a DESI file.

use std::borrow::Cow;
use std::sync::Arc;

use super::medium::{is_air, refuse_other_units};
use crate::error::{Error, Result};
use crate::io::fits::hdu::Fits;
use crate::spectra::arm::check_grid;
use crate::spectra::widening::MaskRule;
use crate::spectra::{ArmSpectra, Resolution, Wavelength, air};
use crate::values::Values;

/// Places of an arm's images, all of which fit together.
pub(super) struct Arm {
    /// `b`, `r`, `z`.
    pub name: String,
    pub length: usize,
    pub flux: usize,
    pixels: usize,
    grid: Arc<[f64]>,
    ivar: usize,
    mask: Option<usize>,
    rule: MaskRule,
    /// Its place and diagonals.
    resolution: Option<(usize, usize)>,
}

impl Arm {
    /// Finds the images of arm `name`, checks that their shapes agree, and reads the wavelength grid that all spectra
    /// share.
    pub fn open(
        fits: &mut Fits,
        name: &str,
        rule: &MaskRule,
        notes: &mut Vec<String>,
    ) -> Result<Arm> {
        let upper = name.to_uppercase();
        let place = |fits: &Fits, what: &str| fits.find(&format!("{upper}_{what}"));
        let required = |fits: &Fits, what: &str| {
            place(fits, what)?
                .ok_or_else(|| Error::format(&fits.path, format!("no HDU {upper}_{what}")))
        };
        let (flux, ivar) = (required(fits, "FLUX")?, required(fits, "IVAR")?);
        let &[length, pixels] = fits.image(flux)?.shape.as_slice() else {
            return Err(fits.mismatch(flux, "not an image of (spectra, pixels)"));
        };
        if pixels == 0 {
            return Err(fits.fault(flux, "has no pixels"));
        }
        fits.expect_shape(ivar, &[length, pixels])?;
        let mask = place(fits, "MASK")?;
        match mask {
            Some(mask) => {
                fits.expect_shape(mask, &[length, pixels])?;
                if !fits.image(mask)?.is_integer() {
                    return Err(fits.fault(mask, "is of floats, not of integers with bits"));
                }
            }
            None => notes.push(format!(
                "{}: no HDU {upper}_MASK: no pixel is masked but by its ivar",
                fits.path.display()
            )),
        }
        let resolution = match place(fits, "RESOLUTION")? {
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
        let wavelength = required(fits, "WAVELENGTH")?;
        fits.expect_shape(wavelength, &[pixels])?;
        refuse_other_units(fits, wavelength, fits.header(wavelength)?.text("BUNIT"))?;
        let mut grid = Vec::new();
        fits.numbers(wavelength, 0, pixels, &mut grid, |x| x)?;
        if is_air(fits, &[wavelength]) {
            grid.iter_mut().for_each(|w| *w = air::to_vacuum(*w));
            notes.push(air::note(&fits.path));
        }
        check_grid(&grid, &fits.what(wavelength))?;
        let (name, grid, rule) = (name.to_string(), grid.into(), rule.clone());
        Ok(Arm {
            name,
            length,
            flux,
            pixels,
            grid,
            ivar,
            mask,
            rule,
            resolution,
        })
    }

    /// Returns the names of the optional units, and whether each is there.
    pub fn optional(&self) -> [(&'static str, bool); 2] {
        [
            ("MASK", self.mask.is_some()),
            ("RESOLUTION", self.resolution.is_some()),
        ]
    }

    /// Reads flux, ivar, mask and resolution of these rows of the arm.
    pub fn read(&self, fits: &mut Fits, rows: &[usize]) -> Result<ArmSpectra<'static>> {
        let (flux, ivar) = (
            self.image(fits, self.flux, rows, |x| x)?,
            self.image(fits, self.ivar, rows, |x| x)?,
        );
        let mask = match self.mask {
            Some(index) => {
                let bytes = fits.image(index)?.element_bytes();
                self.image(fits, index, rows, |x| self.rule.judge_number(x, bytes))?
            }
            None => Vec::new(),
        };
        let grid = Wavelength::Shared(self.grid.clone());
        let arm = ArmSpectra::new(self.name.clone(), self.pixels, grid, flux, ivar, None)?;
        let arm = arm.with_pixels(mask, self.rule.applied(self.mask.is_some()))?;
        let Some((index, diagonals)) = self.resolution else {
            return Ok(arm);
        };
        let mut values = Vec::new();
        for run in rows.chunk_by(|a, b| a + 1 == *b) {
            let block = diagonals * self.pixels;
            fits.numbers(
                index,
                run.first().map_or(0, |row| row * block),
                run.len() * block,
                &mut values,
                |x| x as f32,
            )?;
        }
        arm.with_resolution(Resolution {
            diagonals,
            values: values.into(),
        })
    }

    /// Returns the median of flux √ivar over the pixels of one row, without reading its mask and resolution.
    pub fn signal_to_noise(&self, fits: &mut Fits, row: usize) -> Result<f64> {
        let (flux, ivar) = (
            self.image(fits, self.flux, &[row], |x| x)?,
            self.image(fits, self.ivar, &[row], |x| x)?,
        );
        let grid = Wavelength::Shared(self.grid.clone());
        Ok(
            ArmSpectra::new(self.name.clone(), self.pixels, grid, flux, ivar, None)?
                .signal_to_noise(0),
        )
    }

    /// Reads some rows of an image of (spectra, pixels), converting each value; neighbouring rows are read together.
    fn image<T>(
        &self,
        fits: &mut Fits,
        index: usize,
        rows: &[usize],
        convert: impl Fn(f64) -> T,
    ) -> Result<Vec<T>> {
        let mut values = Vec::new();
        for run in rows.chunk_by(|a, b| a + 1 == *b) {
            let first = run.first().map_or(0, |row| row * self.pixels);
            fits.numbers(index, first, run.len() * self.pixels, &mut values, &convert)?;
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
            widening: self.rule.applied(self.mask.is_some()),
        }
    }
}
