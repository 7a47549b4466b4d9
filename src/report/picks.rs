//! Choice of the rows of the stream whose spectra are drawn, and those spectra.
//!
//! There are up to 40 that were asked for by their ids, one for each of four causes of a missing fit, the eight with
//! the largest χ²/dof, a fixed pseudo-random sample, of which the four nearest the median are drawn, and six candidates
//! for each flag.

use std::collections::{BTreeMap, BTreeSet};

use super::best::Best;
use super::collect::{Collector, reduced};
use crate::flag::Flags;
use crate::spectra::Spectra;
use crate::spectral::FitRow;

/// Maximum number of rows drawn because their ids were asked for.
pub const MOST_REQUESTED: usize = 40;
/// Number of rows with the largest χ²/dof.
const WORST: usize = 8;
/// Maximum number of rows without a fit, one for each cause.
const FAILED: usize = 4;
/// Number of rows in the sample, of which those nearest the median χ²/dof are drawn.
const SAMPLE: usize = 24;
/// Number of candidates for the gallery of each flag. Some of them are drawn under another heading.
const PER_FLAG: usize = 6;

/// A row that may be drawn, with its place in the input.
#[derive(Clone, Copy, Debug)]
pub struct Pick<'a> {
    pub order: u64,
    pub row: &'a FitRow,
}

/// Bounded lists of rows, and the spectra of those rows that have been seen.
#[derive(Debug)]
pub struct Picks {
    requested_ids: BTreeSet<String>,
    found_ids: BTreeSet<String>,
    requested: Best<FitRow>,
    worst: Best<FitRow>,
    failed: BTreeMap<String, (u64, FitRow)>,
    sample: Best<FitRow>,
    /// One list per flag, in the order of [`Flags::DESCRIPTIONS`].
    flagged: Vec<Best<FitRow>>,
    /// Spectra of picked rows, each alone, by the row's place in the input.
    spectra: BTreeMap<u64, Spectra<'static>>,
}

impl Picks {
    /// Returns an empty choice of rows whose spectra a report draws.
    pub fn new() -> Picks {
        Picks {
            requested_ids: BTreeSet::new(),
            found_ids: BTreeSet::new(),
            requested: Best::new(MOST_REQUESTED),
            worst: Best::new(WORST),
            failed: BTreeMap::new(),
            sample: Best::new(SAMPLE),
            flagged: Flags::DESCRIPTIONS
                .iter()
                .map(|_| Best::new(PER_FLAG))
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

    /// Takes the row with index `order` in the input into every list it suits: requested, worst, failed, sample,
    /// flagged.
    pub fn offer(&mut self, order: u64, row: &FitRow) {
        let keep = || row.clone();
        if !self.requested_ids.is_empty() {
            let id = row.id.to_string();
            if self.requested_ids.contains(&id) {
                self.found_ids.insert(id);
                self.requested.offer(0.0, order, keep);
            }
        }
        if Collector::is_point(row) {
            self.worst.offer(reduced(row), order, keep);
            self.sample.offer(scrambled(order), order, keep);
        } else if self.failed.len() < FAILED && !self.failed.contains_key(&row.status_text) {
            self.failed.insert(row.status_text.clone(), (order, keep()));
        }
        // an example with few other flags is better
        let key = scrambled(order) - f64::from(row.flags.bits().count_ones());
        for (flag, best) in Flags::DESCRIPTIONS.iter().zip(&mut self.flagged) {
            if row.flags.bits() & flag.bit != 0 {
                best.offer(key, order, keep);
            }
        }
    }

    /// Keeps the spectra of chosen rows in a batch whose first row has the index `first`; drops those no longer chosen.
    pub fn keep_spectra(&mut self, first: u64, spectra: &Spectra) {
        let picked: BTreeSet<u64> = self.all().map(|pick| pick.order).collect();
        self.spectra.retain(|order, _| picked.contains(order));
        for &order in picked.range(first..first + spectra.rows.len() as u64) {
            let k = (order - first) as usize;
            self.spectra.insert(order, spectra.slice(k..k + 1));
        }
    }

    /// Keeps the spectra of chosen rows in a file, found by row and id, and by file name if the table is of
    /// `several_files`.
    pub fn attach_spectra(&mut self, spectra: &Spectra, several_files: bool) {
        let same_path = self.all().any(|pick| pick.row.file == spectra.file);
        let is_file = |file: &str| {
            if same_path {
                *file == *spectra.file
            } else {
                file_name(file) == file_name(&spectra.file)
            }
        };
        let same_file = |pick: &Pick| !several_files || is_file(&pick.row.file);
        let places: BTreeMap<u64, usize> = spectra
            .rows
            .iter()
            .enumerate()
            .map(|(k, row)| (*row, k))
            .collect();
        let mut found = Vec::new();
        for pick in self.all().filter(same_file) {
            let place = places
                .get(&pick.row.row)
                .filter(|k| spectra.ids.text(**k) == pick.row.id.to_string());
            found.extend(place.map(|k| (pick.order, *k)));
        }
        for (order, k) in found {
            self.spectra
                .entry(order)
                .or_insert_with(|| spectra.slice(k..k + 1));
        }
    }

    /// Returns the spectrum of a chosen row; `None` if it has not been read.
    pub fn spectrum(&self, pick: &Pick) -> Option<&Spectra<'_>> {
        self.spectra.get(&pick.order)
    }

    /// Returns (chosen rows, those of them whose spectra have been kept).
    pub fn counts(&self) -> (usize, usize) {
        let picked: BTreeSet<u64> = self.all().map(|pick| pick.order).collect();
        (
            picked.len(),
            picked
                .iter()
                .filter(|order| self.spectra.contains_key(order))
                .count(),
        )
    }

    /// Returns the chosen rows with requested ids, in the order of the input.
    pub fn requested(&self) -> impl Iterator<Item = Pick<'_>> {
        picks(&self.requested)
    }

    /// Returns the first row of each of up to four causes of failure, sorted by cause, among rows without a figure.
    pub fn failed(&self) -> impl Iterator<Item = Pick<'_>> {
        self.failed
            .values()
            .map(|(order, row)| Pick { order: *order, row })
    }

    /// Returns the chosen rows with the largest χ²/dof, the largest first.
    pub fn worst(&self) -> impl Iterator<Item = Pick<'_>> {
        picks(&self.worst)
    }

    /// Returns a pseudo-random sample of the fits, the same one in every run.
    pub fn sample(&self) -> impl Iterator<Item = Pick<'_>> {
        picks(&self.sample)
    }

    /// Returns chosen rows with the flag at index `place` of [`Flags::DESCRIPTIONS`], those with few other flags first.
    pub fn flagged(&self, place: usize) -> impl Iterator<Item = Pick<'_>> {
        picks(&self.flagged[place])
    }

    /// Returns the chosen rows of all lists, some of them several times.
    fn all(&self) -> impl Iterator<Item = Pick<'_>> {
        let flagged = self.flagged.iter().flat_map(picks);
        self.requested()
            .chain(self.failed())
            .chain(self.worst())
            .chain(self.sample())
            .chain(flagged)
    }
}

/// Returns the rows of a list with their indices in the input, the row with the largest key first.
fn picks(best: &Best<FitRow>) -> impl Iterator<Item = Pick<'_>> {
    best.iter().map(|(order, row)| Pick { order, row })
}

/// Returns the part of a path after its last `/` or `\`.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Returns a pseudo-random number from 0 to 1 that depends on `order` alone (the finaliser of `SplitMix64`).
fn scrambled(order: u64) -> f64 {
    let mut z = order.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ z >> 31) as f64 / u64::MAX as f64
}
