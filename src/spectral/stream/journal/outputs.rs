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
pub fn states(outputs: &[PathBuf]) -> Vec<OutputState> {
    outputs
        .iter()
        .map(|path| OutputState {
            name: name(path),
            stamp: stamp(path),
            next: None,
        })
        .collect()
}

/// Notes in `states` the size and time of the file `temporary`, which will be renamed to an output.
#[cfg(feature = "files")]
pub fn expect(states: &mut Vec<OutputState>, output: &Path, temporary: &Path) {
    let (name, next) = (name(output), stamp(temporary));
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
pub fn first_changed<'a>(outputs: &'a [PathBuf], recorded: &[OutputState]) -> Option<&'a PathBuf> {
    outputs.iter().find(|path| is_changed(path, recorded))
}

/// Returns whether an output exists and its size and time are not as recorded.
fn is_changed(path: &Path, recorded: &[OutputState]) -> bool {
    let name = name(path);
    let known = recorded.iter().find(|state| state.name == name);
    let is_known = |now| known.is_some_and(|state| [state.stamp, state.next].contains(&Some(now)));
    stamp(path).is_some_and(|now| !is_known(now))
}

/// Returns the name of a file without its folders, so that a run can be resumed after its folder was moved.
fn name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Returns the size and modification time of a file; `None` if there is no such file.
fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let modified = found
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Some(Stamp {
        bytes: found.len(),
        modified: modified.map_or(0, |time| time.as_nanos() as u64),
    })
}
