//! LAMOST's spectra, in vacuum. Low resolution: to DR7 an image of five rows (flux, inverse variance, wavelength,
//! andmask, ormask), from DR8 on a table COADD. Medium resolution: tables COADD_B and COADD_R beside those of single
//! exposures, with a row per pixel to DR7, and from DR8 on one row with an array in each cell.
//!
//! Sources: the descriptions of data products of DR2, DR6 to DR10 (lamost.org), and the readers of laspec and cmost.

use super::medium::{is_air, refuse_other_units};
use super::single::{Single, stem};
use super::{Format, Selection};
use crate::error::{Error, Result};
use crate::io::fits::cards::Header;
use crate::io::fits::hdu::{Fits, Hdu, Kind};
use crate::io::fits::table::Table;
use crate::spectra::widening::{ALL_BITS, MaskRule, PixelMask};
use crate::spectra::{ArmSpectra, Ids, Spectra, Wavelength, air};

/// Bytes that a pixel takes beside its cells: as f64, and what is handed out.
const PIXEL: usize = 80;
/// Rows of the image of DR7 and before.
const ROWS: usize = 5;
/// Tables of co-added spectra of medium resolution, and the names of their arms.
const ARMS: [(&str, &str); 2] = [("COADD_B", "b"), ("COADD_R", "r")];
/// Columns that mask pixels with any bit, the first of which counts: bad in all exposures, in one, in the spectrum.
const MASKS: [&str; 3] = ["ANDMASK", "PIXMASK", "ORMASK"];

/// Spectra of low resolution as an image, DR1 to DR7.
pub(super) const IMAGE: Format = Format {
    name: "a LAMOST spectrum of low resolution (image)",
    selects_rows: false,
    matches: is_image,
    open: |fits, selection| Ok(Box::new(open_image(fits, selection)?)),
};

/// Spectra of low resolution as a table, from DR8 on.
pub(super) const TABLE: Format = Format {
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
pub(super) const MEDIUM: Format = Format {
    name: "a LAMOST spectrum of medium resolution (COADD_B, COADD_R)",
    selects_rows: false,
    matches: |fits| {
        let is_arm =
            |hdu: &&Hdu| ARMS.iter().any(|(name, _)| hdu.name == *name) && !is_empty(&hdu.kind);
        let mut arms = fits.hdus.iter().filter(is_arm).peekable();
        arms.peek().is_some() && arms.all(|hdu| is_spectrum(&hdu.kind, "FLUX"))
    },
    open: |fits, selection| {
        let is_selected = |arm: &str| {
            selection
                .arms
                .as_ref()
                .is_none_or(|chosen| chosen.iter().any(|name| name == arm))
        };
        let arms: Vec<_> = ARMS
            .into_iter()
            .filter(|(_, arm)| is_selected(arm))
            .collect();
        Ok(Box::new(open_tables(fits, &arms, selection)?))
    },
};

/// Returns whether a unit has no data, as that of an arm that was not co-added.
fn is_empty(kind: &Kind) -> bool {
    match kind {
        Kind::Table(table) => table.rows == 0,
        Kind::Image(image) => image.shape.is_empty(),
        Kind::Other(_) => false,
    }
}

/// Returns whether a unit is a table with wavelengths, flux, inverse variance and the column `other`.
fn is_spectrum(kind: &Kind, other: &str) -> bool {
    let Kind::Table(table) = kind else {
        return false;
    };
    let has = |name: &str| table.column(name).is_some_and(|column| column.is_numeric());
    ["FLUX", "IVAR", other].iter().all(|name| has(name)) && wavelength_column(table).is_some()
}

/// Returns the name of the column of wavelengths, which holds more digits than that of their logarithms.
fn wavelength_column(table: &Table) -> Option<&'static str> {
    ["WAVELENGTH", "LOGLAM"]
        .into_iter()
        .find(|name| table.column(name).is_some())
}

/// Returns whether the primary unit is an image of five rows with LAMOST's grid, log₁₀ λ = COEFF0 + COEFF1 · pixel.
fn is_image(fits: &Fits) -> bool {
    let Some(hdu) = fits.hdus.first() else {
        return false;
    };
    let telescope = hdu.header.text("TELESCOP").unwrap_or("LAMOST");
    let is_five_rows = matches!(&hdu.kind, Kind::Image(image) if image.shape.first() == Some(&ROWS)
        && image.shape.len() == 2 && image.shape.get(1) > Some(&1) && !image.is_integer());
    is_five_rows && telescope.trim().starts_with("LAMOST") && coefficients(&hdu.header).is_some()
}

/// Returns log₁₀ λ of the first pixel and its step, if they are those of a spectrum in Å.
fn coefficients(header: &Header) -> Option<(f64, f64)> {
    let (start, step) = (header.float("COEFF0")?, header.float("COEFF1")?);
    ((3.0..4.5).contains(&start) && step > 0.0 && step < 0.01).then_some((start, step))
}

/// Reads a spectrum from the rows of the primary image. Its third row must be the wavelengths of COEFF0 and COEFF1, to
/// half a pixel: in SDSS' spSpec files, and in those of LAMOST's pilot survey, it is something else.
fn open_image(mut fits: Fits, selection: &Selection) -> Result<Single> {
    let pixels = fits.image(0)?.shape.get(1).copied().unwrap_or(0);
    fits.take(pixels, PIXEL)?;
    let mut all = Vec::new();
    fits.numbers(0, 0, ROWS * pixels, &mut all, |x| x)?;
    let mut rows = all.chunks_exact(pixels).map(<[f64]>::to_vec);
    let mut row = || rows.next().unwrap_or_default();
    let (flux, ivar, wavelength, mask) = (row(), row(), row(), row());
    let (start, step) =
        coefficients(fits.header(0)?).ok_or_else(|| fits.fault(0, "has no COEFF0 and COEFF1"))?;
    let is_grid = |(j, w): (usize, &f64)| (w.log10() - start - step * j as f64).abs() < step / 2.0;
    if !wavelength.iter().enumerate().all(is_grid) {
        return Err(fits.fault(
            0,
            "the third row of its image is not the wavelengths of COEFF0 and COEFF1",
        ));
    }
    let rule = MaskRule::new(ALL_BITS, selection.widen.as_ref());
    let mask = mask
        .iter()
        .map(|bits| rule.judge_number(*bits, size_of::<u64>()))
        .collect();
    finish(
        &fits,
        vec![(
            0,
            "",
            Columns {
                wavelength,
                flux,
                ivar,
                mask: Some(mask),
            },
        )],
        &rule,
        Vec::new(),
    )
}

/// The arrays of an arm.
struct Columns {
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
) -> Result<Single> {
    let (mut arms, mut notes) = (Vec::new(), Vec::new());
    let rule = MaskRule::new(ALL_BITS, selection.widen.as_ref());
    for (name, arm) in tables {
        let index = fits.find(name)?;
        if let Some(index) =
            index.filter(|k| fits.hdus.get(*k).is_some_and(|hdu| !is_empty(&hdu.kind)))
        {
            arms.push((index, *arm, columns(&mut fits, index, &rule, &mut notes)?));
        }
    }
    if arms.is_empty() {
        return Err(Error::format(
            &fits.path,
            "it has no co-added spectrum of the arms that are selected",
        ));
    }
    finish(&fits, arms, &rule, notes)
}

/// Reads the arrays of a table: one row with arrays in its cells, or one row per pixel.
fn columns(
    fits: &mut Fits,
    index: usize,
    rule: &MaskRule,
    notes: &mut Vec<String>,
) -> Result<Columns> {
    let table = fits.table(index)?.clone();
    let cells = table.column("FLUX").map_or(1, |column| column.repeat());
    if table.rows > 1 && cells > 1 {
        return Err(fits.fault(
            index,
            format!(
                "has {} rows of {cells} pixels, not one spectrum",
                table.rows
            ),
        ));
    }
    let name = wavelength_column(&table).ok_or_else(|| fits.fault(index, "has no wavelengths"))?;
    if name == "WAVELENGTH" {
        refuse_other_units(
            fits,
            index,
            table.column(name).map(|column| column.unit.as_str()),
        )?;
    }
    fits.take(table.rows.saturating_mul(cells), PIXEL)?;
    let bytes = fits.rows(index, &(0..table.rows).collect::<Vec<_>>())?;
    let to_wavelength = |x| if name == "LOGLAM" { 10f64.powf(x) } else { x };
    let mask = match MASKS.iter().find_map(|mask| table.column(mask)) {
        Some(mask) => {
            let size = mask.integer_bytes();
            Some(fits.numbers_of_rows(index, &mask.name, &bytes, |bits| {
                rule.judge_number(bits, size)
            })?)
        }
        None => {
            notes.push(format!(
                "{}: no column of a mask: no pixel is masked but by its ivar",
                fits.what(index)
            ));
            None
        }
    };
    Ok(Columns {
        wavelength: fits.numbers_of_rows(index, name, &bytes, to_wavelength)?,
        flux: fits.numbers_of_rows(index, "FLUX", &bytes, |x| x)?,
        ivar: fits.numbers_of_rows(index, "IVAR", &bytes, |x| x)?,
        mask,
    })
}

/// Makes a reader of the arms of one spectrum, each given with its HDU and name. Wavelengths in air are converted to
/// vacuum, and the id is OBSID or the name of the file.
fn finish(
    fits: &Fits,
    arms: Vec<(usize, &str, Columns)>,
    rule: &MaskRule,
    mut notes: Vec<String>,
) -> Result<Single> {
    let mut all = Vec::new();
    for (
        index,
        name,
        Columns {
            mut wavelength,
            flux,
            ivar,
            mask,
        },
    ) in arms
    {
        let lengths = [
            wavelength.len(),
            ivar.len(),
            mask.as_ref().map_or(flux.len(), Vec::len),
        ];
        if lengths.iter().any(|length| *length != flux.len()) {
            return Err(fits.mismatch(index, "its columns have different numbers of pixels"));
        }
        if is_air(fits, &[0, index]) {
            wavelength.iter_mut().for_each(|w| *w = air::to_vacuum(*w));
            let note = air::conversion_note(&fits.path);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        let arm = ArmSpectra::new(
            name,
            flux.len(),
            Wavelength::Own(wavelength.into()),
            flux,
            ivar,
            None,
        )?;
        let applied = rule.applied(mask.is_some());
        all.push(arm.with_pixel_masks(mask.unwrap_or_default(), applied)?);
    }
    let id = fits
        .header(0)?
        .name("OBSID")
        .unwrap_or_else(|| stem(&fits.path));
    Ok(Single::new(
        Spectra::from_arms(all, Some(Ids::Text(vec![id])))?,
        &fits.path,
        notes,
    ))
}
