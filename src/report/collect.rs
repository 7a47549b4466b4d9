//! Data that the report keeps of the rows that stream by: counts, a few numbers per row, the worst rows, a few spectra.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::best::TopEntries;
pub use super::picks::MOST_REQUESTED;
use super::picks::Picks;
use crate::error::Result;
use crate::spectra::Spectra;
use crate::spectral::{FitRow, FlagCounts, Sink};
use crate::threads;

/// Maximum number of rows in the page's table, worst first.
pub const MAX_TABLE_ROWS: usize = 2000;
/// Number of failed fits among them, if there are more rows than that.
const MIN_FAILED_TABLE_ROWS: usize = 500;
/// Approximate number of pixels for the median signal-to-noise ratio: enough for a histogram, and cheaper than a fit.
const SIGNAL_TO_NOISE_PIXELS: usize = 512;

/// A row, with the signal-to-noise ratio of its spectrum (NaN when unknown).
#[derive(Clone, Debug)]
pub struct KeptRow {
    pub row: FitRow,
    pub sn: f64,
}

/// Numbers of rows that are to be drawn, and that can be.
#[derive(Clone, Debug)]
pub struct PickedCounts {
    /// Rows to be drawn, or from which those to be drawn are chosen.
    pub rows: usize,
    /// Rows of these whose spectra have been seen.
    pub spectra: usize,
    /// Ids that were asked for, and whose rows are there, but not their spectra.
    pub requested_without_spectrum: Vec<String>,
}

/// Collector of the rows of a run. Its memory is bounded, except for 2 + 2 P four-byte numbers per row.
#[derive(Debug)]
pub struct Collector {
    pub(super) parameters: Vec<String>,
    pub(super) count: u64,
    pub(super) converged: u64,
    pub(super) flagged: u64,
    /// Numbers of rows by status code and text.
    pub(super) outcomes: BTreeMap<(i32, String), u64>,
    pub(super) flags: FlagCounts,
    /// Rows of fits with finite parameters: χ²/dof, S/N, then value and error of each parameter.
    pub(super) points: Vec<f32>,
    failed_rows: TopEntries<KeptRow>,
    fitted_rows: TopEntries<KeptRow>,
    pub(super) several_files: bool,
    first_file: Option<std::sync::Arc<str>>,
    pub(super) picks: Picks,
}

impl Collector {
    /// Returns a collector of rows for a report, still without any; `parameters` are the names of the free parameters.
    pub fn new(parameters: &[String]) -> Collector {
        Collector {
            parameters: parameters.to_vec(),
            count: 0,
            converged: 0,
            flagged: 0,
            outcomes: BTreeMap::new(),
            flags: FlagCounts::new(parameters),
            points: Vec::new(),
            failed_rows: TopEntries::new(MAX_TABLE_ROWS),
            fitted_rows: TopEntries::new(MAX_TABLE_ROWS),
            several_files: false,
            first_file: None,
            picks: Picks::new(),
        }
    }

    /// Asks that the report draws the spectra with these ids; call it before any row is added. More than
    /// [`MOST_REQUESTED`] rows are not drawn.
    pub fn request(&mut self, ids: &[String]) {
        self.picks.request(ids);
    }

    /// Returns the ids that were requested but that no added row had.
    pub fn missing_ids(&self) -> Vec<&str> {
        self.picks.missing_ids()
    }

    /// Keeps, from a file that is read after all rows were added, the spectra of those rows that the report draws.
    pub fn attach_spectra(&mut self, spectra: &Spectra) {
        self.picks.attach_spectra(spectra, self.several_files);
    }

    /// Returns how many rows the report is to draw, how many of their spectra it has, and which requested spectra it
    /// lacks.
    pub fn picked(&self) -> PickedCounts {
        let (rows, spectra) = self.picks.counts();
        let requested = self
            .picks
            .requested()
            .filter(|pick| self.picks.spectrum(pick).is_none());
        PickedCounts {
            rows,
            spectra,
            requested_without_spectrum: requested.map(|pick| pick.row.id.to_string()).collect(),
        }
    }

    /// Adds rows of a result table to the report's counts and figures, without their spectra.
    pub fn add(&mut self, rows: &[FitRow]) {
        for row in rows {
            self.count_row(row, f64::NAN);
        }
    }

    /// Adds rows to the report together with their spectra, number k of which belongs to row k.
    pub fn add_with_spectra(&mut self, spectra: &Spectra, rows: &[FitRow]) {
        let ratios: Vec<f64> = threads::in_pool(|| {
            (0..rows.len())
                .into_par_iter()
                .map(|k| median_signal_to_noise(spectra, k))
                .collect()
        });
        let first_index = self.count;
        for (row, ratio) in rows.iter().zip(ratios) {
            self.count_row(row, ratio);
        }
        self.picks.keep_spectra(first_index, spectra);
    }

    /// Returns (index in the input, row) of the rows in the page's table: failed fits, then the largest χ²/dof.
    pub(super) fn table_rows(&self) -> impl Iterator<Item = (u64, &KeptRow)> {
        let fitted_rows = self.fitted_rows.iter().count();
        let max_failed_rows = MIN_FAILED_TABLE_ROWS.max(MAX_TABLE_ROWS - fitted_rows);
        self.failed_rows
            .iter()
            .take(max_failed_rows)
            .chain(self.fitted_rows.iter())
            .take(MAX_TABLE_ROWS)
    }

    /// Returns whether the figures show this row: it converged or ran out of rounds, and all parameters are finite.
    pub(super) fn is_plotted(row: &FitRow) -> bool {
        row.status.code() >= 0 && row.parameters.iter().all(|x| x.is_finite())
    }

    /// Returns how many numbers are stored per plotted fit: χ²/dof, S/N, then value and error of each parameter.
    pub(super) fn numbers_per_point(&self) -> usize {
        2 + 2 * self.parameters.len()
    }

    /// Returns one number of every plotted fit: that at index `number` in the order of
    /// [`numbers_per_point`](Collector::numbers_per_point).
    pub(super) fn point_values(&self, number: usize) -> Vec<f64> {
        self.points
            .chunks_exact(self.numbers_per_point())
            .map(|point| f64::from(point[number]))
            .collect()
    }

    /// Adds a row, with its signal-to-noise ratio `sn` (NaN if unknown), to all counts and lists of the report.
    fn count_row(&mut self, row: &FitRow, sn: f64) {
        let input_index = self.count;
        self.picks.offer(input_index, row);
        // 1. Count the row by status and flags.
        self.count += 1;
        self.converged += u64::from(row.status.is_success());
        self.flagged += u64::from(!row.flags.is_empty());
        let status = if row.status_text.is_empty() {
            row.status.name()
        } else {
            &row.status_text
        };
        let outcome = (row.status.code(), status.to_string());
        *self.outcomes.entry(outcome).or_default() += 1;
        self.flags.add(row);
        // 2. Keep its numbers for the figures.
        if Collector::is_plotted(row) {
            self.points.push(reduced_chi_square(row) as f32);
            self.points.push(sn as f32);
            for (value, error) in row.parameters.iter().zip(&row.errors) {
                self.points.push(*value as f32);
                self.points.push(*error as f32);
            }
        }
        let first_file = self.first_file.get_or_insert_with(|| row.file.clone());
        self.several_files |= *first_file != row.file;
        // 3. Offer it to the table, whose failed and other fits are sorted apart.
        let copy_row = || KeptRow {
            row: row.clone(),
            sn,
        };
        match row.status.code() {
            0.. => self
                .fitted_rows
                .offer(rank_by_misfit(row), input_index, copy_row),
            code => self
                .failed_rows
                .offer(f64::from(-code), input_index, copy_row),
        }
    }
}

impl Sink for Collector {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        self.add_with_spectra(spectra, rows);
        Ok(())
    }
}

/// Returns the row's reduced chi-square, χ²/dof; NaN without degrees of freedom.
pub fn reduced_chi_square(row: &FitRow) -> f64 {
    if row.dof > 0 {
        row.chi2 / row.dof as f64
    } else {
        f64::NAN
    }
}

/// Returns the row's χ²/dof, by which the worst fits are found, or the largest f64 where it is not finite.
fn rank_by_misfit(row: &FitRow) -> f64 {
    let reduced = reduced_chi_square(row);
    if reduced.is_finite() {
        reduced
    } else {
        f64::MAX
    }
}

/// Returns spectrum `k`'s median |flux| / error over usable pixels (a sample, if there are many); NaN without any.
fn median_signal_to_noise(spectra: &Spectra, k: usize) -> f64 {
    let pixels: usize = spectra.arms.iter().map(|arm| arm.pixels).sum();
    let step = (pixels / SIGNAL_TO_NOISE_PIXELS).max(1);
    let mut ratios: Vec<f64> = Vec::with_capacity(2 * SIGNAL_TO_NOISE_PIXELS);
    for arm in &spectra.arms {
        for j in (k * arm.pixels..(k + 1) * arm.pixels).step_by(step) {
            let is_masked = arm.mask.get(j).is_some_and(|masked| *masked);
            let is_usable = arm.ivar.at(j) > 0.0 && !is_masked;
            let ratio = arm.flux.at(j).abs() * arm.ivar.at(j).sqrt();
            if is_usable && ratio.is_finite() {
                ratios.push(ratio);
            }
        }
    }
    let middle = ratios.len() / 2;
    if ratios.is_empty() {
        f64::NAN
    } else {
        *ratios.select_nth_unstable_by(middle, f64::total_cmp).1
    }
}
