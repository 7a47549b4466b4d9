//! Text tables, and counts of how fits ended.

use std::collections::BTreeMap;
use std::io::Write;

use popfit::report::Collector;
use popfit::{FitRow, Result, Sink, Spectra};

/// Prints a line. A reader that has gone away (`popfit demo | head`) does not end the run.
pub fn line(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints rows of cells in columns: the first to the left, the others to the right.
pub fn print(rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell_width = |row: &Vec<String>, c: usize| row.get(c).map_or(0, |cell| cell.chars().count());
    let widths: Vec<usize> =
        (0..columns).map(|c| rows.iter().map(|row| cell_width(row, c)).max().unwrap_or(0)).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let texts: Vec<String> = cells
            .map(|(c, (cell, &width))| if c == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") })
            .collect();
        line(texts.join("  ").trim_end());
    }
}

/// A row of a table.
pub fn cells<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_string).to_vec()
}

/// How many fits ended with each status (and cause, for `bad_input`).
#[derive(Default)]
pub struct Counts(BTreeMap<(i32, String), u64>);

impl Counts {
    pub fn add(&mut self, rows: &[FitRow]) {
        for row in rows {
            *self.0.entry((row.status.code(), row.status_text.clone())).or_default() += 1;
        }
    }
}

impl std::fmt::Display for Counts {
    /// Converged first.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<String> = self.0.iter().rev().map(|((_, text), count)| format!("{count} {text}")).collect();
        f.write_str(&all.join(", "))
    }
}

/// Counts what passes through, and shows it to the report where one is wanted.
pub struct Counting<'a> {
    pub sink: &'a mut dyn Sink,
    pub counts: Counts,
    pub report: Option<Collector>,
}

impl Sink for Counting<'_> {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        self.counts.add(rows);
        if let Some(report) = &mut self.report {
            report.add_with_spectra(spectra, rows);
        }
        self.sink.append(spectra, rows)
    }
}
