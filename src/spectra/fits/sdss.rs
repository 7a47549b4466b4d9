//! SDSS' spec files, full and lite: one spectrum as a table COADD, its properties in SPECOBJ (SPALL in eBOSS).

use super::medium::is_in_air;
use super::single::{self, SingleReader};
use super::{Selection, SurveyFormat};
use crate::error::{Error, Result};
use crate::io::fits::columns::TableColumns;
use crate::io::fits::hdu::{Fits, HduKind};
use crate::io::fits::table::TableColumn;
use crate::spectra::widening::{ALL_BITS, MaskRule};
use crate::spectra::{ArmSpectra, ColumnValues, Ids, Spectra, Wavelength, air};

/// Bytes per pixel beside the cells of the table: the arrays as f64, and the returned ones.
const BYTES_PER_PIXEL: usize = 80;

/// SDSS' `spec` files: a table COADD, or one without a name, with the columns flux, loglam and ivar, a pixel per row.
pub(super) const SPEC_FORMAT: SurveyFormat = SurveyFormat {
    name: "an SDSS spec (COADD)",
    selects_rows: false,
    matches: |fits| find_coadd(fits).is_some(),
    open: |fits, selection| Ok(Box::new(open_spec(fits, selection)?)),
};

/// Returns the position of the first table COADD, or without a name, with numeric columns flux, loglam and ivar and,
/// if it has a mask, bits in integers; `None` if there is none.
fn find_coadd(fits: &Fits) -> Option<usize> {
    fits.hdus.iter().position(|hdu| {
        let HduKind::Table(table) = &hdu.kind else {
            return false;
        };
        let is_number = |column: &TableColumn| column.is_numeric() && column.is_single();
        let is_named = matches!(hdu.name.as_str(), "COADD" | "");
        is_named
            && ["flux", "loglam", "ivar"]
                .iter()
                .all(|name| table.column(name).is_some_and(is_number))
            && table.column("and_mask").is_none_or(TableColumn::is_integer)
    })
}

/// Reads the one spectrum of an SDSS `spec` file, its wavelengths converted from log₁₀ λ to Å in vacuum. Pixels with
/// any bit of `and_mask`, bad in every exposure, are masked or widened.
fn open_spec(mut fits: Fits, selection: &Selection) -> Result<SingleReader> {
    // 1. Read the arrays.
    let index = find_coadd(&fits)
        .ok_or_else(|| Error::format(&fits.path, "no table with flux, loglam and ivar"))?;
    let mut notes = Vec::new();
    fits.charge_memory(fits.table(index)?.rows, BYTES_PER_PIXEL)?;
    let rows: Vec<usize> = (0..fits.table(index)?.rows).collect();
    if rows.is_empty() {
        return Err(fits.fault(index, "has no pixels"));
    }
    let flux = read_numbers(&mut fits, index, "flux", &rows)?;
    let ivar = read_numbers(&mut fits, index, "ivar", &rows)?;
    let mut wavelength = read_numbers(&mut fits, index, "loglam", &rows)?;
    wavelength.iter_mut().for_each(|w| *w = 10f64.powf(*w));
    if is_in_air(&fits, &[0, index]) {
        wavelength.iter_mut().for_each(|w| *w = air::to_vacuum(*w));
        notes.push(air::conversion_note(&fits.path));
    }
    let rule = MaskRule::new(ALL_BITS, selection.widen.as_ref());
    let mask_bytes = fits
        .table(index)?
        .column("and_mask")
        .map(TableColumn::integer_bytes);
    let mask = match mask_bytes {
        Some(mask_bytes) => {
            let bits = read_numbers(&mut fits, index, "and_mask", &rows)?;
            bits.iter()
                .map(|bits| rule.judge_number(*bits, mask_bytes))
                .collect()
        }
        None => {
            notes.push(note_missing_mask(&fits, index)?);
            Vec::new()
        }
    };
    let arm = ArmSpectra::new(
        "",
        rows.len(),
        Wavelength::Own(wavelength.into()),
        flux,
        ivar,
        None,
    )?;
    let arm = arm.with_pixel_masks(mask, rule.applied_widening(mask_bytes.is_some()))?;
    // 2. Read the properties of the object, and make its id of them. Columns that cannot be read are not noted, because
    //    no output repeats these columns.
    let mut columns = Vec::new();
    for name in ["SPECOBJ", "SPALL"] {
        if let Some(table_index) = fits
            .find_hdu(name)?
            .filter(|&k| fits.table(k).is_ok_and(|table| table.rows == 1))
        {
            let table = TableColumns::new(&fits, table_index, &mut Vec::new())?;
            table.read(&mut fits, &[0], &mut columns)?;
        }
    }
    let text =
        |name| TableColumns::text(&columns, name).filter(|text| !text.is_empty() && text != "0");
    let plate_id = || {
        Some(format!(
            "{}-{}-{}",
            text("PLATE")?,
            text("MJD")?,
            text("FIBERID")?
        ))
    };
    let id = text("SPECOBJID")
        .or_else(plate_id)
        .unwrap_or_else(|| single::file_stem(&fits.path));
    let mut spectra = Spectra::from_arms(vec![arm], Some(Ids::Text(vec![id])))?;
    spectra.columns = columns;
    Ok(SingleReader::new(spectra, &fits.path, notes))
}

/// Returns the note that a table has no `and_mask`, which names the columns that may be masks and are not used.
fn note_missing_mask(fits: &Fits, index: usize) -> Result<String> {
    let names = fits
        .table(index)?
        .columns
        .iter()
        .map(|column| column.name.as_str());
    let unused_masks: Vec<&str> = names
        .filter(|name| name.to_lowercase().contains("mask"))
        .collect();
    let unused = if unused_masks.is_empty() {
        String::new()
    } else {
        format!(", and {} is not used", unused_masks.join(", "))
    };
    let path = fits.path.display();
    Ok(format!(
        "{path}: no column and_mask: no pixel is masked but by its ivar{unused}"
    ))
}

/// Reads a numeric column of a table as f64; `rows` must be those from 0 on without gaps; fails if it is absent or
/// text.
fn read_numbers(fits: &mut Fits, index: usize, name: &str, rows: &[usize]) -> Result<Vec<f64>> {
    let column = fits
        .read_column(index, name, rows)?
        .ok_or_else(|| fits.fault(index, format!("no column {name}")))?;
    if matches!(column, ColumnValues::Text(_)) {
        return Err(fits.fault(index, format!("column {name} is text")));
    }
    Ok(rows
        .iter()
        .map(|&row| column.number(row).unwrap_or(f64::NAN))
        .collect())
}
