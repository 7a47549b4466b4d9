//! Parts that fail: each error is kept beside the plan, and a part that has failed too often is left alone.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use popfit::{Error, OutputFile, Result};
use serde::Serialize;

use super::Plan;

/// Name of the list of parts that failed too often.
pub(super) const LIST: &str = "_failed.json";
/// Kind of the notes that keep errors.
pub(super) const NOTE: &str = "failed";
/// Error of a part whose worker gave no sign of life; its name follows.
const LOST_WORKER: &str = "its worker gave no sign of life: ";
/// Number of workers that may be lost with one part before it counts as failed. Clusters stop workers that do nothing
/// wrong, so that it is more than the attempts that end with an error.
const MAX_LOST_WORKERS: usize = 20;

/// A part that failed as often as it may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailedPart {
    /// Index of the part.
    pub part: usize,
    /// Paths of its files.
    pub files: Vec<PathBuf>,
    /// Its errors, the last one last.
    pub causes: Vec<String>,
}

/// Returns the path at which the errors of a part are kept, one per line.
fn path_of_errors(plan: &Plan, part: usize) -> PathBuf {
    plan.note_path(NOTE, part)
}

/// Returns the errors of a part, the last one last.
fn errors(plan: &Plan, part: usize) -> Vec<String> {
    let text = std::fs::read_to_string(path_of_errors(plan, part));
    text.map_or_else(
        |_| Vec::new(),
        |text| text.lines().map(str::to_string).collect(),
    )
}

/// Returns whether a part has failed `attempts` times with an error, or has been lost with too many workers.
pub(super) fn has_failed(plan: &Plan, part: usize, attempts: usize) -> bool {
    let errors = errors(plan, part);
    let lost = errors
        .iter()
        .filter(|error| error.starts_with(LOST_WORKER))
        .count();
    lost >= MAX_LOST_WORKERS || errors.len() - lost >= attempts
}

/// Adds an error of a part to those before.
pub(super) fn record(plan: &Plan, part: usize, error: &str) -> Result<()> {
    let path = path_of_errors(plan, part);
    let line = format!("{}\n", error.lines().collect::<Vec<_>>().join(" "));
    let file = OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(|source| Error::Io { path, source })
}

/// Adds the loss of the worker of this name to the errors of its part.
pub(super) fn record_loss(plan: &Plan, part: usize, worker: &str) -> Result<()> {
    record(plan, part, &format!("{LOST_WORKER}{worker}"))
}

/// Forgets the errors of a part that has been fitted.
pub(super) fn forget(plan: &Plan, part: usize) {
    let _ = std::fs::remove_file(path_of_errors(plan, part));
}

/// Returns these parts, all that have failed too often, with their causes, and writes them into `_failed.json`, which
/// is removed if there are none.
pub(super) fn list(plan: &Plan, parts: Vec<usize>) -> Result<Vec<FailedPart>> {
    let manifest = plan.manifest();
    let mut failed = Vec::new();
    for part in parts {
        let causes = errors(plan, part);
        let segments = manifest.parts.get(part).map_or(&[][..], |part| &part.0);
        let files = segments
            .iter()
            .filter_map(|segment| manifest.files.get(segment.file()));
        failed.push(FailedPart {
            part,
            files: files.map(|file| file.path.clone()).collect(),
            causes,
        });
    }
    let path = plan.folder().join(LIST);
    if failed.is_empty() {
        let _ = std::fs::remove_file(path);
        return Ok(failed);
    }
    let text = serde_json::to_string_pretty(&failed)
        .map_err(|error| Error::Internal(error.to_string()))?;
    // another worker that writes the list now has seen the same failures
    match OutputFile::create(path, true).and_then(|file| file.write(text + "\n")) {
        Ok(()) | Err(Error::OutputLocked { .. }) => Ok(failed),
        Err(error) => Err(error),
    }
}
