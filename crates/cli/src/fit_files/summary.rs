//! Summary of a run over files.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use popfit::{Status, Summary};

/// Summary of a run over files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FitFilesSummary {
    /// Rows, devices, times and, if the control asks for it, the profile. Of an interrupted run
    /// [`Summary::interrupted`] is above 0.
    pub summary: Summary,
    /// Number of rows of each status, the converged ones first.
    pub statuses: Vec<StatusCount>,
    /// Reasons why spectra could not be fitted: the first five, and how many more there were.
    pub bad_inputs: Vec<String>,
    /// Sentences about flags that many rows have.
    pub flags: Vec<String>,
    /// Time from the first fit to the finished table.
    pub time: Duration,
    /// Files of a run that writes a table for each ([`FitFiles::per_file`](crate::FitFiles::per_file)); `None` for a
    /// run that writes one table.
    pub per_file: Option<PerFileSummary>,
}

/// Numbers of files of a run that writes a table for each. Rows of files that are not written are not counted in the
/// [`FitFilesSummary`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PerFileSummary {
    /// Number of files whose tables the run has written.
    pub written: usize,
    /// Number of files that were skipped, because their outputs were there.
    pub skipped: usize,
    /// Files that could not be fitted, in the order of the input.
    pub failed: Vec<FailedFile>,
    /// Number of files that a run which was ended early has not written.
    pub left: usize,
}

/// A file of spectra that could not be fitted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedFile {
    /// Path of the file.
    pub file: PathBuf,
    /// The error.
    pub cause: String,
}

impl FailedFile {
    /// Describes the failure of a file.
    pub(super) fn new(file: PathBuf, cause: String) -> FailedFile {
        FailedFile { file, cause }
    }
}

impl fmt::Display for FailedFile {
    /// Writes the file and the cause, which mostly begins with the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display().to_string();
        if self.cause.contains(&file) {
            return f.write_str(&self.cause);
        }
        write!(f, "{file}: {}", self.cause)
    }
}

impl fmt::Display for PerFileSummary {
    /// Writes the numbers of files that are not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = [
            (self.written, "written"),
            (self.skipped, "skipped"),
            (self.failed.len(), "failed"),
            (self.left, "left"),
        ];
        let numbers = numbers.iter().filter(|(number, _)| *number > 0);
        let numbers: Vec<String> = numbers
            .map(|(number, what)| format!("{number} {what}"))
            .collect();
        write!(f, "files: {}", numbers.join(", "))
    }
}

/// Number of rows that ended with a status.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatusCount {
    /// The status' code in the result table.
    pub code: i32,
    /// Its name; for `bad_input` the cause.
    pub text: String,
    /// Number of rows.
    pub count: u64,
}

impl FitFilesSummary {
    /// Returns the number of rows whose fit converged.
    pub fn converged(&self) -> u64 {
        StatusCount::converged(&self.statuses)
    }

    /// Returns how many rows ended with each status, as text.
    pub fn counts(&self) -> String {
        StatusCount::in_words(&self.statuses)
    }
}

impl StatusCount {
    /// Returns whether the fits of this status converged.
    fn is_success(&self) -> bool {
        Status::from_code(self.code).is_some_and(Status::is_success)
    }

    /// Returns the number of rows whose fit converged.
    fn converged(counts: &[StatusCount]) -> u64 {
        counts
            .iter()
            .filter(|status| status.is_success())
            .map(|status| status.count)
            .sum()
    }

    /// Returns counts as text, such as `120 converged, 3 stalled`.
    pub(crate) fn in_words(counts: &[StatusCount]) -> String {
        let converged = Some(StatusCount::converged(counts)).filter(|count| *count > 0);
        let converged = converged.map(|count| format!("{count} converged"));
        let others = counts.iter().filter(|status| !status.is_success());
        let others = others.map(|status| format!("{} {}", status.count, status.text));
        converged
            .into_iter()
            .chain(others)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Returns how many fits a run made itself, without those that it took from an earlier run's journal.
pub(super) fn fitted(summary: &Summary) -> u64 {
    summary.by_device.iter().map(|one| one.rows).sum()
}

impl fmt::Display for FitFilesSummary {
    /// Writes the run in a line: counts by status, time, this run's own fits per second, devices.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary {
            fits,
            interrupted,
            ref by_device,
            ..
        } = self.summary;
        let (fitted, seconds) = (fitted(&self.summary), self.time.as_secs_f64());
        let ended = match self.per_file {
            None => fitted.saturating_sub(interrupted),
            Some(_) => fits,
        };
        let counts = if fits == 0 {
            "nothing to fit".to_string()
        } else {
            self.counts()
        };
        let kept = if fitted < fits && self.per_file.is_none() {
            format!(", of which {} from the journal", fits - fitted)
        } else {
            String::new()
        };
        let devices: Vec<String> = match by_device.as_slice() {
            [only] => vec![format!(", {}", only.device)],
            several => several
                .iter()
                .map(|one| format!(", {}: {}", one.device, one.rows))
                .collect(),
        };
        let devices = devices.concat();
        let rate = ended as f64 / seconds.max(1e-9);
        let rate = if ended > 0 {
            format!(", {rate:.1} spectra/s")
        } else {
            String::new()
        };
        let spectra = if fits == 1 { "spectrum" } else { "spectra" };
        write!(
            f,
            "{fits} {spectra}{kept}: {counts}; {seconds:.2} s{rate}{devices}"
        )?;
        match &self.per_file {
            None => Ok(()),
            Some(files) => write!(f, "; {files}"),
        }
    }
}
