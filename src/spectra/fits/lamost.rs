//! LAMOST's spectra, in vacuum. Low resolution: to DR7 an image of five rows (flux, inverse variance, wavelength,
//! andmask, ormask), from DR8 on a table COADD. Medium resolution: tables COADD_B and COADD_R beside those of single
//! exposures, with a row per pixel to DR7, and from DR8 on one row with an array in each cell.
//!
//! Sources: the descriptions of data products of DR2, DR6 to DR10 (lamost.org), and the readers of laspec and cmost.

use super::medium::{is_in_air, refuse_other_units};
use super::single::{SingleReader, file_stem};
use super::{Selection, SurveyFormat};
use crate::error::{Error, Result};
use crate::io::fits::cards::Header;
use crate::io::fits::hdu::{Fits, Hdu, HduKind};
use crate::io::fits::table::Table;
use crate::spectra::widening::{ALL_BITS, MaskRule, PixelMask};
use crate::spectra::{ArmSpectra, Ids, Spectra, Wavelength, air};

/// Bytes per pixel beside the cells of a table: the arrays as f64, and the returned ones.
const BYTES_PER_PIXEL: usize = 80;
/// Number of rows of an image up to DR7.
const IMAGE_ROWS: usize = 5;
/// Tables of co-added spectra of medium resolution, and the names of their arms.
const LAMOST_ARM_TABLES: [(&str, &str); 2] = [("COADD_B", "b"), ("COADD_R", "r")];
/// Columns of masks, of which the first that exists masks pixels by any bit: bad in all exposures, in one, in the
/// spectrum.
const MASK_COLUMNS: [&str; 3] = ["ANDMASK", "PIXMASK", "ORMASK"];

/// Spectra of low resolution as an image, DR1 to DR7.
pub(super) const IMAGE_FORMAT: SurveyFormat = SurveyFormat {
    name: "a LAMOST spectrum of low resolution (image)",
    selects_rows: false,
    matches: is_image,
    open: |fits, selection| Ok(Box::new(open_image(fits, selection)?)),
};

/// Spectra of low resolution as a table, from DR8 on.
pub(super) const TABLE_FORMAT: SurveyFormat = SurveyFormat {
    name: "a LAMOST spectrum of low resolution (COADD)",
    selects_rows: false,
    matches: |fits| {
        fits.hdus
            .iter()
            .any(|hdu| hdu.name == "COADD" && is_spectrum(&hdu.kind, "ANDMASK"))
    },
    open: |fits, selection| Ok(Box::new(open_tables(fits, &[("COADD", "")], selection)?)),
};

/// Spectra of medium resolution: two arms.
pub(super) const MEDIUM_FORMAT: SurveyFormat = SurveyFormat {
    name: "a LAMOST spectrum of medium resolution (COADD_B, COADD_R)",
    selects_rows: false,
    matches: |fits| {
        let is_arm = |hdu: &&Hdu| {
            LAMOST_ARM_TABLES.iter().any(|(name, _)| hdu.name == *name) && !is_empty(&hdu.kind)
        };
        let mut tables = fits.hdus.iter().filter(is_arm).peekable();
        tables.peek().is_some() && tables.all(|hdu| is_spectrum(&hdu.kind, "FLUX"))
    },
    open: |fits, selection| {
        let is_selected = |arm: &str| {
            selection
                .arms
                .as_ref()
                .is_none_or(|selected| selected.iter().any(|name| name == arm))
        };
        let tables: Vec<_> = LAMOST_ARM_TABLES
            .into_iter()
            .filter(|(_, arm)| is_selected(arm))
            .collect();
        Ok(Box::new(open_tables(fits, &tables, selection)?))
    },
};

/// Returns whether an HDU has no data, such as that of an arm that was not co-added.
fn is_empty(kind: &HduKind) -> bool {
    match kind {
        HduKind::Table(table) => table.rows == 0,
        HduKind::Image(image) => image.shape.is_empty(),
        HduKind::Other(_) => false,
    }
}

/// Returns whether an HDU is a table with wavelengths, flux, inverse variance and another numeric column.
fn is_spectrum(kind: &HduKind, column: &str) -> bool {
    let HduKind::Table(table) = kind else {
        return false;
    };
    let is_numeric = |name: &&str| table.column(name).is_some_and(|column| column.is_numeric());
    ["FLUX", "IVAR", column].iter().all(is_numeric) && wavelength_column(table).is_some()
}

/// Returns the name of the column of wavelengths, or else of their logarithms, which has fewer digits.
fn wavelength_column(table: &Table) -> Option<&'static str> {
    ["WAVELENGTH", "LOGLAM"]
        .into_iter()
        .find(|name| table.column(name).is_some())
}

/// Returns whether the primary HDU is an image of five rows with LAMOST's grid, log₁₀ λ = COEFF0 + COEFF1 · pixel.
fn is_image(fits: &Fits) -> bool {
    let Some(hdu) = fits.hdus.first() else {
        return false;
    };
    let telescope = hdu.header.text("TELESCOP").unwrap_or("LAMOST");
    let is_five_rows = matches!(&hdu.kind, HduKind::Image(image) if image.shape.first() == Some(&IMAGE_ROWS)
        && image.shape.len() == 2 && image.shape.get(1) > Some(&1) && !image.is_integer());
    is_five_rows
        && telescope.trim().starts_with("LAMOST")
        && grid_coefficients(&hdu.header).is_some()
}

/// Returns log₁₀ λ of the first pixel and its step, if they are those of a spectrum in Å.
fn grid_coefficients(header: &Header) -> Option<(f64, f64)> {
    let start = header.float("COEFF0")?;
    let step = header.float("COEFF1")?;
    ((3.0..4.5).contains(&start) && step > 0.0 && step < 0.01).then_some((start, step))
}

/// Reads a spectrum from the rows of the primary image. Its third row must be the wavelengths of COEFF0 and COEFF1, to
/// half a pixel: in SDSS' spSpec files, and in those of LAMOST's pilot survey, it is something else.
fn open_image(mut fits: Fits, selection: &Selection) -> Result<SingleReader> {
    let pixels = fits.image(0)?.shape.get(1).copied().unwrap_or(0);
    fits.charge_memory(pixels, BYTES_PER_PIXEL)?;
    // 1. Read the rows of the image.
    let mut values = Vec::new();
    fits.read_numbers(0, 0, IMAGE_ROWS * pixels, &mut values, |x| x)?;
    let mut rows = values.chunks_exact(pixels).map(<[f64]>::to_vec);
    let flux = rows.next().unwrap_or_default();
    let ivar = rows.next().unwrap_or_default();
    let wavelength = rows.next().unwrap_or_default();
    let mask_bits = rows.next().unwrap_or_default();
    // 2. Check that the third row has the wavelengths of the header.
    let (start, step) = grid_coefficients(fits.header(0)?)
        .ok_or_else(|| fits.fault(0, "has no COEFF0 and COEFF1"))?;
    let is_expected =
        |(j, w): (usize, &f64)| (w.log10() - start - step * j as f64).abs() < step / 2.0;
    if !wavelength.iter().enumerate().all(is_expected) {
        return Err(fits.fault(
            0,
            "the third row of its image is not the wavelengths of COEFF0 and COEFF1",
        ));
    }
    let rule = MaskRule::new(ALL_BITS, selection.widen.as_ref());
    let mask = mask_bits
        .iter()
        .map(|bits| rule.judge_number(*bits, size_of::<u64>()))
        .collect();
    let arrays = SpectrumArrays {
        wavelength,
        flux,
        ivar,
        mask: Some(mask),
    };
    make_reader(&fits, vec![(0, "", arrays)], &rule, Vec::new())
}

/// The arrays of an arm of one spectrum.
struct SpectrumArrays {
    wavelength: Vec<f64>,
    flux: Vec<f64>,
    ivar: Vec<f64>,
    mask: Option<Vec<PixelMask>>,
}

/// Reads a spectrum from one table per arm, given as the names of HDU and arm; a file may lack one of two.
fn open_tables(
    mut fits: Fits,
    tables: &[(&str, &'static str)],
    selection: &Selection,
) -> Result<SingleReader> {
    let mut arms = Vec::new();
    let mut notes = Vec::new();
    let rule = MaskRule::new(ALL_BITS, selection.widen.as_ref());
    for (name, arm) in tables {
        let Some(index) = fits.find_hdu(name)? else {
            continue;
        };
        if fits.hdus.get(index).is_some_and(|hdu| !is_empty(&hdu.kind)) {
            let arrays = read_table(&mut fits, index, &rule, &mut notes)?;
            arms.push((index, *arm, arrays));
        }
    }
    if arms.is_empty() {
        return Err(Error::format(
            &fits.path,
            "it has no co-added spectrum of the arms that are selected",
        ));
    }
    make_reader(&fits, arms, &rule, notes)
}

/// Reads the arrays of a table: one row with arrays in its cells, or one row per pixel.
fn read_table(
    fits: &mut Fits,
    index: usize,
    rule: &MaskRule,
    notes: &mut Vec<String>,
) -> Result<SpectrumArrays> {
    // 1. Check that the table has one spectrum, and find its wavelengths.
    let table = fits.table(index)?.clone();
    let cell_pixels = table.column("FLUX").map_or(1, |column| column.repeat());
    if table.rows > 1 && cell_pixels > 1 {
        return Err(fits.fault(
            index,
            format!(
                "has {} rows of {cell_pixels} pixels, not one spectrum",
                table.rows
            ),
        ));
    }
    let wavelength_name =
        wavelength_column(&table).ok_or_else(|| fits.fault(index, "has no wavelengths"))?;
    if wavelength_name == "WAVELENGTH" {
        refuse_other_units(
            fits,
            index,
            table
                .column(wavelength_name)
                .map(|column| column.unit.as_str()),
        )?;
    }
    // 2. Read its bytes, and decode the columns.
    fits.charge_memory(table.rows.saturating_mul(cell_pixels), BYTES_PER_PIXEL)?;
    let bytes = fits.read_rows(index, &(0..table.rows).collect::<Vec<_>>())?;
    let to_wavelength = |x| {
        if wavelength_name == "LOGLAM" {
            10f64.powf(x)
        } else {
            x
        }
    };
    let mask = match MASK_COLUMNS.iter().find_map(|mask| table.column(mask)) {
        Some(mask) => {
            let mask_bytes = mask.integer_bytes();
            Some(
                fits.decode_numbers_of_rows(index, &mask.name, &bytes, |bits| {
                    rule.judge_number(bits, mask_bytes)
                })?,
            )
        }
        None => {
            notes.push(format!(
                "{}: no column of a mask: no pixel is masked but by its ivar",
                fits.describe_hdu(index)
            ));
            None
        }
    };
    Ok(SpectrumArrays {
        wavelength: fits.decode_numbers_of_rows(index, wavelength_name, &bytes, to_wavelength)?,
        flux: fits.decode_numbers_of_rows(index, "FLUX", &bytes, |x| x)?,
        ivar: fits.decode_numbers_of_rows(index, "IVAR", &bytes, |x| x)?,
        mask,
    })
}

/// Makes a reader of the arms of one spectrum, each given with its HDU and name. Wavelengths in air are converted to
/// vacuum, and the id is OBSID or the name of the file.
fn make_reader(
    fits: &Fits,
    arms: Vec<(usize, &str, SpectrumArrays)>,
    rule: &MaskRule,
    mut notes: Vec<String>,
) -> Result<SingleReader> {
    let mut arm_spectra = Vec::new();
    for (index, name, arrays) in arms {
        let SpectrumArrays {
            mut wavelength,
            flux,
            ivar,
            mask,
        } = arrays;
        // 1. Check the lengths, and convert the wavelengths to vacuum.
        let lengths = [
            wavelength.len(),
            ivar.len(),
            mask.as_ref().map_or(flux.len(), Vec::len),
        ];
        if lengths.iter().any(|length| *length != flux.len()) {
            return Err(fits.mismatch(index, "its columns have different numbers of pixels"));
        }
        if is_in_air(fits, &[0, index]) {
            wavelength.iter_mut().for_each(|w| *w = air::to_vacuum(*w));
            let note = air::conversion_note(&fits.path);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        // 2. Mask pixels, or widen their errors.
        let arm = ArmSpectra::new(
            name,
            flux.len(),
            Wavelength::Own(wavelength.into()),
            flux,
            ivar,
            None,
        )?;
        let applied = rule.applied_widening(mask.is_some());
        arm_spectra.push(arm.with_pixel_masks(mask.unwrap_or_default(), applied)?);
    }
    let id = fits
        .header(0)?
        .name("OBSID")
        .unwrap_or_else(|| file_stem(&fits.path));
    Ok(SingleReader::new(
        Spectra::from_arms(arm_spectra, Some(Ids::Text(vec![id])))?,
        &fits.path,
        notes,
    ))
}
