//! APOGEE's apStar (a star's combined spectrum and its visits, on one logarithmic grid) and apVisit (three chips).
//!
//! Both hold flux, error and mask in HDUs 1 to 3; apVisit has wavelengths in HDU 4.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::medium::{is_air, is_other_unit, refuse_other_units};
use super::single::{Single, stem};
use super::{Format, Selection};
use crate::error::Result;
use crate::io::fits::cards::Header;
use crate::io::fits::hdu::{Fits, Kind};
use crate::io::fits::image::Image;
use crate::spectra::arm::check_grid;
use crate::spectra::widening::{MaskRule, PixelMask};
use crate::spectra::{ArmSpectra, Ids, Spectra, SpectraReader, Wavelength, air};
use crate::values::Values;

const FLUX: usize = 1;
const ERROR: usize = 2;
const MASK: usize = 3;
const WAVELENGTH: usize = 4;
const CHIPS: usize = 3;
/// Bytes a pixel that an apVisit takes beside its arrays: their order, sorted, and what is handed out.
const SORTED: usize = 80;
/// Bits of APOGEE_PIXMASK that make a pixel useless: BADPIX, CRPIX, SATPIX, UNFIXABLE, BADDARK, BADFLAT, BADERR, NOSKY
/// (0 to 7), SIG_SKYLINE (12), NOT_ENOUGH_PSF (14).
pub(super) const BAD: u64 = 0xff | 1 << 12 | 1 << 14;

/// apStar files: the spectra of a star on one grid, uniform in log₁₀ λ.
pub(super) const STAR: Format = Format {
    name: "an APOGEE apStar",
    selects_rows: false,
    matches: |fits| has_images(fits, MASK) && has_mask(fits) && is_log_uniform(fits),
    open: |fits, selection| Ok(Box::new(StarReader::open(fits, selection)?)),
};

/// apVisit files: one visit, whose three chips have wavelengths of their own.
pub(super) const VISIT: Format = Format {
    name: "an APOGEE apVisit",
    selects_rows: false,
    matches: |fits| {
        let is_three_chips =
            shape(fits, FLUX).is_some_and(|flux| flux.len() == 2 && flux.first() == Some(&CHIPS));
        has_images(fits, WAVELENGTH) && has_mask(fits) && is_three_chips && !is_log_uniform(fits)
    },
    open: |fits, selection| Ok(Box::new(open_visit(fits, selection)?)),
};

/// Returns the shape of an HDU; `None` if it is no image.
fn shape(fits: &Fits, index: usize) -> Option<&[usize]> {
    match fits.hdus.get(index).map(|hdu| &hdu.kind) {
        Some(Kind::Image(image)) => Some(image.shape.as_slice()),
        _ => None,
    }
}

/// Returns whether flux, error, mask and the HDU `other` are images of one shape, of one or two dimensions.
fn has_images(fits: &Fits, other: usize) -> bool {
    let flux = shape(fits, FLUX).filter(|flux| (1..=2).contains(&flux.len()));
    flux.is_some()
        && [ERROR, MASK, other]
            .iter()
            .all(|index| shape(fits, *index) == flux)
}

/// Returns whether HDU 3 is an image of integers, as bits of a mask are.
fn has_mask(fits: &Fits) -> bool {
    fits.image(MASK).is_ok_and(Image::is_integer)
}

/// Returns whether a file is an aspcapStar, which has the best fit where an apStar has its mask.
pub(super) fn is_aspcap_star(fits: &Fits) -> bool {
    has_images(fits, MASK) && !has_mask(fits) && is_log_uniform(fits)
}

/// Returns whether the header of the flux has a wavelength grid that is uniform in log₁₀ λ.
fn is_log_uniform(fits: &Fits) -> bool {
    fits.header(FLUX).is_ok_and(has_log_grid)
}

/// Returns whether a header has a wavelength grid that is uniform in log₁₀ λ, λ from 100 Å to 100 μm, by CTYPE1 or by
/// DC-FLAG, which IRAF writes. A grid that is uniform in λ, in Å, has a first value that is none of log₁₀ λ.
pub(super) fn has_log_grid(header: &Header) -> bool {
    let is_log = header
        .text("CTYPE1")
        .is_none_or(|kind| kind.to_uppercase().contains("LOG"));
    let is_log = is_log || header.integer("DC-FLAG") == Some(1);
    let (start, step) = (header.float("CRVAL1"), header.float("CDELT1"));
    let is_in_angstrom = !header.text("CUNIT1").is_some_and(is_other_unit);
    is_log
        && is_in_angstrom
        && start.is_some_and(|x| (2.0..6.0).contains(&x))
        && step.is_some_and(|x| x > 0.0 && x < 0.01)
}

/// Yields an apStar's rows: the combined spectrum, the one combined with global weights, the visits.
struct StarReader {
    fits: Fits,
    file: Arc<str>,
    star: String,
    grid: Arc<[f64]>,
    length: usize,
    rule: MaskRule,
    next: usize,
    notes: Vec<String>,
}

impl StarReader {
    /// Opens an apStar file: checks its images, and computes the wavelength grid in vacuum from the header (Å).
    pub fn open(mut fits: Fits, selection: &Selection) -> Result<StarReader> {
        let (length, pixels) = match *fits.image(FLUX)?.shape.as_slice() {
            [pixels] => (1, pixels),
            [length, pixels] => (length, pixels),
            _ => return Err(fits.mismatch(FLUX, "not an image of (spectra, pixels)")),
        };
        // without a spectrum there are no data that bound the pixels
        if pixels == 0 || length == 0 {
            return Err(fits.fault(FLUX, format!("has {length} spectra of {pixels} pixels")));
        }
        fits.take(pixels, 2 * size_of::<f64>())?;
        fits.keep();
        let header = fits.header(FLUX)?;
        let card = |key, default| header.float(key).unwrap_or(default);
        let (start, step, reference) = (
            card("CRVAL1", f64::NAN),
            card("CDELT1", f64::NAN),
            card("CRPIX1", 1.0),
        );
        let air = is_air(&fits, &[0, FLUX]);
        let at = |j: usize| 10f64.powf(start + step * (j as f64 + 1.0 - reference));
        let grid: Vec<f64> = (0..pixels)
            .map(|j| if air { air::to_vacuum(at(j)) } else { at(j) })
            .collect();
        check_grid(&grid, &fits.what(FLUX))?;
        let notes = if air {
            vec![air::note(&fits.path)]
        } else {
            Vec::new()
        };
        let file = Arc::from(fits.path.display().to_string());
        let rule = MaskRule::new(BAD, selection.widen.as_ref());
        fits.close();
        Ok(StarReader {
            star: name(&fits),
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
    fn id(&self, row: usize) -> String {
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
        let (flux, ivar, mask) = arrays(&mut self.fits, &self.rule, pixels_of_rows)?;
        let arm = ArmSpectra::new(
            "",
            pixels,
            Wavelength::Shared(self.grid.clone()),
            flux,
            ivar,
            None,
        )?;
        let arm = arm.with_pixels(mask, self.rule.applied(true))?;
        let ids = rows.clone().map(|row| self.id(row)).collect();
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
            widening: self.rule.applied(true),
        };
        let (rows, ids) = (Vec::new(), Ids::Text(Vec::new()));
        Spectra {
            file: self.file.clone(),
            rows,
            ids,
            arms: vec![arm],
            columns: Vec::new(),
        }
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Reads the one spectrum of an apVisit file, its chips sorted by wavelength and converted to vacuum (Å). Its chips are
/// stored from red to blue, each descending in wavelength: here they are put in ascending order and make one arm with
/// gaps.
fn open_visit(mut fits: Fits, selection: &Selection) -> Result<Single> {
    let chip = fits.image(FLUX)?.shape.get(1).copied().unwrap_or(0);
    if chip == 0 {
        return Err(fits.fault(FLUX, "has no pixels"));
    }
    let pixels = CHIPS * chip;
    fits.take(pixels, SORTED)?;
    let rule = MaskRule::new(BAD, selection.widen.as_ref());
    let (flux, ivar, mask) = arrays(&mut fits, &rule, 0..pixels)?;
    let mut wavelength = Vec::new();
    fits.numbers(WAVELENGTH, 0, pixels, &mut wavelength, |x| x)?;
    refuse_other_units(&fits, WAVELENGTH, fits.header(WAVELENGTH)?.text("BUNIT"))?;
    let air = is_air(&fits, &[0, FLUX, WAVELENGTH]);
    if air {
        wavelength.iter_mut().for_each(|w| *w = air::to_vacuum(*w));
    }
    let order = ascending(&wavelength, chip);
    let sorted = |values: &[f64]| {
        order
            .iter()
            .filter_map(|&j| values.get(j).copied())
            .collect::<Vec<f64>>()
    };
    let mask = order.iter().filter_map(|&j| mask.get(j).copied()).collect();
    let grid = Wavelength::Own(sorted(&wavelength).into());
    let arm = ArmSpectra::new("", pixels, grid, sorted(&flux), sorted(&ivar), None)?;
    let arm = arm.with_pixels(mask, rule.applied(true))?;
    let spectra = Spectra::from_arms(vec![arm], Some(Ids::Text(vec![name(&fits)])))?;
    let notes = if air {
        vec![air::note(&fits.path)]
    } else {
        Vec::new()
    };
    Ok(Single::new(spectra, &fits.path, notes))
}

/// Returns the pixel indices in the order of wavelength: whole chips of `chip` pixels, each reversed if it descends.
/// Chips that overlap, or that are not in order within, stay a fault of the spectrum's grid.
#[allow(
    clippy::indexing_slicing,
    reason = "the pixels are whole chips, and a chip has a pixel"
)]
fn ascending(wavelength: &[f64], chip: usize) -> Vec<usize> {
    let mut chips: Vec<Vec<usize>> = Vec::new();
    for start in (0..wavelength.len()).step_by(chip) {
        let mut pixels: Vec<usize> = (start..start + chip).collect();
        if wavelength[start] > wavelength[start + chip - 1] {
            pixels.reverse();
        }
        chips.push(pixels);
    }
    chips.sort_by(|a, b| wavelength[a[0]].total_cmp(&wavelength[b[0]]));
    chips.concat()
}

/// Arrays of some pixels: flux, inverse variance, and the meaning of the mask.
pub(super) type Arrays = (Vec<f64>, Vec<f64>, Vec<PixelMask>);

/// Reads some pixels of the images: flux, inverse variance from errors, and mask.
fn arrays(fits: &mut Fits, rule: &MaskRule, pixels: Range<usize>) -> Result<Arrays> {
    let (first, count, bytes) = (
        pixels.start,
        pixels.len(),
        fits.image(MASK)?.element_bytes(),
    );
    let (mut flux, mut ivar, mut mask) = (Vec::new(), Vec::new(), Vec::new());
    fits.numbers(FLUX, first, count, &mut flux, |x| x)?;
    fits.numbers(ERROR, first, count, &mut ivar, |e| {
        if e > 0.0 { (e * e).recip() } else { 0.0 }
    })?;
    fits.numbers(MASK, first, count, &mut mask, |bits| {
        rule.judge_number(bits, bytes)
    })?;
    Ok((flux, ivar, mask))
}

/// Returns the star's name from the primary header, or the file's name without its ending if the header has none.
fn name(fits: &Fits) -> String {
    let header = fits.header(0).ok();
    let named = ["OBJID", "OBJECT", "APOGEE_ID"]
        .iter()
        .find_map(|key| header?.text(key));
    named
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map_or_else(|| stem(&fits.path), str::to_string)
}
