//! States of the files that a run writes: their lengths and times when the run began and after it wrote them. A resumed
//! run replaces an output only if it is still in the recorded state.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// Length and time of modification of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: u64,
}

/// The recorded state of one output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputState {
    name: String,
    /// Stamp of the file if it exists.
    stamp: Option<Stamp>,
    /// Stamp of a temporary file that will be renamed to this output.
    next: Option<Stamp>,
}

/// Returns the name, size and modification time of each output.
pub fn read_states(outputs: &[PathBuf]) -> Vec<OutputState> {
    outputs
        .iter()
        .map(|path| OutputState {
            name: file_name(path),
            stamp: read_stamp(path),
            next: None,
        })
        .collect()
}

/// Records in `states` the size and time of the file `temporary`, which will be renamed to an output.
#[cfg(feature = "files")]
pub fn expect_rename(states: &mut Vec<OutputState>, output: &Path, temporary: &Path) {
    let name = file_name(output);
    let next = read_stamp(temporary);
    match states.iter_mut().find(|state| state.name == name) {
        Some(state) => state.next = next,
        None => states.push(OutputState {
            name,
            stamp: None,
            next,
        }),
    }
}

/// Returns the first output that exists and whose size and time are not as recorded.
pub fn find_changed<'a>(outputs: &'a [PathBuf], recorded: &[OutputState]) -> Option<&'a PathBuf> {
    outputs.iter().find(|path| is_changed(path, recorded))
}

/// Returns whether an output exists and its size and time are not as recorded.
fn is_changed(path: &Path, recorded: &[OutputState]) -> bool {
    let Some(stamp) = read_stamp(path) else {
        return false;
    };
    let name = file_name(path);
    let state = recorded.iter().find(|state| state.name == name);
    let is_recorded = state.is_some_and(|state| [state.stamp, state.next].contains(&Some(stamp)));
    !is_recorded
}

/// Returns the name of a file without its folders, so that a run can be resumed after its folder was moved.
fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Returns the size and modification time of a file; `None` if there is no such file.
fn read_stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let modified = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Some(Stamp {
        bytes: metadata.len(),
        modified: modified.map_or(0, |time| time.as_nanos() as u64),
    })
}
