//! SDSS-V's mwmStar (a star's co-added spectra) and mwmVisit (its visits), as astra writes them from version 0.5 on
//! (DR19): four tables, of BOSS and of APOGEE at both observatories, in which a row is a spectrum and a cell an array.
//! Spectra are in vacuum and, where a velocity was measured, in the rest frame of the star.
//!
//! Sources: astra's `products/mwm.py`, `products/utils.py` and `models/mwm.py`, and specutils' loader.

use std::borrow::Cow;
use std::sync::Arc;

use super::apogee::{Arrays, BAD};
use super::medium::refuse_other_units;
use super::single::stem;
use super::{Format, Selection};
use crate::error::{Error, Result};
use crate::io::fits::hdu::{Fits, Kind};
use crate::io::fits::table::Table;
use crate::spectra::arm::check_grid;
use crate::spectra::widening::{MaskRule, PixelMask};
use crate::spectra::{ArmSpectra, ColumnValues, Ids, Spectra, SpectraReader, Wavelength};
use crate::values::Values;

/// Extensions, and the arm that their spectra belong to.
const TABLES: [(&str, &str); 4] = [
    ("BOSS/APO", "boss"),
    ("BOSS/LCO", "boss"),
    ("APOGEE/APO", "apogee"),
    ("APOGEE/LCO", "apogee"),
];
/// Bits of SDSS' SPPIXMASK that make a pixel of BOSS useless: FULLREJECT (18), NOSKY (22), BRIGHTSKY (23), NODATA (24),
/// REDMONSTER (28). PIXEL_FLAGS are those that any exposure has.
const BAD_BOSS: u64 = 1 << 18 | 1 << 22 | 1 << 23 | 1 << 24 | 1 << 28;
/// Column of the bits of pixels.
const FLAGS: &str = "PIXEL_FLAGS";
/// Largest relative difference between the header's grid and the column WAVELENGTH, which is of f32.
const ROUNDING: f64 = 1e-6;

/// mwmStar and mwmVisit files.
pub(super) const FORMAT: Format = Format {
    name: "an SDSS-V mwmStar or mwmVisit (BOSS/APO, …)",
    selects_rows: false,
    matches: |fits| {
        let mut tables = fits.hdus.iter().skip(1).peekable();
        let is_known = |name: &str| TABLES.iter().any(|(known, _)| *known == name);
        tables.peek().is_some() && tables.all(|hdu| is_known(&hdu.name) && is_spectra(&hdu.kind))
    },
    open: |fits, selection| Ok(Box::new(MwmReader::open(fits, selection)?)),
};

/// Returns whether a unit is a table without rows, or one of spectra: arrays of flux with inverse variances or errors.
fn is_spectra(kind: &Kind) -> bool {
    let Kind::Table(table) = kind else {
        return false;
    };
    let has = |name: &str| table.column(name).is_some_and(|column| column.is_numeric());
    table.rows == 0 || has("FLUX") && weight(table).is_some_and(has)
}

/// Returns the column that holds inverse variances (IVAR) or errors (E_FLUX, in older files).
fn weight(table: &Table) -> Option<&'static str> {
    ["IVAR", "E_FLUX"]
        .into_iter()
        .find(|name| table.column(name).is_some())
}

/// One arm: its grid in Å, which all its spectra share.
struct Arm {
    name: &'static str,
    grid: Arc<[f64]>,
    /// Meaning of its PIXEL_FLAGS.
    rule: MaskRule,
    /// Some of its tables have PIXEL_FLAGS.
    has_flags: bool,
}

/// Yields the spectra of a file in the order of its tables; each has data in one arm.
struct MwmReader {
    fits: Fits,
    file: Arc<str>,
    arms: Vec<Arm>,
    /// HDU, row there and arm of each spectrum.
    spectra: Vec<(usize, usize, usize)>,
    next: usize,
}

impl MwmReader {
    /// Opens a file: finds the spectra of the selected arms, and checks that those of an arm share a grid.
    fn open(mut fits: Fits, selection: &Selection) -> Result<MwmReader> {
        let (mut arms, mut spectra): (Vec<Arm>, Vec<_>) = (Vec::new(), Vec::new());
        for (table, name) in TABLES {
            let is_selected = selection
                .arms
                .as_ref()
                .is_none_or(|chosen| chosen.iter().any(|other| other == name));
            let Some(index) = fits.find(table)?.filter(|_| is_selected) else {
                continue;
            };
            let rows = fits.table(index)?.rows;
            if rows == 0 {
                continue;
            }
            let grid = grid(&mut fits, index)?;
            let arm = match arms.iter().position(|arm| arm.name == name) {
                Some(arm) if arms.get(arm).is_some_and(|other| *other.grid == *grid) => arm,
                Some(_) => {
                    return Err(fits.mismatch(
                        index,
                        format!("another table of arm {name} has another grid"),
                    ));
                }
                None => {
                    let rule = MaskRule::new(
                        if name == "boss" { BAD_BOSS } else { BAD },
                        selection.widen.as_ref(),
                    );
                    arms.push(Arm {
                        name,
                        grid: grid.into(),
                        rule,
                        has_flags: false,
                    });
                    arms.len() - 1
                }
            };
            let has_flags = fits.table(index)?.column(FLAGS).is_some();
            arms.iter_mut()
                .skip(arm)
                .take(1)
                .for_each(|arm| arm.has_flags |= has_flags);
            spectra.extend((0..rows).map(|row| (index, row, arm)));
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
        fits.begin_batch()?;
        fits.take(spectra.len(), 3 * size_of::<usize>())?;
        fits.take(
            arms.iter().map(|arm| arm.grid.len()).sum(),
            2 * size_of::<f64>(),
        )?;
        fits.keep();
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
    fn arrays(&mut self, index: usize, arm: usize, bytes: &[u8]) -> Result<Arrays> {
        let fits = &mut self.fits;
        let table = fits.table(index)?;
        let weight =
            weight(table).ok_or_else(|| fits.fault(index, "has neither IVAR nor E_FLUX"))?;
        let size = table.column(FLAGS).map(|flags| flags.integer_bytes());
        let rule = self.arms.get(arm).map(|arm| &arm.rule);
        let flux = fits.numbers_of_rows(index, "FLUX", bytes, |x| x)?;
        let from_error = |e: f64| if e > 0.0 { (e * e).recip() } else { 0.0 };
        let to_ivar = |x| if weight == "IVAR" { x } else { from_error(x) };
        let ivar = fits.numbers_of_rows(index, weight, bytes, to_ivar)?;
        let mask = match (size, rule) {
            (Some(size), Some(rule)) => {
                fits.numbers_of_rows(index, FLAGS, bytes, |x| rule.judge_number(x, size))?
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
    fn id(&self, index: usize, row: usize, bytes: &[u8]) -> Result<String> {
        let name = self.fits.hdus.get(index).map_or("", |hdu| &hdu.name);
        let table = self.fits.table(index)?;
        let is_visit = table.column("MJD").is_some() || table.rows > 1;
        let own = match table
            .column("SDSS_ID")
            .map(|column| column.decode_values(bytes, table.row_bytes))
        {
            Some(Ok(ColumnValues::I64(ids))) => ids.first().map(i64::to_string),
            _ => self.fits.header(0)?.name("SDSS_ID"),
        };
        let star = own.unwrap_or_else(|| stem(&self.fits.path));
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
        let some = self
            .spectra
            .get(self.next..end)
            .unwrap_or_default()
            .to_vec();
        if some.is_empty() {
            return Ok(None);
        }
        self.fits.begin_batch()?;
        let pixels: Vec<usize> = self.arms.iter().map(|arm| arm.grid.len()).collect();
        self.fits.take(
            some.len().saturating_mul(pixels.iter().sum()),
            2 * size_of::<f64>() + 1,
        )?;
        let mut arrays: Vec<Arrays> = vec![Default::default(); self.arms.len()];
        let mut ids = Vec::new();
        for &(index, row, own) in &some {
            let bytes = self.fits.rows(index, &[row])?;
            ids.push(self.id(index, row, &bytes)?);
            let read = self.arrays(index, own, &bytes)?;
            for (arm, ((flux, ivar, mask), &count)) in arrays.iter_mut().zip(&pixels).enumerate() {
                if arm == own {
                    flux.extend(&read.0);
                    ivar.extend(&read.1);
                    mask.extend(&read.2);
                } else {
                    // a spectrum of the other instrument: no pixel counts
                    flux.resize(flux.len() + count, 0.0);
                    ivar.resize(ivar.len() + count, 0.0);
                    mask.resize(mask.len() + count, PixelMask::Masked);
                }
            }
        }
        let mut arms = Vec::new();
        for (arm, (flux, ivar, mask)) in self.arms.iter().zip(arrays) {
            let grid = Wavelength::Shared(arm.grid.clone());
            let data = ArmSpectra::new(arm.name, arm.grid.len(), grid, flux, ivar, None)?;
            arms.push(data.with_pixels(mask, arm.rule.applied(arm.has_flags))?);
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
            widening: arm.rule.applied(arm.has_flags),
        });
        let (rows, ids, columns) = (Vec::new(), Ids::Text(Vec::new()), Vec::new());
        Spectra {
            file: self.file.clone(),
            rows,
            ids,
            arms: arms.collect(),
            columns,
        }
    }
}

/// Returns the wavelength grid of a table's spectra (Å): log₁₀ λ = CRVAL + CDELT · (pixel − CRPIX), or else the column
/// WAVELENGTH, whose rows must agree. Where both are there, they must agree.
fn grid(fits: &mut Fits, index: usize) -> Result<Vec<f64>> {
    let (table, header) = (fits.table(index)?.clone(), fits.header(index)?.clone());
    let pixels = table.column("FLUX").map_or(0, |column| column.repeat());
    refuse_other_units(fits, index, header.text("CUNIT"))?;
    fits.take(pixels, 4 * size_of::<f64>())?;
    let is_log = header
        .text("CTYPE")
        .is_none_or(|kind| kind.trim().to_uppercase().starts_with("LOG"));
    let start = header
        .float("CRVAL")
        .filter(|start| is_log && (2.0..6.0).contains(start));
    let mut grid = None;
    if let (Some(start), Some(step)) = (start, header.float("CDELT")) {
        let first = header.float("CRPIX").unwrap_or(1.0);
        grid = Some(
            (1..=pixels)
                .map(|j| 10f64.powf(start + step * (j as f64 - first)))
                .collect::<Vec<f64>>(),
        );
    }
    if table.column("WAVELENGTH").is_some() {
        for row in 0..table.rows {
            let bytes = fits.rows(index, &[row])?;
            let own = fits.numbers_of_rows(index, "WAVELENGTH", &bytes, |x| x)?;
            let known = grid.get_or_insert_with(|| own.clone());
            let is_same = |(a, b): (&f64, &f64)| (a - b).abs() <= ROUNDING * a.abs();
            if own.len() != pixels || !own.iter().zip(known.iter()).all(is_same) {
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
    check_grid(&grid, &fits.what(index))?;
    Ok(grid)
}
