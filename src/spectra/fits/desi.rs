//! DESI's coadd and spectra files, by the names of their HDUs: FIBERMAP, SCORES,
//! {B,R,Z}_{WAVELENGTH,FLUX,IVAR,MASK,RESOLUTION}.

use std::collections::HashSet;
use std::sync::Arc;

use super::desi_arm::DesiArm;
use super::{Selection, SurveyFormat};
use crate::error::{Error, Result};
use crate::io::fits::columns::TableColumns;
use crate::io::fits::hdu::{Fits, Hdu, HduKind};
use crate::spectra::widening::{ALL_BITS, MaskRule};
use crate::spectra::{Column, ColumnValues, Ids, Spectra, SpectraReader};

/// Columns of a FIBERMAP with the status of fibres: of a single exposure, and of a coadd.
const FIBER_STATUS_COLUMNS: [&str; 2] = ["FIBERSTATUS", "COADD_FIBERSTATUS"];
/// Bits of a fibre's status with which its spectrum is good: a positioner with a restricted range, many bad columns.
const GOOD_STATUS_BITS: i64 = 1 << 3 | 1 << 20;

/// Number of rows that are checked against the selection at once.
const ROWS_PER_SCAN: usize = 256;

/// Yields the selected spectra of a DESI file.
pub(super) struct DesiReader {
    fits: Fits,
    file: Arc<str>,
    arms: Vec<DesiArm>,
    /// Index of the HDU FIBERMAP.
    fibermap: usize,
    tables: Vec<TableColumns>,
    /// Selected rows of the file.
    rows: Vec<usize>,
    /// Index in `rows` of the next spectrum.
    next: usize,
    notes: Vec<String>,
}

/// DESI's coadds: an HDU FIBERMAP, and arms of images.
pub(super) const COADD_FORMAT: SurveyFormat = SurveyFormat {
    name: "a DESI coadd (FIBERMAP, B_FLUX, …)",
    selects_rows: true,
    matches: DesiReader::matches,
    open: |fits, selection| Ok(Box::new(DesiReader::open(fits, selection)?)),
};

impl DesiReader {
    /// Returns whether a file has DESI's layout: a table FIBERMAP with TARGETIDs, and images with names in `_FLUX`.
    pub fn matches(fits: &Fits) -> bool {
        let is_fibermap = |hdu: &Hdu| match &hdu.kind {
            HduKind::Table(table) => hdu.name == "FIBERMAP" && table.column("TARGETID").is_some(),
            _ => false,
        };
        let is_flux =
            |hdu: &Hdu| matches!(hdu.kind, HduKind::Image(_)) && hdu.name.ends_with("_FLUX");
        fits.hdus.iter().any(is_fibermap) && fits.hdus.iter().any(is_flux)
    }

    /// Opens a DESI file: its selected arms, the tables FIBERMAP and SCORES, and the rows that the selection keeps.
    pub fn open(mut fits: Fits, selection: &Selection) -> Result<DesiReader> {
        // 1. Open the selected arms.
        let mut notes = Vec::new();
        let mut arms = Vec::new();
        let rule = MaskRule::new(ALL_BITS, selection.widen.as_ref());
        for name in arm_names(&fits) {
            if selection
                .arms
                .as_ref()
                .is_none_or(|selected| selected.contains(&name))
            {
                arms.push(DesiArm::open(&mut fits, &name, &rule, &mut notes)?);
            }
        }
        let Some(first_arm) = arms.first() else {
            let selected = selection
                .arms
                .iter()
                .flatten()
                .cloned()
                .collect::<Vec<_>>()
                .join(", ");
            return Err(Error::format(
                &fits.path,
                format!("none of the arms {selected}"),
            ));
        };
        // 2. Check that the arms agree in their numbers of spectra and optional images.
        let length = first_arm.length;
        if let Some(arm) = arms.iter().find(|arm| arm.length != length) {
            let message = format!(
                "{} spectra, but {length} in arm {}",
                arm.length, first_arm.name
            );
            return Err(fits.mismatch(arm.flux, message));
        }
        for arm in &arms {
            for (image, exists) in arm.optional_images() {
                let is_in_other_arm = arms
                    .iter()
                    .any(|other| other.optional_images().contains(&(image, true)));
                if !exists && is_in_other_arm {
                    let message = format!(
                        "arm {} has no {image}, but another has: is the file cut?",
                        arm.name
                    );
                    return Err(Error::format(&fits.path, message));
                }
            }
        }
        // 3. Open the tables.
        let mut tables = Vec::new();
        for name in ["FIBERMAP", "SCORES"] {
            if let Some(index) = fits.find_hdu(name)? {
                let table = fits.table(index)?;
                if table.rows != length {
                    let message = format!("{} rows for {length} spectra", table.rows);
                    return Err(fits.mismatch(index, message));
                }
                tables.push(TableColumns::new(&fits, index, &mut notes)?);
            }
        }
        let fibermap = fits
            .find_hdu("FIBERMAP")?
            .ok_or_else(|| Error::format(&fits.path, "no HDU FIBERMAP"))?;
        // 4. Select the rows.
        let file = Arc::from(fits.path.display().to_string());
        let mut reader = DesiReader {
            fits,
            file,
            arms,
            fibermap,
            tables,
            rows: Vec::new(),
            next: 0,
            notes,
        };
        reader.rows = reader.select_rows(length, selection)?;
        reader.fits.close();
        Ok(reader)
    }

    /// Reads the TARGETIDs of these rows of the FIBERMAP, in their order.
    fn read_target_ids(&mut self, rows: &[usize]) -> Result<Vec<i64>> {
        match self.fits.read_column(self.fibermap, "TARGETID", rows)? {
            Some(ColumnValues::I64(ids)) => Ok(ids),
            Some(ColumnValues::I32(ids)) => Ok(ids.into_iter().map(i64::from).collect()),
            Some(_) => Err(self
                .fits
                .fault(self.fibermap, "column TARGETID is not of signed integers")),
            None => Err(self.fits.fault(self.fibermap, "no column TARGETID")),
        }
    }

    /// Returns the rows, of `length` in all, that pass the selection by target, object type and signal-to-noise ratio.
    fn select_rows(&mut self, length: usize, selection: &Selection) -> Result<Vec<usize>> {
        let mut selected = Vec::new();
        let target_ids = selection
            .target_ids
            .as_ref()
            .map(|ids| ids.iter().collect::<HashSet<_>>());
        // 1. Reserve memory for all rows and the selected ones, and keep it with that of the grids.
        self.fits.charge_memory(length, 2 * size_of::<usize>())?;
        self.fits.keep_charged_memory();
        let all_rows: Vec<usize> = (0..length).collect();
        let mut bad_fibres = 0;
        // 2. Check the rows in chunks, by target, object type and signal-to-noise ratio, the most expensive test.
        for rows in all_rows.chunks(ROWS_PER_SCAN) {
            self.fits.begin_batch()?;
            let mut keep = vec![true; rows.len()];
            if selection.good_fibres {
                keep = self.find_good_fibres(rows)?;
                bad_fibres += keep.iter().filter(|is_good| !**is_good).count();
            }
            let ids = self.read_target_ids(rows)?;
            if let Some(target_ids) = &target_ids {
                keep.iter_mut()
                    .zip(&ids)
                    .for_each(|(keep, id)| *keep &= target_ids.contains(id));
            }
            if let Some(selected_type) = &selection.objtype {
                let Some(ColumnValues::Text(types)) =
                    self.fits.read_column(self.fibermap, "OBJTYPE", rows)?
                else {
                    return Err(self.fits.fault(self.fibermap, "no column OBJTYPE of text"));
                };
                keep.iter_mut()
                    .zip(&types)
                    .for_each(|(keep, object_type)| *keep &= object_type == selected_type);
            }
            if let Some(min_ratio) = selection.min_signal_to_noise {
                for (keep, &row) in keep.iter_mut().zip(rows) {
                    *keep = *keep && self.best_signal_to_noise(row)? >= min_ratio;
                }
            }
            for (&row, keep) in rows.iter().zip(keep) {
                if keep {
                    selected.push(row);
                }
            }
        }
        if bad_fibres > 0 {
            self.notes.push(format!(
                "{}: of {length} fibres {bad_fibres} with a bad FIBERSTATUS (bits other than 3 and 20) are left out; \
                 --any-fiberstatus, or any_fiberstatus in Python's select, fits them, too",
                self.file
            ));
        }
        Ok(selected)
    }

    /// Returns for each of these rows whether the status of its fibre is good; all are where the file has no statuses.
    fn find_good_fibres(&mut self, rows: &[usize]) -> Result<Vec<bool>> {
        for name in FIBER_STATUS_COLUMNS {
            let Some(statuses) = self.fits.read_column(self.fibermap, name, rows)? else {
                continue;
            };
            if matches!(
                statuses,
                ColumnValues::F32(_) | ColumnValues::F64(_) | ColumnValues::Text(_)
            ) {
                let message = format!(
                    "column {name} is not of integers; --any-fiberstatus fits all fibres without reading it"
                );
                return Err(self.fits.fault(self.fibermap, message));
            }
            let is_good = |row| {
                let status = statuses.number(row).unwrap_or(0.0) as i64;
                status & !GOOD_STATUS_BITS == 0
            };
            return Ok((0..rows.len()).map(is_good).collect());
        }
        Ok(vec![true; rows.len()])
    }

    /// Returns the largest of the arms' median signal-to-noise ratios per pixel for the spectrum in this row.
    fn best_signal_to_noise(&mut self, row: usize) -> Result<f64> {
        let mut largest_ratio = f64::NEG_INFINITY;
        for arm in &self.arms {
            self.fits.begin_batch()?;
            largest_ratio = largest_ratio.max(arm.signal_to_noise(&mut self.fits, row)?);
        }
        Ok(largest_ratio)
    }
}

impl SpectraReader for DesiReader {
    fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        let end = self.next.saturating_add(max.max(1)).min(self.rows.len());
        if end == self.next {
            return Ok(None);
        }
        self.fits.begin_batch()?;
        let rows = self.rows.get(self.next..end).unwrap_or_default().to_vec();
        let ids = Ids::Integer(self.read_target_ids(&rows)?);
        let mut arms = Vec::with_capacity(self.arms.len());
        for arm in &self.arms {
            arms.push(arm.read_rows(&mut self.fits, &rows)?);
        }
        let mut columns: Vec<Column> = Vec::new();
        for table in &self.tables {
            table.read(&mut self.fits, &rows, &mut columns)?;
        }
        self.next = end;
        let rows = rows.into_iter().map(|row| row as u64).collect();
        Ok(Some(Spectra {
            file: self.file.clone(),
            rows,
            ids,
            arms,
            columns,
            exposures: None,
        }))
    }

    fn empty(&self) -> Spectra<'static> {
        let arms = self.arms.iter().map(DesiArm::empty).collect();
        let columns = self.tables.iter().flat_map(TableColumns::empty).collect();
        Spectra {
            file: self.file.clone(),
            rows: Vec::new(),
            ids: Ids::Integer(Vec::new()),
            arms,
            columns,
            exposures: None,
        }
    }

    fn ids(&mut self) -> Result<Option<Ids>> {
        let rows = self.rows.clone();
        let mut ids = Vec::with_capacity(rows.len());
        for rows in rows.chunks(ROWS_PER_SCAN) {
            self.fits.begin_batch()?;
            ids.extend(self.read_target_ids(rows)?);
        }
        Ok(Some(Ids::Integer(ids)))
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Returns the names of the arms in lower case, in the order of the file: whatever precedes `_WAVELENGTH`, `_FLUX`,
/// `_IVAR` or `_RESOLUTION`.
fn arm_names(fits: &Fits) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for hdu in &fits.hdus {
        let suffixes = ["_WAVELENGTH", "_FLUX", "_IVAR", "_RESOLUTION"];
        let prefix = suffixes
            .iter()
            .find_map(|suffix| hdu.name.strip_suffix(suffix))
            .map(str::to_lowercase);
        if let Some(name) = prefix.filter(|name| !name.is_empty() && !names.contains(name)) {
            names.push(name);
        }
    }
    names
}
