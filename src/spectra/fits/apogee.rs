//! APOGEE's apStar (a star's combined spectrum and its visits, on one logarithmic grid) and apVisit (three chips).
//!
//! Both hold flux, error and mask in HDUs 1 to 3; apVisit has wavelengths in HDU 4.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::medium::{is_in_air, is_other_unit, refuse_other_units};
use super::single::{SingleReader, file_stem};
use super::{Selection, SurveyFormat};
use crate::error::Result;
use crate::io::fits::cards::Header;
use crate::io::fits::hdu::{Fits, HduKind};
use crate::io::fits::image::Image;
use crate::spectra::arm::check_grid;
use crate::spectra::widening::{MaskRule, PixelMask};
use crate::spectra::{ArmSpectra, Ids, Spectra, SpectraReader, Wavelength, air};
use crate::values::Values;

/// Index of the HDU of the flux.
const FLUX_HDU: usize = 1;
/// Index of the HDU of the errors.
const ERROR_HDU: usize = 2;
/// Index of the HDU of the mask.
const MASK_HDU: usize = 3;
/// Index of the HDU of the wavelengths, in an apVisit.
const WAVELENGTH_HDU: usize = 4;
/// Number of chips of the spectrograph.
const CHIPS: usize = 3;
/// Bytes per pixel that an apVisit takes beside its arrays: the order, the sorted arrays, and the returned ones.
const SORTED_BYTES_PER_PIXEL: usize = 80;
/// Bits of APOGEE_PIXMASK that make a pixel useless: BADPIX, CRPIX, SATPIX, UNFIXABLE, BADDARK, BADFLAT, BADERR, NOSKY
/// (0 to 7), SIG_SKYLINE (12), NOT_ENOUGH_PSF (14).
pub(super) const BAD_APOGEE: u64 = 0xff | 1 << 12 | 1 << 14;

/// apStar files: the spectra of a star on one grid, uniform in log₁₀ λ.
pub(super) const STAR_FORMAT: SurveyFormat = SurveyFormat {
    name: "an APOGEE apStar",
    selects_rows: false,
    matches: |fits| has_images(fits, MASK_HDU) && has_mask(fits) && is_log_uniform(fits),
    open: |fits, selection| Ok(Box::new(StarReader::open(fits, selection)?)),
};

/// apVisit files: one visit, whose three chips have wavelengths of their own.
pub(super) const VISIT_FORMAT: SurveyFormat = SurveyFormat {
    name: "an APOGEE apVisit",
    selects_rows: false,
    matches: |fits| {
        let is_three_chips = image_shape(fits, FLUX_HDU)
            .is_some_and(|flux| flux.len() == 2 && flux.first() == Some(&CHIPS));
        has_images(fits, WAVELENGTH_HDU)
            && has_mask(fits)
            && is_three_chips
            && !is_log_uniform(fits)
    },
    open: |fits, selection| Ok(Box::new(open_visit(fits, selection)?)),
};

/// Returns the shape of an HDU's image; `None` if it has none.
fn image_shape(fits: &Fits, index: usize) -> Option<&[usize]> {
    match fits.hdus.get(index).map(|hdu| &hdu.kind) {
        Some(HduKind::Image(image)) => Some(image.shape.as_slice()),
        _ => None,
    }
}

/// Returns whether flux, error, mask and the HDU `other` are images of one shape, of one or two dimensions.
fn has_images(fits: &Fits, other: usize) -> bool {
    let flux = image_shape(fits, FLUX_HDU).filter(|flux| (1..=2).contains(&flux.len()));
    flux.is_some()
        && [ERROR_HDU, MASK_HDU, other]
            .iter()
            .all(|index| image_shape(fits, *index) == flux)
}

/// Returns whether HDU 3 is an image of integers, as bits of a mask are.
fn has_mask(fits: &Fits) -> bool {
    fits.image(MASK_HDU).is_ok_and(Image::is_integer)
}

/// Returns whether a file is an aspcapStar, which has the best fit where an apStar has its mask.
pub(super) fn is_aspcap_star(fits: &Fits) -> bool {
    has_images(fits, MASK_HDU) && !has_mask(fits) && is_log_uniform(fits)
}

/// Returns whether the header of the flux has a wavelength grid that is uniform in log₁₀ λ.
fn is_log_uniform(fits: &Fits) -> bool {
    fits.header(FLUX_HDU).is_ok_and(has_log_grid)
}

/// Returns whether a header has a wavelength grid that is uniform in log₁₀ λ, λ from 100 Å to 100 μm, by CTYPE1 or by
/// DC-FLAG, which IRAF writes. A grid that is uniform in λ, in Å, has a first value that is none of log₁₀ λ.
pub(super) fn has_log_grid(header: &Header) -> bool {
    let has_log_axis = header
        .text("CTYPE1")
        .is_none_or(|axis| axis.to_uppercase().contains("LOG"));
    let is_log = has_log_axis || header.integer("DC-FLAG") == Some(1);
    let is_in_angstrom = !header.text("CUNIT1").is_some_and(is_other_unit);
    let start = header.float("CRVAL1");
    let step = header.float("CDELT1");
    is_log
        && is_in_angstrom
        && start.is_some_and(|start| (2.0..6.0).contains(&start))
        && step.is_some_and(|step| step > 0.0 && step < 0.01)
}

/// Yields an apStar's rows: the combined spectrum, the one combined with global weights, the visits.
struct StarReader {
    fits: Fits,
    file: Arc<str>,
    star: String,
    grid: Arc<[f64]>,
    /// Number of spectra.
    length: usize,
    rule: MaskRule,
    /// Row of the next spectrum.
    next: usize,
    notes: Vec<String>,
}

impl StarReader {
    /// Opens an apStar file, checks its images, and computes the wavelength grid in vacuum from the header (Å).
    pub fn open(mut fits: Fits, selection: &Selection) -> Result<StarReader> {
        // 1. Check the number of spectra and pixels.
        let (length, pixels) = match *fits.image(FLUX_HDU)?.shape.as_slice() {
            [pixels] => (1, pixels),
            [length, pixels] => (length, pixels),
            _ => return Err(fits.mismatch(FLUX_HDU, "not an image of (spectra, pixels)")),
        };
        // Without spectra, no data in the file would limit the number of pixels.
        if pixels == 0 || length == 0 {
            return Err(fits.fault(FLUX_HDU, format!("has {length} spectra of {pixels} pixels")));
        }
        fits.charge_memory(pixels, 2 * size_of::<f64>())?;
        fits.keep_charged_memory();
        // 2. Compute the wavelengths λ = 10^(CRVAL1 + CDELT1 (pixel − CRPIX1)), with pixels counted from 1.
        let header = fits.header(FLUX_HDU)?;
        let start = header.float("CRVAL1").unwrap_or(f64::NAN);
        let step = header.float("CDELT1").unwrap_or(f64::NAN);
        let reference_pixel = header.float("CRPIX1").unwrap_or(1.0);
        let in_air = is_in_air(&fits, &[0, FLUX_HDU]);
        let mut grid = Vec::with_capacity(pixels);
        for j in 0..pixels {
            let wavelength = 10f64.powf(start + step * (j as f64 + 1.0 - reference_pixel));
            grid.push(if in_air {
                air::to_vacuum(wavelength)
            } else {
                wavelength
            });
        }
        check_grid(&grid, &fits.describe_hdu(FLUX_HDU))?;
        let notes = if in_air {
            vec![air::conversion_note(&fits.path)]
        } else {
            Vec::new()
        };
        let file = Arc::from(fits.path.display().to_string());
        let rule = MaskRule::new(BAD_APOGEE, selection.widen.as_ref());
        fits.close();
        Ok(StarReader {
            star: object_name(&fits),
            fits,
            file,
            grid: grid.into(),
            length,
            rule,
            next: 0,
            notes,
        })
    }

    /// Returns the id of a row: a file with a single visit has only the combined spectrum.
    fn make_id(&self, row: usize) -> String {
        match row {
            0 => format!("{}/combined", self.star),
            1 => format!("{}/combined_global", self.star),
            _ => format!("{}/visit{}", self.star, row - 1),
        }
    }
}

impl SpectraReader for StarReader {
    fn len(&self) -> u64 {
        self.length as u64
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        let rows = self.next..self.next.saturating_add(max.max(1)).min(self.length);
        if rows.is_empty() {
            return Ok(None);
        }
        self.fits.begin_batch()?;
        let pixels = self.grid.len();
        let pixels_of_rows = rows.start * pixels..rows.end * pixels;
        let (flux, ivar, mask) = read_arrays(&mut self.fits, &self.rule, pixels_of_rows)?;
        let arm = ArmSpectra::new(
            "",
            pixels,
            Wavelength::Shared(self.grid.clone()),
            flux,
            ivar,
            None,
        )?;
        let arm = arm.with_pixel_masks(mask, self.rule.applied_widening(true))?;
        let ids = rows.clone().map(|row| self.make_id(row)).collect();
        let mut spectra = Spectra::from_arms(vec![arm], Some(Ids::Text(ids)))?;
        spectra.file = self.file.clone();
        spectra.rows = rows.clone().map(|row| row as u64).collect();
        self.next = rows.end;
        Ok(Some(spectra))
    }

    fn empty(&self) -> Spectra<'static> {
        let arm = ArmSpectra {
            name: String::new(),
            wavelength: Wavelength::Shared(self.grid.clone()),
            pixels: self.grid.len(),
            flux: Values::default(),
            ivar: Values::default(),
            mask: Cow::default(),
            resolution: None,
            covariance: None,
            widening: self.rule.applied_widening(true),
        };
        Spectra {
            file: self.file.clone(),
            rows: Vec::new(),
            ids: Ids::Text(Vec::new()),
            arms: vec![arm],
            columns: Vec::new(),
            exposures: None,
        }
    }

    fn ids(&mut self) -> Result<Option<Ids>> {
        let ids = (0..self.length).map(|row| self.make_id(row));
        Ok(Some(Ids::Text(ids.collect())))
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Reads the spectrum of an apVisit file as one arm with gaps, its wavelengths converted to vacuum (Å). The chips are
/// stored from red to blue, each descending in wavelength; the function sorts the pixels by wavelength.
fn open_visit(mut fits: Fits, selection: &Selection) -> Result<SingleReader> {
    // 1. Read the arrays of all chips.
    let chip_pixels = fits.image(FLUX_HDU)?.shape.get(1).copied().unwrap_or(0);
    if chip_pixels == 0 {
        return Err(fits.fault(FLUX_HDU, "has no pixels"));
    }
    let pixels = CHIPS * chip_pixels;
    fits.charge_memory(pixels, SORTED_BYTES_PER_PIXEL)?;
    let rule = MaskRule::new(BAD_APOGEE, selection.widen.as_ref());
    let (flux, ivar, mask) = read_arrays(&mut fits, &rule, 0..pixels)?;
    let mut wavelength = Vec::new();
    fits.read_numbers(WAVELENGTH_HDU, 0, pixels, &mut wavelength, |x| x)?;
    refuse_other_units(
        &fits,
        WAVELENGTH_HDU,
        fits.header(WAVELENGTH_HDU)?.text("BUNIT"),
    )?;
    let in_air = is_in_air(&fits, &[0, FLUX_HDU, WAVELENGTH_HDU]);
    if in_air {
        wavelength.iter_mut().for_each(|w| *w = air::to_vacuum(*w));
    }
    // 2. Sort the pixels by wavelength.
    let order = order_by_wavelength(&wavelength, chip_pixels);
    let grid = Wavelength::Own(reorder(&wavelength, &order).into());
    let flux = reorder(&flux, &order);
    let ivar = reorder(&ivar, &order);
    let arm = ArmSpectra::new("", pixels, grid, flux, ivar, None)?;
    let arm = arm.with_pixel_masks(reorder(&mask, &order), rule.applied_widening(true))?;
    let spectra = Spectra::from_arms(vec![arm], Some(Ids::Text(vec![object_name(&fits)])))?;
    let notes = if in_air {
        vec![air::conversion_note(&fits.path)]
    } else {
        Vec::new()
    };
    Ok(SingleReader::new(spectra, &fits.path, notes))
}

/// Returns a copy of some values in this order of their indices.
fn reorder<T: Copy>(values: &[T], order: &[usize]) -> Vec<T> {
    order
        .iter()
        .filter_map(|&j| values.get(j).copied())
        .collect()
}

/// Returns the pixel indices in the order of wavelength, by whole chips, each reversed if it descends. Chips that
/// overlap, or whose pixels are not in order, remain a fault of the spectrum's grid.
#[allow(
    clippy::indexing_slicing,
    reason = "the pixels are whole chips, and a chip has a pixel"
)]
fn order_by_wavelength(wavelength: &[f64], chip_pixels: usize) -> Vec<usize> {
    let mut chips: Vec<Vec<usize>> = Vec::new();
    for start in (0..wavelength.len()).step_by(chip_pixels) {
        let mut pixels: Vec<usize> = (start..start + chip_pixels).collect();
        if wavelength[start] > wavelength[start + chip_pixels - 1] {
            pixels.reverse();
        }
        chips.push(pixels);
    }
    chips.sort_by(|a, b| wavelength[a[0]].total_cmp(&wavelength[b[0]]));
    chips.concat()
}

/// Flux, inverse variance and meaning of the mask of some pixels.
pub(super) type PixelArrays = (Vec<f64>, Vec<f64>, Vec<PixelMask>);

/// Reads some pixels of the images: flux, inverse variance from errors, and mask.
fn read_arrays(fits: &mut Fits, rule: &MaskRule, pixels: Range<usize>) -> Result<PixelArrays> {
    let first = pixels.start;
    let count = pixels.len();
    let bytes = fits.image(MASK_HDU)?.element_bytes();
    let mut flux = Vec::new();
    fits.read_numbers(FLUX_HDU, first, count, &mut flux, |x| x)?;
    let mut ivar = Vec::new();
    fits.read_numbers(ERROR_HDU, first, count, &mut ivar, |error| {
        if error > 0.0 {
            (error * error).recip()
        } else {
            0.0
        }
    })?;
    let mut mask = Vec::new();
    fits.read_numbers(MASK_HDU, first, count, &mut mask, |bits| {
        rule.judge_number(bits, bytes)
    })?;
    Ok((flux, ivar, mask))
}

/// Returns the star's name from the primary header, or the file's name without its ending if the header has none.
fn object_name(fits: &Fits) -> String {
    let header = fits.header(0).ok();
    let name = ["OBJID", "OBJECT", "APOGEE_ID"]
        .iter()
        .find_map(|key| header?.text(key));
    name.map(str::trim)
        .filter(|text| !text.is_empty())
        .map_or_else(|| file_stem(&fits.path), str::to_string)
}
