//! What makes a run the same run: `--resume` goes on with no other.

use std::fs::{File, Metadata};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use popfit::spectra::Selection;
use popfit::{Error, Result, SpectralFitter};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use twox_hash::XxHash3_128;

use super::Failure;
use super::fit::Arguments;
use super::report;

/// What the rows depend on: `name = value` line by line. Inputs go by name and contents, not by folder: the column `file` is written as
/// the run that ends the table was told, so `./s.npz`, `s.npz` and the same file in another folder are one.
pub fn key(
    arguments: &Arguments,
    fitter: &SpectralFitter,
    metadata: &popfit::Metadata,
    (selection, inputs): (&Selection, &Inputs),
) -> String {
    // no bit depends on the number of threads
    let device = if metadata.device.starts_with("cpu") { "cpu" } else { &metadata.device };
    let mut lines = vec![format!("version = {}", env!("CARGO_PKG_VERSION")), format!("device = {device}")];
    lines.extend(metadata.emulators.iter().map(|(file, hash)| format!("emulator {file} = {hash}")));
    for (arm, emulator) in fitter.model().arms() {
        // a grid may come from a file of its own
        let grid =
            Sha256::new_with_prefix(emulator.wavelength().iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
        let hash: String = grid.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        lines.push(format!("wavelength of arm {arm:?} = {hash}"));
    }
    lines.extend(
        inputs.0.iter().map(|Input { path, contents, .. }| format!("spectra {} = {contents:032x}", report::name(path))),
    );
    lines.extend(selected(selection));
    lines.push(format!("batch = {}", arguments.batch.map_or("not given".into(), |batch| batch.to_string())));
    lines.push(format!("format = {}", word(Some(arguments.format))));
    lines.push(format!("velocity scan = {}", word(arguments.velocity_scan)));
    lines.push(metadata.settings.clone());
    lines.push(metadata.model.clone());
    lines.join("\n")
}

/// An option as it is given.
fn word(option: Option<impl ValueEnum>) -> String {
    let given = option.and_then(|value| value.to_possible_value());
    given.map_or("not given".into(), |value| value.get_name().to_string())
}

/// A selection, a line each.
fn selected(selection: &Selection) -> [String; 4] {
    let Selection { target_ids, objtype, min_signal_to_noise, arms } = selection;
    let all = |list: Option<String>| list.unwrap_or_else(|| "all".into());
    let ids = target_ids.as_ref().map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    [
        format!("target ids = {}", all(ids)),
        format!("objtype = {}", all(objtype.clone())),
        format!("least signal-to-noise = {}", min_signal_to_noise.map_or("none".into(), |least| least.to_string())),
        format!("arms = {}", all(arms.as_ref().map(|arms| arms.join(",")))),
    ]
}

/// The files of spectra as they were at the start of a run.
pub struct Inputs(Vec<Input>);

struct Input {
    path: PathBuf,
    /// Nothing of a file that is not there, which who opens it tells.
    before: Option<Metadata>,
    contents: u128,
}

impl Inputs {
    /// Lengths and times, taken before the files are opened.
    pub fn new(files: &[PathBuf]) -> Inputs {
        let input = |path: &PathBuf| Input { path: path.clone(), before: std::fs::metadata(path).ok(), contents: 0 };
        Inputs(files.iter().map(input).collect())
    }

    /// Reads all of them once, unless it is cancelled.
    pub fn read(&mut self, cancel: &AtomicBool) -> std::result::Result<(), Failure> {
        self.0.par_iter_mut().try_for_each(|input| {
            input.contents = contents(&input.path, cancel)?;
            if input.has_other_times() { Err(input.written_to()) } else { Ok(()) }
        })
    }

    /// An error when a file has been written to meanwhile: what was read of it may be of two versions. One that was removed or replaced
    /// was open, and read as it was; one that has another time and the same contents was touched.
    pub fn check(&self) -> std::result::Result<(), Failure> {
        let is_other =
            |input: &Input| contents(&input.path, &AtomicBool::new(false)).map_or(true, |now| now != input.contents);
        match self.0.iter().find(|input| input.has_other_times() && is_other(input)) {
            None => Ok(()),
            Some(input) => Err(input.written_to()),
        }
    }
}

impl Input {
    fn has_other_times(&self) -> bool {
        let (Some(before), Ok(now)) = (&self.before, std::fs::metadata(&self.path)) else { return false };
        let stamp = |of: &Metadata| (of.len(), of.modified().ok());
        is_same_file(before, &now) && stamp(before) != stamp(&now)
    }

    fn written_to(&self) -> Failure {
        let path = self.path.display();
        Failure::differs(format!("{path} was written to while it was fitted: no table is made of two versions of it"))
    }
}

#[cfg(unix)]
fn is_same_file(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn is_same_file(a: &Metadata, b: &Metadata) -> bool {
    a.created().ok() == b.created().ok()
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Io { path: path.to_path_buf(), source }
}

/// A hash of a file's bytes, which finds changes, not forgery: at the speed of memory, as spectra are many.
fn contents(path: &Path, cancel: &AtomicBool) -> Result<u128> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(io(path))?);
    let mut hash = XxHash3_128::new();
    loop {
        let some = file.fill_buf().map_err(io(path))?;
        if some.is_empty() || cancel.load(Ordering::Relaxed) {
            return Ok(hash.finish_128());
        }
        hash.write(some);
        let length = some.len();
        file.consume(length);
    }
}
