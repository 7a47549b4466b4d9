//! SDSS-V's mwmStar (a star's co-added spectra) and mwmVisit (its visits), as astra writes them from version 0.5 on
//! (DR19): four tables, of BOSS and of APOGEE at both observatories, in which a row is a spectrum and a cell an array.
//! Spectra are in vacuum and, where a velocity was measured, in the rest frame of the star.
//!
//! Sources: astra's `products/mwm.py`, `products/utils.py` and `models/mwm.py`, and specutils' loader.

use std::borrow::Cow;
use std::sync::Arc;

use super::apogee::{BAD_APOGEE, PixelArrays};
use super::medium::refuse_other_units;
use super::single::file_stem;
use super::{Selection, SurveyFormat};
use crate::error::{Error, Result};
use crate::io::fits::hdu::{Fits, HduKind};
use crate::io::fits::table::Table;
use crate::spectra::arm::check_grid;
use crate::spectra::widening::{MaskRule, PixelMask};
use crate::spectra::{ArmSpectra, ColumnValues, Ids, Spectra, SpectraReader, Wavelength};
use crate::values::Values;

/// Names of tables, and the arm of their spectra.
const MWM_ARM_TABLES: [(&str, &str); 4] = [
    ("BOSS/APO", "boss"),
    ("BOSS/LCO", "boss"),
    ("APOGEE/APO", "apogee"),
    ("APOGEE/LCO", "apogee"),
];
/// Bits of SDSS' SPPIXMASK that make a pixel of BOSS useless: FULLREJECT (18), NOSKY (22), BRIGHTSKY (23), NODATA (24),
/// REDMONSTER (28). PIXEL_FLAGS has the bits of all exposures.
const BAD_BOSS: u64 = 1 << 18 | 1 << 22 | 1 << 23 | 1 << 24 | 1 << 28;
/// Name of the column of mask bits.
const FLAGS_COLUMN: &str = "PIXEL_FLAGS";
/// Maximum relative difference between the header's grid and the column WAVELENGTH, which is of f32.
const MAX_GRID_DIFFERENCE: f64 = 1e-6;

/// mwmStar and mwmVisit files.
pub(super) const MWM_FORMAT: SurveyFormat = SurveyFormat {
    name: "an SDSS-V mwmStar or mwmVisit (BOSS/APO, …)",
    selects_rows: false,
    matches: |fits| {
        let mut tables = fits.hdus.iter().skip(1).peekable();
        let is_known = |name: &str| MWM_ARM_TABLES.iter().any(|(table, _)| *table == name);
        tables.peek().is_some() && tables.all(|hdu| is_known(&hdu.name) && is_spectra(&hdu.kind))
    },
    open: |fits, selection| Ok(Box::new(MwmReader::open(fits, selection)?)),
};

/// Returns whether an HDU is a table without rows, or one of spectra: arrays of flux with inverse variances or errors.
fn is_spectra(kind: &HduKind) -> bool {
    let HduKind::Table(table) = kind else {
        return false;
    };
    let is_numeric = |name: &str| table.column(name).is_some_and(|column| column.is_numeric());
    table.rows == 0 || is_numeric("FLUX") && weight_column(table).is_some_and(is_numeric)
}

/// Returns the column that holds inverse variances (IVAR) or errors (E_FLUX, in older files).
fn weight_column(table: &Table) -> Option<&'static str> {
    ["IVAR", "E_FLUX"]
        .into_iter()
        .find(|name| table.column(name).is_some())
}

/// An arm and the wavelength grid (Å) that its spectra share.
struct MwmArm {
    name: &'static str,
    grid: Arc<[f64]>,
    /// Meaning of its PIXEL_FLAGS.
    rule: MaskRule,
    /// True if any of its tables has PIXEL_FLAGS.
    has_flags: bool,
}

/// Yields the spectra of a file in the order of its tables; each has data in one arm.
struct MwmReader {
    fits: Fits,
    file: Arc<str>,
    arms: Vec<MwmArm>,
    /// HDU, row of its table and index of the arm of each spectrum.
    spectra: Vec<(usize, usize, usize)>,
    /// Index of the next spectrum.
    next: usize,
}

impl MwmReader {
    /// Opens a file: finds the spectra of the selected arms, and checks that those of an arm share a grid.
    fn open(mut fits: Fits, selection: &Selection) -> Result<MwmReader> {
        // 1. Find the spectra of the selected arms.
        let mut arms: Vec<MwmArm> = Vec::new();
        let mut spectra = Vec::new();
        for (table_name, arm_name) in MWM_ARM_TABLES {
            let is_selected = selection
                .arms
                .as_ref()
                .is_none_or(|selected| selected.iter().any(|name| name == arm_name));
            let Some(index) = fits.find_hdu(table_name)?.filter(|_| is_selected) else {
                continue;
            };
            let rows = fits.table(index)?.rows;
            if rows == 0 {
                continue;
            }
            let grid = read_grid(&mut fits, index)?;
            let arm_index = match arms.iter().position(|arm| arm.name == arm_name) {
                Some(arm_index) => {
                    if arms.get(arm_index).is_none_or(|arm| *arm.grid != *grid) {
                        let message = format!("another table of arm {arm_name} has another grid");
                        return Err(fits.mismatch(index, message));
                    }
                    arm_index
                }
                None => {
                    let bad_bits = if arm_name == "boss" {
                        BAD_BOSS
                    } else {
                        BAD_APOGEE
                    };
                    arms.push(MwmArm {
                        name: arm_name,
                        grid: grid.into(),
                        rule: MaskRule::new(bad_bits, selection.widen.as_ref()),
                        has_flags: false,
                    });
                    arms.len() - 1
                }
            };
            let has_flags = fits.table(index)?.column(FLAGS_COLUMN).is_some();
            if let Some(arm) = arms.get_mut(arm_index) {
                arm.has_flags |= has_flags;
            }
            spectra.extend((0..rows).map(|row| (index, row, arm_index)));
        }
        if arms.is_empty() {
            let selected = if selection.arms.is_some() {
                " of the arms that are selected"
            } else {
                ""
            };
            return Err(Error::format(
                &fits.path,
                format!("it has no spectrum{selected}"),
            ));
        }
        // 2. Reserve the memory of the list of spectra and the grids.
        fits.begin_batch()?;
        fits.charge_memory(spectra.len(), 3 * size_of::<usize>())?;
        fits.charge_memory(
            arms.iter().map(|arm| arm.grid.len()).sum(),
            2 * size_of::<f64>(),
        )?;
        fits.keep_charged_memory();
        let file = Arc::from(fits.path.display().to_string());
        fits.close();
        Ok(MwmReader {
            fits,
            file,
            arms,
            spectra,
            next: 0,
        })
    }

    /// Decodes flux, inverse variance and mask from the bytes of one row of a table.
    fn decode_arrays(&mut self, index: usize, arm: usize, bytes: &[u8]) -> Result<PixelArrays> {
        let fits = &mut self.fits;
        let table = fits.table(index)?;
        let weight_column =
            weight_column(table).ok_or_else(|| fits.fault(index, "has neither IVAR nor E_FLUX"))?;
        let flag_bytes = table
            .column(FLAGS_COLUMN)
            .map(|flags| flags.integer_bytes());
        let rule = self.arms.get(arm).map(|arm| &arm.rule);
        let flux = fits.decode_numbers_of_rows(index, "FLUX", bytes, |x| x)?;
        let to_ivar = |weight: f64| {
            if weight_column == "IVAR" {
                weight
            } else if weight > 0.0 {
                (weight * weight).recip()
            } else {
                0.0
            }
        };
        let ivar = fits.decode_numbers_of_rows(index, weight_column, bytes, to_ivar)?;
        let mask = match (flag_bytes, rule) {
            (Some(flag_bytes), Some(rule)) => {
                fits.decode_numbers_of_rows(index, FLAGS_COLUMN, bytes, |flags| {
                    rule.judge_number(flags, flag_bytes)
                })?
            }
            _ => vec![PixelMask::Good; flux.len()],
        };
        if ivar.len() != flux.len() || mask.len() != flux.len() {
            return Err(fits.mismatch(
                index,
                "FLUX and its errors or flags have different numbers of pixels",
            ));
        }
        Ok((flux, ivar, mask))
    }

    /// Returns the id of a row with these bytes: `SDSS_ID/BOSS/APO`, and in tables of visits `SDSS_ID/BOSS/APO/visit1`
    /// and so on.
    fn make_id(&self, index: usize, row: usize, bytes: &[u8]) -> Result<String> {
        let name = self.fits.hdus.get(index).map_or("", |hdu| &hdu.name);
        let table = self.fits.table(index)?;
        let is_visit = table.column("MJD").is_some() || table.rows > 1;
        let sdss_id = match table
            .column("SDSS_ID")
            .map(|column| column.decode_values(bytes, table.row_bytes))
        {
            Some(Ok(ColumnValues::I64(ids))) => ids.first().map(i64::to_string),
            _ => self.fits.header(0)?.name("SDSS_ID"),
        };
        let star = sdss_id.unwrap_or_else(|| file_stem(&self.fits.path));
        Ok(if is_visit {
            format!("{star}/{name}/visit{}", row + 1)
        } else {
            format!("{star}/{name}")
        })
    }
}

impl SpectraReader for MwmReader {
    fn len(&self) -> u64 {
        self.spectra.len() as u64
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        let end = self.next.saturating_add(max.max(1)).min(self.spectra.len());
        let batch = self
            .spectra
            .get(self.next..end)
            .unwrap_or_default()
            .to_vec();
        if batch.is_empty() {
            return Ok(None);
        }
        self.fits.begin_batch()?;
        let arm_pixels: Vec<usize> = self.arms.iter().map(|arm| arm.grid.len()).collect();
        self.fits.charge_memory(
            batch.len().saturating_mul(arm_pixels.iter().sum()),
            2 * size_of::<f64>() + 1,
        )?;
        // Each spectrum has data in one arm; in the others no pixel counts.
        let mut arrays: Vec<PixelArrays> = vec![Default::default(); self.arms.len()];
        let mut ids = Vec::new();
        for &(index, row, observed_arm) in &batch {
            let bytes = self.fits.read_rows(index, &[row])?;
            ids.push(self.make_id(index, row, &bytes)?);
            let (row_flux, row_ivar, row_mask) = self.decode_arrays(index, observed_arm, &bytes)?;
            for (arm, ((flux, ivar, mask), &pixels)) in
                arrays.iter_mut().zip(&arm_pixels).enumerate()
            {
                if arm == observed_arm {
                    flux.extend(&row_flux);
                    ivar.extend(&row_ivar);
                    mask.extend(&row_mask);
                } else {
                    flux.resize(flux.len() + pixels, 0.0);
                    ivar.resize(ivar.len() + pixels, 0.0);
                    mask.resize(mask.len() + pixels, PixelMask::Masked);
                }
            }
        }
        let mut arms = Vec::new();
        for (arm, (flux, ivar, mask)) in self.arms.iter().zip(arrays) {
            let grid = Wavelength::Shared(arm.grid.clone());
            let spectra = ArmSpectra::new(arm.name, arm.grid.len(), grid, flux, ivar, None)?;
            arms.push(spectra.with_pixel_masks(mask, arm.rule.applied_widening(arm.has_flags))?);
        }
        let mut spectra = Spectra::from_arms(arms, Some(Ids::Text(ids)))?;
        spectra.file = self.file.clone();
        spectra.rows = (self.next as u64..end as u64).collect();
        self.next = end;
        Ok(Some(spectra))
    }

    fn empty(&self) -> Spectra<'static> {
        let arms = self.arms.iter().map(|arm| ArmSpectra {
            name: arm.name.to_string(),
            wavelength: Wavelength::Shared(arm.grid.clone()),
            pixels: arm.grid.len(),
            flux: Values::default(),
            ivar: Values::default(),
            mask: Cow::default(),
            resolution: None,
            covariance: None,
            widening: arm.rule.applied_widening(arm.has_flags),
        });
        Spectra {
            file: self.file.clone(),
            rows: Vec::new(),
            ids: Ids::Text(Vec::new()),
            arms: arms.collect(),
            columns: Vec::new(),
            exposures: None,
        }
    }
}

/// Returns the wavelength grid of a table's spectra (Å): log₁₀ λ = CRVAL + CDELT · (pixel − CRPIX), or else the column
/// WAVELENGTH, whose rows must agree. If both exist, they must agree.
fn read_grid(fits: &mut Fits, index: usize) -> Result<Vec<f64>> {
    let table = fits.table(index)?.clone();
    let header = fits.header(index)?.clone();
    let pixels = table.column("FLUX").map_or(0, |column| column.repeat());
    refuse_other_units(fits, index, header.text("CUNIT"))?;
    fits.charge_memory(pixels, 4 * size_of::<f64>())?;
    // 1. Compute the grid from the header, if it is logarithmic.
    let is_log = header
        .text("CTYPE")
        .is_none_or(|axis| axis.trim().to_uppercase().starts_with("LOG"));
    let start = header
        .float("CRVAL")
        .filter(|start| is_log && (2.0..6.0).contains(start));
    let mut grid = None;
    if let (Some(start), Some(step)) = (start, header.float("CDELT")) {
        let reference_pixel = header.float("CRPIX").unwrap_or(1.0);
        grid = Some(
            (1..=pixels)
                .map(|j| 10f64.powf(start + step * (j as f64 - reference_pixel)))
                .collect::<Vec<f64>>(),
        );
    }
    // 2. Compare it with the wavelengths of all rows, or else take those of the first row.
    if table.column("WAVELENGTH").is_some() {
        for row in 0..table.rows {
            let bytes = fits.read_rows(index, &[row])?;
            let row_grid = fits.decode_numbers_of_rows(index, "WAVELENGTH", &bytes, |x| x)?;
            let expected_grid = grid.get_or_insert_with(|| row_grid.clone());
            let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= MAX_GRID_DIFFERENCE * a.abs();
            let mut pairs = row_grid.iter().zip(expected_grid.iter());
            if row_grid.len() != pixels || !pairs.all(is_near) {
                let message = format!(
                    "the WAVELENGTH of row {row} is not that of the header or of the other rows"
                );
                return Err(fits.mismatch(index, message));
            }
        }
    }
    let grid = grid.ok_or_else(|| {
        fits.fault(
            index,
            "has neither a logarithmic grid (CRVAL, CDELT) nor WAVELENGTH",
        )
    })?;
    check_grid(&grid, &fits.describe_hdu(index))?;
    Ok(grid)
}
