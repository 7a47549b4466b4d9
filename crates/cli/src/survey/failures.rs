//! Parts that fail: each error is kept beside the plan, and a part that has failed too often is left alone.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use popfit::{Error, OutputFile, Result};
use serde::Serialize;

use super::Manifest;

/// Name of the list of parts that failed too often.
const LIST: &str = "_failed.json";

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
fn path_of_errors(folder: &Path, manifest: &Manifest, part: usize) -> PathBuf {
    folder.join(format!(".failed-{}", manifest.number(part)))
}

/// Returns the errors of a part, the last one last.
pub(super) fn errors(folder: &Path, manifest: &Manifest, part: usize) -> Vec<String> {
    let text = std::fs::read_to_string(path_of_errors(folder, manifest, part));
    text.map_or_else(
        |_| Vec::new(),
        |text| text.lines().map(str::to_string).collect(),
    )
}

/// Adds an error of a part to those before.
pub(super) fn record(folder: &Path, manifest: &Manifest, part: usize, error: &str) -> Result<()> {
    let path = path_of_errors(folder, manifest, part);
    let line = format!("{}\n", error.lines().collect::<Vec<_>>().join(" "));
    let file = OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(|source| Error::Io { path, source })
}

/// Forgets the errors of a part that has been fitted.
pub(super) fn forget(folder: &Path, manifest: &Manifest, part: usize) {
    let _ = std::fs::remove_file(path_of_errors(folder, manifest, part));
}

/// Returns these parts, all that have failed too often, with their causes, and writes them into `_failed.json`, which
/// is removed if there are none.
pub(super) fn list(
    folder: &Path,
    manifest: &Manifest,
    parts: Vec<usize>,
) -> Result<Vec<FailedPart>> {
    let mut failed = Vec::new();
    for part in parts {
        let causes = errors(folder, manifest, part);
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
    let path = folder.join(LIST);
    if failed.is_empty() {
        let _ = std::fs::remove_file(path);
        return Ok(failed);
    }
    let text =
        serde_json::to_string_pretty(&failed).map_err(|error| Error::Usage(error.to_string()))?;
    // another worker that writes the list now has seen the same failures
    match OutputFile::create(path, true).and_then(|file| file.write(text + "\n")) {
        Ok(()) | Err(Error::OutputLocked { .. }) => Ok(failed),
        Err(error) => Err(error),
    }
}
