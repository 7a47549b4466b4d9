//! Check that input files do not change during a run.

use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use twox_hash::XxHash3_128;

use crate::error::{Error, Result};
use crate::io::files::{File, is_same_file};
use crate::threads;

/// Number of bytes of a file that one thread hashes.
const BYTES_PER_PART: u64 = 1 << 24;
/// Number of bytes that are read before they are hashed, so few that they stay in the processor's cache.
const BYTES_PER_READ: usize = 1 << 17;

/// Files of spectra as they were at the start of a run. Their contents are part of the identity of a run
/// ([`SpectralFitter::resume_key`](crate::SpectralFitter::resume_key)), and must not change during it.
#[derive(Debug)]
pub struct InputFiles(Vec<InputFile>);

/// A file as it was at the start of a run.
/// A file as it was at the start of a run.
#[derive(Debug)]
struct InputFile {
    path: PathBuf,
    /// Metadata at the start; `None` for a missing file, which is reported where it is opened.
    before: Option<Metadata>,
    /// Hash of the contents.
    hash: u128,
}

impl InputFiles {
    /// Records length and modification time of each file; call it before the files are opened.
    pub fn new(files: &[impl AsRef<Path>]) -> InputFiles {
        let inputs = files.iter().map(|file| InputFile {
            path: file.as_ref().into(),
            before: std::fs::metadata(file.as_ref()).ok(),
            hash: 0,
        });
        InputFiles(inputs.collect())
    }

    /// Hashes the contents of all files; fails if a file was modified meanwhile. Returns false if `cancel` was set
    /// meanwhile, and the hashes are incomplete.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::InputChanged`] if a file was modified since [`new`](InputFiles::new).
    pub fn read(&mut self, cancel: &AtomicBool) -> Result<bool> {
        let hash_input = |input: &mut InputFile| {
            input.hash = hash_file(&input.path, cancel)?;
            if input.was_modified() {
                Err(input.changed_error())
            } else {
                Ok(())
            }
        };
        threads::in_pool(|| self.0.par_iter_mut().try_for_each(hash_input))?;
        Ok(!cancel.load(Ordering::Relaxed))
    }

    /// Fails if a file's contents have changed since they were hashed; call it at the end of a run. A file that was
    /// removed or replaced had been read before, or its reader has reported it. A file that has another modification
    /// time but the same contents is unchanged.
    ///
    /// # Errors
    /// [`Error::InputChanged`].
    pub fn check(&self) -> Result<()> {
        let has_changed = |input: &InputFile| {
            let hash_now = hash_file(&input.path, &AtomicBool::new(false));
            hash_now.map_or(true, |hash| hash != input.hash)
        };
        let changed_input = threads::in_pool(|| {
            self.0
                .iter()
                .find(|input| input.was_modified() && has_changed(input))
        });
        match changed_input {
            None => Ok(()),
            Some(input) => Err(input.changed_error()),
        }
    }

    /// Returns the hash of the contents of each file, as hexadecimal text, once they have been
    /// [read](InputFiles::read).
    pub fn contents(&self) -> Vec<String> {
        let hashes = self.0.iter().map(|input| format!("{:032x}", input.hash));
        hashes.collect()
    }

    /// Returns a line for each file: its name without its folder, and the hash of its contents.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|InputFile { path, hash, .. }| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            format!("spectra {name} = {hash:032x}")
        })
    }
}

impl InputFile {
    /// Returns whether the file was modified in place: it is the same file as at the start, but its length or
    /// modification time has changed.
    fn was_modified(&self) -> bool {
        let (Some(before), Ok(now)) = (&self.before, std::fs::metadata(&self.path)) else {
            return false;
        };
        let length_and_time = |metadata: &Metadata| (metadata.len(), metadata.modified().ok());
        is_same_file(before, &now) && length_and_time(before) != length_and_time(&now)
    }

    /// Makes the error that the file has changed during the run.
    fn changed_error(&self) -> Error {
        Error::InputChanged {
            path: self.path.clone(),
        }
    }
}

/// Returns a fast 128-bit hash of a file's bytes, which finds changes but not forgery. For a file of several parts it
/// is the hash of their hashes. The function stops early if cancelled.
fn hash_file(path: &Path, cancel: &AtomicBool) -> Result<u128> {
    let file = File::open(path).map_err(Error::io(path))?;
    let length = file.length().map_err(Error::io(path))?;
    let hash_part = |part: u64| {
        let start = part * BYTES_PER_PART;
        hash_bytes(&file, start..length.min(start + BYTES_PER_PART), cancel)
            .map_err(Error::io(path))
    };
    let part_hashes: Vec<u128> = (0..length.div_ceil(BYTES_PER_PART))
        .into_par_iter()
        .map(hash_part)
        .collect::<Result<_>>()?;
    if let [only_hash] = part_hashes[..] {
        return Ok(only_hash);
    }
    let mut hash = XxHash3_128::new();
    part_hashes
        .iter()
        .for_each(|part_hash| hash.write(&part_hash.to_le_bytes()));
    Ok(hash.finish_128())
}

/// Returns the hash of some bytes of a file; stops early if cancelled.
fn hash_bytes(file: &File, bytes: Range<u64>, cancel: &AtomicBool) -> io::Result<u128> {
    let mut hash = XxHash3_128::new();
    let mut buffer = vec![0; BYTES_PER_READ];
    for start in bytes
        .clone()
        .step_by(BYTES_PER_READ)
        .take_while(|_| !cancel.load(Ordering::Relaxed))
    {
        buffer.truncate(usize::try_from(bytes.end - start).unwrap_or(BYTES_PER_READ));
        file.read_exact_at(&mut buffer, start)?;
        hash.write(&buffer);
    }
    Ok(hash.finish_128())
}
