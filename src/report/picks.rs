//! Choice of the rows of the stream whose spectra are drawn, and those spectra.
//!
//! There are up to 40 that were asked for by their ids, one for each of four causes of a missing fit, the eight with
//! the largest χ²/dof, a fixed pseudo-random sample, of which the four nearest the median are drawn, and six candidates
//! for each flag.

use std::collections::{BTreeMap, BTreeSet};

use super::best::TopEntries;
use super::collect::{Collector, reduced_chi_square};
use crate::flag::FLAG_DESCRIPTIONS;
use crate::spectra::Spectra;
use crate::spectral::FitRow;

/// Maximum number of rows drawn because their ids were asked for.
pub const MOST_REQUESTED: usize = 40;
/// Number of rows with the largest χ²/dof.
const WORST_ROWS: usize = 8;
/// Maximum number of rows without a fit, one for each cause.
const MAX_FAILURE_CAUSES: usize = 4;
/// Number of rows in the sample, of which those nearest the median χ²/dof are drawn.
const SAMPLE_ROWS: usize = 24;
/// Number of candidates for the gallery of each flag. Some of them are drawn under another heading.
const CANDIDATES_PER_FLAG: usize = 6;

/// A row that may be drawn, with its place in the input.
#[derive(Clone, Copy, Debug)]
pub struct PickedRow<'a> {
    pub input_index: u64,
    pub row: &'a FitRow,
}

/// Bounded lists of rows, and the spectra of those rows that have been seen.
#[derive(Debug)]
pub struct Picks {
    requested_ids: BTreeSet<String>,
    found_ids: BTreeSet<String>,
    requested: TopEntries<FitRow>,
    worst: TopEntries<FitRow>,
    failed: BTreeMap<String, (u64, FitRow)>,
    sample: TopEntries<FitRow>,
    /// One list per flag, in the order of [`FLAG_DESCRIPTIONS`].
    flagged: Vec<TopEntries<FitRow>>,
    /// Spectra of picked rows, each alone, by the row's place in the input.
    spectra: BTreeMap<u64, Spectra<'static>>,
}

impl Picks {
    /// Returns an empty choice of rows whose spectra a report draws.
    pub fn new() -> Picks {
        Picks {
            requested_ids: BTreeSet::new(),
            found_ids: BTreeSet::new(),
            requested: TopEntries::new(MOST_REQUESTED),
            worst: TopEntries::new(WORST_ROWS),
            failed: BTreeMap::new(),
            sample: TopEntries::new(SAMPLE_ROWS),
            flagged: FLAG_DESCRIPTIONS
                .iter()
                .map(|_| TopEntries::new(CANDIDATES_PER_FLAG))
                .collect(),
            spectra: BTreeMap::new(),
        }
    }

    /// Asks that rows with these ids are chosen when they are offered.
    pub fn request(&mut self, ids: &[String]) {
        self.requested_ids.extend(ids.iter().cloned());
    }

    /// Returns the requested ids that no offered row had.
    pub fn missing_ids(&self) -> Vec<&str> {
        self.requested_ids
            .difference(&self.found_ids)
            .map(String::as_str)
            .collect()
    }

    /// Takes the row with index `input_index` in the input into every list it suits: requested, worst, failed, sample,
    /// flagged.
    pub fn offer(&mut self, input_index: u64, row: &FitRow) {
        let copy_row = || row.clone();
        if !self.requested_ids.is_empty() {
            let id = row.id.to_string();
            if self.requested_ids.contains(&id) {
                self.found_ids.insert(id);
                self.requested.offer(0.0, input_index, copy_row);
            }
        }
        if Collector::is_plotted(row) {
            self.worst
                .offer(reduced_chi_square(row), input_index, copy_row);
            self.sample
                .offer(scramble(input_index), input_index, copy_row);
        } else if self.failed.len() < MAX_FAILURE_CAUSES
            && !self.failed.contains_key(&row.status_text)
        {
            self.failed
                .insert(row.status_text.clone(), (input_index, copy_row()));
        }
        // an example with few other flags is better
        let example_key = scramble(input_index) - f64::from(row.flags.bits().count_ones());
        for (flag, candidates) in FLAG_DESCRIPTIONS.iter().zip(&mut self.flagged) {
            if row.flags.bits() & flag.bit != 0 {
                candidates.offer(example_key, input_index, copy_row);
            }
        }
    }

    /// Keeps the spectra of chosen rows in a batch whose first row has the index `first_index`; drops those no longer
    /// chosen.
    pub fn keep_spectra(&mut self, first_index: u64, spectra: &Spectra) {
        let picked: BTreeSet<u64> = self.picked_rows().map(|pick| pick.input_index).collect();
        self.spectra
            .retain(|input_index, _| picked.contains(input_index));
        for &input_index in picked.range(first_index..first_index + spectra.rows.len() as u64) {
            let k = (input_index - first_index) as usize;
            self.spectra.insert(input_index, spectra.slice(k..k + 1));
        }
    }

    /// Keeps the spectra of chosen rows in a file, found by row and id, and by file name if the table is of
    /// `several_files`.
    pub fn attach_spectra(&mut self, spectra: &Spectra, several_files: bool) {
        // 1. If no chosen row has the file's path, the table may have been made elsewhere, so compare names only.
        let path_is_known = self.picked_rows().any(|pick| pick.row.file == spectra.file);
        let is_from_file = |pick: &PickedRow| {
            if !several_files {
                true
            } else if path_is_known {
                pick.row.file == spectra.file
            } else {
                file_name(&pick.row.file) == file_name(&spectra.file)
            }
        };
        // 2. Find the chosen rows in the file.
        let mut spectrum_of_row: BTreeMap<u64, usize> = BTreeMap::new();
        for (k, row) in spectra.rows.iter().enumerate() {
            spectrum_of_row.insert(*row, k);
        }
        let mut matches = Vec::new();
        for pick in self.picked_rows().filter(is_from_file) {
            if let Some(&k) = spectrum_of_row.get(&pick.row.row)
                && spectra.ids.text(k) == pick.row.id.to_string()
            {
                matches.push((pick.input_index, k));
            }
        }
        // 3. Keep their spectra, each alone.
        for (input_index, k) in matches {
            self.spectra
                .entry(input_index)
                .or_insert_with(|| spectra.slice(k..k + 1));
        }
    }

    /// Returns the spectrum of a chosen row; `None` if it has not been read.
    pub fn spectrum(&self, pick: &PickedRow) -> Option<&Spectra<'_>> {
        self.spectra.get(&pick.input_index)
    }

    /// Returns (chosen rows, those of them whose spectra have been kept).
    pub fn counts(&self) -> (usize, usize) {
        let picked: BTreeSet<u64> = self.picked_rows().map(|pick| pick.input_index).collect();
        let with_spectra = picked
            .iter()
            .filter(|input_index| self.spectra.contains_key(input_index))
            .count();
        (picked.len(), with_spectra)
    }

    /// Returns the chosen rows with requested ids, in the order of the input.
    pub fn requested(&self) -> impl Iterator<Item = PickedRow<'_>> {
        picked_rows_of(&self.requested)
    }

    /// Returns the first row of each of up to four causes of failure, sorted by cause, among rows without a figure.
    pub fn failed(&self) -> impl Iterator<Item = PickedRow<'_>> {
        self.failed.values().map(|(input_index, row)| PickedRow {
            input_index: *input_index,
            row,
        })
    }

    /// Returns the chosen rows with the largest χ²/dof, the largest first.
    pub fn worst(&self) -> impl Iterator<Item = PickedRow<'_>> {
        picked_rows_of(&self.worst)
    }

    /// Returns a pseudo-random sample of the fits, the same one in every run.
    pub fn sample(&self) -> impl Iterator<Item = PickedRow<'_>> {
        picked_rows_of(&self.sample)
    }

    /// Returns chosen rows with the flag at index `flag` of [`FLAG_DESCRIPTIONS`], those with few other flags first.
    pub fn flagged(&self, flag: usize) -> impl Iterator<Item = PickedRow<'_>> {
        picked_rows_of(&self.flagged[flag])
    }

    /// Returns the chosen rows of all lists, some of them several times.
    fn picked_rows(&self) -> impl Iterator<Item = PickedRow<'_>> {
        let flagged = self.flagged.iter().flat_map(picked_rows_of);
        self.requested()
            .chain(self.failed())
            .chain(self.worst())
            .chain(self.sample())
            .chain(flagged)
    }
}

/// Returns the rows of a list with their indices in the input, the row with the largest key first.
fn picked_rows_of(entries: &TopEntries<FitRow>) -> impl Iterator<Item = PickedRow<'_>> {
    entries
        .iter()
        .map(|(input_index, row)| PickedRow { input_index, row })
}

/// Returns the part of a path after its last `/` or `\`.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Returns a pseudo-random number from 0 to 1 that depends on `input_index` alone (the finaliser of `SplitMix64`).
fn scramble(input_index: u64) -> f64 {
    let mut z = input_index
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ z >> 31) as f64 / u64::MAX as f64
}
