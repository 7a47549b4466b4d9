//! Check of whether input files are still what they were when a run began.

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

/// Bytes of a file that one thread hashes.
const PART: u64 = 1 << 24;
/// Bytes that are read before they are hashed: they stay in a processor's cache.
const BLOCK: usize = 1 << 17;

/// Files of spectra as they were at the start of a run: their contents are part of what makes a run the same run
/// ([`SpectralFitter::resume_key`](crate::SpectralFitter::resume_key)), and must not change while it lasts.
#[derive(Debug)]
pub struct InputFiles(Vec<Input>);

#[derive(Debug)]
struct Input {
    path: PathBuf,
    /// Nothing of a file that is not there, which who opens it tells.
    before: Option<Metadata>,
    contents: u128,
}

impl InputFiles {
    /// Records length and modification time of each file; call it before the files are opened.
    pub fn new(files: &[impl AsRef<Path>]) -> InputFiles {
        let input = |path: &Path| Input {
            path: path.into(),
            before: std::fs::metadata(path).ok(),
            contents: 0,
        };
        InputFiles(files.iter().map(|path| input(path.as_ref())).collect())
    }

    /// Hashes the contents of all files; returns false if cancelled, an error if a file was modified meanwhile. Returns
    /// false if `cancel` was set meanwhile: the hashes then are incomplete, and no key of a run.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::InputChanged`] when a file was written to since [`new`](InputFiles::new).
    pub fn read(&mut self, cancel: &AtomicBool) -> Result<bool> {
        let read = |input: &mut Input| {
            input.contents = contents(&input.path, cancel)?;
            if input.has_other_times() {
                Err(input.written_to())
            } else {
                Ok(())
            }
        };
        threads::in_pool(|| self.0.par_iter_mut().try_for_each(read))?;
        Ok(!cancel.load(Ordering::Relaxed))
    }

    /// Fails if a file's contents have changed since they were hashed; call it at the end of a run. One that was
    /// removed or replaced had been read by then, or its reader has said so; one that has another time and the same
    /// contents was touched.
    ///
    /// # Errors
    /// [`Error::InputChanged`].
    pub fn check(&self) -> Result<()> {
        let is_other = |input: &Input| {
            contents(&input.path, &AtomicBool::new(false)).map_or(true, |now| now != input.contents)
        };
        match threads::in_pool(|| {
            self.0
                .iter()
                .find(|input| input.has_other_times() && is_other(input))
        }) {
            None => Ok(()),
            Some(input) => Err(input.written_to()),
        }
    }

    /// Returns the hash of the contents of each file, as hexadecimal text, once they have been
    /// [read](InputFiles::read).
    pub fn contents(&self) -> Vec<String> {
        let hashes = self
            .0
            .iter()
            .map(|input| format!("{:032x}", input.contents));
        hashes.collect()
    }

    /// Returns a line for each file: its name without its folder, and the hash of its contents.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let line = |Input { path, contents, .. }: &Input| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            format!("spectra {name} = {contents:032x}")
        };
        self.0.iter().map(line)
    }
}

impl Input {
    /// Returns whether the file was written to in place: the same device and inode as at first, another length or time.
    fn has_other_times(&self) -> bool {
        let (Some(before), Ok(now)) = (&self.before, std::fs::metadata(&self.path)) else {
            return false;
        };
        let stamp = |of: &Metadata| (of.len(), of.modified().ok());
        is_same_file(before, &now) && stamp(before) != stamp(&now)
    }

    /// Makes the error that the file has changed during the run.
    fn written_to(&self) -> Error {
        Error::InputChanged {
            path: self.path.clone(),
        }
    }
}

/// Returns a fast 128-bit hash of a file's bytes, which finds changes but not forgery: that of its only part, else of
/// the hashes of its parts. It stops early if cancelled.
fn contents(path: &Path, cancel: &AtomicBool) -> Result<u128> {
    let file = File::open(path).map_err(Error::io(path))?;
    let length = file.length().map_err(Error::io(path))?;
    let hash_part = |part: u64| {
        let start = part * PART;
        hash_bytes(&file, start..length.min(start + PART), cancel).map_err(Error::io(path))
    };
    let parts: Vec<u128> = (0..length.div_ceil(PART))
        .into_par_iter()
        .map(hash_part)
        .collect::<Result<_>>()?;
    if let [whole] = parts[..] {
        return Ok(whole);
    }
    let mut hash = XxHash3_128::new();
    parts
        .iter()
        .for_each(|part| hash.write(&part.to_le_bytes()));
    Ok(hash.finish_128())
}

/// Returns the hash of some bytes of a file; stops early if cancelled.
fn hash_bytes(file: &File, bytes: Range<u64>, cancel: &AtomicBool) -> io::Result<u128> {
    let mut hash = XxHash3_128::new();
    let mut block = vec![0; BLOCK];
    for start in bytes
        .clone()
        .step_by(BLOCK)
        .take_while(|_| !cancel.load(Ordering::Relaxed))
    {
        block.truncate(usize::try_from(bytes.end - start).unwrap_or(BLOCK));
        file.read_exact_at(&mut block, start)?;
        hash.write(&block);
    }
    Ok(hash.finish_128())
}
