//! The files that a run writes, as its journal last saw them: their lengths and times when the run began and after it
//! wrote them. A resumed run replaces an output only if it is still in the recorded state.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// Length and time of modification of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    bytes: u64,
    /// ns after 1970.
    modified: u64,
}

/// One file by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputState {
    name: String,
    /// Its stamp if it exists.
    stamp: Option<Stamp>,
    /// The stamp of a file that was about to take its name.
    next: Option<Stamp>,
}

/// Reads the state of each output.
pub fn states(outputs: &[PathBuf]) -> Vec<OutputState> {
    outputs.iter().map(|path| OutputState { name: name(path), stamp: stamp(path), next: None }).collect()
}

/// Notes that the file `temporary` is about to take the name of an output.
#[cfg(feature = "files")]
pub fn expect(states: &mut Vec<OutputState>, output: &Path, temporary: &Path) {
    let (name, next) = (name(output), stamp(temporary));
    match states.iter_mut().find(|state| state.name == name) {
        Some(state) => state.next = next,
        None => states.push(OutputState { name, stamp: None, next }),
    }
}

/// Returns the first output that exists and is not in the recorded state.
pub fn first_changed<'a>(outputs: &'a [PathBuf], recorded: &[OutputState]) -> Option<&'a PathBuf> {
    let is_changed = |path: &&PathBuf| {
        let name = name(path);
        let known = recorded.iter().find(|state| state.name == name);
        let is_known = |now| known.is_some_and(|state| [state.stamp, state.next].contains(&Some(now)));
        stamp(path).is_some_and(|now| !is_known(now))
    };
    outputs.iter().find(is_changed)
}

/// The file's name without its folders, so that a run may be resumed after its folder was moved.
fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let modified = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Some(Stamp { bytes: found.len(), modified: modified.map_or(0, |time| time.as_nanos() as u64) })
}
