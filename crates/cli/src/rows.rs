//! Text tables, and counts of how fits ended.

use std::collections::BTreeMap;

use popfit::low_level::FlagCounts;
use popfit::low_level::report::Collector;
use popfit::{FitRow, Result, Sink, Spectra, Status};

use super::fit_files::StatusCount;
use super::stdout::line;

/// Maximum width of a column, in characters: longer cells push the others of their row to the right.
const MAX_WIDTH: usize = 200;

/// Prints rows of cells to standard output as a table with aligned columns.
pub fn print(rows: &[Vec<String>]) {
    aligned(rows).for_each(line);
}

/// Returns the rows as lines of text with aligned columns: the first to the left, the others to the right.
pub fn aligned(rows: &[Vec<String>]) -> impl Iterator<Item = String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell_width =
        |row: &Vec<String>, c: usize| row.get(c).map_or(0, |cell| cell.chars().count());
    let widths: Vec<usize> = (0..columns)
        .map(|c| {
            rows.iter()
                .map(|row| cell_width(row, c))
                .max()
                .unwrap_or(0)
                .min(MAX_WIDTH)
        })
        .collect();
    rows.iter().map(move |row| {
        let cells = row.iter().zip(&widths).enumerate();
        let texts: Vec<String> = cells
            .map(|(c, (cell, &width))| {
                if c == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            })
            .collect();
        texts.join("  ").trim_end().to_string()
    })
}

/// Converts texts to the cells of one row of a printed table.
pub fn cells<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_string).to_vec()
}

/// Number of fits that ended with each status (and cause, for `bad_input`).
#[derive(Clone, Default)]
pub struct Counts(BTreeMap<(i32, String), u64>);

impl Counts {
    /// Counts how many rows have each status, in addition to those counted before.
    pub fn add(&mut self, rows: &[FitRow]) {
        for row in rows {
            *self
                .0
                .entry((row.status.code(), row.status_text.clone()))
                .or_default() += 1;
        }
    }

    /// Returns whether any counted fit ended with this status.
    pub fn any(&self, status: Status) -> bool {
        self.0.keys().any(|(code, _)| *code == status.code())
    }

    /// Returns the counts, those of converged fits first.
    pub fn list(&self) -> Vec<StatusCount> {
        let counts = self.0.iter().rev();
        counts
            .map(|((code, text), count)| StatusCount {
                code: *code,
                text: text.clone(),
                count: *count,
            })
            .collect()
    }
}

impl std::fmt::Display for Counts {
    /// Writes how many rows have each status, the converged ones first.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&StatusCount::in_words(&self.list()))
    }
}

/// The first spectra that could not be fitted, and why.
#[derive(Clone, Default)]
pub struct Faults {
    shown: Vec<String>,
    more: u64,
}

impl Faults {
    /// Messages that are kept.
    const SHOWN: usize = 5;

    /// Keeps the messages of rows with unusable spectra; after the first few it only counts them.
    pub fn add(&mut self, rows: &[FitRow]) {
        for row in rows.iter().filter(|row| row.status == Status::BadInput) {
            if self.shown.len() == Self::SHOWN {
                self.more += 1;
                continue;
            }
            let FitRow {
                file,
                row,
                id,
                status_text,
                message,
                ..
            } = row;
            self.shown.push(format!(
                "{file}, row {row}, id {id}: {status_text}: {message}"
            ));
        }
    }

    /// Returns the messages of unusable spectra, and how many more there were.
    pub fn lines(self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("… and {} more", self.more));
        self.shown.into_iter().chain(more).collect()
    }
}

/// Counts what passes through, and shows it to the report where one is wanted.
pub struct CountingSink<'a> {
    sink: &'a mut dyn Sink,
    pub counts: Counts,
    pub faults: Faults,
    pub flags: FlagCounts,
    pub report: Option<Collector>,
}

impl<'a> CountingSink<'a> {
    /// Returns a sink that counts statuses and flags (and fills `report`, if given) before it passes rows on to `sink`.
    pub fn new(
        sink: &'a mut dyn Sink,
        parameters: &[String],
        report: Option<Collector>,
    ) -> CountingSink<'a> {
        let flags = FlagCounts::new(parameters);
        CountingSink {
            sink,
            counts: Counts::default(),
            faults: Faults::default(),
            flags,
            report,
        }
    }
}

impl Sink for CountingSink<'_> {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        self.counts.add(rows);
        self.faults.add(rows);
        rows.iter().for_each(|row| self.flags.add(row));
        if let Some(report) = &mut self.report {
            report.add_with_spectra(spectra, rows);
        }
        self.sink.append(spectra, rows)
    }
}

/// Formats a number to this many significant digits, without an exponent or trailing zeros after the point.
pub fn short(x: f64, digits: i32) -> String {
    if x == 0.0 || !x.is_finite() {
        return x.to_string();
    }
    let decimals = (digits - 1 - x.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{x:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (4200.492309147424, "4200.49"),
            (-0.5, "-0.5"),
            (0.0, "0"),
            (1234567.8, "1234568"),
            (1e-7, "0.0000001"),
        ];
        for (x, text) in cases {
            assert_eq!(short(x, 6), text);
        }
        assert_eq!(short(579.5724, 3), "580");
    }
}
